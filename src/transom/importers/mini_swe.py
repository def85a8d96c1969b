"""mini-swe-agent trajectories: `messages` as the agent sent them, with what it knew beside each under `extra`.

1. The first user message is the task, rendered into the agent's template: it is the specification, so `UserSaid`.
   Later user messages without a command to answer come from the agent (format errors, limits): `HostSaid`.
2. Newer files have API calls and results. In older ones the command stands in a fenced block of the reply and the
   result is a user message: the block is the call, with its fence as the model wrote it, and the next user message its
   result. A reply with none or several blocks made no call: the agent refuses it.
3. `role: exit` was never sent: `Observed`, and `RequestFailed` if it was the provider that ended the run.
4. `extra.raw_output` repeats the result; where the agent cut the result it is `Observed` beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Literal

import msgspec

from transom.core.block import Block, Text, ToolCall, ToolResultRaw
from transom.core.canon import FORMAT as LOG_FORMAT
from transom.core.event import (
    EpochOpened,
    HostSaid,
    ModelReplied,
    Observed,
    RequestFailed,
    Section,
    SessionOpened,
    ToolReturned,
    UserSaid,
)
from transom.importers.draft import Item, Note, Said, Unknown
from transom.importers.effects import effect_of
from transom.importers.fields import ABSENT, raw_text, read
from transom.importers.messages import (
    Message,
    Scribe,
    content_blocks,
    reply_blocks,
    result_blocks,
    seconds_ms,
    session_key,
    usage_of,
)
from transom.importers.source import Source
from transom.ports import Blobs

__all__ = ["FORMAT", "parse", "sniff"]

FORMAT = "mini-swe-agent"

_FENCE = re.compile(r"```(?:mswea_bash_command|bash)[ \t]*\n.*?\n```", re.DOTALL)
_EXIT_CODE = re.compile(r"<returncode>(-?\d+)</returncode>")
_Failure = Literal["overflow", "rate", "auth", "invalid", "unavailable", "other"]
_FAILURES: tuple[tuple[str, _Failure], ...] = (
    ("ContextWindow", "overflow"),
    ("RateLimit", "rate"),
    ("Authentication", "auth"),
    ("PermissionDenied", "auth"),
    ("BadRequest", "invalid"),
    ("InternalServer", "unavailable"),
    ("ServiceUnavailable", "unavailable"),
    ("APIConnection", "unavailable"),
    ("Timeout", "unavailable"),
)
"""LiteLLM's exception names, most special first, and what they are called here."""


class _Model(msgspec.Struct):
    model_name: str = ""


class _Environment(msgspec.Struct):
    cwd: str = ""


class _Config(msgspec.Struct):
    model: _Model = msgspec.field(default_factory=_Model)
    environment: _Environment = msgspec.field(default_factory=_Environment)


class _Info(msgspec.Struct):
    config: _Config = msgspec.field(default_factory=_Config)
    mini_version: str = ""
    exit_status: str | None = None


class _Trajectory(msgspec.Struct):
    messages: list[msgspec.Raw]
    info: msgspec.Raw = msgspec.Raw(b"{}")
    instance_id: str | None = None


class _Choice(msgspec.Struct):
    finish_reason: str | None = None


class _Response(msgspec.Struct):
    id: str = ""
    model: str = ""
    choices: list[_Choice] = []
    usage: msgspec.Raw = ABSENT


class _Extra(msgspec.Struct):
    response: _Response | None = None
    cost: float | None = None
    timestamp: float | None = None
    returncode: int | None = None
    raw_output: str | None = None
    exception_info: str | None = None
    exit_status: str | None = None


class _Mini(Message):
    extra: msgspec.Raw = msgspec.Raw(b"{}")


_ANY = msgspec.json.Decoder(_Trajectory | list[msgspec.Raw])
_INFO = msgspec.json.Decoder(_Info)
_EXTRA = msgspec.json.Decoder(_Extra)
_MESSAGE = msgspec.json.Decoder(_Mini)


def sniff(source: Source) -> bool:
    head = source.head().lstrip()
    if head.startswith(b"{"):
        return b'"trajectory_format": "mini-swe' in head or (b'"info"' in head and b'"mini_version"' in head)
    return head.startswith(b"[") and (b"```mswea_bash_command" in head or b"COMPLETE_TASK_AND_SUBMIT" in head)


def parse(source: Source, blobs: Blobs) -> Iterator[Item]:
    document = source.document(_ANY)
    trajectory = _Trajectory(messages=document) if isinstance(document, list) else document
    info = read(trajectory.info, _INFO) or _Info()
    label = trajectory.instance_id or PurePosixPath(source.name.replace("!", "/")).name.partition(".traj")[0]
    scribe = Scribe(session_key(label, trajectory.messages))
    opened = SessionOpened(
        format=LOG_FORMAT,
        agent=FORMAT,
        agent_version=info.mini_version,
        model=info.config.model.model_name,
        workspace=info.config.environment.cwd,
        title=label,
    )
    yield scribe.say(opened, "open")
    yield from _Telling(scribe, blobs, info.config.model.model_name).tell(trajectory.messages)
    if info != _Info():
        yield scribe.say(Observed(kind="info", raw=raw_text(trajectory.info)), "info")
    if info.exit_status:
        yield Note(text=f"the run ended with: {info.exit_status}")


