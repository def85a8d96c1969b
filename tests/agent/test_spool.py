from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from transom.agent.spool import WHOLE_BYTES, Spool


def filled(pieces: list[bytes], whole: int = WHOLE_BYTES) -> Spool:
    spool = Spool(whole)
    for piece in pieces:
        spool.add(piece)
    return spool


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_up_to_the_bound_nothing_is_lost(pieces: list[bytes]) -> None:
    spool = filled(pieces, 1000)
    assert spool.data() == b"".join(pieces)
    assert not spool.is_cut


@given(st.lists(st.binary(min_size=1, max_size=70), min_size=30, max_size=60), st.integers(10, 200))
def test_beyond_the_bound_both_ends_stay_and_what_is_between_is_counted(pieces: list[bytes], whole: int) -> None:
    everything = b"".join(pieces)
    spool = filled(pieces, whole)
    if len(everything) <= 2 * (whole // 2):
        assert spool.data() == everything
        return
    assert spool.is_cut
    head, _, rest = spool.data().partition(b" bytes are left out here: the output is longer than ")
    first, _, count = head.rpartition(b"[")
    last = rest.split(b" bytes]\n", 1)[1]
    assert everything.startswith((first, first[:-1]))
    assert everything.endswith(last)
    assert len(last) <= whole // 2
    assert int(count) + len(last) + len(first) - len(everything) in (0, 1)  # 1: a line end put before the note


def test_the_cut_is_made_between_lines() -> None:
    lines = b"".join(b"line %d\n" % n for n in range(1000))
    text = filled([lines], 200).text()
    assert text.startswith("line 0\nline 1\n")
    assert text.endswith("line 998\nline 999\n")
    note = [line for line in text.splitlines() if not line.startswith("line ")]
    assert note == [
        f"[{len(lines) - len(text) + len(note[0]) + 1} bytes are left out here: the output is longer than 200 bytes]"
    ]


def test_room_is_bounded_whatever_comes() -> None:
    spool = Spool(10_000)
    for _ in range(1000):
        spool.add(b"x" * 65536)
    assert len(spool.data()) < 10_000 + 65536 + 200
    assert len(spool.data()) > 9_000


def test_undecodable_bytes_are_replaced() -> None:
    assert filled([b"caf\xe9 \xf0\x9f", b"\x98\x80"]).text() == "caf\ufffd 😀"
