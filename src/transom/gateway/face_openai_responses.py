"""The face of the OpenAI Responses API. An element is an input item; an input that is a string is one user message.

The head is `instructions`, `tools`, and the items before the first user message that are system text, tools
(`additional_tools`) or settings (`configuration_update`): Codex sends all of its tools in the first item. A history
that the provider compacted begins with what it left, which nobody else can read or say again: that is head too. The
host's tools go into the field `tools` even then, which is made if there is none: the API takes tools in both places
at once.

What the server keeps of a history (`previous_response_id`, `conversation`) is not asked for once the elements are ours.
An item that is only named (`item_reference`) cannot stand in a window, where its call would have no answer.
Work in the background is fetched later by another request, so the host's tools are not offered to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from transom.adapters import provider_openai_responses
from transom.adapters.provider_writing import Reach, string, written_object
from transom.core.event import Fact, Section, Tool
from transom.core.state import Head, Item
from transom.core.wire import Dialect, Segment
from transom.errors import BadInput
from transom.gateway.elements_openai_responses import (
    call_ids,
    canonical_of,
    compacted,
    facts_of,
    is_head,
    speaker_of,
    text_of,
    written,
)
from transom.gateway.face import Call, Speaker, Splice
from transom.gateway.face_openai import (
    array_of,
    client_tool,
    digits_of,
    error,
    is_set,
    object_of,
    offered,
    section,
    segments,
    sent_on,
    string_of,
)
from transom.gateway.outline import Outline, outline
from transom.gateway.reading import items_of
from transom.gateway.splice_openai_responses import ResponsesStream, ResponsesWhole
from transom.ports import Blobs

__all__ = ["OpenAIResponsesFace"]

_KEPT = ("previous_response_id", "conversation")
"""Where the server keeps the history."""
_MORE_TOOLS = "additional_tools"
_LONGEST_REFERENCE = 160
"""Bytes; ids of items have 51 characters."""


@dataclass(frozen=True)
class OpenAIResponsesFace:
    """`blobs` holds the pictures of items; without it one that is written anew is shown by its address."""

    blobs: Blobs | None = None
    name: str = "openai_responses"

    @cached_property
    def _provider(self) -> Dialect:
        return provider_openai_responses.dialect(Reach(blobs=self.blobs, keeps_ids=True))

    @cached_property
    def dialect(self) -> Dialect:
        return Dialect(name=self.name, head=self._segments, message=self._message, tail=self._provider.tail)

    def _segments(self, head: Head) -> tuple[Segment, ...]:
        return segments(self._provider.head, head)

    def _message(self, group: Sequence[Item]) -> bytes:
        return b",".join(filter(None, (written(self._provider, item) for item in group)))

    # -- reading

    def call(self, body: bytes, known: Iterable[Outline] = ()) -> Call:
        found = outline(body, "input", known)
        fields = found.fields
        elements = found.items or _elements(fields.get("input", b""))
        if not elements and not any(is_set(fields.get(name)) for name in ("input", "prompt", *_KEPT)):
            raise BadInput("no responses request: it has no input")
        lead = next((at for at, one in enumerate(elements) if not is_head(one)), len(elements))
        lead = max(lead, compacted(elements))
        return Call(
            body=body,
            outline=found,
            elements=elements,
            lead=lead,
            model=string_of(fields.get("model", b"")),
            is_streamed=fields.get("stream") == b"true",
            max_output_tokens=max(0, digits_of(fields.get("max_output_tokens", b""))),
            has_tools=bool(array_of(fields.get("tools", b"")) or _more_tools(elements[:lead])),
            previous=next((name for kept in _KEPT if (name := _id(fields.get(kept, b"")))), "")
            or _referred(elements[found.shared :]),
        )

    def head(self, call: Call) -> tuple[tuple[Section, ...], tuple[Tool, ...]]:
        sections = []
        if is_set(instructions := call.fields.get("instructions", b"")):
            text = string_of(instructions) or instructions.decode("utf-8", "replace")
            sections.append(Section(key="instructions", text=text))
        lead = call.elements[: call.lead]
        sections.extend(section(place, canonical_of(_without_tools(one))) for place, one in enumerate(lead))
        raw = (*array_of(call.fields.get("tools", b"")), *_more_tools(lead))
        return tuple(sections), tuple(tool for one in raw if (tool := client_tool(one)) is not None)

    def canonical(self, element: bytes) -> bytes:
        return canonical_of(element)

    def speaker(self, element: bytes) -> Speaker:
        return speaker_of(element)

    def calls(self, element: bytes) -> tuple[str, ...]:
        return call_ids(element)

    def text(self, element: bytes) -> str:
        return text_of(element)

    def facts(self, elements: Sequence[bytes], blobs: Blobs) -> tuple[Fact, ...]:
        return tuple(facts_of(elements, blobs, self.dialect))

    # -- writing

    def body(
        self,
        call: Call,
        *,
        tools: Sequence[Tool],
        messages: Sequence[bytes] | None = None,
        tail: bytes = b"",
        marks: Sequence[int] | None = None,
        forced: str = "",
        withheld: frozenset[str] = frozenset(),
    ) -> bytes:
        del marks  # the API caches by itself
        changes: dict[str, bytes] = {}
        is_awaited = call.fields.get("background") != b"true"
        ours = tuple(one.data for one in self._provider.head(Head(tools=tuple(tools)))) if is_awaited else ()
        if ours or withheld:
            catalogue = offered(call.fields.get("tools", b""), ours, withheld)
            changes["tools"] = catalogue if catalogue != b"[]" else b""
        if forced:
            changes["tool_choice"] = b'{"type":"function","name":%b}' % string(forced)
        if messages is None and not tail and not withheld:
            return sent_on(call, changes)
        if messages is not None:
            changes |= dict.fromkeys(_KEPT, b"")
        lead = [_without_tools(one, withheld) if withheld else one for one in call.elements[: call.lead]]
        own = call.elements[call.lead :] if messages is None else messages
        return sent_on(call, changes, history="input", elements=(*lead, *own, tail) if tail else (*lead, *own))

    def splice(self, *, is_streamed: bool) -> Splice:
        return ResponsesStream(self.dialect) if is_streamed else ResponsesWhole(self.dialect)

    def error(self, status: int, message: str) -> bytes:
        return error(status, message)


def _elements(raw: bytes) -> tuple[bytes, ...]:
    if raw.startswith(b'"'):
        return (b'{"type":"message","role":"user","content":%b}' % raw,)
    return items_of(raw) if is_set(raw) else ()


def _id(raw: bytes) -> str:
    return string_of(raw) or string_of(object_of(raw).get("id", b""))


def _referred(elements: Sequence[bytes]) -> str:
    """The first item of which only the name is there, since the server keeps it: what it says, and which call it is,
    nobody here knows."""
    short = (object_of(one) for one in elements if len(one) < _LONGEST_REFERENCE)
    return next((string_of(one["id"]) for one in short if "id" in one and set(one) <= {"id", "type"}), "")


def _more_tools(lead: Sequence[bytes]) -> tuple[bytes, ...]:
    found = (object_of(one) for one in lead)
    return tuple(
        tool
        for one in found
        if string_of(one.get("type", b"")) == _MORE_TOOLS
        for tool in array_of(one.get("tools", b""))
    )


def _without_tools(element: bytes, withheld: frozenset[str] | None = None) -> bytes:
    """An item without the tools it brings: those `withheld`, or all."""
    fields = object_of(element)
    if string_of(fields.get("type", b"")) != _MORE_TOOLS or "tools" not in fields:
        return element
    kept = offered(fields["tools"], (), withheld) if withheld is not None else b"[]"
    return written_object(fields | {"tools": kept})
