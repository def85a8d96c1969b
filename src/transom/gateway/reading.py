"""JSON as a gateway reads it: outlines of raw bytes, never refused for what stands inside, never written anew.

A client's request may hold what strict readers refuse (half of an emoji, `NaN`, numbers of any size, a key twice,
nesting without end) and is none of our business as long as it goes upstream as it came. So an outline is cut by the
fast decoder where that reads it, and else by a walk over brackets and strings that looks at nothing else. Both give the
same bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from transom.core.canon import canonical
from transom.errors import BadInput

__all__ = ["Span", "exchanged", "extended", "fields_of", "items_of", "listed", "spans_of", "value_of", "without"]

Span = tuple[str, int, int]
"""A field: its name, and where its value stands."""

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
_KEY = re.compile(rb'[ \t\r\n]*("[^"\\]*(?:\\.[^"\\]*)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_COMMA = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*")
_SPACE = re.compile(rb"[ \t\r\n]*")
_EMPTY = re.compile(rb"\[[ \t\r\n]*\]")
_WORD = re.compile(rb'[^\s,:\[\]{}"]+')
_STEP = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*("|\Z)|[\[\]{}]', re.DOTALL)
"""A string, closed or not, or a bracket."""
_LONGEST_NUMBER = 4000
"""Digits: Python refuses to read longer ones (4,300)."""


def fields_of(raw: bytes) -> dict[str, bytes]:
    """An object's fields as raw JSON, in order; of a name that stands twice, the last value. Raises `BadInput` for what
    is no object."""
    try:
        return {name: bytes(value) for name, value in _FIELDS.decode(raw).items()}
    except (msgspec.DecodeError, RecursionError):
        return {name: raw[start:end] for name, start, end in _walked_fields(raw)}


def items_of(raw: bytes) -> tuple[bytes, ...]:
    """An array's members as raw JSON. Raises `BadInput` for what is no array."""
    try:
        return tuple(bytes(value) for value in _ITEMS.decode(raw))
    except (msgspec.DecodeError, RecursionError):
        return tuple(raw[start:end] for start, end in _walked_items(raw))


def listed(fields: Mapping[str, bytes], name: str) -> tuple[bytes, ...]:
    """The members of a field that is an array; none if it is something else or absent."""
    raw = fields.get(name, b"")
    return items_of(raw) if raw.startswith(b"[") else ()


def spans_of(raw: bytes, fields: Mapping[str, bytes] | None = None) -> list[Span]:
    """Where an object's values stand, in order; a name that stands twice is there twice. `fields`: what `fields_of`
    said of it, so that it need not be read again. Raises `BadInput` for what is no object."""
    values: Mapping[str, bytes | msgspec.Raw]
    try:
        values = _FIELDS.decode(raw) if fields is None else fields
    except (msgspec.DecodeError, RecursionError):
        return _walked_fields(raw)
    found: list[Span] = []
    place = raw.index(b"{") + 1
    while key := _KEY.match(raw, place):
        name = _name(key[1])
        value = bytes(values[name]) if name in values else b""
        if not value or not raw.startswith(value, key.end()):
            return _walked_fields(raw)
        place = key.end() + len(value)
        found.append((name, key.end(), place))
        comma = _COMMA.match(raw, place)
        if comma is None:
            break
        place = comma.end()
    return found if len(found) == len(values) else _walked_fields(raw)


def exchanged(raw: bytes, spans: Sequence[Span], values: Mapping[str, bytes]) -> bytes:
    """The object with other values (of a name that stands twice, the last), those of new names behind all others; every
    other byte stands as it did."""
    last = {name: start for name, start, _ in spans}
    shown = memoryview(raw)  # millions of bytes are copied once
    pieces: list[bytes | memoryview] = []
    done = 0
    for name, start, end in spans:
        if name in values and start == last[name]:
            pieces += (shown[done:start], values[name])
            done = end
    if new := [canonical(name) + b":" + value for name, value in values.items() if name not in last]:
        end = raw.rindex(b"}")
        pieces += (shown[done:end], b"," if spans else b"", b",".join(new))
        done = end
    return b"".join((*pieces, shown[done:])) if done else raw


