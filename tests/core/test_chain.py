from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.core.canon import FORMAT, GENESIS
from transom.core.chain import conflict, opening, place, start_of
from transom.core.event import Draft, Link, ModeChanged, SessionOpened
from transom.errors import SequenceConflict, UsageError
from transom.testing.strategies import drafts

_OPENED = Draft(fact=SessionOpened(format=FORMAT), uuid="o", at=0)


@given(st.lists(drafts(), min_size=1, max_size=6), st.integers(0, 5))
def test_how_appends_are_cut_makes_no_difference(said: list[Draft], cut: int) -> None:
    whole = place("s", 0, GENESIS, [_OPENED, *said], is_new=True)
    first = place("s", 0, GENESIS, [_OPENED, *said[:cut]], is_new=True)
    head = first[-1][0]
    rest = place("s", head.seq, head.digest, said[cut:], is_new=False)
    assert first + rest == whole
    assert [event.seq for event, _ in whole] == list(range(1, len(whole) + 1))


@given(drafts(), drafts())
def test_a_digest_stands_for_everything_before_it(one: Draft, other: Draft) -> None:
    ends = {place("s", 0, GENESIS, [_OPENED, draft, _last()], is_new=True)[-1][0].digest for draft in (one, other)}
    assert (len(ends) == 1) == (one == other)


def _last() -> Draft:
    return Draft(fact=ModeChanged(mode="same"), uuid="last", at=0)


def test_a_fork_starts_at_its_parents_digest_and_a_child_at_the_beginning() -> None:
    parent = Link(session_id="p", seq=4, digest="ab" * 32)
    fork, child = (SessionOpened(format=FORMAT, kind=kind, parent=parent) for kind in ("fork", "child"))
    digest = bytes.fromhex(parent.digest)
    assert start_of("s", fork, digest) == digest
    assert start_of("s", child, digest) == GENESIS
    assert start_of("s", SessionOpened(format=FORMAT), None) == GENESIS
    assert opening("s", 4, Draft(fact=fork, uuid="u", at=0)) == fork
    assert opening("s", 0, Draft(fact=child, uuid="u", at=0)) == child
    with pytest.raises(SequenceConflict, match=r"follow event 0, but the log's head is event 4"):
        opening("s", 0, Draft(fact=fork, uuid="u", at=0))


def test_a_parent_that_is_not_as_named_is_told_with_both_digests() -> None:
    opened = SessionOpened(format=FORMAT, kind="fork", parent=Link(session_id="p", seq=4, digest="ab" * 32))
    with pytest.raises(UsageError, match=r"parent p has no event 4"):
        start_of("s", opened, None)
    with pytest.raises(UsageError, match=rf"has digest {GENESIS.hex()}, not abab"):
        start_of("s", opened, GENESIS)


def test_a_lost_race_says_what_to_do() -> None:
    assert "read what was appended since and try again" in str(conflict("s", 3, 5))
