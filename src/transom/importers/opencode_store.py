"""opencode's own storage, read as `opencode export` would write it: one JSON document a session.

    storage/session/PROJECT/ses_*.json, storage/message/SESSION/msg_*.json, storage/part/MESSAGE/prt_*.json
    opencode.db (since 1.2): tables session, message, part; `data` holds the JSON without the ids of its row

The database is opened read-only and never waited for: it may be in use. A session that stands in both (the old files
stay after the move) is taken from the database.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from transom.errors import BadInput, reason_of

__all__ = ["Stored", "export", "sessions"]

_DATABASE = "opencode.db"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A session of opencode; `place` is its file, or the database."""

    session_id: str
    place: Path
    at: float


def sessions(folder: Path) -> Iterator[Stored]:
    """The sessions in opencode's data folder that a person started: sub-tasks are children of one."""
    known = set()
    for stored in _rows(folder / _DATABASE):
        known.add(stored.session_id)
        yield stored
    for path in (folder / "storage" / "session").glob("*/ses_*.json"):
        if path.stem not in known:
            try:
                at = path.stat().st_mtime
            except OSError:
                continue  # gone since it was listed
            yield Stored(session_id=path.stem, place=path, at=at)


def export(place: Path, session_id: str) -> bytes:
    """The session as an export. Raises `BadInput` if it cannot be read."""
    try:
        document = _from_database(place, session_id) if place.name == _DATABASE else _from_files(place, session_id)
    except (OSError, sqlite3.Error, ValueError) as problem:
        raise BadInput(
            f"{place}: session {session_id} cannot be read ({reason_of(problem)}); "
            f"run `opencode export {session_id} > session.json` and name that file"
        ) from problem
    return json.dumps(document).encode()  # ASCII: a lone surrogate stays an escape


def _rows(database: Path) -> Iterator[Stored]:
    if not database.is_file():
        return
    try:
        with closing(_open(database)) as db:
            found = db.execute("SELECT id, time_updated FROM session WHERE parent_id IS NULL").fetchall()
    except sqlite3.Error:
        return  # another program's file, or a layout of a later version: the usual places are a convenience
    for session_id, updated in found:
        yield Stored(session_id=str(session_id), place=database, at=float(updated) / 1000)


def _open(database: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{database.resolve().as_uri()}?mode=ro", uri=True, timeout=1)


def _from_files(place: Path, session_id: str) -> object:
    storage = place.parents[2]
    messages = []
    for path in sorted((storage / "message" / session_id).glob("*.json")):
        parts = [_json(part) for part in sorted((storage / "part" / path.stem).glob("*.json"))]
        messages.append({"info": _json(path), "parts": parts})
    return {"info": _json(place), "messages": messages}


def _json(path: Path) -> object:
    return json.loads(path.read_bytes())


def _from_database(place: Path, session_id: str) -> object:
    with closing(_open(place)) as db:
        db.row_factory = sqlite3.Row
        row = db.execute("SELECT * FROM session WHERE id = ?", (session_id,)).fetchone()
        if row is None:
            raise ValueError("it is not there any more")
        parts: dict[str, list[object]] = {}
        for part in db.execute("SELECT id, message_id, data FROM part WHERE session_id = ? ORDER BY id", (session_id,)):
            whole = _with(part["data"], id=part["id"], messageID=part["message_id"], sessionID=session_id)
            parts.setdefault(part["message_id"], []).append(whole)
        found = db.execute(
            "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", (session_id,)
        ).fetchall()
    messages = [
        {"info": _with(message["data"], id=message["id"], sessionID=session_id), "parts": parts.get(message["id"], [])}
        for message in found
    ]
    return {"info": _info(row), "messages": messages}


def _with(data: str, **ids: str) -> dict[str, object]:
    return {**ids, **msgspec.convert(json.loads(data), dict[str, object])}


def _info(row: sqlite3.Row) -> dict[str, object]:
    columns = set(row.keys())

    def column(name: str) -> object:
        return row[name] if name in columns else None

    info: dict[str, object] = {
        "id": row["id"],
        "projectID": column("project_id") or "",
        "directory": column("directory") or "",
        "title": column("title") or "",
        "version": column("version") or "",
        "time": {"created": column("time_created") or 0, "updated": column("time_updated") or 0},
    }
    revert = column("revert")
    if isinstance(revert, str) and revert:
        info["revert"] = json.loads(revert)
    return info
