"""What is planted, and the model that hands it on badly.

Six facts of each kind, all said before the first handover. The protected four (L6), handles in two kinds:

    words      sentences of the user that oblige or forbid
    failures   what was tried and failed, with the literal error
    used       handles that the work needs again in every window
    handles    handles that stood once in a tool's output
    state      tasks, a changed file, a command that was run

and what must not become one of them:

    guesses    what the model said once, as a guess
    leads      guesses that it goes on working from, so that every window says them again as it reads them

`Teller` is the loss: asked to write a fact down, it writes it to the letter, writes it in other words, or leaves it
out, with the measured shares (`generations_rates`). In other words it may drop the handle, or write another one; a
guess may lose its word of doubt. All chance is seeded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from bench.generations_rates import Length, Met, Rates

__all__ = ["FACTS", "GUESSED", "PROTECTED", "Fact", "Kind", "Teller", "Told", "first", "met", "planted"]

Kind = Literal["words", "failures", "used", "handles", "state", "guesses", "leads"]
PROTECTED: tuple[Kind, ...] = ("words", "failures", "used", "handles", "state")
GUESSED: tuple[Kind, ...] = ("guesses", "leads")
_COUNTED = {
    "words": "words",
    "failures": "failures",
    "used": "handles",
    "handles": "handles",
    "state": "state",
    "guesses": "inferences",
    "leads": "inferences",
}
"""The measured kind that each is drawn from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """`text` is the fact to the letter. `loose` is it in other words around `{}`, its `handle`; of a guess, `plain` is
    the same without doubt."""

    kind: Kind
    text: str
    loose: str
    handle: str = ""
    plain: str = ""
    attempt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A fact as it was last written down, empty handle = left out. `is_doubted`: a guess that still says so;
    `is_wrong`: it gives another handle for the right one."""

    fact: Fact
    text: str
    handle: str
    is_doubted: bool = True
    is_wrong: bool = False

    @property
    def is_verbatim(self) -> bool:
        return self.text == self.fact.text


def _words(text: str, handle: str, loose: str) -> Fact:
    return Fact(kind="words", text=text, handle=handle, loose=loose)


def _failure(attempt: str, error: str, handle: str, loose: str) -> Fact:
    return Fact(kind="failures", text=error, handle=handle, loose=loose, attempt=attempt)


def _handle(kind: Literal["used", "handles"], text: str) -> Fact:
    return Fact(kind=kind, text=text, handle=text, loose="{}")


def _guess(kind: Literal["guesses", "leads"], text: str, plain: str) -> Fact:
    return Fact(kind=kind, text=text, plain=plain, loose=text.replace(".", ", as it looks."))


FACTS: tuple[Fact, ...] = (
    _words("You must never delete /srv/data/ledger.db.", "/srv/data/ledger.db", "Care is needed around {}."),
    _words("Do not rename the function parse_row_strict.", "parse_row_strict", "{} keeps its name where possible."),
    _words("不要修改 config/生产.toml 里的端口 8472。", "8472", "Port {} is set in the production configuration."),
    _words("Always write files as UTF-8 without BOM.", "UTF-8", "Files are {}."),
    _words("The build must finish in at most 340 seconds.", "340", "The build should be fast, around {} s."),
    _words("Push only to release/2.19, and only when I say so.", "release/2.19", "Work goes to {}."),
    _failure(
        "link with --gc-sections",
        "error: E4711 linker refused symbol _ZN4rows5parseE at block.cc:88",
        "block.cc:88",
        "Linking did not work ({}).",
    ),
    _failure(
        "start the database for the tests",
        "error: ECONNREFUSED 127.0.0.1:5439 after 3 retries",
        "127.0.0.1:5439",
        "The test database could not be reached at {}.",
    ),
    _failure(
        "raise the page size",
        "AssertionError: expected 4096, got 4094 in tests/test_pages.py:131",
        "tests/test_pages.py:131",
        "A page test failed in {}.",
    ),
    _failure(
        "write from two processes",
        "sqlite3.OperationalError: database is locked (rows.py:207)",
        "rows.py:207",
        "There were locking problems in {}.",
    ),
    _failure(
        "cache rows by themselves",
        "TypeError: unhashable type: 'Row' at cache.py:52",
        "cache.py:52",
        "Rows could not be cached, see {}.",
    ),
    _failure(
        "bundle everything at once",
        "error: exit code 137 in step bundle, 3913 MiB resident",
        "137",
        "Bundling ran out of memory with {}.",
    ),
    _handle("used", "src/rows/parse.py"),
    _handle("used", "src/rows/page.py"),
    _handle("used", "src/rows/lease.py"),
    _handle("used", "tests/test_pages.py"),
    _handle("used", "tests/test_lease.py"),
    _handle("used", "config/rows.toml"),
    _handle("handles", "3f786850e387550fdab836ed7e6dc881de23001b"),
    _handle("handles", "queue/worker.py:212"),
    _handle("handles", "ERR_LEASE_LOST_7"),
    _handle("handles", "7b1c9e40-52d0-4f6f-9a55-0c2f1d7f8e21"),
    _handle("handles", "migrations/0042_lease.sql"),
    _handle("handles", "OPS-48213"),
    Fact(kind="state", text="[in_progress] port the reader", loose="The reader is being ported."),
    Fact(kind="state", text="[pending] measure the page cache", loose="The page cache is of interest."),
    Fact(kind="state", text="[pending] write the release note", loose="A release note is still missing."),
    Fact(kind="state", text="3 items, 0 closed", loose="Several items are open."),
    Fact(kind="state", text="src/rows/lease.py (write)", handle="src/rows/lease.py", loose="{} was worked on."),
    Fact(kind="state", text="./migrate 42 -> ok", handle="42", loose="Migration {} was dealt with."),
    _guess("guesses", "The page cache is probably at fault.", "The page cache is at fault."),
    _guess("guesses", "It seems that nobody reads the legacy column.", "Nobody reads the legacy column."),
    _guess("guesses", "The lease test might depend on the clock.", "The lease test depends on the clock."),
    _guess("guesses", "The build time likely counts the download.", "The build time counts the download."),
    _guess("guesses", "Perhaps the port may be changed after all.", "The port may be changed after all."),
    _guess("guesses", "I think the ledger is rebuilt at night.", "The ledger is rebuilt at night."),
    _guess("leads", "The reader probably loses rows at page ends.", "The reader loses rows at page ends."),
    _guess("leads", "The lease seems to expire too early.", "The lease expires too early."),
    _guess("leads", "Trailing blanks are possibly significant.", "Trailing blanks are significant."),
    _guess("leads", "Old pages might be in another byte order.", "Old pages are in another byte order."),
    _guess("leads", "I suspect that two workers share a cursor.", "Two workers share a cursor."),
    _guess("leads", "Maybe the old reader is used by nobody.", "The old reader is used by nobody."),
)


def first(fact: Fact) -> Told:
    """The fact as it was said."""
    return Told(fact=fact, text=fact.text, handle=fact.handle)


def met(kind: Kind, handover: int) -> Met:
    """Where a model meets a fact when it writes handover number `handover`."""
    if handover == 1:
        return "source"
    return "renewed" if kind in ("used", "leads") else "carried"


def planted(kind: Kind) -> tuple[Fact, ...]:
    return tuple(fact for fact in FACTS if fact.kind == kind)


class Teller:
    """A model that writes down what it reads, as faithfully as the measured one. `ease` scales the loss: 0.5 leaves out
    and rewords half as much."""

    def __init__(self, rates: Rates, length: Length, seed: int | str, *, ease: float = 1.0) -> None:
        self._rates = rates
        self._length: Length = length
        self._ease = ease
        self._random = Random(f"{length} {ease} {seed}")

    def tell(self, told: Told, met: Met) -> Told | None:
        """The fact as it is written down this time; null if it is left out."""
        _, reworded, gone = self._rates.fate(self._length, _COUNTED[told.fact.kind], met).shares()
        draw = self._random.random()
        if draw < gone * self._ease:
            return None
        if draw < (gone + reworded) * self._ease:
            return self._reword(told)
        return told

    def _reword(self, told: Told) -> Told:
        fact = told.fact
        if fact.plain:
            is_doubted = told.is_doubted and self._random.random() >= self._rates.hedges.drop
            return replace(told, text=fact.loose if is_doubted else fact.plain, is_doubted=is_doubted)
        handle, is_wrong = told.handle, told.is_wrong
        if fact.kind in ("used", "handles"):
            handle = handle.rpartition("/")[2]  # of a path its name
        elif handle and self._random.random() < self._rates.literals.loss:
            handle, is_wrong = "", False
        if handle and self._random.random() < self._rates.literals.altered:
            handle, is_wrong = self._other(handle), True
        return replace(told, text=fact.loose.format(handle or "it"), handle=handle, is_wrong=is_wrong)

    def _other(self, handle: str) -> str:
        """A handle like this one, and wrong: one of its digits or letters is another."""
        place = self._random.choice([at for at, char in enumerate(handle) if char.isalnum()])
        other = self._random.choice([char for char in "0123456789" if char != handle[place]])
        return f"{handle[:place]}{other}{handle[place + 1 :]}"
