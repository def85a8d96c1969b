"""A live session: the kernel's share of a step, memory over twelve windows. `python -m bench.live` prints P3 and P13.

The agent is the one of `transom run`, its model plays a script. The CPU time of the three ports a step asks (provider,
tools, sources) is measured apart and taken off; what is left is the kernel's share: boundary, request, verdict and
bytes, and what came back weighed, appended and folded. It is compared with the controls of P3 on the messages that were
sent, over a log in memory, as P3 is defined. The incremental control does its step behind the provider's, so that both
meet caches which others have used. Told beside it: the step over the store of `transom run` (P1 is its goal), and that
of `python -m bench kernel` in the same rounds.

Memory is that of a process of its own, which hands over at the end of each window.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time

from bench.control import Incremental, Memo, counting, full
from bench.figure import Figure, cpu, judge, table
from bench.kernel import PLAIN, grow, grown, ours, pairs_of, rules_for, same
from bench.start import peak, resident
from bench.workload import conversation
from transom import compose, live
from transom.adapters import provider_anthropic
from transom.adapters.counter import open_counter
from transom.adapters.memory_log import MemoryLog
from transom.adapters.provider_writing import Reach
from transom.adapters.scripted import ScriptedProvider
from transom.adapters.scripted_format import Script, script_of
from transom.agent.run import Bounds, Stop
from transom.compose import Store
from transom.core.block import Text, ToolCall, ToolResultRaw
from transom.core.event import Draft, Effect, Event, ModelReplied, Tool, ToolReturned, WindowOpened
from transom.core.wire import Dialect
from transom.ports import Delta, Outcome, Outgoing, Provider, Reply, Sample, Sources, Tools
from transom.session import Session, World

__all__ = ["run"]

_ENDLESS = 1_000_000_000
"""Tokens: a limit that no window reaches."""
_STEPS = 5
"""Steps of a round."""
_ROUNDS = 15


_WINDOWS = 12
_LIMIT = 200_000
"""Tokens of a window of the long run."""
_FLAT = 1.05
_FULL = "call new_context with a handoff|only call accepted now"


def run(scale: float = 1.0, seed: int = 1) -> list[Figure]:
    """All figures; `scale` makes the windows smaller or larger."""
    return [
        *(_step(int(megabytes * 1e6 * scale), seed) for megabytes in (0.2, 1, 4)),
        _memory(max(8_000, int(_LIMIT * scale)), seed),
    ]


# -- a world whose CPU time is known


@dataclass(slots=True)
class _Model:
    """The scripted model. The request's bytes are the kernel's, as in P3; to write them for HTTP is the provider's, as
    in a run with a key. The control does its step here."""

    inner: ScriptedProvider
    control: Incremental | None = None
    messages: bytes = b""
    """What was sent last, as a client's body."""
    seconds: float = 0.0
    """Of all that is not the kernel's; of it `written` for HTTP and `controlled` by the control."""
    written: float = 0.0
    controlled: float = 0.0

    @property
    def dialect(self) -> Dialect:
        return self.inner.dialect

    def send(self, request: Outgoing) -> Iterator[Delta | Reply]:
        wire = b"".join(request.wire.segments())
        start = process_time()
        body = _API.body(request)
        self.written += process_time() - start
        assert len(body) > len(wire)
        pieces = list(self.inner.send(request))
        self.messages = b"[%b]" % b",".join(request.wire.body[: request.wire.messages])
        if self.control is not None:
            self.controlled += cpu(partial(self.control.step, self.messages))
        self.seconds += process_time() - start
        yield from pieces


@dataclass(slots=True)
class _Hands:
    """The tools of the agent, but a read gives the next result of the workload: whole, where a page would end."""

    inner: Tools
    results: Iterator[ToolResultRaw]
    seconds: float = 0.0

    def catalogue(self) -> tuple[Tool, ...]:
        return self.inner.catalogue()

    def effect(self, call: ToolCall) -> Effect:
        return self.inner.effect(call)

    def run(self, call: ToolCall) -> Outcome:
        start = process_time()
        self.inner.run(call)
        found = Outcome(blocks=(ToolResultRaw(text=next(self.results).text),))
        self.seconds += process_time() - start
        return found


@dataclass(slots=True)
class _Around:
    """The sources of the agent: files that are asked whether they changed."""

    inner: Sources
    seconds: float = 0.0

    def sample(self) -> tuple[Sample, ...]:
        start = process_time()
        samples = self.inner.sample()
        self.seconds += process_time() - start
        return samples


