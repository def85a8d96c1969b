"""How generation loss is shown: the measured loss, what survives, and what comes to be believed."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from bench.generations_facts import FACTS, GUESSED, PROTECTED, Kind, planted
from bench.generations_kernel import SHOWN, Kept
from bench.generations_rates import Rates

__all__ = ["Survey", "of_sessions", "rates_table", "survival", "trust"]

_TITLES: dict[Kind, str] = {
    "words": "the user's words",
    "failures": "failures, with their error",
    "used": "handles in use",
    "handles": "handles seen once",
    "state": "tasks, files, commands",
    "guesses": "guesses said once",
    "leads": "guesses worked from",
}
_Counts = Tally[tuple[Kind, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Of `n` facts of each kind, by kind and generation, how many stand to the letter, and how many in `other` words
    (in the kernel: one recall away); of guesses, how many are told as `plain` facts (in the kernel: as required)."""

    name: str
    n: int
    letter: _Counts
    other: _Counts
    plain: _Counts

    def share(self, counts: _Counts, kind: Kind, generation: int) -> float:
        return counts[kind, generation] / self.n

    def pair(self, left: _Counts, right: _Counts, kind: Kind, generation: int) -> str:
        return f"{100 * self.share(left, kind, generation):.0f} + {100 * self.share(right, kind, generation):.0f}"


def of_sessions(name: str, sessions: Sequence[Kept]) -> Survey:
    """The survey of sessions of the kernel: `other` is what one recall brings back; of guesses, all that is
    shown as an inference."""
    letter, other, plain = (Tally[tuple[Kind, int]]() for _ in range(3))
    for one in sessions:
        for generation, window in enumerate(one.windows, 1):
            for fact in FACTS:
                place = (fact.kind, generation)
                if fact.plain:
                    forms = {fact.text, fact.plain, fact.loose}
                    plain[place] += not forms.isdisjoint(window.required)
                    other[place] += not forms.isdisjoint(window.inferred)
                else:
                    letter[place] += fact.text in window.standing
                    other[place] += fact.text in window.recalled
    return Survey(name=name, n=len(sessions) * len(planted("words")), letter=letter, other=other, plain=plain)


def rates_table(rates: Rates) -> Table:
    """The measured loss with its counts."""
    grid = Table(
        title=f"Loss measured {rates.dated} in {rates.compactions} compactions of {rates.recordings} recordings: "
        "% to the letter + % reworded of n (% by chance)",
        title_justify="left",
    )
    grid.add_column("kind")
    grid.add_column("met in")
    for length, form in rates.forms.items():
        grid.add_column(f"{length}: {form.compactions} of {form.median_chars:,} characters", justify="right")
    known = {(kind, met) for form in rates.forms.values() for kind, fates in form.fates.items() for met in fates}
    for kind, met in sorted(known, key=lambda place: (place[1] != "source", place)):
        cells = []
        for form in rates.forms.values():
            fate = form.fates.get(kind, {}).get(met)
            if fate is not None:
                letter, other, _ = fate.shares()
                cells.append(f"{100 * letter:.0f} + {100 * other:.0f} of {fate.n:,} ({100 * fate.chance / fate.n:.0f})")
            else:
                cells.append("")
        grid.add_row(kind, met, *cells)
    doubt, handles = rates.hedges, rates.literals
    grid.add_section()
    grid.add_row("doubt", "guesses found again", f"lost in {doubt.dropped} of {doubt.kept + doubt.dropped}")
    grid.add_row("handles", "reworded lines", f"left out: {handles.dropped} of {handles.kept + handles.dropped}")
    grid.add_row("handles", "whole summaries", f"near misses: {handles.near} of {handles.standing + handles.near:,}")
    return grid


def survival(surveys: Sequence[Survey], shown: Sequence[int] = SHOWN) -> Table:
    """The protected four."""
    grid = _grid("After so many handovers: % to the letter + % in other words (verified: + % one recall away)", shown)
    for one in surveys:
        for kind in PROTECTED:
            grid.add_row(one.name, _TITLES[kind], *(one.pair(one.letter, one.other, kind, at) for at in shown))
        grid.add_section()
    return grid


def trust(surveys: Sequence[Survey], shown: Sequence[int] = SHOWN) -> Table:
    """What was guessed: told with its doubt, and without."""
    grid = _grid(
        "After so many handovers: % told as guesses + % told as facts (verified: + % told as requirements)", shown
    )
    for one in surveys:
        for kind in GUESSED:
            told = one.letter + one.other
            grid.add_row(one.name, _TITLES[kind], *(one.pair(told, one.plain, kind, at) for at in shown))
        grid.add_section()
    return grid


def _grid(title: str, shown: Sequence[int]) -> Table:
    grid = Table(title=title, title_justify="left")
    grid.add_column("handed over by")
    grid.add_column("what")
    for generation in shown:
        grid.add_column(str(generation), justify="right")
    return grid
