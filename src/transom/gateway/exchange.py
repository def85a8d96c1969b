"""An exchange: one governed request of a client, from its first byte upstream to the last byte of its answer.

The answer streams through as it comes. Where the model called the host, the host answers, another request goes
upstream, and what comes back goes on in the same answer. An overflow, and a request of the fallback stage that the
provider will not have, are met with one new window before the client hears of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol, TypeVar

import msgspec
from aiohttp import ClientError, ClientResponse, web
from multidict import CIMultiDict
from yarl import URL

from transom.adapters.provider_errors import Failure, failure_of
from transom.core.block import Text, ToolCall
from transom.errors import BadInput, KernelError
from transom.gateway.face import Face
from transom.gateway.governor import Governor, Turn
from transom.gateway.journal import note, place_of
from transom.gateway.metrics import Metrics
from transom.gateway.relay import STATUS, ClientLeft, cut, ended, given, opened, unreachable
from transom.gateway.upstream import Upstream, passed_on
from transom.ports import Reply

__all__ = ["Exchange", "Server"]

T = TypeVar("T")
_ROUNDS = 24
"""Requests upstream for one answer to a client: a model that goes on calling only the host is not asked again."""
_CUTS = 6
"""Answers in a row that were cut off by the client's output limit: the next one would be, too. A handoff is asked for
four times at most before code opens the window."""
_CUT = frozenset({"max_tokens", "length", "max_output_tokens"})
_ALIVE = 5.0
"""Seconds between comments that keep a client's stream open while the next answer is waited for."""
_NO_ANSWER = Failure(kind="unavailable", message="what came is no answer of this API")
_NO_STREAMS = frozenset({"application/json", "text/html"})
"""What comes in place of a stream: an error under status 200, a page of somebody in between."""
_CREDENTIALS = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "proxy-authorization", "cookie")
_LEAST_SECRET = 4
"""Characters: what is shorter stands in words by chance."""
_ENCODED = ("accept-encoding", "content-encoding")


class Server(Protocol):
    """What an exchange needs of the server around it."""

    upstream: Upstream
    metrics: Metrics

    @property
    def governor(self) -> Governor: ...

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """In the governor's thread."""
        ...