_API = provider_anthropic.api(reach=Reach())


@dataclass(slots=True)
class _Arm:
    """A session and the world its steps act on."""

    session: Session
    model: _Model
    hands: _Hands
    around: _Around
    world: World

    def step(self) -> float:
        """The kernel's seconds in one step."""
        before = self._asked()
        start = process_time()
        self.session.step(self.world)
        return process_time() - start - (self._asked() - before)

    def _asked(self) -> float:
        return self.model.seconds + self.hands.seconds + self.around.seconds


def _arm(kept: Store, folder: Path, size: int, seed: int) -> _Arm:
    drafts = conversation(100_000, seed)
    pairs = pairs_of(conversation(10_000, seed + 1), (_ROUNDS + 1) * _STEPS)
    script = script_of({"step": _steps(pairs, folder)})
    model = _Model(ScriptedProvider(script, provider_anthropic.DIALECT))
    agent = live.agent(kept, _chosen(model, _ENDLESS), folder, live.Manner(policy=PLAIN, is_unsandboxed=True))
    grow(agent.session, drafts, until=size)
    hands = _Hands(agent._world.tools, (_result(returned) for _, returned in pairs))
    assert agent._world.sources is not None
    around = _Around(agent._world.sources)
    return _Arm(agent.session, model, hands, around, replace(agent._world, tools=hands, sources=around))


def _chosen(model: Provider, limit: int) -> live.Model:
    return live.Model(
        provider_name="scripted",
        name="bench",
        provider=model,
        counter=open_counter(),  # its own: what one arm has counted is not remembered for the other
        context_limit=limit,
        source="configured",
    )


def _steps(pairs: Sequence[Sequence[Draft]], folder: Path) -> list[dict[str, object]]:
    """A script that says what the replies of `pairs` say and reads files that hold their results."""
    steps: list[dict[str, object]] = []
    for number, (replied, returned) in enumerate(pairs):
        assert isinstance(replied.fact, ModelReplied)
        words = replied.fact.blocks[0]
        assert isinstance(words, Text)
        (folder / f"{number}.txt").write_text(_result(returned).text)
        steps.append({"say": words.text, "call": [{"tool": "read", "arguments": {"path": f"{number}.txt"}}]})
    return steps


def _result(draft: Draft) -> ToolResultRaw:
    assert isinstance(draft.fact, ToolReturned)
    result = draft.fact.blocks[0]
    assert isinstance(result, ToolResultRaw)
    return result


# -- P3: a live step


def _step(size: int, seed: int) -> Figure:
    with tempfile.TemporaryDirectory(prefix="bench-live-") as name:
        folder = Path(name) / "work"
        folder.mkdir()
        with compose.store(Path(name) / "store") as kept:
            stored, log = _arm(kept, folder, size, seed), kept.log
            kept.log = MemoryLog()  # type: ignore[assignment]
            arm = _arm(kept, folder, size, seed)
            kept.log = log
            cost = _costs(arm, stored, size, seed)
    times, share = cost["kernel"] / cost["incremental"], cost["full"] / cost["kernel"]
    is_large = size >= 1_000_000
    return Figure(
        id="P3",
        what=f"the kernel's share of a live step, {size / 1e6:.1f} MB",
        goal="at most 3 x incremental" + (", 1/40 of full" if is_large else ""),
        value=f"{times:.2f} x, 1/{share:.0f}",
        verdict=judge(times <= 3 and (share >= 40 or not is_large)),
        detail=", ".join(f"{name} {value:.2f} ms" for name, value in cost.items()),
    )


