"""`transom handoffs`: what each window left to the next one, what was demoted, and what came and went between them.

What is shown of a handoff is what the next window saw of it: the lines between its tags, whether a model declared it or
code made it. Words that were demoted stand in the log beside it.
"""

from __future__ import annotations

import json as stdlib_json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rich.text import Text

from transom import compose
from transom.cli.naming import find_session
from transom.cli.options import AsJson, SessionName, StoreFolder
from transom.cli.terminal import out, printable, say
from transom.core import block
from transom.core.event import Demotion, Event, RolloverDeclared, WindowOpened

__all__ = ["HandedOver", "handed_over", "handoffs", "show_handoffs"]

_TAGGED = re.compile(
    r"<handoff>\n(?P<handoff>.*?)\n</handoff>(?:\n<related_files>\n(?P<files>.*?)\n</related_files>)?", re.DOTALL
)
_HEADING = re.compile(r"### \d+\. (.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """One window's end. `sections` are (title, lines) as the next window saw them; none where nothing was handed over.
    `came` and `went` are lines that the handoff before did not have, and that this one no longer has."""

    seq: int
    generation: int
    cause: str
    by: str
    tokens_before: int
    tokens_after: int
    sections: dict[str, list[str]]
    demoted: tuple[Demotion, ...] = ()
    came: list[str] = field(default_factory=list)
    went: list[str] = field(default_factory=list)


def handoffs(session: SessionName = "latest", /, *, json: AsJson = False, store: StoreFolder = None) -> int:
    """Show each handoff of a session: its cause, its words, what was demoted and why, and the difference between one
    and the next.
    """
    with compose.store(store, is_new_allowed=False) as kept:
        row = find_session(kept.log, session)
        found = list(handed_over(kept.log.read(row.session_id)))
    if json:
        out().print(Text(stdlib_json.dumps([_plain(one) for one in found], indent=1)), soft_wrap=True)
    elif found:
        show_handoffs(found)
    else:
        say(f"{row.session_id} has had one window so far: nothing was handed over.")
    return 0


def handed_over(events: Iterable[Event]) -> Iterator[HandedOver]:
    """Each opening of a window, with what was handed to it."""
    declared: RolloverDeclared | None = None
    before: list[str] = []
    for event in events:
        if isinstance(event.fact, RolloverDeclared):
            declared = event.fact
        if not isinstance(event.fact, WindowOpened):
            continue
        opened = event.fact
        sections = _sections(opened)
        lines = [line for listed in sections.values() for line in listed]
        is_declared = opened.cause == "model" and declared is not None
        yield HandedOver(
            seq=event.seq,
            generation=opened.generation,
            cause=opened.cause,
            by="model" if is_declared else "code",
            tokens_before=opened.tokens_before,
            tokens_after=opened.tokens_after,
            sections=sections,
            demoted=declared.demoted if is_declared and declared else (),
            came=[line for line in lines if line not in before] if before else [],
            went=[line for line in before if line not in lines],
        )
        before, declared = lines, None


def _sections(opened: WindowOpened) -> dict[str, list[str]]:
    texts = [one.text for seed in opened.seed for one in seed.blocks if isinstance(one, block.Text)]
    found = next((match for text in texts if (match := _TAGGED.search(text))), None)
    if found is None:
        return {}
    sections: dict[str, list[str]] = {}
    for line in found["handoff"].splitlines():
        heading = _HEADING.fullmatch(line)
        if heading:
            sections[heading[1]] = []
        elif line.startswith("- ") and sections:
            sections[next(reversed(sections))].append(line[2:])
        elif sections and sections[next(reversed(sections))]:
            sections[next(reversed(sections))][-1] += f"\n{line}"
    if found["files"]:
        sections["Related files"] = [line.removeprefix("- ") for line in found["files"].splitlines()]
    return sections


def show_handoffs(found: Iterable[HandedOver]) -> None:
    """For a person."""
    console = out()

    def line(text: str, style: str = "") -> None:
        indent = len(text) - len(text.lstrip())
        console.print(Text(" " * indent + printable(text), style=style), soft_wrap=True)

    for one in found:
        sizes = f"{one.tokens_before:,} → {one.tokens_after:,} tokens"
        how = f"{one.cause}, by code" if one.by == "code" else "declared by the model"
        line(f"window {one.generation} → {one.generation + 1} · {how} · {sizes} · event {one.seq}", "bold")
        if not one.sections:
            line("  no handoff: what the window shows was carried over as it was", "dim")
        for title, lines in one.sections.items():
            if lines:
                line(f"  {title}", "cyan")
            for text in lines:
                line(f"    {'+' if text in one.came else ' '} {text}", "green" if text in one.came else "")
        if one.went:
            line("  Gone since the handoff before", "cyan")
        for text in one.went:
            line(f"    - {text}", "red")
        for demotion in one.demoted:
            line(f"  demoted to inference: {demotion.text}", "yellow")
            line(f"    {demotion.source or 'no source'}: {demotion.reason}", "yellow")
        console.print()


def _plain(one: HandedOver) -> dict[str, object]:
    return {
        "seq": one.seq,
        "generation": one.generation,
        "cause": one.cause,
        "by": one.by,
        "tokens_before": one.tokens_before,
        "tokens_after": one.tokens_after,
        "sections": one.sections,
        "demoted": [{"text": each.text, "source": each.source, "reason": each.reason} for each in one.demoted],
        "came": one.came,
        "went": one.went,
    }
