"""Frames do not depend on how the network cut them, and put behind each other they are the stream."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.gateway.events import Cutter, data_of, event, with_data

PIECES = st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b"data: ", b"event: x", b": note", b"{}", "ü".encode()])
STREAMS = st.lists(PIECES, max_size=24).map(b"".join)


def frames(stream: bytes, cuts: list[int]) -> tuple[list[bytes], bytes]:
    cutter = Cutter()
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    found = [frame for start, end in pairwise(places) for frame in cutter.feed(stream[start:end])]
    return found, cutter.rest()


@given(STREAMS, st.lists(st.integers(0, 80), max_size=8))
def test_frames_are_the_stream_and_the_same_for_every_cut(stream: bytes, cuts: list[int]) -> None:
    found, rest = frames(stream, cuts)
    assert b"".join(found) + rest == stream
    assert (found, rest) == frames(stream, [])
    assert (found, rest) == frames(stream, list(range(len(stream))))


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_an_event_ends_with_a_blank_line_however_lines_end(end: bytes) -> None:
    stream = end.join([b"event: a", b"data: 1", b"", b": note", b"", b"data: 2", b"data: 3", b"", b"data: half"])
    found, rest = frames(stream, [])
    assert [data_of(frame) for frame in found] == [b"1", b"", b"2\n3"]
    assert rest == b"data: half"


def test_a_frame_is_given_out_as_soon_as_it_is_whole() -> None:
    cutter = Cutter()
    assert cutter.feed(b"data: 1\n") == []
    assert cutter.feed(b"\n") == [b"data: 1\n\n"]
    assert cutter.feed(b"data: 2\r\n\r\n") == [b"data: 2\r\n\r\n"]


def test_what_is_left_is_given_out_once() -> None:
    cutter = Cutter()
    cutter.feed(b"data: 1")
    assert cutter.rest() == b"data: 1"
    assert cutter.rest() == b""


@pytest.mark.parametrize(
    ("frame", "changed"),
    [
        (b"event: a\ndata: 1\n\n", b"event: a\ndata: new\n\n"),
        (b"data:1\r\nid: 7\r\n\r\n", b"data: new\r\nid: 7\r\n\r\n"),
        (b": note\ndata: 1\ndata: 2\nretry: 3\n\n", b": note\ndata: new\nretry: 3\n\n"),
        (b"data: 1", b"data: new"),
    ],
)
def test_only_the_data_of_a_frame_changes(frame: bytes, changed: bytes) -> None:
    assert with_data(frame, b"new") == changed
    assert data_of(changed) == b"new"


@pytest.mark.parametrize(
    ("frame", "data"),
    [
        (b"data: x\n\n", b"x"),
        (b"data:\ndata: x\n\n", b"\nx"),
        (b"event: data: y\ndata: x\n\n", b"x"),
        (b"event: a data: y\n\n", b""),
        (b"data: x\nid: 1\n\n", b"x"),
        (b"data:  data: x\n\n", b" data: x"),
        (b"data: x\r\n\r\n", b"x"),
        (b"data: x\r\r", b"x"),
        (b"data: x\ny", b"x"),
        (b"data: x\n", b"x"),
        (b"data: x", b"x"),
        (b"data: \n\n", b""),
        (b"metadata: x\n\n", b""),
    ],
)
def test_the_data_of_a_frame_is_its_data_lines(frame: bytes, data: bytes) -> None:
    assert data_of(frame) == data


def test_a_byte_order_mark_is_no_part_of_the_data() -> None:
    assert data_of(b"\xef\xbb\xbfdata: 1\n\n") == b"1"


def test_an_event_of_our_own_reads_back() -> None:
    assert event(b"{}", "ping") == b"event: ping\ndata: {}\n\n"
    assert data_of(event(b"{}")) == b"{}"
