"""What a replay found: the figures of one session under one arm, and the series behind its plots.

`Result` is the JSON object of `transom replay --json`, field for field; its names are a promise to whoever reads that
file. All tokens are the session's model's own. Money is US dollars. A figure nobody knows is null, never zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import TypeVar

import msgspec

__all__ = [
    "ConstraintsVerbatim",
    "HandleRecall",
    "Mark",
    "Recorded",
    "Replay",
    "Result",
    "Run",
    "Series",
    "against_recorded",
    "totals",
]

Number = TypeVar("Number", int, float)


class HandleRecall(msgspec.Struct, frozen=True, kw_only=True):
    """Of `n` uses of an earlier handle: in the window, one recall of at most 400 tokens away, or neither."""

    n: int = 0
    visible: int = 0
    recallable: int = 0
    lost: int = 0


class ConstraintsVerbatim(msgspec.Struct, frozen=True, kw_only=True):
    """Of `n` constraints the user stated, those that stood word for word in every later window."""

    n: int = 0
    kept: int = 0


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What the recording's own provider and client reported."""

    input: int | None = None
    """The whole prompts: uncached, cached and written."""
    cached: int | None = None
    written: int | None = None
    output: int | None = None
    cost_usd: float | None = None
    """At the same prices as the arms."""
    compactions: int = 0


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One session under one arm."""

    session: str
    format: str
    arm: str
    model: str
    events: int
    steps: int
    input_tokens: int
    """The whole prompts, cached part included."""
    cached_tokens: int
    output_tokens: int
    side_tokens: int
    """Tokens of requests the arm made beside the recorded ones: summaries, recalls."""
    cost_usd: float | None
    peak_tokens: int
    mean_tokens: float
    boundaries: dict[str, int]
    misses: dict[str, int]
    undeclared_misses: int
    prefix_kept: float
    """Share of the prompt tokens, the first request's apart, that extend the request before."""
    handle_recall: HandleRecall
    constraints_verbatim: ConstraintsVerbatim
    unpaired_calls: int
    counter_error: float | None
    """Our count of the recorded prompts over the recorded count, less one; null without recorded usage."""
    recorded: Recorded
    modelled: tuple[str, ...]
    """What stands in for something the recording does not hold, in words."""
    seconds: float
    context_limit: int = 0
    """Under which the arm ran, in tokens."""
    regret: float | None = None
    """Cost over that of the cheapest schedule of windows for the session as it was recorded, output left out."""
    refused: str = ""
    """Why the arm could not be replayed to its end, with the numbers; the figures then end at that step."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened at a step (counted from 1): a boundary's cause, or a miss's reason."""

    step: int
    what: str


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Figures per step, one entry a request."""

    tokens: tuple[int, ...] = ()
    cached: tuple[int, ...] = ()
    cost_usd: tuple[float, ...] = ()
    """Cumulative; empty without a price."""
    boundaries: tuple[Mark, ...] = ()
    misses: tuple[Mark, ...] = ()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A result with its series and the session's title."""

    result: Result
    series: Series = Series()
    title: str = ""


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one `transom replay` found, and under which terms."""

    runs: tuple[Run, ...]
    context_limit: int
    prices_dated: str = ""
    """The date of the price table."""
    assumed: tuple[str, ...] = ()
    """Models the table does not hold, priced as another: sentences."""


def totals(results: Iterable[Result]) -> tuple[Result, ...]:
    """One result per arm, in order of appearance, over all sessions: sums, the highest peak, means weighted by steps.
    `session` counts the sessions. A cost is null if one of its parts is; `recorded` sums what is known; the counter's
    error is the median size of the sessions' errors, and the regret their median."""
    by_arm: dict[str, list[Result]] = {}
    for result in results:
        by_arm.setdefault(result.arm, []).append(result)
    return tuple(_total(arm, parts) for arm, parts in by_arm.items())


def against_recorded(results: Iterable[Result]) -> float | None:
    """What the arm cost over what the recorded agent paid, over the sessions where both are known; null if none is."""
    paid = [
        (result.cost_usd, result.recorded.cost_usd)
        for result in results
        if result.cost_usd is not None and result.recorded.cost_usd is not None and not result.refused
    ]
    recorded = sum(theirs for _, theirs in paid)
    return sum(ours for ours, _ in paid) / recorded if recorded > 0 else None


def _total(arm: str, parts: list[Result]) -> Result:
    steps = sum(part.steps for part in parts)
    recalls = [part.handle_recall for part in parts]
    constraints = [part.constraints_verbatim for part in parts]
    refused = sum(1 for part in parts if part.refused)
    return Result(
        session=str(len({part.session for part in parts})),
        format=_one(part.format for part in parts),
        arm=arm,
        model=_one(part.model for part in parts),
        events=sum(part.events for part in parts),
        steps=steps,
        input_tokens=sum(part.input_tokens for part in parts),
        cached_tokens=sum(part.cached_tokens for part in parts),
        output_tokens=sum(part.output_tokens for part in parts),
        side_tokens=sum(part.side_tokens for part in parts),
        cost_usd=_sum_all(part.cost_usd for part in parts),
        peak_tokens=max(part.peak_tokens for part in parts),
        mean_tokens=sum(part.mean_tokens * part.steps for part in parts) / steps if steps else 0.0,
        boundaries=_merged(part.boundaries for part in parts),
        misses=_merged(part.misses for part in parts),
        undeclared_misses=sum(part.undeclared_misses for part in parts),
        prefix_kept=sum(part.prefix_kept * part.steps for part in parts) / steps if steps else 0.0,
        handle_recall=HandleRecall(
            n=sum(recall.n for recall in recalls),
            visible=sum(recall.visible for recall in recalls),
            recallable=sum(recall.recallable for recall in recalls),
            lost=sum(recall.lost for recall in recalls),
        ),
        constraints_verbatim=ConstraintsVerbatim(
            n=sum(c.n for c in constraints), kept=sum(c.kept for c in constraints)
        ),
        unpaired_calls=sum(part.unpaired_calls for part in parts),
        counter_error=_median_size(part.counter_error for part in parts),
        regret=_median_size(part.regret for part in parts),
        recorded=_recorded([part.recorded for part in parts]),
        modelled=tuple(dict.fromkeys(words for part in parts for words in part.modelled)),
        seconds=sum(part.seconds for part in parts),
        context_limit=max(part.context_limit for part in parts),
        refused=f"{refused} of {len(parts)} sessions refused" if refused else "",
    )


def _recorded(parts: list[Recorded]) -> Recorded:
    return Recorded(
        input=_sum_known(part.input for part in parts),
        cached=_sum_known(part.cached for part in parts),
        written=_sum_known(part.written for part in parts),
        output=_sum_known(part.output for part in parts),
        cost_usd=_sum_known(part.cost_usd for part in parts),
        compactions=sum(part.compactions for part in parts),
    )


def _one(words: Iterable[str]) -> str:
    distinct = sorted(set(words))
    return distinct[0] if len(distinct) == 1 else f"{len(distinct)} kinds"


def _merged(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    merged: dict[str, int] = {}
    for count in counts:
        for name, n in count.items():
            merged[name] = merged.get(name, 0) + n
    return dict(sorted(merged.items()))


def _sum_all(values: Iterable[Number | None]) -> Number | None:
    """The sum, or null if one part is unknown."""
    parts = list(values)
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None


def _sum_known(values: Iterable[Number | None]) -> Number | None:
    """The sum of what is known, or null if nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _median_size(errors: Iterable[float | None]) -> float | None:
    sizes = [abs(error) for error in errors if error is not None]
    return median(sizes) if sizes else None
