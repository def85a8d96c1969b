"""The gateway against a relay that only relays: what governing adds. `python -m bench.gateway` prints P5 to P5e, P13
and P14.

Both are processes between the same clients and the same model server, and take turns with the same bodies, which grow
by two messages a request. CPU is that of the process under test alone; added time is over the same request with nothing
between. The gateway's window is so large that none opens; for the comparison with other gateways (those on the PATH,
`bench.gateway_peers`) all have one of 100,000 tokens.

P5    CPU of a request of 1 MB; P5b of 0.2 and 4 MB
P5c   what it adds to the time of an answer, 1 MB
P5d   a stream of 60 pieces, 2 ms apart: how late each piece is, and the first byte
P5e   eight clients at once, 1 MB each
P13   memory of eight histories of 4 MB over 200 steps
P14   CPU until the gateway is ready
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

from bench.figure import Figure, judge, table
from bench.gateway_client import Client, Timed
from bench.gateway_peers import GOVERNING, PEERS, peer
from bench.gateway_upstream import SENT
from bench.served import Served, Silent, python

__all__ = ["run", "serving"]

_GOALS = {200_000: ("P5b", 1.6), 1_000_000: ("P5", 1.5), 4_000_000: ("P5b", 1.6)}
_ROUNDS, _STEPS = 7, 6
_CLIENTS, _TURNS = 8, 5
_PIECES, _BY_CHANCE = 60, 0.03
"""Pieces of a stream; two come in one read when a process had to wait for the machine."""
_SESSIONS, _MEMORY_STEPS, _MEMORY_SIZE = 8, 200, 4_000_000
_CACHES = 2 * 2_048_000 + 8_400_000
"""Bytes: two connections of the log with SQLite's default page cache, and the counter's memo (`adapters.counter`)."""
_USUAL = 1_000_000
_LIMIT, _PEERS_LIMIT = 4_000_000, 100_000
"""Tokens of the window."""
_READY = 1.0
"""Seconds of CPU."""


def run(scale: float = 1.0, seed: int = 1) -> list[Figure]:
    """All figures; `scale` makes the bodies smaller or larger."""
    rounds = max(2, int(_ROUNDS * min(1, 2 * scale)))
    figures: list[Figure] = []
    with _arms() as arms:
        for name in ("relay", "off", "gateway"):  # memory once got for a large body is got faster the next time
            largest = int(max(_GOALS) * scale)
            Client(api="anthropic", base_url=arms[name].base_url, name="first", size=largest, seed=seed).step()
        for api in ("anthropic", "openai_chat", "openai_responses"):
            for size, goal in _GOALS.items():
                if api == "anthropic" or size == _USUAL:
                    figures.extend(_requests(_set_up(arms, api, int(size * scale), seed), rounds, api, *goal))
        figures.extend(_stream(_set_up(arms, "anthropic", int(200_000 * scale), seed), 3 * rounds))
        figures.extend(_at_once(_set_up(arms, "anthropic", int(_USUAL * scale), seed, _CLIENTS), rounds))
        if PEERS:
            figures.append(_peers(arms, int(_USUAL * scale), seed, rounds))
        figures.extend(_memory(arms["direct"], int(_MEMORY_SIZE * scale), max(4, int(_MEMORY_STEPS * scale)), seed))
        figures.append(_start(arms["direct"], rounds))
    return figures


# -- the arms


@contextmanager
def _arms() -> Iterator[dict[str, Served]]:
    with ExitStack() as kept:
        upstream = kept.enter_context(Served(python("bench.gateway_upstream")))
        relay = kept.enter_context(Served(python("bench.relay", upstream.base_url)))
        off = kept.enter_context(serving(upstream.base_url, policy="raw"))
        gateway = kept.enter_context(serving(upstream.base_url))
        yield {"direct": upstream, "relay": relay, "off": off, "gateway": gateway}


@contextmanager
def serving(
    upstream: str, limit: int = _LIMIT, policy: str = "rollover", store: Path | None = None
) -> Iterator[Served]:
    """A gateway, over a store of its own if none is given."""
    with tempfile.TemporaryDirectory(prefix="bench-gateway-") as folder:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        ups = [f"--upstream={name}={upstream}" for name in ("anthropic", "openai")]
        named = [f"--port={port}", f"--context-limit={limit}", f"--policy={policy}", f"--store={store or folder}"]
        command = python("transom", "gateway", *named, *ups)
        with Served(command, base_url=f"http://127.0.0.1:{port}", ready="/transom/ready") as served:
            yield served


@dataclass(slots=True)
class _Arm:
    """What one of the arms took, request by request."""

    served: Served
    clients: list[Client]
    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)


def _set_up(arms: Mapping[str, Served], api: str, size: int, seed: int, count: int = 1) -> dict[str, _Arm]:
    """Clients that have been met: the first request of a history is read whole."""
    made = {}
    for name, served in arms.items():
        clients = [
            Client(
                api=api,
                base_url=served.base_url,
                name=f"{api}-{size}-{number}-{count}",
                size=size,
                seed=seed,
                is_strict=name not in PEERS,
            )
            for number in range(count)
        ]
        for client in clients:
            client.step()
            client.step()
        made[name] = _Arm(served, clients)
    return made


def _size(made: Mapping[str, _Arm]) -> str:
    return f"{made['gateway'].clients[0].size / 1e6:.1f} MB"


# -- P5, P5b, P5c: one client


def _requests(made: Mapping[str, _Arm], rounds: int, api: str, goal_id: str, goal: float) -> Iterator[Figure]:
    for _ in range(rounds):
        for arm in made.values():
            before = arm.served.cpu()
            arm.wall.extend(arm.clients[0].step().seconds for _ in range(_STEPS))
            arm.cpu.append((arm.served.cpu() - before) / _STEPS)
    relay, off, gateway = (1e3 * median(made[name].cpu) for name in ("relay", "off", "gateway"))
    yield Figure(
        id=goal_id,
        what=f"CPU of a request of {_size(made)}, {api}",
        goal=f"at most {goal} x the relay",
        value=f"{gateway / relay:.2f} x",
        verdict=judge(gateway <= goal * relay),
        detail=f"relay {relay:.2f} ms, gateway {gateway:.2f} ms, with `--policy raw` {off:.2f} ms",
    )
    if goal_id == "P5":
        yield _added(made)


def _added(made: Mapping[str, _Arm]) -> Figure:
    found = {}
    for name, arm in made.items():
        tenths = quantiles(arm.wall, n=10)
        found[name] = (1e3 * tenths[4], 1e3 * tenths[8])
    (direct, late), relay, gateway = found["direct"], found["relay"], found["gateway"]
    typical, slow = (gateway[0] - direct) / (relay[0] - direct), (gateway[1] - late) / (relay[1] - late)
    return Figure(
        id="P5c",
        what=f"time added to an answer, {_size(made)}",
        goal="p50 at most 1.5 x, p90 at most 2 x the relay's",
        value=f"{typical:.2f} x, {slow:.2f} x",
        verdict=judge(typical <= 1.5 and slow <= 2),
        detail=", ".join(f"{name} {p50:.1f} and {p90:.1f} ms" for name, (p50, p90) in found.items()),
    )


# -- P5d: a stream


def _stream(made: Mapping[str, _Arm], streams: int) -> Iterator[Figure]:
    delays: dict[str, list[float]] = {name: [] for name in made}
    firsts: dict[str, list[float]] = {name: [] for name in made}
    joined = dict.fromkeys(made, 0)
    for _ in range(streams):
        for name, arm in made.items():
            before = arm.served.cpu()
            timed = arm.clients[0].ask(_PIECES)
            arm.cpu.append(arm.served.cpu() - before)
            late, together = _lateness(timed)
            delays[name].extend(late)
            joined[name] += together
            firsts[name].append(timed.first)
            arm.clients[0].take(timed.data)
    delay = {name: 1e3 * median(values) for name, values in delays.items()}
    first = {name: 1e3 * (median(values) - median(firsts["direct"])) for name, values in firsts.items()}
    more = (joined["gateway"] - joined["relay"]) / (streams * _PIECES)
    yield Figure(
        id="P5d",
        what="how late a piece of a stream is, p50",
        goal=f"at most 1.3 x the relay; joined pieces at most {_BY_CHANCE:.0%} of all more than there",
        value=f"{delay['gateway'] / delay['relay']:.2f} x",
        verdict=judge(delay["gateway"] <= 1.3 * delay["relay"] and more <= _BY_CHANCE),
        detail=", ".join(f"{name} {value:.2f} ms, {joined[name]} joined" for name, value in delay.items()),
    )
    yield Figure(
        id="P5d",
        what="added to the first byte of a stream, p50",
        goal="at most 1.5 x the relay",
        value=f"{first['gateway'] / first['relay']:.2f} x",
        verdict=judge(first["gateway"] <= 1.5 * first["relay"]),
        detail=f"relay {first['relay']:.2f} ms, gateway {first['gateway']:.2f} ms; CPU of a stream "
        + ", ".join(f"{name} {1e3 * median(arm.cpu):.1f} ms" for name, arm in made.items() if name != "direct"),
    )


def _lateness(timed: Timed) -> tuple[list[float], int]:
    """Seconds between sending and reading of each piece, and how many pieces came in one read with the one before."""
    late: list[float] = []
    joined = 0
    for came, data in timed.reads:
        sent = [int(moment) for moment in SENT.findall(data)]
        late.extend((came - moment) / 1e9 for moment in sent)
        joined += max(0, len(sent) - 1)
    assert len(late) == _PIECES, f"{len(late)} pieces of {_PIECES} came"
    return late, joined


# -- P5e: eight at once


def _at_once(made: Mapping[str, _Arm], rounds: int) -> Iterator[Figure]:
    worst = []
    with ThreadPoolExecutor(_CLIENTS) as pool:
        for _ in range(rounds):
            for name, arm in made.items():
                before = arm.served.cpu()
                took = list(pool.map(_several, arm.clients))
                arm.cpu.append((arm.served.cpu() - before) / (_CLIENTS * _TURNS))
                if name == "gateway":
                    worst.append(max(took) / median(took))
    relay, gateway = (1e3 * median(made[name].cpu) for name in ("relay", "gateway"))
    yield Figure(
        id="P5e",
        what=f"{_CLIENTS} clients at once, CPU of a request of {_size(made)}",
        goal="at most 1.7 x the relay",
        value=f"{gateway / relay:.2f} x",
        verdict=judge(gateway <= 1.7 * relay),
        detail=f"relay {relay:.2f} ms, gateway {gateway:.2f} ms",
    )
    yield Figure(
        id="P5e",
        what="the slowest of them against the median one",
        goal="at most 3 x",
        value=f"{median(worst):.2f} x",
        verdict=judge(median(worst) <= 3),
        detail=f"the worst round {max(worst):.2f} x",
    )


def _several(client: Client) -> float:
    return sum(client.step().seconds for _ in range(_TURNS))


# -- P5: other gateways


def _peers(arms: Mapping[str, Served], size: int, seed: int, rounds: int) -> Figure:
    upstream = arms["direct"].base_url
    with ExitStack() as kept:
        folder = Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="bench-peers-")))
        served = {"relay": arms["relay"], "gateway": kept.enter_context(serving(upstream, _PEERS_LIMIT))}
        absent = []
        for name in PEERS:
            (folder / name).mkdir()
            try:
                served[name] = kept.enter_context(peer(name, upstream, _PEERS_LIMIT, folder / name))
            except Silent:
                absent.append(f"{name} did not start")
        made = _set_up(served, "openai_chat", size, seed)
        for _ in range(rounds):
            for arm in made.values():
                before = arm.served.cpu()
                arm.wall.extend(arm.clients[0].step().seconds for _ in range(2))
                arm.cpu.append((arm.served.cpu() - before) / 2)
    cpu = {name: 1e3 * median(arm.cpu) for name, arm in made.items()}
    best = min((cpu[name] for name in GOVERNING if name in cpu), default=0.0)
    return Figure(
        id="P5",
        what=f"CPU of a request of {_size(made)} in a window of {_PEERS_LIMIT:,} tokens, against other gateways",
        goal="at most 1/3 of the best that governs",
        value=f"1/{best / cpu['gateway']:.1f}",
        verdict=judge(3 * cpu["gateway"] <= best) if best else "told",
        detail=", ".join(
            [f"{name} {cpu[name]:.1f} ms ({1e3 * median(arm.wall):.0f})" for name, arm in made.items()] + absent
        ),
    )


# -- P13: memory


def _memory(upstream: Served, size: int, steps: int, seed: int) -> Iterator[Figure]:
    with serving(upstream.base_url) as served:
        Client(api="anthropic", base_url=served.base_url, name="first", size=1000, seed=seed).step()
        start = served.resident()  # with the counter's vocabulary
        clients = [
            Client(api="anthropic", base_url=served.base_url, name=f"m{number}", size=size, seed=seed)
            for number in range(_SESSIONS)
        ]
        found = []
        for step in range(steps):
            for client in clients:
                client.step()
            if step + 1 in (1, steps // 2, steps):
                found.append((served.resident(), served.peak(), _live(clients)))
    (_, _, _), (middle, _, live_then), (end, peak, live) = found
    times = (peak - start - _CACHES) / live
    yield Figure(
        id="P13",
        what=f"peak of memory, {_SESSIONS} histories of {size / 1e6:.1f} MB, {steps} steps",
        goal=f"at most 3 x the live bodies + {_CACHES / 1e6:.0f} MB of caches",
        value=f"{times:.2f} x",
        verdict=judge(times <= 3),
        detail=f"{(peak - start) / 1e6:.0f} MB for bodies of {live / 1e6:.0f} MB, {start / 1e6:.0f} MB at the start",
    )
    yield Figure(
        id="P13",
        what="growth in the second half of the steps",
        goal="at most 3 x what the bodies grew by",
        value=f"{(end - middle) / (live - live_then):.2f} x",
        verdict=judge(end - middle <= 3 * (live - live_then)),
        detail=f"{(end - middle) / 1e6:.1f} MB while the bodies grew by {(live - live_then) / 1e6:.1f} MB",
    )


def _live(clients: Sequence[Client]) -> int:
    return sum(len(element) for client in clients for element in client.elements)


# -- P14: the start


def _start(upstream: Served, rounds: int) -> Figure:
    spent = []
    for _ in range(rounds):
        with serving(upstream.base_url) as served:
            spent.append(served.cpu())
    return Figure(
        id="P14",
        what="the gateway is ready",
        goal=f"at most {_READY:.0f} s CPU",
        value=f"{median(spent):.2f} s",
        verdict=judge(median(spent) <= _READY),
        detail=f"the slowest of {len(spent)} {max(spent):.2f} s",
    )


if __name__ == "__main__":
    table(run(), "The gateway")
