"""Builds made-up but realistic replays for the tests of the report and the page: a sawtooth window an arm."""

from __future__ import annotations

from transom.lab.figures import ConstraintsVerbatim, HandleRecall, Mark, Recorded, Replay, Result, Run, Series

__all__ = ["ARMS", "replay", "run", "series"]

ARMS = ("raw", "fifo", "mask", "gssc", "rollover")
_SEED = {"fifo": 0.5, "mask": 0.4, "gssc": 0.3, "rollover": 0.15}
_CAUSE = {"fifo": "fifo", "mask": "operator", "gssc": "overflow", "rollover": "hard-limit"}


def series(arm: str, steps: int, limit: int, head: int = 12_000) -> Series:
    """A window that grows by some 700 tokens a step and falls at its limit to the arm's seed."""
    window, paid = head, 0.0
    tokens, cached, cost, boundaries, misses = [], [], [], [], [Mark(step=1, what="initial")]
    for step in range(1, steps + 1):
        before = window
        window += 300 + (step * 7919) % 900
        if window > limit * 0.9 and arm != "raw":
            window = int(head + (limit - head) * _SEED.get(arm, 0.2))
            before = head
            boundaries.append(Mark(step=step, what=_CAUSE.get(arm, "cost")))
            misses.append(Mark(step=step, what=f"reset:{arm}"))
        elif step % 150 == 0:
            before = 0
            misses.append(Mark(step=step, what="ttl"))
        paid += (before * 0.5 + (window - before) * 6.25 + 400 * 25) / 1e6
        tokens.append(window)
        cached.append(before)
        cost.append(round(paid, 6))
    return Series(
        tokens=tuple(tokens),
        cached=tuple(cached),
        cost_usd=tuple(cost),
        boundaries=tuple(boundaries),
        misses=tuple(misses),
    )


def run(
    arm: str = "rollover", session: str = "0b5f-1", steps: int = 120, limit: int = 64_000, **changes: object
) -> Run:
    """One run; `changes` replace fields of the result, `title` the run's."""
    title = str(changes.pop("title", "Teach the parser to read dates"))
    shown = series(arm, steps, limit)
    result = Result(
        session=session,
        format="claude-code",
        arm=arm,
        model="claude-opus-4-5",
        events=steps * 3,
        steps=steps,
        input_tokens=sum(shown.tokens),
        cached_tokens=sum(shown.cached),
        output_tokens=steps * 400,
        side_tokens=0 if arm == "raw" else 1_200,
        cost_usd=shown.cost_usd[-1],
        peak_tokens=max(shown.tokens),
        mean_tokens=sum(shown.tokens) / steps,
        boundaries=_count(shown.boundaries),
        misses=_count(shown.misses),
        undeclared_misses=0,
        prefix_kept=0.97,
        handle_recall=HandleRecall(
            n=200,
            visible=200 if arm == "raw" else 150,
            recallable=0 if arm == "raw" else 48,
            lost=0 if arm == "raw" else 2,
        ),
        constraints_verbatim=ConstraintsVerbatim(n=6, kept=6),
        unpaired_calls=0,
        counter_error=0.013,
        recorded=Recorded(
            input=sum(shown.tokens),
            cached=sum(shown.cached),
            written=90_000,
            output=steps * 400,
            cost_usd=2.5,
            compactions=1,
        ),
        modelled=() if arm == "raw" else ("recalls the recorded agent would have needed",),
        seconds=0.4,
    )
    return Run(result=_changed(result, changes), series=shown, title=title)


def replay(sessions: int = 1, arms: tuple[str, ...] = ARMS, steps: int = 120, limit: int = 64_000) -> Replay:
    runs = [
        run(
            arm,
            session=f"session-{number}",
            steps=steps,
            limit=limit,
            title=f"Session {number}: read dates, 修复解析器",
        )
        for number in range(1, sessions + 1)
        for arm in arms
    ]
    return Replay(runs=tuple(runs), context_limit=limit, prices_dated="2026-10-01")


def _changed(result: Result, changes: dict[str, object]) -> Result:
    fields = {name: getattr(result, name) for name in result.__struct_fields__} | changes
    return Result(**fields)


def _count(marks: tuple[Mark, ...]) -> dict[str, int]:
    words = [mark.what for mark in marks]
    return {word: words.count(word) for word in dict.fromkeys(words)}
