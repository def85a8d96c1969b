"""Claude Code's event stream (`--output-format stream-json`): JSONL of SDK messages, plain or wrapped by a recorder.

Plain lines carry `session_id` and the fields of `system` and `result` messages themselves; a recorder's lines have
them inside `message`, with a `timestamp` of its own. There are no parents: the order of the lines is the
conversation. The stream does not repeat what the user typed, so a session may begin with a reply. Each restart of the
process writes another `init`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice

import msgspec

from transom.core import canon
from transom.core.block import Text
from transom.core.event import HostSaid, Observed, Seed, SessionOpened, UserSaid
from transom.importers.claude_message import SYNTHETIC, Message, contents, is_injected
from transom.importers.claude_thread import OPENED, Thread
from transom.importers.draft import Compacted, Item, Said, Unknown
from transom.importers.fields import iso_ms, raw_text
from transom.importers.mending import decode
from transom.importers.source import Record, Source
from transom.ports import Blobs

__all__ = ["FORMAT", "parse", "sniff"]

FORMAT = "claude-code"

_SNIFFED = 40
_SILENT = frozenset({"system", "result", "stream_event", "rate_limit_event", "tool_progress", "auth_status"})


class _Compact(msgspec.Struct, frozen=True):
    pre_tokens: int | None = 0


class _Inner(msgspec.Struct, frozen=True):
    """The fields of a `system` or `result` message, wherever they stand."""

    subtype: str | None = ""
    session_id: str | None = ""
    cwd: str | None = ""
    model: str | None = ""
    claude_code_version: str | None = ""
    compact_metadata: _Compact | None = None


class _Line(msgspec.Struct, frozen=True):
    type: str = ""
    subtype: str | None = None
    uuid: str | None = None
    session_id: str | None = None
    parent_tool_use_id: str | None = None
    timestamp: str | None = ""
    message: msgspec.Raw = msgspec.Raw(b"")


_LINE = msgspec.json.Decoder(_Line)
_INNER = msgspec.json.Decoder(_Inner)
_MESSAGE = msgspec.json.Decoder(Message)


def sniff(source: Source) -> bool:
    """A JSONL file with an `init` of Claude Code among its first lines."""
    if not source.head(512).lstrip(b"\xef\xbb\xbf \t\r\n\0").startswith(b"{"):
        return False
    return any(
        isinstance(record, Record) and record.value.type == "system" and _inner(record).subtype == "init"
        for record in islice(source.lines(_LINE), _SNIFFED)
    )


def parse(source: Source, blobs: Blobs) -> Iterator[Item]:
    """Every fact of the stream, in order."""
    reader = _Reader(blobs)
    yield from reader.open(source)
    for record in source.lines(_LINE):
        if isinstance(record, Record):
            yield from reader.take(record)
        else:
            yield record
    yield from reader.close()


def _inner(record: Record[_Line]) -> _Inner:
    wrapped = bytes(record.value.message)
    try:
        return decode(wrapped if wrapped.startswith(b"{") else record.raw, _INNER)[0]
    except msgspec.DecodeError:
        return _Inner()


class _Reader:
    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._main = Thread("")
        self._opened = SessionOpened(format=canon.FORMAT, agent=FORMAT)
        self._agents: dict[str, Thread] = {}
        self._tokens_before: int | None = None
        """Of a boundary whose summary comes next."""

    def open(self, source: Source) -> Iterator[Item]:
        """The session, from the first `init`."""
        first = _Inner()
        for record in islice(source.lines(_LINE), _SNIFFED):
            if isinstance(record, Record) and record.value.type == "system":
                first = _inner(record)
                if first.subtype == "init":
                    break
        self._main.session = first.session_id or ""
        self._opened = SessionOpened(
            format=canon.FORMAT,
            agent=FORMAT,
            agent_version=first.claude_code_version or "",
            model=first.model or "",
            provider="anthropic",
            workspace=first.cwd or "",
        )
        yield Said(session=self._main.session, uuid=OPENED, at=0, fact=self._opened)

    def close(self) -> Iterator[Item]:
        """What was still being held, the callers first."""
        yield from self._main.close()
        for thread in self._agents.values():
            yield from thread.close()

    def take(self, record: Record[_Line]) -> Iterator[Item]:
        """One line."""
        line = record.value
        name = line.uuid or f"L{record.line}"
        at = iso_ms(line.timestamp or "")
        message = self._message(line)
        if message is None:
            yield from self._other(record, name, at)
            return
        thread = yield from self._thread(line, at)
        if line.type == "assistant" and message.model != SYNTHETIC:
            response_id = message.id or name
            yield from thread.reply(name, at, msgspec.structs.replace(message, id=response_id), self._blobs)
        else:
            yield from self._user(thread, name, at, message)

    def _message(self, line: _Line) -> Message | None:
        if line.type not in {"user", "assistant"}:
            return None
        try:
            return decode(bytes(line.message), _MESSAGE)[0]
        except msgspec.DecodeError:
            return None

    def _thread(self, line: _Line, at: int) -> Generator[Item, None, Thread]:
        """The main conversation, or the child of the call that started a sub-agent."""
        call_id = line.parent_tool_use_id
        if not call_id:
            return self._main
        thread = self._agents.get(call_id)
        if thread is None:
            thread = self._agents[call_id] = Thread(f"{self._main.session}/{call_id}", caller=self._main)
            fact = msgspec.structs.replace(self._opened, kind="child", model="")
            parent = (self._main.session, self._main.last)
            yield from thread.say(Said(session=thread.session, uuid=OPENED, at=at, fact=fact, parent=parent))
        return thread

    def _user(self, thread: Thread, name: str, at: int, message: Message) -> Iterator[Item]:
        found, said = contents(message.content, self._blobs)
        for number, result in enumerate(found):
            yield from thread.result(f"{name}.{number}" if number else name, at, result)
        if not said:
            return
        uuid = f"{name}.{len(found)}" if found else name
        if self._tokens_before is not None and message.role == "user":
            before, self._tokens_before = self._tokens_before, None
            yield from thread.close()
            seed = (Seed(role="user", blocks=said),)
            yield Compacted(session=thread.session, uuid=uuid, at=at, seed=seed, tokens_before=before)
        else:
            yield from thread.close()
            first = next((block.text for block in said if isinstance(block, Text)), "")
            fact: UserSaid | HostSaid
            if message.role == "assistant" or is_injected(first):
                fact = HostSaid(kind="injected", blocks=said)
            else:
                fact = UserSaid(blocks=said, by="user" if thread.caller is None else "operator")
            yield from thread.say(Said(session=thread.session, uuid=uuid, at=at, fact=fact))
        thread.last = uuid

    def _other(self, record: Record[_Line], name: str, at: int) -> Iterator[Item]:
        line = record.value
        kind = line.type or "unknown"
        if line.type not in _SILENT:
            yield Unknown(kind=line.type or "(no type)")
        if line.type == "system":
            inner = _inner(record)
            kind = f"system:{inner.subtype or ''}"
            if inner.subtype == "compact_boundary":
                self._tokens_before = (inner.compact_metadata.pre_tokens if inner.compact_metadata else 0) or 0
        yield Said(session=self._main.session, uuid=name, at=at, fact=Observed(kind=kind, raw=raw_text(record.raw)))
