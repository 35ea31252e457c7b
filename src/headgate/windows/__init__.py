"""Windows: their kinds, the slices they share, and which partials make which window. Pure."""

from headgate.windows.consolidation import SLICE, Consolidation, Piece, Step
from headgate.windows.costs import (
    Choice,
    Running,
    Sharing,
    Usage,
    combine_cpu,
    combine_latency,
    decide_running,
    decide_sharing,
    split_cpu,
)
from headgate.windows.counting import closing_counts, row_numbers
from headgate.windows.helpers import with_helpers
from headgate.windows.kinds import (
    CountWindows,
    Hop,
    Hopping,
    Overlapping,
    Sessions,
    Spans,
    TimeWindows,
    Tumbling,
    window,
)
from headgate.windows.progress import NO_WATERMARK, Stage, stages, watermark_of
from headgate.windows.sessions import Merged, merge_sessions, session_closed
from headgate.windows.slices import Slicing
from headgate.windows.spans import place_in_slices, place_in_windows, valid_spans

__all__ = [
    "NO_WATERMARK",
    "SLICE",
    "Choice",
    "Consolidation",
    "CountWindows",
    "Hop",
    "Hopping",
    "Merged",
    "Overlapping",
    "Piece",
    "Running",
    "Sessions",
    "Sharing",
    "Slicing",
    "Spans",
    "Stage",
    "Step",
    "TimeWindows",
    "Tumbling",
    "Usage",
    "closing_counts",
    "combine_cpu",
    "combine_latency",
    "decide_running",
    "decide_sharing",
    "merge_sessions",
    "place_in_slices",
    "place_in_windows",
    "row_numbers",
    "session_closed",
    "split_cpu",
    "stages",
    "valid_spans",
    "watermark_of",
    "window",
    "with_helpers",
]
