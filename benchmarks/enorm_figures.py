"""enorm, section 7 on the real engine: figures 9 to 13 and 16 and the comparison of section 7.7.

    python benchmarks/enorm_figures.py                    some twenty minutes on two quiet cores
    python benchmarks/enorm_figures.py --figure 10 16     some of them
    python benchmarks/enorm_figures.py --quick            fewer rows, files with -quick

Figures 14 and 15 are in enorm_fusion_figures.py. Every run checks its results. Alternatives take turns within one
sitting; a machine that is busy with other things makes the ratios noisy and the seconds meaningless.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from enorm_consolidation import figure9, section77
from enorm_fast_job import figure16
from enorm_migration import figure10
from enorm_overload import figure13
from enorm_split import figure11, figure12
from reporting import RESULTS, Report

FIGURES: dict[str, Callable[[bool], Report]] = {
    "9": figure9,
    "10": figure10,
    "11": figure11,
    "12": figure12,
    "13": figure13,
    "16": figure16,
    "7.7": section77,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", nargs="+", choices=list(FIGURES), default=list(FIGURES))
    parser.add_argument("--quick", action="store_true", help="a small version, for a look")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
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