def _costs(arm: _Arm, stored: _Arm, size: int, seed: int) -> dict[str, float]:
    """Milliseconds a step, of the kernel, of each control on the messages that were sent, and of what is told."""
    counted = counting(open_counter())
    memo = Memo(counted)
    drafts = conversation(100_000, seed)
    bare = grown(MemoryLog(), drafts, rules_for(PLAIN), until=size)
    pairs = iter(pairs_of(drafts, _ROUNDS * _STEPS))
    model = arm.model
    for _ in range(_STEPS):  # the first request has a new head, and the code is met for the first time
        arm.step()
        stored.step()
    model.control = Incremental(model.messages, counted)
    full(model.messages, memo.__getitem__)
    spent: dict[str, list[float]] = {}
    for _ in range(_ROUNDS):
        seconds = dict.fromkeys(("kernel", "over the store", "the step of `bench kernel`"), 0.0)
        written, controlled, around = model.written, model.controlled, arm.around.seconds
        for _ in range(_STEPS):
            seconds["kernel"] += arm.step()
            seconds["over the store"] += stored.step()
            seconds["the step of `bench kernel`"] += cpu(partial(ours, bare, next(pairs)))
        assert model.control.body == model.messages[:-1], "the governed body is not the client's"
        assert stored.model.messages == model.messages, "the log changes what is sent"
        seconds["incremental"] = model.controlled - controlled
        seconds["full"] = _STEPS * cpu(lambda: full(model.messages, counted))
        seconds["full memo"] = _STEPS * cpu(lambda: full(model.messages, memo.__getitem__))
        seconds["writing HTTP"] = model.written - written
        seconds["sources"] = arm.around.seconds - around
        for name, value in seconds.items():
            spent.setdefault(name, []).append(value / _STEPS)
    for session in (arm.session, stored.session, bare):
        same(session)
    return {name: 1e3 * median(values) for name, values in spent.items()}


# -- P13: memory over twelve windows


def _memory(limit: int, seed: int) -> Figure:
    command = [sys.executable, "-m", "bench.live", str(limit), str(seed)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    held, peak_then, held_later, peak_later, logged, steps = map(int, said.split())
    ratio = max(held_later / held, peak_later / peak_then)
    return Figure(
        id="P13",
        what=f"memory at the end of window {_WINDOWS}, against window 2, of {limit:,} tokens each",
        goal=f"held and peak at most {_FLAT} x",
        value=f"{ratio:.3f} x",
        verdict=judge(ratio <= _FLAT),
        detail=f"held {held / 1e6:.1f} and {held_later / 1e6:.1f} MB, peak {peak_then / 1e6:.1f} and "
        f"{peak_later / 1e6:.1f} MB, while the log grew by {logged / 1e6:.1f} MB in {steps:,} steps",
    )


def _work(limit: int, seed: int) -> None:
    """In the child: print the memory held and its peak at the end of window 2 and of the last, and what the log grew by
    meanwhile in how many steps."""
    with tempfile.TemporaryDirectory(prefix="bench-live-") as name:
        folder = Path(name) / "work"
        folder.mkdir()
        kept = compose.store(Path(name) / "store")
        ends: list[tuple[int, int, int, int]] = []
        stop = Stop()

        def told(event: Event) -> None:
            if isinstance(event.fact, WindowOpened):
                gc.collect()
                logged = sum(path.stat().st_size for path in kept.path.glob("log.db*"))
                ends.append((resident(), peak(), logged, agent.tally.steps))
                if len(ends) == _WINDOWS:
                    stop.ask()

        # Half as many tokens a step as there are.
        script = _busy(pairs_of(conversation(60 * limit // 1000, seed), _WINDOWS * limit // 600), folder)
        model = ScriptedProvider(script, provider_anthropic.DIALECT)
        manner = live.Manner(bounds=Bounds(idle_windows=0), stop=stop, is_unsandboxed=True, told=told)
        agent = live.agent(kept, _chosen(model, limit), folder, manner)
        agent.say("Read all of the files. You must never push.")
        agent.run()
        (*then, logged_then, steps_then), (*later, logged_later, steps_later) = ends[1], ends[_WINDOWS - 1]
        print(*then, *later, logged_later - logged_then, steps_later - steps_then)


def _busy(pairs: Sequence[Sequence[Draft]], folder: Path) -> Script:
    """Reads on; writes at every tenth step, notes a failure at every fiftieth, and hands over when it is asked to."""
    steps = _steps(pairs, folder)
    for number, step in enumerate(steps):
        calls = step["call"]
        assert isinstance(calls, list)
        if number % 10 == 0:
            calls.append({"tool": "write", "arguments": {"path": f"out/{number}.txt", "content": f"{number}"}})
        if number % 50 == 0:
            noted = {"attempt": f"attempt {number}", "outcome": f"error: E{number} in {number}.txt"}
            calls.append({"tool": "note_failure", "arguments": noted})
    handoff = {"requirements": [], "inferences": ["so far so good"], "conflicts": [], "unverified": []}
    call = {"tool": "new_context", "arguments": {"handoff": handoff}}
    return script_of({"step": steps, "reaction": [{"call": [call], "when": {"text": _FULL}, "times": 0}]})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _work(*map(int, sys.argv[1:]))
    else:
        table(run(), "A live session")
