"""The gateway's server: routes, who may come in, relays, and the way out when governing fails (fail-open).

A request of the three APIs is governed by the `Governor`, in its own thread; everything else is relayed byte for byte.
If governing fails before anything was sent, the client's own request goes upstream unchanged and `x-transom-status`
says why.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from aiohttp import ClientError, web
from yarl import URL

from transom.errors import KernelError
from transom.gateway.exchange import STATUS, Exchange, one_line, unreachable
from transom.gateway.face import Face
from transom.gateway.governor import Governor
from transom.gateway.identity import Identity, identify
from transom.gateway.metrics import Metrics
from transom.gateway.upstream import Upstream, passed_on

__all__ = ["Gateway", "Office", "Settings"]

T = TypeVar("T")
_LOG = logging.getLogger("transom.gateway")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`token`: what a client must show, in `x-transom-token` or in front of the path (`/t/TOKEN/v1/…`); empty: nobody
    is asked. `is_governed` False: everything is relayed."""

    is_governed: bool = True
    token: str = ""
    max_body: int = 64 * 1024 * 1024
    """Bytes of a request; a larger one is refused. Claude Code caps its own at 32 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Office:
    """What governs: the faces by path, the governor over a store, and how the store is closed."""

    faces: Mapping[str, Face]
    governor: Governor
    close: Callable[[], None]


class Gateway:
    """`make` opens the store in the thread in which all of its work is done."""

    def __init__(self, upstream: Upstream, make: Callable[[], Office], settings: Settings) -> None:
        self.upstream, self._make, self._settings = upstream, make, settings
        self.metrics = Metrics()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="governor")
        self._office: Office | None = None
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def app(self) -> web.Application:
        app = web.Application(client_max_size=self._settings.max_body)
        app.cleanup_ctx.append(self._running)
        app.router.add_get("/transom/health", _health)
        app.router.add_get("/transom/ready", self._ready)
        app.router.add_get("/transom/metrics", self._show_metrics)
        app.router.add_get("/transom/status", self._show_status)
        app.router.add_route("*", "/{path:.*}", self._any)
        return app

    @property
    def office(self) -> Office:
        assert self._office is not None, "the server is not running"
        return self._office

    @property
    def governor(self) -> Governor:
        return self.office.governor

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _running(self, _: web.Application) -> AsyncIterator[None]:
        await self.upstream.open()
        self._office = await self.run(self._make)
        yield
        await self.upstream.close()
        await self.run(self.office.close)
        self._thread.shutdown()

    # -- routes

    async def _ready(self, _: web.Request) -> web.Response:
        return web.json_response({"ready": self._office is not None}, status=200 if self._office else 503)

    async def _show_metrics(self, request: web.Request) -> web.Response:
        self._admitted(request)
        return web.Response(text=self.metrics.text(), content_type="text/plain", charset="utf-8")

    async def _show_status(self, request: web.Request) -> web.Response:
        self._admitted(request)
        sessions = await self.run(self.governor.report)
        return web.json_response({"metrics": self.metrics.values(), "sessions": sessions})

    def _admitted(self, request: web.Request) -> str:
        """The path behind the token. Raises `HTTPUnauthorized`."""
        path, token = request.raw_path, request.headers.get("x-transom-token", "")
        if path.startswith("/t/"):
            token, slash, rest = path[3:].partition("/")
            path = slash + rest
        if not hmac.compare_digest(token.encode(), self._settings.token.encode()) and self._settings.token:
            raise web.HTTPUnauthorized(text="transom: show the gateway's token in x-transom-token or as /t/TOKEN/...\n")
        return path

    async def _any(self, request: web.Request) -> web.StreamResponse:
        path = self._admitted(request)
        bare = path.partition("?")[0]
        if request.headers.get("upgrade", "").lower() == "websocket":
            return web.Response(status=426, text="transom: no websocket is served here; use HTTP\n")
        if bare == "/api/hello":
            return web.Response()
        url = self.upstream.url(path, request.headers)
        if url is None:
            return web.Response(status=502, text=f"transom: no upstream for {bare}; name one with --upstream\n")
        body = await request.read()
        face = self.office.faces.get(bare) if request.method == "POST" else None
        if face is None or not self._settings.is_governed:
            return await self._relay(request, url, body, "relayed")
        return await self._govern(request, url, body, face)

    async def _relay(
        self,
        request: web.Request,
        url: URL,
        body: bytes,
        status: str,
        *,
        reason: str = "",
        kept: list[bytes] | None = None,
    ) -> web.StreamResponse:
        """The request and its answer as they are; the answer's bytes are added to `kept`."""
        self.metrics.count("requests", status=status)
        try:
            async with self.upstream.ask(request.method, url, passed_on(request.headers), body or None) as upstream:
                response = web.StreamResponse(status=upstream.status, reason=upstream.reason)
                response.headers.extend(passed_on(upstream.headers))
                response.headers[STATUS] = f"{status}; {reason}" if reason else status
                if (length := upstream.headers.get("content-length")) is not None:
                    response.content_length = int(length)
                await response.prepare(request)
                async for data in upstream.content.iter_any():
                    if kept is not None:
                        kept.append(data)
                    await response.write(data)
                await response.write_eof()
                return response
        except (ClientError, TimeoutError) as problem:
            return unreachable(self.metrics, self.office.faces.get(url.path), problem)

    async def _govern(self, request: web.Request, url: URL, body: bytes, face: Face) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            call = await self.run(lambda: face.call(body))
            identity = await self.run(lambda: identify(face, call, headers))
        except KernelError as problem:
            return await self._relay(request, url, body, "unread", reason=one_line(problem))
        if identity.kind in {"side", "compaction"}:
            return await self._aside(request, url, body, face, identity)
        async with self._in_turn(identity.key):
            try:
                turn = await self.run(lambda: self.governor.begin(face, call, identity))
            except Exception as problem:  # noqa: BLE001 - fail-open: the client's request goes on without us
                reason = one_line(problem)
                await self.run(lambda: self.governor.failed_open(identity, reason))
                _LOG.warning("failed open: %s", reason, exc_info=not isinstance(problem, KernelError))
                return await self._relay(request, url, body, "failed-open", reason=reason)
            self.metrics.sent(turn.ready.prepared.verdict)
            self.metrics.count("requests", status="plain" if turn.ready.is_plain else "governed")
            return await Exchange(self, request, url, face, turn).answer()

    async def _aside(
        self, request: web.Request, url: URL, body: bytes, face: Face, identity: Identity
    ) -> web.StreamResponse:
        """A request beside the main loop, or a client's compaction: as it is, and kept by itself."""
        kept: list[bytes] = []
        response = await self._relay(request, url, body, identity.kind, kept=kept)
        data = b"".join(kept)
        try:
            await self.run(lambda: self.governor.aside(face, identity, body, response.status, data))
        except KernelError as problem:
            self.metrics.count("unkept")
            _LOG.error("not kept in the log: %s", one_line(problem))
        return response

    @asynccontextmanager
    async def _in_turn(self, key: str) -> AsyncIterator[None]:
        """One request of a history at a time."""
        lock, waiting = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, waiting + 1)
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._locks.pop(key)
            if waiting > 1:
                self._locks[key] = (lock, waiting - 1)


async def _health(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})
