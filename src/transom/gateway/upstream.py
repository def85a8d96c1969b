"""The other side of the gateway: fixed upstreams, one connection pool, headers passed on.

What goes up is the client's request with the client's own headers, credentials too; they are never kept. An answer
comes back as bytes, as upstream sent them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from aiohttp import ClientResponse, ClientSession, ClientTimeout, TCPConnector
from multidict import CIMultiDict
from yarl import URL

from transom.errors import BadInput

__all__ = ["Upstream", "passed_on"]

_HOP = frozenset({
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
    *("transfer-encoding", "upgrade", "host", "content-length"),
})  # fmt: skip
"""What belongs to one connection (RFC 9110, 7.6.1), and what is made anew for the next."""
_CONNECT, _SILENCE = 30.0, 600.0
"""Seconds to a connection, and between two bytes of an answer: models think for minutes."""


def passed_on(headers: Mapping[str, str] | Iterable[tuple[str, str]], *without: str) -> CIMultiDict[str]:
    """Headers for the next hop, repeated ones kept."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    own = "x-transom-"
    return CIMultiDict(
        (name, value)
        for name, value in pairs
        if (small := name.lower()) not in _HOP and small not in without and not small.startswith(own)
    )


class Upstream:
    """Use as an async context."""

    def __init__(self, bases: Mapping[str, str]) -> None:
        """`bases`: `anthropic` and `openai` to URLs, with or without `/v1`. Raises `BadInput` for what is no URL."""
        self._bases = {name: _base(name, url) for name, url in bases.items()}
        self._session: ClientSession | None = None

    async def open(self) -> None:
        timeout = ClientTimeout(total=None, connect=_CONNECT, sock_read=_SILENCE)
        self._session = ClientSession(
            connector=TCPConnector(limit=0), timeout=timeout, auto_decompress=False, trust_env=True
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def url(self, path: str, headers: Mapping[str, str]) -> URL | None:
        """Where a request of this path and query goes; None if nobody here serves it."""
        name = _provider(path, headers)
        base = self._bases.get(name) or (next(iter(self._bases.values())) if len(self._bases) == 1 else None)
        return URL(base + path, encoded=True) if base else None

    @asynccontextmanager
    async def ask(
        self, method: str, url: URL, headers: CIMultiDict[str], body: bytes | None
    ) -> AsyncIterator[ClientResponse]:
        """Raises `aiohttp.ClientError` and `TimeoutError`."""
        assert self._session is not None, "open it first"
        async with self._session.request(
            method, url, headers=headers, data=body, allow_redirects=False, skip_auto_headers=("User-Agent", "Accept")
        ) as response:
            yield response


def _base(name: str, url: str) -> str:
    found = URL(url)
    if found.scheme not in {"http", "https"} or not found.host:
        raise BadInput(f"--upstream {name}={url}: is no http or https URL")
    return url.rstrip("/").removesuffix("/v1")


def _provider(path: str, headers: Mapping[str, str]) -> str:
    if path.startswith(("/v1/messages", "/v1/complete")) or "anthropic-version" in headers or "x-api-key" in headers:
        return "anthropic"
    return "openai"
