"""Importing transcripts: P11. `python -m bench.importing [scale]` prints the table.

The workload is told as a Claude Code session of 40 MB: every result stands twice in it, once as the model saw it and
once in the client's own form, as in recorded ones. The floor is what an import cannot do without, each done alone in
its plainest way: decode every line, hash every payload in a chain, count every text, and write rows with an index of
the words as a search needs them cut.
Our import does all of it, and types, pairs, orders, validates and names what it reads. Seconds are of CPU: the disk's
are not compared here.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path

import msgspec

from bench.figure import Figure, cpu, judge, rounds, table
from bench.workload import conversation
from transom.adapters.blobs import DirBlobs
from transom.adapters.counter import open_counter
from transom.adapters.sqlite_log import SqliteLog
from transom.core.block import Block, Text, ToolCall, ToolResultRaw
from transom.core.event import Draft, ModelReplied, Observed, ToolReturned, UserSaid, encode_fact
from transom.core.searchable import prepare, text_of
from transom.importers.load import load

__all__ = ["run"]

_BYTES = 40_000_000
_BATCH = 256
_SESSION = "be7c0000-0000-4000-8000-000000000000"


def run(scale: float = 1.0, seed: int = 1) -> list[Figure]:
    """All figures; `scale` makes the session smaller or larger."""
    with tempfile.TemporaryDirectory(prefix="bench-importing-") as name:
        folder = Path(name)
        path = folder / "session.jsonl"
        _write(path, int(_BYTES * scale), seed)
        return _figures(path, folder)


def _figures(path: Path, folder: Path) -> list[Figure]:
    names = count()
    counter = open_counter()
    counter.measure("warm")

    def ours(work: Callable[[SqliteLog, DirBlobs], float]) -> float:
        place = folder / str(next(names))
        blobs = DirBlobs(place / "blobs", is_synced=False)
        with SqliteLog(place / "log.db", blobs) as log:
            return work(log, blobs)

    def whole(log: SqliteLog, blobs: DirBlobs) -> float:
        def work() -> None:
            load(path, log=log, blobs=blobs, counter=counter)
            log.search("needle")  # fills the index

        return cpu(work)

    def again(log: SqliteLog, blobs: DirBlobs) -> float:
        load(path, log=log, blobs=blobs, counter=counter)
        return cpu(lambda: load(path, log=log, blobs=blobs, counter=counter))

    def imported(log: SqliteLog, blobs: DirBlobs) -> float:
        load(path, log=log, blobs=blobs, counter=counter)
        for event in log.read(f"claude-code:{_SESSION}"):
            payloads.append(encode_fact(event.fact))
            if not isinstance(event.fact, Observed):
                texts.append(text_of(event.fact))
        return 0.0

    payloads: list[bytes] = []
    texts: list[str] = []
    ours(imported)
    arms = {
        "parse": lambda: cpu(lambda: _parse(path)),
        "digest": lambda: cpu(lambda: _digest(payloads)),
        "count": lambda: cpu(lambda: [counter.measure(text) for text in texts]),
        "index": lambda: cpu(lambda: _index(folder / f"{next(names)}.db", payloads, texts)),
        "import": lambda: ours(whole),
        "again": lambda: ours(again),
    }
    seconds = rounds(arms, 3)
    floor = sum(seconds[name] for name in ("parse", "digest", "count", "index"))
    megabytes = path.stat().st_size / 1e6
    share = floor / seconds["import"]
    parts = ", ".join(f"{name} {seconds[name]:.2f} s" for name in ("parse", "digest", "count", "index"))
    repeat = seconds["again"] / seconds["import"]
    return [
        Figure(
            id="P11",
            what="import of transcripts, as a share of the combined floor's speed",
            goal="≥ 0.6",
            value=f"{share:.2f}",
            verdict=judge(share >= 0.6),
            detail=f"{megabytes / seconds['import']:.1f} MB/s CPU of {megabytes:.0f} MB; floor: {parts}",
        ),
        Figure(
            id="P11",
            what="importing an unchanged file again",
            goal="≤ 2 %",
            value=f"{repeat:.2%}",
            verdict=judge(repeat <= 0.02),
            detail=f"{seconds['again'] * 1000:.0f} ms: hashed, not parsed",
        ),
    ]


def _parse(path: Path) -> None:
    decoder = msgspec.json.Decoder()
    with path.open("rb") as file:
        for line in file:
            decoder.decode(line)


def _digest(payloads: Sequence[bytes]) -> None:
    digest = b""
    for payload in payloads:
        digest = hashlib.sha256(digest + payload).digest()


def _index(path: Path, payloads: Sequence[bytes], texts: Sequence[str]) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("CREATE TABLE event (seq INTEGER PRIMARY KEY, payload BLOB)")
    db.execute("CREATE VIRTUAL TABLE words USING fts5 (text, content='')")
    for start in range(0, len(payloads), _BATCH):
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO event VALUES (?, ?)", enumerate(payloads[start : start + _BATCH], start))
        words = ((seq, prepare(text)) for seq, text in enumerate(texts[start : start + _BATCH], start))
        db.executemany("INSERT INTO words (rowid, text) VALUES (?, ?)", words)
        db.execute("COMMIT")
    db.close()


def _write(path: Path, size: int, seed: int) -> None:
    """The workload as a session file of about `size` bytes."""
    done = 0
    parent = ""
    with path.open("w", encoding="utf-8") as file:
        for draft in conversation(size // 1000, seed):
            for record in _records(draft, parent):
                done += file.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
            parent = draft.uuid
            if done >= size:
                return


def _records(draft: Draft, parent: str) -> Iterable[dict[str, object]]:
    base: dict[str, object] = {
        "parentUuid": parent or None,
        "isSidechain": False,
        "cwd": "/home/dev/shop",
        "sessionId": _SESSION,
        "version": "2.1.49",
        "gitBranch": "main",
        "uuid": draft.uuid,
        "timestamp": "2026-03-01T10:00:00.000Z",
    }
    match draft.fact:
        case UserSaid():
            said = [_piece(block) for block in draft.fact.blocks]
            yield {**base, "type": "user", "message": {"role": "user", "content": said}}
        case ModelReplied():
            for number, block in enumerate(draft.fact.blocks):
                message = {
                    "id": f"msg_{draft.uuid}",
                    "role": "assistant",
                    "model": "bench",
                    "content": [_piece(block)],
                    "usage": {"input_tokens": 900, "cache_read_input_tokens": 30_000, "output_tokens": 120},
                }
                # The last record of a response has the name that the next one gives as its parent.
                is_last = number == len(draft.fact.blocks) - 1
                uuid = draft.uuid if is_last else f"{draft.uuid}-{number}"
                above = parent if number == 0 else f"{draft.uuid}-{number - 1}"
                yield {**base, "type": "assistant", "uuid": uuid, "parentUuid": above, "message": message}
        case ToolReturned():
            text = "".join(block.text for block in draft.fact.blocks if isinstance(block, ToolResultRaw))
            result = {"type": "tool_result", "tool_use_id": draft.fact.call_id, "content": text}
            seen = {"type": "text", "file": {"filePath": "/home/dev/shop/cart.py", "content": text}}
            message = {"role": "user", "content": [result]}
            yield {**base, "type": "user", "message": message, "toolUseResult": seen}
        case _:
            return


def _piece(block: Block) -> dict[str, object]:
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case ToolCall():
            arguments = json.loads(block.arguments)
            return {"type": "tool_use", "id": block.call_id, "name": block.name, "input": arguments}
        case _:
            return {"type": "text", "text": ""}


if __name__ == "__main__":
    table(run(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0), "importing")
