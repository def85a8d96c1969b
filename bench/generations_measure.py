"""What recorded compactions keep: the loss that `bench.generations` runs on, measured.

`python -m bench generations --measure PATH` reads every transcript at PATH, finds each compaction with a readable
summary that a model wrote, and looks in that summary for what stood before it. The counts, and nothing of the texts, go
into `generations_rates.json` beside this file.

What is looked for is what the kernel would have protected at that very moment (L6), as its own fold of the recording
has it: sentences of the user's that oblige, error lines of failed attempts still valid, handles of the newest calls,
open tasks and changed files; and sentences in which the model said that it was guessing. `generations_page` says what
counts as found. Where an item was met:

    source     it stood in the conversation that the summary covers
    carried    it stood in the summary before this one, and the conversation since did not say it again
    renewed    it stood in the summary before this one, and was said again since

`chance` counts what would have been found in the summary of another project as well. A guess counts as turned into a
fact only where six tenths of its words stand in a line without any word of doubt, and the model had not said it plainly
itself in the meantime.

A summary is `long` above 6,000 characters, else `short`: the recorded ones leave a gap there, between notes of about
2,000 to 5,000 and full summaries of 6,800 and more. Encrypted summaries and those that an extension's code made are
left out, as are snapshots of one session that repeat a summary.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from statistics import median

from bench.generations_page import DOUBT, HALF, LEAST_WORDS, MOST, Page, content
from bench.generations_rates import Fate, Form, Length, Met, Outcome, Rates
from transom.adapters.blobs import DirBlobs
from transom.adapters.counter import HeuristicCounter
from transom.adapters.memory_log import MemoryLog
from transom.core.blackboard import handles
from transom.core.block import Text
from transom.core.event import Event, WindowOpened
from transom.core.literals import Literal, constraints, error_lines, literals
from transom.core.projection import fold
from transom.core.state import Item, State
from transom.errors import BadInput
from transom.importers.load import load
from transom.importers.source import open_source
from transom.lab.recall import block_text

__all__ = ["Compaction", "compactions", "measure", "tally"]

LONG = 6_000
_FEWEST_ITEMS = 10
"""A compaction of less was no compaction of a full window: a summary at the head of a resumed session."""
_NEAR = 0.85
"""`difflib`'s likeness from which one handle is a near miss of another."""
_BY_CODE = b'"fromHook":true'
"""How pi marks a summary that an extension made."""
_SENTENCE = re.compile(r"(?<=[.!?。])\s+|\n")
_ASKED = re.compile(r"request|intent|requirement|constraint|goal|user|preference|task description", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """One recorded compaction: the summary, the one before it, and what the kernel would have protected."""

    recording: str
    summary: str
    before: str
    told: str
    """Everything of the conversation that the summary covers."""
    rest: str
    """What the new window keeps beside the summary."""
    replies: tuple[str, ...]
    words: tuple[str, ...]
    failures: tuple[tuple[str, ...], ...]
    handles: tuple[str, ...]
    tasks: tuple[str, ...]
    files: tuple[str, ...]

    @property
    def project(self) -> str:
        """Recordings of one project have names that begin alike."""
        return self.recording.split("--")[0]

    @property
    def length(self) -> Length:
        return "long" if len(self.summary) > LONG else "short"


def compactions(path: Path) -> Iterator[Compaction]:
    """Every compaction at `path` with a summary to read, each summary once."""
    seen: set[str] = set()
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    for file in files:
        with tempfile.TemporaryDirectory(prefix="bench-generations-") as folder:
            log = MemoryLog()
            try:
                source = open_source(file)
                if not source.is_container and _BY_CODE in source.read():
                    continue
                load(file, log=log, blobs=DirBlobs(Path(folder), is_synced=False), counter=HeuristicCounter())
            except BadInput:
                continue  # a page beside the transcripts
            for row in log.sessions():
                for found in _of_session(log.read(row.session_id), file.name):
                    if found.summary not in seen:
                        seen.add(found.summary)
                        yield found


def _of_session(events: Iterable[Event], recording: str) -> Iterator[Compaction]:
    state, before = State(), ""
    for event in events:
        fact = event.fact
        if isinstance(fact, WindowOpened) and fact.cause == "recorded":
            made = _compaction(state, fact, recording, before)
            if made is not None:
                yield made
                before = made.summary
        fold(state, event)


def _compaction(state: State, fact: WindowOpened, recording: str, before: str) -> Compaction | None:
    kept = {*fact.kept_head, *fact.kept_tail}
    covered = [item for item in state.window.items if item.seq and item.seq not in kept]
    stays = [item for item in state.window.items if item.seq in kept]
    summary = "\n".join(block.text for seed in fact.seed for block in seed.blocks if isinstance(block, Text))
    if not summary:  # opencode: the summary is the reply that the window keeps
        summary = "\n".join(_words(item) for item in stays if item.role == "assistant")
        stays = []
    if len(fact.seed) > 1 or not summary.strip() or len(covered) < _FEWEST_ITEMS:
        return None  # several messages: the client kept some by code, and its summary is encrypted
    told = "\n".join(_all(item) for item in covered)
    seqs = {item.seq for item in covered}
    return Compaction(
        recording=recording,
        summary=summary,
        before=before,
        told=told,
        rest="\n".join(_all(item) for item in stays),
        replies=tuple(_words(item) for item in covered if item.role == "assistant"),
        words=tuple(text for said in state.words if said.seq in seqs for text in said.constraints),
        failures=tuple(
            tuple(line for line in one.error.splitlines() if line.strip())
            for one in state.board.failures.values()
            if one.seq in seqs
        ),
        handles=tuple(one for one in handles(state.board) if " " not in one and one in told),
        tasks=tuple(one.text for one in state.board.todo if one.status in ("pending", "in_progress")),
        files=tuple(path for path, done in state.board.files.items() if done == "write"),
    )


def _words(item: Item) -> str:
    return "\n".join(block.text for block in item.blocks if isinstance(block, Text))


def _all(item: Item) -> str:
    return "\n".join(block_text(block) for block in item.blocks)


# -- counting


def measure(path: Path) -> Rates:
    """The rates of every compaction at `path`. Raises `BadInput` if there is none."""
    found = list(compactions(path))
    if not found:
        raise BadInput(f"{path}: no compaction with a readable summary; name a folder of recorded sessions")
    return tally(found)


def tally(found: Sequence[Compaction]) -> Rates:
    """The rates of these compactions."""
    rates = Rates(
        dated=datetime.now(tz=UTC).date().isoformat(),
        recordings=len({one.recording for one in found}),
        compactions=len(found),
        forms={"long": Form(), "short": Form()},
    )
    for length, form in rates.forms.items():
        sizes = [len(one.summary) for one in found if one.length == length]
        form.compactions, form.median_chars = len(sizes), int(median(sizes)) if sizes else 0
    pages = {one.project: Page(one.summary) for one in found}
    for one in found:
        strange = next((page for project, page in pages.items() if project != one.project), Page(""))
        _Count(one, rates, strange).all()
    return rates


class _Count:
    """One compaction's items, counted into the rates."""

    def __init__(self, made: Compaction, rates: Rates, strange: Page) -> None:
        self.made = made
        self.rates = rates
        self.page = Page(made.summary)
        self.strange = strange

    def all(self) -> None:
        self.source()
        self.guesses()
        self.literals()
        if self.made.before:
            self.carried()

    def add(self, kind: str, met: Met, fate: Outcome, *, by_chance: bool) -> None:
        fates = self.rates.forms[self.made.length].fates.setdefault(kind, {}).setdefault(met, Fate())
        setattr(fates, fate, getattr(fates, fate) + 1)
        fates.chance += by_chance

    def sentence(self, kind: str, met: Met, text: str) -> None:
        fate = self.page.fate(text)
        self.add(kind, met, fate, by_chance=self.strange.fate(text) != "gone")
        if fate == "reworded" and met == "source":
            self.rewording(text)

    def handle(self, kind: str, met: Met, text: str) -> None:
        self.add(kind, met, self.page.handle(text), by_chance=self.strange.handle(text) != "gone")

    def source(self) -> None:
        for text in self.made.words:
            self.sentence("words", "source", text)
        for lines in self.made.failures:  # kept if one of its lines is: the best fate counts
            fates = [self.page.fate(line) for line in lines]
            best: Outcome = "verbatim" if "verbatim" in fates else "reworded" if "reworded" in fates else "gone"
            chance = any(self.strange.fate(line) != "gone" for line in lines)
            self.add("failures", "source", best, by_chance=chance)
            if best == "reworded":
                self.rewording(lines[fates.index(best)])
        for text in self.made.handles:
            self.handle("handles", "source", text)
        for text in self.made.tasks:
            self.sentence("state", "source", text)
        for text in self.made.files:
            self.handle("state", "source", text)

    def rewording(self, text: str) -> None:
        """Which handles of a sentence stand in the line that took its place."""
        _, line = self.page.best(content(text))
        for one in _handles(text):
            if one.text in line.text:
                self.rates.literals.kept += 1
            else:
                self.rates.literals.dropped += 1

    def guesses(self) -> None:
        """Sentences of the model's own with a word of doubt: are they found again, and with it?"""
        said = [one.strip() for reply in self.made.replies for one in _SENTENCE.split(reply) if one.strip()]
        plain = Page("\n".join(one for one in said if not DOUBT.search(one)))
        hedges = self.rates.hedges
        for text in dict.fromkeys(one for one in said if DOUBT.search(one)):
            words = content(DOUBT.sub(" ", text))
            if len(words) <= LEAST_WORDS:
                continue
            share, line = self.page.best(words)
            fate: Outcome = "verbatim" if self.page.has(text) else "reworded" if share >= MOST else "gone"
            self.add("inferences", "source", fate, by_chance=self.strange.best(words)[0] >= MOST)
            if fate == "gone":
                continue
            if plain.best(words)[0] >= HALF:
                hedges.confirmed += 1
            elif fate == "verbatim" or DOUBT.search(line.text):
                hedges.kept += 1
            else:
                hedges.dropped += 1
                hedges.asked += _ASKED.search(line.heading) is not None

    def literals(self) -> None:
        """The handles a summary writes down: does each stand in what it summarised?"""
        made = self.made
        known = "\n".join((made.told, made.before, made.rest, *made.words, *made.tasks, *made.files, *made.handles))
        counts = self.rates.literals
        source = Page(known)
        strangers = [one for one in _handles(made.summary) if source.handle(one.text) == "gone"]
        counts.standing += len(_handles(made.summary)) - len(strangers)
        there = {(one.kind, one.text) for one in literals(known)} if strangers else set()
        for one in strangers:
            like = [text for kind, text in there if kind == one.kind and abs(len(text) - len(one.text)) <= 2]
            near = get_close_matches(one.text, like, 1, _NEAR)
            if near and near[0].casefold() != one.text.casefold():
                counts.near += 1
            else:
                counts.new += 1

    def carried(self) -> None:
        """What the summary before held: did it come through this one?"""
        made = self.made
        since = Page(f"{made.told}\n{made.rest}")
        for one in _handles(made.before):
            self.handle("handles", "renewed" if one.text in since.text else "carried", one.text)
        for line in dict.fromkeys(one.strip(" -*#\t") for one in made.before.splitlines()):
            words = content(line)
            if len(words) <= LEAST_WORDS:
                continue
            met: Met = "renewed" if since.has(line) or since.best(words)[0] >= HALF else "carried"
            kinds = ["sentences"]
            if constraints(line):
                kinds.append("words")
            if error_lines(line, 1):
                kinds.append("failures")
            if DOUBT.search(line):
                kinds.append("inferences")
            for kind in kinds:
                self.sentence(kind, met, line)


def _handles(text: str) -> tuple[Literal, ...]:
    return tuple(one for one in literals(text) if one.kind != "error")