class _Telling:
    """The messages of one trajectory as facts."""

    def __init__(self, scribe: Scribe, blobs: Blobs, model: str) -> None:
        self._scribe = scribe
        self._blobs = blobs
        self._model = model
        self._has_task = False
        self._pending = ""
        """The id of a fenced command without its result."""
        self._tools: dict[str, str] = {}

    def tell(self, messages: list[msgspec.Raw]) -> Iterator[Item]:
        for number, raw in enumerate(messages, 1):
            uuid = f"m{number}"
            message = read(raw, _MESSAGE)
            if message is None:
                yield Unknown(kind="message of unknown shape")
                yield self._scribe.say(Observed(kind="message", raw=raw_text(raw)), uuid)
                continue
            extra = read(message.extra, _EXTRA) or _Extra()
            match message.role:
                case "system":
                    yield self._system(message, uuid)
                case "user":
                    yield self._user(message, extra, uuid)
                case "assistant":
                    yield self._reply(message, extra, uuid)
                case "tool":
                    yield from self._result(message, extra, uuid)
                case "exit":
                    yield from self._exit(message, raw, uuid)
                case _:
                    yield Unknown(kind=f"message of role {message.role or '?'}")
                    yield self._scribe.say(Observed(kind="message", raw=raw_text(raw)), uuid)

    def _system(self, message: _Mini, uuid: str) -> Said:
        blocks = content_blocks(message.content, self._blobs)
        text = "\n".join(block.text for block in blocks if isinstance(block, Text))
        return self._scribe.say(EpochOpened(sections=(Section(key="system", text=text),)), uuid)

    def _user(self, message: _Mini, extra: _Extra, uuid: str) -> Said:
        at = seconds_ms(extra.timestamp)
        if self._pending:
            call_id, self._pending = self._pending, ""
            blocks = result_blocks(message.content, self._blobs)
            return self._scribe.say(_returned(call_id, blocks, extra), uuid, at)
        blocks = content_blocks(message.content, self._blobs)
        if not self._has_task:
            self._has_task = True
            return self._scribe.say(UserSaid(blocks=blocks), uuid, at)
        return self._scribe.say(HostSaid(kind="injected", blocks=blocks), uuid, at)

    def _reply(self, message: _Mini, extra: _Extra, uuid: str) -> Said:
        response = extra.response or _Response()
        blocks = reply_blocks(message, self._blobs, uuid)
        if not any(isinstance(block, ToolCall) for block in blocks):
            blocks = _with_fenced_call(blocks, f"{uuid}.call")
            self._pending = next((block.call_id for block in blocks if isinstance(block, ToolCall)), "")
        self._tools.update((block.call_id, block.name) for block in blocks if isinstance(block, ToolCall))
        fact = ModelReplied(
            blocks=blocks,
            model=response.model or self._model,
            stop_reason=next((choice.finish_reason or "" for choice in response.choices), ""),
            usage=usage_of(response.usage, extra.cost),
            response_id=response.id,
        )
        return self._scribe.say(fact, uuid, seconds_ms(extra.timestamp))

    def _result(self, message: _Mini, extra: _Extra, uuid: str) -> Iterator[Said]:
        at = seconds_ms(extra.timestamp)
        blocks = result_blocks(message.content, self._blobs)
        call_id = message.tool_call_id or ""
        fact = _returned(call_id, blocks, extra, self._tools.get(call_id, message.name or "bash"))
        yield self._scribe.say(fact, uuid, at)
        if extra.raw_output and extra.raw_output.strip() not in _text(blocks):
            yield self._scribe.say(Observed(kind="raw_output", raw=raw_text(message.extra)), uuid, at)

    def _exit(self, message: _Mini, raw: msgspec.Raw, uuid: str) -> Iterator[Said]:
        yield self._scribe.say(Observed(kind="exit", raw=raw_text(raw)), uuid)
        text = message.content if isinstance(message.content, str) else ""
        if text.startswith("litellm."):
            named = text.partition(":")[0]
            kind: _Failure = next((kind for name, kind in _FAILURES if name in named), "other")
            yield self._scribe.say(RequestFailed(kind=kind, message=text), uuid)


def _text(blocks: tuple[Block, ...]) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, ToolResultRaw))


def _returned(call_id: str, blocks: tuple[Block, ...], extra: _Extra, tool: str = "bash") -> ToolReturned:
    stated = _EXIT_CODE.search(_text(blocks)) if extra.returncode is None else None
    return ToolReturned(
        call_id=call_id,
        blocks=blocks,
        is_error=bool(extra.exception_info),
        effect=effect_of(tool),
        exit_code=int(stated[1]) if stated is not None else extra.returncode,
    )


def _with_fenced_call(blocks: tuple[Block, ...], call_id: str) -> tuple[Block, ...]:
    """The blocks with the one fenced command as a call; as they were where there is not exactly one."""
    fences = [
        (at, fence)
        for at, block in enumerate(blocks)
        if isinstance(block, Text)
        for fence in _FENCE.finditer(block.text)
    ]
    if len(fences) != 1:
        return blocks
    at, fence = fences[0]
    before, after = fence.string[: fence.start()], fence.string[fence.end() :]
    split: list[Block] = [Text(text=before)] if before.strip() else []
    split.append(ToolCall(call_id=call_id, name="bash", arguments=fence[0]))
    if after.strip():
        split.append(Text(text=after))
    return (*blocks[:at], *split, *blocks[at + 1 :])
