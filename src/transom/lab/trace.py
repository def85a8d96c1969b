"""`--trace`: each session's trace and parameters in the terms of the cost model, for anyone to recompute the costs.

The trace is the ungoverned session: `P` head and first message, `a` what each request adds to the one before, `o` the
replies, `seen` per used handle, `gap` in seconds. Each arm then names its schedule (the steps before which a window
opened), the seeds `s` at those steps, and per request the prompt `S` and its cached part, from which its cost follows:
`r x cached + w x (S - cached)`, the tail at the price of plain input. Costs are in tokens of plain input, output left
out; `regret` is an arm's cost over the cheapest schedule's. An arm that also rewrites (offload, mask) has prompts that
no schedule of the ungoverned trace has, so its regret can be below one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

import msgspec

from transom.core.economics import Parameters, Trace, optimum, parameters_of, regret
from transom.errors import OverBudget
from transom.lab.arms import Arm
from transom.lab.metrics import cached_by_step
from transom.lab.recall import RECALL_TOKENS
from transom.lab.replay import Replayed
from transom.lab.script import Script

__all__ = ["ArmTrace", "SessionTrace", "trace_of", "write_trace"]


class ArmTrace(msgspec.Struct, frozen=True, kw_only=True, rename={"prompts": "S", "seeds": "s"}):
    """One arm in the cost model's letters. `seeds` pairs with `schedule`."""

    arm: str
    schedule: tuple[int, ...]
    seeds: tuple[int, ...]
    prompts: tuple[int, ...]
    cached: tuple[int, ...]
    tail: tuple[int, ...]
    recalls: tuple[int, ...]
    cost: float
    regret: float | None
    refused: str = ""


class SessionTrace(msgspec.Struct, frozen=True, kw_only=True):
    session: str
    model: str
    price: str
    prices_dated: str
    usd_per_million_input: float
    parameters: Parameters
    trace: Trace
    optimum_schedule: tuple[int, ...]
    optimum_cost: float | None
    """Null where a single step does not fit the limit."""
    arms: tuple[ArmTrace, ...]


def write_trace(path: Path, replayed: Sequence[Replayed], limit: int) -> None:
    """Write the traces of `replayed` (each with a `raw` arm among its arms) as one JSON document, atomically."""
    document = msgspec.json.encode([trace_of(one, limit) for one in replayed])
    beside = path.with_name(f".{path.name}.part")
    beside.write_bytes(msgspec.json.format(document, indent=1))
    beside.replace(path)


def trace_of(replayed: Replayed, limit: int) -> SessionTrace:
    """One session's trace under a prompt of at most `limit` tokens."""
    script, price = replayed.script, replayed.price
    raw = next(arm for arm in replayed.arms if arm.policy.name == "raw")
    seeds = [step.seed for arm in replayed.arms for step in arm.steps if step.seed]
    parameters = parameters_of(price, limit=limit, seed=sum(seeds) // len(seeds) if seeds else 0)
    trace = _trace(script, raw)
    try:
        best = optimum(trace, parameters)
    except OverBudget:
        best = None
    arms = []
    for arm in replayed.arms:
        cached = cached_by_step(arm.steps, price)
        spent = sum(
            parameters.r * kept + parameters.w * (step.tokens - step.tail - kept) + step.tail
            for step, kept in zip(arm.steps, cached, strict=True)
        )
        opened = [(number, step.seed) for number, step in enumerate(arm.steps, 1) if step.causes]
        arms.append(
            ArmTrace(
                arm=arm.policy.name,
                schedule=tuple(dict.fromkeys((1, *(number for number, _ in opened)))),
                seeds=tuple(tokens for _, tokens in opened),
                prompts=tuple(step.tokens for step in arm.steps),
                cached=tuple(cached),
                tail=tuple(step.tail for step in arm.steps),
                recalls=tuple(step.recalls for step in arm.steps),
                cost=spent,
                regret=regret(spent, best) if best is not None and not arm.refused else None,
                refused=arm.refused,
            )
        )
    return SessionTrace(
        session=script.session_id,
        model=script.model,
        price=price.name,
        prices_dated=price.date,
        usd_per_million_input=price.input,
        parameters=parameters,
        trace=trace,
        optimum_schedule=best.schedule if best else (),
        optimum_cost=best.cost if best else None,
        arms=tuple(arms),
    )


def _trace(script: Script, raw: Arm) -> Trace:
    prompts = [step.tokens for step in raw.steps]
    pinned = raw.pinned
    grown = [max(0, later - earlier) for earlier, later in zip([pinned, *prompts], prompts, strict=False)]
    return Trace(
        pinned=pinned,
        appended=tuple(grown),
        output=tuple(step.output for step in raw.steps),
        seen=_seen(script, [step.seq for step in raw.steps]),
        gaps=tuple(step.gap_ms / 1000 for step in raw.steps),
    )


def _seen(script: Script, replies: Sequence[int]) -> tuple[tuple[int, ...], ...]:
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
