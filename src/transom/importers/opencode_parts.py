"""The messages and parts of an opencode export, typed, and what one of them says by itself.

Parts are a closed union by their `type`; what is not in it, or of another shape, does not decode and is kept raw by
`opencode`. Only fields that are used are named.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from transom.core.event import Usage
from transom.importers.mending import decode

__all__ = [
    "EXIT",
    "EXPORT",
    "INFO",
    "PART",
    "Agent",
    "CompactionMark",
    "Export",
    "File",
    "Info",
    "Message",
    "Part",
    "Patch",
    "Reasoning",
    "Retry",
    "Session",
    "Silent",
    "Snapshot",
    "StepFinish",
    "StepStart",
    "Subtask",
    "TextPart",
    "Time",
    "ToolPart",
    "kind_of",
    "read",
    "usage_of",
]


class _Cache(msgspec.Struct):
    read: int = 0
    write: int = 0


class _Tokens(msgspec.Struct):
    input: int = 0
    output: int = 0
    reasoning: int = 0
    total: int = 0
    cache: _Cache = msgspec.field(default_factory=_Cache)


class Time(msgspec.Struct):
    created: int = 0
    completed: int = 0
    start: int = 0
    end: int = 0
    compacted: int = 0


class _Detail(msgspec.Struct):
    message: str = ""


class _Failure(msgspec.Struct):
    name: str = ""
    data: _Detail = msgspec.field(default_factory=_Detail)


class _Diffs(msgspec.Struct):
    pass


class Info(msgspec.Struct):
    role: str
    id: str = ""
    time: Time = msgspec.field(default_factory=Time)
    model: str = msgspec.field(name="modelID", default="")
    provider: str = msgspec.field(name="providerID", default="")
    summary: bool | _Diffs = False
    """On an answer: whether it is one; on a user message the changes of the turn, another thing."""
    system: str | tuple[str, ...] = ()
    finish: str = ""
    error: _Failure | None = None


class TextPart(msgspec.Struct, tag="text"):
    text: str
    id: str = ""
    synthetic: bool = False
    ignored: bool = False


class Reasoning(msgspec.Struct, tag="reasoning"):
    text: str = ""
    metadata: msgspec.Raw = msgspec.Raw(b"")


class File(msgspec.Struct, tag="file"):
    mime: str = ""
    url: str = ""


class _State(msgspec.Struct):
    status: str
    input: msgspec.Raw = msgspec.Raw(b"{}")
    output: str = ""
    error: str = ""
    metadata: msgspec.Raw = msgspec.Raw(b"")
    time: Time = msgspec.field(default_factory=Time)
    attachments: tuple[File, ...] | None = None


class ToolPart(msgspec.Struct, tag="tool"):
    tool: str
    call_id: str = msgspec.field(name="callID")
    state: _State
    id: str = ""


class StepStart(msgspec.Struct, tag="step-start"):
    pass


class StepFinish(msgspec.Struct, tag="step-finish"):
    reason: str = ""
    cost: float | None = None
    tokens: _Tokens = msgspec.field(default_factory=_Tokens)


class Subtask(msgspec.Struct, tag="subtask"):
    pass


class CompactionMark(msgspec.Struct, tag="compaction"):
    pass


class Patch(msgspec.Struct, tag="patch"):
    pass


class Snapshot(msgspec.Struct, tag="snapshot"):
    pass


class Agent(msgspec.Struct, tag="agent"):
    pass


class Retry(msgspec.Struct, tag="retry"):
    pass


Silent = Patch | Snapshot | Agent | Retry
Part = TextPart | Reasoning | File | ToolPart | StepStart | StepFinish | Subtask | CompactionMark | Silent


class _Revert(msgspec.Struct):
    message_id: str = msgspec.field(name="messageID", default="")


class Session(msgspec.Struct):
    id: str = ""
    directory: str = ""
    title: str = ""
    version: str = ""
    time: Time = msgspec.field(default_factory=Time)
    revert: _Revert | None = None


class Message(msgspec.Struct):
    info: msgspec.Raw
    parts: tuple[msgspec.Raw, ...] = ()


class Export(msgspec.Struct):
    info: Session
    messages: tuple[Message, ...] = ()


class _Exit(msgspec.Struct):
    exit: int | None = None


class _Type(msgspec.Struct):
    type: str = "?"


EXPORT = msgspec.json.Decoder(Export)
INFO = msgspec.json.Decoder(Info)
PART = msgspec.json.Decoder(Part)
EXIT = msgspec.json.Decoder(_Exit)
_TYPE = msgspec.json.Decoder(_Type)
T = TypeVar("T")


def read(raw: msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T | None:
    """None for what is absent or of another shape."""
    try:
        return decode(bytes(raw), decoder)[0]
    except (msgspec.DecodeError, RecursionError):
        return None


def kind_of(raw: msgspec.Raw) -> str:
    found = read(raw, _TYPE)
    return found.type if found else "?"


def usage_of(finish: StepFinish) -> Usage | None:
    """None if nothing was counted. Output leaves reasoning out in some versions: the total says in which."""
    tokens = finish.tokens
    uncached, cached, written = (max(0, count) for count in (tokens.input, tokens.cache.read, tokens.cache.write))
    if not (uncached or cached or written or tokens.output):
        return None
    return Usage(
        uncached=uncached,
        cached=cached,
        written=written,
        output=max(0, tokens.output, tokens.total - uncached - cached - written),
        reasoning=max(0, tokens.reasoning),
        cost_microusd=-1 if finish.cost is None else max(0, round(finish.cost * 1_000_000)),
    )
