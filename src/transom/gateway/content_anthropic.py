"""What a message of the Anthropic API says: its pieces, whose they are, and when two of them are the same.

A piece is one member of a message's `content` as raw JSON, without its cache mark. Blocks are read from pieces as the
importers read them. What blocks do not say goes along as `wire`: the pieces themselves, comma-joined; or, where the
message has fields of its own or is neither the user's nor the assistant's, a whole message that begins with
`{"role":`. The pieces of such a message of the user join those of its neighbours, its fields the joined message's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import msgspec

from transom.adapters.provider_writing import written_array, written_object
from transom.core.block import Block, Opaque, Text
from transom.core.canon import canonical
from transom.core.event import ToolReturned
from transom.errors import BadInput
from transom.gateway.reading import fields_of, items_of, value_of, without
from transom.importers.claude_message import contents, is_injected
from transom.importers.fields import raw_text, read
from transom.ports import Blobs

__all__ = [
    "Kind",
    "Message",
    "blocks_of",
    "calls_of",
    "is_same",
    "kind_of",
    "message_of",
    "plain",
    "result_of",
    "role_of",
    "whole",
    "words_of",
]

Kind: TypeAlias = Literal["result", "words", "injected"]
"""What a piece of the user's message is: a tool's result, the person's words, or the client's."""

_MARK = "cache_control"
_DIRECT = {"type": "direct"}
"""Who called a tool, where it is the model itself: as much as nothing."""
_REMINDER, _REMINDED = "<system-reminder>", "</system-reminder>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """`own` are the fields beside role and content, raw; `text` is the content if it is a string, raw."""

    role: str
    pieces: tuple[bytes, ...]
    own: dict[str, bytes]
    text: bytes = b""


class _Role(msgspec.Struct):
    role: str = ""


class _Piece(msgspec.Struct):
    type: str = ""
    text: str = ""
    id: str = ""


_ROLE = msgspec.json.Decoder(_Role)
_PIECE = msgspec.json.Decoder(_Piece)


@lru_cache(maxsize=16)
def role_of(element: bytes) -> str:
    """The role; nothing for what is no message."""
    found = read(element, _ROLE)
    if found is not None:
        return found.role
    try:
        role = value_of(fields_of(element).get("role", b'""'))  # it holds what no decoder reads
    except BadInput:
        return ""
    return role if isinstance(role, str) else ""


@lru_cache(maxsize=16)
def message_of(element: bytes) -> Message:
    """The message in its pieces. Raises `BadInput` for what is none."""
    fields = fields_of(element)
    content = fields.get("content", b"null")
    text = b""
    if content.startswith(b"["):
        pieces = tuple(_unmarked(piece) for piece in items_of(content))
    elif content.startswith(b'"'):
        pieces, text = (b'{"type":"text","text":%b}' % content,), content
    else:
        pieces = () if content == b"null" else (content,)
    return Message(role=role_of(element), pieces=pieces, own=without(fields, "role", "content", _MARK), text=text)


def whole(message: Message) -> bytes:
    """The message as one `wire`."""
    role = canonical(message.role)
    return written_object({"role": role, **message.own, "content": message.text or written_array(message.pieces)})


def kind_of(piece: bytes) -> Kind:
    found = read(piece, _PIECE)
    if found is None:
        return "words"
    if found.type == "tool_result":
        return "result"
    return "injected" if found.type == "text" and _is_injected(found.text) else "words"


def words_of(pieces: Sequence[bytes]) -> str:
    """All text."""
    found = (read(piece, _PIECE) for piece in pieces)
    return "\n".join(piece.text for piece in found if piece is not None and piece.type == "text")


def calls_of(pieces: Sequence[bytes]) -> tuple[str, ...]:
    """Ids of the calls a client answers; a server's own tools are none of its."""
    found = (read(piece, _PIECE) for piece in pieces if b"tool_use" in piece)
    return tuple(piece.id for piece in found if piece is not None and piece.type == "tool_use")


def blocks_of(pieces: Sequence[bytes], blobs: Blobs) -> tuple[Block, ...]:
    """What the pieces say; empty text says nothing."""
    return tuple(_blocks(pieces, blobs))


def _blocks(pieces: Sequence[bytes], blobs: Blobs) -> Iterator[Block]:
    for piece in pieces:
        try:
            _, found = contents(msgspec.Raw(b"[%b]" % piece), blobs)
        except (msgspec.DecodeError, RecursionError):
            found = (Opaque(kind="malformed", raw=raw_text(piece)),)
        yield from (block for block in found if not (isinstance(block, Text) and not block.text))


def result_of(piece: bytes, blobs: Blobs) -> ToolReturned | None:
    """The result in a piece of this kind; None if it cannot be read."""
    try:
        (result,), _ = contents(msgspec.Raw(b"[%b]" % piece), blobs)
    except (ValueError, RecursionError):
        return None
    return ToolReturned(
        call_id=result.call_id, blocks=result.blocks, is_error=result.is_error, exit_code=result.exit_code
    )


def is_same(left: Sequence[bytes], right: Sequence[bytes]) -> bool:
    """Whether two lists of pieces say the same, arguments of calls included."""
    one, other = b"[%b]" % b",".join(left), b"[%b]" % b",".join(right)
    if one == other:
        return True
    try:
        return canonical(_content(value_of(one), has_input=True)) == canonical(
            _content(value_of(other), has_input=True)
        )
    except (BadInput, RecursionError):
        return False


def plain(element: bytes) -> bytes:
    """`Face.canonical`."""
    try:
        value = value_of(element)
        if isinstance(value, dict):
            value = {name: one for name, one in value.items() if name != _MARK}
            value["content"] = _content(value.get("content"), has_input=False)
        return canonical(value)
    except (BadInput, RecursionError):
        return element


def _content(content: object, *, has_input: bool) -> object:
    """A content as it is compared: nothing is "", a lone text block its text."""
    if not isinstance(content, list):
        return "" if content is None else content
    shown = [made for block in content if (made := _compared(block, has_input=has_input)) is not None]
    if len(shown) == 1 and isinstance(shown[0], dict) and shown[0].keys() == {"type", "text"}:
        return shown[0]["text"]
    return shown or ""


def _compared(block: object, *, has_input: bool) -> object:
    """A block as it is compared; None for a text of nothing."""
    if not isinstance(block, dict):
        return block
    made = {name: one for name, one in block.items() if name != _MARK}
    match made.get("type"):
        case "text":
            text = made.get("text")
            return None if isinstance(text, str) and (not text or text.isspace()) else made
        case "tool_use":
            if not has_input:
                made.pop("input", None)
            if made.get("caller") == _DIRECT:
                made.pop("caller")
        case "tool_result":
            made["content"] = _content(made.get("content"), has_input=has_input)
            if not made.get("is_error"):
                made.pop("is_error", None)
        case _:
            pass
    return made


def _unmarked(piece: bytes) -> bytes:
    """The piece without its cache mark, and those of what it holds."""
    if b"cache_control" not in piece:
        return piece
    try:
        fields = fields_of(piece)
    except BadInput:
        return piece
    inner = fields.get("content", b"")
    if inner.startswith(b"[") and b"cache_control" in inner:
        fields["content"] = written_array([_unmarked(one) for one in items_of(inner)])
    elif _MARK not in fields:
        return piece
    return written_object(without(fields, _MARK))


def _is_injected(text: str) -> bool:
    """Whether all of a text is the client's: words behind its reminders are the person's."""
    if text.lstrip().startswith(_REMINDER):
        return not text.rpartition(_REMINDED)[2].strip() or _REMINDED not in text
    return is_injected(text)
