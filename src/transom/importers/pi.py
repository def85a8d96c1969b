"""pi's sessions: JSONL, a tree of entries in version 3, a plain list before it.

An entry whose parent is not the newest entry starts a branch: a fork. A compaction names the first entry it keeps; what
is kept of the path stands behind the summary. A shell command the user ran in the client (`bashExecution`) and an
extension's message (`custom_message`) are put before the model by the client: the host's words.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from itertools import islice

import msgspec

from transom.core import canon
from transom.core.block import Block, Image, Opaque, Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import (
    Fact,
    HostSaid,
    ModelReplied,
    Observed,
    Seed,
    SessionOpened,
    ToolReturned,
    Usage,
    UserSaid,
)
from transom.importers.draft import Compacted, Item, Said, Unknown
from transom.importers.effects import effect_of
from transom.importers.fields import ABSENT, image, iso_ms, raw_text, read
from transom.importers.mending import decode
from transom.importers.source import Record, Source
from transom.ports import Blobs

__all__ = ["FORMAT", "parse", "sniff"]

FORMAT = "pi"

_OPENED = "opened"
_PREFACE = 20
_SILENT = frozenset({"custom", "label", "model_change", "session", "session_info", "thinking_level_change"})
"""Entry types that are known and are not sent to the model."""

_CLIENT_MODELS = frozenset({"gateway-injected"})
_INJECTED = ("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "[OpenClaw heartbeat")
_EMPTY = msgspec.Raw(b"")
_MICRO = 1_000_000


class _Cost(msgspec.Struct, frozen=True):
    total: float | None = None


class _Usage(msgspec.Struct, frozen=True):
    input: int | None = 0
    output: int | None = 0
    cacheRead: int | None = 0  # noqa: N815 - the client's own name
    cacheWrite: int | None = 0  # noqa: N815
    cost: _Cost | None = None


class _Message(msgspec.Struct, frozen=True):
    role: str = ""
    content: msgspec.Raw = _EMPTY
    model: str | None = ""
    usage: msgspec.Raw = ABSENT
    stopReason: str | None = ""  # noqa: N815
    responseId: str | None = ""  # noqa: N815
    toolCallId: str | None = ""  # noqa: N815
    toolName: str | None = ""  # noqa: N815
    isError: bool | None = False  # noqa: N815
    details: msgspec.Raw = _EMPTY
    provenance: msgspec.Raw = _EMPTY
    command: str | None = ""
    output: str | None = ""
    exitCode: int | None = None  # noqa: N815


class _Entry(msgspec.Struct, frozen=True):
    type: str = ""
    id: str | None = ""
    parentId: str | None = None  # noqa: N815
    timestamp: str | None = ""
    cwd: str | None = ""
    version: int | None = 0
    name: str | None = ""
    provider: str | None = ""
    modelId: str | None = ""  # noqa: N815
    message: _Message | None = None
    summary: str | None = ""
    firstKeptEntryId: str | None = ""  # noqa: N815
    firstKeptEntryIndex: int | None = None  # noqa: N815
    tokensBefore: int | None = 0  # noqa: N815
    content: msgspec.Raw = _EMPTY


class _Piece(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    data: str = ""
    mimeType: str = ""  # noqa: N815


_ENTRY = msgspec.json.Decoder(_Entry)
_TEXT = msgspec.json.Decoder(str)
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_PIECE = msgspec.json.Decoder(_Piece)
_USAGE = msgspec.json.Decoder(_Usage)


def sniff(source: Source) -> bool:
    """A JSONL file whose first record is pi's session header."""
    if not source.head(512).lstrip(b"\xef\xbb\xbf \t\r\n\0").startswith(b"{"):
        return False
    first = next(source.lines(_ENTRY), None)
    return (
        isinstance(first, Record) and first.value.type == "session" and bool(first.value.id and first.value.timestamp)
    )


def parse(source: Source, blobs: Blobs) -> Iterator[Item]:
    """Every fact of the file, in the order the model saw things."""
    reader = _Reader(blobs)
    yield from reader.open(source)
    for record in source.lines(_ENTRY):
        if isinstance(record, Record):
            yield from reader.take(record)
        else:
            yield record


