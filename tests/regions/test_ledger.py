"""The ledger under any order of answers and deaths: everything leaves once, in order, and nothing is lost."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.regions.frames import Frame, Kind
from headgate.regions.ledger import Entry, Ledger

CONNECTIONS = 4


def result(first: int, count: int) -> Frame:
    return Frame(Kind.RESULT, 0, 0, count, first, 0, bytearray(b"r" * count))


class Books(RuleBasedStateMachine):
    """Frames are opened, sent, answered in any order, lost with their connection, sent again, released, taken."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.waiting: list[Entry] = []
        self.out: dict[int, dict[int, int]] = {each: {} for each in range(CONNECTIONS)}
        self.released: list[tuple[int, int]] = []
        self.inside = self.lost = 0

    @rule(count=st.integers(1, 5))
    def open(self, count: int) -> None:
        self.waiting.append(self.ledger.open(count, b"t" * count))
        self.inside += count

    @precondition(lambda self: self.waiting)
    @rule(connection=st.integers(0, CONNECTIONS - 1))
    def send(self, connection: int) -> None:
        entry = self.waiting.pop(0)
        self.ledger.sent(entry, connection)
        self.out[connection][entry.first] = entry.count

    @precondition(lambda self: any(self.out.values()))
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        connection = data.draw(st.sampled_from([each for each, frames in self.out.items() if frames]))
        first = data.draw(st.sampled_from(sorted(self.out[connection])))
        count = self.out[connection].pop(first)
        assert self.ledger.answered(connection, result(first, count))
        assert not self.ledger.answered(connection, result(first, count)), "an answer counts once"

    @rule(connection=st.integers(0, CONNECTIONS - 1), first=st.integers(0, 30), count=st.integers(1, 5))
    def answer_unasked(self, connection: int, first: int, count: int) -> None:
        if self.out[connection].get(first) != count:
            assert not self.ledger.answered(connection, result(first, count))

    @rule(connection=st.integers(0, CONNECTIONS - 1))
    def die(self, connection: int) -> None:
        worked_on = self.ledger.lost(connection)
        lost, self.out[connection] = self.out[connection], {}
        assert (worked_on.first if worked_on else None) == min(lost, default=None)
        self.lost += sum(lost.values())
        again = []
        while (entry := self.ledger.owed()) is not None:
            again.append(entry)
        assert [entry.first for entry in again] == sorted(lost), "all of it is owed, oldest first"
        self.waiting = again + self.waiting

    @rule()
    def release(self) -> None:
        for entry in self.ledger.release():
            assert entry.answer is not None
            assert entry.answer.first == entry.first
            self.released.append((entry.first, entry.count))
            self.ledger.taken(entry.count, entry.size)
            self.inside -= entry.count

    @invariant()
    def leaves_once_and_in_order(self) -> None:
        position = 0
        for first, count in self.released:
            assert first == position
            position += count
        assert self.ledger.released == position

    @invariant()
    def counts_what_is_inside(self) -> None:
        assert self.ledger.tuples == self.inside
        assert self.ledger.size == self.inside  # a byte per tuple, also as results
        assert self.ledger.again == self.lost
        for connection in range(CONNECTIONS):
            assert self.ledger.outstanding(connection) == len(self.out[connection])

    @invariant()
    def knows_who_holds_it_up(self) -> None:
        holder = self.ledger.oldest()
        if holder is not None:
            oldest = min(first for frames in self.out.values() for first in frames)
            assert oldest in self.out[holder]

    def teardown(self) -> None:
        for entry in self.waiting:
            self.ledger.sent(entry, 0)
            self.out[0][entry.first] = entry.count
        for connection, frames in self.out.items():
            for first, count in frames.items():
                assert self.ledger.answered(connection, result(first, count))
        self.release()
        assert self.ledger.empty
        assert self.inside == 0
        assert self.ledger.released == self.ledger.opened


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


def test_only_the_frame_that_was_worked_on_is_blamed_for_a_death() -> None:
    ledger = Ledger()
    first, second = ledger.open(1, b"a"), ledger.open(1, b"b")
    for deaths in (1, 2):
        for entry in (first, second):
            ledger.sent(entry, 0)
        assert ledger.lost(0) is first
        assert (ledger.owed(), ledger.owed(), ledger.owed()) == (first, second, None)
        assert (first.deaths, second.deaths) == (deaths, 0)


def test_the_one_with_the_oldest_frame_holds_up_the_merge() -> None:
    ledger = Ledger()
    for connection in (2, 0, 1):
        ledger.sent(ledger.open(1, b"a"), connection)
    assert ledger.oldest() == 2
    ledger.answered(0, result(1, 1))
    assert ledger.release() == []
    ledger.answered(2, result(0, 1))
    assert [entry.first for entry in ledger.release()] == [0, 1]
    assert ledger.oldest() == 1
