"""The newest session under the usual places, opencode's own storage among them."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from transom import compose
from transom.core.event import Event, SourceRead
from transom.errors import BadInput
from transom.importers import opencode_store
from transom.importers.places import recent

ID = "ses_0001abcd"
EXPORT: dict[str, Any] = {
    "info": {
        "id": ID,
        "projectID": "project",
        "directory": "/home/dev/app",
        "title": "Honour Retry-After",
        "version": "1.2.3",
        "time": {"created": 1_000, "updated": 9_000},
    },
    "messages": [
        {
            "info": {"id": "msg_1", "sessionID": ID, "role": "user", "time": {"created": 1_000}},
            "parts": [
                {"id": "prt_1", "messageID": "msg_1", "sessionID": ID, "type": "text", "text": "Fix it. 修复 \ud83d"}
            ],
        },
        {
            "info": {
                "id": "msg_2",
                "sessionID": ID,
                "role": "assistant",
                "modelID": "gpt-5.5",
                "providerID": "openai",
                "time": {"created": 2_000, "completed": 3_000},
            },
            "parts": [
                {"id": "prt_2", "messageID": "msg_2", "sessionID": ID, "type": "step-start"},
                {"id": "prt_3", "messageID": "msg_2", "sessionID": ID, "type": "text", "text": "Done."},
                {
                    "id": "prt_4",
                    "messageID": "msg_2",
                    "sessionID": ID,
                    "type": "step-finish",
                    "reason": "stop",
                    "cost": 0,
                    "tokens": {"input": 100, "output": 3, "reasoning": 0, "cache": {"read": 0, "write": 0}},
                },
            ],
        },
    ],
}
"""What `opencode export` writes of a session of one step."""


def write(path: Path, text: str, at: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    os.utime(path, (at, at))
    return path


def as_files(data: Path) -> None:
    """The export as opencode's first storage has it: a file a part."""
    storage = data / "opencode" / "storage"
    for message in EXPORT["messages"]:
        info = message["info"]
        write(storage / "message" / ID / f"{info['id']}.json", json.dumps(info), 1)
        for part in message["parts"]:
            write(storage / "part" / info["id"] / f"{part['id']}.json", json.dumps(part), 1)
    write(storage / "session" / "project" / f"{ID}.json", json.dumps(EXPORT["info"]), 5_000)


def as_database(data: Path) -> Path:
    """The export as its database has it."""
    (data / "opencode").mkdir(parents=True)
    path = data / "opencode" / "opencode.db"
    db = sqlite3.connect(path)
    db.executescript(
        "CREATE TABLE session (id TEXT, project_id TEXT, parent_id TEXT, directory TEXT, title TEXT, version TEXT,"
        " time_created INTEGER, time_updated INTEGER, revert TEXT);"
        "CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, time_updated INTEGER, data TEXT);"
        "CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT)"
    )
    info = EXPORT["info"]
    row = (ID, "project", None, info["directory"], info["title"], info["version"], 1_000, 9_000_000, None)
    db.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    sub_task = ("ses_sub", "project", ID, "/", "a sub-task", "1", 0, 99_000_000, None)
    db.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", sub_task)
    for message in EXPORT["messages"]:
        held = {key: value for key, value in message["info"].items() if key not in {"id", "sessionID"}}
        created = message["info"]["time"]["created"]
        values = (message["info"]["id"], ID, created, created, json.dumps(held))
        db.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", values)
        for part in message["parts"]:
            held = {key: value for key, value in part.items() if key not in {"id", "sessionID", "messageID"}}
            db.execute(
                "INSERT INTO part VALUES (?, ?, ?, ?)", (part["id"], message["info"]["id"], ID, json.dumps(held))
            )
    db.commit()
    db.close()
    return path


def conversation(events: Iterable[Event]) -> list[object]:
    return [event.fact for event in events if not isinstance(event.fact, SourceRead)]


def imported(path: Path, store: Path) -> list[object]:
    with compose.store(store) as kept:
        compose.import_file(path, kept, counts=compose.counter())
        return conversation(kept.log.read(f"opencode:{ID}"))


def test_the_newest_comes_first_whatever_agent_wrote_it(tmp_path: Path) -> None:
    claude = write(tmp_path / ".claude/projects/-a/one.jsonl", "{}", 300)
    write(tmp_path / ".claude/projects/-a/agent-7.jsonl", "{}", 900)
    write(tmp_path / ".claude/projects/-a/empty.jsonl", "", 800)
    codex = write(tmp_path / ".codex/sessions/2026/01/02/rollout-2026.jsonl", "{}", 100)
    pi = write(tmp_path / ".pi/agent/sessions/--a--/two.jsonl", "{}", 200)
    as_files(tmp_path / ".local/share")
    found = list(recent(tmp_path, {}))
    assert [one.agent for one in found] == ["opencode", "Claude Code", "pi", "Codex"]
    assert [one.path for one in found[1:]] == [claude, pi, codex]


def test_a_moved_place_is_looked_at_where_the_agent_looks(tmp_path: Path) -> None:
    write(tmp_path / "c/projects/-a/one.jsonl", "{}", 1)
    write(tmp_path / "x/sessions/rollout-1.jsonl", "{}", 2)
    write(tmp_path / "p/sessions/one.jsonl", "{}", 3)
    as_files(tmp_path / "d")
    moved = {"CLAUDE_CONFIG_DIR": "c", "CODEX_HOME": "x", "PI_CODING_AGENT_DIR": "p", "XDG_DATA_HOME": "d"}
    environment = {name: str(tmp_path / folder) for name, folder in moved.items()}
    assert [one.agent for one in recent(tmp_path / "home", environment)] == ["opencode", "pi", "Codex", "Claude Code"]


def test_a_home_without_sessions_has_none(tmp_path: Path) -> None:
    assert list(recent(tmp_path, {})) == []


@pytest.mark.parametrize("make", [as_files, as_database])
def test_opencodes_storage_is_read_as_its_export(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "data")
    (one,) = recent(tmp_path, {"XDG_DATA_HOME": str(tmp_path / "data")})
    assert one.opencode_id == ID
    plain = tmp_path / "session.json"
    plain.write_text(json.dumps(EXPORT), "utf-8")
    assert len(imported(plain, tmp_path / "b")) == 4
    with compose.store(tmp_path / "a") as kept:
        compose.import_recent(one, kept, counts=compose.counter())
        found = conversation(kept.log.read(f"opencode:{ID}"))
    assert found == imported(plain, tmp_path / "b")


def test_a_session_in_both_storages_is_taken_from_the_database(tmp_path: Path) -> None:
    as_database(tmp_path)
    as_files(tmp_path)
    (one,) = opencode_store.sessions(tmp_path / "opencode")
    assert one.place.name == "opencode.db"


def test_a_storage_that_cannot_be_read_is_named_with_what_to_do(tmp_path: Path) -> None:
    as_files(tmp_path)
    (stored,) = opencode_store.sessions(tmp_path / "opencode")
    stored.place.write_text("{")
    with pytest.raises(BadInput, match=f"opencode export {ID}"):
        opencode_store.export(stored.place, ID)
    database = as_database(tmp_path / "other")
    with pytest.raises(BadInput, match="is not there any more"):
        opencode_store.export(database, "ses_gone")
    database.write_bytes(b"no database at all" * 100)
    assert list(opencode_store.sessions(database.parent)) == []
