"""The control of `bench.gateway`: a relay that only relays, aiohttp on both sides. `python -m bench.relay UPSTREAM`.

It reads a request whole, sends it on, and passes each piece of the answer on as it comes: what any gateway has to do,
and all that this one does. It prints its port.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator, Mapping

from aiohttp import ClientSession, TCPConnector, web
from multidict import CIMultiDict

__all__ = ["relay"]

_OWN = frozenset({"host", "content-length", "transfer-encoding", "connection"})
_LARGEST = 64 * 1024 * 1024


def relay(upstream: str) -> web.Application:
    """The relay's application."""
    sessions: list[ClientSession] = []

    async def running(_: web.Application) -> AsyncIterator[None]:
        sessions.append(ClientSession(connector=TCPConnector(limit=0), auto_decompress=False))
        yield
        await sessions[0].close()

    async def relayed(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        url, headers = upstream + request.path_qs, _passed_on(request.headers)
        async with sessions[0].request(request.method, url, headers=headers, data=body) as answer:
            response = web.StreamResponse(status=answer.status, headers=_passed_on(answer.headers))
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response

    app = web.Application(client_max_size=_LARGEST)
    app.cleanup_ctx.append(running)
    app.router.add_route("*", "/{path:.*}", relayed)
    return app


def _passed_on(headers: Mapping[str, str]) -> CIMultiDict[str]:
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _OWN)


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listening.getsockname()[1], flush=True)
    web.run_app(relay(sys.argv[1]), sock=listening, print=None, access_log=None)
