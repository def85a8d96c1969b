"""The model server of `bench.gateway`: it answers at once, reads no more of a request than it must, and keeps nothing.
`python -m bench.gateway_upstream` prints its port.

An answer says a sentence and calls a tool, as a stream if the request asks for one. With the header `x-bench-pieces: N`
it is a stream of so many pieces of text, `GAP` apart, each with the moment at which it was sent (`perf_counter_ns`,
which on Linux is one clock for all processes).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from time import perf_counter_ns

from transom.testing.model_server import APIS, Call, Said, _anthropic, _chat, _responses

__all__ = ["GAP", "SENT"]

GAP = 0.002
"""Seconds between two pieces."""
SENT = re.compile(rb"@(\d+)@")
"""The moment in a piece."""
_NUMBER = 987_654_321
"""Stands for an answer's number in what was made beforehand."""
_HEAD = re.compile(rb"(POST|GET) (\S+) ")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_PIECES = re.compile(rb"\r\nx-bench-pieces: *(\d+)", re.IGNORECASE)
_IS_STREAMED = re.compile(rb'"stream": ?true')
_LOOKED_AT = 4096
"""Bytes at either end of a request in which it says whether it wants a stream."""
_STREAM = b"text/event-stream; charset=utf-8"
_WRITERS = {"anthropic": _anthropic, "openai_chat": _chat, "openai_responses": _responses}


def _answers() -> dict[bytes, tuple[bytes, list[bytes]]]:
    """By path: an answer in one piece, and its frames."""
    said: Said = [
        "I read on in the file that the last result named. ",
        Call(name="read", arguments={"path": "src/a.py"}),
    ]
    made = {APIS[name].encode(): write(_NUMBER, said, 1000) for name, write in _WRITERS.items()}
    return {path: (json.dumps(whole).encode(), frames) for path, (whole, frames) in made.items()}


_ANSWERS = _answers()


class _Connection(asyncio.Protocol):
    def __init__(self, number: Callable[[], int]) -> None:
        self._number = number
        self._head = b""
        self._end = b""
        self._left = 0
        self._transport: asyncio.Transport | None = None
        self._streams: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._left:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            length = _LENGTH.search(head)
            self._left = int(length[1]) if length else 0
            self._head = head + end + data[:_LOOKED_AT]
        self._left -= len(data)
        self._end = (self._end + data[-_LOOKED_AT:])[-_LOOKED_AT:]
        if self._left <= 0:
            head, ends = self._head, self._head + self._end
            self._head, self._end, self._left = b"", b"", 0
            self._answer(head, bool(_IS_STREAMED.search(ends)))

    def _answer(self, head: bytes, is_streamed: bool) -> None:
        asked, pieces = _HEAD.match(head), _PIECES.search(head)
        found = _ANSWERS.get(asked[2].partition(b"?")[0]) if asked else None
        if found is None:
            self._give(b"application/json", b'{"data":[]}')
            return
        whole, frames = found
        if not pieces:
            data = b"".join(frames) if is_streamed else whole
            self._give(_STREAM if is_streamed else b"application/json", self._numbered(data))
            return
        task = asyncio.get_running_loop().create_task(self._stream(frames, int(pieces[1])))
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)

    def _numbered(self, data: bytes) -> bytes:
        return data.replace(b"%d" % _NUMBER, b"%d" % self._number())

    def _give(self, media: bytes, data: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-length: %d\r\n\r\n" % (media, len(data))
        assert self._transport is not None
        self._transport.write(head + data)

    async def _stream(self, frames: list[bytes], pieces: int) -> None:
        """The words of the answer in so many pieces, one after the other."""
        transport = self._transport
        assert transport is not None
        transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % _STREAM)
        number = b"%d" % self._number()
        place = next(place for place, frame in enumerate(frames) if b"I rea" in frame)
        for frame in frames[:place]:
            _chunk(transport, frame.replace(b"%d" % _NUMBER, number))
        for _ in range(pieces):
            await asyncio.sleep(GAP)
            piece = re.sub(rb"I rea[^\"]*", b"@%d@ " % perf_counter_ns(), frames[place])
            _chunk(transport, piece.replace(b"%d" % _NUMBER, number))
        for frame in frames[place + 1 :]:
            _chunk(transport, frame.replace(b"%d" % _NUMBER, number))
        transport.write(b"0\r\n\r\n")


def _chunk(transport: asyncio.Transport, data: bytes) -> None:
    transport.write(b"%x\r\n%b\r\n" % (len(data), data))


async def _serve() -> None:
    count = iter(range(1, 10**9))
    server = await asyncio.get_running_loop().create_server(
        lambda: _Connection(count.__next__), "127.0.0.1", 0, backlog=128
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
