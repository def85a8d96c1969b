"""The lines of a Codex rollout, typed, and what one line says by itself.

`response_item` payloads are a closed union by their `type`; what is not in it, or of another shape, does not decode and
is kept raw by `codex`. Only fields that are used are named.
"""

from __future__ import annotations

import re

import msgspec

from transom.core.block import Block, Image, Opaque, Text, ToolResultRaw
from transom.core.event import Seed, Usage
from transom.importers.fields import image, raw_text
from transom.importers.mending import decode
from transom.ports import Blobs

__all__ = [
    "COMPACTED",
    "EVENT",
    "ITEM",
    "LINE",
    "META",
    "NEVER_RAN",
    "TURN",
    "Answer",
    "CompactedLine",
    "Content",
    "CustomCall",
    "CustomOutput",
    "Drawing",
    "EncryptedSummary",
    "FunctionCall",
    "Info",
    "Line",
    "Message",
    "Meta",
    "ModelItem",
    "Output",
    "Reasoning",
    "ResponseItem",
    "ScreenEvent",
    "ShellCall",
    "Snapshot",
    "Tokens",
    "ToolSearch",
    "ToolSearchOutput",
    "WebSearch",
    "content_block",
    "exit_code_of",
    "is_typed",
    "kind_of",
    "result_of",
    "seed_of",
    "spawner_of",
    "usage_of",
]

_INJECTED = re.compile(
    r"\s*(?:# AGENTS\.md instructions|<(?:environment_context|user_instructions|INSTRUCTIONS|turn_aborted|skill"
    r"|subagent_notification|user_shell_command|hook_prompt|goal_context)\b)"
)
_EXIT = re.compile(
    r"(?:Command: (?s:.*?)\n(?=Chunk ID: ))?(?:Chunk ID: .*\n)?(?:Wall time: .*\n)?"
    r"(?:Process exited with code|Exit code:) (-?\d+)"
)
NEVER_RAN = ("apply_patch verification failed", "exec_command failed", "collab spawn failed", "unsupported call")
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,")


class Line(msgspec.Struct):
    type: str
    payload: msgspec.Raw
    timestamp: str = ""


class Content(msgspec.Struct):
    type: str = ""
    text: str = ""
    image_url: str = ""


class Message(msgspec.Struct, tag="message"):
    role: str
    content: tuple[Content, ...] = ()


class Reasoning(msgspec.Struct, tag="reasoning"):
    summary: tuple[Content, ...] = ()
    content: tuple[Content, ...] | None = None


class FunctionCall(msgspec.Struct, tag="function_call"):
    name: str
    call_id: str
    arguments: str = ""
    namespace: str | None = None


class CustomCall(msgspec.Struct, tag="custom_tool_call"):
    name: str
    call_id: str
    input: str = ""


class ToolSearch(msgspec.Struct, tag="tool_search_call"):
    call_id: str | None
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class ShellCall(msgspec.Struct, tag="local_shell_call"):
    call_id: str | None
    action: msgspec.Raw = msgspec.Raw(b"{}")


class WebSearch(msgspec.Struct, tag="web_search_call"):
    pass


class Drawing(msgspec.Struct, tag="image_generation_call"):
    pass


class Output(msgspec.Struct, tag="function_call_output"):
    call_id: str
    output: str | tuple[Content, ...]


class CustomOutput(msgspec.Struct, tag="custom_tool_call_output"):
    call_id: str
    output: str | tuple[Content, ...]


class ToolSearchOutput(msgspec.Struct, tag="tool_search_output"):
    call_id: str | None
    tools: msgspec.Raw = msgspec.Raw(b"[]")


class Snapshot(msgspec.Struct, tag="ghost_snapshot"):
    """The state of the repository, for undo: never sent."""


class EncryptedSummary(msgspec.Struct, tag="compaction"):
    """An encrypted summary."""


Answer = Output | CustomOutput | ToolSearchOutput
ModelItem = Reasoning | FunctionCall | CustomCall | ToolSearch | ShellCall | WebSearch | Drawing
ResponseItem = Message | ModelItem | Answer | Snapshot | EncryptedSummary


class Tokens(msgspec.Struct, frozen=True):
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0
    total_tokens: int = 0


class Info(msgspec.Struct):
    total_token_usage: Tokens
    last_token_usage: Tokens
    model_context_window: int | None = None


class ScreenEvent(msgspec.Struct):
    type: str = "?"
    info: Info | None = None
    model_context_window: int | None = None
    num_turns: int = 0


class _Instructions(msgspec.Struct):
    text: str = ""


class _DynamicTool(msgspec.Struct):
    name: str
    description: str = ""
    schema: msgspec.Raw = msgspec.field(name="inputSchema", default=msgspec.Raw(b"{}"))


