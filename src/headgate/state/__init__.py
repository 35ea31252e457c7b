"""The state store: immutable sorted runs, references to them, versioned manifests, and the checkpoint they lie in."""

from headgate.state.bitmap import Bitmap
from headgate.state.checkpoint import Checkpoint, Finding
from headgate.state.files import Files, unique_name
from headgate.state.lookup import Found, due, lookup
from headgate.state.manifest import (
    BatchPlan,
    Counts,
    Manifest,
    Migration,
    Way,
    assignment_from_json,
    assignment_to_json,
)
from headgate.state.merge import GROWTH, MAX_REFS, fold, merge, scan, write_delta
from headgate.state.ownership import HEARTBEAT_SECONDS
from headgate.state.refs import Layout, Owner, PackedRefs, Ref, astray, moved
from headgate.state.rows import FIRST_KEY, NEVER, Timer, row_schema, timer_column
from headgate.state.runs import Run, RunInfo, open_run
from headgate.state.writer import RunWriter

__all__ = [
    "FIRST_KEY",
    "GROWTH",
    "HEARTBEAT_SECONDS",
    "MAX_REFS",
    "NEVER",
    "BatchPlan",
    "Bitmap",
    "Checkpoint",
    "Counts",
    "Files",
    "Finding",
    "Found",
    "Layout",
    "Manifest",
    "Migration",
    "Owner",
    "PackedRefs",
    "Ref",
    "Run",
    "RunInfo",
    "RunWriter",
    "Timer",
    "Way",
    "assignment_from_json",
    "assignment_to_json",
    "astray",
    "due",
    "fold",
    "lookup",
    "merge",
    "moved",
    "open_run",
    "row_schema",
    "scan",
    "timer_column",
    "unique_name",
    "write_delta",
]
