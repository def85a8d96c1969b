"""The kernel: steps, cold opens, long sessions. `python -m bench.kernel` prints P3, P3b, P3c, P4, P8.

The controls (`bench.control`) do the work on a client's body of the same messages, as a gateway would.

A figure counts only if the bytes are right: every benchmark compares the incremental request with one rendered from
nothing, and the running count with a sum over the window.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from statistics import median
from time import process_time

import msgspec

from bench.control import Incremental, Memo, counting, full
from bench.figure import Figure, cpu, exponent, judge, rounds, table
from bench.workload import conversation, opened
from transom.adapters.blobs import DirBlobs
from transom.adapters.counter import open_counter
from transom.adapters.memory_log import MemoryLog
from transom.adapters.provider_anthropic import DIALECT
from transom.adapters.snapshots import DirSnapshots
from transom.adapters.sqlite_log import SqliteLog
from transom.core.block import Text, ToolCall, ToolResultRaw
from transom.core.boundary import prompt_tokens
from transom.core.budget import limits
from transom.core.event import BlockReplaced, Draft, ModelReplied, SessionOpened, ToolReturned, WindowOpened
from transom.core.policy import PRESETS, Policy
from transom.core.state import NOTHING, add_counts, counts_of
from transom.core.wire import Rendering, Wire
from transom.ports import Counter, Log, Snapshots
from transom.session import Rules, Session

__all__ = ["PLAIN", "grow", "grown", "ours", "pairs_of", "rules_for", "run", "same"]

_ENDLESS = 1_000_000_000
"""Tokens: a limit that no workload reaches."""
PLAIN = msgspec.structs.replace(PRESETS["rollover"], offload_above=0)
"""Below its budget a session under this only grows."""
_ANCHORED = msgspec.structs.replace(PRESETS["gssc"], offload_above=0)
_STEPS = 5
"""Steps of a round."""
_ROUNDS = 7


def run(scale: float = 1.0, seed: int = 1) -> list[Figure]:
    """All figures; `scale` makes the workloads smaller or larger."""

    def size(number: int) -> int:
        return max(30, int(number * scale))

    return [
        *(_step(int(megabytes * 1e6 * scale), seed) for megabytes in (0.2, 1, 4)),
        _growth([size(number) for number in (300, 1000, 3000, 10_000, 30_000)], seed),
        *_boundaries(int(1e6 * scale), seed),
        *_cold(int(1e6 * scale), seed),
        *_open_long([size(number) for number in (3000, 10_000, 30_000, 100_000)], seed),
    ]


# -- sessions


def rules_for(policy: Policy, context_limit: int = _ENDLESS) -> Rules:
    ids = count(1)
    return Rules(
        policy=policy,
        bounds=limits(context_limit),
        counter=_counter(),
        dialect=DIALECT,
        clock=lambda: 1_700_000_000_000,
        ids=lambda: f"made-{next(ids)}",
    )


@lru_cache(1)
def _counter() -> Counter:
    return open_counter()


def grown(
    log: Log,
    drafts: Iterator[Draft],
    rules: Rules,
    *,
    until: int = 0,
    messages: int = 0,
    snapshots: Snapshots | None = None,
) -> Session:
    """A new session that has grown and sent a request."""
    fact = opened().fact
    assert isinstance(fact, SessionOpened)
    session = Session.start(log, "s", fact, rules, snapshots)
    grow(session, drafts, until=until, messages=messages)
    session.boundary()
    session.request()
    return session


def grow(session: Session, drafts: Iterator[Draft], *, until: int = 0, messages: int = 0) -> None:
    """Append from `drafts` until their texts have `until` bytes or the window has `messages` messages."""
    held = 0
    for draft in drafts:
        session.append(draft.fact, uuid=draft.uuid, at=draft.at)
        held += _texts_size(draft)
        # Not between a call and its result.
        if isinstance(draft.fact, ToolReturned) and (
            held >= until > 0 or len(session.state.window.items) >= messages > 0
        ):
            break


def _texts_size(draft: Draft) -> int:
    blocks = getattr(draft.fact, "blocks", ())
    return sum(len(_counted(block)) for block in blocks) + 120  # about what a message is framed by


def _counted(block: object) -> str:
    match block:
        case ToolCall():
            return block.arguments
        case Text() | ToolResultRaw():
            return block.text
        case _:
            return ""


def pairs_of(drafts: Iterator[Draft], number: int) -> list[list[Draft]]:
    """The next calls, each with its result."""
    pairs: list[list[Draft]] = []
    for draft in drafts:
        if isinstance(draft.fact, ModelReplied) and draft.fact.stop_reason == "tool_use":
            pairs.append([draft])
        elif isinstance(draft.fact, ToolReturned):
            pairs[-1].append(draft)
            if len(pairs) == number:
                break
    return pairs


def ours(session: Session, pair: Sequence[Draft]) -> bytes:
    """One step: what came back is counted, appended and folded; boundary, request, and its bytes."""
    return b"".join(_segmented(session, pair).segments())


def _segmented(session: Session, pair: Sequence[Draft]) -> Wire:
    measure = session.rules.counter.measure
    for draft in pair:
        fact = draft.fact
        assert isinstance(fact, ModelReplied | ToolReturned)
        for block in fact.blocks:
            measure(_counted(block))  # at admission; the block's own count is the same number
        session.append(fact, uuid=draft.uuid, at=draft.at)
    session.boundary()
    return session.request().wire


def same(session: Session) -> None:
    """Raises unless the session's next request is what it is from nothing, and its counts are the window's sum."""
    wire = session._rendering.wire(session.state)
    fresh = Rendering(DIALECT).wire(session.state)
    assert wire.segments() == fresh.segments()
    assert list(wire.rolling[: wire.messages + 1]) == list(fresh.rolling[: fresh.messages + 1])
    assert (wire.sums, wire.ends, wire.blocks) == (fresh.sums, fresh.ends, fresh.blocks)
    total = NOTHING
    for item in session.state.window.items:
        total = add_counts(total, counts_of(item.blocks))
    assert total[:4] == session.state.window.counts[:4]


def _array(session: Session) -> bytes:
    """The window as a client would send it."""
    wire = session._rendering.wire(session.state)
    return b"[%b]" % b",".join(wire.body[: wire.messages])


# -- P3: a step


def _step(size: int, seed: int) -> Figure:
    drafts = conversation(100_000, seed)
    session = grown(MemoryLog(), drafts, rules_for(PLAIN), until=size)
    anchored = grown(MemoryLog(), conversation(100_000, seed), rules_for(_ANCHORED), until=size)
    counted = counting(_counter())
    memo = Memo(counted)
    control = Incremental(_array(session), counted)
    full(_array(session), memo.__getitem__)
    spent: dict[str, list[float]] = {}
    for _ in range(_ROUNDS):
        pairs = pairs_of(drafts, _STEPS)
        seconds = dict.fromkeys(("ours", "sandwich", "incremental", "full", "full memo"), 0.0)
        for pair in pairs:
            seconds["ours"] += cpu(lambda pair=pair: ours(session, pair))  # type: ignore[misc]
            seconds["sandwich"] += cpu(lambda pair=pair: ours(anchored, pair))  # type: ignore[misc]
            body = _array(session)
            seconds["incremental"] += cpu(lambda body=body: control.step(body))  # type: ignore[misc]
        assert control.body == body[:-1], "the governed body is not the client's"
        seconds["full"] = _STEPS * cpu(lambda body=body: full(body, counted))  # type: ignore[misc]
        seconds["full memo"] = _STEPS * cpu(lambda body=body: full(body, memo.__getitem__))  # type: ignore[misc]
        for name, value in seconds.items():
            spent.setdefault(name, []).append(value / _STEPS)
    same(session)
    same(anchored)
    cost = {name: 1e3 * median(values) for name, values in spent.items()}
    times, share = cost["ours"] / cost["incremental"], cost["full"] / cost["ours"]
    is_large = size >= 1_000_000
    goal = "at most 3 x incremental" + (", 1/40 of full" if is_large else "")
    return Figure(
        id="P3",
        what=f"a step on a history of {size / 1e6:.1f} MB",
        goal=goal,
        value=f"{times:.2f} x" + f", 1/{share:.0f}",
        verdict=judge(times <= 3 and (share >= 40 or not is_large)),
        detail=", ".join(f"{name} {value:.2f} ms" for name, value in cost.items()),
    )


# -- P3b: growth


def _growth(sizes: Sequence[int], seed: int) -> Figure:
    points: list[tuple[float, float]] = []
    for size in sizes:
        session = grown(MemoryLog(), conversation(200_000, seed), rules_for(PLAIN), messages=size)
        samples = []
        drafts = conversation(10_000, seed + 1)
        for _ in range(_ROUNDS):
            pairs = pairs_of(drafts, _STEPS)
            samples.append(cpu(lambda pairs=pairs, session=session: [_segmented(session, pair) for pair in pairs]))  # type: ignore[misc]
        same(session)
        points.append((size, median(samples) / _STEPS))
    slope = exponent(points)
    return Figure(
        id="P3b",
        what="a step as the window grows, the request left as segments",
        goal="exponent <= 0.2",
        value=f"{slope:.3f}",
        verdict=judge(slope <= 0.2),
        detail=", ".join(f"{size:,}: {1e3 * each:.2f} ms" for size, each in points),
    )


# -- P3c: boundary work


def _boundaries(size: int, seed: int) -> list[Figure]:
    """Each case on sessions of its own that have just sent a request: the next step is the one that is timed."""
    plain: list[float] = []
    spent: dict[str, list[float]] = {}
    moved: dict[str, int] = {}
    for number in range(_ROUNDS):
        for name in ("plain", "offload", "mask", "rollover"):
            drafts = conversation(100_000, seed + number)
            session = grown(MemoryLog(), drafts, rules_for(PRESETS["raw"]), until=size)
            pair = pairs_of(drafts, 1)[0]
            _bound(session, name, pair)
            start = process_time()
            ours(session, pair)
            seconds = process_time() - start
            (plain if name == "plain" else spent.setdefault(name, [])).append(seconds)
            moved[name] = _moved(session)
            same(session)
    figures = []
    for name, values in spent.items():
        ratio = median(values) / median(plain)
        figures.append(
            Figure(
                id="P3c",
                what=f"a step with {'an offload' if name == 'offload' else 'a ' + name}, {size / 1e6:.1f} MB",
                goal="at most 10 x a plain step",
                value=f"{ratio:.1f} x",
                verdict=judge(ratio <= 10),
                detail=f"{1e3 * median(values):.2f} ms against {1e3 * median(plain):.2f} ms; {moved[name]} moved",
            )
        )
    return figures


def _bound(session: Session, name: str, pair: Sequence[Draft]) -> None:
    """Rules under which the next step does what the case is named for."""
    now = prompt_tokens(session.state)
    if name == "offload":
        result = pair[1].fact
        assert isinstance(result, ToolReturned)
        policy = msgspec.structs.replace(PRESETS["rollover"], offload_above=min(10, result.blocks[0].tokens - 1))
        session.rules = replace(session.rules, policy=policy)
    elif name == "mask":
        session.rules = replace(session.rules, policy=PRESETS["mask"], bounds=limits(int(now / 0.74)))
    elif name == "rollover":
        session.rules = replace(session.rules, policy=PRESETS["rollover"], bounds=limits(now + 8192))


def _moved(session: Session) -> int:
    """Blocks that the last boundary replaced, or seeds and messages of the window it opened."""
    moved = 0
    for event in session.log.read(session.session_id, session.state.seq - 6):
        if isinstance(event.fact, BlockReplaced):
            moved += len(event.fact.targets)
        elif isinstance(event.fact, WindowOpened):
            moved += len(event.fact.seed) + len(event.fact.kept_head) + len(event.fact.kept_tail)
    return moved


# -- P4: from the log to a request


def _cold(size: int, seed: int) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-kernel-") as name:
        log = _sqlite(Path(name))
        rules = rules_for(PLAIN)
        session = grown(log, conversation(100_000, seed), rules, until=size)
        body = _array(session)
        counted = counting(_counter())
        memo = Memo(counted)
        full(body, memo.__getitem__)
        reopened = Session.open(log, "s", rules)
        reopened._prepare()
        assert reopened.state == session.state
        assert _array(reopened) == body
        spent = rounds(
            {
                "ours": lambda: cpu(lambda: Session.open(log, "s", rules)._prepare()),
                "full": lambda: cpu(lambda: full(body, counted)),
                "full memo": lambda: cpu(lambda: full(body, memo.__getitem__)),
            }
        )
        log.close()
    against_full, against_memo = spent["ours"] / spent["full"], spent["ours"] / spent["full memo"]
    detail = ", ".join(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in spent.items())
    return [
        Figure(
            id="P4",
            what=f"open a session of {size / 1e6:.1f} MB to a sendable request",
            goal="at most 1.3 x full; 2 x full memo",
            value=f"{against_full:.2f} x; {against_memo:.2f} x",
            verdict=judge(against_full <= 1.3 and against_memo <= 2),
            detail=detail,
        )
    ]


def _sqlite(folder: Path) -> SqliteLog:
    return SqliteLog(folder / "log.db", DirBlobs(folder / "blobs", is_synced=False))


# -- P8: long sessions


def _open_long(sizes: Sequence[int], seed: int) -> list[Figure]:
    """A session governed as it grew (128k window, rollover), opened at several lengths, each 50 steps behind the
    opening of a window."""
    plain_at: list[tuple[float, float]] = []
    saved_at: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(prefix="bench-kernel-") as name:
        log, snapshots = _sqlite(Path(name)), DirSnapshots(Path(name) / "snapshots")
        rules = rules_for(PRESETS["rollover"], 128_000)
        drafts = conversation(10 * sizes[-1], seed, reports=False)
        session = grown(log, drafts, rules, messages=2, snapshots=snapshots)
        for size in sizes:
            _lead(session, drafts, size)
            reading = _reader(log)
            spent = rounds(
                {
                    "ours": lambda: cpu(lambda: Session.open(log, "s", rules)._prepare()),
                    "saved": lambda: cpu(lambda: Session.open(log, "s", rules, snapshots)._prepare()),
                    "control": lambda reading=reading: cpu(reading),  # type: ignore[misc]
                },
                3 if size > 20_000 else _ROUNDS,
            )
            plain_at.append((session.state.seq, spent["ours"]))
            saved_at.append((session.state.seq, spent["saved"]))
        for opened_again in (Session.open(log, "s", rules), Session.open(log, "s", rules, snapshots)):
            assert opened_again.state == session.state
            assert opened_again._prepare().wire.segments() == session._prepare().wire.segments()
        log.close()
    ratio = spent["ours"] / spent["control"]
    events = session.state.seq
    slope = exponent(saved_at)
    return [
        Figure(
            id="P8",
            what=f"open a session of {events:,} events to a sendable request, no snapshot",
            goal="at most 1.5 x read_and_parse",
            value=f"{ratio:.2f} x",
            verdict=judge(ratio <= 1.5),
            detail=f"{1e6 * spent['ours'] / events:.1f} against {1e6 * spent['control'] / events:.1f} us an event; "
            f"exponent {exponent(plain_at):.2f}",
        ),
        Figure(
            id="P8",
            what="the same with a snapshot",
            goal="exponent <= 0.2",
            value=f"{slope:.3f}",
            verdict=judge(slope <= 0.2),
            detail=", ".join(f"{size:,}: {1e3 * seconds:.1f} ms" for size, seconds in saved_at),
        ),
    ]


def _lead(session: Session, drafts: Iterator[Draft], events: int) -> None:
    """Govern the session to `events` events, on to the opening of a window, and 50 steps further."""
    steps_after = 0
    while steps_after < 50:
        for draft in pairs_of(drafts, 1)[0]:
            session.append(draft.fact, uuid=draft.uuid, at=draft.at)
        has_opened = any(isinstance(event.fact, WindowOpened) for event in session.boundary())
        session.request()
        steps_after += steps_after > 0 or (has_opened and session.state.seq >= events)


def _reader(log: SqliteLog) -> Callable[[], object]:
    """read_and_parse: the same rows, each payload parsed as plain JSON."""
    decode = msgspec.json.Decoder().decode

    def work() -> None:
        for _, payload in log._db.execute("SELECT id, payload FROM event ORDER BY id"):
            decode(payload)

    return work


if __name__ == "__main__":
    table(run(), "Kernel")
