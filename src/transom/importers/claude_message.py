"""Messages of the Anthropic API as Claude Code writes them down: content blocks, usage, and who speaks.

A client speaks in the user's role too: commands, interruptions, reminders, results of hooks. Such text is the host's,
whatever its wire role, and is told by the mark the client puts at its start (`is_injected`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from transom.core.block import Block, Image, Opaque, Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import Usage
from transom.importers.fields import ABSENT, image, raw_text, read
from transom.importers.mending import decode
from transom.ports import Blobs

__all__ = ["SYNTHETIC", "Message", "Result", "blocks", "contents", "is_injected", "usage"]

SYNTHETIC = "<synthetic>"
"""The model name of replies the client wrote itself."""

_INJECTED = re.compile(
    r"\s*(?:<(?:command-|local-command-|bash-stdout|bash-stderr|bash-input|task-notification|system-reminder"
    r"|teammate-message|user-prompt-submit-hook|ide_|new-diagnostics)"
    r"|\[Request interrupted by user|Caveat: The messages below were generated"
    r"|This session is being continued from a previous conversation)"
)
_EXIT = re.compile(r"(?:<tool_use_error>)?(?:Error: )?Exit code (\d{1,3})\b")


class _CacheCreation(msgspec.Struct, frozen=True):
    ephemeral_1h_input_tokens: int | None = 0


class _Usage(msgspec.Struct, frozen=True):
    input_tokens: int | None = 0
    cache_read_input_tokens: int | None = 0
    cache_creation_input_tokens: int | None = 0
    cache_creation: _CacheCreation | None = None
    output_tokens: int | None = 0


class Message(msgspec.Struct, frozen=True):
    """What stands in a record's `message`."""

    role: str = ""
    id: str = ""
    model: str = ""
    content: msgspec.Raw = msgspec.Raw(b'""')
    stop_reason: str | None = None
    usage: msgspec.Raw = ABSENT


class _Media(msgspec.Struct, frozen=True):
    type: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""


class _Piece(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str = ""
    content: msgspec.Raw = msgspec.Raw(b'""')
    is_error: bool | None = False
    source: _Media | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One `tool_result` block."""

    call_id: str
    blocks: tuple[Block, ...]
    is_error: bool
    exit_code: int | None


_TEXT = msgspec.json.Decoder(str)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_PIECE = msgspec.json.Decoder(_Piece)
_USAGE = msgspec.json.Decoder(_Usage)


def usage(raw: msgspec.Raw) -> Usage | None:
    """The figures of one response. Anthropic's `input_tokens` leaves cached tokens out; a figure below zero is none, a
    usage of another shape too: the reply stands without it."""
    said = read(raw, _USAGE)
    if said is None:
        return None
    long = said.cache_creation.ephemeral_1h_input_tokens if said.cache_creation else 0
    return Usage(
        uncached=max(0, said.input_tokens or 0),
        cached=max(0, said.cache_read_input_tokens or 0),
        written=max(0, said.cache_creation_input_tokens or 0),
        written_1h=max(0, long or 0),
        output=max(0, said.output_tokens or 0),
    )


def contents(content: msgspec.Raw, blobs: Blobs) -> tuple[list[Result], tuple[Block, ...]]:
    """The tool results of a content and its other blocks, each in order. A string is one text."""
    found: list[Result] = []
    said: list[Block] = []
    for piece, raw in _pieces(content):
        if piece.type == "tool_result":
            found.append(_result(piece, blobs))
        else:
            said.append(_block(piece, raw, blobs, is_result=False))
    return found, tuple(said)


def blocks(content: msgspec.Raw, blobs: Blobs) -> tuple[Block, ...]:
    """The blocks of a content that has no tool results."""
    return contents(content, blobs)[1]


def is_injected(text: str) -> bool:
    """Whether the client wrote this in the user's place."""
    return _INJECTED.match(text) is not None


def _result(piece: _Piece, blobs: Blobs) -> Result:
    inner = tuple(_block(part, raw, blobs, is_result=True) for part, raw in _pieces(piece.content))
    first = inner[0].text if inner and isinstance(inner[0], ToolResultRaw) else ""
    code = _EXIT.match(first) if piece.is_error else None
    return Result(
        call_id=piece.tool_use_id,
        blocks=inner,
        is_error=bool(piece.is_error),
        exit_code=int(code[1]) if code else None,
    )


def _pieces(content: msgspec.Raw) -> Iterator[tuple[_Piece, msgspec.Raw]]:
    data = bytes(content)
    if data.startswith(b'"'):
        yield _Piece(type="text", text=decode(data, _TEXT)[0]), content
    elif data.startswith(b"["):
        for raw in decode(data, _LIST)[0]:
            try:
                yield decode(bytes(raw), _PIECE)[0], raw
            except msgspec.ValidationError:
                yield _Piece(), raw


def _block(piece: _Piece, raw: msgspec.Raw, blobs: Blobs, *, is_result: bool) -> Block:
    match piece.type:
        case "text" if is_result:
            return ToolResultRaw(text=piece.text)
        case "text":
            return Text(text=piece.text)
        case "thinking":
            return Thought(text=piece.thinking, opaque=raw_text(raw))
        case "redacted_thinking":
            return Thought(text="", opaque=raw_text(raw))
        case "tool_use":
            return ToolCall(call_id=piece.id, name=piece.name, arguments=raw_text(piece.input))
        case "image" if piece.source and piece.source.type == "base64":
            return image(blobs, piece.source.media_type, piece.source.data)
        case "image" if piece.source and piece.source.url:
            return Image(media_type=piece.source.media_type, url=piece.source.url)
        case _:
            return Opaque(kind=piece.type or "malformed", raw=raw_text(raw))
