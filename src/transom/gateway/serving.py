"""A gateway put together and served: the store, the faces, the upstreams, a socket."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import time_ns
from uuid import uuid4

from aiohttp import web

from transom import compose
from transom.core.event import EpochOpened
from transom.core.policy import PRESETS, Policy
from transom.core.state import State
from transom.core.surface import HOST_TOOLS
from transom.errors import UsageError
from transom.gateway.app import Gateway, Office, Settings
from transom.gateway.entrance import checked_token
from transom.gateway.face import Face
from transom.gateway.face_anthropic import AnthropicFace
from transom.gateway.face_openai_chat import OpenAIChatFace
from transom.gateway.face_openai_responses import OpenAIResponsesFace
from transom.gateway.governor import Governor
from transom.gateway.redaction import NO_RULES, Redactor
from transom.gateway.upstream import LINE, Upstream
from transom.measuring import Scale
from transom.ports import Blobs

__all__ = ["UPSTREAMS", "Plan", "gateway", "runner"]

UPSTREAMS = {"anthropic": "https://api.anthropic.com", "openai": "https://api.openai.com"}
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`context_limit` 0: what the price table says of each model."""

    store: Path | None = None
    upstreams: Mapping[str, str] = field(default_factory=lambda: UPSTREAMS)
    policy: Policy = PRESETS["rollover"]
    context_limit: int = 0
    host: str = "127.0.0.1"
    token: str = ""
    redactor: Redactor = NO_RULES
    max_body: int = 64 * 1024 * 1024
    """Bytes of a request; a larger one is refused. Claude Code caps its own at 32 MB."""
    silence: float = 600.0
    """Seconds without a byte from upstream after which it is given up: models think for minutes."""


def runner(plan: Plan, *, grace: float) -> web.AppRunner:
    """The server, to be set up and given a socket. Cleaning it up lets requests under way end for so many seconds.
    A client that leaves cancels its handler, and a body is read as it was sent. Raises what `gateway` raises."""
    return web.AppRunner(
        gateway(plan),
        access_log=None,
        handler_cancellation=True,
        auto_decompress=False,
        max_line_size=LINE,
        max_field_size=LINE,
        shutdown_timeout=grace / 2,  # aiohttp waits twice: for a handler to end, and for it to heed that it should
    )


def gateway(plan: Plan) -> web.Application:
    """The server's application. Raises `UsageError` for an open address without a token or a window in which nothing
    could be governed, `BadInput` for an upstream that is no URL."""
    if plan.host not in _LOOPBACK and not plan.token:
        raise UsageError(f"--host {plan.host} can be reached from outside: give --token, or stay on 127.0.0.1")

    token = checked_token(plan.token)
    _check_room(plan.context_limit)

    def make() -> Office:
        kept = _private_store(plan.store)
        governor = Governor(
            kept.log,
            kept.blobs,
            compose.counter(),
            policy=plan.policy,
            prices=compose.prices(),
            context_limit=plan.context_limit,
            redactor=plan.redactor,
            clock=lambda: time_ns() // 1_000_000,
            ids=lambda: str(uuid4()),
        )
        return Office(faces=_faces(kept.blobs), governor=governor, close=kept.close)

    settings = Settings(
        is_governed=plan.policy.name != "raw", token=token, redactor=plan.redactor, max_body=plan.max_body
    )
    return Gateway(Upstream(plan.upstreams, plan.silence), make, settings).app()


def _check_room(context_limit: int) -> None:
    """In a window that is half full of what the gateway itself puts into every one, no request can be governed."""
    offered = Scale(compose.counter()).weigh(EpochOpened(tools=HOST_TOOLS))
    counted = sum(tool.tokens for tool in offered.tools) if isinstance(offered, EpochOpened) else 0
    own = State().calibration.estimate((0, counted, 0, 0, 0), 0)
    least = 2 * own
    if 0 < context_limit < least:
        raise UsageError(
            f"--context-limit {context_limit:,}: the gateway's own tools are {own:,} tokens of every window; give "
            f"{least:,} at least, and what the client's system text and tools take beside them"
        )


def _faces(blobs: Blobs) -> dict[str, Face]:
    return {
        "/v1/messages": AnthropicFace(blobs),
        "/v1/chat/completions": OpenAIChatFace(blobs=blobs),
        "/v1/responses": OpenAIResponsesFace(blobs=blobs),
    }


def _private_store(path: Path | None) -> compose.Store:
    """What clients said is for the store's owner alone. Stores are made so; one that was copied here is made so now."""
    kept = compose.store(path)
    for file in kept.path.glob("log.db*"):
        file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    return kept
