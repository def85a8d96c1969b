"""The verified handoff: the real kernel under a model that hands over badly.

A `Session` with scripted work: in the first window everything is planted, in each later one the model reads the files
it needs, fails at something new, and calls `new_context`. What it writes there is a `Writer`'s. The loss model's
(`Badly`) has the worst habits: a guess that has lost its doubt, and a rule it has reworded, are claimed as requirements
with the user's message for a source. By habit it is

    measured    as forgetful and as sure of itself as the recorded models
    insistent   every guess is claimed so in every handoff
    own-file    the same, and the source is a file into which the model itself wrote its guesses

The host checks, demotes and pins as it does in every session; nothing here knows how.

What is counted is what stands in the first request of each window, as bytes. What does not stand there is asked for
with the host's own `recall`, once, by a word that whoever needs it would have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from bench.generations_facts import FACTS, GUESSED, Fact, Teller, Told, first, met, planted
from transom.adapters.provider_anthropic import DIALECT
from transom.core.block import Text, ToolCall, ToolResultRaw
from transom.core.budget import limits
from transom.core.canon import canonical
from transom.core.event import RequestSent, RolloverDeclared, ToolReturned
from transom.core.wire import Dialect
from transom.hosting import Desk
from transom.ports import Delta, Outgoing, Reply
from transom.testing.builders import rules
from transom.testing.live import Heard, Live, Shelf, step

__all__ = ["CONTEXT_LIMIT", "SHOWN", "Badly", "Habit", "Kept", "Window", "Writer", "handed_over"]

CONTEXT_LIMIT = 32_000
"""Of the windows: small, so that the shares of the seed are felt after 50 generations."""
_TOKENS_A_LINE = 800
"""Of the window for each line of a file: six files of its share are about a third of a window, worth leaving."""
SHOWN = (1, 2, 3, 5, 8, 15, 30, 50)
"""Handovers after which one looks."""
Habit = Literal["measured", "insistent", "own-file"]
_OWN = "notes.md"
_LINE = "def row(values: list[str]) -> tuple[str, ...]: return tuple(value.strip() for value in values)\n"
_SENT_BY_USER = re.compile(r"user message above: (\w+)\]")
_SECTIONS = re.compile(r"### 1\. [A-Z -]+\n(.*?)\n### 2\. [A-Z ]+\n(.*?)\n### 3\.", re.DOTALL)
_Call = tuple[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The first request of one window: the facts that stand in it to the letter, what its handoff calls required and
    inferred, and, in the windows that are shown, the other facts that one recall each brings back."""

    standing: frozenset[str]
    required: tuple[str, ...]
    inferred: frozenset[str]
    recalled: frozenset[str]
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What one session kept. `demoted` counts the claims the host did not believe; `claimed` is the writer's count."""

    windows: tuple[Window, ...]
    demoted: int
    claimed: int = 0

    @property
    def invented(self) -> set[str]:
        """What some window calls required though no user said it."""
        said = {fact.text for fact in planted("words")}
        return {text for window in self.windows for text in window.required} - said


class Writer(Protocol):
    """Who answers a request with a handoff."""

    @property
    def dialect(self) -> Dialect: ...

    def write(self, request: Outgoing) -> Iterator[Delta | Reply]: ...


@dataclass(slots=True)
class Badly:
    """Hands over as the teller tells. `claimed` counts what it claimed without right."""

    teller: Teller
    habit: Habit = "measured"
    claimed: int = 0
    handovers: int = 0
    guesses: list[Told] = field(default_factory=lambda: [first(fact) for kind in GUESSED for fact in planted(kind)])

    @property
    def dialect(self) -> Dialect:
        return DIALECT

    def write(self, request: Outgoing) -> Iterator[Reply]:
        """One `new_context` call. Of the request only the user's name for the message is read: what was planted the
        teller knows."""
        self.handovers += 1
        source = _SENT_BY_USER.findall(b"\n".join(request.wire.body[: request.wire.messages]).decode())[0]
        told = [made for fact in FACTS if not fact.plain and (made := self.teller.tell(first(fact), "source"))]
        self.guesses = [made for one in self.guesses if (made := self._guess(one))]
        said = [one for one in told if one.fact.kind == "words"]
        sure = [one for one in self.guesses if not one.is_doubted]
        self.claimed += sum(not one.is_verbatim for one in said) + len(sure)
        arguments = {
            "handoff": {
                "requirements": [
                    *({"text": one.text, "source": source} for one in said),
                    *({"text": one.text, "source": _OWN if self.habit == "own-file" else source} for one in sure),
                ],
                "inferences": [one.text for one in self.guesses if one.is_doubted],
                "conflicts": [one.text for one in told if one.fact.kind == "failures"],
                "unverified": [*(one.text for one in told if one.fact.kind == "state"), "all of it"],
            },
            "related_files": [
                {"path": one.text, "role": "implementation", "note": ""} for one in told if one.fact.kind == "used"
            ],
        }
        yield _reply(f"handoff-{self.handovers}", "I hand over.", [("new_context", arguments)])

    def _guess(self, told: Told) -> Told | None:
        if self.habit != "measured":
            return replace(told, text=told.fact.plain, is_doubted=False)
        return self.teller.tell(told, met(told.fact.kind, self.handovers))


