"""Operators: what a job does with the rows of a key and its state. Pure."""

from headgate.operators.aggregates import Aggregate, Aggregation, Part, count, max_, mean, min_, sum_
from headgate.operators.columns import Declaration, Pickled, StateColumns, output_columns, type_name, type_of
from headgate.operators.contract import NO_TIMER, NO_WATERMARK, Clock, KeyedInput, KeyedOperator, KeyedOutput
from headgate.operators.counts import CountAggregation
from headgate.operators.grouping import Grouping, check_one_key, group_rows
from headgate.operators.per_key import PerKey
from headgate.operators.rows import Context, Rows
from headgate.operators.sessions import SessionAggregation
from headgate.operators.vectorised import Batch, Update, Vectorised
from headgate.operators.windowed import WindowedAggregation, instants, pieces_of

__all__ = [
    "NO_TIMER",
    "NO_WATERMARK",
    "Aggregate",
    "Aggregation",
    "Batch",
    "Clock",
    "Context",
    "CountAggregation",
    "Declaration",
    "Grouping",
    "KeyedInput",
    "KeyedOperator",
    "KeyedOutput",
    "Part",
    "PerKey",
    "Pickled",
    "Rows",
    "SessionAggregation",
    "StateColumns",
    "Update",
    "Vectorised",
    "WindowedAggregation",
    "check_one_key",
    "count",
    "group_rows",
    "instants",
    "max_",
    "mean",
    "min_",
    "output_columns",
    "pieces_of",
    "sum_",
    "type_name",
    "type_of",
]
