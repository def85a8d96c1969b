"""The other side of the gateway: fixed upstreams, one connection pool, headers passed on.

What goes up is the client's request with the client's own headers, credentials too; nothing is added to them and
nothing of them is kept: no cookie of one client reaches another, and no login that this machine holds (`~/.netrc`) is
used in its place. An answer comes back as bytes, as upstream sent them; a redirect is the client's to follow.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from urllib.request import getproxies, proxy_bypass

from aiohttp import ClientResponse, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from multidict import CIMultiDict
from yarl import URL

from transom.errors import BadInput

__all__ = ["LINE", "Upstream", "passed_on"]

LINE = 64 * 1024
"""Bytes of a header, in either direction. Codex puts JSON into one."""
_HOP = frozenset({
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
    *("transfer-encoding", "upgrade", "host", "content-length", "expect"),
})  # fmt: skip
"""What belongs to one connection (RFC 9110, 7.6.1), and what is made anew for the next."""
_UNADDED = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""What the HTTP client would add where a request has none."""
_PIECE = 1 << 19
"""Bytes of a body that are written at once, so that others get their turn in between. Smaller pieces cost more."""
_CONNECT = 30.0
"""Seconds to a connection."""
_VERSION = "/v1"
_VERSIONED = re.compile(r"/v\d[^/]*(/openai)?$")
"""How a base ends that stands for `/v1` of the API (`…/paas/v4`, `…/v1beta/openai`), not before it."""


def passed_on(headers: Mapping[str, str] | Iterable[tuple[str, str]], *without: str) -> CIMultiDict[str]:
    """Headers for the next hop, repeated ones kept. A byte that is no UTF-8 is a question mark."""
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers)
    named = ",".join(value for name, value in pairs if name.lower() == "connection")
    dropped = {*_HOP, *without, *(name.strip().lower() for name in named.split(","))}
    return CIMultiDict(
        (name, value if value.isascii() else value.encode("utf-8", "replace").decode())
        for name, value in pairs
        if (small := name.lower()) not in dropped and not small.startswith("x-transom-")
    )


class Upstream:
    def __init__(self, bases: Mapping[str, str], silence: float) -> None:
        """`bases`: `anthropic` and `openai` to URLs, with or without `/v1`, or with what stands in its place.
        `silence`: seconds without a byte after which an answer is given up. Raises `BadInput` for what is no URL."""
        self._silence = silence
        self._bases = {name: _base(name, url) for name, url in bases.items()}
        self._proxies: dict[str, str] = {}
        self._session: ClientSession | None = None

    async def open(self) -> None:
        """The proxies of the environment (`HTTPS_PROXY`, `NO_PROXY`) count as they are now."""
        hosts = {URL(base).host or "": URL(base).scheme for base in self._bases.values()}
        known = getproxies()
        self._proxies = {
            host: known[scheme] for host, scheme in hosts.items() if scheme in known and not proxy_bypass(host)
        }

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def url(self, path: str, headers: Mapping[str, str]) -> URL | None:
        """Where a request of this path and query goes; None if nobody here serves it."""
        name = _provider(path, headers)
        base = self._bases.get(name) or (next(iter(self._bases.values())) if len(self._bases) == 1 else None)
        if base and _VERSIONED.search(base):
            path = path.removeprefix(_VERSION)
        return URL(base + path, encoded=True) if base else None

    @asynccontextmanager
    async def ask(
        self, method: str, url: URL, headers: CIMultiDict[str], body: bytes | None, *, is_read: bool = False
    ) -> AsyncIterator[ClientResponse]:
        """`is_read`: an answer that comes compressed all the same is unpacked. Raises `aiohttp.ClientError`,
        `TimeoutError`."""
        if self._session is None:  # made by who asks: a server that does not come to serve has none to close
            self._session = ClientSession(
                connector=TCPConnector(limit=0),
                timeout=ClientTimeout(total=None, connect=_CONNECT, sock_read=self._silence),
                cookie_jar=DummyCookieJar(),
                auto_decompress=False,
                max_line_size=LINE,
                max_field_size=LINE,
            )
        data: bytes | AsyncIterator[memoryview] | None = body
        if body is not None and len(body) > 2 * _PIECE:
            data = _pieces(body)
            headers["content-length"] = str(len(body))
        async with self._session.request(
            method,
            url,
            headers=headers,
            data=data,
            allow_redirects=False,
            skip_auto_headers=_UNADDED,
            proxy=self._proxies.get(url.host or ""),
            auto_decompress=is_read,
        ) as response:
            yield response


async def _pieces(body: bytes) -> AsyncIterator[memoryview]:
    shown = memoryview(body)
    for start in range(0, len(body), _PIECE):
        yield shown[start : start + _PIECE]


def _base(name: str, url: str) -> str:
    try:
        found = URL(url)
    except ValueError:
        found = URL()
    if found.scheme not in {"http", "https"} or not found.host:
        raise BadInput(f"--upstream {name}={url}: is no http or https URL")
    if found.user is not None or found.password is not None:
        raise BadInput(f"--upstream {name}: holds a login; clients send their own credentials")
    if found.query_string or found.fragment:
        raise BadInput(f"--upstream {name}={url}: a path may follow the host, nothing else")
    return url.rstrip("/").removesuffix(_VERSION)


def _provider(path: str, headers: Mapping[str, str]) -> str:
    """By the path, else by whose credentials come with it: one provider's must not reach another."""
    if path.startswith(("/v1/messages", "/v1/complete")) or "x-api-key" in headers:
        return "anthropic"
    is_login = headers.get("authorization", "").partition(" ")[2].lstrip().startswith("sk-ant-")
    is_theirs = is_login or any(name.lower().startswith("anthropic-") for name in headers)
    return "anthropic" if is_theirs else "openai"
