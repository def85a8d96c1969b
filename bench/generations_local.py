"""The same with a real model on this machine: a few handovers, each way, over a window of some two thousand tokens.

The model writes the summary, the prose handoff and, in the real kernel, the filled form of `new_context`; the work
between is scripted as elsewhere. What it wrote is read as the recorded summaries were (`generations_page`).
One chain of each: it shows that the ways differ, not by how much.
"""

from __future__ import annotations

import json
from collections import Counter as Tally
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from bench.generations_facts import FACTS, Kind, planted
from bench.generations_kernel import handed_over
from bench.generations_page import DOUBT, MOST, Page, content
from bench.generations_tables import Survey, of_sessions
from transom.adapters.local import LocalModel, LocalProvider
from transom.core.surface import NEW_CONTEXT
from transom.core.wire import Dialect
from transom.ports import Delta, Outgoing, Reply

__all__ = ["read", "run", "written"]

GENERATIONS = 3
CONTEXT_LIMIT = 8_192
_OUTPUT = 400
"""Tokens of a note: a minute's work for a small model on one core."""
_ASK = {
    "summary": "Summarise the session above for whoever goes on with it, in at most 250 words. Keep what they need.",
    "prose": "Write a handoff for whoever goes on with the session above, in at most 250 words, under the headings "
    "REQUIREMENTS, INFERENCES, CONFLICTS, UNVERIFIED.",
}


def run(path: Path) -> list[Survey]:
    """A chain of each way to hand over."""
    with closing(LocalModel(path, context_limit=CONTEXT_LIMIT)) as model:
        chains = [read(f"{name}, {model.name}", list(written(model, ask))) for name, ask in _ASK.items()]
        kept = handed_over(_Form(LocalProvider(model)), GENERATIONS, context_limit=CONTEXT_LIMIT)
        return [*chains, of_sessions(f"verified, {model.name}", [kept])]


def written(model: LocalModel, ask: str, generations: int = GENERATIONS) -> Iterator[str]:
    """What stands in each window behind the first: the model's own note, and no more."""
    shown = _session()
    for _ in range(generations):
        note = _answer(model, f"{shown}\n\n{ask}")
        yield note
        shown = f"Notes of the session so far:\n{note}\n\n{_work()}"


def read(name: str, notes: list[str]) -> Survey:
    """Which facts stand in each note."""
    letter, other, plain = (Tally[tuple[Kind, int]]() for _ in range(3))
    for generation, note in enumerate(notes, 1):
        page = Page(note)
        for fact in FACTS:
            place = (fact.kind, generation)
            if not fact.plain:
                fate = page.fate(fact.text) if " " in fact.text else page.handle(fact.text)
                letter[place] += fate == "verbatim"
                other[place] += fate == "reworded"
                continue
            share, line = page.best(content(fact.plain))
            if share >= MOST:
                is_doubted = DOUBT.search(line.text) is not None
                (other if is_doubted else plain)[place] += 1
    return Survey(name=name, n=len(planted("words")), letter=letter, other=other, plain=plain)


def _session() -> str:
    """The first window as a transcript."""
    lines = ["User: Port the reader of rows.", *(fact.text for fact in planted("words"))]
    lines += [f"Tool: lease {number}: {fact.text}" for number, fact in enumerate(planted("handles"))]
    lines += [f"Tool: {fact.attempt}: {fact.text}" for fact in planted("failures")]
    lines += [f"Assistant: {fact.text}" for fact in FACTS if fact.plain]
    lines += [f"Task list: {fact.text}" for fact in planted("state")]
    return "\n".join((*lines, _work()))


def _work() -> str:
    files = (f"Assistant: I read {fact.text}.\nTool: def row(values): return tuple(values)" for fact in planted("used"))
    return "\n".join(("Work:", *files))


class _Message(msgspec.Struct, frozen=True):
    content: str


class _Choice(msgspec.Struct, frozen=True):
    message: _Message


class _Completion(msgspec.Struct, frozen=True):
    choices: tuple[_Choice, ...]


def _answer(model: LocalModel, prompt: str) -> str:
    asked = {"messages": [{"role": "user", "content": prompt}], "max_tokens": _OUTPUT, "temperature": 0.0, "seed": 1}
    with closing(model.ask("/v1/chat/completions", json.dumps(asked).encode())) as answer:
        return msgspec.json.decode(answer.read(), type=_Completion).choices[0].message.content


@dataclass(frozen=True, slots=True)
class _Form:
    """Hands over as the model fills in the form of `new_context`."""

    provider: LocalProvider

    @property
    def dialect(self) -> Dialect:
        return self.provider.dialect

    def write(self, request: Outgoing) -> Iterator[Delta | Reply]:
        yield from self.provider.send(replace(request, forced_tool=NEW_CONTEXT, max_output_tokens=_OUTPUT))
