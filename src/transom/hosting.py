"""The host's own tools: what `new_context`, `recall`, `read_artifact`, `todo` and `note_failure` do.

Each answers with facts to append and never raises for what a model wrote: a refusal is the call's result. Nothing here
clears a window. `new_context` only declares, and the next boundary commits it (L4). What is said of a call that a dead
process left open stands here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from transom.core.block import ToolCall, ToolResultRaw
from transom.core.canon import plain_text
from transom.core.event import (
    Effect,
    Event,
    Fact,
    NegativeNoted,
    RecallMissed,
    RolloverDeclared,
    TodoChanged,
    TodoItem,
    ToolReturned,
)
from transom.core.evidence import Files, check, parse
from transom.core.searchable import text_of
from transom.core.state import State
from transom.core.surface import HOST_TOOLS, NEW_CONTEXT, is_spent, spent_refusal
from transom.errors import HandoffRefused
from transom.ports import Log

__all__ = ["PAGE_CHARS", "Desk", "acts", "is_hosted", "left_open", "of_unknown_outcome", "refused", "said"]

PAGE_CHARS = 4_000
"""Of an artifact, and less of it where that is more tokens than the offload threshold: reading a page never offloads
it again."""
_LEAST_PAGE_CHARS = 250
_HITS = 5
_QUERY_CHARS = 400
"""Of a query: one exact detail, not a page to compare with."""
_TODO_ITEMS = 100
_TODO_CHARS = 500
"""A task list stands in every window, and its open items in every tail."""
_LOOKED_AT = 50
"""Hits asked for: the newest of them may be the very step that asks."""
_RECALL_CHARS = 1_600
"""All hits together: about the 400 tokens of the cost model's recall."""
_HANDOFF_SHARE = 0.10
"""Of the hard limit, in tokens, at four characters a token."""
_NAMES = frozenset(tool.name for tool in HOST_TOOLS)
_UNKNOWN = (
    "The process ended while this ran: whether it took effect is not known. Look at the present state before you "
    "repeat it."
)


class _Recall(msgspec.Struct):
    query: str = ""
    message_uuid: str = ""


class _Artifact(msgspec.Struct):
    artifact_id: str
    offset: int = 0


class _Todo(msgspec.Struct):
    content: str
    status: Literal["pending", "in_progress", "completed", "cancelled"] = "pending"


class _Todos(msgspec.Struct):
    todos: list[_Todo]


class _Failure(msgspec.Struct):
    attempt: str
    outcome: str


