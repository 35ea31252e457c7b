"""blocking-rate, figures 5 and 8 to 13 and section 4.4, with real regions: processes, sockets, an ordered merge.

    python benchmarks/regions_figures.py                    some twenty minutes
    python benchmarks/regions_figures.py --figure 8 10      some of them
    python benchmarks/regions_figures.py --quick            fewer workers, shorter runs, files with -quick

Every run checks its results: complete, in order, each once. Alternatives are compared within one sitting; a machine
that is busy with other things makes the ratios noisy and the seconds meaningless.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from regions_depth import figure5, figure8, figure12
from regions_reroute import section44
from regions_runs import warm
from regions_sweeps import figure9, figure10, figure11, figure13
from reporting import RESULTS, Report

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", nargs="+", choices=list(FIGURES), default=list(FIGURES))
    parser.add_argument("--quick", action="store_true", help="a small version, for a look")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    warm()
    for name in options.figure:
        print(f"figure {name}", flush=True)
        began = time.perf_counter()
        report = FIGURES[name](options.quick)
        if options.quick:
            report = replace(report, name=f"{report.name}-quick")
        path = report.write(options.out)
        held = sum(claim.holds for claim in report.claims)
        print(
            f"wrote {path.name}: {held} of {len(report.claims)} claims hold, {time.perf_counter() - began:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