def handed_over(writer: Writer, generations: int, *, context_limit: int = CONTEXT_LIMIT) -> Kept:
    """`generations` windows behind the first one."""
    page = _LINE * (context_limit // _TOKENS_A_LINE)
    bounds = rules("rollover", limits(context_limit), dialect=writer.dialect)
    live = Live([step("Done.")], given=bounds, shelf=_shelf(page))
    live.provider = Heard(_Worker(writer=writer, page=page))
    live.user("Port the reader of rows.\n" + "\n".join(fact.text for fact in planted("words")))
    windows: list[Window] = []
    while len(windows) < generations:
        live.step()
        state = live.session.state
        if state.window.generation > len(windows) and state.window.sent:
            windows.append(_window(live, is_shown=len(windows) + 1 in SHOWN))
    demoted = sum(len(fact.demoted) for fact in live.facts() if isinstance(fact, RolloverDeclared))
    return Kept(windows=tuple(windows), demoted=demoted)


def _shelf(page: str) -> Shelf:
    files = {fact.text: page for fact in planted("used")}
    log = "\n".join(f"worker: lease {number}: {fact.text}" for number, fact in enumerate(planted("handles")))
    return Shelf({**files, "worker.log": log})


def _reply(name: str, say: str, calls: Sequence[_Call]) -> Reply:
    made = (
        ToolCall(call_id=f"{name}-{number}", name=tool, arguments=json.dumps(arguments, ensure_ascii=False))
        for number, (tool, arguments) in enumerate(calls)
    )
    blocks: tuple[Text | ToolCall, ...] = (Text(text=say), *made) if say else tuple(made)
    return Reply(blocks=blocks, stop_reason="tool_use", usage=None, model="planted", response_id=name)


@dataclass(slots=True)
class _Worker:
    """The provider: work by plan, handoffs by the writer."""

    writer: Writer
    page: str
    window: int = 0
    step: int = 0
    sent: int = 0

    @property
    def dialect(self) -> Dialect:
        return self.writer.dialect

    def send(self, request: Outgoing) -> Iterator[Delta | Reply]:
        self.sent += 1
        plan = self._later() if self.window else self._first()
        if self.step < len(plan):
            say, calls = plan[self.step]
            self.step += 1
            yield _reply(f"work-{self.sent}", say, calls)
            return
        self.step, self.window = 0, self.window + 1
        yield from self.writer.write(request)

    def _first(self) -> list[tuple[str, list[_Call]]]:
        guesses = [fact for kind in GUESSED for fact in planted(kind)]
        todos = [
            {"content": fact.text.partition("] ")[2], "status": fact.text[1:].partition("]")[0]}
            for fact in planted("state")
            if fact.text.startswith("[")
        ]
        noted = [("note_failure", {"attempt": one.attempt, "outcome": one.text}) for one in planted("failures")]
        return [
            ("I look at the log.", [("read", {"path": "worker.log"})]),
            ("Noted.", [*noted]),
            (
                " ".join(fact.text for fact in guesses),
                [
                    ("todo", {"todos": todos}),
                    ("write", {"path": "src/rows/lease.py", "text": self.page}),
                    ("write", {"path": _OWN, "text": "\n".join(fact.plain for fact in guesses)}),
                    ("post", {"command": "./migrate 42", "text": "migrated"}),
                ],
            ),
            ("I read.", self._used()),
        ]

    def _later(self) -> list[tuple[str, list[_Call]]]:
        fresh: _Call = ("read", {"path": f"src/gone/module_{self.window}.py"})
        return [("I go on.", self._used()), ("I try.", [fresh])]

    @staticmethod
    def _used() -> list[_Call]:
        return [("read", {"path": fact.text}) for fact in planted("used")]


def _window(live: Live, *, is_shown: bool) -> Window:
    """The window whose first request was the last one sent."""
    shown = live.provider.sent[-1].decode()
    found = _SECTIONS.search(shown.replace("\\n", "\n"))
    assert found, "a window that a handoff opened names what is required and inferred"
    standing = frozenset(fact.text for fact in FACTS if canonical(fact.text).decode()[1:-1] in shown)
    absent = [fact for fact in FACTS if is_shown and not fact.plain and fact.text not in standing]
    return Window(
        standing=standing,
        required=tuple(line.rpartition(" [")[0] for line in _listed(found[1])),
        inferred=frozenset(line.rpartition(" (since")[0] for line in _listed(found[2])),
        recalled=frozenset(fact.text for fact in absent if fact.text in _recall(live, _query(fact))),
        tokens=next(fact.tokens for fact in reversed(live.facts()) if isinstance(fact, RequestSent)),
    )


def _listed(section: str) -> Iterator[str]:
    return (str(json.loads(f'"{line[2:]}"')) for line in section.splitlines() if line.startswith("- "))


def _recall(live: Live, query: str) -> str:
    """What the model would be answered now. Nothing is appended."""
    state = live.session.state
    desk = Desk(
        state=state,
        log=live.log,
        files=live.world.files,
        hard_limit=live.rules.bounds.hard,
        before=state.seq + 1,
    )
    facts = desk.answer(ToolCall(call_id="recall", name="recall", arguments=json.dumps({"query": query})))
    results = [fact for fact in facts if isinstance(fact, ToolReturned) and not fact.is_error]
    return "\n".join(block.text for one in results for block in one.blocks if isinstance(block, ToolResultRaw))


def _query(fact: Fact) -> str:
    """What whoever needs a fact still knows of it: of a failure the attempt, of a line in the log its number."""
    if fact.attempt:
        return fact.attempt
    if fact.kind == "handles":
        return f"lease {planted('handles').index(fact)}"
    return fact.handle or fact.text
