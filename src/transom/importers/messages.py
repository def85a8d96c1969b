"""Messages as the chat APIs write them: OpenAI's and Anthropic's shapes, and what agents add to them.

Agents that keep their history as API messages (mini-swe-agent, SWE-agent, Inspect, OpenHands, plain arrays) share these
shapes. Content whose shape is not known stays whole as an `Opaque` block, so a message is never lost for it. Each
message is decoded on its own from the raw bytes of its document, so one odd message leaves the others readable.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import TypeVar

import msgspec

from transom.core.block import Block, Image, Opaque, Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import Fact, Tool, Usage
from transom.importers.draft import Said
from transom.importers.fields import ABSENT, image, raw_text, read
from transom.ports import Blobs

__all__ = [
    "Message",
    "Scribe",
    "call_blocks",
    "catalogue",
    "content_blocks",
    "is_absent",
    "micro_dollars",
    "read_nested",
    "reply_blocks",
    "result_blocks",
    "seconds_ms",
    "session_key",
    "text_or_raw",
    "usage_of",
]

T = TypeVar("T")

_REPLY = re.compile(rb'"role"\s*:\s*"assistant"')
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,")


class _Url(msgspec.Struct):
    url: str = ""


class _Source(msgspec.Struct):
    type: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""


class _Content(msgspec.Struct):
    type: str = ""
    text: str = ""
    thinking: str = ""
    reasoning: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    image_url: _Url | str = ""
    image: str = ""
    source: _Source | None = None


class _Function(msgspec.Struct):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b'""')


class _Call(msgspec.Struct):
    """OpenAI nests name and arguments under `function`, Inspect and newer OpenHands do not."""

    id: str = ""
    function: _Function | str | None = None
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b'""')


class Message(msgspec.Struct):
    role: str = ""
    content: str | list[msgspec.Raw] | None = None
    tool_calls: list[msgspec.Raw] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning_content: str | None = None
    thinking_blocks: list[msgspec.Raw] | None = None
    function_call: msgspec.Raw = ABSENT


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _CompletionDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _CacheCreation(msgspec.Struct):
    ephemeral_1h_input_tokens: int | None = None


class _ChatUsage(msgspec.Struct):
    """Usage of one call by OpenAI, DeepSeek or LiteLLM (`prompt_tokens`: all of the prompt), or by Anthropic
    (`input_tokens`: what was neither read from the cache nor written to it)."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_creation: _CacheCreation | None = None


class _FunctionTool(msgspec.Struct):
    name: str = ""
    description: str | None = ""
    parameters: msgspec.Raw = msgspec.Raw(b"{}")
    input_schema: msgspec.Raw = ABSENT
    function: _FunctionTool | None = None


_CONTENT = msgspec.json.Decoder(_Content)
_CALL = msgspec.json.Decoder(_Call)
_FUNCTION = msgspec.json.Decoder(_Function)
_TOOL = msgspec.json.Decoder(_FunctionTool)
_STRING = msgspec.json.Decoder(str)
_USAGE = msgspec.json.Decoder(_ChatUsage)


class Scribe:
    """Says facts of one session, each under a uuid that nothing else in it has."""

    def __init__(self, session: str) -> None:
        self.session = session
        self._taken: dict[str, int] = {}

    def name(self, uuid: str) -> str:
        """`uuid`, with `.1`, `.2`, … for the second and later uses of it."""
        used = self._taken.get(uuid)
        if used is None:
            self._taken[uuid] = 0
            return uuid
        self._taken[uuid] = used + 1
        return self.name(f"{uuid}.{used + 1}")

    def say(self, fact: Fact, uuid: str, at: int = 0) -> Said:
        return Said(session=self.session, uuid=self.name(uuid), at=at, fact=fact)


def is_absent(raw: msgspec.Raw) -> bool:
    """Whether a raw field is missing or null."""
    return bytes(raw) == b"null"


