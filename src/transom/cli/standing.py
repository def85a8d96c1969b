"""Where a session stands: what the cost rule makes of it now, and made of it at each of its replies.

The state is folded from the log, so a live session, an imported one and one behind the gateway are the same here. What
a new window would hold is planned as a boundary would plan it, and nothing is appended.

A recording has no requests of ours in it. What its head holds beside what was recorded is the rest of the first prompt
that its provider reported; and each reply shows that what stood before it was sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from transom import compose
from transom.cli.terms import market, parse_tokens
from transom.core import pace
from transom.core.block import Measure
from transom.core.budget import limits
from transom.core.costrule import Outlook, Reuse, Tariff, tariff_of
from transom.core.event import ModelReplied
from transom.core.opening import Opening
from transom.core.overlay import counted_tokens
from transom.core.policy import PRESETS
from transom.core.pricing import Price, find_price
from transom.core.projection import fold
from transom.core.state import State
from transom.errors import BadInput, OverBudget
from transom.ports import SessionRow

__all__ = ["Point", "Standing", "standing_of"]

_POLICY = PRESETS["rollover-cost"]
_USUAL_LIMIT = 200_000
_MOST_POINTS = 400
"""Replies at which the rule is asked again for the plot: more cannot be told apart on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A reply: the prompt it answered, and the size from which the rule would have opened a window."""

    step: int
    prompt: int
    due_at: float
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    session_id: str
    model: str
    price: Price
    tariff: Tariff
    limit: int
    state: State
    reuse: Reuse
    outlook: Outlook
    prompt: int
    pinned: int
    seed: int
    new: int
    gain: int
    idle_seconds: float | None
    """Since the newest request; None where the log has no times, or the session was recorded elsewhere."""
    points: tuple[Point, ...]


def standing_of(
    kept: compose.Store, row: SessionRow, *, price: str = "", context_limit: str = "", has_points: bool = False
) -> Standing:
    """Weigh a stored session. Raises `BadInput` where no model has replied in it, or not even a new window fits."""
    counter = compose.counter()
    at = market(price, row.model)
    paid = at.fixed or find_price(at.table, row.model)
    limit = parse_tokens(context_limit) if context_limit else 0
    state = State()
    tariff = tariff_of(paid)
    points: list[Point] = []
    every = 1
    for event in kept.log.read(row.session_id):
        if isinstance(event.fact, ModelReplied):
            _as_sent(state, event.fact)
            if has_points and state.steps % every == 0:
                points.append(_point(state, tariff, limit or _limit_of(state, paid), counter.measure))
                if len(points) == _MOST_POINTS:
                    points, every = points[::2], 2 * every
        fold(state, event)
    if not state.steps:
        raise BadInput(f"session {row.session_id}: no model has replied in it yet, so there is nothing to weigh")
    _as_sent(state, None)
    limit = limit or _limit_of(state, paid)
    opening = Opening.now(state, _POLICY, limits(limit), counter.measure)
    try:
        made, _ = opening.rollover("cost")
    except OverBudget as problem:
        raise BadInput(f"session {row.session_id}: {problem}") from problem
    known = state.estimates
    is_live = state.requests > 0
    now = time.time_ns() // 1_000_000 if is_live else known.asked_at
    gain, seed = opening.tokens - made.tokens, state.calibration.estimate(made.seed_counts, 0)
    reuse = pace.reuse_in(state)
    return Standing(
        session_id=row.session_id,
        model=state.model,
        price=paid,
        tariff=tariff,
        limit=limit,
        state=state,
        reuse=reuse,
        outlook=pace.outlook(state, tariff, gain=gain, seed=seed, pinned=opening.pinned_tokens(), now=now, reuse=reuse),
        prompt=opening.tokens,
        pinned=opening.pinned_tokens(),
        seed=seed,
        new=opening.new_tokens(),
        gain=gain,
        idle_seconds=(now - known.asked_at) / 1000 if is_live and known.asked_at else None,
        points=tuple(points),
    )


def _as_sent(state: State, reply: ModelReplied | None) -> None:
    """Of a recording, what a request would have said: before each reply, and after the last."""
    if state.requests:
        return
    if reply and reply.usage and reply.usage.prompt > 0 and not state.head.unseen_tokens and not state.known_prompt:
        state.head.unseen_tokens = max(0, reply.usage.prompt - counted_tokens(state))
    items = state.window.items
    newest = next((place for place in range(len(items) - 1, -1, -1) if items[place].role == "assistant"), 0)
    state.window.seen = state.window.sent = newest


def _limit_of(state: State, price: Price) -> int:
    opened = state.opened
    return (opened.context_limit if opened else 0) or price.context_window or _USUAL_LIMIT


def _point(state: State, tariff: Tariff, limit: int, measure: Callable[[str], Measure]) -> Point:
    """Asked just before a reply is folded: the window is what it answered."""
    opening = Opening.now(state, _POLICY, limits(limit), measure)
    pinned, seed = opening.pinned_tokens(), opening.seed_tokens()
    fresh = pinned + opening.new_tokens() + seed
    found = pace.outlook(state, tariff, gain=opening.tokens - fresh, seed=seed, pinned=pinned, now=0)
    return Point(
        step=state.steps + 1,
        prompt=opening.tokens,
        due_at=fresh + found.due_at,
        generation=state.window.generation,
    )
