r"""Server-sent events as bytes: cut where they end, read and rewritten one by one, never written anew without need.

A frame is an event with the blank line that ends it, comments and fields nobody knows included. Frames put behind each
other are the stream, byte for byte, and do not depend on how the network cut it. Lines end in LF, CR LF or CR; whether
a CR at the end of what came stands alone is only known with the next byte, so its frame waits for that.
"""

from __future__ import annotations

import re

__all__ = ["Cutter", "data_of", "event", "with_data"]

_BLANK = re.compile(rb"(?:\r\n|\n|\r(?=[^\n])){2}")
_OVERLAP = 3
"""Bytes at the end of what was searched in which a blank line may have begun."""
_MARK = b"\xef\xbb\xbf"
"""A byte order mark: a stream may begin with one."""


class Cutter:
    """Frames out of bytes that come cut anywhere."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are whole now."""
        if not self._held and b"\r" not in data:
            if data.endswith(b"\n\n") and data.find(b"\n\n") == len(data) - 2:  # one frame, as most come
                return [data]
            *whole, rest = data.split(b"\n\n")
            self._hold(rest)
            return [piece + b"\n\n" for piece in whole]
        held = self._held
        held += data
        found = []
        start = 0
        for blank in _BLANK.finditer(held, self._searched):
            found.append(bytes(held[start : blank.end()]))
            start = blank.end()
        self._hold(held[start:] if start else held)
        return found

    def rest(self) -> bytes:
        """What is left when the stream is over, without the blank line that should end it; it is held no more."""
        left = bytes(self._held)
        self._hold(b"")
        return left

    def _hold(self, data: bytes | bytearray) -> None:
        self._held = data if isinstance(data, bytearray) else bytearray(data)
        self._searched = max(0, len(data) - _OVERLAP)


def data_of(frame: bytes) -> bytes:
    """The data of a frame, its lines joined by line feeds; nothing if it has none (a comment, a lone field)."""
    head, _, only = frame.partition(b"data: ")
    is_usual = only.find(b"\n") == len(only) - 2 and only.endswith(b"\n") and b"\r" not in only
    if is_usual and b"data:" not in head and (not head or head.endswith(b"\n")):
        return only[:-2]  # one line of data, the last before the blank one
    found = [line[5:] for line in frame.removeprefix(_MARK).splitlines() if line.startswith(b"data:")]
    return b"\n".join([line[1:] if line.startswith(b" ") else line for line in found])


def with_data(frame: bytes, data: bytes) -> bytes:
    """The frame with other data (in one line), all else of it as it was."""
    lines = []
    is_placed = False
    for line in frame.splitlines(keepends=True):
        if not line.removeprefix(_MARK).startswith(b"data:"):
            lines.append(line)
        elif not is_placed:
            is_placed = True
            lines.append(b"data: " + data + line[len(line.rstrip(b"\r\n")) :])
    return b"".join(lines)


def event(data: bytes, name: str = "") -> bytes:
    """A frame of our own; `name` is its `event` field, where the API has one."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data) if name else b"data: %b\n\n" % data