def read_nested(raw: msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T | None:
    """The decoded value, also where it stands as JSON inside a string."""
    text = read(raw, _STRING)
    return read(raw if text is None else text.encode("utf-8", "replace"), decoder)


def session_key(label: str, messages: Iterable[msgspec.Raw | bytes]) -> str:
    """A key for a source that names no session: its label and a digest of its messages through the first reply, which
    growth leaves alone and another run of the same task does not share."""
    digest = sha256()
    for raw in messages:
        digest.update(raw)
        if _REPLY.search(raw):
            break
    return f"{label}-{digest.hexdigest()[:12]}"


def seconds_ms(seconds: float | None) -> int:
    """Seconds since the epoch as ms; 0 if absent or no time."""
    return round(seconds * 1000) if seconds is not None and 0 < seconds < 1e11 else 0


def micro_dollars(dollars: float | None) -> int:
    """Dollars as micro-dollars; -1 if not reported."""
    return round(dollars * 1e6) if dollars is not None and math.isfinite(dollars) and dollars >= 0 else -1


def usage_of(raw: msgspec.Raw, cost: float | None = None) -> Usage | None:
    """The provider's figures split as `Usage` says; None if there are none, or of another shape."""
    reported = read(raw, _USAGE)
    if reported is None:
        return None
    details = reported.prompt_tokens_details
    detailed = details.cached_tokens if details is not None else None
    cached = _first(reported.cache_read_input_tokens, reported.prompt_cache_hit_tokens, detailed)
    written = _first(reported.cache_creation_input_tokens)
    if reported.prompt_tokens is not None:
        uncached, output = reported.prompt_tokens - cached - written, _first(reported.completion_tokens)
    elif reported.input_tokens is not None:
        uncached, output = reported.input_tokens, _first(reported.output_tokens)
    else:
        return None
    hour = reported.cache_creation.ephemeral_1h_input_tokens if reported.cache_creation is not None else None
    completion = reported.completion_tokens_details
    reasoning = completion.reasoning_tokens if completion is not None else None
    return Usage(
        uncached=max(uncached, 0),
        cached=cached,
        written=written,
        written_1h=min(_first(hour), written),
        output=output,
        reasoning=-1 if reasoning is None else max(reasoning, 0),
        cost_microusd=micro_dollars(cost),
    )


def _first(*figures: int | None) -> int:
    """The first figure that was reported and is not zero; a negative one counts as none."""
    return next((figure for figure in figures if figure is not None and figure > 0), 0)


def text_or_raw(raw: msgspec.Raw) -> str:
    """The text of a JSON string, the JSON itself of anything else; nothing for null."""
    written = bytes(raw).strip()
    if written.startswith(b'"'):
        text = read(written, _STRING)
        if text is not None:
            return text
    return "" if written == b"null" else raw_text(written)


def content_blocks(content: str | list[msgspec.Raw] | None, blobs: Blobs) -> tuple[Block, ...]:
    """Blocks of a message's content, in its order; empty text is left out."""
    if isinstance(content, str):
        return (Text(text=content),) if content else ()
    blocks = (_content_block(raw, blobs) for raw in content or ())
    return tuple(block for block in blocks if not (isinstance(block, Text) and not block.text))


def result_blocks(content: str | list[msgspec.Raw] | None, blobs: Blobs) -> tuple[Block, ...]:
    """Blocks of a tool's result; a result without a word is one empty block."""
    blocks = tuple(
        ToolResultRaw(text=block.text) if isinstance(block, Text) else block for block in content_blocks(content, blobs)
    )
    return blocks or (ToolResultRaw(text=""),)


def reply_blocks(message: Message, blobs: Blobs, uuid: str) -> tuple[Block, ...]:
    """Blocks of a model's message: thoughts, content, calls. `uuid` names calls that have no id."""
    thoughts: tuple[Block, ...] = content_blocks(message.thinking_blocks, blobs)
    if not thoughts and message.reasoning_content:
        thoughts = (Thought(text=message.reasoning_content),)
    calls = call_blocks(message.tool_calls or (), uuid)
    if not is_absent(message.function_call) and not calls:
        called = read(message.function_call, _FUNCTION)
        if called is not None and called.name:
            calls = (ToolCall(call_id=f"{uuid}.call", name=called.name, arguments=text_or_raw(called.arguments)),)
    return thoughts + content_blocks(message.content, blobs) + calls


def call_blocks(calls: Iterable[msgspec.Raw], uuid: str) -> tuple[Block, ...]:
    """A message's calls; one of unknown shape is an `Opaque` block."""
    return tuple(_call_block(raw, f"{uuid}.call{number}") for number, raw in enumerate(calls, 1))


def catalogue(tools: Iterable[msgspec.Raw]) -> tuple[Tool, ...]:
    """The tools of a request, whichever API it was for; one without a name (the provider's own) by its raw JSON."""
    return tuple(_tool(raw) for raw in tools)


def _call_block(raw: msgspec.Raw, fallback_id: str) -> Block:
    call = read(raw, _CALL)
    if call is None:
        return Opaque(kind="tool_call", raw=raw_text(raw))
    inner = call.function
    if isinstance(inner, _Function):
        name, arguments = inner.name, inner.arguments
    else:
        name, arguments = inner or call.name, call.arguments
    return ToolCall(call_id=call.id or fallback_id, name=name, arguments=text_or_raw(arguments))


def _tool(raw: msgspec.Raw) -> Tool:
    tool = read(raw, _TOOL)
    inner = tool if tool is None or tool.function is None else tool.function
    if inner is None or not inner.name:
        return Tool(name="", schema=raw_text(raw))
    schema = inner.parameters if is_absent(inner.input_schema) else inner.input_schema
    return Tool(name=inner.name, description=inner.description or "", schema=raw_text(schema))


def _content_block(raw: msgspec.Raw, blobs: Blobs) -> Block:
    content = read(raw, _CONTENT)
    if content is None:
        return Opaque(kind="content", raw=raw_text(raw))
    match content.type:
        case "text" | "input_text" | "output_text":
            return Text(text=content.text)
        case "thinking" | "redacted_thinking":
            return Thought(text=content.thinking, opaque=raw_text(raw))
        case "reasoning":
            return Thought(text=content.reasoning, opaque=raw_text(raw))
        case "tool_use":
            return ToolCall(call_id=content.id, name=content.name, arguments=raw_text(content.input))
        case "image_url" | "image":
            return _picture(content, raw, blobs)
        case _:
            return Opaque(kind=content.type, raw=raw_text(raw))


def _picture(content: _Content, raw: msgspec.Raw, blobs: Blobs) -> Block:
    if content.source is not None and content.source.data:
        return image(blobs, content.source.media_type, content.source.data)
    url = content.image_url.url if isinstance(content.image_url, _Url) else content.image_url
    if content.source is not None:
        url = content.source.url
    url = url or content.image
    data = _DATA_URL.match(url)
    if data is not None:
        return image(blobs, data[1], url[data.end() :])
    return Image(media_type="image/*", url=url) if url else Opaque(kind=content.type, raw=raw_text(raw))
