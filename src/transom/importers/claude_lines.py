"""The records of Claude Code's session files, as far as they are used.

Every field may be missing or null: one odd record must not cost the others. What a client puts inside a record
(`message`, `data`, `attachment`) stays raw until it is wanted, so that a record costs one pass over its bytes.
"""

from __future__ import annotations

import msgspec

from transom.importers.claude_message import Message
from transom.importers.fields import raw_text
from transom.importers.mending import decode

__all__ = ["LINE", "Aside", "Line", "Step", "agent_step", "aside_of", "message_of", "words"]

_SPOKEN = frozenset(
    {
        "skill_listing",
        "mcp_instructions_delta",
        "agent_listing_delta",
        "deferred_tools_delta",
        "hook_additional_context",
        "edited_text_file",
        "diagnostics",
        "task_reminder",
        "todo_reminder",
    }
)
"""Attachments whose words the client puts before the model."""


class _Compact(msgspec.Struct, frozen=True):
    preTokens: int | None = 0  # noqa: N815 - the client's own name


class _Micro(msgspec.Struct, frozen=True):
    compactedToolIds: tuple[str, ...] = ()  # noqa: N815


class Aside(msgspec.Struct, frozen=True):
    """What a client attaches to the conversation by itself."""

    type: str = ""
    prompt: msgspec.Raw = msgspec.Raw(b'""')
    commandMode: str = ""  # noqa: N815
    filename: str = ""
    content: msgspec.Raw = msgspec.Raw(b"")
    addedBlocks: tuple[str, ...] = ()  # noqa: N815
    addedLines: tuple[str, ...] = ()  # noqa: N815
    snippet: str = ""
    files: msgspec.Raw = msgspec.Raw(b"")


class Step(msgspec.Struct, frozen=True):
    type: str = ""
    uuid: str = ""
    timestamp: str = ""
    message: Message | None = None


class _Progress(msgspec.Struct, frozen=True):
    type: str = ""
    agentId: str = ""  # noqa: N815
    message: msgspec.Raw = msgspec.Raw(b"")


class Line(msgspec.Struct, frozen=True):
    """The fields that are used of any record."""

    type: str = ""
    subtype: str | None = None
    uuid: str = ""
    parentUuid: str | None = None  # noqa: N815
    logicalParentUuid: str | None = None  # noqa: N815
    sessionId: str | None = ""  # noqa: N815
    agentId: str | None = ""  # noqa: N815
    timestamp: str | None = ""
    cwd: str | None = ""
    version: str | None = ""
    isSidechain: bool | None = None  # noqa: N815
    isMeta: bool | None = False  # noqa: N815
    isCompactSummary: bool | None = False  # noqa: N815
    message: msgspec.Raw = msgspec.Raw(b"")
    toolUseResult: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815
    compactMetadata: _Compact | None = None  # noqa: N815
    microcompactMetadata: _Micro | None = None  # noqa: N815
    attachment: msgspec.Raw = msgspec.Raw(b"")
    data: msgspec.Raw = msgspec.Raw(b"")
    summary: str | None = ""
    aiTitle: str | None = ""  # noqa: N815
    customTitle: str | None = ""  # noqa: N815


LINE = msgspec.json.Decoder(Line)
_MESSAGE = msgspec.json.Decoder(Message)
_STEP = msgspec.json.Decoder(Step)
_PROGRESS = msgspec.json.Decoder(_Progress)
_ASIDE = msgspec.json.Decoder(Aside)
_TEXT = msgspec.json.Decoder(str)


def message_of(raw: msgspec.Raw) -> Message | None:
    try:
        return decode(bytes(raw), _MESSAGE)[0]
    except msgspec.DecodeError:
        return None


def agent_step(data: msgspec.Raw) -> tuple[str, Step, Message] | None:
    """The record of a sub-agent inside a progress record."""
    if b'"agentId"' not in bytes(data):
        return None
    try:
        progress = decode(bytes(data), _PROGRESS)[0]
        step = decode(bytes(progress.message), _STEP)[0]
    except msgspec.DecodeError:
        return None
    if not progress.agentId or step.message is None or step.type not in {"user", "assistant"}:
        return None
    return progress.agentId, step, step.message


def words(attachment: Aside) -> str:
    """The text of an attachment, empty for one that carries none (the client renders those from its own state)."""
    if attachment.type not in _SPOKEN:
        return ""
    content = bytes(attachment.content)
    if content.startswith(b'"'):
        content_text = decode(content, _TEXT)[0]
    else:
        content_text = raw_text(content)
    parts = (
        attachment.filename,
        content_text,
        raw_text(attachment.files),
        *attachment.addedBlocks,
        *attachment.addedLines,
        attachment.snippet,
    )
    return "\n".join(part for part in parts if part)


def aside_of(line: Line) -> Aside | None:
    """What is attached, or None if it has no known shape."""
    try:
        return decode(bytes(line.attachment), _ASIDE)[0]
    except msgspec.DecodeError:
        return None
