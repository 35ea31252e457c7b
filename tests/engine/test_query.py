"""What a user is told when a query fails."""

import pytest

from headgate.engine.query import explained
from headgate.errors import JobError

IN_A_FUNCTION = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "engine/tasks.py", line 100, in route
    yield from Router(unpacked(orders), _partition()).run(batches)
  File "operators/windowed.py", line 285, in instants
    return pc.cast(column, pa.int64())
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "pyarrow/error.pxi", line 92, in pyarrow.lib.check_status
pyarrow.lib.ArrowInvalid: Failed to parse string: 'x' as a scalar of type int64"""

TWICE = """Traceback (most recent call last):
  File "mine.py", line 1, in read
    return rows["n"]
KeyError: 'n'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "mine.py", line 3, in read
    raise Missing("no n")
mine.Missing: no n
and this is why"""

WITHOUT_A_MESSAGE = """Traceback (most recent call last):
  File "mine.py", line 3, in read
    assert rows
AssertionError"""

FROM_JAVA = """An error occurred while calling o1.collect.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)"""

OURS = """Traceback (most recent call last):
  File "state/runs.py", line 3, in verify
    raise StateError.damaged(name)
headgate.errors.StateError: the run is damaged: restore it

During handling"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(
            IN_A_FUNCTION,
            "pyarrow.lib.ArrowInvalid: Failed to parse string: 'x' as a scalar of type int64",
            id="an exception that is not called an error",
        ),
        pytest.param(TWICE, "mine.Missing: no n", id="the last of two, and the first line of what it says"),
        pytest.param(WITHOUT_A_MESSAGE, "AssertionError", id="one that says nothing"),
        pytest.param(
            FROM_JAVA,
            "org.apache.spark.SparkException: Job aborted due to stage failure",
            id="one of Java alone",
        ),
        pytest.param(OURS, "StateError: the run is damaged: restore it", id="one of headgate's own"),
        pytest.param("no more memory", "RuntimeError: no more memory", id="anything else"),
    ],
)
def test_a_failed_query_says_what_was_raised(text: str, said: str) -> None:
    cause = RuntimeError(text)
    told = explained("visits", 3, cause)
    assert str(told).startswith(f"query 'visits' failed in batch 3: {said}; what was committed is safe")
    assert told.__cause__ is cause


def test_an_error_of_headgate_is_given_as_it_is() -> None:
    error = JobError.empty("visits")
    assert explained("visits", 0, error) is error
