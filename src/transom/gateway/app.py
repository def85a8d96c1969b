"""The gateway's server: who is answered by what, and the way out when governing fails (fail-open).

A request of the three APIs is governed by the `Governor`, in its own thread; everything else is relayed byte for byte.
If governing fails before anything was sent, the client's own request goes upstream unchanged and `x-transom-status`
says why. What the gateway itself refuses, it refuses in the API's own shape.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import TypeVar

from aiohttp import web
from yarl import URL

from transom.errors import KernelError
from transom.gateway.entrance import TurnedAway, entered
from transom.gateway.exchange import Exchange
from transom.gateway.face import Call, Face
from transom.gateway.governor import Governor, Turn
from transom.gateway.identity import Identity, identify
from transom.gateway.journal import note, place_of
from transom.gateway.metrics import Metrics
from transom.gateway.redaction import Redactor
from transom.gateway.relay import STATUS, ClientLeft, Keep, one_line, relayed
from transom.gateway.upstream import Upstream

__all__ = ["Gateway", "Office", "Settings"]

T = TypeVar("T")
_TRIES, _PAUSE = 6, 0.1
"""How often a history is asked for that another request is using, and the seconds between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`token`: what a client must show, in `x-transom-token` or in front of the path (`/t/TOKEN/v1/…`); empty: nobody
    is asked. `is_governed` False: everything is relayed. `max_body`: bytes of a request."""

    is_governed: bool
    token: str
    redactor: Redactor
    max_body: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Office:
    """What governs: the faces by path, the governor over a store, and how the store is closed."""

    faces: Mapping[str, Face]
    governor: Governor
    close: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Asked:
    request: web.Request
    url: URL
    body: bytes


@dataclass(slots=True)
class _Met:
    """A request as the governor's thread reads it."""

    face: Face
    headers: Mapping[str, str]
    call: Call | None = None
    identity: Identity | None = None

    @property
    def is_beside(self) -> bool:
        return self.identity is not None and self.identity.kind in {"side", "compaction"}


