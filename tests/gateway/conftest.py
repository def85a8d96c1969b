"""A gateway on a loopback port, in this process, between a client and a model server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from transom.core.policy import PRESETS
from transom.gateway.serving import Plan, runner
from transom.testing.model_server import ModelServer

Serve = Callable[..., str]


@contextmanager
def serving(plan: Plan) -> Iterator[str]:
    """The address of a running gateway."""
    loop = asyncio.new_event_loop()
    started = threading.Event()
    found: list[str] = []

    async def start() -> web.AppRunner:
        server = runner(plan, grace=1.0)
        await server.setup()
        await web.TCPSite(server, "127.0.0.1", 0).start()
        found.append(f"http://127.0.0.1:{server.addresses[0][1]}")
        return server

    def main() -> None:
        server = loop.run_until_complete(start())
        started.set()
        loop.run_forever()
        loop.run_until_complete(server.cleanup())
        loop.close()

    thread = threading.Thread(target=main, daemon=True)
    thread.start()
    assert started.wait(20)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return Plan(store=tmp_path / "store", context_limit=8_000)


@pytest.fixture
def serve(plan: Plan) -> Iterator[Serve]:
    """Starts a gateway in front of a model server, `base` being the path of its API; more keywords change the plan."""
    with ExitStack() as kept:

        def start(model: ModelServer, policy: str = "rollover", base: str = "", **changes: object) -> str:
            upstreams = dict.fromkeys(("anthropic", "openai"), model.base_url + base)
            made = replace(plan, upstreams=upstreams, policy=PRESETS[policy], **changes)  # type: ignore[arg-type]
            return kept.enter_context(serving(made))

        yield start
