"""Generation loss: what a task that is handed over 1 to 50 times still knows, and what it came to believe.

`python -m bench generations` prints it; `--measure PATH` first measures the loss in the recordings at PATH; `--local
FILE` adds a few handovers by the model in that GGUF file. Three ways to hand over, under one model that is as faithful
as the recorded ones were (`generations_facts`, `generations_rates`):

    summary    of a summary: each window starts with what the last one's model wrote of it, and with nothing else
    prose      a handoff in prose under a few headings: the same, with the loss of short notes
    verified   the real kernel: a handoff as data, checked, with the user's words pinned and state by code

Measured: how often an item of each kind stands in a recorded summary to the letter, in other words, or not at all; the
same for what only the summary before had; how often handles in reworded lines are left out or changed; how often a
guess that is found again has lost its word of doubt.

Assumed: that facts are lost independently of one another; that the model knows what its window shows and no file says
the rest again, except that a file in use is found as long as its name stands; that short recorded notes stand for prose
handoffs; that the user says nothing twice. Both are also run with half the measured loss.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rich.console import Console

from bench import generations_local
from bench.figure import Figure, judge
from bench.generations_facts import FACTS, GUESSED, PROTECTED, Kind, Teller, Told, first, met, planted
from bench.generations_kernel import CONTEXT_LIMIT, Badly, Habit, Kept, handed_over
from bench.generations_measure import measure
from bench.generations_rates import Length, Rates, load, save
from bench.generations_tables import Survey, of_sessions, rates_table, survival, trust

__all__ = ["GENERATIONS", "Arm", "chain", "run", "session", "surveyed"]

GENERATIONS = 50
TIGHT = 10_000
"""A window so small that 50 failures outgrow their share of it."""
_CHAINS = 200
_SESSIONS = 10
Arm = Literal["summary", "prose"]
_LENGTH: dict[Arm, Length] = {"summary": "long", "prose": "short"}


def run(
    scale: float = 1.0, seed: int = 1, *, recordings: Path | None = None, local: Path | None = None
) -> list[Figure]:
    """All figures, and the tables printed; `scale` makes fewer or more chains and sessions."""
    console = Console()
    if recordings is not None:
        save(measure(recordings))
    rates = load()
    console.print(rates_table(rates))
    if local is not None:
        surveys = generations_local.run(local)
        shown = range(1, generations_local.GENERATIONS + 1)
        console.print(survival(surveys, shown), trust(surveys, shown))
        return [_by_model(one) for one in surveys]
    chains, sessions = max(2, int(_CHAINS * scale)), max(1, int(_SESSIONS * scale))
    arms = [surveyed(arm, rates, seed, chains=chains, ease=ease) for arm in ("summary", "prose") for ease in (1.0, 0.5)]
    made: dict[tuple[Habit, int], list[Kept]] = {
        (habit, limit): [session(rates, f"{seed}.{number}", habit, limit) for number in range(sessions)]
        for habit, limit in _SORTS
    }
    kernel = [of_sessions(name, made[sort]) for sort, name in _SORTS.items()]
    console.print(survival([*arms, *kernel[:2]]), trust([*arms, kernel[0], *kernel[2:]]))
    return _figures(arms[0], made)


_SORTS: dict[tuple[Habit, int], str] = {
    ("measured", CONTEXT_LIMIT): "verified",
    ("measured", TIGHT): f"verified, {TIGHT:,} tokens",
    ("insistent", CONTEXT_LIMIT): "verified, insistent",
    ("own-file", CONTEXT_LIMIT): "verified, own file",
}


def chain(teller: Teller, generations: int = GENERATIONS) -> Iterator[tuple[Told, ...]]:
    """What stands in each window behind the first, when each is told from the one before."""
    told = tuple(first(fact) for fact in FACTS)
    for handover in range(1, generations + 1):
        told = tuple(made for one in told if (made := teller.tell(one, met(one.fact.kind, handover))))
        yield told
        told = tuple(_used(one) for one in told)


def _used(told: Told) -> Told:
    """A file whose name is known is found, and named whole when it is read again."""
    return first(told.fact) if told.fact.kind == "used" and not told.is_wrong else told


def surveyed(arm: Arm, rates: Rates, seed: int, *, chains: int = _CHAINS, ease: float = 1.0) -> Survey:
    """`chains` seeded chains of one arm."""
    letter, other, plain = (Tally[tuple[Kind, int]]() for _ in range(3))
    for number in range(chains):
        teller = Teller(rates, _LENGTH[arm], f"{seed}.{number}", ease=ease)
        for generation, told in enumerate(chain(teller), 1):
            for one in told:
                counted = plain if not one.is_doubted else letter if one.is_verbatim else other
                counted[one.fact.kind, generation] += 1
    name = arm if ease == 1.0 else f"{arm}, {ease:g} of the loss"
    return Survey(name=name, n=chains * len(planted("words")), letter=letter, other=other, plain=plain)


def session(rates: Rates, seed: str, habit: Habit = "measured", limit: int = CONTEXT_LIMIT) -> Kept:
    """One session of the kernel under the loss of short notes."""
    writer = Badly(Teller(rates, "short", seed), habit)
    return replace(handed_over(writer, GENERATIONS, context_limit=limit), claimed=writer.claimed)


# -- the verdicts


def _figures(summary: Survey, made: dict[tuple[Habit, int], list[Kept]]) -> list[Figure]:
    figures = [
        Figure(
            id="D7",
            what="summary of a summary: the user's words to the letter after 1, 5, 15 handovers",
            goal="",
            value=", ".join(f"{summary.share(summary.letter, 'words', at):.0%}" for at in (1, 5, 15)),
            verdict="told",
        )
    ]
    for limit in (CONTEXT_LIMIT, TIGHT):
        kept = made["measured", limit]
        pinned: tuple[Kind, ...] = ("words", "used", "state")
        figures.append(_stand(f"verified, {limit:,}: words, handles in use, state in every window", kept, pinned))
        figures.append(_reach(f"verified, {limit:,}: all four in the last window or one recall away", kept))
    roomy = made["measured", CONTEXT_LIMIT]
    figures.append(
        _stand(f"verified, {CONTEXT_LIMIT:,}: failures in every window, one more in each", roomy, ("failures",))
    )
    believed = [one for sort, kept in made.items() if sort[0] != "own-file" for one in kept]
    return [*figures, _invented(believed), _own(made["own-file", CONTEXT_LIMIT])]


def _by_model(found: Survey) -> Figure:
    last = generations_local.GENERATIONS
    return Figure(
        id="D7",
        what=f"{found.name}: the protected four to the letter after {last} handovers, by kind",
        goal="",
        value=", ".join(f"{kind} {found.share(found.letter, kind, last):.0%}" for kind in PROTECTED),
        verdict="told",
    )


def _stand(what: str, sessions: Sequence[Kept], kinds: tuple[Kind, ...]) -> Figure:
    facts = {fact.text for kind in kinds for fact in planted(kind)}
    windows = [window for one in sessions for window in one.windows]
    stand = sum(len(facts & window.standing) for window in windows)
    whole = len(facts) * len(windows)
    return Figure(
        id="D7",
        what=what,
        goal="100 %",
        value=f"{stand / whole:.1%}",
        verdict=judge(stand == whole),
        detail=f"{len(sessions)} sessions of {GENERATIONS} handovers",
    )


def _reach(what: str, sessions: Sequence[Kept]) -> Figure:
    facts = {fact.text for kind in PROTECTED for fact in planted(kind)}
    reached = sum(len(facts & (one.windows[-1].standing | one.windows[-1].recalled)) for one in sessions)
    whole = len(facts) * len(sessions)
    return Figure(
        id="D7",
        what=what,
        goal="100 %",
        value=f"{reached / whole:.1%}",
        verdict=judge(reached == whole),
        detail=f"{sum(len(one.windows[-1].recalled) for one in sessions) / whole:.0%} by recall",
    )


def _invented(sessions: Sequence[Kept]) -> Figure:
    invented = sum(len(one.invented) for one in sessions)
    return Figure(
        id="D7",
        what="verified: guesses and reworded rules that became requirements",
        goal="0",
        value=f"{invented} of {sum(one.claimed for one in sessions):,} claims",
        verdict=judge(invented == 0),
        detail=f"{sum(one.demoted for one in sessions):,} demoted in {len(sessions)} sessions",
    )


def _own(sessions: Sequence[Kept]) -> Figure:
    """A file in the workspace is a source unless the session wrote it."""
    guesses = sum(len(planted(kind)) for kind in GUESSED) * len(sessions)
    invented = sum(len(one.invented) for one in sessions)
    return Figure(
        id="D7",
        what="the same, cited from a file the model wrote them into",
        goal="0",
        value=f"{invented} of {guesses} guesses",
        verdict=judge(invented == 0),
        detail="a file that the session wrote is no source",
    )
