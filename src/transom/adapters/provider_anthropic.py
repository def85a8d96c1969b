"""The Anthropic Messages API: heads, messages and tails as the bytes that go on the wire, and the request around them.

Results of one batch and what follows them before the next reply form one user message, results first, as the API
demands. A reply's thoughts go back as the signed items they came as; without a signature of this provider and model
they are not shown, since the API refuses them.

Cache marks are not part of the digested bytes: they are set into a copy when a request is sent, at most four, on
    the head           the last section, or the last tool: what every window shares
    the first message  the pinned specification: what every window after a rollover still shares
    the last stable    where the request before this one ended, so that its cache is found however long the step was
    the moving end     the last message before the tail
A mark is set only on blocks that take one (no thoughts, nothing that has its own).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import assert_never

import msgspec

from transom.adapters.provider_anthropic_reply import AnthropicReader
from transom.adapters.provider_api import Api
from transom.adapters.provider_writing import (
    Reach,
    extra_fields,
    input_object,
    offered_tools,
    raw_object,
    string,
    wire_call_id,
    word_text,
    written_array,
    written_object,
)
from transom.core.block import Block, Image, Opaque, Text, Thought, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.state import Head, Item
from transom.core.wire import Dialect, Segment
from transom.ports import Outgoing

__all__ = ["DIALECT", "api", "dialect"]

_MARK = b',"cache_control":{"type":"ephemeral"}'
_MARKABLE = frozenset({"text", "image", "tool_use", "tool_result"})
_OWNED = frozenset({"model", "max_tokens", "tools", "system", "messages", "tool_choice", "stream"})
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
        dialect=dialect(reach),
        path="/v1/messages",
        headers=_headers,
        body=partial(_body, extra, is_streamed),
        reader=partial(AnthropicReader, reach.origin),
    )


def dialect(reach: Reach) -> Dialect:
    return Dialect(name="anthropic", head=_head, message=partial(_message, reach), tail=_tail)


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
    call_id = string(wire_call_id(item.call_id))
    return b'{"type":"tool_result","tool_use_id":%b,"content":[%b]%b}' % (call_id, content, error)


def _block(reach: Reach, item: Item, block: Block) -> bytes:
    match block:
        case Text() | ToolResultRaw() | ToolResultRef():
            return _words(word_text(item, block, reach))
        case ToolCall():
            return b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % (
                string(wire_call_id(block.call_id)),
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
    _mark_head(system or tools)
    messages = [*_mark_body(list(wire.body[: wire.messages])), *([wire.tail] if wire.tail else [])]
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


def _mark_body(messages: list[bytes]) -> list[bytes]:
    """The messages with marks on the first, the last stable and the last of them."""
    takes = _takers(messages)
    chosen = {next(takes, -1)}
    replied = next((place for place in reversed(range(len(messages))) if _is_reply(messages[place])), 0)
    chosen.add(next((place for place in _takers(messages, replied) if not _is_reply(messages[place])), -1))
    if messages and _takes_mark(messages[0]):
        chosen.add(0)
    for place in chosen - {-1}:
        messages[place] = messages[place][:-3] + _MARK + b"}]}"
    return messages


def _takers(messages: list[bytes], end: int | None = None) -> Iterator[int]:
    """Places before `end` whose message takes a mark, the last first."""
    places = range(len(messages) if end is None else end)
    return (place for place in reversed(places) if _takes_mark(messages[place]))


def _is_reply(message: bytes) -> bool:
    return message.startswith(b'{"role":"assistant"')


def _takes_mark(message: bytes) -> bool:
    """Whether the last block may carry one: rendered by us, of a kind that may, and without a mark of its own."""
    last = _CONTENTS.decode(message).content[-1]
    return last.type in _MARKABLE and last.cache_control is msgspec.UNSET and message.endswith(b"}]}")


DIALECT = dialect(Reach())
"""For replays: nothing is sent, so whatever stands in the log is shown."""
