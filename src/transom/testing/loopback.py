"""A server on this machine that gives prepared answers in order: the other side of a provider, down to the bytes.

It knows nothing of any API. What was asked is kept as it came.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

__all__ = ["Asked", "Canned", "Loopback", "sse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Canned:
    """One prepared answer. `is_cut`: the connection ends before all that was promised; `is_held`: it stays open after
    the body until the client leaves."""

    body: bytes = b""
    status: int = 200
    media_type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict)
    is_cut: bool = False
    is_held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    path: str
    headers: Mapping[str, str]
    body: bytes


def sse(*data: str, line: str = "\n") -> bytes:
    """A stream of events."""
    return "".join(f"data: {one}{line}{line}" for one in data).encode()


class Loopback:
    """Serves `answers`, the last of them for ever."""

    def __init__(self, *answers: Canned) -> None:
        self.answers: Sequence[Canned] = answers
        self.asked: list[Asked] = []
        self.left = threading.Event()
        """Set when a client left an answer that is held."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", "0")))
                outer.asked.append(Asked(path=self.path, headers=dict(self.headers.items()), body=body))
                outer.give(self, outer.answers[min(len(outer.asked), len(outer.answers)) - 1])

            def log_message(self, *args: object) -> None:
                """A test's output is the test's."""

        return Handler

    def give(self, handler: BaseHTTPRequestHandler, answer: Canned) -> None:
        handler.send_response(answer.status)
        handler.send_header("content-type", answer.media_type)
        promised = len(answer.body) + (1000 if answer.is_cut or answer.is_held else 0)
        handler.send_header("content-length", str(promised))
        for name, value in answer.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(answer.body)
        handler.wfile.flush()
        if answer.is_held and handler.connection.recv(1) == b"":
            self.left.set()
        handler.close_connection = True
