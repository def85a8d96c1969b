"""SWE-agent trajectories: `history` is what the agent kept, `trajectory` what it did.

1. `history` is the conversation. Messages marked `is_demo` (a solved example, put before the task) are `HostSaid`; the
   first other user message is the task, `UserSaid`.
2. Old files: a reply is text that ends in a command, and the next user message is its result. The command as the model
   wrote it is the call; the tool is its first word. Newer files have API calls (`tool_calls`, `tool_call_ids`).
3. A reply whose action is `exit_…` is the agent speaking (a limit was reached): `Observed`.
4. Some newer files hold, at each step, the messages as sent (`trajectory[].messages`: of this request or of the next,
   which their number tells). Where a result there is another text than in `history`, the agent had cleared it before
   that request: `Cleared`. Old files do not say what their agent left out: their window is larger here than it was.
5. The last observation of a run stands in `trajectory` only: no request held it, so it is `Observed`. Usage is known
   as totals only (`info.model_stats`), so replies have none. There are no times. What else `trajectory` has repeats
   `history` or is in the result's own words (`state`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

import msgspec

from transom.core.block import Block, Text, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.canon import FORMAT as LOG_FORMAT
from transom.core.event import (
    EpochOpened,
    HostSaid,
    ModelReplied,
    Observed,
    Section,
    SessionOpened,
    ToolReturned,
    UserSaid,
)
from transom.importers.draft import Cleared, Item, Note, Said, Unknown
from transom.importers.effects import effect_of
from transom.importers.fields import raw_text, read
from transom.importers.messages import (
    Message,
    Scribe,
    content_blocks,
    read_nested,
    reply_blocks,
    result_blocks,
    session_key,
)
from transom.importers.source import Source
from transom.ports import Blobs

__all__ = ["FORMAT", "parse", "sniff"]

FORMAT = "swe-agent"


class _State(msgspec.Struct):
    working_dir: str = ""


class _Step(msgspec.Struct):
    observation: msgspec.Raw = msgspec.Raw(b'""')
    state: msgspec.Raw = msgspec.Raw(b"{}")
    messages: list[msgspec.Raw] | None = None
    query: list[msgspec.Raw] | None = None


class _Info(msgspec.Struct):
    exit_status: str | None = None
    swe_agent_version: str | None = None


class _Model(msgspec.Struct):
    name: str = ""


class _Agent(msgspec.Struct):
    model: _Model = msgspec.field(default_factory=_Model)


class _Problem(msgspec.Struct):
    id: str = ""


class _Config(msgspec.Struct):
    agent: _Agent = msgspec.field(default_factory=_Agent)
    problem_statement: _Problem = msgspec.field(default_factory=_Problem)


class _Trajectory(msgspec.Struct):
    history: list[msgspec.Raw]
    trajectory: list[msgspec.Raw] = []
    info: msgspec.Raw = msgspec.Raw(b"{}")
    replay_config: msgspec.Raw = msgspec.Raw(b"{}")
    """An object, or a string that holds one."""


class _Kept(Message):
    is_demo: bool | None = None
    thought: str | None = None
    action: str | None = None
    tool_call_ids: list[str] | None = None


_DOCUMENT = msgspec.json.Decoder(_Trajectory)
_STEP = msgspec.json.Decoder(_Step)
_STATE = msgspec.json.Decoder(_State)
_INFO = msgspec.json.Decoder(_Info)
_CONFIG = msgspec.json.Decoder(_Config)
_MESSAGE = msgspec.json.Decoder(_Kept)


def sniff(source: Source) -> bool:
    head = source.head().lstrip()
    return head.startswith(b"{") and b'"trajectory"' in head and (b'"observation"' in head or b'"history"' in head)


def parse(source: Source, blobs: Blobs) -> Iterator[Item]:
    document = source.document(_DOCUMENT)
    info = read(document.info, _INFO) or _Info()
    config = read_nested(document.replay_config, _CONFIG) or _Config()
    steps = [read(raw, _STEP) or _Step() for raw in document.trajectory]
    state = (read_nested(steps[0].state, _STATE) if steps else None) or _State()
    label = config.problem_statement.id or PurePosixPath(source.name.replace("!", "/")).name.partition(".traj")[0]
    opening = [raw for raw in document.history if b'"is_demo"' not in bytes(raw)]
    telling = _Telling(Scribe(session_key(label, opening)), blobs, steps)
    opened = SessionOpened(
        format=LOG_FORMAT,
        agent=FORMAT,
        agent_version=info.swe_agent_version or "",
        model=config.agent.model.name,
        workspace=state.working_dir,
        title=label,
    )
    yield telling.scribe.say(opened, "open")
    for number, raw in enumerate(document.history, 1):
        yield from telling.message(raw, f"h{number}")
    yield from telling.rest()
    yield telling.scribe.say(Observed(kind="info", raw=raw_text(document.info)), "info")
    if info.exit_status:
        yield Note(text=f"the run ended with: {info.exit_status}")


class _Telling:
    """The messages of one trajectory as facts."""

    def __init__(self, scribe: Scribe, blobs: Blobs, steps: list[_Step]) -> None:
        self.scribe = scribe
        self._blobs = blobs
        self._steps = steps
        self._place = 0
        self._replies = 0
        self._has_task = False
        self._pending = ""
        """The id of a command in words without its result."""
        self._is_ended = False
        self._tools: dict[str, str] = {}
        self._shown: dict[int, tuple[str, str]] = {}
        """Place of a result in the history -> its uuid and the text last sent."""

    def message(self, raw: msgspec.Raw, uuid: str) -> Iterator[Item]:
        message = read(raw, _MESSAGE)
        match message:
            case None:
                yield from self._odd(raw, uuid, "message of unknown shape")
            case _Kept(is_demo=True):
                blocks = content_blocks(message.content, self._blobs)
                yield self.scribe.say(HostSaid(kind="injected", blocks=blocks), uuid)
            case _Kept(role="system"):
                texts = [
                    block.text for block in content_blocks(message.content, self._blobs) if isinstance(block, Text)
                ]
                yield self.scribe.say(EpochOpened(sections=(Section(key="system", text="\n".join(texts)),)), uuid)
            case _Kept(role="assistant"):
                yield from self._cleared(uuid)
                yield self._reply(message, raw, uuid)
            case _Kept(role="user" | "tool"):
                yield self._heard(message, uuid)
            case _:
                yield from self._odd(raw, uuid, f"message of role {message.role or '?'}")
        self._place += 1

    def rest(self) -> Iterator[Item]:
        """Say the observation that came too late to be sent."""
        if self._steps and (self._pending or self._is_ended):
            yield self.scribe.say(
                Observed(kind="observation", raw=raw_text(self._steps[-1].observation)), "observation"
            )

    def _odd(self, raw: msgspec.Raw, uuid: str, kind: str) -> Iterator[Item]:
        yield Unknown(kind=kind)
        yield self.scribe.say(Observed(kind="message", raw=raw_text(raw)), uuid)

    def _heard(self, message: _Kept, uuid: str) -> Said:
        called = message.tool_call_ids or [message.tool_call_id or self._pending]
        self._pending = ""
        if called[0]:
            blocks = result_blocks(message.content, self._blobs)
            effect = effect_of(self._tools.get(called[0], ""))
            said = self.scribe.say(ToolReturned(call_id=called[0], blocks=blocks, effect=effect), uuid)
            self._shown[self._place] = said.uuid, _text(blocks)
            return said
        blocks = content_blocks(message.content, self._blobs)
        if not self._has_task:
            self._has_task = True
            return self.scribe.say(UserSaid(blocks=blocks), uuid)
        return self.scribe.say(HostSaid(kind="injected", blocks=blocks), uuid)

    def _reply(self, message: _Kept, raw: msgspec.Raw, uuid: str) -> Said:
        self._replies += 1
        action = (message.action or "").strip()
        if action.startswith("exit_"):
            self._is_ended = True
            return self.scribe.say(Observed(kind="exit", raw=raw_text(raw)), uuid)
        blocks = reply_blocks(message, self._blobs, uuid)
        if action and not any(isinstance(block, ToolCall) for block in blocks):
            self._pending = f"{uuid}.call"
            blocks = _with_command(blocks, message.thought or "", action, self._pending)
        self._tools.update((block.call_id, block.name) for block in blocks if isinstance(block, ToolCall))
        return self.scribe.say(ModelReplied(blocks=blocks), uuid)

    def _cleared(self, uuid: str) -> Iterator[Cleared]:
        """What the request of the coming reply showed in another form than the one before."""
        steps = self._steps[max(self._replies - 1, 0) : self._replies + 1]
        requests = (step.messages or step.query or [] for step in steps)
        sent = next((request for request in requests if len(request) == self._place), None)
        if sent is None:
            return
        targets: list[tuple[str, Block]] = []
        for place, (result, shown) in self._shown.items():
            message = read(sent[place], _MESSAGE)
            text = _text(result_blocks(message.content, self._blobs)) if message is not None else shown
            if text != shown:
                targets.append((result, ToolResultRef(text=text)))
                self._shown[place] = result, text
        if targets:
            name = self.scribe.name(f"{uuid}.cleared")
            yield Cleared(session=self.scribe.session, uuid=name, at=0, how="mask", targets=tuple(targets))


def _text(blocks: tuple[Block, ...]) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, ToolResultRaw))


def _with_command(blocks: tuple[Block, ...], thought: str, action: str, call_id: str) -> tuple[Block, ...]:
    """The reply's text with what stands behind its thought as the call; where the text is no such pair, the action."""
    name = action.split(maxsplit=1)[0]
    text = "\n".join(block.text for block in blocks if isinstance(block, Text))
    others = tuple(block for block in blocks if not isinstance(block, Text))
    start = text.find(thought.strip())
    end = start + len(thought.strip())
    if start < 0 or text[:start].strip() or not text[end:].strip():
        return (*others, Text(text=text), ToolCall(call_id=call_id, name=name, arguments=action))
    words: tuple[Block, ...] = (Text(text=text[start:end]),) if end > start else ()
    return (*others, *words, ToolCall(call_id=call_id, name=name, arguments=text[end:].strip()))
