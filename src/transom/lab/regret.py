"""How far an arm is from the cheapest schedule of windows there is for its session.

A *yardstick* is a session's trace, the parameters, and the optimum. The trace is what an arm without windows of its own
shows: what each request adds to the one before, and beside it the seed that a window by code would start with at each
step. Large results stay whole in it, or are offloaded at admission where an arm does that: so each arm has the
yardstick of what it admits, and all have the first.

An arm's regret is its cost over the optimum of the session as recorded, output left out. It can be below 1: an arm that
offloads or masks has prompts that no schedule of the recorded session has, and a seed shows handles that the cost model
takes to be looked up. What its schedule alone would cost on its own yardstick is `placed`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from transom.core.economics import Optimum, Parameters, Trace, cost, optimum, parameters_of
from transom.core.policy import PRESETS, Policy
from transom.core.pricing import Price
from transom.errors import OverBudget
from transom.lab.arms import Arm
from transom.lab.metrics import cached_by_step
from transom.lab.recall import RECALL_TOKENS
from transom.lab.script import Script

__all__ = ["Yardstick", "measuring", "placed", "schedule_of", "seen_by_step", "spent", "yardstick"]

_REWRITING = ("fifo", "mask", "offload", "project", "recorded")
"""What these do to a window is more, or other, than opening one from a seed."""
_NO_LIMIT = 1_000_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Yardstick:
    """`best` is None where a single step does not fit the limit."""

    trace: Trace
    parameters: Parameters
    best: Optimum | None


def measuring(offload_above: int) -> Policy:
    """The policy of the arm that a trace is read from."""
    return msgspec.structs.replace(PRESETS["raw"], name=f"raw, offload {offload_above}", offload_above=offload_above)


def yardstick(script: Script, arm: Arm, price: Price, limit: int) -> Yardstick:
    """Of an arm without windows of its own, under prompts of at most `limit` tokens; the quality line is the watermark
    that policies have."""
    seeds = arm.seeds
    parameters = parameters_of(
        price,
        limit=limit,
        seed=sum(seeds) // len(seeds) if seeds else 0,
        watermark=PRESETS["rollover-cost"].watermark,
    )
    trace = _trace(script, arm)
    try:
        best = optimum(trace, parameters)
    except OverBudget:
        best = None
    return Yardstick(trace=trace, parameters=parameters, best=best)


def spent(arm: Arm, price: Price) -> float:
    """What an arm's requests cost, output left out, in tokens of plain input; the tail is never written to a cache."""
    r, w = price.r, price.w
    body = sum(
        r * kept + w * (step.tokens - step.tail - kept) + step.tail
        for step, kept in zip(arm.steps, cached_by_step(arm.steps, price), strict=True)
    )
    return body + w * RECALL_TOKENS * sum(step.aside for step in arm.steps)


def schedule_of(arm: Arm) -> tuple[int, ...]:
    """The steps before which a window opened, and the first."""
    return tuple(dict.fromkeys((1, *(number for number, step in enumerate(arm.steps, 1) if step.causes))))


def placed(arm: Arm, by: Yardstick) -> float | None:
    """The cost of an arm's schedule on a yardstick, whatever limit its windows break; None for an arm that is more than
    a schedule, or stopped."""
    if arm.refused or arm.policy.how in _REWRITING:
        return None
    roomy = msgspec.structs.replace(by.parameters, limit=_NO_LIMIT, watermark=1.0)
    return cost(by.trace, schedule_of(arm), roomy)


def _trace(script: Script, arm: Arm) -> Trace:
    prompts = [step.tokens for step in arm.steps]
    grown = [max(0, later - earlier) for earlier, later in zip([arm.pinned, *prompts], prompts, strict=False)]
    return Trace(
        pinned=arm.pinned,
        appended=tuple(grown),
        output=tuple(step.output for step in arm.steps),
        seen=seen_by_step(script, [step.seq for step in arm.steps]),
        gaps=tuple(step.gap_ms / 1000 for step in arm.steps),
        seeds=tuple(arm.seeds),
    )


def seen_by_step(script: Script, replies: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Per step, for each handle its reply uses, the last earlier step at which it arrived or was used. What arrives
    just before a request stands in any window, so such a handle is never recalled and is left out."""
    used_at: dict[str, int] = {}
    found = []
    for step, reply in enumerate(replies, 1):
        lasts = []
        for literal in script.index.uses(reply):
            source, _ = next(script.index.before(literal, reply))
            arrived = bisect_left(replies, source + 1) + 1
            if arrived < step:
                lasts.append(max(arrived, used_at.get(literal, 0)))
            used_at[literal] = step
        found.append(tuple(lasts))
    return tuple(found)


assert Parameters(r=1, w=1, k=1, limit=1).recall == RECALL_TOKENS, "the lab and the cost model charge the same recall"
