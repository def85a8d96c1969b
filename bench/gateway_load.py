"""Many clients at once, for minutes: errors, memory, and whether each gets its share. `python -m bench.gateway_load
--clients 50 --minutes 10` prints the figures.

Gateway and model are processes of their own. A client works on sessions of some thirty steps, one after the other, in
one of the three APIs, with an id or without; its window is small, so a session goes over several. All begin with the
same words. Every fifteenth reads slowly, and now and then one leaves in the middle of an answer and asks again. What a
client is told names it, and so does all that it says: a word of another's is counted as a leak, on either side.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import socket
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import monotonic
from typing import Any

from aiohttp import ClientConnectionError, ClientSession, ClientTimeout, TCPConnector, web

from bench.figure import Figure, judge, table
from bench.served import Served, python
from transom import compose
from transom.testing.client import _READ, Refused, _events
from transom.testing.model_server import APIS, Call, Said, _anthropic, _chat, _responses

__all__ = ["run"]

_LIMIT = "16k"
_STEPS = 30
_PAGE = "a line of the file that was asked for, with some words in it\n" * 40
_MARK = re.compile(rb"client-(\d+)-")
_TOLD = re.compile(r"tokens are left in this window|This window is full|call new_context")
_WRITERS = {"anthropic": _anthropic, "openai_chat": _chat, "openai_responses": _responses}
_LEAVES, _SLOW = 40, 15
"""One request of so many is left, one client of so many reads slowly."""
_PATIENCE = 60.0
"""Seconds after which an answer counts as one that never comes."""
_GROWTH = 1.10
"""Memory at the end to memory at half time: what counts as flat."""
_LOOKS = 40
"""At the memory of a short run; a long one is looked at every two seconds."""
_SHARE = 0.5
"""Of the median client's requests: who has fewer was starved. A client waits a random time between two."""


# -- the model


def _said(asked: Mapping[str, Any], mark: str) -> Said:
    history = asked.get("messages", asked.get("input", []))
    if '"new_context"' in json.dumps(asked["tools"]) and _TOLD.search(json.dumps(history[-2:])):
        note = {"requirements": [], "inferences": [f"{mark} goes well."], "conflicts": [], "unverified": []}
        return [f"{mark} I hand over.", Call(name="new_context", arguments={"handoff": note, "related_files": []})]
    return [f"{mark} reads on.", Call(name="read", arguments={"path": f"{mark}file"})]


