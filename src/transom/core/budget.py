"""How full the window is and what follows from it: one pure function (source document 000, section 3.1).

    hard = context_limit - output_reserve          nothing larger is ever sent
    base = hard - fallback_reserve                 here the model's own choice ends
    remaining = base - current

The order of the questions is the rule: a settled declaration, the hard limit, a used-up fallback, the base limit,
the reminder. Claims come from durable notices, so a restart neither repeats nor loses one. Beside it two plain
tests: a share's quota and the watermark (source document 004: reserve 25 %, watermark 75 %).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from transom.errors import OverBudget, UsageError

__all__ = ["Action", "LimitSource", "Limits", "Quotas", "evaluate", "limits", "require"]

_RESERVE = 8192
"""Tokens for an answer; what the DSH plugin uses."""

LimitSource = Literal["configured", "provider-reported", "catalogue", "name-hint", "unknown"]
"""Where a context limit comes from, the most trusted first. Only the first three are verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """All in tokens of the session's model."""

    context_limit: int
    output_reserve: int
    fallback_reserve: int
    reminder: int
    source: LimitSource = "configured"

    @property
    def hard(self) -> int:
        return self.context_limit - self.output_reserve

    @property
    def base(self) -> int:
        return self.hard - self.fallback_reserve


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Shares of the hard limit: for the static quota, and for the parts of a new window (source document 004)."""

    tools: float = 0.40
    history: float = 0.20
    seed: float = 0.15
    """Of a window's seed: at 128k this is about what a good handoff plus state needs (source document 000 reports
    summaries that grew past 20k characters; a seed may not)."""


_ROOM = 2 * _RESERVE
"""Tokens that the suggestion of a larger limit leaves beside what stands in every window, or half of that: in a window
that only just holds it the next step is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    kind: Literal["continue", "remind", "fallback", "rollover"]
    cause: Literal["", "model", "hard-limit"] = ""
    remaining: int = 0


def limits(
    context_limit: int,
    *,
    source: LimitSource = "configured",
    output_reserve: int | None = None,
    fallback_reserve: int | None = None,
    reminder: int | None = None,
) -> Limits:
    """Limits with defaults in proportion: an eighth of the window for the answer and a sixteenth each for fallback and
    reminder, at most 8,192 and 15,000 (the reminder of source document 000).

    Raises `UsageError` with the numbers if no positive base is left.
    """
    out = min(_RESERVE, context_limit // 8) if output_reserve is None else output_reserve
    back = min(_RESERVE, context_limit // 16) if fallback_reserve is None else fallback_reserve
    near = min(15_000, context_limit // 16) if reminder is None else reminder
    made = Limits(context_limit=context_limit, output_reserve=out, fallback_reserve=back, reminder=near, source=source)
    if made.base <= 0:
        raise UsageError(
            f"no room is left: context limit {context_limit:,} - output reserve {out:,} - fallback reserve {back:,} "
            f"= {made.base:,} tokens; raise the limit or lower the reserves"
        )
    if min(out, back, near) < 0:
        raise UsageError(f"a reserve is negative: output {out:,}, fallback {back:,}, reminder {near:,} tokens")
    return made


def evaluate(bounds: Limits, *, current: int, declared: bool, reminder_claimed: bool, fallback_claimed: bool) -> Action:
    """The action for a window of `current` tokens."""
    remaining = bounds.base - current
    if declared:
        return Action(kind="rollover", cause="model", remaining=remaining)
    if current >= bounds.hard or (current >= bounds.base and fallback_claimed):
        return Action(kind="rollover", cause="hard-limit", remaining=remaining)
    if current >= bounds.base:
        return Action(kind="fallback", remaining=remaining)
    if remaining <= bounds.reminder and not reminder_claimed:
        return Action(kind="remind", remaining=remaining)
    return Action(kind="continue", remaining=remaining)


def require(bounds: Limits, *, protected: int, what: str) -> None:
    """Raise `OverBudget` with the numbers if words that no policy may drop do not fit."""
    if protected > bounds.hard:
        raise OverBudget(
            f"{what} alone are {protected:,} tokens, over the {bounds.hard:,} that a limit of "
            f"{bounds.context_limit:,} leaves for the prompt",
            needs=_least_limit(bounds, protected + min(protected // 2, _ROOM)),
        )


def _least_limit(bounds: Limits, prompt: int) -> int:
    """A limit whose prompt holds so many tokens: with the reserve as it is, or as `limits` would make it there."""
    in_proportion = min(prompt + _RESERVE, -(-prompt * 8 // 7))
    return max(prompt + bounds.output_reserve, in_proportion)
