"""Cache marks in a projected request: the client's in its head, ours in its history, together what the API takes.

Ours have the form of the client's own (its time to live): the API wants longer ones before shorter ones, and the head's
stand first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from transom.adapters.provider_anthropic import MARKABLE
from transom.core.breakpoints import MARKS
from transom.gateway.content_anthropic import message_of
from transom.gateway.reading import fields_of, items_of, listed
from transom.importers.fields import read

__all__ = ["free_marks", "mark_of", "marked"]

_CACHED = re.compile(rb'"cache_control"\s*:\s*(\{[^{}]*\})')
_PLAIN = b'{"type":"ephemeral"}'
_END = b"}]}"
_LOOKED_AT = 16
"""Newest messages in which a client's marks are looked for: they move with what is new."""


class _Kind(msgspec.Struct):
    type: str = ""


_KIND = msgspec.json.Decoder(_Kind)


def free_marks(fields: Mapping[str, bytes], lead: Sequence[bytes]) -> int:
    """How many the client's head leaves: system, tools, leading messages, and a mark the API places itself."""
    heads = (name for name in ("system", "tools") if b"cache_control" in fields.get(name, b""))
    blocks = [block for name in heads for block in listed(fields, name)]
    blocks.extend(block for element in lead for block in listed(fields_of(element), "content"))
    taken = sum(b"cache_control" in block and "cache_control" in fields_of(block) for block in blocks)
    return max(0, MARKS - taken - ("cache_control" in fields))


def mark_of(elements: Sequence[bytes]) -> bytes:
    """The newest mark in the client's history; the plain one if there is none."""
    for element in reversed(elements[-_LOOKED_AT:]):
        for found in reversed(_CACHED.findall(element) if b"cache_control" in element else ()):
            if fields_of(found).get("type") == b'"ephemeral"':
                return bytes(found)
    return _PLAIN


def marked(messages: Sequence[bytes], places: Sequence[int], free: int, mark: bytes) -> list[bytes]:
    """The messages with a mark behind each of the first so many; the last of these marks if there are too many."""
    made = list(messages)
    chosen = {_markable(made, place) for place in places if place > 0} - {-1}
    for place in sorted(chosen)[-free:] if free else ():
        made[place] = b"".join((made[place][: -len(_END)], b',"cache_control":', mark, _END))
    return made


def _markable(messages: Sequence[bytes], end: int) -> int:
    """The last of the first `end` messages that takes a mark; -1 if none does."""
    return next((place for place in reversed(range(min(end, len(messages)))) if _takes_mark(messages[place])), -1)


def _takes_mark(data: bytes) -> bool:
    """Whether the last block of a message, or of the last of several, may carry one."""
    if not data.endswith(_END):
        return False
    block = read(message_of(items_of(b"[%b]" % data)[-1]).pieces[-1], _KIND)
    return block is not None and block.type in MARKABLE
