"""Room for what a fork brings: a window that opens where the fork begins.

A client that shows its files anew behind all that was said takes something back with every request, so each is a fork.
A window that opened behind what is new would be left by the next request, which forks before that. One that opens where
the fork begins is there for those behind it too, and so is what upstream has cached of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from transom.core.boundary import before_step
from transom.core.event import Fact, UserDisposed, WindowOpened
from transom.core.state import State
from transom.errors import OverBudget
from transom.session import Rules

__all__ = ["closed", "opening"]


def closed(state: State) -> tuple[UserDisposed, ...]:
    """The user's messages that stand before an answer are closed, now that another one comes."""
    by = state.answered_through
    left = [said.seq for said in state.words if said.disposition == "open" and said.seq < by]
    return tuple(UserDisposed(seq=seq, disposition="answered", by=by) for seq in left)


def opening(state: State, rules: Rules, new: Sequence[bytes]) -> tuple[Fact, ...]:
    """What opens a window for these elements; nothing where they have room, or would have none in a new one either."""
    counted = sum(rules.counter.measure(element.decode("utf-8", "replace")).tokens for element in new)
    more = state.calibration.estimate((counted, 0, 0, 0, 0), len(new))
    try:
        facts = before_step(
            state,
            rules.policy,
            rules.bounds,
            rules.counter.measure,
            tail_tokens=more,
            tariff=rules.tariff,
            since=state.seq,  # a model has seen all of it, though not in this fork's name
        )
    except OverBudget:
        return ()
    return facts if any(isinstance(fact, WindowOpened) for fact in facts) else ()
