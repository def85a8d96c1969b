"""The cost rule: when a new window is cheaper than going on in this one. It sees only the past.

Everything a step carries beyond what a fresh window would hold (the *gain* of opening one now) is read again with every
request, at `r` a token. Opening costs `K`: the seed written at `w`, a handoff put out at `k`, and later what has to be
looked up again. The window that is cheapest per step is as long as the one whose next step would cost more than its
average (with even growth `g` that is sqrt(2K / (r g)) steps); so the rule opens a window when

    gain >= what a window of the cheapest length has grown by

which is a size, not a time: after a burst it comes sooner. The length is found by adding up steps one by one:

    step j of a window costs     r x (grown so far) + w x (looked up again at j)
    looked up again at j         v x H / (H + j) tokens
    the price K of the next one  is paid only if there is a next one: the session goes on with 1 - 1 / remaining a step

`v` follows from how many handles the newest calls use again, held against what windows in fact looked up (the smaller
one counts). `remaining` is memoryless: a session is expected to go on for as long as it did, or for its open tasks.

Moments. The cache is cold: both ways write everything, so a window opens at once if that is less. A task ended: a
little sooner. The newest replies used many handles: the work on what was read is done, so a little sooner too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log, sqrt

import msgspec

from transom.core.economics import Parameters, Trace
from transom.core.pricing import Price

__all__ = [
    "Estimates",
    "Moment",
    "Outlook",
    "Reuse",
    "Tariff",
    "follow",
    "note_growth",
    "note_handoff",
    "note_lookups",
    "payback",
    "remaining_steps",
    "reuse_of",
    "tariff_of",
    "weigh",
]

# The constants below are from the 45 recorded sessions of 100 and more steps that the regret table is about, whole, cut
# in part and with large results offloaded. The medians of the table move by less than 0.02 when one of them is changed
# by a quarter (docs/economics.md).

_GROWTH = 1_500.0
"""Tokens a step, before anything is known: 2,000 in the first twenty steps, 1,100 over all (medians)."""
_GROWTH_WEIGHT = 5.0
"""Steps that guess is worth."""
_GROWTH_KEEPS = 0.9
_REUSE = 3.0
"""Handles of earlier steps that a step uses, before anything is known: 2.7 is the median, 3.2 the mean."""
_REUSE_WEIGHT = 5.0
_REUSE_KEEPS = 0.97
_BUSY_KEEPS = 0.5
_BUSY_MOST = 3.0
_BUSY_SHARE = 0.2
_HALF = 5.0
"""Steps: half of the handles used again were last seen no longer ago; H / (H + j) of them longer ago than j."""
_RECALL = 400
"""Tokens of one recall, as in the cost model."""
_LOOKUP_WEIGHT = 15.0
"""Steps at the start of a window that the expectation is worth against what was in fact looked up."""
_LOOKUP_KEEPS = 0.99
_COLD_SHARE = 0.3
"""Of the lookups, at a cold moment: most of them would have come with the window that is due soon anyway."""
_COLD_STEPS = 15
_TASK_END = 0.85
_LEAST_REMAINING = 50
"""Steps a session of unknown length is expected to have left."""
_LEAST_GAIN = 6_000
"""Tokens: a window that holds less beyond a fresh one is never closed for its cost. No price says what a model loses
that has to find its way again every third step; against no such floor the medians of the table rise by 0.006."""
_LONGEST = 2_000
_HANDOFF = 1_500.0
"""Output tokens of a handoff by a model, before one was seen; the worked example of the cost model."""


class Tariff(msgspec.Struct, frozen=True, kw_only=True):
    """What the rule must know of prices and cache: relative to plain input, as `Parameters`."""

    r: float
    w: float
    k: float
    min_prefix_tokens: int = 0
    ttl_seconds: float = 0
    """0: the cache does not go cold."""
    usd_per_million: float = 0.0
    """Of plain input, for saying what something costs; 0: not known."""


def tariff_of(price: Price) -> Tariff:
    return Tariff(
        r=price.r,
        w=price.w,
        k=price.k,
        min_prefix_tokens=price.rules.min_prefix_tokens,
        ttl_seconds=price.rules.ttl_seconds,
        usd_per_million=price.input,
    )


class Estimates(msgspec.Struct, kw_only=True):
    """What a session has shown of itself so far: sums that fade, with their weights. Folded from facts."""

    growth: float = _GROWTH * _GROWTH_WEIGHT
    growth_squares: float = _GROWTH * _GROWTH * _GROWTH_WEIGHT
    growth_weight: float = _GROWTH_WEIGHT
    lookups: float = 0.0
    """Tokens looked up again in windows after the first."""
    exposure: float = 0.0
    """What those windows would have looked up at one token a step, by the curve."""
    handoff: float = _HANDOFF
    seed: int = 0
    """Tokens of the newest window's seed."""
    # From here on: what the fold keeps to find the next ones (`pace`).
    size: int = 0
    """Tokens of the window, head left out, when its last reply came or since it opened; 0: not comparable."""
    is_counted: bool = False
    """What arrived since then is in `growth` already."""
    fetched: int = 0
    """Of what arrived since then: looked up again."""
    read: set[str] = set()
    """Paths read since the window opened."""
    calls: int = 0
    output: int = 0
    """Tokens of the newest reply."""
    asked_at: int = 0
    """When the newest request was made, in ms."""
    closed: int = 0
    """Tasks that were closed by then."""
    reminded: int = 0
    """Replies that had come when the window's reminder was said."""

    @property
    def growth_tokens(self) -> float:
        """A step."""
        return self.growth / self.growth_weight

    @property
    def growth_spread(self) -> float:
        """Its standard deviation."""
        mean = self.growth_tokens
        return sqrt(max(0.0, self.growth_squares / self.growth_weight - mean * mean))


