"""A witness between a client and the gateway: a relay that keeps every request and every answer, to the byte.

Where the other side dies, the client's connection is cut at once, as the other side's own would have been.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import ClientConnectionResetError, web

__all__ = ["Seen", "Tap", "passed"]

_ENDS = {"host", "connection", "keep-alive", "transfer-encoding", "upgrade", "content-length", "te"}


@dataclass(slots=True)
class Seen:
    """One request of a client and what it got. `is_whole`: the answer came to its end."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    status: int = 0
    said: str = ""
    """The gateway's `x-transom-status`."""
    session_id: str = ""
    answer: bytearray = field(default_factory=bytearray)
    is_whole: bool = False

    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


class Tap:
    """`base_url` leads to `target`. Upgrades are passed on as requests, so that the other side refuses them."""

    def __init__(self, target: str) -> None:
        self.target, self.seen, self.base_url = target, [], ""  # type: tuple[str, list[Seen], str]
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._main, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._started.wait(20)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)

    def _main(self) -> None:
        runner = self._loop.run_until_complete(self._start())
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _start(self) -> web.AppRunner:
        app = web.Application(client_max_size=1 << 28)
        app.cleanup_ctx.append(self._session)
        app.router.add_route("*", "/{path:.*}", self._pass)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    async def _session(self, _: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(
            auto_decompress=False, timeout=aiohttp.ClientTimeout(total=None), read_bufsize=1 << 20
        ) as self._client:
            yield

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        named = {name.lower(): value for name, value in request.headers.items()}
        one = Seen(request.method, request.raw_path, named, await request.read())
        self.seen.append(one)
        if "websocket" in named.get("upgrade", "").lower():
            return await self._upgrade(one)
        try:
            return await self._answered(request, one)
        except aiohttp.ClientError:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()  # to nobody

    async def _answered(self, request: web.Request, one: Seen) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _ENDS}
        async with self._client.request(
            one.method,
            self.target + one.path,
            data=one.body or None,
            headers=headers,
            skip_auto_headers=("User-Agent",),
        ) as answer:
            one.status = answer.status
            one.said, one.session_id = (answer.headers.get(name, "") for name in _OURS)
            response = web.StreamResponse(status=answer.status)
            response.headers.extend(
                (name, value)
                for name, value in answer.headers.items()
                if name.lower() not in _ENDS - {"content-length"}
            )
            await response.prepare(request)
            async for data in answer.content.iter_any():
                one.answer += data
                await response.write(data)
            one.is_whole = True
            with suppress(ClientConnectionResetError):  # some hang up as soon as they have read the end
                await response.write_eof()
            return response

    async def _upgrade(self, one: Seen) -> web.Response:
        try:
            async with self._client.ws_connect(self.target + one.path):
                raise AssertionError("a websocket was served")
        except aiohttp.WSServerHandshakeError as refusal:
            one.status = refusal.status
            return web.Response(status=refusal.status)


_OURS = ("x-transom-status", "x-transom-session")
_BETWEEN = {"host", "connection", "accept-encoding", "content-length", "keep-alive", "transfer-encoding"}
"""Headers that belong to a connection."""


def passed(seen: list[Seen]) -> Sequence[object]:
    """What went by, in an order of its own: some clients ask for two things at once."""
    kept = [one for one in seen if one.status != 426]
    return sorted(
        (
            one.method,
            one.path,
            one.body,
            one.status,
            bytes(one.answer),
            sorted(set(one.headers.items()) - _between(one)),
        )
        for one in kept
    )


def _between(one: Seen) -> set[tuple[str, str]]:
    return {(name, value) for name, value in one.headers.items() if name in _BETWEEN}
