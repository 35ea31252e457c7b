"""Run a streaming job once over files that are there already: a backfill, or a test of the job.

The job is put together by a function, so that the same one can be started on a stream. A static source is one batch,
after which every timer in event time is due; then the query ends. Started again on its checkpoint it changes nothing.

Run it: python examples/backfill.py
"""

import random
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import headgate as hg

RATES = {"EUR": 100, "USD": 92}
"""Euro cents for a unit of the currency."""


def in_cents(orders: pa.Table) -> pa.Table:
    """A map over whole batches of rows: the amount of every order in euro cents."""
    is_dollar = pc.equal(orders["currency"], "USD")
    rate = pc.if_else(is_dollar, RATES["USD"], RATES["EUR"])
    return pa.table({"customer": orders["customer"], "cents": pc.multiply(orders["amount"], rate)})


def on_customer(customer: str, rows: hg.Rows, state: dict[str, Any]) -> dict[str, Any]:
    """Called once per customer and batch."""
    state["orders"] += len(rows)
    state["largest"] = max(state["largest"], *rows["cents"])
    return {"customer": customer, "orders": state["orders"], "largest": state["largest"]}


def make_job(source: Any, sink: Any) -> hg.Job:
    """The same job for a stream of orders and for all orders so far."""
    job = hg.Job("customers")
    orders = job.source(source, "orders").map(in_cents)
    customers = orders.key_by("customer").process(
        on_customer,
        state={"orders": 0, "largest": 0},
        output="customer string, orders long, largest long",
    )
    customers.write_to(sink)
    return job


def write_orders(folder: Path, files: int = 3, orders: int = 500) -> dict[str, tuple[int, int]]:
    """CSV files of orders; returns number of orders and largest order of each customer."""
    dice = random.Random(5)
    expected: dict[str, tuple[int, int]] = {}
    for number in range(files):
        lines = ["customer,amount,currency"]
        for _ in range(orders):
            customer, amount = f"c{int(dice.paretovariate(0.7)) % 200}", dice.randrange(1, 500)
            currency = dice.choice(sorted(RATES))
            lines.append(f"{customer},{amount},{currency}")
            count, largest = expected.get(customer, (0, 0))
            expected[customer] = count + 1, max(largest, amount * RATES[currency])
        (folder / f"{number}.csv").write_text("\n".join(lines) + "\n")
    return expected


def main(spark: SparkSession) -> None:
    with tempfile.TemporaryDirectory() as folder:
        incoming = Path(folder, "orders")
        incoming.mkdir()
        expected = write_orders(incoming)

        source = hg.sources.files(
            spark,
            str(incoming),
            format="csv",
            schema="customer string, amount long, currency string",
            streaming=False,
        )
        for attempt in ("first", "second"):  # the second start finds everything done
            table = hg.sinks.memory()
            query = make_job(source, table).start(spark, checkpoint=f"{folder}/checkpoint", slots=4)
            query.await_termination()
            found = {row["customer"]: (row["orders"], row["largest"]) for row in table.to_pylist()}
            assert found == expected, (found, expected)
            print(f"{attempt} start: {len(query.recent_progress)} batch(es), {len(found)} customers")


if __name__ == "__main__":
    main(SparkSession.builder.master("local[2]").appName("backfill").getOrCreate())
