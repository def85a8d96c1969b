"""Copilot CLI sessions (`events.jsonl`): records of the conversation between many of the screen's.

1. `assistant.message` is one reply, `tool.execution_complete` one result; `result.content` was sent, `detailedContent`
   was shown. Only output tokens are recorded: a usage with a prompt of 0 tokens means that the prompt is not known.
2. `transformedContent` is what was sent for what was typed (`content`): the text before and after the typed words is
   the host's, so three facts in the order of the prompt. Where the typed words are not in it, both are kept whole.
   A user message with a `source` (a skill's text) and a `system.notification` are the host's altogether.
3. `system.message` opens the epoch; the tools are not recorded.
4. Records with a `parentToolCallId` belong to the sub-agent that call started: a child session.
5. `session.snapshot_rewind` takes back everything from one record on: a fork. `session.compaction_complete` replaces
   the window by its summary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import msgspec

from transom.core.block import Block, Text, Thought, ToolCall, ToolResultRaw
from transom.core.canon import FORMAT as LOG_FORMAT
from transom.core.event import (
    EpochOpened,
    Fact,
    HostSaid,
    ModelReplied,
    Observed,
    Section,
    Seed,
    SessionOpened,
    ToolReturned,
    Usage,
    UserSaid,
)
from transom.importers.draft import Compacted, Item, Said, Unknown
from transom.importers.effects import effect_of
from transom.importers.fields import image, iso_ms, raw_text
from transom.importers.mending import decode
from transom.importers.source import Record, Source
from transom.ports import Blobs

__all__ = ["FORMAT", "parse", "sniff"]

FORMAT = "copilot-cli"

_OPENING = 64
"""Records read at most before the session is opened: the model is named among the first few."""

_EXIT = re.compile(r"<[^<>\n]* with exit code (-?\d+)>\s*\Z")
_FAMILIES = {
    "abort", "assistant", "capabilities", "command", "commands", "elicitation", "exit_plan_mode", "external_tool",
    "hook", "mcp", "pending_messages", "permission", "sampling", "session", "skill", "subagent", "system", "tool",
    "user", "user_input",
}  # fmt: skip
"""What stands before the dot in the types that Copilot CLI writes: of these, only those read below reach the model."""


class _Line(msgspec.Struct):
    type: str
    data: msgspec.Raw = msgspec.Raw(b"{}")
    id: str = ""
    timestamp: str = ""


class _Context(msgspec.Struct):
    cwd: str = ""


class _Start(msgspec.Struct):
    session: str = msgspec.field(name="sessionId", default="")
    version: str = msgspec.field(name="copilotVersion", default="")
    model: str | None = msgspec.field(name="selectedModel", default=None)
    context: _Context = msgspec.field(default_factory=_Context)


class _Model(msgspec.Struct):
    model: str = msgspec.field(name="newModel")


class _Spoken(msgspec.Struct):
    content: str = ""


class _Attachment(msgspec.Struct):
    type: str = ""
    data: str = ""
    mime_type: str = msgspec.field(name="mimeType", default="")


class _User(msgspec.Struct):
    content: str
    sent: str | None = msgspec.field(name="transformedContent", default=None)
    source: str | None = None
    attachments: tuple[_Attachment, ...] = ()


class _Request(msgspec.Struct):
    call_id: str = msgspec.field(name="toolCallId")
    name: str
    arguments: msgspec.Raw = msgspec.Raw(b"{}")


class _Assistant(msgspec.Struct):
    content: str = ""
    model: str = ""
    requests: tuple[_Request, ...] = msgspec.field(name="toolRequests", default=())
    reasoning: str = msgspec.field(name="reasoningText", default="")
    opaque: msgspec.Raw = msgspec.field(name="reasoningOpaque", default=msgspec.Raw(b""))
    encrypted: msgspec.Raw = msgspec.field(name="encryptedContent", default=msgspec.Raw(b""))
    output_tokens: int | None = msgspec.field(name="outputTokens", default=None)
    response_id: str = msgspec.field(name="apiCallId", default="")
    parent: str | None = msgspec.field(name="parentToolCallId", default=None)


class _Result(msgspec.Struct):
    content: str = ""
    detail: msgspec.Raw = msgspec.field(name="detailedContent", default=msgspec.Raw(b""))
    contents: tuple[_Attachment, ...] = ()


class _Error(msgspec.Struct):
    message: str = ""


class _Complete(msgspec.Struct):
    call_id: str = msgspec.field(name="toolCallId")
    success: bool = True
    result: _Result | None = None
    error: _Error | None = None
    parent: str | None = msgspec.field(name="parentToolCallId", default=None)


class _Summary(msgspec.Struct):
    success: bool = True
    text: str = msgspec.field(name="summaryContent", default="")
    tokens_before: int = msgspec.field(name="preCompactionTokens", default=0)


class _Rewind(msgspec.Struct):
    up_to: str = msgspec.field(name="upToEventId")


_LINE = msgspec.json.Decoder(_Line)
_START = msgspec.json.Decoder(_Start)
_MODEL = msgspec.json.Decoder(_Model)
_SPOKEN = msgspec.json.Decoder(_Spoken)
_USER = msgspec.json.Decoder(_User)
_ASSISTANT = msgspec.json.Decoder(_Assistant)
_COMPLETE = msgspec.json.Decoder(_Complete)
_SUMMARY = msgspec.json.Decoder(_Summary)
_REWIND = msgspec.json.Decoder(_Rewind)
_STRING = msgspec.json.Decoder(str)
T = TypeVar("T")


def sniff(source: Source) -> bool:
    """A session opens with a `session.start` record."""
    first = source.head(4096).partition(b"\n")[0]
    return b'"session.start"' in first and b'"data"' in first


def parse(source: Source, blobs: Blobs) -> Iterator[Item]:
    reader = _Reader(blobs=blobs)
    for record in source.lines(_LINE):
        if isinstance(record, Record):
            reader.read(record)
        else:
            reader.out.append(record)
        yield from reader.ready()
    reader.is_due = True
    yield from reader.ready()


@dataclass(slots=True, kw_only=True)
class _Reader:
    blobs: Blobs
    start: _Start = field(default_factory=_Start)
    session: str = ""
    model: str = ""
    system: str | None = None
    out: list[Item] = field(default_factory=list)
    is_due: bool = False
    is_open: bool = False
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    callers: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """call_id -> (tool, session, uuid of the reply), while the call is open."""
    children: set[str] = field(default_factory=set)
    starts: dict[str, tuple[str, str]] = field(default_factory=dict)
    """id of a user message -> what was said last before it."""
    last: tuple[str, str] = ("", "")

    def ready(self) -> Iterator[Item]:
        """What can be handed on. The opening waits until something is said to the model: its name is known then."""
        if not self.is_open:
            if not self.out or (not self.is_due and len(self.out) < _OPENING):
                return
            self.is_open = True
            at = next((item.at for item in self.out if isinstance(item, Said)), 0)
            yield Said(session=self.session or "main", uuid="session", at=at, fact=self.opened("root"))
        yield from self.out
        self.out.clear()

    def opened(self, kind: Literal["root", "fork", "child"]) -> SessionOpened:
        return SessionOpened(
            format=LOG_FORMAT,
            kind=kind,
            agent="copilot-cli",
            agent_version=self.start.version,
            model=self.model,
            provider="github-copilot",
            workspace=self.start.context.cwd,
        )

    def say(self, record: Record[_Line], fact: Fact, session: str = "") -> str:
        """Say a fact under the record's own id (its line, if it has none); one that comes again gets `.1`, `.2`, …"""
        session = session or self.session
        name = record.value.id or str(record.line)
        count = self.seen[session, name]
        self.seen[session, name] += 1
        uuid = f"{name}.{count}" if count else name
        self.out.append(Said(session=session, uuid=uuid, at=iso_ms(record.value.timestamp), fact=fact))
        if session == self.session:
            self.last = (session, uuid)
        return uuid

    def observe(self, record: Record[_Line]) -> None:
        self.say(record, Observed(kind=record.value.type, raw=raw_text(record.raw)))

    def read(self, record: Record[_Line]) -> None:
        line = record.value
        try:
            if not self.session:
                self.start = _read(line.data, _START) if line.type == "session.start" else self.start
                self.session = self.start.session or "main"
                self.model = self.start.model or ""
            match line.type:
                case "system.message":
                    self.system_said(record, _read(line.data, _SPOKEN).content)
                case "user.message":
                    self.user_said(record, _read(line.data, _USER))
                case "system.notification":
                    self.inject(record, _read(line.data, _SPOKEN).content)
                case "assistant.message":
                    self.replied(record, _read(line.data, _ASSISTANT))
                case "tool.execution_complete":
                    self.returned(record, _read(line.data, _COMPLETE))
                case "session.compaction_complete":
                    self.compacted(record, _read(line.data, _SUMMARY))
                case "session.snapshot_rewind":
                    self.rewound(record, _read(line.data, _REWIND))
                case "session.model_change":
                    self.model = _read(line.data, _MODEL).model
                    self.observe(record)
                case _:
                    self.observe(record)
                    if line.type.partition(".")[0] not in _FAMILIES:
                        self.out.append(Unknown(kind=line.type))
        except (msgspec.DecodeError, RecursionError):
            self.session = self.session or "main"
            self.observe(record)
            self.out.append(Unknown(kind=line.type))

    # -- to the model

    def system_said(self, record: Record[_Line], text: str) -> None:
        self.is_due = True
        if text == self.system:
            self.observe(record)
            return
        is_first, self.system = self.system is None, text
        section = Section(key="system", text=text)
        self.say(record, EpochOpened(sections=(section,), reason="initial" if is_first else "change:system"))

    def inject(self, record: Record[_Line], text: str) -> None:
        if text:
            self.say(record, HostSaid(kind="injected", blocks=(Text(text=text),)))

    def user_said(self, record: Record[_Line], user: _User) -> None:
        self.is_due = True
        self.starts[record.value.id] = self.last
        if user.source and user.source != "user":
            self.inject(record, user.sent or user.content)
            return
        before, typed, after = (user.sent or user.content).partition(user.content) if user.content else ("", "", "")
        if user.content and not typed:
            before, after = "", before
        self.inject(record, before)
        pictures = (self.picture(item) for item in user.attachments if item.data)
        self.say(record, UserSaid(blocks=(Text(text=user.content), *pictures)))
        self.inject(record, after)
        if any(not item.data for item in user.attachments):
            self.observe(record)

    def picture(self, item: _Attachment) -> Block:
        return image(self.blobs, item.mime_type, item.data)

    # -- from the model and its tools

    def home(self, parent: str | None, at: int) -> str:
        """The session of a record: the present one, or the child that the call `parent` started."""
        if not parent:
            return self.session
        child = f"{self.session}/{parent}"
        if child not in self.children:
            self.children.add(child)
            _, session, uuid = self.callers.get(parent, ("", *self.last))
            opened = self.opened("child")
            self.out.append(Said(session=child, uuid="session", at=at, fact=opened, parent=(session, uuid)))
        return child

    def replied(self, record: Record[_Line], message: _Assistant) -> None:
        self.is_due = True
        session = self.home(message.parent, iso_ms(record.value.timestamp))
        blocks: list[Block] = []
        opaque = _joined(reasoningOpaque=message.opaque, encryptedContent=message.encrypted)
        if message.reasoning or opaque:
            blocks.append(Thought(text=message.reasoning, opaque=opaque))
        if message.content:
            blocks.append(Text(text=message.content))
        blocks += (
            ToolCall(call_id=request.call_id, name=request.name, arguments=_arguments(request.arguments))
            for request in message.requests
        )
        output = message.output_tokens
        reply = ModelReplied(
            blocks=tuple(blocks),
            model=message.model or self.model,
            usage=None if output is None else Usage(output=max(0, output)),
            response_id=message.response_id,
        )
        uuid = self.say(record, reply, session)
        for request in message.requests:
            self.callers[request.call_id] = (request.name, session, uuid)

    def returned(self, record: Record[_Line], complete: _Complete) -> None:
        session = self.home(complete.parent, iso_ms(record.value.timestamp))
        name, _, _ = self.callers.pop(complete.call_id, ("", "", ""))
        result = complete.result or _Result()
        text = complete.error.message if complete.error and not complete.result else result.content
        code = _EXIT.search(text[-200:])
        fact = ToolReturned(
            call_id=complete.call_id,
            blocks=(ToolResultRaw(text=text), *(self.picture(item) for item in result.contents if item.data)),
            is_error=not complete.success,
            effect=effect_of(name),
            exit_code=int(code[1]) if code else None,
        )
        self.say(record, fact, session)
        if result.detail:
            self.say(record, Observed(kind="detailedContent", raw=raw_text(result.detail)), session)

    # -- the window

    def compacted(self, record: Record[_Line], summary: _Summary) -> None:
        self.observe(record)
        if not summary.success:
            return
        uuid = f"{self.last[1]}.window"
        self.out.append(
            Compacted(
                session=self.session,
                uuid=uuid,
                at=iso_ms(record.value.timestamp),
                seed=(Seed(role="host", blocks=(Text(text=summary.text),)),),
                tokens_before=max(0, summary.tokens_before),
            )
        )
        self.last = (self.session, uuid)

    def rewound(self, record: Record[_Line], rewind: _Rewind) -> None:
        self.observe(record)
        parent = self.starts.get(rewind.up_to)
        if parent is None:
            return
        root = self.session.partition("~")[0]
        self.session = f"{root}~{record.value.id or record.line}"
        at = iso_ms(record.value.timestamp)
        self.out.append(Said(session=self.session, uuid="session", at=at, fact=self.opened("fork"), parent=parent))
        self.last = (self.session, "session")


def _read(raw: msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
    return decode(bytes(raw), decoder)[0]


def _joined(**items: msgspec.Raw) -> str:
    """One JSON object of the items that are there, each as it came; empty if none is."""
    found = [f'"{name}":{raw_text(raw)}' for name, raw in items.items() if raw and raw_text(raw) != "null"]
    return "{" + ",".join(found) + "}" if found else ""


def _arguments(raw: msgspec.Raw) -> str:
    """The arguments as the model wrote them: those of a custom tool are a plain text, in a JSON string."""
    text = raw_text(raw)
    return _read(raw, _STRING) if text.startswith('"') else text
