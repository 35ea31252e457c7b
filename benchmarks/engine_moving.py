"""Moving: a batch in which a tenth of the state changes owner against one in which nothing moves.

    python benchmarks/engine_moving.py [--keys 1000000] [--quick]

Running count and sum per key. After the state is built, a tenth of the key groups moves at every second boundary, by
hand, to another slot. Three queries take turns on the same rows: one moves by manifest, one copies the state at once,
the papers' way, and in one nothing ever moves. The batches that move are measured against those of the last one, since
slots leave merging what a move brought together to the batches in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import headgate as hg
from engine import (
    Course,
    arguments,
    expected,
    latest,
    millis,
    rows_of,
    same,
    scratch,
    session,
    timed_stream,
    times,
    write_batches,
)
from headgate.routing import GROUPS
from headgate.sinks import Sink
from reporting import Claim, Report, Table

CORES, SLOTS = 2, 4
SHARE = 0.1
BUILD = 1_000_000
"""Rows of a batch that builds the state up."""

PER_ROUND, WARM = 18, 2
WAYS = ("manifest", "copy")
STILL = "nothing moves"
QUERIES = (*WAYS, STILL)


class Mover:
    """Listens to a query and moves a tenth of its key groups before every odd batch of a round.

    Groups that moved in one batch are used from their new place in the next, and the next move takes other ones.
    """

    def __init__(self, groups: int, offset: int) -> None:
        self.query: hg.Query | None = None
        self.count = round(SHARE * groups)
        self.groups = groups
        self.offset = offset
        self.moved: set[int] = set()
        self.seen = 0

    def on_progress(self, progress: Mapping[str, Any]) -> None:
        """After a batch: order the move for the next one."""
        self.seen += 1
        if self.query is None or self.seen % 2 == 0 or self.seen < WARM:
            return
        first = self.offset + len(self.moved) * self.count
        chosen = (first + np.arange(self.count)) % self.groups
        owners = self.query.assignment().groups[chosen]
        for slot in range(SLOTS):
            leaving = chosen[owners == slot]
            if len(leaving):
                self.query.move(groups=leaving.tolist(), to=(slot + 1) % SLOTS)
        self.moved.add(int(progress["batch"]) + 1)


def round_of(
    spark: SparkSession, folder: Path, checkpoint: Path, sink: Sink, way: str, mover: Mover | None = None
) -> Course:
    job = hg.Job(way.replace(" ", "-"))
    source = hg.sources.files(spark, str(folder), max_files_per_trigger=1)
    job.source(source).key_by("k").aggregate(n=hg.count(), total=hg.sum("v")).write_to(sink)
    told: list[dict[str, Any]] = []
    listeners: list[Any] = [told.append]
    if mover is not None:
        listeners.append(mover)
    query = job.start(
        spark, checkpoint=str(checkpoint), slots=SLOTS, balance=None, trigger="available now", listeners=listeners,
        migration=way if way in WAYS else "manifest",
    )  # fmt: skip
    if mover is not None:
        mover.query = query
    return timed_stream(spark, job, query, told)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--rows", type=int, default=100_000, help="rows per batch")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    keys, rows, rounds, per_round = options.keys, options.rows, options.rounds, PER_ROUND
    if options.quick:
        keys, rows, rounds, per_round = keys // 20, rows // 10, 1, 6
    rng = np.random.default_rng(options.seed)
    whole = pa.table({"k": rng.permutation(keys), "v": np.ones(keys, dtype=np.int64)})
    pieces = [whole.slice(at, BUILD) for at in range(0, keys, BUILD)]
    tables = list(pieces)
    sinks = {way: hg.sinks.memory() for way in QUERIES}
    still: dict[str, list[float]] = {way: [] for way in QUERIES}
    moving: dict[str, list[float]] = {way: [] for way in QUERIES}
    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    overall: dict[str, list[float]] = {way: [] for way in WAYS}
    copied: dict[str, list[int]] = {way: [] for way in QUERIES}
    written: dict[str, list[int]] = {way: [] for way in QUERIES}
    state = 0
    with scratch() as space, session(CORES, SLOTS) as spark:
        folder = write_batches(space / "in", pieces)
        for way in QUERIES:
            round_of(spark, folder, space / way.replace(" ", "-"), sinks[way], way)
        for turn in range(rounds):
            more = [rows_of(rng.integers(0, keys, rows), rng) for _ in range(per_round)]
            write_batches(folder, more, first=len(tables))
            tables += more
            base: list[float] = []
            for way in (STILL, *WAYS):
                mover = Mover(GROUPS, turn * per_round // 2 * round(SHARE * GROUPS)) if way in WAYS else None
                checkpoint = space / way.replace(" ", "-")
                course = round_of(spark, folder, checkpoint, sinks[way], way, mover)
                assert len(course.seconds) == len(course.progress) == per_round
                batches = list(zip(course.seconds.tolist(), course.progress, strict=True))[WARM:]
                moved = mover.moved if mover is not None else set()
                moves = [taken for taken, each in batches if each["batch"] in moved]
                stays = [taken for taken, each in batches if each["batch"] not in moved]
                copied[way] += [each["copied_bytes"] for _, each in batches if each["batch"] in moved]
                written[way] += [each["written_bytes"] for _, each in batches]
                still[way] += stays
                moving[way] += moves
                state = course.progress[-1]["state_bytes"]
                if mover is None:
                    base = stays
                    print(f"{turn} {way}: {millis(median(stays))}", flush=True)
                    continue
                ratios[way].append(median(moves) / median(base))
                overall[way].append(sum(moves + stays) / sum(base))
                print(f"{turn} {way}: {millis(median(moves))} moving, {millis(median(stays))} still", flush=True)
        wanted = expected(tables)
        for way in QUERIES:
            same(latest(sinks[way].to_arrow()), wanted, way)
    assert not any(copied["manifest"]), "a move by manifest copied state"
    assert all(copied["copy"]), "a move by copying copied nothing"
    ratio = {way: median(ratios[way]) for way in WAYS}
    table = Table(
        (
            "way", "batch that moves", "batch between", "a batch that moves, against one where nothing ever does",
            "all batches, against all of those", "copied a move", "written a batch", "batches that moved",
        ),
        [
            *(
                (
                    way,
                    millis(median(moving[way])),
                    millis(median(still[way])),
                    times(ratio[way]),
                    times(median(overall[way])),
                    f"{median(copied[way]) / 1e6:.2f} MB",
                    f"{np.mean(written[way]) / 1e6:.1f} MB",
                    len(moving[way]),
                )
                for way in WAYS
            ),
            (STILL, "-", millis(median(still[STILL])), "1.00 times", "1.00 times", "-",
             f"{np.mean(written[STILL]) / 1e6:.1f} MB", 0),
        ],
    )  # fmt: skip
    report = Report(
        name="engine_moving",
        title="Moving a tenth of the state",
        setup=f"Running count and sum, {keys:,} keys of state ({state / 1e6:,.0f} MB) in {GROUPS:,} key groups, "
        f"{rows:,} rows a batch, local[{CORES}], {SLOTS} slots. {SHARE:.0%} of the key groups move at every "
        f"second boundary, each to the next slot. {rounds} rounds of {per_round} batches, in which a query that moves "
        f"by manifest, one that copies and one that does not move take turns; the first {WARM} batches of a round do "
        "not count. Ratios are those of medians (of sums, for all batches) within a round, their median over rounds. "
        "What a move brings together is merged in the batches between. Counts and sums of all keys are compared with "
        "pyarrow's.",
        claims=[
            Claim("a batch that moves takes at most 1.1 times one that does not", times(ratio["manifest"]),
                  ratio["manifest"] <= 1.1),
        ],
        tables=[table],
        parameters={"keys": keys, "rows": rows, "rounds": rounds},
        seed=options.seed,
        notes=["Copying is shown beside it; nothing is claimed of it."],
        claimed_by="the target",
    )  # fmt: skip
    print(report.write(options.out))
    print(report.markdown())


if __name__ == "__main__":
    main()
