"""The face of the OpenAI Chat Completions API. An element is a message.

Leading system and developer messages are the head; later ones are what a client injects. An item is one message, or the
messages of one answer; two items are never one message here, since where a message ends is part of the prompt. A result
that is written anew holds text only: its pictures follow in a user message behind all results of the batch.

The host's tools are not offered where a call to them could not be taken out of the answer: to a client that asks for
several answers at once, or calls tools the old way (`functions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec

from transom.adapters import provider_openai_chat
from transom.adapters.provider_writing import Reach, string
from transom.core.block import Block, Image
from transom.core.event import Fact, Section, Tool
from transom.core.state import Head, Item
from transom.core.wire import Dialect, Segment
from transom.errors import BadInput
from transom.gateway.elements_openai_chat import (
    HEAD_ROLES,
    call_ids,
    canonical_of,
    facts_of,
    role_of,
    speaker_of,
    text_of,
)
from transom.gateway.face import Call, Speaker, Splice
from transom.gateway.face_openai import (
    array_of,
    client_tool,
    digits_of,
    error,
    is_set,
    offered,
    own_wire,
    section,
    segments,
    sent_on,
    string_of,
)
from transom.gateway.marks_openai_chat import marked
from transom.gateway.outline import LISTED, Outline, outline
from transom.gateway.splice_openai_chat import ChatStream
from transom.gateway.whole_openai_chat import ChatWhole
from transom.ports import Blobs

__all__ = ["OpenAIChatFace"]


@dataclass(frozen=True)
class OpenAIChatFace:
    """`blobs` holds the pictures of items; without it one that is written anew is shown by its address."""

    blobs: Blobs | None = None
    name: str = "openai_chat"

    @cached_property
    def _provider(self) -> Dialect:
        return provider_openai_chat.dialect(Reach(blobs=self.blobs, keeps_ids=True))

    @cached_property
    def dialect(self) -> Dialect:
        return Dialect(name=self.name, head=self._segments, message=self._message, tail=self._provider.tail)

    def _segments(self, head: Head) -> tuple[Segment, ...]:
        return segments(self._provider.head, head)

    def _message(self, group: Sequence[Item]) -> bytes:
        shown: list[bytes] = []
        pictures: list[Block] = []
        # What the host was called for is answered when the client's own results are here, and words came with those.
        group = sorted(group, key=lambda item: item.role not in {"assistant", "tool"})
        for item in group:
            if own := own_wire(item, item.call_id):
                shown.append(own)
                continue
            plain = item
            if item.role == "tool":
                pictures.extend(block for block in item.blocks if isinstance(block, Image))
                blocks = tuple(block for block in item.blocks if not isinstance(block, Image))
                plain = msgspec.structs.replace(item, blocks=blocks)
            shown.append(self._provider.message((plain,)))
        if pictures:
            behind = max(place for place, item in enumerate(group, 1) if item.role == "tool")
            followed = msgspec.structs.replace(group[-1], role="user", blocks=tuple(pictures))
            shown.insert(behind, self._provider.message((followed,)))
        return b",".join(filter(None, shown))

    # -- reading

    def call(self, body: bytes, known: Iterable[Outline] = ()) -> Call:
        found = outline(body, "messages", known)
        fields, elements = found.fields, found.items
        if fields.get("messages") != LISTED:
            raise BadInput("no chat request: it has no messages")
        limits = (fields.get(name, b"") for name in ("max_completion_tokens", "max_tokens"))
        return Call(
            body=body,
            outline=found,
            elements=elements,
            lead=next((at for at, one in enumerate(elements) if role_of(one) not in HEAD_ROLES), len(elements)),
            model=string_of(fields.get("model", b"")),
            is_streamed=fields.get("stream") == b"true",
            max_output_tokens=next((digits for raw in limits if (digits := digits_of(raw)) > 0), 0),
            has_tools=bool(_tools(fields.get("tools", b""), fields.get("functions", b""))),
        )

    def head(self, call: Call) -> tuple[tuple[Section, ...], tuple[Tool, ...]]:
        sections = (section(place, canonical_of(one)) for place, one in enumerate(call.elements[: call.lead]))
        raw = _tools(call.fields.get("tools", b""), call.fields.get("functions", b""))
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
        changes: dict[str, bytes] = {}
        ours = tuple(one.data for one in self._provider.head(Head(tools=tuple(tools)))) if _takes_tools(call) else ()
        if ours or withheld:
            catalogue = offered(call.fields.get("tools", b""), ours, withheld)
            changes["tools"] = catalogue if catalogue != b"[]" else b""
        if forced:
            changes["tool_choice"] = b'{"type":"function","function":{"name":%b}}' % string(forced)
        if messages is None and not tail and not withheld:
            return sent_on(call, changes)
        own = call.elements if messages is None else (*call.elements[: call.lead], *marked(call, messages, marks))
        return sent_on(call, changes, history="messages", elements=(*own, tail) if tail else own)

    def splice(self, *, is_streamed: bool) -> Splice:
        return ChatStream() if is_streamed else ChatWhole()

    def error(self, status: int, message: str) -> bytes:
        return error(status, message)


def _tools(*fields: bytes) -> tuple[bytes, ...]:
    return tuple(tool for raw in fields for tool in array_of(raw))


def _takes_tools(call: Call) -> bool:
    return digits_of(call.fields.get("n", b"")) <= 1 and not is_set(call.fields.get("functions"))
