"""Frames come out as they went in, however they are cut up; anything else is a FrameError."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import FrameError
from headgate.regions.frames import HEADER, Decoder, Frame, Kind, encode

MOST = 1_000

frames = st.builds(
    lambda kind, payload, flags, count, first, nanoseconds: (kind, payload, flags, count, first, nanoseconds),
    st.sampled_from(Kind),
    st.binary(max_size=200),
    st.integers(0, 255),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
)


@given(st.lists(frames, max_size=6), st.lists(st.integers(0, 300), max_size=20))
def test_frames_survive_any_cut(wanted: list[tuple[Kind, bytes, int, int, int, int]], cuts: list[int]) -> None:
    stream = b"".join(
        encode(kind, [payload], flags=flags, count=count, first=first, nanoseconds=nanoseconds)
        for kind, payload, flags, count, first, nanoseconds in wanted
    )
    decoder = Decoder(MOST)
    found: list[Frame] = []
    for cut in [*cuts, len(stream)]:
        found += decoder.feed(stream[:cut])
        stream = stream[cut:]
    assert [(f.kind, bytes(f.payload), f.flags, f.count, f.first, f.nanoseconds) for f in found] == wanted
    assert not decoder.within
    assert decoder.wants == HEADER.size


@given(st.lists(st.binary(max_size=100), max_size=20))
def test_garbage_gives_a_frame_error_or_waits_for_more(chunks: list[bytes]) -> None:
    decoder = Decoder(MOST)
    fed = 0
    try:
        for chunk in chunks:
            fed += len(chunk)
            for frame in decoder.feed(chunk):
                assert len(frame.payload) <= MOST
                fed -= HEADER.size + len(frame.payload)
            assert len(decoder._held) <= fed  # nothing is set aside for bytes that were only announced
    except FrameError:
        pass


@given(st.binary(min_size=1, max_size=300), st.data())
def test_a_damaged_stream_never_gives_a_frame_past_the_limit(payload: bytes, data: st.DataObject) -> None:
    stream = bytearray(encode(Kind.RESULT, [payload], count=3) * 3)
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    decoder = Decoder(MOST)
    with contextlib.suppress(FrameError):
        assert all(len(frame.payload) <= MOST for frame in decoder.feed(stream))


def test_a_reader_that_asks_what_is_wanted_never_reads_ahead() -> None:
    stream = encode(Kind.TUPLES, [b"abc"]) + encode(Kind.ALIVE) + encode(Kind.TUPLES, [b"d"])
    decoder, found = Decoder(MOST), []
    while stream:
        wanted = decoder.wants
        found.append([frame.kind for frame in decoder.feed(stream[:wanted])])
        stream = stream[wanted:]
    assert found == [[], [Kind.TUPLES], [Kind.ALIVE], [], [Kind.TUPLES]]


def test_a_kind_that_is_none() -> None:
    with pytest.raises(FrameError, match="a frame starts with its kind, and 71 is none"):
        Decoder(MOST).feed(b"GET / HTTP/1.1\r\n" + bytes(40))


def test_a_frame_above_the_limit_is_refused_by_its_header() -> None:
    header = HEADER.pack(Kind.RESULT, 0, 0, 1, 0, 0, 2**60)
    with pytest.raises(FrameError, match=r"may have 1,000 bytes, and one of 1,152,921,504,606,846,976 was announced"):
        Decoder(MOST).feed(header)


def test_the_payload_may_be_written_to() -> None:
    (frame,) = Decoder(MOST).feed(encode(Kind.TUPLES, [b"abc"]))
    frame.payload[0] = 0
    assert bytes(frame.payload) == b"\0bc"
