r"""Canonical bytes and the digest chain (laws L1 and L12).

Rule 1. A value has exactly one canonical form: JSON with sorted keys, no spaces, UTF-8, defaults left out.
        Digested structs hold no floats and ASCII keys only, so this equals RFC 8785 (a test keeps it so).
Rule 2. A model's or a tool's own JSON stands in a struct as the raw text it came in; it is never written again.
Rule 3. Text with a lone surrogate (a client cut an emoji in half) is legal here: it is written as the JSON
        escape `\udXXX`, which every JSON reader accepts, and read back to the same string.
Rule 4. digest(n) = sha256(tag, digest(n-1), canonical bytes of event n). The tag carries the format version,
        so two formats never share a digest.
"""

from __future__ import annotations

import hashlib
import json
from typing import TypeVar

import msgspec

__all__ = ["FORMAT", "GENESIS", "canonical", "envelope", "link", "parse", "plain_text"]

FORMAT = 1
"""Version of the stored form. A log with a higher number is refused (`LogTooNew`)."""

_TAG = b"transom-log-%d\x00" % FORMAT
_START = hashlib.sha256(_TAG)
GENESIS = _START.digest()
"""The digest before the first event of a session without a parent; 32 bytes."""

_ENCODER = msgspec.json.Encoder(order="sorted")
T = TypeVar("T")


def canonical(value: object) -> bytes:
    """The one canonical form of a struct or builtin, as UTF-8 JSON."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(value, order="sorted")
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return text.encode("utf-8", "backslashreplace")


def parse(data: bytes | str, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode canonical bytes, lone surrogates included. Raises `msgspec.DecodeError` and its `ValidationError`."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as first:
        try:
            plain = json.loads(data)
        except (ValueError, RecursionError):
            raise first from None
        try:
            value: T = msgspec.convert(plain, decoder.type)
        except UnicodeEncodeError:  # a lone surrogate where only certain words may stand
            raise first from None
        return value


def envelope(session_id: str, seq: int, uuid: str, at: int, fact: bytes) -> bytes:
    """Canonical bytes of an event around its fact's canonical bytes, without writing the fact again."""
    return b'{"at":%d,"fact":%b,"seq":%d,"session_id":%b,"uuid":%b}' % (
        at,
        fact,
        seq,
        canonical(session_id),
        canonical(uuid),
    )


def link(previous: bytes, event: bytes) -> bytes:
    """The chain's next digest: 32 bytes over the previous digest and an event's canonical bytes."""
    hasher = _START.copy()
    hasher.update(previous)
    hasher.update(event)
    return hasher.digest()


def plain_text(text: str) -> str:
    """The text with lone surrogates replaced, for sinks that refuse them (counters, search, terminals)."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text
