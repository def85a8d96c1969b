"""The OpenAI Responses API: a request is a list of items, nothing is stored at the provider.

A segment of the body is one group, each block of it an item, joined by commas. A reply's reasoning goes back as the
item it came as, encrypted, to the provider and model it came from; one that holds nothing but an id would be looked up
in a store that is not kept, so it is left out. Words and calls are written without ids, so that the API checks no
pairing with reasoning that a prune took away.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby

import msgspec

from transom.adapters.provider_api import Api
from transom.adapters.provider_openai_responses_reply import ResponsesReader
from transom.adapters.provider_writing import (
    Reach,
    extra_fields,
    input_object,
    keyed,
    offered_tools,
    raw_object,
    string,
    system_text,
    word_text,
    written_array,
    written_object,
)
from transom.core.block import Block, Image, Opaque, Thought, ToolCall
from transom.core.state import Head, Item
from transom.core.wire import Dialect, Segment
from transom.ports import Outgoing

__all__ = ["api", "dialect"]

_OWNED = frozenset(
    {
        *("model", "max_output_tokens", "tools", "instructions", "input", "tool_choice", "stream", "store", "include"),
        *("prompt_cache_key", "previous_response_id"),
    }
)
_KEYED = frozenset({"text"})
"""An output schema stands before the system message in what is cached (prompt caching guide, 2026)."""


class _Reasoning(msgspec.Struct):
    encrypted_content: str | None = None
    content: list[msgspec.Raw] | None = None


_REASONING = msgspec.json.Decoder(_Reasoning)


def api(*, reach: Reach, params: str = "", is_streamed: bool = True) -> Api:
    """The API with a user's own request fields (a JSON object: `reasoning`, `text`, …)."""
    extra = extra_fields(params, _OWNED)
    return Api(
        dialect=dialect(reach, extra),
        path="/responses",
        headers=_headers,
        body=partial(_body, extra, is_streamed),
        reader=partial(ResponsesReader, reach.origin),
    )


def dialect(reach: Reach, extra: Mapping[str, bytes] | None = None) -> Dialect:
    held = keyed(reach, extra or {}, _KEYED)
    return Dialect(name="openai_responses", head=_head, message=partial(_message, reach), tail=_tail, keyed=held)


def _headers(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def _head(head: Head) -> tuple[Segment, ...]:
    found = []
    for tool in head.tools:
        data = b'{"type":"function","name":%b,"description":%b,"parameters":%b,"strict":false}' % (
            string(tool.name),
            string(tool.description),
            raw_object(tool.schema) or b'{"type":"object"}',
        )
        found.append(Segment(name=f"tools:{tool.name}", data=data))
    found.extend(Segment(name=f"system:{one.key}", data=string(one.text)[1:-1]) for one in head.sections)
    return tuple(found)


def _message(reach: Reach, group: Sequence[Item]) -> bytes:
    if group[0].role == "assistant":
        return b",".join(data for item in group for block in item.blocks if (data := _said(reach, item, block)))
    results = [_result(reach, item) for item in group if item.role == "tool"]
    return b",".join([*results, *_spoken(reach, (item for item in group if item.role != "tool"))])


def _spoken(reach: Reach, items: Iterable[Item]) -> Iterator[bytes]:
    for is_system, found in groupby(items, reach.is_system):
        contents = [data for item in found for data in _contents(reach, item)]
        role = reach.system_role if is_system else "user"
        if contents:
            yield b'{"type":"message","role":%b,"content":[%b]}' % (string(role), b",".join(contents))


def _said(reach: Reach, item: Item, block: Block) -> bytes:
    match block:
        case ToolCall():
            return b'{"type":"function_call","call_id":%b,"name":%b,"arguments":%b}' % (
                string(reach.call_id(block.call_id)),
                string(block.name),
                string(input_object(block.arguments).decode()),
            )
        case Thought():
            return _thought(reach, block)
        case Opaque():
            return raw_object(block.raw) if reach.carries(block) else b""
        case _:
            text = word_text(item, block, reach)
            return b'{"type":"message","role":"assistant","content":%b}' % string(text) if text else b""


def _thought(reach: Reach, block: Thought) -> bytes:
    data = raw_object(block.opaque) if reach.carries(block) else b""
    if not data:
        return b""
    try:
        item = _REASONING.decode(data)
    except msgspec.DecodeError:
        return data  # of a shape that is not known here; whoever made it may know it
    return data if item.encrypted_content or item.content else b""


def _result(reach: Reach, item: Item) -> bytes:
    """A string where it is words only, else the list that may hold pictures."""
    if any(isinstance(block, Image) for block in item.blocks):
        output = b"[%b]" % b",".join(_contents(reach, item))
    else:
        output = string("\n".join(text for block in item.blocks if (text := word_text(item, block, reach))))
    return b'{"type":"function_call_output","call_id":%b,"output":%b}' % (string(reach.call_id(item.call_id)), output)


def _contents(reach: Reach, item: Item) -> Iterator[bytes]:
    for block in item.blocks:
        if isinstance(block, Image):
            yield b'{"type":"input_image","detail":"auto","image_url":%b}' % reach.picture_url(block)
        elif text := word_text(item, block, reach):
            yield b'{"type":"input_text","text":%b}' % string(text)


def _tail(text: str) -> bytes:
    return b'{"type":"message","role":"user","content":[{"type":"input_text","text":%b}]}' % string(text)


def _body(extra: dict[str, bytes], is_streamed: bool, request: Outgoing) -> bytes:
    wire = request.wire
    fields = {"model": string(request.model), "max_output_tokens": b"%d" % request.max_output_tokens, **extra}
    fields["store"] = b"false"
    fields["include"] = b'["reasoning.encrypted_content"]'
    if wire.messages:
        # The first message stands in every window, so every window of a session is sent to the same cache.
        fields["prompt_cache_key"] = b'"%b"' % wire.rolling[1].hex()[:32].encode()
    if tools := offered_tools(request):
        fields["tools"] = written_array(tools)
    if request.forced_tool:
        fields["tool_choice"] = b'{"type":"function","name":%b}' % string(request.forced_tool)
    if system := system_text(request):
        fields["instructions"] = system
    fields["input"] = written_array([*wire.body[: wire.messages], *([wire.tail] if wire.tail else [])])
    if is_streamed:
        fields["stream"] = b"true"
    return written_object(fields)
