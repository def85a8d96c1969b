"""The outline of a request: its fields, and the members of the list that is a client's history.

A client sends its whole history with every request, so nearly all of a body was read before: a body that begins as a
known one did, its first members included, is parsed from there on alone. The bytes in front decide how the rest is
read, so both ways give the same outline.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from transom.adapters.provider_writing import string, written_object
from transom.errors import BadInput
from transom.gateway.reading import Span, fields_of, items_of, spans_of

__all__ = ["LISTED", "Outline", "outline", "written"]

LISTED = b"[]"
"""Stands for the list among the fields."""
_REST = b'{"\\u0000":['
"""What is put in front of the rest of a body, so that it is an object again."""
_REST_NAME = "\0"
_OPENED = re.compile(rb"\[[ \t\r\n]*")
_COMMA = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """`fields` in the body's order, `LISTED` where the list stands; `items` are its members; `spans` say where values
    stand in the body."""

    fields: Mapping[str, bytes]
    items: tuple[bytes, ...] = ()
    spans: tuple[Span, ...]
    opening: bytes = b""
    """The body up to the first member; nothing where another body cannot be read from it."""
    comma: bytes = b","
    """What stands between two members."""
    shared: int = 0
    """How many of its members stand at the start of a known one too."""

    @property
    def size(self) -> int:
        """Bytes of the body, but those that close it."""
        return self.spans[-1][2] if self.spans else 0


def outline(body: bytes, name: str, known: Iterable[Outline] = ()) -> Outline:
    """Of an object with a list `name`; of one in which something else stands there, that is the field's value. `known`
    are outlines of bodies that may have begun the same way. Raises `BadInput` for what is no object."""
    count, place, before = max(
        ((*_shared(body, one), one) for one in known), key=lambda found: found[:2], default=(0, 0, None)
    )
    found = _continued(body, name, before, count, place) if before is not None and count else None
    return found or _read(body, name)


def written(fields: Mapping[str, bytes], name: str, items: Sequence[bytes]) -> bytes:
    """The object anew, with these members in its list `name`. They are copied once."""
    names = list(fields)
    at = names.index(name)
    ahead = written_object({one: fields[one] for one in names[:at]})[:-1]
    behind = written_object({one: fields[one] for one in names[at + 1 :]})[1:]
    opening = b"".join((ahead, b"," if at else b"", string(name), b":["))
    closing = b"".join((b"]", b"," if at + 1 < len(names) else b"", behind))
    if len(items) < 2:
        return b"".join((opening, *items, closing))
    return b",".join((opening + items[0], *items[1:-1], items[-1] + closing))


def _shared(body: bytes, before: Outline) -> tuple[int, int]:
    """How many members stand at the body's beginning too, each with another behind it, and where that begins."""
    if not before.opening or not body.startswith(before.opening):
        return 0, 0
    count, place, comma = 0, len(before.opening), before.comma
    gap, stands = len(comma), body.startswith
    for item in before.items:
        end = place + len(item)
        if not stands(item, place) or not stands(comma, end):
            break
        place = end + gap
        count += 1
    return count, place


def _continued(body: bytes, name: str, before: Outline, count: int, place: int) -> Outline | None:
    """None where only the whole body says how its rest is to be read."""
    rest = _REST + body[place:]
    try:
        found = fields_of(rest)
        new = items_of(found[_REST_NAME])
        (_, _, end), *behind = spans_of(rest, found)
    except BadInput:
        return None
    at = next(at for at, span in enumerate(before.spans) if span[0] == name)
    ahead = before.spans[:at]
    names = [*(span[0] for span in ahead), name, *(span[0] for span in behind)]
    if not new or len({*names, _REST_NAME}) <= len(names):
        return None  # a comma behind the last member, or a name that stands twice
    del found[_REST_NAME]
    shift = place - len(_REST)
    moved = ((one, first + shift, last + shift) for one, first, last in behind)
    return Outline(
        fields={**{one: before.fields[one] for one in names[:at]}, name: LISTED, **found},
        items=before.items[:count] + new,
        spans=(*ahead, (name, before.spans[at][1], end + shift), *moved),
        opening=before.opening,
        comma=before.comma,
        shared=count,
    )


def _read(body: bytes, name: str) -> Outline:
    fields = fields_of(body)
    spans = tuple(spans_of(body, fields))
    listed = fields.get(name, b"")
    if not listed.startswith(b"["):
        return Outline(fields=fields, spans=spans)
    items = items_of(listed)
    fields[name] = LISTED
    opened = _OPENED.match(listed)
    if not items or opened is None or len(spans) != len(fields):
        return Outline(fields=fields, items=items, spans=spans)
    start = next(first for one, first, _ in spans if one == name) + opened.end()
    comma = _COMMA.match(body, start + len(items[0]))
    opening = body[:start]
    return Outline(fields=fields, items=items, spans=spans, opening=opening, comma=comma[0] if comma else b",")
