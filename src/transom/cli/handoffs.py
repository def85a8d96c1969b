"""`transom handoffs`: what each window left to the next one, what was demoted, and what came and went between them.

What is shown of a handoff is what the next window saw of it: the lines between its tags, whether a model declared it or
code made it. Words that were demoted stand in the log beside it. What code put beside every handoff is told in a line:
the user's words, messages that stayed as they were, and the counts of the snapshot.
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
from transom.core.event import Demotion, Event, RolloverDeclared, UserSaid, WindowOpened
from transom.lab.tables import counted

__all__ = ["HandedOver", "handed_over", "handoffs", "show_handoffs"]

_SINCE = "(since generation "
_LEGEND = (
    "generation: how many windows had been handed over; an inference is one since the generation in which it was first "
    "made, however often it is repeated."
)

_TAGGED = re.compile(
    r"<handoff>\n(?P<handoff>.*?)\n</handoff>(?:\n<related_files>\n(?P<files>.*?)\n</related_files>)?", re.DOTALL
)
_HEADING = re.compile(r"### \d+\. (.+)")
_STATE = re.compile(r"<session_state>\n(.*?)\n</session_state>", re.DOTALL)
_MORE = re.compile(r"\((\d+) more, not shown here")


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """One window's end. `sections` are (title, lines) as the next window saw them; none where nothing was handed over.
    `came` and `went` are lines that the handoff before did not have, and that this one no longer has. `words` counts
    the user's messages that stand in the window to the letter, `kept` all other messages that stayed as they were,
    `state` what the snapshot beside the handoff lists, by its title, what had no room in it too."""

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
    words: int = 0
    kept: int = 0
    summary: int = 0
    """Tokens of what a recorded client put in place of its history."""
    state: dict[str, int] = field(default_factory=dict)


def handoffs(session: SessionName = "latest", /, *, json: AsJson = False, store: StoreFolder = None) -> int:
    """Show each handoff of a session: its cause, its words, what was demoted and why, and the difference between one
    and the next.
    """
    with compose.store(store, is_new_allowed=False) as kept:
        row = find_session(kept.log, session, is_replied=True)
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
    said: set[int] = set()
    for event in events:
        if isinstance(event.fact, UserSaid):
            said.add(event.seq)
        if isinstance(event.fact, RolloverDeclared):
            declared = event.fact
        if not isinstance(event.fact, WindowOpened):
            continue
        opened = event.fact
        sections = _sections(opened)
        lines = [line for listed in sections.values() for line in listed]
        is_declared = opened.cause == "model" and declared is not None
        is_recorded = opened.cause == "recorded"
        yield HandedOver(
            seq=event.seq,
            generation=opened.generation,
            cause=opened.cause,
            by="client" if is_recorded else "model" if is_declared else "code",
            tokens_before=opened.tokens_before,
            tokens_after=opened.tokens_after,
            sections=sections,
            demoted=declared.demoted if is_declared and declared else (),
            came=[line for line in lines if line not in before] if before else [],
            went=[line for line in before if line not in lines],
            words=len(words := said & {*opened.kept_head, *opened.kept_tail, *(one.of for one in opened.seed)}),
            kept=len({*opened.kept_head, *opened.kept_tail} - words),
            summary=sum(each.tokens for one in opened.seed for each in one.blocks) if is_recorded else 0,
            state=_state(opened),
        )
        before, declared = lines, None


def _found(opened: WindowOpened, pattern: re.Pattern[str]) -> re.Match[str] | None:
    """In what the host says at the window's start; a user may have written such tags, too."""
    texts = [
        one.text for seed in opened.seed if seed.role == "host" for one in seed.blocks if isinstance(one, block.Text)
    ]
    return next((match for text in texts if (match := pattern.search(text))), None)


def _state(opened: WindowOpened) -> dict[str, int]:
    found = _found(opened, _STATE)
    counts: dict[str, int] = {}
    for line in found[1].splitlines() if found else ():
        if more := _MORE.match(line):
            counts[next(reversed(counts))] += int(more[1])
        elif line.startswith("- ") and counts:
            counts[next(reversed(counts))] += 1
        elif line.endswith(":") and not line.startswith(" "):
            counts[line.partition(" (")[0].removesuffix(":")] = 0
    return counts


def _sections(opened: WindowOpened) -> dict[str, list[str]]:
    found = _found(opened, _TAGGED)
    if found is None:
        return {}
    sections: dict[str, list[str]] = {}
    for line in found["handoff"].split("\n"):
        heading = _HEADING.fullmatch(line)
        if heading:
            sections[heading[1]] = []
        elif line.startswith("- ") and sections:
            sections[next(reversed(sections))].append(line[2:])
        elif sections and sections[next(reversed(sections))]:
            sections[next(reversed(sections))][-1] += f"\n{line}"
    if found["files"]:
        sections["Related files"] = found["files"].removeprefix("- ").split("\n- ")
    return sections


def show_handoffs(found: Iterable[HandedOver]) -> None:
    """For a person."""
    console, is_dated = out(), False

    def line(text: str, style: str = "") -> None:
        indent = len(text) - len(text.lstrip())
        console.print(Text(" " * indent + printable(text), style=style), soft_wrap=True)

    for one in found:
        line(f"window {one.generation} → {one.generation + 1} · {_how(one)} · event {one.seq}", "bold")
        if one.by == "client":
            text = f"a summary of {counted(one.summary, 'token')}, which show --at {one.seq} has"
            line(f"  no handoff: {text if one.summary else 'no summary that can be read'}", "dim")
        elif not one.sections:
            line("  no handoff: what the window shows was carried over as it was", "dim")
        elif not any(one.sections.values()):
            made = "code made it of what the log holds" if one.by == "code" else "the model filled none of its sections"
            line(f"  an empty handoff: {made}; no rule, failure, open task or file is known", "dim")
        if beside := _beside(one):
            line(f"  {'kept' if one.by == 'client' else 'carried over by code'}: {beside}", "dim")
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
        is_dated = is_dated or any(_SINCE in text for lines in one.sections.values() for text in lines)
    if is_dated:
        line(_LEGEND, "dim")


def _how(one: HandedOver) -> str:
    if one.by == "client":
        before = f" · {one.tokens_before:,} tokens before, as it says" if one.tokens_before else ""
        return f"compacted by the recorded client itself{before}"
    sizes = f"{one.tokens_before:,} → {one.tokens_after:,} tokens (counted)"
    return f"declared by the model · {sizes}" if one.by == "model" else f"{one.cause}, by code · {sizes}"


def _beside(one: HandedOver) -> str:
    counts = [f"{counted(one.words, 'message')} of the user word for word"] * bool(one.words)
    as_was = "as it was" if one.kept == 1 else "as they were"
    counts += [f"{counted(one.kept, 'other message')} {as_was}"] * bool(one.kept)
    state = ", ".join(f"{title} {number:,}" for title, number in one.state.items())
    return "; ".join(counts + [f"a snapshot ({state})"] * bool(state))


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
        "summary_tokens": one.summary,
        "words": one.words,
        "kept": one.kept,
        "state": one.state,
    }