def note_growth(known: Estimates, tokens: int) -> None:
    """A step appended `tokens`."""
    known.growth = known.growth * _GROWTH_KEEPS + tokens
    known.growth_squares = known.growth_squares * _GROWTH_KEEPS + tokens * tokens
    known.growth_weight = known.growth_weight * _GROWTH_KEEPS + 1


def note_handoff(known: Estimates, tokens: int) -> None:
    """A model wrote a handoff of `tokens`."""
    known.handoff += (tokens - known.handoff) / 2


def note_lookups(known: Estimates, age: int, tokens: int) -> None:
    """The step `age` of a window after the first looked up `tokens`."""
    known.lookups = known.lookups * _LOOKUP_KEEPS + tokens
    known.exposure = known.exposure * _LOOKUP_KEEPS + _HALF / (_HALF + age)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reuse:
    """Handles of earlier steps that a step uses: in the long run, and lately as a multiple of that."""

    rate: float = _REUSE
    busy: float = 1.0


def reuse_of(counts: Sequence[int], scale: float = 1.0) -> Reuse:
    """From how many each of the newest steps (or calls: `scale` of them a step) used, the newest last."""
    total, weight = _REUSE * _REUSE_WEIGHT, _REUSE_WEIGHT
    late = late_weight = 0.0
    for count in counts:
        total, weight = total * _REUSE_KEEPS + scale * count, weight * _REUSE_KEEPS + 1
        late, late_weight = late * _BUSY_KEEPS + scale * count, late_weight * _BUSY_KEEPS + 1
    rate = total / weight
    busy = (late + 2 * rate) / (late_weight + 2) / max(rate, 0.1)  # two steps' worth of doubt
    return Reuse(rate=rate, busy=min(busy, _BUSY_MOST))


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The boundary at hand."""

    gain: int
    """Tokens by which the next request would be smaller in a new window."""
    seed: int
    """Tokens of the new window that are neither pinned nor newly arrived."""
    pinned: int
    handoff: int = 0
    """Output tokens of a handoff by the model; 0: the seed is made by code."""
    side: float = 0.0
    gap_seconds: float = 0.0
    steps: int = 0
    open_tasks: int = 0
    closed_tasks: int = 0
    is_task_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What the rule weighed. Costs are in tokens of plain input."""

    price: float
    """Of opening a window now, beyond an ordinary step; `lookups` are in it."""
    lookups: float
    """Tokens expected to be looked up again in the new window."""
    saving: float
    """Per step."""
    pays_after: float
    """Steps until the saving has paid the price; infinite: never."""
    period: int
    """Steps of the cheapest window."""
    due_at: float
    """Tokens of gain from which a window opens; infinite: never."""
    remaining: float
    is_cold: bool
    is_due: bool


def remaining_steps(steps: int, open_tasks: int = 0, closed_tasks: int = 0) -> float:
    """Expected: as many as there were, at least 50; more where tasks are open at the pace so far. The time left is
    taken to have no memory, so its spread is as large as this mean."""
    paced = steps * open_tasks / closed_tasks if closed_tasks else 0.0
    return max(float(_LEAST_REMAINING), float(steps), paced)