class Gateway:
    """`make` opens the store in the thread in which all of its work is done."""

    def __init__(self, upstream: Upstream, make: Callable[[], Office], settings: Settings) -> None:
        self.upstream, self._make, self._settings = upstream, make, settings
        self.metrics = Metrics()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="governor")
        self._office: Office | None = None
        self._failure = ""
        """Why the last request that failed open did."""

    def app(self) -> web.Application:
        app = web.Application(client_max_size=self._settings.max_body)
        app.cleanup_ctx.append(self._running)
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

    # -- who is answered by what

    async def _any(self, request: web.Request) -> web.StreamResponse:
        began = monotonic()
        path, status, outcome, session = "", 0, "left", ""
        try:
            path = _own(request.raw_path) or entered(request.raw_path, request.headers, self._settings.token)
            response = await self._answered(request, path)
            status, outcome = response.status, response.headers.get(STATUS, "own").partition(";")[0]
            session = response.headers.get("x-transom-session", "")
        except TurnedAway as refusal:
            status, outcome = refusal.status, "refused"
            self.metrics.count("requests", status=outcome)
            return self._refused(path or request.raw_path, refusal)
        except asyncio.CancelledError:
            self.metrics.count("left")
            raise
        except ClientLeft:
            self.metrics.count("left")
            return web.Response()  # to nobody
        finally:
            bare = path.partition("?")[0]
            took = int((monotonic() - began) * 1000)
            known = {"method": request.method, "path": bare, "outcome": outcome, "session": session}
            level = logging.DEBUG if bare.startswith("/transom/") else logging.INFO  # probes come every few seconds
            note(level, "request", status=status, ms=took, **known)
        return response

    async def _answered(self, request: web.Request, path: str) -> web.StreamResponse:
        bare = path.partition("?")[0]
        if bare.startswith("/transom/"):
            return await self._page(bare)
        if request.headers.get("upgrade", "").lower() == "websocket":
            return web.Response(status=426, text="transom: no websocket is served here; use HTTP\n")
        if bare == "/api/hello":
            return web.Response()
        url = self.upstream.url(path, request.headers)
        if url is None:
            raise TurnedAway(502, f"transom: no upstream for {bare}; name one with --upstream")
        if self._settings.redactor.rules and request.headers.get("content-encoding", "identity").lower() != "identity":
            raise TurnedAway(415, "transom: with --redact a request has to come uncompressed, so that it can be read")
        body = await self._body(request)
        face = self.office.faces.get(bare) if request.method == "POST" else None
        asked = _Asked(request, url, body)
        if face is None:  # counting tokens, a compaction: words there are words too
            is_json = body[:64].lstrip()[:1] in (b"{", b"[")
            return await self._relay(await self._redacted(asked) if is_json else asked, None, "relayed")
        if not self._settings.is_governed:
            return await self._open(asked, face, "relayed")
        return await self._govern(asked, face)

    async def _page(self, path: str) -> web.Response:
        match path.removeprefix("/transom/"):
            case "health":
                return web.json_response({"status": "ok"})
            case "ready":
                return web.json_response({"ready": self._office is not None}, status=200 if self._office else 503)
            case "metrics":
                return web.Response(body=self.metrics.text().encode(), headers={"content-type": Metrics.MEDIA})
            case "status":
                sessions = await self.run(self.governor.report)
                seen = {"metrics": self.metrics.values(), "sessions": sessions, "failed_open": self._failure}
                return web.json_response(seen)
            case _:
                raise TurnedAway(404, "transom: there are health, ready, metrics and status here")

    async def _body(self, request: web.Request) -> bytes:
        most = self._settings.max_body
        problem = TurnedAway(413, f"transom: a request may have {most:,} bytes here")
        if (request.content_length or 0) > most:
            raise problem
        pieces: list[bytes] = []
        size = 0
        async for piece in request.content.iter_any():  # joined once: `request.read` copies megabytes again and again
            size += len(piece)
            if size > most:
                raise problem
            pieces.append(piece)
        return b"".join(pieces)

    def _refused(self, path: str, refusal: TurnedAway) -> web.Response:
        """In the shape of the API that was asked, if it was one."""
        asked = path.partition("?")[0]
        faces = self._office.faces if self._office else {}
        face = next((face for end, face in faces.items() if asked.endswith(end)), None)
        if face is None:
            return web.Response(status=refusal.status, text=f"{refusal}\n")
        said = face.error(refusal.status, str(refusal))
        return web.Response(status=refusal.status, body=said, content_type="application/json")

    # -- requests that are not governed

    async def _relay(
        self, asked: _Asked, face: Face | None, status: str, reason: str = "", keep: Keep | None = None
    ) -> web.StreamResponse:
        self.metrics.count("requests", status=status)
        told = f"{status}; {reason}" if reason else status
        return await relayed(self, asked.request, asked.url, asked.body, told, face=face, keep=keep)

    async def _open(self, asked: _Asked, face: Face, status: str, reason: str = "") -> web.StreamResponse:
        """The client's own request, ungoverned; a secret in it is not sent on all the same."""
        return await self._relay(await self._redacted(asked), face, status, reason)

    async def _redacted(self, asked: _Asked) -> _Asked:
        redactor = self._settings.redactor
        return replace(asked, body=await self.run(lambda: redactor.json(asked.body))) if redactor.rules else asked

    async def _aside(self, asked: _Asked, face: Face, identity: Identity) -> web.StreamResponse:
        """A request beside the main loop, or a client's compaction: as it is, and kept by itself."""

        async def keep(status: int, data: bytes) -> None:
            aside = partial(self.governor.aside, face, identity, asked.body, status, data)
            try:
                await asyncio.shield(self.run(aside))
            except KernelError as problem:
                self.metrics.count("unkept")
                note(logging.ERROR, "unkept", what=place_of(problem))

        return await self._relay(await self._redacted(asked), face, identity.kind, keep=keep)

    # -- requests that are

    async def _govern(self, asked: _Asked, face: Face) -> web.StreamResponse:
        sent = asked.request.headers.items()
        met = _Met(face, {name.lower(): value.encode("utf-8", "replace").decode() for name, value in sent})
        try:
            turn = await self._begun(asked.body, met)
        except Exception as problem:  # noqa: BLE001 - fail-open: the client's request goes on without us
            return await self._failed_open(asked, met, problem)
        if turn is None:
            assert met.identity is not None, "what is beside the main loop was looked at"
            return await self._aside(asked, face, met.identity)
        try:
            self.metrics.sent(turn.ready.prepared.verdict)
            self.metrics.count("requests", status="plain" if turn.ready.is_plain else "governed")
            return await Exchange(self, asked.request, asked.url, face, turn).answer()
        finally:
            self._let_go(turn)

    async def _failed_open(self, asked: _Asked, met: _Met, problem: Exception) -> web.StreamResponse:
        reason, identity = one_line(problem), met.identity
        if identity is None:  # what cannot be read
            if not isinstance(problem, KernelError):
                note(logging.ERROR, "unread", what=place_of(problem))
            return await self._open(asked, met.face, "unread", reason)
        self._failure = reason
        await self.run(lambda: self.governor.failed_open(identity, problem, reason))
        note(logging.WARNING, "failed-open", what=place_of(problem))
        return await self._open(asked, met.face, "failed-open", reason)

    async def _begun(self, body: bytes, met: _Met) -> Turn | None:
        """The turn of a request; None for one beside the main loop. A client that asks again has left its first
        request, and that takes a moment to be seen; then another client says the same, and gets a history of its
        own."""
        for left in reversed(range(_TRIES)):
            begun = asyncio.ensure_future(self.run(partial(self._begin, body, met, forks=not left)))
            try:
                turn = await asyncio.shield(begun)
            except asyncio.CancelledError:
                begun.add_done_callback(self._unwanted)
                raise
            if turn is not None or met.is_beside:
                return turn
            await asyncio.sleep(_PAUSE)
        raise AssertionError("the last try forks")

    def _begin(self, body: bytes, met: _Met, *, forks: bool) -> Turn | None:
        """In the governor's thread; None for a history that is in use, too."""
        if met.call is None:
            met.call = self.governor.read(met.face, body)
            identity = identify(met.face, met.call, met.headers)
            met.identity = self.governor.known_as(met.face, met.call, identity)
        assert met.identity is not None
        return None if met.is_beside else self.governor.begin(met.face, met.call, met.identity, forks=forks)

    def _unwanted(self, begun: asyncio.Future[Turn | None]) -> None:
        if not begun.cancelled() and begun.exception() is None and (turn := begun.result()) is not None:
            self._let_go(turn)

    def _let_go(self, turn: Turn) -> None:
        """Behind whatever of the turn still waits for the governor's thread."""
        if not turn.is_over:
            self._thread.submit(self.governor.release, turn)


def _own(target: str) -> str:
    """The pages that anybody may see, whatever they call this machine: probes do not know the token."""
    return target if target in {"/transom/health", "/transom/ready"} else ""