def extended(array: bytes, pieces: Sequence[bytes]) -> bytes:
    """The array with `pieces` at its end; null, and what is not there, is an empty one. Raises `BadInput` for what is
    no array."""
    if array in (b"", b"null"):
        return b"[%b]" % b",".join(pieces)
    if not pieces:
        return array
    if not array.startswith(b"[") or not array.endswith(b"]"):
        raise BadInput(f"no JSON array: {array[:80]!r}")
    comma = b"" if _EMPTY.fullmatch(array) else b","
    return b"".join((array[:-1], comma, b",".join(pieces), b"]"))


def without(fields: Mapping[str, bytes], *names: str) -> dict[str, bytes]:
    """The fields but those."""
    return {name: value for name, value in fields.items() if name not in names}


def value_of(raw: bytes) -> object:
    """Any JSON value, read as loosely as it can be. Raises `BadInput` where nothing reads it."""
    try:
        found: object = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        try:
            found = json.loads(raw.decode("utf-8", "surrogateescape"), strict=False, parse_int=_number)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"no JSON that can be read: {raw[:80]!r}: {error}") from None
    return found


def _number(digits: str) -> int | str:
    return int(digits) if len(digits) < _LONGEST_NUMBER else digits


def _name(key: bytes) -> str:
    if key.isascii() and b"\\" not in key:
        return key[1:-1].decode()
    try:
        name: object = json.loads(key.decode("utf-8", "surrogateescape"), strict=False)
    except ValueError:
        return key.decode("latin-1")
    return str(name)


def _walked_fields(raw: bytes) -> list[Span]:
    found: list[Span] = []
    for start, end in _members(raw, b"{", b"}"):
        key = _KEY.match(raw, start)
        if key is None:
            raise BadInput(f"no JSON object: a member without a name: {raw[start : start + 80]!r}")
        if key.end() == end:
            raise BadInput(f"no JSON object: {key[1][:80]!r} has no value")
        found.append((_name(key[1]), key.end(), end))
    return found


def _walked_items(raw: bytes) -> list[tuple[int, int]]:
    return list(_members(raw, b"[", b"]"))


def _members(raw: bytes, opening: bytes, closing: bytes) -> Iterator[tuple[int, int]]:
    """Where the members of an object or array stand, whatever they are."""
    place = _after_space(raw, 0)
    kind = "object" if opening == b"{" else "array"
    if raw[place : place + 1] != opening:
        raise BadInput(f"no JSON {kind}: {raw[:80]!r}")
    place = _after_space(raw, place + 1)
    is_more = raw[place : place + 1] != closing
    while is_more:
        end = _member_end(raw, place, is_named=opening == b"{")
        yield place, end
        place = _after_space(raw, end)
        is_more = raw[place : place + 1] == b","
        if is_more:
            place = _after_space(raw, place + 1)
    if raw[place : place + 1] != closing:
        raise BadInput(f"no JSON {kind}: a comma or {closing.decode()} is missing at byte {place}")
    if _after_space(raw, place + 1) != len(raw):
        raise BadInput(f"no JSON {kind}: something stands behind it at byte {place + 1}")


def _member_end(raw: bytes, start: int, *, is_named: bool) -> int:
    if is_named and (key := _KEY.match(raw, start)):
        start = key.end()
    if raw[start : start + 1] not in (b'"', b"[", b"{"):
        word = _WORD.match(raw, start)
        if word is None:
            raise BadInput(f"no JSON: a value is missing at byte {start}")
        return word.end()
    depth = 0
    for step in _STEP.finditer(raw, start):
        token = step[0]
        if token in (b"[", b"{"):
            depth += 1
        elif token in (b"]", b"}"):
            depth -= 1
        elif not step[1]:
            break
        if depth <= 0:
            return step.end()
    raise BadInput(f"no JSON: the value at byte {start} does not end")


def _after_space(raw: bytes, place: int) -> int:
    found = _SPACE.match(raw, place)
    return found.end() if found else place
