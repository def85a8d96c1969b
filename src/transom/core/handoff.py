"""The handoff's four sections, and the seed of a window that no model wrote.

A window opened by the host starts from state alone (design 6.5): the same four sections, filled from the user's own
words, failing results with their literal errors and the open todo. It needs no model call, so it works at 100 % of
the limit and beyond. The anchors are `session_id` and `message_uuid`, the names of the recall tool's parameters.
"""

from __future__ import annotations

from collections.abc import Callable

from transom.core.blackboard import snapshot
from transom.core.block import Block, Image, Measure, Text
from transom.core.event import Handoff, RelatedFile, Requirement, Seed
from transom.core.state import State, Words

__all__ = ["from_state", "render", "seed"]

_SECTIONS = (
    "SPEC-CONFIRMED REQUIREMENTS",
    "AGENT INFERENCES",
    "UNRESOLVED CONFLICTS",
    "UNVERIFIED ACCEPTANCE CRITERIA",
)
_CONFLICTS = 5
"""Newest failures named in the handoff itself; all of them stand in the state snapshot within its share."""
_FILES = 12


def render(handoff: Handoff, related_files: tuple[RelatedFile, ...]) -> str:
    """The handoff as a window shows it."""
    listed = (
        [f"- {item.text} [{item.source}]" for item in handoff.requirements],
        [f"- {text}" for text in handoff.inferences],
        [f"- {text}" for text in handoff.conflicts],
        [f"- {text}" for text in handoff.unverified],
    )
    out = ["<handoff>"]
    for number, (title, lines) in enumerate(zip(_SECTIONS, listed, strict=True), 1):
        out.extend((f"### {number}. {title}", *(lines or ["(none)"])))
    out.append("</handoff>")
    if related_files:
        files = (f"- {item.path} ({item.role}) - {item.note}" for item in related_files)
        out.extend(("<related_files>", *files, "</related_files>"))
    return "\n".join(out)


def from_state(state: State) -> tuple[Handoff, tuple[RelatedFile, ...]]:
    """A handoff by code: nothing in it is anybody's paraphrase."""
    requirements = [
        Requirement(text=text, source=f"message_uuid: {words.uuid}")
        for words in state.words
        for text in words.constraints
    ]
    failures = list(state.board.failures.values())[-_CONFLICTS:]
    conflicts = [f"{failure.attempt} failed: {failure.error.splitlines()[0]}" for failure in failures if failure.error]
    unverified = [item.text for item in state.board.todo if item.status in ("pending", "in_progress")]
    files = tuple(
        RelatedFile(path=path, role="implementation" if done == "write" else "other", note=f"last {done} by a tool")
        for path, done in list(state.board.files.items())[-_FILES:]
    )
    made = Handoff(requirements=tuple(requirements), conflicts=tuple(conflicts), unverified=tuple(unverified))
    return made, files


def seed(
    state: State, *, message_uuid: str, shown: frozenset[int], room: int, measure: Callable[[str], Measure]
) -> tuple[Seed, ...]:
    """The seed of a host-made window: open user messages verbatim (but those `shown` elsewhere in it), then anchors,
    handoff and state in about `room` tokens (o200k)."""
    opened = tuple(
        _verbatim(words, measure) for words in state.words if words.disposition == "open" and words.seq not in shown
    )
    handoff, files = from_state(state)
    text = "\n".join(
        (
            "Previous context is available in durable storage.",
            f"session_id: {state.session_id}",
            f"message_uuid: {message_uuid}",
            "",
            render(handoff, files),
        )
    )
    used = measure(text).tokens
    board = snapshot(state.board, max(0, room - used), lambda line: measure(line).tokens)
    if board:
        text = f"{text}\n<state>\n{board}\n</state>"
    found = measure(text)
    body = Text(text=text, tokens=found.tokens, content=found.content, is_protected=True)
    return (*opened, Seed(role="host", blocks=(body,)))


def _verbatim(words: Words, measure: Callable[[str], Measure]) -> Seed:
    head = f"[user message, still open; message_uuid: {words.uuid}]"
    found = measure(head)
    note = Text(text=head, tokens=found.tokens, content=found.content, is_protected=True)
    blocks: tuple[Block, ...] = tuple(block for block in words.blocks if isinstance(block, Text | Image))
    return Seed(role="user", blocks=(note, *blocks), of=words.seq)
