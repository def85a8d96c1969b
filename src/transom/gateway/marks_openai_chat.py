"""Cache marks in chat requests. They are no part of OpenAI's API, but routers to providers that want them take them, on
a message or on the last block of its content; a client's own way is kept.

A request whose messages are written anew has marks only if the client set some: those of the head stay, those behind it
go, and ours stand where the kernel says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from transom.adapters.provider_writing import written_object
from transom.core.breakpoints import MARKS
from transom.gateway.face import Call
from transom.gateway.face_openai import array_of, object_of

__all__ = ["marked"]

_NAME = b'"cache_control"'
_MARK = _NAME + b':{"type":"ephemeral"}'
_ANY = re.compile(rb',\s*"cache_control"\s*:\s*\{[^{}]*\}|"cache_control"\s*:\s*\{[^{}]*\}\s*,?')
"""In raw JSON; inside a string the quotes would be escaped."""
_LOOKED_AT = 16
"""Messages behind the head, and newest ones, in which a client's marks are looked for: they stand in the head and move
with what is new. A history may have thousands."""


def marked(call: Call, messages: Sequence[bytes], marks: Sequence[int] | None) -> list[bytes]:
    """`messages` with marks behind the first so many of them for each of `marks`; None: the first and the last."""
    ours = [_ANY.sub(b"", one) if _NAME in one else one for one in messages]
    near = (*call.elements[: call.lead + _LOOKED_AT], *call.elements[call.lead + _LOOKED_AT :][-_LOOKED_AT:])
    samples = [one for one in near if _NAME in one]
    if not samples:
        return ours
    left = MARKS - sum(one.count(_NAME) for one in (*call.elements[: call.lead], call.fields.get("tools", b"")))
    is_outer = any("cache_control" in object_of(one) for one in samples)
    places = sorted({1, len(ours)} if marks is None else {place for place in marks if 0 < place <= len(ours)})
    for place in places[-left:] if left > 0 else ():
        for at in range(place - 1, -1, -1):
            if found := _with_mark(ours[at], is_outer=is_outer):
                ours[at] = found
                break
    return ours


def _with_mark(group: bytes, *, is_outer: bool) -> bytes:
    """Neighbouring messages with a mark on the last; nothing if it takes none, or has one."""
    *before, last = array_of(b"[%b]" % group) or (b"",)
    fields = object_of(last)
    if not fields or _NAME in last:
        return b""
    if is_outer:
        return b",".join((*before, last[:-1] + b"," + _MARK + b"}"))
    content = fields.get("content", b"")
    if content.startswith(b'"') and content != b'""':
        fields["content"] = b'[{"type":"text","text":%b,%b}]' % (content, _MARK)
    elif content.endswith(b"}]"):
        fields["content"] = b"%b,%b}]" % (content[:-2], _MARK)
    else:
        return b""
    return b",".join((*before, written_object(fields)))
