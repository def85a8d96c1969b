"""The Anthropic Messages dialect: heads, messages and tails as the bytes that go on the wire.

Rendering only; cache marks are placed by the sender and are not part of the digested bytes. Results of one batch
and what follows them before the next reply form one user message, results first, as the API demands. Text that
imitates the host's own tags inside tool output is escaped (design 6.4).
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from transom.core.block import Block, Image, Opaque, Text, Thought, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.canon import plain_text
from transom.core.state import Head, Item
from transom.core.wire import Dialect, Segment

__all__ = ["DIALECT", "escape_tags"]

_ENCODER = msgspec.json.Encoder()
_TAGS = ("<handoff>", "</handoff>", "<related_files>", "</related_files>")


def escape_tags(text: str) -> str:
    """The text with look-alikes of the host's own tags made harmless: what a tool printed is never a handoff."""
    if "handoff>" not in text and "related_files>" not in text:
        return text
    for tag in _TAGS:
        text = text.replace(tag, tag.replace("<", "&lt;"))
    return text


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
            tool.schema.encode("utf-8", "replace"),
        )
        found.append(Segment(name=f"tools:{tool.name}", data=data))
    for section in head.sections:
        found.append(Segment(name=f"system:{section.key}", data=_text(section.text)))
    return tuple(found)


def _text(text: str) -> bytes:
    return b'{"type":"text","text":%b}' % _string(text)


def _message(group: Sequence[Item]) -> bytes:
    if group[0].role == "assistant":
        shown = [data for item in group for block in item.blocks if (data := _block(block))]
        return b'{"role":"assistant","content":[%b]}' % b",".join(shown) if shown else b""
    results = [_result(item) for item in group if item.role == "tool"]
    words = [data for item in group if item.role != "tool" for block in item.blocks if (data := _block(block))]
    shown = results + words
    return b'{"role":"user","content":[%b]}' % b",".join(shown) if shown else b""


def _result(item: Item) -> bytes:
    content = b",".join(data for block in item.blocks if (data := _block(block)))
    error = b',"is_error":true' if item.is_error else b""
    return b'{"type":"tool_result","tool_use_id":%b,"content":[%b]%b}' % (_string(item.call_id), content, error)


def _block(block: Block) -> bytes:
    match block:
        case Text():
            return _text(block.text) if block.text else b""
        case ToolResultRaw() | ToolResultRef():
            return _text(escape_tags(block.text)) if block.text else b""
        case ToolCall():
            return b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % (
                _string(block.call_id),
                _string(block.name),
                _input(block.arguments),
            )
        case Thought():
            if block.opaque.startswith("{"):
                return block.opaque.encode("utf-8", "replace")
            return b'{"type":"thinking","thinking":%b}' % _string(block.text) if block.text else b""
        case Image():
            source = block.url or f"artifact:{block.artifact_id}"
            return b'{"type":"image","source":{"type":"url","url":%b}}' % _string(source)
        case Opaque():
            return block.raw.encode("utf-8", "replace")


def _input(arguments: str) -> bytes:
    """Arguments are an object on this wire; what a model wrote that is none is carried as one string."""
    if arguments.startswith("{"):
        return arguments.encode("utf-8", "replace")
    return b'{"input":%b}' % _string(arguments)


def _tail(text: str) -> bytes:
    return b'{"role":"user","content":[%b]}' % _text(text)


DIALECT = Dialect(name="anthropic", head=_head, message=_message, tail=_tail)
