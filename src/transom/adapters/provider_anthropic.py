"""The Anthropic Messages API: heads, messages and tails as the bytes that go on the wire, and the request around them.

Results of one batch and what follows them before the next reply form one user message, results first, as the API
demands. A reply's thoughts go back as the signed items they came as; without a signature of this provider and model
they are not shown, since the API refuses them.

Cache marks are not part of the digested bytes: they are set into a copy when a request is sent, where the kernel says
(`core.breakpoints`); a message whose last block takes none (a thought, or what has its own) leaves its to the one
before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import assert_never

import msgspec

from transom.adapters.provider_anthropic_reply import AnthropicReader
from transom.adapters.provider_api import Api
from transom.adapters.provider_writing import (
    Reach,
    extra_fields,
    input_object,
    keyed,
    offered_tools,
    raw_object,
    string,
    word_text,
    written_array,
    written_object,
)
from transom.core.block import Block, Image, Opaque, Text, Thought, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.breakpoints import breakpoints
from transom.core.state import Head, Item
from transom.core.wire import Dialect, Segment
from transom.ports import Outgoing

__all__ = ["DIALECT", "MARKABLE", "api", "dialect"]

_MARK = b',"cache_control":{"type":"ephemeral"}'
MARKABLE = frozenset({"text", "image", "tool_use", "tool_result"})
"""Blocks that take a cache mark."""
_OWNED = frozenset({"model", "max_tokens", "tools", "system", "messages", "tool_choice", "stream"})
_KEYED = frozenset({"thinking", "speed"})
"""Request fields that the messages, or all behind the tools, are cached under (prompt caching page, July 2026)."""
_VERSION = "2023-06-01"


class _Marked(msgspec.Struct):
    type: str = ""
    cache_control: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Contents(msgspec.Struct):
    content: list[_Marked] = []


_CONTENTS = msgspec.json.Decoder(_Contents)


def api(*, reach: Reach, params: str = "", is_streamed: bool = True) -> Api:
    """The API with a user's own request fields (a JSON object: `thinking`, `temperature`, …)."""
    extra = extra_fields(params, _OWNED)
    return Api(
        dialect=dialect(reach, extra),
        path="/v1/messages",
        headers=_headers,
        body=partial(_body, extra, is_streamed),
        reader=partial(AnthropicReader, reach.origin),
    )


def dialect(reach: Reach, extra: Mapping[str, bytes] | None = None) -> Dialect:
    held = keyed(reach, extra or {}, _KEYED)
    return Dialect(name="anthropic", head=_head, message=partial(_message, reach), tail=_tail, keyed=held)


def _headers(key: str) -> dict[str, str]:
    return {"x-api-key": key, "anthropic-version": _VERSION} if key else {"anthropic-version": _VERSION}


def _head(head: Head) -> tuple[Segment, ...]:
    found = []
    for tool in head.tools:
        data = b'{"name":%b,"description":%b,"input_schema":%b}' % (
            string(tool.name),
            string(tool.description),
            raw_object(tool.schema) or b'{"type":"object"}',
        )
        found.append(Segment(name=f"tools:{tool.name}", data=data))
    found.extend(Segment(name=f"system:{section.key}", data=_text(section.text)) for section in head.sections)
    return tuple(found)


def _text(text: str) -> bytes:
    return b'{"type":"text","text":%b}' % string(text)


def _message(reach: Reach, group: Sequence[Item]) -> bytes:
    if group[0].role == "assistant":
        shown = [data for item in group for block in item.blocks if (data := _block(reach, item, block))]
        return b'{"role":"assistant","content":[%b]}' % b",".join(shown) if shown else b""
    results = [_result(reach, item) for item in group if item.role == "tool"]
    spoken = [item for item in group if item.role != "tool"]
    words = [data for item in spoken for block in item.blocks if (data := _block(reach, item, block))]
    shown = results + words
    return b'{"role":"user","content":[%b]}' % b",".join(shown) if shown else b""


def _result(reach: Reach, item: Item) -> bytes:
    content = b",".join(data for block in item.blocks if (data := _block(reach, item, block)))
    error = b',"is_error":true' if item.is_error else b""
    call_id = string(reach.call_id(item.call_id))
    return b'{"type":"tool_result","tool_use_id":%b,"content":[%b]%b}' % (call_id, content, error)


def _block(reach: Reach, item: Item, block: Block) -> bytes:
    match block:
        case Text() | ToolResultRaw() | ToolResultRef():
            return _words(word_text(item, block, reach))
        case ToolCall():
            return b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % (
                string(reach.call_id(block.call_id)),
                string(block.name),
                input_object(block.arguments),
            )
        case Thought():
            return _thought(reach, block)
        case Image():
            data, url = reach.picture(block)
            if data:
                source = b'{"type":"base64","media_type":%b,"data":"%b"}' % (string(block.media_type), data)
            else:
                source = b'{"type":"url","url":%b}' % string(url)
            return b'{"type":"image","source":%b}' % source
        case Opaque():
            if not reach.carries(block):
                return _words(word_text(item, block, reach))
            return raw_object(block.raw) or _words(block.raw)
        case _:
            assert_never(block)


def _thought(reach: Reach, block: Thought) -> bytes:
    if not reach.carries(block):
        return b""
    signed = raw_object(block.opaque)
    if signed or reach.origin or not block.text:
        return signed
    return b'{"type":"thinking","thinking":%b}' % string(block.text)


def _words(text: str) -> bytes:
    return _text(text) if text and not text.isspace() else b""


def _tail(text: str) -> bytes:
    return b'{"role":"user","content":[%b]}' % _text(text)


def _body(extra: dict[str, bytes], is_streamed: bool, request: Outgoing) -> bytes:
    wire = request.wire
    tools = offered_tools(request)
    system = [one.data for one in wire.head if one.name.startswith("system:")]
    marks = breakpoints(wire, request.kept)
    if 0 in marks:
        _mark_head(system or tools)
    messages = [*_mark_body(list(wire.body[: wire.messages]), marks), *([wire.tail] if wire.tail else [])]
    fields = {"model": string(request.model), "max_tokens": b"%d" % request.max_output_tokens, **extra}
    if tools:
        fields["tools"] = written_array(tools)
    if request.forced_tool:
        fields.pop("thinking", None)  # the API refuses a forced tool beside it
        fields["tool_choice"] = b'{"type":"tool","name":%b}' % string(request.forced_tool)
    if system:
        fields["system"] = written_array(system)
    fields["messages"] = written_array(messages)
    if is_streamed:
        fields["stream"] = b"true"
    return written_object(fields)


def _mark_head(segments: list[bytes]) -> None:
    if segments:
        segments[-1] = segments[-1][:-1] + _MARK + b"}"


def _mark_body(messages: list[bytes], places: Iterable[int]) -> list[bytes]:
    """The messages with a mark behind each of the first so many of them."""
    for place in {_markable(messages, place) for place in places} - {-1}:
        messages[place] = messages[place][:-3] + _MARK + b"}]}"
    return messages


def _markable(messages: list[bytes], end: int) -> int:
    """The last of the first `end` messages that takes a mark; -1 if none does."""
    return next((place for place in reversed(range(end)) if _takes_mark(messages[place])), -1)


def _takes_mark(message: bytes) -> bool:
    """Whether the last block may carry one: rendered by us, of a kind that may, and without a mark of its own."""
    last = _CONTENTS.decode(message).content[-1]
    return last.type in MARKABLE and last.cache_control is msgspec.UNSET and message.endswith(b"}]}")


DIALECT = dialect(Reach())
"""For replays: nothing is sent, so whatever stands in the log is shown."""
