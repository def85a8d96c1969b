"""A relay: a request and its answer as they are, and how a client is written to.

The gateway reads from upstream no faster than the client reads from it: what is written waits until the socket has
room. A client that leaves ends its handler at once, and with it the request upstream.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from aiohttp import ClientError, web
from yarl import URL

from transom.gateway.face import Face
from transom.gateway.journal import note
from transom.gateway.metrics import Metrics
from transom.gateway.upstream import Upstream, passed_on

__all__ = [
    "STATUS",
    "ClientLeft",
    "Keep",
    "Relaying",
    "cut",
    "ended",
    "given",
    "one_line",
    "opened",
    "relayed",
    "unreachable",
]

Keep: TypeAlias = "Callable[[int, bytes], Awaitable[None]]"
STATUS = "x-transom-status"
"""The header that says what was done with a request."""


class ClientLeft(ConnectionError):
    """The client closed its connection before it had its answer."""


class Relaying(Protocol):
    """What a relay needs of the server around it."""

    upstream: Upstream
    metrics: Metrics


async def relayed(
    server: Relaying,
    request: web.Request,
    url: URL,
    body: bytes,
    status: str,
    *,
    face: Face | None = None,
    keep: Keep | None = None,
) -> web.StreamResponse:
    """Pass a request on, and its answer back. `status` is what the client is told of it. `keep` is given the answer's
    status and bytes before the client has the last of them; of one that does not come to its end, what came."""
    response: web.StreamResponse | None = None
    came: list[bytes] = []
    try:
        async with server.upstream.ask(request.method, url, passed_on(request.headers), body or None) as answer:
            response = web.StreamResponse(status=answer.status, reason=answer.reason)
            response.headers.extend(passed_on(answer.headers))
            response.headers[STATUS] = status
            if (length := answer.headers.get("content-length")) is not None:
                response.content_length = int(length)
            await opened(response, request)
            async for data in answer.content.iter_any():
                came.append(data)
                if keep is None:
                    await given(response, came.pop())
                elif len(came) > 1:
                    await given(response, came[-2])
    except (ClientError, TimeoutError) as problem:
        if response is None:
            return unreachable(server.metrics, face, problem)
        server.metrics.count("broken")
        return cut(response, request)
    finally:
        if keep is not None:
            await keep(0 if response is None else response.status, b"".join(came))
    await ended(response, came[-1] if came else b"")
    return response


async def opened(response: web.StreamResponse, request: web.Request) -> None:
    """Begin an answer. Raises `ClientLeft`."""
    try:
        await response.prepare(request)
    except ConnectionError as problem:
        raise ClientLeft from problem


async def given(response: web.StreamResponse, data: bytes) -> None:
    """Write to the client. Raises `ClientLeft`."""
    try:
        await response.write(data)
    except ConnectionError as problem:
        raise ClientLeft from problem


async def ended(response: web.StreamResponse, rest: bytes) -> None:
    """Write the last of an answer. Raises `ClientLeft`."""
    try:
        await response.write_eof(rest)
    except ConnectionError as problem:
        raise ClientLeft from problem


def cut(response: web.StreamResponse, request: web.Request) -> web.StreamResponse:
    """End an answer that has begun in the one way that a client takes for no end."""
    if request.transport is not None:
        request.transport.close()
    return response


def unreachable(metrics: Metrics, face: Face | None, problem: Exception) -> web.Response:
    metrics.count("upstream_errors", kind="unreachable")
    note(logging.WARNING, "upstream-unreachable", what=type(problem).__name__)
    said = f"transom: the upstream did not answer: {type(problem).__name__}: {problem}"
    if face is None:
        return web.Response(status=502, text=said + "\n")
    return web.Response(status=502, body=face.error(502, said), content_type="application/json")


def one_line(problem: BaseException) -> str:
    """For a header: no line break, no control character, no other letters than a header takes."""
    said = " ".join(f"{type(problem).__name__}: {problem}".split())[:300]
    return "".join(letter if letter.isprintable() and letter.isascii() else "?" for letter in said)
