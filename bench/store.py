"""The stores: appending, disk, verification, search. `python -m bench.store` prints the table.

Each figure is a ratio to a control arm in the same run: plain SQLite with a digest column and nothing else. Controls
are given payloads that are already encoded; ours encode, validate and link them.
"""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from bench import search
from bench.figure import Figure, cpu, exponent, judge, rounds, table, wall
from bench.fresh import Fresh, fill
from bench.workload import events, opened
from transom.adapters.sqlite_log import SqliteLog
from transom.adapters.sqlite_log.verify import verified
from transom.core.event import Draft, encode_fact
from transom.core.searchable import text_of

__all__ = ["run"]


def run(scale: float = 1.0, seed: int = 1) -> list[Figure]:
    """All figures; `scale` makes the workloads smaller or larger."""
    with tempfile.TemporaryDirectory(prefix="bench-store-") as name:
        folder = Path(name)

        def size(number: int) -> int:
            return max(60, int(number * scale))

        return [
            *_append(folder / "p1", events(size(5000), seed), events(size(400), seed + 1)),
            _append_growth(folder / "p1d", events(size(5000), seed + 2), size(100_000)),
            *_disk(folder / "p2", events(size(20_000), seed + 3)),
            *_verify(folder / "p7", events(size(5000), seed + 4)),
            *search.figures(folder / "p10", size(20_000), seed + 5),
        ]


def _control_append(db: sqlite3.Connection, payloads: Sequence[bytes], texts: Sequence[str] = ()) -> None:
    """One row a transaction, chained; with `texts` also indexed."""
    digest = b""
    for seq, payload in enumerate(payloads, 1):
        digest = hashlib.sha256(digest + payload).digest()
        db.execute("BEGIN IMMEDIATE")
        if texts:
            db.execute("INSERT INTO event VALUES (?, NULL, ?, ?)", (seq, texts[seq - 1], digest))
            db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (seq, texts[seq - 1]))
        else:
            db.execute("INSERT INTO event VALUES (?, ?, NULL, ?)", (seq, payload, digest))
        db.execute("COMMIT")


def _ours(log: SqliteLog, drafts: Sequence[Draft]) -> None:
    log.append("s", 0, [opened()])
    for seq, draft in enumerate(drafts, 1):
        log.append("s", seq, [draft])


def _append(folder: Path, drafts: list[Draft], few: list[Draft]) -> list[Figure]:
    fresh = Fresh(folder)
    payloads, texts = [encode_fact(draft.fact) for draft in drafts], [text_of(draft.fact) for draft in drafts]
    few_payloads = [encode_fact(draft.fact) for draft in few]
    walls: dict[str, list[float]] = {"ours": [], "control": []}

    def ours() -> float:
        log = fresh.log()
        start = perf_counter()
        seconds = cpu(lambda: _ours(log, drafts))
        walls["ours"].append(perf_counter() - start)
        return seconds

    def control() -> float:
        db = fresh.control()
        start = perf_counter()
        seconds = cpu(lambda: _control_append(db, payloads))
        walls["control"].append(perf_counter() - start)
        return seconds

    def visible() -> float:
        log = fresh.log()

        def work() -> None:
            _ours(log, drafts)
            log.search("budget")

        return cpu(work)

    def words() -> float:
        db = fresh.control(has_words=True)
        return cpu(lambda: _control_append(db, payloads, texts))

    def full_ours() -> float:
        log = fresh.log("FULL")
        return wall(lambda: _ours(log, few))

    def full_control() -> float:
        db = fresh.control("FULL")
        return wall(lambda: _control_append(db, few_payloads))

    seconds = rounds(
        {
            "ours": ours,
            "control": control,
            "visible": visible,
            "words": words,
        }
    )
    full = rounds(
        {
            "ours": full_ours,
            "control": full_control,
        }
    )
    commits = _commits(fresh.log("FULL"), few)
    number = len(drafts)
    each = {name: value / number * 1e6 for name, value in seconds.items()}
    ratio = seconds["control"] / seconds["ours"]
    words_ratio = seconds["words"] / seconds["visible"]
    full_ratio = full["control"] / full["ours"]
    return [
        Figure(
            id="P1",
            what="append, one event a commit, NORMAL",
            goal=">= 0.6 x wal_normal_chain",
            value=f"{ratio:.2f} x",
            verdict=judge(ratio >= 0.6),
            detail=f"CPU {each['ours']:.0f} against {each['control']:.0f} us an event; "
            f"wall {number / median(walls['ours']):,.0f} against {number / median(walls['control']):,.0f} rows/s",
        ),
        Figure(
            id="P1b",
            what="append, one event a commit, FULL",
            goal=">= 0.9 x wal_full; one commit an append",
            value=f"{full_ratio:.2f} x",
            verdict=judge(full_ratio >= 0.9 and commits == len(few) + 1),
            detail=f"wall {len(few) / full['ours']:,.0f} rows/s; {commits} commits for {len(few) + 1} appends",
        ),
        Figure(
            id="P1c",
            what="append + visible to the next search",
            goal=">= 1.5 x normal_chain_fts_unicode61",
            value=f"{words_ratio:.2f} x",
            verdict=judge(words_ratio >= 1.5),
            detail=f"CPU {each['visible']:.0f} against {each['words']:.0f} us an event",
        ),
    ]


