"""The errors that carry more than a text."""

from __future__ import annotations

import pickle

import pytest

from headgate.errors import CheckpointError, HeadgateError, KeyCollisionError, StateError, UserFunctionError


def test_a_user_function_error_names_operator_key_row_and_slot() -> None:
    cause = ZeroDivisionError("division by zero")
    error = UserFunctionError.in_key("count", ("a", 3), {"v": 0}, cause)
    assert str(error) == (
        "the function of operator 'count' raised ZeroDivisionError: division by zero for key ('a', 3) (its first row "
        "is {'v': 0}): mend the function and start the job again, it goes on from its last commit"
    )
    placed = error.on_slot(5)
    assert "for key ('a', 3) on slot 5 (its first row" in str(placed)
    assert (placed.operator, placed.key, placed.row, placed.slot) == ("count", ("a", 3), {"v": 0}, 5)
    assert placed.error is placed.__cause__ is cause
    assert "(it had no rows, a timer fired)" in str(UserFunctionError.in_key("count", "a", None, cause))
    bare = UserFunctionError("text")
    assert bare.on_slot(1) is bare


def test_errors_travel_between_processes_with_what_they_carry() -> None:
    user = pickle.loads(pickle.dumps(UserFunctionError.in_key("count", "a", {"v": 0}, ValueError("no")).on_slot(2)))
    assert (user.operator, user.key, user.slot, str(user.error)) == ("count", "a", 2, "no")
    collision = pickle.loads(pickle.dumps(KeyCollisionError.two_keys("a", "b", 17)))
    assert (collision.first, collision.second, collision.hash) == ("a", "b", 17)
    state = pickle.loads(pickle.dumps(StateError.missing("runs/x")))
    assert state.file == "runs/x"


@pytest.mark.parametrize("error", [StateError, CheckpointError, KeyCollisionError, UserFunctionError])
def test_everything_is_a_headgate_error(error: type[Exception]) -> None:
    assert issubclass(error, HeadgateError)


def test_a_gap_between_the_checkpoints_is_explained() -> None:
    assert str(CheckpointError.gap("ckpt", 5, 9)) == (
        "the next batch of the checkpoint ckpt must be 5, got 9: the checkpoints of Spark and of headgate do not "
        "belong together; restore both from one moment"
    )