class _Spawn(msgspec.Struct):
    parent_thread_id: str = ""


class _SubAgent(msgspec.Struct):
    thread_spawn: _Spawn = msgspec.field(default_factory=_Spawn)


class _Source(msgspec.Struct):
    subagent: _SubAgent


class Meta(msgspec.Struct):
    id: str = ""
    cwd: str = ""
    cli_version: str = ""
    model_provider: str | None = None
    forked_from_id: str | None = None
    source: msgspec.Raw = msgspec.Raw(b"")
    base_instructions: _Instructions | None = None
    dynamic_tools: tuple[_DynamicTool, ...] | None = None


class Turn(msgspec.Struct):
    model: str = ""


class CompactedLine(msgspec.Struct):
    message: str = ""
    replacement_history: tuple[msgspec.Raw, ...] | None = None


class _Exit(msgspec.Struct):
    exit_code: int | None = None


class _Wrapped(msgspec.Struct):
    metadata: _Exit


class _Kind(msgspec.Struct):
    type: str = "?"


LINE = msgspec.json.Decoder(Line)
ITEM = msgspec.json.Decoder(ResponseItem)
EVENT = msgspec.json.Decoder(ScreenEvent)
META = msgspec.json.Decoder(Meta)
TURN = msgspec.json.Decoder(Turn)
COMPACTED = msgspec.json.Decoder(CompactedLine)
_WRAPPED = msgspec.json.Decoder(_Wrapped)
_SOURCE = msgspec.json.Decoder(_Source)
_KIND = msgspec.json.Decoder(_Kind)


def kind_of(payload: msgspec.Raw) -> str:
    try:
        return decode(bytes(payload), _KIND)[0].type
    except (msgspec.DecodeError, RecursionError):
        return "?"


def spawner_of(meta: Meta) -> str:
    """The thread whose sub-agent this is; empty for a thread a person started, or an unknown kind of source."""
    try:
        return _SOURCE.decode(meta.source).subagent.thread_spawn.parent_thread_id
    except (msgspec.DecodeError, RecursionError):
        return ""


def content_block(blobs: Blobs, content: Content, payload: msgspec.Raw) -> Block:
    if content.text or content.type in {"input_text", "output_text"}:
        return Text(text=content.text)
    if found := _DATA_URL.match(content.image_url):
        return image(blobs, found[1], content.image_url[found.end() :])
    if content.image_url:
        return Image(media_type="", url=content.image_url)
    return Opaque(kind=content.type, raw=raw_text(payload))


def result_of(blobs: Blobs, answer: Answer, payload: msgspec.Raw) -> tuple[str, tuple[Block, ...]]:
    """The text of a result (empty if it is not one text) and its blocks."""
    if isinstance(answer, ToolSearchOutput):
        return "", (ToolResultRaw(text=raw_text(answer.tools)),)
    if isinstance(answer.output, str):
        return answer.output, (ToolResultRaw(text=answer.output),)
    blocks = (content_block(blobs, content, payload) for content in answer.output)
    return "", tuple(ToolResultRaw(text=block.text) if isinstance(block, Text) else block for block in blocks)


def is_typed(block: Block) -> bool:
    return not (isinstance(block, Text) and _INJECTED.match(block.text))


def exit_code_of(text: str) -> int | None:
    """What the preamble of an output states; the first form wraps output and code in JSON."""
    if found := _EXIT.match(text):
        return int(found[1])
    if text.startswith('{"output":'):
        try:
            return _WRAPPED.decode(text).metadata.exit_code
        except (msgspec.DecodeError, UnicodeEncodeError):
            return None
    return None


def seed_of(blobs: Blobs, raw: msgspec.Raw) -> Seed:
    try:
        item: ResponseItem | None = decode(bytes(raw), ITEM)[0]
    except (msgspec.DecodeError, RecursionError):
        item = None
    if not isinstance(item, Message):
        return Seed(role="host", blocks=(Opaque(kind=kind_of(raw), raw=raw_text(raw)),))
    blocks = tuple(content_block(blobs, content, raw) for content in item.content)
    if item.role == "assistant":
        return Seed(role="assistant", blocks=blocks)
    is_user = item.role == "user" and any(map(is_typed, blocks))
    return Seed(role="user" if is_user else "host", blocks=blocks)


def usage_of(tokens: Tokens) -> Usage:
    cached = max(0, tokens.cached_input_tokens)
    return Usage(
        uncached=max(0, tokens.input_tokens - cached),
        cached=cached,
        output=max(0, tokens.output_tokens),
        reasoning=max(0, tokens.reasoning_output_tokens),
    )
