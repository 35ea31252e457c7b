"""blocking-rate, figures 5 and 8 to 13 and section 4.4, with real regions: processes, sockets, an ordered merge.

    python benchmarks/regions_figures.py                    about an hour, figure 10 a third of it
    python benchmarks/regions_figures.py --figure 8 10      some of them
    python benchmarks/regions_figures.py --quick            fewer workers, shorter runs, files with -quick

Every run checks its results: complete, in order, each once. Alternatives are compared within one sitting; a machine
that is busy with other things makes the ratios noisy and the seconds meaningless.
"""

from __future__ import annotations

from collections.abc import Callable

from regions_depth import figure5, figure8, figure12
from regions_reroute import section44
from regions_runs import warm
from regions_sweeps import figure9, figure10, figure11, figure13
from reporting import Report, run_figures

FIGURES: dict[str, Callable[[bool], Report]] = {
    "8": figure8,
    "10": figure10,
    "5": figure5,
    "9": figure9,
    "11": figure11,
    "12": figure12,
    "13": figure13,
    "4.4": section44,
}


if __name__ == "__main__":
    run_figures(__doc__, FIGURES, warm)
