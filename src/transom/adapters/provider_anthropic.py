"""The Anthropic Messages dialect: heads, messages and tails as the bytes that go on the wire.

Rendering only; cache marks are placed by the sender and are not part of the digested bytes. Results of one batch
and what follows them before the next reply form one user message, results first, as the API demands. Text that
imitates the host's own tags inside tool output, or inside what a client injected, is escaped (design 6.4); a user's
words never are. Raw JSON (arguments, schemas, opaque items) is checked before it stands in a request: what is none is
carried as a string. The API refuses blocks of white space only; they are not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec

from transom.core.block import Block, Image, Opaque, Text, Thought, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.canon import plain_text
from transom.core.handoff import escape_tags
from transom.core.state import Head, Item
from transom.core.wire import Dialect, Segment

__all__ = ["DIALECT"]

_ENCODER = msgspec.json.Encoder()
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
"""Reads an object's keys and only walks over its values."""


def _encode(value: object) -> bytes:
    return _ENCODER.encode(value)


def _string(text: str) -> bytes:
    try:
        return _encode(text)
    except UnicodeEncodeError:
        return _encode(plain_text(text))  # the API accepts no lone surrogate


def _head(head: Head) -> tuple[Segment, ...]:
    found = []
    for tool in head.tools:
        data = b'{"name":%b,"description":%b,"input_schema":%b}' % (
            _string(tool.name),
            _string(tool.description),
            _object(tool.schema) or b'{"type":"object"}',
        )
        found.append(Segment(name=f"tools:{tool.name}", data=data))
    found.extend(Segment(name=f"system:{section.key}", data=_text(section.text)) for section in head.sections)
    return tuple(found)


def _text(text: str) -> bytes:
    return b'{"type":"text","text":%b}' % _string(text)


def _message(group: Sequence[Item]) -> bytes:
    if group[0].role == "assistant":
        shown = [data for item in group for block in item.blocks if (data := _block(block))]
        return b'{"role":"assistant","content":[%b]}' % b",".join(shown) if shown else b""
    results = [_result(item) for item in group if item.role == "tool"]
    words = [data for item in group if item.role != "tool" for block in item.blocks if (data := _word(item, block))]
    shown = results + words
    return b'{"role":"user","content":[%b]}' % b",".join(shown) if shown else b""


def _word(item: Item, block: Block) -> bytes:
    """A seed is the host's own text; what an event of the host holds may be a file or a command's output."""
    if isinstance(block, Text) and item.role == "host" and item.seq:
        return _words(escape_tags(block.text))
    return _block(block)


def _result(item: Item) -> bytes:
    content = b",".join(data for block in item.blocks if (data := _block(block)))
    error = b',"is_error":true' if item.is_error else b""
    return b'{"type":"tool_result","tool_use_id":%b,"content":[%b]%b}' % (_string(item.call_id), content, error)


def _block(block: Block) -> bytes:
    match block:
        case Text():
            return _words(block.text)
        case ToolResultRaw() | ToolResultRef():
            return _words(escape_tags(block.text))
        case ToolCall():
            return b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % (
                _string(block.call_id),
                _string(block.name),
                _input(block.arguments),
            )
        case Thought():
            return _object(block.opaque) or (
                b'{"type":"thinking","thinking":%b}' % _string(block.text) if block.text else b""
            )
        case Image():
            source = block.url or f"artifact:{block.artifact_id}"
            return b'{"type":"image","source":{"type":"url","url":%b}}' % _string(source)
        case Opaque():
            return _object(block.raw) or _words(block.raw)
        case _:
            assert_never(block)


def _words(text: str) -> bytes:
    return _text(text) if text and not text.isspace() else b""


def _input(arguments: str) -> bytes:
    """Arguments are an object on this wire; what a model wrote that is none is carried as one string."""
    return _object(arguments) or (b'{"input":%b}' % _string(arguments) if arguments.strip() else b"{}")


def _object(raw: str) -> bytes:
    """Raw text that is a JSON object, as it came; nothing if it is something else."""
    data = raw.encode("utf-8", "replace")
    try:
        _OBJECT.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return b""
    return data


def _tail(text: str) -> bytes:
    return b'{"role":"user","content":[%b]}' % _text(text)


DIALECT = Dialect(name="anthropic", head=_head, message=_message, tail=_tail)