def weigh(known: Estimates, tariff: Tariff, reuse: Reuse, now: Moment, recall_tokens: int = _RECALL) -> Outlook:
    """Whether a window should open at this boundary, and everything that was weighed."""
    left = remaining_steps(now.steps, now.open_tasks, now.closed_tasks)
    again = _lookups_a_step(known, reuse.rate * recall_tokens)
    opening = tariff.w * now.seed + tariff.k * now.handoff + now.side
    if now.pinned < tariff.min_prefix_tokens:
        opening += (tariff.w - tariff.r) * now.pinned
    moved = again * max(0.0, 1 - _BUSY_SHARE * (reuse.busy - 1))
    period, due_at = _cheapest(known.growth_tokens, moved, opening, tariff, left)
    due_at = max(due_at, _LEAST_GAIN)
    looked_up = _lookups(again, period)
    saving = tariff.r * (now.gain - looked_up)
    # The break-even of the cost model: without the new window its tokens would be read this once, too.
    to_pay = opening - tariff.r * now.seed + (tariff.w - tariff.r) * looked_up
    is_cold = 0 < tariff.ttl_seconds < now.gap_seconds
    if is_cold:
        soon = _COLD_SHARE * tariff.w * _lookups(again, min(period, _COLD_STEPS))
        is_due = tariff.w * now.gain > opening - tariff.w * now.seed + soon
    else:
        is_due = now.gain >= due_at * (_TASK_END if now.is_task_end else 1.0)
    return Outlook(
        price=opening + tariff.w * looked_up,
        lookups=looked_up,
        saving=saving,
        pays_after=max(0.0, to_pay / saving) if saving > 0 else inf,
        period=period,
        due_at=due_at,
        remaining=left,
        is_cold=is_cold,
        is_due=is_due and now.gain >= _LEAST_GAIN,
    )


def payback(tariff: Tariff, *, behind: int, freed: int) -> float:
    """Steps until a rewrite has paid: the `behind` tokens that stand after its first changed byte are written again,
    and `freed` tokens are not read any more. Infinite where nothing is freed or reading is free."""
    if freed <= 0 or not tariff.r:
        return inf
    return (tariff.w - tariff.r) * behind / (tariff.r * freed)


def follow(trace: Trace, parameters: Parameters) -> tuple[int, ...]:
    """The schedule of the rule on a trace. What it does at a step follows from the steps before it, the size of what
    has just arrived and the time that has passed; it never waits past the watermark."""
    tariff = Tariff(
        r=parameters.r,
        w=parameters.w,
        k=parameters.k,
        min_prefix_tokens=parameters.min_prefix_tokens,
        ttl_seconds=parameters.ttl_seconds,
    )
    line = int(parameters.watermark * parameters.limit)
    known = Estimates()
    schedule = [1]
    used: list[int] = []
    grown = 0  # tokens behind the pinned ones, in the window at hand
    for step, arriving in enumerate(trace.appended, 1):
        seed = trace.seeds[step - 1] if trace.seeds else parameters.seed
        if step > 1:
            now = Moment(
                gain=grown - seed,
                seed=seed,
                pinned=trace.pinned,
                handoff=parameters.handoff,
                side=parameters.side,
                gap_seconds=trace.gaps[step - 1] if trace.gaps else 0.0,
                steps=step - 1,
            )
            is_full = trace.pinned + grown + arriving > line
            if is_full or weigh(known, tariff, reuse_of(used[-200:]), now, parameters.recall).is_due:
                schedule.append(step)
                grown = seed
            note_growth(known, arriving)
        handles = trace.seen[step - 1] if trace.seen else ()
        recalled = parameters.recall * sum(seen < schedule[-1] for seen in handles)
        if trace.pinned + grown + arriving + recalled > line and schedule[-1] < step:
            # The window cannot hold what the step looks up: it is looked up in a new one.
            schedule.append(step)
            grown = seed
            recalled = parameters.recall * len(handles)
        if len(schedule) > 1:
            note_lookups(known, step - schedule[-1], recalled)
        grown += arriving + recalled
        used.append(len(handles))
    return tuple(schedule)


def _lookups_a_step(known: Estimates, expected: float) -> float:
    """Tokens a window's first step looks up: as many as handles are used again, or what was in fact looked up."""
    seen = (_LOOKUP_WEIGHT * expected + known.lookups) / (_LOOKUP_WEIGHT + known.exposure)
    return min(expected, seen)


def _lookups(again: float, steps: int) -> float:
    """Tokens looked up in the first `steps` steps of a window."""
    return again * _HALF * log(1 + steps / _HALF)


def _cheapest(growth: float, again: float, opening: float, tariff: Tariff, left: float) -> tuple[int, float]:
    """Steps of the window that costs least per step, and what it has grown by then."""
    if not tariff.r:
        return _LONGEST, inf
    spent = grown = weight = 0.0
    share, stays = 1.0, 1 - 1 / left
    best, length, size = inf, 0, inf
    for age in range(_LONGEST):
        found = again * _HALF / (_HALF + age)
        spent += share * (tariff.r * grown + tariff.w * found)
        grown += growth + found
        weight += share
        share *= stays
        average = (spent + share * opening) / weight
        if average > best:
            return length, size
        best, length, size = average, age + 1, grown
    return _LONGEST, inf
