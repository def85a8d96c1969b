"""Search: its speed for a rare identifier, and whether it finds what people and models look for."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

from bench.figure import Figure, cpu, exponent, judge, rounds
from bench.fresh import Fresh, fill
from bench.workload import events, message
from transom.adapters.sqlite_log import SqliteLog
from transom.core.block import ToolResultRaw
from transom.core.event import Draft, ToolReturned
from transom.core.searchable import text_of

__all__ = ["figures"]


def _needles(seed: int) -> dict[str, list[tuple[str, str]]]:
    """kind -> (literal to plant, query): what people and models look for."""
    rng = random.Random(seed)
    rare = "龘靐齉爩麤鱻灪厵滟爨癵籱饢驫鲡鹂鸾犇羴骉"

    def word(length: int = 6) -> str:
        return "".join(rng.choices("bcdfghjklmnpqrstvwxz", k=length))

    def many(make: Callable[[], str], change: Callable[[str], str] = str) -> list[tuple[str, str]]:
        literals = [make() for _ in range(15)]
        return [(literal, change(literal)) for literal in literals]

    return {
        "identifier": many(lambda: f"{word()}_{word()}_{rng.randrange(999)}"),
        "part after _": many(lambda: f"x_{word(8)}_{word(4)}", lambda text: text[2:10]),
        "camel part": many(lambda: f"Get{word(8).title()}Error", lambda text: text[3:11]),
        "camel, written small": many(lambda: f"Get{word(8).title()}Error", str.lower),
        "inside a word": many(lambda: word(12), lambda text: text[3:10]),
        "path:line": many(lambda: f"src/{word()}/{word()}.py:{rng.randrange(999)}"),
        "sha prefix": many(lambda: f"{rng.getrandbits(160):040x}", lambda text: text[:9]),
        "error line": many(lambda: f"{word().title()}Error: [Errno {rng.randrange(99)}] '{word()}' != \"{word()}\""),
        "two characters": many(lambda: "".join(rng.sample(rare, 6)), lambda text: text[2:4]),
    }


def _planted(count: int, seed: int) -> tuple[list[Draft], list[tuple[str, str, int]]]:
    """The workload with every needle planted at head, middle or end of a 9 KB result: (kind, query, seq)."""
    drafts = events(count, seed)
    expected: list[tuple[str, str, int]] = []
    rng = random.Random(seed)
    needles = [(kind, *pair) for kind, pairs in _needles(seed).items() for pair in pairs]
    places = rng.sample(range(count), len(needles))
    for number, ((kind, literal, query), place) in enumerate(zip(needles, places, strict=True)):
        text = message(seed + number, 9000)
        cut = (0, len(text) // 2, len(text))[number % 3]
        block = ToolResultRaw(text=f"{text[:cut]} {literal} {text[cut:]}".strip())
        drafts[place] = Draft(fact=ToolReturned(call_id="n", blocks=(block,)), uuid=f"needle{number}", at=1)
        expected.append((kind, query, place + 2))
    return drafts, expected


def figures(folder: Path, largest: int, seed: int) -> list[Figure]:
    fresh = Fresh(folder)
    points: list[tuple[float, float]] = []
    for size in (largest // 30, largest // 10, largest // 3, largest):
        drafts, expected = _planted(max(size, 300), seed)
        log, raw = fresh.log(), _raw_words(fresh, drafts)
        fill(log, drafts, len(drafts) + 1)
        rare = [query for kind, query, _ in expected if kind == "identifier"]
        log.search("budget")

        def ours(log: SqliteLog = log, rare: list[str] = rare) -> None:
            for query in rare:
                assert len(log.search(query)) == 1

        def control(raw: sqlite3.Connection = raw, rare: list[str] = rare) -> None:
            for query in rare:
                assert len(_raw_search(raw, query)) == 1

        seconds = rounds({"ours": lambda ours=ours: cpu(ours), "raw": lambda control=control: cpu(control)}, 15)  # type: ignore[misc]
        points.append((size, seconds["ours"] / len(rare)))
    ratio = seconds["ours"] / seconds["raw"]
    slope = exponent(points)
    return [
        Figure(
            id="P10",
            what="search for a rare identifier",
            goal="<= 2 x raw FTS5, exponent <= 0.15",
            value=f"{ratio:.2f} x, {slope:.3f}",
            verdict=judge(ratio <= 2 and slope <= 0.15),
            detail=", ".join(f"{size:,.0f}: {each * 1e3:.2f} ms" for size, each in points),
        ),
        *_recall(log, raw, expected),
    ]


def _raw_words(fresh: Fresh, drafts: Sequence[Draft]) -> sqlite3.Connection:
    db = fresh.control(has_words=True)
    texts = [text_of(draft.fact) for draft in drafts]
    with db:
        db.execute("BEGIN")
        db.executemany("INSERT INTO event VALUES (?, NULL, ?, NULL)", enumerate(texts, 2))
        db.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", enumerate(texts, 2))
    return db


def _raw_search(db: sqlite3.Connection, query: str) -> list[tuple[int, str]]:
    """Raw FTS5 as one would write it: a phrase, the best twenty, with their text."""
    quoted = '"' + query.replace('"', '""') + '"'
    statement = "SELECT rowid, text FROM words WHERE words MATCH ? ORDER BY rank LIMIT 20"
    return db.execute(statement, (quoted,)).fetchall()


def _recall(log: SqliteLog, raw: sqlite3.Connection, expected: list[tuple[str, str, int]]) -> list[Figure]:
    ours: dict[str, list[bool]] = {}
    theirs: list[bool] = []
    slowest = 0.0
    for kind, query, seq in expected:
        start = perf_counter()
        hits = log.search(query, limit=3)
        slowest = max(slowest, perf_counter() - start)
        ours.setdefault(kind, []).append(seq in [hit.seq for hit in hits])
        theirs.append(seq in [row[0] for row in _raw_search(raw, query)[:3]])
    found = [is_found for row in ours.values() for is_found in row]
    missed = ", ".join(f"{kind} {sum(row)}/{len(row)}" for kind, row in ours.items() if not all(row))
    return [
        Figure(
            id="P10c",
            what="needles of nine kinds in the top 3",
            goal="100 %",
            value=f"{sum(found)}/{len(found)}",
            verdict=judge(all(found)),
            detail=f"{missed or 'none missed'}; raw FTS5 {sum(theirs)}/{len(theirs)}; "
            f"slowest {slowest * 1e3:.0f} ms wall",
        )
    ]
