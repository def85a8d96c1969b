"""Small things every format has: times, pictures, raw JSON."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from transom.core.block import Image, Opaque
from transom.importers.mending import decode
from transom.ports import Blobs

__all__ = ["ABSENT", "image", "iso_ms", "raw_text", "read"]

T = TypeVar("T")

ABSENT = msgspec.Raw(b"null")
"""The default of a raw field: the decoder has no `Raw | None`."""


def iso_ms(text: str) -> int:
    """An ISO time as ms since the epoch; without a zone it is UTC. 0 if absent or unreadable."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def image(blobs: Blobs, media_type: str, base64_text: str) -> Image | Opaque:
    """The picture, its bytes stored; what is no base64 is kept as it came."""
    try:
        data = base64.b64decode(base64_text, validate=True)
    except (binascii.Error, ValueError):
        return Opaque(kind="image", raw=msgspec.json.encode(base64_text.encode("utf-8", "replace").decode()).decode())
    return Image(media_type=media_type, artifact_id=blobs.put(data), size=len(data))


def raw_text(value: msgspec.Raw | bytes) -> str:
    """Raw JSON as text, byte for byte; bytes that are no UTF-8 become U+FFFD."""
    return bytes(value).decode("utf-8", "replace")


def read(raw: msgspec.Raw | bytes, decoder: msgspec.json.Decoder[T]) -> T | None:
    """The decoded value, or None where its shape is another one."""
    try:
        return decode(bytes(raw), decoder)[0]
    except (msgspec.DecodeError, RecursionError):
        return None
