"""enorm, section 7 on the real engine: figures 9 to 13 and 16 and the comparison of section 7.7.

    python benchmarks/enorm_figures.py                    over an hour on two quiet cores, 45 minutes of it figure 13
    python benchmarks/enorm_figures.py --figure 10 16     some of them
    python benchmarks/enorm_figures.py --quick            fewer rows, files with -quick

Figures 14 and 15 are in enorm_fusion_figures.py. Every run checks its results. Alternatives take turns within one
sitting; a machine that is busy with other things makes the ratios noisy and the seconds meaningless.
"""

from __future__ import annotations

from collections.abc import Callable

from enorm_consolidation import figure9, section77
from enorm_fast_job import figure16
from enorm_migration import figure10
from enorm_overload import figure13
from enorm_split import figure11, figure12
from reporting import Report, run_figures

FIGURES: dict[str, Callable[[bool], Report]] = {
    "9": figure9,
    "10": figure10,
    "11": figure11,
    "12": figure12,
    "13": figure13,
    "16": figure16,
    "7.7": section77,
}


if __name__ == "__main__":
    run_figures(__doc__, FIGURES)