@dataclass
class Exchange:
    """`answer` is called once."""

    server: Server
    request: web.Request
    url: URL
    face: Face
    turn: Turn

    def __post_init__(self) -> None:
        self._is_streamed = self.turn.call.is_streamed
        """Whether the answer is: some upstreams answer in one piece whatever was asked for."""
        self._splice = self.face.splice(is_streamed=self._is_streamed)
        self._response: web.StreamResponse | None = None
        self._sent: list[bytes] = []
        self._is_retried = False
        self._is_asked = False
        self._cuts = 0
        """Answers in a row that the client's own output limit cut off."""

    async def answer(self) -> web.StreamResponse:
        """The client's answer, written. What the other side does wrong is passed on; nothing of ours raises."""
        try:
            return await self._rounds()
        except (ClientLeft, asyncio.CancelledError):
            if self._is_asked:
                await self._failed("unavailable", "the client left")
            raise
        except (ClientError, TimeoutError) as problem:
            await self._failed("unavailable", f"{type(problem).__name__}: {problem}")
            if self._response is None:
                return unreachable(self.server.metrics, self.face, problem)
            self.server.metrics.count("upstream_errors", kind="unavailable")
            return await self._broken(f"the upstream broke off: {problem}")
        except Exception as problem:  # noqa: BLE001 - the edge: the client hears of it as of a broken answer
            note(logging.ERROR, "fault", what=place_of(problem))
            return await self._broken("the answer could not be passed on")

    async def _rounds(self) -> web.StreamResponse:
        server, turn = self.server, self.turn
        while True:
            async with self._asked() as upstream:
                found: Reply | Failure | None
                if self._streams(upstream):
                    found = await self._read(upstream)
                else:
                    data = await upstream.read()
                    found = self._whole(upstream.status, data)
                    if isinstance(found, Failure):
                        if await self._recovers(found):
                            continue
                        return await self._refused(upstream, data)
                headers = upstream.headers
            if found is None:
                await self._note("unavailable", "the answer ended before its end")
                return await self._broken("the upstream's answer ended before its end")
            if isinstance(found, Failure):
                await self._note(_kind(found), found.message)
                return await self._finished(headers)
            self._hear(found)
            self._cuts = self._cuts + 1 if found.stop_reason in _CUT else 0
            if (turn.rounds >= _ROUNDS or self._cuts >= _CUTS) and turn.ready.wants_more(found):
                server.metrics.count("exhausted")
                note(logging.WARNING, "only-host-calls", rounds=turn.rounds, session=turn.conversation.session_id)
                return await self._finished(headers, found)
            if not turn.ready.wants_more(found):
                return await self._finished(headers, found)
            try:
                await server.run(partial(server.governor.again, turn, found, self._splice.wire))
            except KernelError as problem:
                return await self._broken(str(problem))
            server.metrics.sent(turn.ready.prepared.verdict)

    # -- upstream

    @asynccontextmanager
    async def _asked(self) -> AsyncIterator[ClientResponse]:
        self._is_asked = True
        headers = passed_on(self.request.headers, *_ENCODED)
        headers["accept-encoding"] = "identity"
        body = self.turn.ready.body
        alive = asyncio.create_task(self._keep_open()) if self._response is not None else None
        try:
            async with self.server.upstream.ask("POST", self.url, headers, body, is_read=True) as upstream:
                if alive is not None:
                    alive.cancel()
                yield upstream
        finally:
            if alive is not None:
                alive.cancel()

    async def _keep_open(self) -> None:
        while self._response is not None and self._is_streamed:
            await asyncio.sleep(_ALIVE)
            await given(self._response, b": waiting\n\n")

    def _streams(self, upstream: ClientResponse) -> bool:
        """Whether what comes is the stream that was asked for."""
        return self._is_streamed and upstream.status == 200 and upstream.content_type not in _NO_STREAMS

    async def _read(self, upstream: ClientResponse) -> Reply | Failure | None:
        """Pass a stream on as it comes, and read it."""
        self._splice.start(self.turn.ready.takes)
        if self._response is None:
            await self._open(upstream.headers)
        async for data in upstream.content.iter_any():
            await self._write(self._splice.feed(data))
        await self._write(self._splice.feed(b""))
        try:
            return self._splice.answer
        except msgspec.DecodeError:
            return _NO_ANSWER

    def _whole(self, status: int, data: bytes) -> Reply | Failure:
        """Read what came in one piece; what is no answer says why there is none."""
        if status != 200 or self._response is not None:
            return failure_of(status, data)
        splice = self.face.splice(is_streamed=False) if self._is_streamed else self._splice
        splice.start(self.turn.ready.takes)
        try:
            splice.whole(data)
            found = splice.answer
        except (msgspec.DecodeError, BadInput):
            found = None
        if self._is_streamed:
            if not isinstance(found, Reply):
                return failure_of(status, data)
            self._splice, self._is_streamed = splice, False
        return found or _NO_ANSWER

    async def _recovers(self, failure: Failure) -> bool:
        """Note why there is no answer; whether a smaller request is worth sending, once. A provider that twice gives
        none where only a handoff is accepted is not asked for one again: something of that request may be the cause."""
        kind, is_narrowed = _kind(failure), self.turn.ready.now.allowed is not None
        if is_narrowed and failure.kind == "unavailable" and self.turn.conversation.is_unheard:
            kind = "invalid"
        await self._note(kind, failure.message)
        if self._is_retried or not (kind == "overflow" or (is_narrowed and kind == "invalid")):
            return False
        self._is_retried = True
        try:
            await self.server.run(lambda: self.server.governor.again(self.turn))
        except KernelError as problem:
            note(logging.WARNING, "no-smaller-request", what=place_of(problem))
            return False
        self.server.metrics.count("recovered", kind=failure.kind)
        return True

    # -- the log

    async def _note(self, kind: Literal["overflow", "unavailable", "invalid"], message: str) -> None:
        self.server.metrics.count("upstream_errors", kind=kind)
        await self._failed(kind, message)

    async def _failed(self, kind: Literal["overflow", "unavailable", "invalid"], message: str) -> None:
        self._is_asked = False
        came = b"".join(self._sent)
        kept = _harmless(message, self.request.headers)
        await self._kept(lambda: self.turn.conversation.failed(kind, kept, came))

    def _hear(self, reply: Reply) -> None:
        self._is_asked = False
        turn = self.turn
        turn.response_id = turn.response_id or reply.response_id
        turn.text.extend(block.text for block in reply.blocks if isinstance(block, Text))
        calls = [block for block in reply.blocks if isinstance(block, ToolCall)]
        turn.calls.extend(call.call_id for call in calls if not turn.ready.takes(call.name))
        self.server.metrics.used(reply.usage)

    async def _kept(self, work: Callable[[], T]) -> T | None:
        """Keep something in the log. If it cannot be kept the client still gets its answer."""
        try:
            return await self.server.run(work)
        except KernelError as problem:
            self.server.metrics.count("unkept")
            note(logging.ERROR, "unkept", what=place_of(problem))
            return None

    # -- downstream

    async def _open(self, headers: CIMultiDict[str] | object) -> web.StreamResponse:
        self._response = web.StreamResponse(status=200)
        self._response.headers.extend(self._shown(headers))
        await opened(self._response, self.request)
        return self._response

    def _shown(self, headers: object) -> CIMultiDict[str]:
        shown = passed_on(headers, "content-encoding")  # type: ignore[arg-type]
        turn = self.turn
        shown[STATUS] = "plain" if turn.ready.is_plain else "governed"
        shown["x-transom-session"] = turn.conversation.session_id
        return shown

    async def _write(self, data: bytes) -> None:
        if data and self._response is not None:
            self._sent.append(data)
            await given(self._response, data)

    async def _finished(self, headers: object, reply: Reply | None = None) -> web.StreamResponse:
        """The answer's end; the log has it before the client."""
        rest = self._splice.end()
        turn = self.turn
        data = b"".join((*self._sent, rest))
        await self._kept(lambda: self.server.governor.done(turn, reply, self._splice.wire if reply else "", data))
        if self._response is None and not self._is_streamed:
            whole = web.Response(status=200, body=rest)
            whole.headers.extend(self._shown(headers))
            return whole
        response = self._response or await self._open(headers)
        await ended(response, rest)
        return response

    async def _refused(self, upstream: ClientResponse, data: bytes) -> web.StreamResponse:
        """What the provider says of itself, with its meaning."""
        if self._response is not None:
            return await self._broken(failure_of(upstream.status, data).message)
        response = web.Response(status=upstream.status, body=data)
        response.headers.extend(self._shown(upstream.headers))
        if upstream.status == 429:
            response.headers.setdefault("retry-after", "2")  # without it some clients give up at once
        return response

    async def _broken(self, message: str) -> web.StreamResponse:
        """An answer that cannot be ended well is not ended: a client asks again when its stream is cut."""
        if self._response is None:
            self.server.metrics.count("broken")
            return web.Response(status=502, body=self.face.error(502, message), content_type="application/json")
        await self._write(self._splice.failed(message))
        return cut(self._response, self.request)


def _harmless(words: str, headers: Mapping[str, str]) -> str:
    """The words without the credentials of the request: some servers quote the key that they refuse."""
    for name in _CREDENTIALS:
        secret = headers.get(name, "").rpartition(" ")[2]
        if len(secret) >= _LEAST_SECRET:
            words = words.replace(secret, "***")
    return words


def _kind(failure: Failure) -> Literal["overflow", "unavailable", "invalid"]:
    """For the log: `invalid` is about the request, all else but an overflow is about the provider's state."""
    if failure.kind == "overflow":
        return "overflow"
    return "invalid" if failure.kind == "invalid" else "unavailable"
