from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.core.budget import Action, Limits, evaluate, limits, require
from transom.errors import OverBudget, UsageError

BOUNDS = Limits(context_limit=1000, output_reserve=100, fallback_reserve=200, reminder=50)


def at(current: int, *, declared: bool = False, reminder: bool = False, fallback: bool = False) -> Action:
    return evaluate(BOUNDS, current=current, declared=declared, reminder_claimed=reminder, fallback_claimed=fallback)


def test_hard_and_base_are_what_the_reserves_leave() -> None:
    assert (BOUNDS.hard, BOUNDS.base) == (900, 700)


@pytest.mark.parametrize(
    ("current", "kind", "cause"),
    [
        (0, "continue", ""),
        (649, "continue", ""),
        (650, "remind", ""),
        (699, "remind", ""),
        (700, "fallback", ""),
        (899, "fallback", ""),
        (900, "rollover", "hard-limit"),
        (5000, "rollover", "hard-limit"),
    ],
)
def test_each_threshold_has_its_action(current: int, kind: str, cause: str) -> None:
    action = at(current)
    assert (action.kind, action.cause, action.remaining) == (kind, cause, 700 - current)


def test_a_declaration_comes_before_everything_else() -> None:
    assert at(0, declared=True) == Action(kind="rollover", cause="model", remaining=700)
    assert at(900, declared=True, fallback=True).cause == "model"


def test_a_claim_is_not_made_twice_and_a_used_up_fallback_rolls_over() -> None:
    assert at(660, reminder=True).kind == "continue"
    assert at(700, fallback=True) == Action(kind="rollover", cause="hard-limit", remaining=0)
    assert at(699, fallback=True, reminder=True).kind == "continue"


@given(st.integers(0, 2000), st.integers(0, 2000), st.booleans(), st.booleans())
def test_a_fuller_window_never_gets_a_milder_action(one: int, other: int, reminder: bool, fallback: bool) -> None:
    order = ["continue", "remind", "fallback", "rollover"]
    less, more = sorted((one, other))
    kinds = [order.index(at(current, reminder=reminder, fallback=fallback).kind) for current in (less, more)]
    assert kinds[0] <= kinds[1]


def test_default_reserves_are_shares_of_a_small_window_and_capped_in_a_large_one() -> None:
    small, large = limits(32_000), limits(1_000_000)
    assert (small.output_reserve, small.fallback_reserve, small.reminder) == (4000, 2000, 2000)
    assert (large.output_reserve, large.fallback_reserve, large.reminder) == (8192, 8192, 15_000)
    assert limits(32_000, output_reserve=1, fallback_reserve=2, reminder=3, source="catalogue").base == 31_997


@pytest.mark.parametrize("limit", [0, -5])
def test_no_room_is_an_error_with_the_numbers(limit: int) -> None:
    with pytest.raises(UsageError, match=re.escape(f"context limit {limit:,}")):
        limits(limit)
    with pytest.raises(UsageError, match=r"9,000 - output reserve 9,000 - fallback reserve 562 = -562"):
        limits(9000, output_reserve=9000)


def test_a_negative_reserve_is_said_to_be_one() -> None:
    with pytest.raises(UsageError, match="a reserve is negative: output -1"):
        limits(9000, output_reserve=-1)


@given(st.integers(200, 10**6), st.integers(0, 10**6))
def test_protected_words_that_do_not_fit_are_refused_with_a_limit_that_would_do(limit: int, protected: int) -> None:
    bounds = limits(limit)
    if protected <= bounds.hard:
        require(bounds, protected=protected, what="the words")
        return
    with pytest.raises(OverBudget) as refusal:
        require(bounds, protected=protected, what="the words")
    said = str(refusal.value)
    assert said.startswith(f"the words alone are {protected:,} tokens, over the {bounds.hard:,} that")
    least = refusal.value.needs
    require(limits(least), protected=protected, what="the words")
    require(limits(least, output_reserve=bounds.output_reserve), protected=protected, what="the words")
