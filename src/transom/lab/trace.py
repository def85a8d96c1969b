"""`--trace`: each session's trace and parameters in the terms of the cost model, for anyone to recompute the costs.

The trace is the ungoverned session: `P` head and first message, `a` what each request adds to the one before, `o` the
replies, `seen` per used handle, `gap` in seconds, `s` the seed of a window by code at each step (the `s` of the
parameters is its mean, for traces without). `offloaded` is the same where large results were offloaded at admission.

Each arm names its schedule (the steps before which a window opened), its own seeds at those steps, and per request the
prompt `S` and its cached share, from which its `cost` follows: `r x cached + w x (S - cached)`, the tail at the price
of plain input, recalls that found no room at `w`. `regret` is that over the cheapest schedule's cost. `schedule_cost`
is what the schedule alone costs on the trace of what the arm admits, `schedule_regret` that over this trace's optimum;
null for arms that do more than open windows. Costs are in tokens of plain input, output left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from transom.core.economics import Parameters, Trace, regret
from transom.lab.arms import Arm
from transom.lab.metrics import cached_by_step
from transom.lab.regret import Yardstick, placed, schedule_of, spent
from transom.lab.replay import Replayed

__all__ = ["ArmTrace", "Offloaded", "SessionTrace", "trace_of", "write_trace"]


class ArmTrace(msgspec.Struct, frozen=True, kw_only=True, rename={"prompts": "S", "seeds": "s"}):
    """One arm in the cost model's letters. `seeds` pairs with `schedule` from its second step on."""

    arm: str
    schedule: tuple[int, ...]
    seeds: tuple[int, ...]
    prompts: tuple[int, ...]
    cached: tuple[int, ...]
    tail: tuple[int, ...]
    recalls: tuple[int, ...]
    cost: float
    regret: float | None
    schedule_cost: float | None
    schedule_regret: float | None
    refused: str = ""


class Offloaded(msgspec.Struct, frozen=True, kw_only=True):
    """The session as an arm sees it that offloads results of more than `above` tokens (o200k) at admission."""

    above: int
    trace: Trace
    optimum_schedule: tuple[int, ...]
    optimum_cost: float | None


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
    offloaded: tuple[Offloaded, ...]
    arms: tuple[ArmTrace, ...]


def write_trace(path: Path, replayed: Sequence[Replayed]) -> None:
    """Write the traces of `replayed` as one JSON document, atomically."""
    document = msgspec.json.encode([trace_of(one) for one in replayed])
    beside = path.with_name(f".{path.name}.part")
    beside.write_bytes(msgspec.json.format(document, indent=1))
    beside.replace(path)


def trace_of(replayed: Replayed) -> SessionTrace:
    """One session's trace, with its arms."""
    script, price = replayed.script, replayed.price
    whole = replayed.yardsticks[0]
    return SessionTrace(
        session=script.session_id,
        model=script.model,
        price=price.name,
        prices_dated=price.date,
        usd_per_million_input=price.input,
        parameters=whole.parameters,
        trace=whole.trace,
        optimum_schedule=whole.best.schedule if whole.best else (),
        optimum_cost=whole.best.cost if whole.best else None,
        offloaded=tuple(
            Offloaded(
                above=above,
                trace=one.trace,
                optimum_schedule=one.best.schedule if one.best else (),
                optimum_cost=one.best.cost if one.best else None,
            )
            for above, one in sorted(replayed.yardsticks.items())
            if above
        ),
        arms=tuple(_arm(arm, replayed, whole) for arm in replayed.arms),
    )


def _arm(arm: Arm, replayed: Replayed, whole: Yardstick) -> ArmTrace:
    own = replayed.yardsticks[arm.policy.admits_below]
    alone = placed(arm, own)
    paid = spent(arm, replayed.price)
    return ArmTrace(
        arm=arm.policy.name,
        schedule=schedule_of(arm),
        seeds=tuple(step.seed for step in arm.steps if step.causes),
        prompts=tuple(step.tokens for step in arm.steps),
        cached=tuple(cached_by_step(arm.steps, replayed.price)),
        tail=tuple(step.tail for step in arm.steps),
        recalls=tuple(step.recalls for step in arm.steps),
        cost=paid,
        regret=regret(paid, whole.best) if whole.best and not arm.refused else None,
        schedule_cost=alone,
        schedule_regret=regret(alone, own.best) if own.best and alone is not None else None,
        refused=arm.refused,
    )