async def _model(port: int) -> None:
    count = iter(range(1, 10**9))
    apis = {path: name for name, path in APIS.items()}

    async def answer(request: web.Request) -> web.Response:
        body = await request.read()
        marks = set(_MARK.findall(body))
        own = request.headers["x-client"].encode()
        if marks - {own}:
            return web.Response(status=599, text="a leak")
        asked = json.loads(body)
        said = _said(asked, f"client-{own.decode()}-")
        _, frames = _WRITERS[apis[request.path]](next(count), said, len(body) // 4)
        return web.Response(body=b"".join(frames), headers={"content-type": "text/event-stream"})

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


# -- the clients


@dataclass(slots=True)
class _Tally:
    errors: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    resident: list[tuple[float, int]] = field(default_factory=list)
    left: int = 0


@dataclass(slots=True)
class _Client:
    number: int
    base_url: str
    rng: Random
    tally: _Tally
    pause: float
    asked: int = 0
    sessions: int = 0
    history: list[Any] = field(default_factory=list)

    @property
    def api(self) -> str:
        return list(APIS)[self.number % 3]

    @property
    def mark(self) -> str:
        return f"client-{self.number}-"

    async def work(self, http: ClientSession, end: float) -> None:
        while monotonic() < end:
            self.sessions += 1
            self.history = [{"role": "user", "content": "Read all files. Never write one."}]
            for _ in range(_STEPS):
                await asyncio.sleep(self.rng.uniform(0, 2 * self.pause))
                if monotonic() >= end:
                    return
                await self._step(http)

    async def _step(self, http: ClientSession) -> None:
        self.asked += 1
        if self.rng.randrange(_LEAVES) == 0:
            await self._leave(http)
        began = monotonic()
        try:
            async with asyncio.timeout(_PATIENCE):
                status, headers, data = await self._ask(http)
        except (ClientConnectionError, TimeoutError) as problem:
            self.tally.errors[type(problem).__name__] += 1
            return
        self.tally.seconds.append(monotonic() - began)
        self.tally.statuses[headers.get("x-transom-status", "none").partition(";")[0]] += 1
        if {int(one) for one in _MARK.findall(data)} - {self.number}:
            self.tally.errors["a leak"] += 1
        if status != 200:
            self.tally.errors[f"status {status}"] += 1
            return
        try:
            answer = _READ[self.api](_events(data))
        except (AssertionError, Refused, ValueError, LookupError) as problem:
            self.tally.errors[f"a stream that cannot be read: {type(problem).__name__}"] += 1
            return
        self._take(answer)

    async def _ask(self, http: ClientSession) -> tuple[int, Mapping[str, str], bytes]:
        async with http.post(self.base_url + APIS[self.api], data=self._body(), headers=self._headers()) as answer:
            pieces = []
            async for piece in answer.content.iter_chunked(256 if self.number % _SLOW == 0 else 65536):
                pieces.append(piece)
                if self.number % _SLOW == 0:
                    await asyncio.sleep(0.05)
            return answer.status, answer.headers, b"".join(pieces)

    async def _leave(self, http: ClientSession) -> None:
        self.tally.left += 1
        task = asyncio.create_task(self._ask(http))
        await asyncio.sleep(self.rng.uniform(0, 0.05))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", "x-client": str(self.number), "x-api-key": "k"}
        if self.number % 2:
            headers["session-id"] = f"{self.number}-{self.sessions}"
        return headers

    def _body(self) -> bytes:
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        made: dict[str, Any] = {"model": "m1", "stream": True}
        match self.api:
            case "anthropic":
                made |= {"max_tokens": 500, "system": "You work.", "messages": self.history}
                made["tools"] = [{"name": "read", "input_schema": schema}]
            case "openai_chat":
                made["messages"] = [{"role": "system", "content": "You work."}, *self.history]
                made["tools"] = [{"type": "function", "function": {"name": "read", "parameters": schema}}]
            case _:
                made |= {"instructions": "You work.", "input": self.history, "store": False}
                made["tools"] = [{"type": "function", "name": "read", "parameters": schema}]
        return json.dumps(made).encode()

    def _take(self, answer: Mapping[str, Any]) -> None:
        result = f"{self.mark}file {self.asked}\n{_PAGE}"
        match self.api:
            case "anthropic":
                calls = [one["id"] for one in answer["content"] if one["type"] == "tool_use"]
                self.history.append({"role": "assistant", "content": answer["content"]})
                results = [{"type": "tool_result", "tool_use_id": one, "content": result} for one in calls]
                self.history.append({"role": "user", "content": results or result})
            case "openai_chat":
                message = answer["choices"][0]["message"]
                self.history.append(message)
                calls = [one["id"] for one in message.get("tool_calls") or []]
                self.history.extend({"role": "tool", "tool_call_id": one, "content": result} for one in calls)
            case _:
                self.history.extend(answer["output"])
                calls = [one["call_id"] for one in answer["output"] if one["type"] == "function_call"]
                self.history.extend({"type": "function_call_output", "call_id": one, "output": result} for one in calls)
        if len(calls) != 1:
            self.tally.errors[f"{len(calls)} calls instead of one"] += 1


# -- the run


async def _watch(gateway: Served, tally: _Tally, end: float) -> None:
    began = monotonic()
    pause = min(2.0, (end - began) / _LOOKS)
    while monotonic() < end:
        tally.resident.append((monotonic() - began, gateway.resident()))
        await asyncio.sleep(pause)


async def _load(gateway: Served, clients: int, minutes: float, pause: float, seed: int) -> tuple[_Tally, list[_Client]]:
    tally = _Tally()
    everyone = [_Client(number, gateway.base_url, Random(seed + number), tally, pause) for number in range(clients)]
    end = monotonic() + minutes * 60
    connector = TCPConnector(limit=0)
    async with ClientSession(connector=connector, timeout=ClientTimeout(total=None)) as http:
        await asyncio.gather(_watch(gateway, tally, end), *(one.work(http, end) for one in everyone))
    return tally, everyone


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


def run(clients: int = 50, minutes: float = 10.0, pause: float = 2.5, seed: int = 1) -> list[Figure]:
    """`pause`: mean seconds of a client between two requests."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        up, port = _free_port(), _free_port()
        url = f"http://127.0.0.1:{up}"
        ours = ["gateway", "--port", str(port), "--context-limit", _LIMIT, "--store", str(store)]
        ours += ["--upstream", f"anthropic={url}", "--upstream", f"openai={url}"]
        with (
            Served(python("bench.gateway_load", "--model", str(up)), base_url=url),
            Served(python("transom", *ours), base_url=f"http://127.0.0.1:{port}", ready="/transom/ready") as gateway,
        ):
            before = gateway.cpu()
            tally, everyone = asyncio.run(_load(gateway, clients, minutes, pause, seed))
            spent, peak = gateway.cpu() - before, gateway.peak()
        with compose.store(store) as kept:
            damaged = sum(bool(one.problem) for one in kept.log.verify())
            rows = kept.log.sessions()
            kinds = Counter(row.kind for row in rows)
        return [
            *_figures(tally, everyone, spent, peak),
            Figure(
                id="load",
                what="sessions in the log, of them damaged",
                goal="none damaged",
                value=f"{len(rows):,}, {damaged}",
                verdict=judge(damaged == 0),
                detail=f"{sum(one.sessions for one in everyone):,} begun by clients, {kinds['fork']:,} forks",
            ),
        ]


def _figures(tally: _Tally, everyone: list[_Client], spent: float, peak: int) -> list[Figure]:
    asked, shares = len(tally.seconds), sorted(one.asked for one in everyone)
    ours = {
        **tally.errors,
        **{name: tally.statuses[name] for name in ("failed-open", "unread") if tally.statuses[name]},
    }
    minute, half, last = (_resident(tally, at) for at in (0.1, 0.5, 1.0))
    cuts = quantiles(tally.seconds, n=100, method="inclusive")
    told = ", ".join(f"{name} {count:,}" for name, count in tally.statuses.most_common())
    return [
        Figure(
            id="load",
            what="requests; errors",
            goal="no error",
            value=f"{asked:,}; {sum(ours.values())}",
            verdict=judge(not ours),
            detail=f"{told}; {tally.left:,} were left in the middle and made again" + (f"; {ours}" if ours else ""),
        ),
        Figure(
            id="load",
            what="memory after a tenth, at half time, at the end",
            goal=f"the end at most {_GROWTH:.2f} x half time",
            value=" / ".join(f"{one / 1e6:.0f} MB" for one in (minute, half, last)),
            verdict=judge(last <= _GROWTH * half),
            detail=f"peak {peak / 1e6:.0f} MB; "
            + ", ".join(
                f"{at:.0f} s {one / 1e6:.0f}" for at, one in tally.resident[:: max(1, len(tally.resident) // 10)]
            ),
        ),
        Figure(
            id="load",
            what="requests of a client: least, median, most",
            goal=f"the least at least {_SHARE:.0%} of the median",
            value=f"{shares[0]}, {median(shares):.0f}, {shares[-1]}",
            verdict=judge(shares[0] >= _SHARE * median(shares)),
        ),
        Figure(
            id="load",
            what="seconds to the end of an answer: median, 99 %, longest",
            goal="told",
            value=f"{cuts[49]:.3f}, {cuts[98]:.3f}, {max(tally.seconds):.3f}",
            verdict="told",
            detail=f"{1000 * spent / max(asked, 1):.1f} ms of the gateway's CPU each",
        ),
    ]


def _resident(tally: _Tally, share: float) -> int:
    """The most that was held in the tenth of the time before this share of it."""
    whole = tally.resident[-1][0]
    return max(one for at, one in tally.resident if whole * (share - 0.1) <= at <= whole * share)


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.gateway_load", description=__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--pause", type=float, default=2.5, help="mean seconds of a client between two requests")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=int, metavar="PORT", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.model:
        asyncio.run(_model(options.model))
    else:
        what = f"{options.clients} clients, {options.minutes:g} minutes"
        table(run(options.clients, options.minutes, options.pause, options.seed), what)


if __name__ == "__main__":
    _main()
