"""Gemini CLI sessions: one document of messages; a call and its result stand together in the model's message.

1. A `gemini` message is one reply, then the results of its calls. One without `tokens` (calls that were cancelled as
   they came) has no usage.
2. A user message holds what was typed and, after a fixed line, the files it refers to: the second is the host's.
3. `input` counts cached tokens too; `output` leaves thoughts out. Prompts of tools (`tool`) are counted apart.
4. `info`, `warning` and `error` messages are the screen's. Neither the system prompt nor the tools are recorded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from transom.core.block import Block, Opaque, Text, Thought, ToolCall, ToolResultRaw
from transom.core.canon import FORMAT as LOG_FORMAT
from transom.core.event import (
    Fact,
    HostSaid,
    ModelReplied,
    Observed,
    SessionOpened,
    ToolReturned,
    Usage,
    UserSaid,
)
from transom.importers.draft import Item, Note, Said, Unknown
from transom.importers.effects import effect_of
from transom.importers.fields import ABSENT, image, iso_ms, raw_text, read
from transom.importers.source import Source
from transom.ports import Blobs

__all__ = ["FORMAT", "parse", "sniff"]

FORMAT = "gemini-cli"

_REFERRED = "\n--- Content from referenced files ---"
"""The line Gemini CLI puts between what was typed and the files named with `@` in it."""

_EXIT = re.compile(r"^Exit Code: (-?\d+)$", re.MULTILINE)
_SCREEN = {"info", "warning", "error"}


class _Blob(msgspec.Struct):
    mime_type: str = msgspec.field(name="mimeType", default="")
    data: str = ""


class _Response(msgspec.Struct):
    response: msgspec.Raw = msgspec.Raw(b"{}")
    parts: tuple[_Part, ...] = ()


class _Part(msgspec.Struct):
    text: str | None = None
    inline: _Blob | None = msgspec.field(name="inlineData", default=None)
    response: _Response | None = msgspec.field(name="functionResponse", default=None)


class _Thought(msgspec.Struct):
    subject: str = ""
    description: str = ""


class _Call(msgspec.Struct):
    id: str
    name: str
    args: msgspec.Raw = msgspec.Raw(b"{}")
    result: tuple[_Part, ...] | None = None
    status: str = ""
    timestamp: str = ""
    display: msgspec.Raw = msgspec.field(name="resultDisplay", default=msgspec.Raw(b""))


class _Tokens(msgspec.Struct):
    input: int | None = 0
    output: int | None = 0
    cached: int | None = 0
    thoughts: int | None = 0
    tool: int | None = 0


class _Message(msgspec.Struct):
    type: str
    id: str = ""
    timestamp: str = ""
    content: str | tuple[msgspec.Raw, ...] | _Part = ""
    model: str = ""
    thoughts: tuple[_Thought, ...] = ()
    tokens: msgspec.Raw = ABSENT
    calls: tuple[_Call, ...] = msgspec.field(name="toolCalls", default=())


class _Session(msgspec.Struct):
    id: str = msgspec.field(name="sessionId", default="")
    start: str = msgspec.field(name="startTime", default="")
    summary: str = ""
    directories: tuple[str, ...] = ()
    messages: tuple[msgspec.Raw, ...] = ()


class _Type(msgspec.Struct):
    type: str = "?"


class _Plain(msgspec.Struct, forbid_unknown_fields=True):
    """A response that is one text, as most are."""

    output: str | None = None
    error: str | None = None


_SESSION = msgspec.json.Decoder(_Session)
_MESSAGE = msgspec.json.Decoder(_Message)
_PART = msgspec.json.Decoder(_Part)
_TYPE = msgspec.json.Decoder(_Type)
_PLAIN = msgspec.json.Decoder(_Plain)
_TOKENS = msgspec.json.Decoder(_Tokens)
T = TypeVar("T")


def sniff(source: Source) -> bool:
    """A session names the project by a hash and holds `messages`."""
    head = source.head(4096)
    return head.lstrip().startswith(b"{") and all(
        name in head for name in (b'"sessionId"', b'"projectHash"', b'"messages"')
    )


def parse(source: Source, blobs: Blobs) -> Iterator[Item]:
    session = source.document(_SESSION)
    messages = [(raw, read(raw, _MESSAGE)) for raw in session.messages]
    reader = _Reader(key=session.id or "main", blobs=blobs)
    opened = SessionOpened(
        format=LOG_FORMAT,
        agent="gemini-cli",
        model=next((message.model for _, message in messages if message and message.model), ""),
        provider="google",
        workspace=session.directories[0] if session.directories else "",
        title=session.summary,
    )
    yield reader.said("session", iso_ms(session.start), opened)
    for number, (raw, message) in enumerate(messages, 1):
        if message and number == len(messages) and _is_being_written(message):
            yield Note(text="the last message is being written: it is read when it is whole")
        elif message is None:
            yield from reader.strange(raw)
        elif message.type == "user":
            yield from reader.user(message)
        elif message.type == "gemini":
            yield from reader.model(message)
        elif message.type in _SCREEN:
            yield reader.said(message.id, iso_ms(message.timestamp), Observed(kind=message.type, raw=raw_text(raw)))
        else:
            yield from reader.strange(raw)


@dataclass(slots=True, kw_only=True)
class _Reader:
    key: str
    blobs: Blobs
    seen: Counter[str] = field(default_factory=Counter)

    def said(self, uuid: str, at: int, fact: Fact) -> Said:
        """A fact under the source's own id; an id that comes again gets `.1`, `.2`, …"""
        count = self.seen[uuid]
        self.seen[uuid] += 1
        return Said(session=self.key, uuid=f"{uuid}.{count}" if count else uuid, at=at, fact=fact)

    def strange(self, raw: msgspec.Raw) -> Iterator[Item]:
        found = read(raw, _TYPE)
        kind = found.type if found else "?"
        yield self.said(f"unknown.{kind}", 0, Observed(kind=kind, raw=raw_text(raw)))
        yield Unknown(kind=kind)

    def user(self, message: _Message) -> Iterator[Item]:
        at = iso_ms(message.timestamp)
        blocks = self.content(message.content)
        start = next((n for n, block in enumerate(blocks) if _is_reference(block)), len(blocks))
        if typed := blocks[:start]:
            yield self.said(message.id, at, UserSaid(blocks=typed))
        if given := blocks[start:]:
            yield self.said(message.id, at, HostSaid(kind="injected", blocks=given))

    def model(self, message: _Message) -> Iterator[Item]:
        thoughts = (Thought(text=f"{thought.subject}\n\n{thought.description}") for thought in message.thoughts)
        calls = (ToolCall(call_id=call.id, name=call.name, arguments=raw_text(call.args)) for call in message.calls)
        reply = ModelReplied(
            blocks=(*thoughts, *self.content(message.content), *calls),
            model=message.model,
            usage=_usage(message.tokens),
        )
        yield self.said(message.id, iso_ms(message.timestamp), reply)
        for call in message.calls:
            if call.result is not None:
                yield self.result(call, call.result)
        for call in message.calls:
            if call.display:
                shown = Observed(kind="resultDisplay", raw=raw_text(call.display))
                yield self.said(f"{call.id}.display", iso_ms(call.timestamp), shown)

    def result(self, call: _Call, parts: tuple[_Part, ...]) -> Said:
        blocks = tuple(block for part in parts for block in self.part(part))
        text = "\n".join(block.text for block in blocks if isinstance(block, ToolResultRaw))
        codes = _EXIT.findall(text) if call.name == "run_shell_command" else ()
        fact = ToolReturned(
            call_id=call.id,
            blocks=blocks,
            is_error=call.status in {"error", "cancelled"},
            effect=effect_of(call.name),
            exit_code=int(codes[-1]) if codes else None,
        )
        return self.said(call.id, iso_ms(call.timestamp), fact)

    def part(self, part: _Part) -> Iterator[Block]:
        """The blocks of one part of a result."""
        if part.response:
            plain = read(part.response.response, _PLAIN)
            text = (plain.output or plain.error or "") if plain else raw_text(part.response.response)
            yield ToolResultRaw(text=text)
            for inner in part.response.parts:
                yield from self.part(inner)
        elif part.inline:
            yield image(self.blobs, part.inline.mime_type, part.inline.data)
        elif part.text:
            yield ToolResultRaw(text=part.text)

    def content(self, content: str | tuple[msgspec.Raw, ...] | _Part) -> tuple[Block, ...]:
        """The blocks of a message: a text, a part or a list of parts."""
        if isinstance(content, str):
            return (Text(text=content),) if content else ()
        if isinstance(content, _Part):
            return (Text(text=content.text or ""),)
        return tuple(self.piece(raw) for raw in content)

    def piece(self, raw: msgspec.Raw) -> Block:
        part = read(raw, _PART)
        if part and part.text is not None:
            return Text(text=part.text)
        if part and part.inline:
            return image(self.blobs, part.inline.mime_type, part.inline.data)
        return Opaque(kind="part", raw=raw_text(raw))


def _is_being_written(message: _Message) -> bool:
    """Whether a call of the message still runs."""
    return any(call.result is None for call in message.calls)


def _is_reference(block: Block) -> bool:
    return isinstance(block, Text) and block.text.startswith(_REFERRED)


def _usage(raw: msgspec.Raw) -> Usage | None:
    tokens = read(raw, _TOKENS)
    if tokens is None:
        return None
    cached = max(0, tokens.cached or 0)
    thoughts = max(0, tokens.thoughts or 0)
    return Usage(
        uncached=max(0, (tokens.input or 0) - cached) + max(0, tokens.tool or 0),
        cached=cached,
        output=max(0, tokens.output or 0) + thoughts,
        reasoning=thoughts,
    )
