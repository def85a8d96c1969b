"""Both ends of a gateway, down to the socket: an upstream that a test writes by hand, and a client that may misbehave."""

from __future__ import annotations

import json
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import urlsplit

__all__ = ["Asked", "Got", "Peer", "Talk", "connected", "is_closed", "message", "received", "sent", "until"]

Talk = Callable[["socket.socket", "Asked"], None]
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it came: its first line and headers, and the body."""

    head: bytes
    body: bytes

    @property
    def target(self) -> str:
        return self.head.split(b" ")[1].decode()

    def header(self, name: str) -> str | None:
        return _header(self.head, name)


@dataclass(frozen=True, slots=True)
class Got:
    """An answer as it came. `is_whole`: it ended as it said it would."""

    head: bytes
    body: bytes
    is_whole: bool

    @property
    def status(self) -> int:
        return int(self.head.split(b" ")[1])

    def header(self, name: str) -> str | None:
        return _header(self.head, name)


def _header(head: bytes, name: str) -> str | None:
    found = re.search(rf"\r\n{re.escape(name)}: *([^\r\n]*)", head.decode("latin-1"), re.IGNORECASE)
    return found[1] if found else None


@dataclass
class Peer:
    """An upstream: `talk` is given each request with its socket, in a thread of its own, and writes what it likes."""

    talk: Talk
    asked: list[Asked] = field(default_factory=list)
    broken: list[BaseException] = field(default_factory=list)
    """What `talk` raised, but for a socket that was closed on it."""

    def __enter__(self) -> Self:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        assert not self.broken, self.broken

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with closing(one), suppress(OSError):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while (asked := _request(one)) is not None:
                self.asked.append(asked)
                try:
                    self.talk(one, asked)
                except (AssertionError, ValueError, LookupError, TypeError) as problem:
                    self.broken.append(problem)
                    raise


def _request(one: socket.socket) -> Asked | None:
    data = bytearray()
    while b"\r\n\r\n" not in data:
        more = one.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    found = _LENGTH.search(head)
    pieces, left = [body], (int(found[1]) if found else 0) - len(body)
    while left > 0:
        more = one.recv(min(left, 1 << 20))
        if not more:
            return None
        pieces.append(more)
        left -= len(more)
    return Asked(head, b"".join(pieces))


def message(body: bytes, status: int = 200, *, length: int | None = None, **headers: str) -> bytes:
    """A whole answer for a peer to write; `length`: what it claims to be long."""
    named = {"content_type": "application/json", **headers}
    lines = [f"HTTP/1.1 {status} Said", f"content-length: {len(body) if length is None else length}"]
    lines.extend(f"{name.replace('_', '-')}: {value}" for name, value in named.items())
    return "\r\n".join((*lines, "", "")).encode() + body


@contextmanager
def connected(base_url: str) -> Iterator[socket.socket]:
    place = urlsplit(base_url)
    with socket.create_connection((place.hostname, place.port), timeout=30) as one:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield one


def sent(
    one: socket.socket, target: str, body: bytes | Mapping[str, object] = b"", *, method: str = "", **headers: str
) -> None:
    """Write a request; `host` and `content_length` may be said otherwise."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {"host": "127.0.0.1", "content_length": str(len(data)), **headers}
    lines = [f"{method or ('POST' if data else 'GET')} {target} HTTP/1.1"]
    lines.extend(f"{name.replace('_', '-')}: {value}" for name, value in named.items())
    one.sendall("\r\n".join((*lines, "", "")).encode("utf-8", "surrogateescape") + data)


def received(one: socket.socket, *, has_body: bool = True) -> Got:
    """Read one answer to its end, or as far as it came."""
    data = bytearray()
    while b"\r\n\r\n" not in data:
        more = one.recv(65536)
        if not more:
            return Got(bytes(data), b"", is_whole=False)
        data += more
    head, _, rest = bytes(data).partition(b"\r\n\r\n")
    if not has_body:
        return Got(head, rest, is_whole=True)
    if _header(head, "transfer-encoding") == "chunked":
        return _chunked(one, head, bytearray(rest))
    body, wanted = bytearray(rest), int(_header(head, "content-length") or 0)
    while len(body) < wanted and (more := one.recv(1 << 20)):
        body += more
    return Got(head, bytes(body), is_whole=len(body) == wanted)


def _chunked(one: socket.socket, head: bytes, data: bytearray) -> Got:
    body = bytearray()
    while True:
        while b"\r\n" not in data:
            more = one.recv(65536)
            if not more:
                return Got(head, bytes(body), is_whole=False)
            data += more
        size, _, rest = bytes(data).partition(b"\r\n")
        wanted = int(size, 16)
        data = bytearray(rest)
        while len(data) < wanted + 2:
            more = one.recv(1 << 20)
            if not more:
                return Got(head, bytes(body + data[:wanted]), is_whole=False)
            data += more
        if not wanted:
            return Got(head, bytes(body), is_whole=True)
        body += data[:wanted]
        del data[: wanted + 2]


def is_closed(one: socket.socket, seconds: float) -> bool:
    """Whether the other side leaves within this time; what it writes before is thrown away."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if not select.select([one], [], [], left)[0]:
            return False
        try:
            if not one.recv(1 << 20):
                return True
        except OSError:
            return True
    return False


def until(holds: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait for something to hold."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
