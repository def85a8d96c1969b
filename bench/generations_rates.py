"""The loss model's numbers: counts from recorded compactions, dated, and what is drawn from them.

`generations_rates.json` is written by `python -m bench generations --measure PATH` and read by everything else, so the
bench needs no recording.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

__all__ = ["COMMAND", "ENOUGH", "PLACE", "Fate", "Form", "Length", "Met", "Outcome", "Rates", "load", "save"]

COMMAND = "python -m bench generations --measure PATH"
PLACE = Path(__file__).with_name("generations_rates.json")
ENOUGH = 20
"""Of fewer items a share says too little, and a wider group's stands for it."""

Length = Literal["long", "short"]
Met = Literal["source", "carried", "renewed"]
Outcome = Literal["verbatim", "reworded", "gone"]


class Fate(msgspec.Struct, kw_only=True):
    """What became of the items of one kind in the summaries. `chance` counts those that would have matched the summary
    of another project."""

    verbatim: int = 0
    reworded: int = 0
    gone: int = 0
    chance: int = 0

    @property
    def n(self) -> int:
        return self.verbatim + self.reworded + self.gone

    def shares(self) -> tuple[float, float, float]:
        """Verbatim, reworded, gone; all gone if there was none."""
        return (self.verbatim / self.n, self.reworded / self.n, self.gone / self.n) if self.n else (0.0, 0.0, 1.0)

    def __add__(self, other: Fate) -> Fate:
        return Fate(
            verbatim=self.verbatim + other.verbatim,
            reworded=self.reworded + other.reworded,
            gone=self.gone + other.gone,
            chance=self.chance + other.chance,
        )


class Form(msgspec.Struct, kw_only=True):
    """Summaries of one length. `fates` is by kind, then by where the item was met; the kind `sentences` is every
    sentence of the summary before."""

    compactions: int = 0
    median_chars: int = 0
    fates: dict[str, dict[str, Fate]] = {}


class Literals(msgspec.Struct, kw_only=True):
    """Handles in reworded lines: `kept` as they were, or `dropped`. Handles of all summaries: `standing` in what was
    summarised, a `near` miss of one that does, or `new`."""

    kept: int = 0
    dropped: int = 0
    standing: int = 0
    near: int = 0
    new: int = 0

    @property
    def altered(self) -> float:
        """The share of the handles a summary writes down that come out as another one."""
        return self.near / (self.standing + self.near) if self.standing else 0.0

    @property
    def loss(self) -> float:
        """The share of handles that a reworded line leaves out."""
        return self.dropped / (self.kept + self.dropped) if self.kept else 0.0


class Hedges(msgspec.Struct, kw_only=True):
    """Guesses found again in a summary: still with a word of doubt (`kept`), or without (`dropped`), of these `asked`
    under a heading of requests; `confirmed` had been said plainly in between and prove nothing."""

    kept: int = 0
    dropped: int = 0
    asked: int = 0
    confirmed: int = 0

    @property
    def drop(self) -> float:
        return self.dropped / (self.kept + self.dropped) if self.dropped else 0.0


class Rates(msgspec.Struct, kw_only=True):
    """Everything measured."""

    dated: str
    command: str = COMMAND
    recordings: int = 0
    compactions: int = 0
    forms: dict[Length, Form] = {}
    literals: Literals = msgspec.field(default_factory=Literals)
    hedges: Hedges = msgspec.field(default_factory=Hedges)

    def fate(self, length: Length, kind: str, met: Met) -> Fate:
        """The counts to draw from: those of the kind, or, where they are fewer than `ENOUGH`, of all sentences met so
        in summaries of this length, or of the kind in summaries of any length."""
        form = self.forms[length].fates
        both = [one.fates.get(kind, {}).get(met, Fate()) for one in self.forms.values()]
        options = (
            form.get(kind, {}).get(met, Fate()),
            form.get("sentences", {}).get(met, Fate()) if kind != "handles" else Fate(),
            sum(both, start=Fate()),
        )
        return next((one for one in options if one.n >= ENOUGH), options[-1])


def load(place: Path = PLACE) -> Rates:
    return msgspec.json.decode(place.read_bytes(), type=Rates)


def save(rates: Rates, place: Path = PLACE) -> None:
    place.write_bytes(msgspec.json.format(msgspec.json.encode(rates), indent=1) + b"\n")
