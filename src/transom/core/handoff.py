"""The handoff's four sections, and the seed of a window that no model wrote.

A window opened by the host starts from state alone (design 6.5): the same four sections, filled from the user's own
words, failing results with their literal errors and the open todo. It needs no model call, so it works at 100 % of
the limit and beyond. The anchors are `session_id` and `message_uuid`, the names of the recall tool's parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from transom.core.blackboard import snapshot
from transom.core.block import Measure, Text
from transom.core.event import Handoff, RelatedFile, Requirement, Seed
from transom.core.state import State, Words

__all__ = ["claimed", "escape_tags", "from_state", "render", "seed"]

_SECTIONS = (
    "SPEC-CONFIRMED REQUIREMENTS",
    "AGENT INFERENCES",
    "UNRESOLVED CONFLICTS",
    "UNVERIFIED ACCEPTANCE CRITERIA",
)
_CONFLICTS = 5
"""Newest failures named in the handoff itself; all of them stand in the state snapshot within its share."""
_FILES = 12
_OPEN = 20
"""Open todo items named in the handoff; the snapshot counts all."""


_TAG = re.compile(r"<(?=/?\s*(?i:handoff|related_files|session_state|host_reminder|context_update)\b)")


def escape_tags(text: str) -> str:
    """The text with look-alikes of the host's own tags made harmless: what a tool printed is never a handoff."""
    return _TAG.sub("&lt;", text) if "<" in text else text


def claimed(text: str) -> str:
    """Words the host does not vouch for: no line of them begins as one of its own, a heading or a requirement."""
    return "\n  ".join(escape_tags(text).splitlines())


def render(handoff: Handoff, related_files: tuple[RelatedFile, ...]) -> str:
    """The handoff as a window shows it. Requirements stand to the letter (L6); all else may quote a tool."""
    listed = (
        [f"- {item.text} [{item.source}]" for item in handoff.requirements],
        [f"- {claimed(one.text)} (since generation {one.generation})" for one in handoff.inferences],
        [f"- {claimed(text)}" for text in handoff.conflicts],
        [f"- {claimed(text)}" for text in handoff.unverified],
    )
    out = ["<handoff>"]
    for number, (title, lines) in enumerate(zip(_SECTIONS, listed, strict=True), 1):
        out.extend((f"### {number}. {title}", *(lines or ["(none)"])))
    out.append("</handoff>")
    if related_files:
        files = (claimed(f"- {item.path} ({item.role}) - {item.note}") for item in related_files)
        out.extend(("<related_files>", *files, "</related_files>"))
    return "\n".join(out)


def from_state(state: State, *, whole: frozenset[int] = frozenset()) -> tuple[Handoff, tuple[RelatedFile, ...]]:
    """A handoff by code: nothing in it is anybody's paraphrase. Constraints of the user messages `whole` are left to
    those messages, which the window shows whole."""
    failures = list(state.board.failures.values())[-_CONFLICTS:]
    conflicts = [f"{failure.attempt} failed: {failure.error.splitlines()[0]}" for failure in failures if failure.error]
    unverified = [item.text for item in state.board.todo if item.status in ("pending", "in_progress")][:_OPEN]
    files = tuple(
        RelatedFile(path=path, role="implementation" if done == "write" else "other", note=f"last {done} by a tool")
        for path, done in list(state.board.files.items())[-_FILES:]
    )
    made = Handoff(requirements=_rules(state, whole), conflicts=tuple(conflicts), unverified=tuple(unverified))
    return _carried(made, files, state)


def _carried(made: Handoff, files: tuple[RelatedFile, ...], state: State) -> tuple[Handoff, tuple[RelatedFile, ...]]:
    """With what the last handoff of a model said and the host has checked; inferences stay inferences (L7)."""
    last = state.handoff
    if last is None:
        return made, files
    known, paths = {item.text for item in made.requirements}, {file.path for file in files}
    requirements = (item for item in last.handoff.requirements if item.text not in known)
    return msgspec.structs.replace(
        made, requirements=(*made.requirements, *requirements), inferences=last.handoff.inferences
    ), (*files, *(file for file in last.related_files if file.path not in paths))


def _rules(state: State, whole: frozenset[int]) -> tuple[Requirement, ...]:
    """In the order in which each was last said: one that was given again stands behind what had changed it."""
    found: dict[str, Requirement] = {}
    for words in state.words:
        if words.seq not in whole and words.disposition != "superseded":
            for text in words.constraints:
                found.pop(text, None)
                found[text] = Requirement(text=text, source=f"message_uuid: {words.uuid}")
    return tuple(found.values())


def seed(
    state: State,
    *,
    message_uuid: str,
    shown: frozenset[int],
    room: int,
    measure: Callable[[str], Measure],
    is_tight: bool = False,
) -> tuple[Seed, ...]:
    """The seed of a new window: open user messages verbatim (but those `shown` elsewhere in it), then anchors, handoff
    (the declared one, if a model wrote one) and state in about `room` tokens (o200k). `is_tight`: what stands in a
    message of the same window is not said again."""
    opened = [words for words in state.words if words.disposition == "open" and words.seq not in shown]
    whole = shown.union(words.seq for words in opened) if is_tight else frozenset()
    text = "\n".join(
        (
            "Previous context is available in durable storage.",
            f"session_id: {state.session_id}",
            f"message_uuid: {message_uuid}",
            *(_disposed(words) for words in state.words if words.disposition != "open" and words.seq in shown),
            "",
            render(*_handoff(state, whole)),
        )
    )
    used = measure(text).tokens
    board = snapshot(state.board, max(0, room - used), lambda line: measure(line).tokens)
    if board:
        text = f"{text}\n<session_state>\n{escape_tags(board)}\n</session_state>"
    found = measure(text)
    body = Text(text=text, tokens=found.tokens, content=found.content, is_protected=True)
    return (*(_verbatim(words, measure) for words in opened), Seed(role="host", blocks=(body,)))


def _handoff(state: State, whole: frozenset[int]) -> tuple[Handoff, tuple[RelatedFile, ...]]:
    """The declared handoff, with the user's own constraints before its requirements (L6); or one by code."""
    declared = state.intent
    if declared is None:
        return from_state(state, whole=whole)
    made = declared.handoff
    rules = _rules(state, whole)
    said = {rule.text for rule in rules}
    rest = tuple(item for item in made.requirements if item.text not in said)
    return msgspec.structs.replace(made, requirements=(*rules, *rest)), declared.related_files


def _disposed(words: Words) -> str:
    """Of a message that the window shows for its rules although it is closed: no window carries it out again."""
    holds = "its rules hold unless the user has said otherwise since, it is not to be done again"
    return f"The user message {words.uuid} above is {words.disposition}: {holds}."


def _verbatim(words: Words, measure: Callable[[str], Measure]) -> Seed:
    head = f"[user message, still open; message_uuid: {words.uuid}]"
    found = measure(head)
    note = Text(text=head, tokens=found.tokens, content=found.content, is_protected=True)
    return Seed(role="user", blocks=(note, *words.blocks), of=words.seq)