def is_hosted(name: str) -> bool:
    return name in _NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Where the host's tools find what they answer from. `before` is the seq of the reply that calls: a recall sees
    what stood before it, not the query itself."""

    state: State
    log: Log
    files: Files
    hard_limit: int
    before: int
    fits: Callable[[str], bool] = lambda _: True
    """Whether a result is small enough not to be offloaded."""

    def answer(self, call: ToolCall) -> tuple[Fact, ...]:
        """The facts of one call other than `new_context`: its result last."""
        made: dict[str, Callable[[ToolCall], tuple[Fact, ...]]] = {
            "recall": self._recall,
            "read_artifact": self._artifact,
            "todo": self._todo,
            "note_failure": self._failure,
        }
        try:
            return made[call.name](call)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as problem:
            return (refused(call, f"{call.name}: {problem}"),)

    def declare(self, calls: Sequence[ToolCall]) -> tuple[Fact, ...]:
        """The facts of a batch's `new_context` calls: the last valid one is declared, each gets a result."""
        results: list[ToolReturned] = []
        declared: RolloverDeclared | None = None
        for call in reversed(calls):
            if declared is not None:
                results.append(refused(call, f"{NEW_CONTEXT}: a later call of the same step was taken instead"))
                continue
            try:
                claim = parse(call.arguments, root=self.files.root, max_chars=int(self.hard_limit * _HANDOFF_SHARE * 4))
                handoff, demoted = check(claim, self.state, self.files)
            except HandoffRefused as refusal:
                results.append(refused(call, str(refusal)))
                continue
            declared = RolloverDeclared(
                call_id=call.call_id, handoff=handoff, related_files=claim.related_files, demoted=demoted
            )
            results.append(said(call, _receipt(declared)))
        ordered: list[Fact] = [*reversed(results)]
        return (*ordered, declared) if declared is not None else tuple(ordered)

    # -- recall

    def _recall(self, call: ToolCall) -> tuple[Fact, ...]:
        asked = msgspec.json.decode(call.arguments, type=_Recall)
        named = _named(asked.message_uuid)
        query = asked.query.strip() or named
        if not query:
            return (refused(call, "recall: name a query or a message_uuid"),)
        if len(query) > _QUERY_CHARS:
            return (refused(call, f"recall: the query is {len(query):,} characters, of at most {_QUERY_CHARS}"),)
        if is_spent(self.state.missed, query):
            return (refused(call, spent_refusal(query)),)
        event = self._earlier(named) or self._earlier(_named(query))  # a name may be asked for as if it were words
        if event is not None:
            return (said(call, self._page(event, 0, _RECALL_CHARS)),)
        found = self._hits(query) if asked.query.strip() else []
        if not found:
            miss = f"recall: {query!r} stands nowhere in this session. Do not ask again; look in the workspace."
            return (RecallMissed(query=query), refused(call, miss))
        return (said(call, "\n\n".join(found)),)

    def _earlier(self, uuid: str) -> Event | None:
        """The event of that name, if it stood before the asking and has words."""
        event = self.log.find(self.state.session_id, uuid) if uuid else None
        return event if event is not None and event.seq < self.before and text_of(event.fact) else None

    def _hits(self, query: str) -> list[str]:
        shown: list[str] = []
        left = _RECALL_CHARS
        for hit in self.log.search(query, self.state.session_id, _LOOKED_AT):
            if hit.seq >= self.before or len(shown) == _HITS:
                continue
            text = f"[message_uuid {hit.uuid}, offset {hit.offset}]\n{hit.text}"
            if len(text) > left:
                break
            left -= len(text)
            shown.append(text)
        return shown

    def _artifact(self, call: ToolCall) -> tuple[Fact, ...]:
        asked = msgspec.json.decode(call.arguments, type=_Artifact)
        event = self._earlier(_named(asked.artifact_id))
        if event is None:
            name = repr(asked.artifact_id[:_QUERY_CHARS])
            return (refused(call, f"read_artifact: there is no artifact {name} in this session"),)
        return (said(call, self._page(event, asked.offset, PAGE_CHARS)),)

    def _page(self, event: Event, offset: int, size: int) -> str:
        text = plain_text(text_of(event.fact))
        offset = min(max(0, offset), len(text))
        while True:
            page = _shown(event.uuid, text, offset, size)
            if size <= _LEAST_PAGE_CHARS or self.fits(page):
                return page
            size //= 2

    # -- state

    def _todo(self, call: ToolCall) -> tuple[Fact, ...]:
        asked = msgspec.json.decode(call.arguments, type=_Todos)
        longest = max((len(one.content) for one in asked.todos), default=0)
        if len(asked.todos) > _TODO_ITEMS or longest > _TODO_CHARS:
            return (
                refused(
                    call,
                    f"todo: {len(asked.todos):,} items, the longest of {longest:,} characters, of at most "
                    f"{_TODO_ITEMS} and {_TODO_CHARS}",
                ),
            )
        items = [TodoItem(text=one.content, status=one.status) for one in asked.todos]
        closed = sum(item.status in ("completed", "cancelled") for item in items)
        return (TodoChanged(items=tuple(items)), said(call, f"{len(items)} items, {closed} closed."))

    def _failure(self, call: ToolCall) -> tuple[Fact, ...]:
        asked = msgspec.json.decode(call.arguments, type=_Failure)
        if not asked.attempt.strip() or not asked.outcome.strip():
            return (refused(call, "note_failure: name the attempt and its literal outcome"),)
        return (
            NegativeNoted(attempt=asked.attempt, outcome=asked.outcome),
            said(call, "Noted; it stands in every window."),
        )


def _named(uuid: str) -> str:
    """A message's name; models copy it with the words that stand before it."""
    return uuid.strip().removeprefix("message_uuid").lstrip(":").strip()


def said(call: ToolCall, text: str) -> ToolReturned:
    """A result by the host. It is measured when it is admitted."""
    return ToolReturned(call_id=call.call_id, blocks=(ToolResultRaw(text=text),), effect="none", by="host")


def refused(call: ToolCall, text: str) -> ToolReturned:
    return msgspec.structs.replace(said(call, text), is_error=True)


def acts(effect: Effect) -> bool:
    """Whether a call of this effect may not simply be run again."""
    return effect in ("write", "external")


def left_open(state: State) -> tuple[list[ToolCall], int]:
    """The newest reply's calls that have no result, and the seq of that reply."""
    reply = next((item for item in reversed(state.window.items) if item.role == "assistant"), None)
    if reply is None:
        return [], 0
    calls = (block for block in reply.blocks if isinstance(block, ToolCall))
    return [call for call in calls if call.call_id in state.window.calls], reply.seq


def of_unknown_outcome(call: ToolCall, effect: Effect) -> ToolReturned:
    """The result of a call that had begun when its process ended."""
    return msgspec.structs.replace(refused(call, _UNKNOWN), effect=effect)


def _receipt(declared: RolloverDeclared) -> str:
    moved = (
        f"- moved to inferences: {one.text[:120]} ({one.source or 'no source'}: {one.reason})"
        for one in declared.demoted
    )
    return "\n".join(("The handoff is stored; a new window opens after this step.", *moved))


def _shown(uuid: str, text: str, offset: int, size: int) -> str:
    end = min(len(text), offset + size)
    rest = f'; go on with read_artifact {{"artifact_id":"{uuid}","offset":{end}}}' if end < len(text) else ""
    return f"[message_uuid {uuid}, characters {offset:,} to {end:,} of {len(text):,}{rest}]\n{text[offset:end]}"
