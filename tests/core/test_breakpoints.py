"""Where cache marks stand: at most four, and what was sent before is always found."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom import compose
from transom.core.block import Text
from transom.core.breakpoints import LOOKBACK, MARKS, STRIDE, breakpoints
from transom.core.cachesim import Cache, Mark, Sent
from transom.core.state import Item, Role, State, Window
from transom.core.wire import Dialect, Rendering, Wire

ANTHROPIC = compose.prices().rules["anthropic-1024"]
DIALECT = Dialect(name="plain", head=lambda _: (), message=lambda group: b"%d" % group[0].seq, tail=str.encode)


def wire(*sizes: int) -> Wire:
    """A request whose messages have so many blocks: user, reply, results, reply, results, …"""
    items = [item(place, blocks) for place, blocks in enumerate(sizes)]
    return Rendering(DIALECT).wire(State(window=Window(items=items)))


def item(place: int, blocks: int) -> Item:
    role: Role = "assistant" if place % 2 else "tool" if place else "user"
    shown = tuple(Text(text="x") for _ in range(blocks))
    return Item(seq=place + 1, uuid="", role=role, blocks=shown, turn=place, step=place // 2, counts=(0, 0, 0, 0, 0))


def test_the_four_are_head_first_message_last_stable_and_moving_end() -> None:
    assert breakpoints(wire()) == (0,)
    assert breakpoints(wire(1)) == (0, 1)
    assert breakpoints(wire(1, 2, 1)) == (0, 1, 3)
    assert breakpoints(wire(1, 2, 1, 2, 1)) == (0, 1, 3, 5)
    assert breakpoints(wire(1, 2, 1, 2, 1, 2, 1)) == (0, 1, 5, 7)


def test_a_long_tool_turn_has_a_mark_inside_it_that_takes_the_place_of_the_head_s() -> None:
    calls, results = 30, 30
    assert breakpoints(wire(1, 2, 1, calls, results)) == (1, 3, 4, 5)
    assert breakpoints(wire(1, calls, results)) == (0, 1, 2, 3)
    assert breakpoints(wire(1, 2, 1, LOOKBACK - 1, 1)) == (0, 1, 3, 5)
    assert breakpoints(wire(LOOKBACK + 1, 2, 1, calls, results)) == (0, 3, 4, 5)
    assert breakpoints(wire(1, 2, 1, STRIDE, 30)) == (1, 3, 4, 5)
    assert breakpoints(wire(1, 2, 1, STRIDE - 1, 30)) == (0, 1, 3, 5)


def test_after_a_rewrite_the_stable_mark_stands_where_an_answered_request_ended() -> None:
    request = wire(1, 2, 1, 2, 1, 2, 1, 2, 1)
    assert breakpoints(request, kept=9) == breakpoints(request) == (0, 1, 7, 9)
    assert breakpoints(request, kept=6) == (0, 1, 5, 9)
    assert breakpoints(request, kept=3) == (0, 1, 3, 9)
    assert breakpoints(request, kept=0) == (0, 1, 9)


def test_a_request_that_failed_leaves_the_mark_where_the_answered_one_ended() -> None:
    """The provider may have refused it before anything was cached; the next one repeats its bytes."""
    assert breakpoints(wire(1, 2, 1, 2, 9), kept=5) == (0, 1, 3, 5)


def test_marks_of_a_request_are_its_own_though_its_window_has_grown_since() -> None:
    items = [item(0, 1), item(1, 2), item(2, 1)]
    state, rendering = State(window=Window(items=items)), Rendering(DIALECT)
    before = rendering.wire(state)
    chosen = breakpoints(before)
    items += [item(3, 2), item(4, 1)]
    rendering.wire(state)
    assert breakpoints(before) == chosen == (0, 1, 3)


@given(st.lists(st.integers(1, 60), max_size=12), st.integers(0, 13))
def test_marks_are_few_ascending_and_end_at_the_end(sizes: Sequence[int], kept: int) -> None:
    request = wire(*sizes)
    chosen = breakpoints(request, min(kept, request.messages))
    assert len(chosen) <= MARKS
    assert list(chosen) == sorted(set(chosen))
    assert chosen[-1] == request.messages
    assert chosen[0] >= 0


steps = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60), st.booleans(), st.floats(0, 1)), max_size=8)


@given(steps)
def test_all_that_an_answered_request_sent_and_that_stands_yet_is_found(steps: Sequence[tuple[int, ...]]) -> None:
    """However long the steps are, whatever failed, and after a rewrite: a thousand tokens a block, marks as chosen. (A
    second rewrite behind the first may part where no request of those bytes has ended.)"""
    cache = Cache()
    sizes = [2]
    kept = 0
    ends: list[int] = []
    is_rewritten = False
    for reply, results, is_failed, share in steps:
        request = wire(*sizes)
        marks = tuple(
            Mark(tokens=5000 + 1000 * request.blocks[place], blocks=request.blocks[place])
            for place in breakpoints(request, kept)
        )
        sent = Sent(at=0, tokens=marks[-1].tokens, kept=5000 + 1000 * request.blocks[kept] if ends else 0, marks=marks)
        found = cache.send(sent, ANTHROPIC) if not is_failed else None
        if found is not None:
            known = [end for end in ends if end <= kept]
            best = max((5000 + 1000 * request.blocks[end] for end in known), default=0)
            assert found.read >= best
            ends = [*known, request.messages]
            kept = request.messages
            sizes += [reply, results]
            if share < 0.3 and not is_rewritten:  # a message inside has other bytes, of other size
                is_rewritten = True
                kept = int(share / 0.3 * (len(sizes) - 1))
                sizes[kept] += 1


@pytest.mark.parametrize("blocks", [LOOKBACK, 3 * LOOKBACK])
def test_a_step_of_any_length_reads_all_that_was_sent_before(blocks: int) -> None:
    first, then = wire(1), wire(1, blocks, blocks)
    cache = Cache()
    for request, kept in ((first, 0), (then, 1)):
        marks = tuple(
            Mark(tokens=9000 + 100 * request.blocks[place], blocks=request.blocks[place])
            for place in breakpoints(request, kept)
        )
        found = cache.send(Sent(at=0, tokens=marks[-1].tokens, kept=9100 if kept else 0, marks=marks), ANTHROPIC)
    assert found.read == 9100
