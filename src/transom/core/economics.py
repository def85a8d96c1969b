"""When a new window pays: the cost of a schedule of windows, the cheapest one there is, and two rules of thumb.

A *trace* is what a session needs whatever is done about its window: `P` tokens that stand in every window, `a[t]`
tokens appended before request `t`, `o[t]` put out in answer, the handles reply `t` uses, the seconds before it. Steps
count from 1. A *schedule* is the set of steps just before which a new window opens; 1 is always in it.

    S(b, t) = P + s[b] + sum of a over b..t + rho x recalls over b..t       prompt of step t in the window opened at b
    recalls at t in that window = handles used at t that were last seen before b
    cost of t > b = r x cached(S(b, t-1)) + w x the rest                    a warm step
    cost of t = b = r x cached(P) + w x the rest + k x O + side             an opening; s = O = side = 0 at b = 1
    cold (gap > ttl, and the very first step): w x S(b, t)

`cached` is the provider's: nothing below the minimum prefix, rounded down to the granularity. Costs are in tokens of
plain input; times the price of input for money. `k x sum of o` is left out: it is the same under every schedule.

A schedule is allowed if S never exceeds the limit, nor the watermark's share of it but in a window of one step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, sqrt

import msgspec

from transom.core.pricing import Price
from transom.errors import OverBudget, UsageError

__all__ = ["Optimum", "Parameters", "Trace", "break_even", "cost", "optimum", "parameters_of", "period", "regret"]


class Trace(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"pinned": "P", "appended": "a", "output": "o", "gaps": "gap", "seeds": "s"},
):
    """One session, all sizes in tokens of its model. In JSON the fields have the letters of the cost model."""

    pinned: int
    appended: tuple[int, ...]
    output: tuple[int, ...]
    seen: tuple[tuple[int, ...], ...] = ()
    """Per step, for each handle its reply uses, the last earlier step at which it was appended, used or recalled.
    Empty: no handles."""
    gaps: tuple[float, ...] = ()
    """Seconds between each request and the one before. Empty: no times, always warm."""
    seeds: tuple[int, ...] = ()
    """Seed tokens of a window opened at each step. Empty: `Parameters.seed` for all."""


class Parameters(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"seed": "s", "handoff": "O", "recall": "rho", "min_prefix_tokens": "minimum", "ttl_seconds": "ttl"},
):
    """Prices relative to plain input, sizes in tokens."""

    r: float
    w: float
    k: float
    seed: int = 0
    handoff: int = 0
    """Output tokens of a handoff the model writes; 0: the seed is made by code."""
    side: float = 0.0
    """Cost of side calls per opening, in tokens of plain input."""
    recall: int = 400
    """Tokens of one recall."""
    limit: int
    watermark: float = 1.0
    min_prefix_tokens: int = 0
    granularity: int = 1
    ttl_seconds: float = 0
    """0: the cache does not go cold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimum:
    """The cheapest allowed schedule and its cost."""

    schedule: tuple[int, ...]
    cost: float


def parameters_of(
    price: Price, *, limit: int, seed: int, handoff: int = 0, watermark: float = 1.0, side: float = 0.0
) -> Parameters:
    """The parameters under a price and its provider's cache rules."""
    return Parameters(
        r=price.r,
        w=price.w,
        k=price.k,
        seed=seed,
        handoff=handoff,
        side=side,
        limit=limit,
        watermark=watermark,
        min_prefix_tokens=price.rules.min_prefix_tokens,
        granularity=price.rules.granularity_tokens,
        ttl_seconds=price.rules.ttl_seconds,
    )


def cost(trace: Trace, schedule: Sequence[int], parameters: Parameters) -> float:
    """Of a schedule, in tokens of plain input, `k x sum of o` left out. Raises `UsageError` for a schedule that does
    not start at 1 or leaves the trace, `OverBudget` for one that is not allowed."""
    _check(trace)
    steps = len(trace.appended)
    opens = sorted(set(schedule))
    if not opens or opens[0] != 1 or opens[-1] > steps:
        raise UsageError(f"a schedule starts at step 1 and stays within {steps} steps, not {opens[:1]}..{opens[-1:]}")
    total = 0.0
    for opened, until in zip(opens, [*opens[1:], steps + 1], strict=True):
        arriving = [
            tokens + parameters.recall * sum(seen < opened for seen in handles)
            for tokens, handles in zip(trace.appended, trace.seen or [()] * steps, strict=True)
        ]
        costs = list(_window(trace, parameters, arriving, opened, until - 1))
        if opened + len(costs) < until:
            raise OverBudget(_too_large(parameters, opened, opened + len(costs)))
        total += costs[-1]
    return total


