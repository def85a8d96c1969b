"""The cache contract: what checking a request costs, and what the ledger of a session costs. `python -m bench.cache`.

C1   check a request of 1 MB against the pin, choose its marks, make the fact: nothing is rendered or digested, since
     each message was when it was appended (P3 counts that)
C1b  the same, the newest quarter of the messages other bytes
C2   the ledger of a recorded session, an entry, as the session grows
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import msgspec

from bench.figure import Figure, cpu, exponent, judge, rounds, table
from bench.kernel import PLAIN, grown, pairs_of, rules_for
from bench.workload import conversation
from transom import compose
from transom.adapters.memory_log import MemoryLog
from transom.adapters.provider_anthropic import DIALECT
from transom.core.breakpoints import breakpoints
from transom.core.cache import Pin, check, pin_of, sent
from transom.core.event import Event, ModelReplied, Usage
from transom.core.ledger import ledger
from transom.core.losses import settle
from transom.core.pricing import PriceTable, find_price
from transom.core.wire import Rendering, Wire

__all__ = ["run"]

_TIMES = 2000
"""Checks in one timing: each is far below the clock's step."""
_GOAL_MS = 0.1


def run(scale: float = 1.0, seed: int = 1) -> list[Figure]:
    """All figures; `scale` makes the workloads smaller or larger."""
    return [*_checks(int(1e6 * scale), seed), _ledgers([max(n // 10, int(n * scale)) for n in (300, 1000, 3000)], seed)]


def _checks(size: int, seed: int) -> list[Figure]:
    drafts = conversation(100_000, seed)
    session = grown(MemoryLog(), drafts, rules_for(PLAIN), until=size)
    rendering = Rendering(DIALECT)
    before = pin_of(rendering.wire(session.state))
    for draft in pairs_of(drafts, 1)[0]:
        session.append(draft.fact, uuid=draft.uuid, at=draft.at)
    wire = rendering.wire(session.state)
    size_now = sum(len(data) for data in wire.segments())
    assert check(before, wire, ()).kind == "hit"
    rewritten = replace(before, rolling=_other_from(before, before.messages * 3 // 4))
    assert check(rewritten, wire, ("reset:mask",)).kept == before.messages * 3 // 4
    found = rounds(
        {
            "C1": lambda: cpu(lambda: _check(before, wire, ())) / _TIMES,
            "C1b": lambda: cpu(lambda: _check(rewritten, wire, ("reset:mask",))) / _TIMES,
        }
    )
    what = {"C1": "check of a request that extends", "C1b": "the same, a quarter rewritten"}
    return [
        Figure(
            id=name,
            what=f"{what[name]}, {size_now / 1e6:.1f} MB, {wire.messages:,} messages",
            goal=f"<= {_GOAL_MS} ms CPU",
            value=f"{seconds * 1e3:.4f} ms",
            verdict=judge(seconds * 1e3 <= _GOAL_MS),
        )
        for name, seconds in found.items()
    ]


def _check(pin: Pin, wire: Wire, declared: tuple[str, ...]) -> None:
    for _ in range(_TIMES):
        verdict = check(pin, wire, declared)
        breakpoints(wire, verdict.kept)
        sent(wire, verdict, 1)


def _other_from(pin: Pin, place: int) -> list[bytes]:
    """The rolling digests of a body whose message `place` and all after it are other bytes."""
    return [*pin.rolling[: place + 1], *(b"x" * 32 for _ in range(pin.messages - place))]


def _ledgers(sizes: list[int], seed: int) -> Figure:
    prices = compose.prices()
    points = []
    for size in sizes:
        log = _recorded(size, seed)
        events = list(log.read("s"))
        seconds = cpu(partial(_settled, events, prices))
        points.append((float(size), seconds))
    slope = exponent(points)
    return Figure(
        id="C2",
        what=f"the ledger of {sizes[0]:,} to {sizes[-1]:,} replies",
        goal="exponent <= 1.2",
        value=f"{slope:.2f} ({points[-1][1] / points[-1][0] * 1e6:.0f} us a reply)",
        verdict=judge(slope <= 1.2),
    )


def _settled(events: list[Event], prices: PriceTable) -> None:
    settle(list(ledger(events, DIALECT, lambda model: find_price(prices, model))))


def _recorded(replies: int, seed: int) -> MemoryLog:
    """A recording whose provider reads all that it was sent before."""
    log = MemoryLog()
    drafts = conversation(4 * replies, seed, reports=False)
    session = grown(log, drafts, rules_for(PLAIN), messages=2)
    prompt = 20_000
    for pair in pairs_of(drafts, replies):
        for draft in pair:
            fact = draft.fact
            if isinstance(fact, ModelReplied):
                usage = Usage(uncached=3, cached=prompt - 3, written=900, output=50)
                fact, prompt = msgspec.structs.replace(fact, usage=usage, model="claude-sonnet-4-5"), prompt + 900
            session.append(fact, uuid=draft.uuid, at=draft.at)
    return log


if __name__ == "__main__":
    table(run(), "cache")
