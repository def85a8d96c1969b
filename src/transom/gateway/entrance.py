"""The entrance: who may come in, and with what target.

Upstreams are fixed, so the gateway is no relay to anywhere: a target is a path, never an address, and no path climbs
out of the one an upstream was given. A token, where one is set, is shown with every request. Where none is set only
this machine is served, and a request has to name it: a page in a browser that had its own name point here (DNS
rebinding) names itself.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import unquote

from transom.errors import Refused, UsageError

__all__ = ["TurnedAway", "checked_token", "entered"]

_TOKEN = re.compile(r"[A-Za-z0-9._~-]+")
_PORT = re.compile(r":\d*\Z")


class TurnedAway(Refused):
    """A request that may not come in. `status` is what its sender is told."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def checked_token(token: str) -> str:
    """Raises `UsageError` for a token that cannot stand in a path."""
    if token and not _TOKEN.fullmatch(token):
        raise UsageError("--token takes letters, digits, and . _ ~ - alone: it may stand in a URL")
    return token


def entered(target: str, headers: Mapping[str, str], token: str) -> str:
    """The path and query behind the token, with one slash before it: some clients put a second one behind a base URL
    that ends with one. Raises `TurnedAway`."""
    if not target.startswith("/"):
        raise TurnedAway(400, "transom: this is no proxy; give its address as the client's base URL")
    shown, path = headers.get("x-transom-token", ""), target
    if target.startswith("/t/"):
        shown, slash, rest = target[3:].partition("/")
        path = slash + rest or "/"
    if token:
        if not hmac.compare_digest(shown.encode("utf-8", "surrogateescape"), token.encode()):
            raise TurnedAway(
                401, "transom: show the gateway's token in x-transom-token, or as /t/TOKEN before the path"
            )
    elif not _is_here(headers.get("host", "")):
        raise TurnedAway(403, "transom: only this machine is served; call it 127.0.0.1, or start it with --token")
    if not path.isascii() or ".." in re.split(r"[/\\]", unquote(path.partition("?")[0])):
        raise TurnedAway(400, "transom: the path has '..' or unescaped letters in it")
    return "/" + path.lstrip("/")


@lru_cache(maxsize=16)
def _is_here(host: str) -> bool:
    name = _PORT.sub("", host).removeprefix("[").removesuffix("]").lower()
    if not host or name == "localhost" or name.endswith(".localhost"):
        return True  # HTTP/1.0 names no host, and no browser speaks it
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