def optimum(trace: Trace, parameters: Parameters) -> Optimum:
    """The cheapest allowed schedule, by dynamic programming over the last opening; of equals the one with the longest
    last window. Raises `OverBudget` where a step does not fit the limit even in a window of its own."""
    _check(trace)
    steps = len(trace.appended)
    best = [0.0, *[inf] * steps]
    opened_at = [0] * (steps + 1)
    # Tokens arriving before each step in the window at hand. With the opening one step later, what was last seen at
    # the old one has to be recalled.
    arriving = list(trace.appended)
    recalled_after: list[list[int]] = [[] for _ in range(steps + 1)]
    for step, handles in enumerate(trace.seen):
        for seen in handles:
            recalled_after[seen].append(step)
    for opened in range(1, steps + 1):
        for step in recalled_after[opened - 1]:
            arriving[step] += parameters.recall
        before = best[opened - 1]
        for step, spent in enumerate(_window(trace, parameters, arriving, opened, steps), opened):
            if before + spent < best[step]:
                best[step] = before + spent
                opened_at[step] = opened
        if best[opened] == inf:
            raise OverBudget(_too_large(parameters, opened, opened))
    schedule = []
    step = steps
    while step:
        schedule.append(opened_at[step])
        step = opened_at[step] - 1
    return Optimum(schedule=tuple(reversed(schedule)), cost=best[steps])


def regret(spent: float, best: Optimum) -> float:
    """What was spent over what the cheapest schedule costs; both without output, by the same parameters."""
    return spent / best.cost


def period(overhead: float, growth: float, r: float) -> float:
    """Steps between openings that cost least when growth is even: sqrt(2K / (r g)). `overhead` K is what an opening
    costs beyond an ordinary step, in tokens of plain input; `growth` g tokens a step."""
    return sqrt(2 * overhead / (r * growth))


def break_even(*, old: int, new: int, pinned: int, handoff: int, r: float, w: float, k: float) -> float:
    """Remaining steps from which opening a window pays: [(w-r)(H-P) + k O] / [r (S-H)]. `old` S and `new` H are the
    prompts without and with it, `pinned` P what stays cached. Infinite when the new prompt is no smaller."""
    if new >= old:
        return inf
    if not r:
        return inf
    return ((w - r) * (new - pinned) + k * handoff) / (r * (old - new))


def _window(trace: Trace, parameters: Parameters, arriving: Sequence[int], opened: int, until: int) -> Iterator[float]:
    """Cost of the window from its opening through each step up to `until`; ends early where the next is not allowed.
    `arriving` has recalls added."""
    r, w = parameters.r, parameters.w
    least, grain, ttl = parameters.min_prefix_tokens, parameters.granularity, parameters.ttl_seconds
    gaps = trace.gaps if ttl else ()
    line = parameters.watermark * parameters.limit
    size = trace.pinned + arriving[opened - 1]
    spent = 0.0
    kept = 0
    if opened > 1:
        size += trace.seeds[opened - 1] if trace.seeds else parameters.seed
        spent = parameters.k * parameters.handoff + parameters.side
        kept = trace.pinned
    if size > parameters.limit:
        return
    if kept < least or (gaps and gaps[opened - 1] > ttl):
        kept = 0
    kept -= kept % grain
    spent += r * kept + w * (size - kept)
    yield spent
    for step in range(opened, until):
        kept = size
        size += arriving[step]
        if size > line:
            return
        if kept < least or (gaps and gaps[step] > ttl):
            kept = 0
        elif grain > 1:
            kept -= kept % grain
        spent += r * kept + w * (size - kept)
        yield spent


def _check(trace: Trace) -> None:
    steps = len(trace.appended)
    if not steps:
        raise UsageError("a trace has at least one step")
    for name in ("output", "seen", "gaps", "seeds"):
        length = len(getattr(trace, name))
        if length not in {0, steps}:
            raise UsageError(f"a trace's {name} has one entry a step: {steps}, not {length}")
    for step, handles in enumerate(trace.seen, 1):
        if any(not 0 < seen < step for seen in handles):
            raise UsageError(f"step {step} uses a handle last seen at {handles}, which is not an earlier step")


def _too_large(parameters: Parameters, opened: int, step: int) -> str:
    return (
        f"step {step} does not fit a window opened at step {opened}: limit {parameters.limit} tokens, watermark "
        f"{parameters.watermark:g}; open one later, offload more, or raise the limit"
    )
