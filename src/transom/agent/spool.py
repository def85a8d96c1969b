"""The output of a command as it comes, in bounded room.

Up to the bound all of it is kept, so that the kernel's offload makes an artifact of the whole. Beyond it the first and
the last half stay, cut at lines, with the number of bytes between them: a command that prints for ever costs its time
limit and no more room.
"""

from __future__ import annotations

from collections import deque

__all__ = ["WHOLE_BYTES", "Spool"]

WHOLE_BYTES = 4 * 1024 * 1024
"""About a million tokens of a log: more than the window of any model that is priced in `data/prices.toml`."""


class Spool:
    """`whole`: bytes up to which nothing is dropped."""

    def __init__(self, whole: int = WHOLE_BYTES) -> None:
        self._half = whole // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._dropped = 0

    def add(self, data: bytes) -> None:
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if data:
            self._tail.append(data)
            self._tail_size += len(data)
            while self._tail_size - len(self._tail[0]) >= self._half:
                oldest = self._tail.popleft()
                self._tail_size -= len(oldest)
                self._dropped += len(oldest)

    @property
    def is_cut(self) -> bool:
        return self._dropped > 0 or self._tail_size > self._half

    def data(self) -> bytes:
        """The output, or its two ends around a line that counts what was dropped."""
        head, tail = bytes(self._head), b"".join(self._tail)
        if not self.is_cut:
            return head + tail
        last = tail[-self._half :]
        first = head[: head.rfind(b"\n") + 1] or head
        last = last[last.find(b"\n") + 1 :] or last
        left_out = self._dropped + len(head) - len(first) + len(tail) - len(last)
        note = b"[%d bytes are left out here: the output is longer than %d bytes]\n" % (left_out, 2 * self._half)
        return first + (b"" if first.endswith(b"\n") else b"\n") + note + last

    def text(self) -> str:
        """The same; undecodable bytes are replaced."""
        return self.data().decode("utf-8", "replace")
