"""The OpenAI Chat Completions API, as OpenAI and every server that calls itself compatible speak it.

A segment of the body is one group: a reply, or the results of a batch and what follows them, each of which is a message
of its own here, joined by commas. Content is a plain string wherever it can be: servers that run a model's own chat
template often take nothing else, and often only one system message, so a head's sections are the inside of one string.
Pictures make a list of it, and those of a tool's result follow in a user message, since results hold text only.

What a server showed of a model's reasoning goes back as the fields it came in (`reasoning_content`,
`reasoning_details`, …), to that provider and model only: DeepSeek and OpenRouter want it back, others never send any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby

from transom.adapters.provider_api import Api
from transom.adapters.provider_openai_chat_reply import ChatReader
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
from transom.core.block import Image, Opaque, Thought, ToolCall
from transom.core.state import Head, Item
from transom.core.wire import Dialect, Segment
from transom.ports import Outgoing

__all__ = ["api", "dialect"]

_OWNED = frozenset(
    {
        *("model", "max_tokens", "max_completion_tokens", "tools", "messages", "tool_choice", "stream"),
        *("stream_options", "n", "prompt_cache_key"),
    }
)
_KEYED = frozenset({"response_format"})
"""An output schema stands before the system message in what is cached (prompt caching guide, 2026)."""


def api(*, reach: Reach, params: str = "", is_streamed: bool = True, is_openai: bool = False) -> Api:
    """The API with a user's own request fields (a JSON object). `is_openai`: OpenAI itself, which has its own name for
    the output limit and takes a key that keeps a session at one cache; compatible servers may refuse both."""
    extra = extra_fields(params, _OWNED)
    return Api(
        dialect=dialect(reach, extra),
        path="/chat/completions",
        headers=_headers,
        body=partial(_body, extra, is_streamed, is_openai),
        reader=partial(ChatReader, reach.origin),
    )


def dialect(reach: Reach, extra: Mapping[str, bytes] | None = None) -> Dialect:
    held = keyed(reach, extra or {}, _KEYED)
    return Dialect(name="openai_chat", head=_head, message=partial(_message, reach), tail=_tail, keyed=held)


def _headers(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}


def _head(head: Head) -> tuple[Segment, ...]:
    found = []
    for tool in head.tools:
        data = b'{"type":"function","function":{"name":%b,"description":%b,"parameters":%b}}' % (
            string(tool.name),
            string(tool.description),
            raw_object(tool.schema) or b'{"type":"object"}',
        )
        found.append(Segment(name=f"tools:{tool.name}", data=data))
    found.extend(Segment(name=f"system:{one.key}", data=string(one.text)[1:-1]) for one in head.sections)
    return tuple(found)


def _message(reach: Reach, group: Sequence[Item]) -> bytes:
    if group[0].role == "assistant":
        return b",".join(data for item in group if (data := _reply(reach, item)))
    results = [_result(reach, item) for item in group if item.role == "tool"]
    return b",".join([*results, *_spoken(reach, group)])


def _reply(reach: Reach, item: Item) -> bytes:
    """One assistant message; text that stood between calls is joined, since the API has one place for it."""
    texts = [text for block in item.blocks if (text := word_text(item, block, reach))]
    calls = [_call(reach, block) for block in item.blocks if isinstance(block, ToolCall)]
    kept = [block for block in item.blocks if isinstance(block, Opaque) and reach.carries(block)]
    calls.extend(data for block in kept if block.kind == "tool_call" and (data := raw_object(block.raw)))
    if not texts and not calls:
        return b""
    fields = {"role": b'"assistant"', "content": string("\n\n".join(texts)) if texts else b"null"}
    data = written_object(fields | ({"tool_calls": b"[%b]" % b",".join(calls)} if calls else {}))
    for block in item.blocks:
        if isinstance(block, Thought) and reach.carries(block) and (reasoned := raw_object(block.opaque)[1:-1].strip()):
            data = data[:-1] + b"," + reasoned + b"}"
    return data


def _call(reach: Reach, block: ToolCall) -> bytes:
    return b'{"id":%b,"type":"function","function":{"name":%b,"arguments":%b}}' % (
        string(reach.call_id(block.call_id)),
        string(block.name),
        string(input_object(block.arguments).decode()),
    )


def _result(reach: Reach, item: Item) -> bytes:
    texts = [text for block in item.blocks if (text := word_text(item, block, reach))]
    return b'{"role":"tool","tool_call_id":%b,"content":%b}' % (
        string(reach.call_id(item.call_id)),
        string("\n".join(texts)),
    )


def _spoken(reach: Reach, group: Sequence[Item]) -> Iterator[bytes]:
    for is_system, items in groupby(group, reach.is_system):
        if not is_system:
            words = _user(reach, list(items))
            if words:
                yield words
            continue
        texts = [text for item in items for block in item.blocks if (text := word_text(item, block, reach))]
        yield b'{"role":%b,"content":%b}' % (string(reach.system_role), string("\n\n".join(texts)))


def _user(reach: Reach, group: Sequence[Item]) -> bytes:
    """What is no result, and the pictures of the results, as one user message."""
    found = list(_words_and_pictures(reach, group))
    if not found:
        return b""
    if all(isinstance(one, str) for one in found):
        content = string("\n\n".join(one for one in found if isinstance(one, str)))
    else:
        content = b"[%b]" % b",".join(_content(one) for one in found)
    return b'{"role":"user","content":%b}' % content


def _words_and_pictures(reach: Reach, group: Sequence[Item]) -> Iterator[str | bytes]:
    for item in group:
        for block in item.blocks:
            if isinstance(block, Image):
                yield reach.picture_url(block)
            elif item.role != "tool" and (text := word_text(item, block, reach)):
                yield text


def _content(one: str | bytes) -> bytes:
    if isinstance(one, str):
        return b'{"type":"text","text":%b}' % string(one)
    return b'{"type":"image_url","image_url":{"url":%b}}' % one


def _tail(text: str) -> bytes:
    return b'{"role":"user","content":%b}' % string(text)


def _body(extra: dict[str, bytes], is_streamed: bool, is_openai: bool, request: Outgoing) -> bytes:
    wire = request.wire
    limit = "max_completion_tokens" if is_openai else "max_tokens"
    fields = {"model": string(request.model), limit: b"%d" % request.max_output_tokens, **extra}
    if is_openai and wire.messages:
        fields["prompt_cache_key"] = b'"%b"' % wire.rolling[1].hex()[:32].encode()
    if tools := offered_tools(request):
        fields["tools"] = written_array(tools)
    if request.forced_tool:
        fields["tool_choice"] = b'{"type":"function","function":{"name":%b}}' % string(request.forced_tool)
    system = system_text(request)
    opening = [b'{"role":"system","content":%b}' % system] if system else []
    messages = [*opening, *wire.body[: wire.messages], *([wire.tail] if wire.tail else [])]
    fields["messages"] = written_array(messages)
    if is_streamed:
        fields["stream"] = b"true"
        fields["stream_options"] = b'{"include_usage":true}'
    return written_object(fields)
