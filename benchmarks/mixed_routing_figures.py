"""mixed-routing, figures 7 to 12 and 17 to 21: the planner-level experiments, each with the paper's claims beside ours.

    python benchmarks/mixed_routing_figures.py                     all figures, about twelve minutes
    python benchmarks/mixed_routing_figures.py --figure 11         one of them
    python benchmarks/mixed_routing_figures.py --quick             small versions, into files with -quick in the name

Defaults are those of table II (theta_max 0.08, f 1, z 0.85, w 5, N_D 15, N_A 3000, beta 1.5), except that K is 10^5
where a figure does not vary it; figures 7, 8, 10 and 11 go up to the paper's 10^6. How an experiment runs, and what is
asserted on the way, is in ``intervals.py``. A key's state per interval is its tuples.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mixed_routing_appendix import figure_17, figure_18, figure_19, figure_20
from mixed_routing_section5 import figure_7, figure_8, figure_9, figure_10, figure_11, figure_12
from reporting import RESULTS, Report
from sweeps import Scale

FIGURES: dict[str, Callable[[Scale], Report]] = {
    "7": figure_7,
    "8": figure_8,
    "9": figure_9,
    "10": figure_10,
    "11": figure_11,
    "12": figure_12,
    "17": figure_17,
    "18": figure_18,
    "19": figure_19,
    "20": figure_20,
    "21": figure_20,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", choices=[*FIGURES, "all"], default="all")
    parser.add_argument("--quick", action="store_true", help="a small version, for a look")
    parser.add_argument("--keys", type=int, help="K where a figure does not vary it; 100,000, quick 10,000")
    parser.add_argument("--large-keys", type=int, help="K of figures 7, 8, 10 and 11; 1,000,000, quick 30,000")
    parser.add_argument("--adjustments", type=int, help="of figure 18; 7,000, quick 200")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    quick = options.quick
    scale = Scale(
        keys=options.keys or (10_000 if quick else 100_000),
        large=options.large_keys or (30_000 if quick else 1_000_000),
        measured=3 if quick else 10,
        measured_large=2 if quick else 5,
        runs=1 if quick else 3,
        adjustments=options.adjustments or (200 if quick else 7_000),
        repeats=2 if quick else 5,
        quick=quick,
        seed=options.seed,
        out=options.out,
    )
    chosen = list(dict.fromkeys(FIGURES.values())) if options.figure == "all" else [FIGURES[options.figure]]
    begin = time.perf_counter()
    for figure in chosen:
        start = time.perf_counter()
        report = figure(scale)
        path = (replace(report, name=f"{report.name}-quick") if quick else report).write(scale.out)
        for claim in report.claims:
            print(f"  {'holds   ' if claim.holds else 'DOES NOT'}  {claim.paper}: {claim.ours}")
        print(f"wrote {path} after {time.perf_counter() - start:.0f} s", flush=True)
    print(f"{time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
