"""Operators: what a job does with the rows of a key and its state. Pure."""

from headgate.operators.aggregates import Aggregation
from headgate.operators.arranging import is_ascending, rearranged
from headgate.operators.basics import count, max_, mean, min_, sum_
from headgate.operators.columns import Declaration, Pickled, StateColumns, output_columns, type_name, type_of
from headgate.operators.contract import NO_TIMER, NO_WATERMARK, Clock, KeyedInput, KeyedOperator, KeyedOutput
from headgate.operators.counts import CountAggregation
from headgate.operators.custom import aggregate
from headgate.operators.folds import Aggregate, Fold, Part
from headgate.operators.grouping import Grouping, check_one_key, group_rows, key_runs, keys_at
from headgate.operators.joins import LEFT, RIGHT, How, IntervalJoin, Tagged
from headgate.operators.moments import stddev, variance
from headgate.operators.occurrences import distinct, top_k
from headgate.operators.ordered import collect, first, last
from headgate.operators.per_key import PerKey
from headgate.operators.rows import Context, Rows
from headgate.operators.sessions import SessionAggregation
from headgate.operators.sketches import approx_distinct, quantile
from headgate.operators.split import Compute, Consolidate
from headgate.operators.vectorised import Batch, Update, Vectorised
from headgate.operators.windowed import (
    TIMES,
    WindowedAggregation,
    direct,
    grouped_by_piece,
    instants,
    is_time,
    pieces_of,
)

__all__ = [
    "LEFT",
    "NO_TIMER",
    "NO_WATERMARK",
    "RIGHT",
    "TIMES",
    "Aggregate",
    "Aggregation",
    "Batch",
    "Clock",
    "Compute",
    "Consolidate",
    "Context",
    "CountAggregation",
    "Declaration",
    "Fold",
    "Grouping",
    "How",
    "IntervalJoin",
    "KeyedInput",
    "KeyedOperator",
    "KeyedOutput",
    "Part",
    "PerKey",
    "Pickled",
    "Rows",
    "SessionAggregation",
    "StateColumns",
    "Tagged",
    "Update",
    "Vectorised",
    "WindowedAggregation",
    "aggregate",
    "approx_distinct",
    "check_one_key",
    "collect",
    "count",
    "direct",
    "distinct",
    "first",
    "group_rows",
    "grouped_by_piece",
    "instants",
    "is_ascending",
    "is_time",
    "key_runs",
    "keys_at",
    "last",
    "max_",
    "mean",
    "min_",
    "output_columns",
    "pieces_of",
    "quantile",
    "rearranged",
    "stddev",
    "sum_",
    "top_k",
    "type_name",
    "type_of",
    "variance",
]