@dataclass(slots=True, kw_only=True)
class _Branch:
    """A session of the source. `tip` is its newest entry, `last` its newest fact; `path` names every entry and its
    fact, in order: what a compaction may keep."""

    session: str
    tip: str = ""
    last: str = _OPENED
    path: list[tuple[str, str]] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)


class _Reader:
    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._opened = SessionOpened(format=canon.FORMAT, agent=FORMAT)
        self._branch = _Branch(session="")
        self._where: dict[str, tuple[_Branch, int]] = {}
        """Entry id -> its branch and how long the branch's path was behind it."""

    def open(self, source: Source) -> Iterator[Item]:
        """The session, from its header and the first model that is named."""
        session = model = provider = cwd = version = title = ""
        at = 0
        for record in islice(source.lines(_ENTRY), _PREFACE):
            if not isinstance(record, Record):
                continue
            entry = record.value
            if entry.type == "session" and not session:
                session, cwd, at = entry.id or "", entry.cwd or "", iso_ms(entry.timestamp or "")
                version = str(entry.version or "")
            title = title or (entry.name or "" if entry.type == "session_info" else "")
            if not model:
                model, provider = entry.modelId or "", entry.provider or ""
        self._opened = SessionOpened(
            format=canon.FORMAT,
            agent=FORMAT,
            agent_version=version,
            model=model,
            provider=provider,
            workspace=cwd,
            title=title,
        )
        self._branch.session = session
        yield Said(session=session, uuid=_OPENED, at=at, fact=self._opened)

    def take(self, record: Record[_Entry]) -> Iterator[Item]:
        """One entry."""
        entry = record.value
        name = entry.id if entry.id and entry.type != "session" else f"L{record.line}"
        at = iso_ms(entry.timestamp or "")
        branch = yield from self._follow(entry, name, at)
        fact: Fact | None = None
        match entry.type:
            case "message" if entry.message is not None:
                fact = self._message(entry.message, branch)
            case "custom_message":
                fact = HostSaid(kind="injected", blocks=self._blocks(entry.content))
            case "branch_summary":
                fact = HostSaid(kind="injected", blocks=(Text(text=entry.summary or ""),))
            case "compaction":
                yield self._compaction(entry, name, at, branch)
                yield _observed(branch, f"{name}.1", at, entry.type, record.raw)
            case _:
                if entry.type not in _SILENT:
                    yield Unknown(kind=entry.type or "(no type)")
                yield _observed(branch, name, at, entry.type or "unknown", record.raw)
        if fact is None and entry.type == "message":
            yield Unknown(kind=f"message:{entry.message.role if entry.message else ''}")
            yield _observed(branch, name, at, entry.type, record.raw)
        elif fact is not None:
            yield Said(session=branch.session, uuid=name, at=at, fact=fact)
            branch.last = name
            branch.path.append((name, name))
            if entry.message and len(bytes(entry.message.details)) > len(b"null"):
                yield _observed(branch, f"{name}.1", at, "details", bytes(entry.message.details))
        if entry.type != "session":
            branch.tip = name
            self._where[name] = (branch, len(branch.path))
        if fact is None:
            branch.path.append((name, ""))

    def _follow(self, entry: _Entry, name: str, at: int) -> Generator[Item, None, _Branch]:
        """The branch an entry stands on: a new one if its parent is not the newest entry of the parent's branch."""
        found = self._where.get(entry.parentId) if entry.parentId else None
        if found is None:
            return self._branch
        parent, length = found
        self._branch = parent
        if parent.tip == entry.parentId:
            return parent
        path = parent.path[:length]
        last = next((uuid for _, uuid in reversed(path) if uuid), _OPENED)
        self._branch = _Branch(session=f"{parent.session}#{name}", last=last, path=path, names=dict(parent.names))
        fact = msgspec.structs.replace(self._opened, kind="fork")
        yield Said(session=self._branch.session, uuid=_OPENED, at=at, fact=fact, parent=(parent.session, last))
        return self._branch

    def _message(self, message: _Message, branch: _Branch) -> Fact | None:
        match message.role:
            case "user":
                said = self._blocks(message.content)
                first = next((block.text for block in said if isinstance(block, Text)), "")
                is_injected = first.startswith(_INJECTED) or len(bytes(message.provenance)) > len(b"null")
                return HostSaid(kind="injected", blocks=said) if is_injected else UserSaid(blocks=said)
            case "assistant":
                said = self._blocks(message.content)
                if message.model in _CLIENT_MODELS:
                    return HostSaid(kind="injected", blocks=said)
                branch.names.update((block.call_id, block.name) for block in said if isinstance(block, ToolCall))
                return ModelReplied(
                    blocks=said,
                    model=message.model or "",
                    stop_reason=message.stopReason or "",
                    usage=_usage(message.usage),
                    response_id=message.responseId or "",
                )
            case "toolResult":
                call_id = message.toolCallId or ""
                name = branch.names.pop(call_id, "") or message.toolName or ""
                return ToolReturned(
                    call_id=call_id,
                    blocks=self._blocks(message.content, is_result=True),
                    is_error=bool(message.isError),
                    effect=effect_of(name),
                )
            case "bashExecution":
                return HostSaid(kind="injected", blocks=(Text(text=_ran(message)),))
            case _:
                return None

    def _compaction(self, entry: _Entry, name: str, at: int, branch: _Branch) -> Compacted:
        """The first kept entry is named by id, in the first form by its number: the header is entry 0."""
        start = entry.firstKeptEntryIndex
        if start is None:
            ids = (number for number, (entry_id, _) in enumerate(branch.path) if entry_id == entry.firstKeptEntryId)
            start = next(ids, len(branch.path))
        tail = tuple(uuid for _, uuid in branch.path[max(0, start) :] if uuid)
        branch.last = name
        return Compacted(
            session=branch.session,
            uuid=name,
            at=at,
            seed=(Seed(role="user", blocks=(Text(text=entry.summary or ""),)),),
            kept_tail=tail,
            tokens_before=max(0, entry.tokensBefore or 0),
        )

    def _blocks(self, content: msgspec.Raw, *, is_result: bool = False) -> tuple[Block, ...]:
        data = bytes(content)
        if data.startswith(b'"'):
            text = decode(data, _TEXT)[0]
            return (ToolResultRaw(text=text) if is_result else Text(text=text),)
        if not data.startswith(b"["):
            return ()
        return tuple(self._block(raw, is_result=is_result) for raw in decode(data, _LIST)[0])

    def _block(self, raw: msgspec.Raw, *, is_result: bool) -> Block:
        try:
            piece = decode(bytes(raw), _PIECE)[0]
        except msgspec.ValidationError:
            piece = _Piece(type="malformed")
        match piece.type:
            case "text" if is_result:
                return ToolResultRaw(text=piece.text)
            case "text":
                return Text(text=piece.text)
            case "thinking":
                return Thought(text=piece.thinking, opaque=raw_text(raw))
            case "toolCall":
                return ToolCall(call_id=piece.id, name=piece.name, arguments=raw_text(piece.arguments))
            case "image":
                return self._picture(piece)
            case _:
                return Opaque(kind=piece.type or "malformed", raw=raw_text(raw))

    def _picture(self, piece: _Piece) -> Image | Opaque:
        return image(self._blobs, piece.mimeType, piece.data)


def _observed(branch: _Branch, uuid: str, at: int, kind: str, raw: bytes) -> Said:
    return Said(session=branch.session, uuid=uuid, at=at, fact=Observed(kind=kind, raw=raw_text(raw)))


def _usage(raw: msgspec.Raw) -> Usage | None:
    """`input` leaves cached tokens out. A reply that was aborted before the provider said anything has zeros."""
    said = read(raw, _USAGE)
    if said is None or not (said.input or said.output or said.cacheRead or said.cacheWrite):
        return None
    cost = said.cost.total if said.cost else None
    return Usage(
        uncached=max(0, said.input or 0),
        cached=max(0, said.cacheRead or 0),
        written=max(0, said.cacheWrite or 0),
        output=max(0, said.output or 0),
        cost_microusd=-1 if cost is None or cost < 0 else round(cost * _MICRO),
    )


def _ran(message: _Message) -> str:
    """A command of the user's and what came of it, near to what the client sends."""
    end = "" if not message.exitCode else f"\nexit code {message.exitCode}"
    return f"Ran `{message.command}`\n```\n{message.output}\n```{end}"