def _commits(log: SqliteLog, drafts: Sequence[Draft]) -> int:
    statements: list[str] = []
    log._db.set_trace_callback(statements.append)
    _ours(log, drafts)
    # A lone INSERT commits itself; in a transaction the inserts stand before their COMMIT.
    grouped = sum(
        statements[index - 1].startswith("INSERT") for index, each in enumerate(statements) if each == "COMMIT"
    )
    return sum(each.startswith("INSERT INTO event") for each in statements) + statements.count("COMMIT") - grouped


def _append_growth(folder: Path, drafts: list[Draft], largest: int) -> Figure:
    log = Fresh(folder).log()
    points: list[tuple[float, float]] = []
    after = 0
    for size in (largest // 100, largest // 31, largest // 10, largest // 3, largest):
        after = fill(log, drafts, size, after)
        samples = []
        for _ in range(7):
            start = process_time()
            for draft in drafts[:200]:
                log.append("s", after, [draft])
                after += 1
            samples.append((process_time() - start) / 200)
        points.append((size, median(samples)))
    slope = exponent(points)
    costs = ", ".join(f"{size:,}: {seconds * 1e6:.0f} us" for size, seconds in points)
    return Figure(
        id="P1d",
        what="append as the log grows",
        goal="exponent <= 0.1",
        value=f"{slope:.3f}",
        verdict=judge(slope <= 0.1),
        detail=costs,
    )


def _disk(folder: Path, drafts: list[Draft]) -> list[Figure]:
    fresh = Fresh(folder)
    points: list[tuple[float, float]] = []
    ratios: dict[str, float] = {}
    for share in (30, 10, 3, 1):
        count = len(drafts) // share
        log = fresh.log()
        fill(log, drafts[:count], count + 1)
        log.search("budget")
        log.close()
        payload = sum(len(encode_fact(draft.fact)) for draft in drafts[:count])
        ratios["plain"] = log._path.stat().st_size / payload
        both = log._path.stat().st_size + log._search._index.path.stat().st_size
        ratios["words"] = both / payload
        points.append((count, both / count))
    slope = exponent(points)
    return [
        Figure(
            id="P2",
            what="disk over payload, log / log + search index",
            goal="<= 1.35 / <= 1.8",
            value=f"{ratios['plain']:.2f} / {ratios['words']:.2f}",
            verdict=judge(ratios["plain"] <= 1.35 and ratios["words"] <= 1.8),
        ),
        Figure(
            id="P2",
            what="growth of disk per event",
            goal="exponent <= 0.05",
            value=f"{slope:.3f}",
            verdict=judge(slope <= 0.05),
            detail=", ".join(f"{size:,.0f}: {each:,.0f} B" for size, each in points),
        ),
    ]


def _verify(folder: Path, drafts: list[Draft]) -> list[Figure]:
    fresh = Fresh(folder)
    db = fresh.control()
    _control_append(db, [encode_fact(draft.fact) for draft in drafts])
    log = fresh.log()
    fill(log, drafts, len(drafts) + 1)

    def control() -> None:
        digest = b""
        for payload, stored in db.execute("SELECT payload, digest FROM event ORDER BY seq"):
            digest = hashlib.sha256(digest + payload).digest()
            assert digest == stored

    def ours() -> None:
        assert [row.problem for row in log.verify()] == [""]

    def chain() -> None:
        assert [row.problem for row in verified(log._fetch, log._blobs, None)] == [""]

    def reading() -> None:
        for _ in log.read("s"):
            pass

    arms = {"ours": ours, "control": control, "chain": chain, "read": reading}
    seconds = rounds({name: partial(cpu, arm) for name, arm in arms.items()})
    ratio = seconds["control"] / seconds["ours"]
    points: list[tuple[float, float]] = []
    for size in (300, 1000, 3000, len(drafts)):
        at = min(size, len(drafts)) - 1
        samples = [cpu(lambda at=at: [next(log.read("s", at, at + 1)) for _ in range(200)]) for _ in range(7)]  # type: ignore[misc]
        points.append((size, median(samples) / 200))
    slope = exponent(points)
    return [
        Figure(
            id="P7",
            what="full verification, the file's structure included",
            goal=">= 0.5 x chain_verify",
            value=f"{ratio:.2f} x",
            verdict=judge(ratio >= 0.5),
            detail=f"{len(drafts) / seconds['ours']:,.0f} events/s; "
            f"the chains alone {seconds['control'] / seconds['chain']:.2f} x; "
            f"checked and decoded reading {len(drafts) / seconds['read']:,.0f}",
        ),
        Figure(
            id="P7",
            what="validate one checkpoint (digest at a seq)",
            goal="exponent <= 0.1",
            value=f"{slope:.3f}",
            verdict=judge(slope <= 0.1),
            detail=", ".join(f"{size:,.0f}: {each * 1e6:.0f} us" for size, each in points),
        ),
    ]


if __name__ == "__main__":
    table(run(), "Stores")
