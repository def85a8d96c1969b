"""From what an arm did to its figures: tokens, cached tokens, money, boundaries, misses and what stayed in sight.

Cost follows the cost model: what the provider's rules keep is read, the rest of head and body is written, the tail,
which stands behind the last cache mark, is plain input. Money is in the prices of the chosen entry.

The kernel marks where the requests before ended (`core.breakpoints`), so an arm's kept bytes are found as if every
start of a prompt were remembered; a rewrite inside a window may lose one step more than that.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from itertools import accumulate

import msgspec

from transom.core.cachesim import Cache, Sent
from transom.core.event import Usage
from transom.core.pricing import Price, request_cost, usage_cost
from transom.lab.arms import Arm, Step
from transom.lab.figures import ConstraintsVerbatim, HandleRecall, Mark, Recorded, Result, Run, Series
from transom.lab.recall import RECALL_TOKENS
from transom.lab.script import Script

__all__ = ["cached_by_step", "recorded_figures", "run_of"]


def run_of(script: Script, arm: Arm, price: Price, *, context_limit: int, seconds: float) -> Run:
    """The figures of one arm."""
    steps = arm.steps
    cached = cached_by_step(steps, price)
    costs = [_cost(step, kept, price) for step, kept in zip(steps, cached, strict=True)]
    tokens = [step.tokens for step in steps]
    recalls = sum(step.recalls for step in steps)
    result = Result(
        session=script.session_id,
        format=script.format,
        arm=arm.policy.name,
        model=script.model,
        events=arm.events,
        steps=len(steps),
        input_tokens=sum(tokens),
        cached_tokens=sum(cached),
        output_tokens=sum(step.output for step in steps),
        side_tokens=recalls * RECALL_TOKENS,
        cost_usd=sum(costs),
        peak_tokens=max(tokens, default=0),
        mean_tokens=sum(tokens) / len(tokens) if tokens else 0.0,
        boundaries=dict(sorted(Tally(cause for step in steps for cause in step.causes).items())),
        misses=dict(sorted(Tally(reason for step in steps for reason in step.reasons).items())),
        undeclared_misses=sum(step.verdict == "drift" for step in steps),
        prefix_kept=_prefix_kept(steps),
        handle_recall=HandleRecall(n=arm.handles, visible=arm.visible, recallable=arm.recallable, lost=arm.lost),
        constraints_verbatim=ConstraintsVerbatim(n=len(arm.constraints), kept=sum(arm.constraints.values())),
        unpaired_calls=arm.unpaired,
        counter_error=script.counter_error,
        recorded=recorded_figures(script, price),
        modelled=_modelled(script, recalls),
        seconds=seconds,
        context_limit=context_limit,
        refused=arm.refused,
    )
    series = Series(
        tokens=tuple(tokens),
        cached=tuple(cached),
        cost_usd=tuple(accumulate(costs)),
        boundaries=tuple(Mark(step=n, what=cause) for n, step in enumerate(steps, 1) for cause in step.causes),
        misses=tuple(Mark(step=n, what=reason) for n, step in enumerate(steps, 1) for reason in step.reasons),
    )
    return Run(result=result, series=series, title=script.title)


def cached_by_step(steps: Sequence[Step], price: Price) -> list[int]:
    """Tokens the provider's rules say are read from its cache, per request."""
    rules = price.rules
    rules = msgspec.structs.replace(rules, serves="prefix") if rules.serves == "marks" else rules
    cache, now, found = Cache(), 0.0, []
    for step in steps:
        now += step.gap_ms / 1000
        found.append(cache.send(Sent(at=now, tokens=step.tokens, kept=step.kept), rules).read)
    return found


def recorded_figures(script: Script, price: Price) -> Recorded:
    """What the recording's provider reported, at the same prices."""
    known: list[Usage] = [usage for usage in script.usages if usage is not None]
    if not any(usage.prompt for usage in known):  # nothing, or the output alone: what was paid is not known
        output = sum(usage.output for usage in known) if known else None
        return Recorded(output=output, compactions=script.compactions)
    return Recorded(
        input=sum(usage.prompt for usage in known),
        cached=sum(usage.cached for usage in known),
        written=sum(usage.written for usage in known),
        output=sum(usage.output for usage in known),
        cost_usd=sum(usage_cost(price, usage) for usage in known),
        compactions=script.compactions,
    )


def _cost(step: Step, cached: int, price: Price) -> float:
    """The cost model's price of a request; the tail is never written to the cache."""
    body = request_cost(price, prompt=step.tokens - step.tail, cached=min(cached, step.tokens - step.tail))
    aside = request_cost(price, prompt=step.aside * RECALL_TOKENS, cached=0)
    return aside + body + (step.tail * price.input + step.output * price.output) / 1_000_000


def _prefix_kept(steps: Sequence[Step]) -> float:
    before = sum(step.tokens - step.tail for step in steps[:-1])
    return sum(step.kept for step in steps[1:]) / before if before else 1.0


def _modelled(script: Script, recalls: int) -> tuple[str, ...]:
    found = ["cached tokens: simulated by the provider's published rules"]
    if script.unseen_tokens:
        found.append("head: what the recording lacks of it is taken from the first reported prompt")
    elif not any(script.usages):
        found.append("head: only what the recording holds; no usage was reported to infer the rest from")
    if script.cut_at:
        found.append("counts: compared with the reported ones up to a cut of the window that was not recorded")
    if recalls:
        found.append(
            f"recalls: {RECALL_TOKENS} tokens each, where the recorded agent used a handle that was out of sight"
        )
    return tuple(found)
