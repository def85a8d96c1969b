r"""JSON that strict readers refuse, read where its meaning is certain.

Four defects are found in real logs, and each has one reading: bytes that are no UTF-8 (shown as U+FFFD), control
bytes inside a string (meant as themselves), `NaN` and `Infinity` (no JSON; read as null), and a lone surrogate escape
(`\ud83d` without its partner: a client cut an emoji in half; kept as it is, `canon` rule 3). The decoder refuses the
last even in fields nobody looks at, so each is carried through it as a private-use character of plane 16 and put back
in the decoded value.
"""

from __future__ import annotations

import json
import re
from typing import TypeVar

import msgspec

__all__ = ["decode", "values"]

T = TypeVar("T")

_STRING_OR_WORD = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?\bInfinity\b|\bNaN\b', re.DOTALL)
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair: fine
    rb"|\\u([dD][89a-fA-F][0-9a-fA-F]{2})"  # half of one
    rb"|\\."  # any other escape, so that `\\u` is not taken for one
    rb"|([\x00-\x1f])",
    re.DOTALL,
)
_PLANE = 0x100000
_CARRIED = re.compile("[\U0010d800-\U0010dfff]")
_CARRIED_BYTES = re.compile(rb"\xf4\x8d[\xa0-\xbf][\x80-\xbf]")
"""U+10D800 to U+10DFFF in UTF-8."""


def decode(data: bytes, decoder: msgspec.json.Decoder[T]) -> tuple[T, bool]:
    """The value and whether it was mended. Raises what the decoder raises where mending does not help."""
    try:
        return decoder.decode(data), False
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as first:
        mended = _mend(data)
        if mended == data:
            raise
        try:
            value = decoder.decode(mended)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            raise first from None
    is_carrying = _CARRIED_BYTES.search(mended) is not None
    restored: T = _restore(value) if is_carrying else value
    return restored, True


def values(text: bytes) -> tuple[list[bytes], bytes]:
    """The whole JSON objects and arrays at the start of `text`, one behind the other, and what is left over."""
    words = text.decode("utf-8", "surrogateescape")
    reader = json.JSONDecoder(strict=False)
    found: list[bytes] = []
    start = 0
    while start < len(words) and words[start] in "{[":
        try:
            _, end = reader.raw_decode(words, start)
        except (ValueError, RecursionError):
            break
        found.append(words[start:end].encode("utf-8", "surrogateescape"))
        while end < len(words) and words[end] in "\0 \t\r\n":
            end += 1
        start = end
    return found, words[start:].encode("utf-8", "surrogateescape")


def _mend(data: bytes) -> bytes:
    text = data.decode("utf-8", "replace").encode()
    return _STRING_OR_WORD.sub(_mend_token, text)


def _mend_token(match: re.Match[bytes]) -> bytes:
    token = match[0]
    return _ESCAPE.sub(_mend_escape, token) if token.startswith(b'"') else b"null"


def _mend_escape(match: re.Match[bytes]) -> bytes:
    if match[1]:
        return chr(_PLANE + int(match[1], 16)).encode()
    if match[2]:
        return b"\\u%04x" % match[2][0]
    return match[0]


def _restore(value: T) -> T:
    """The value with every carried surrogate put back."""
    restored = _restored(value)
    assert isinstance(restored, type(value))
    return restored


def _restored(value: object) -> object:
    match value:
        case str():
            return _CARRIED.sub(lambda found: chr(ord(found[0]) - _PLANE), value)
        case msgspec.Raw():
            return msgspec.Raw(_CARRIED_BYTES.sub(_escaped, bytes(value)))
        case msgspec.Struct():
            names = value.__struct_fields__
            return msgspec.structs.replace(value, **{name: _restored(getattr(value, name)) for name in names})
        case list():
            return [_restored(item) for item in value]
        case tuple():
            return tuple(_restored(item) for item in value)
        case dict():
            return {_restored(key): _restored(item) for key, item in value.items()}
        case _:
            return value


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % (ord(found[0].decode()) - _PLANE)
