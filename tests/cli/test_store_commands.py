"""`transom sessions | show | search | verify | export` on an imported store."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from pathlib import Path

import pytest

from transom import compose
from transom.core.block import Text
from transom.core.canon import _TAG, FORMAT, GENESIS
from transom.core.event import Draft, SessionOpened, UserSaid

from .conftest import DATA, Run, claude_lines

ID = "claude-code:11111111-2222-4333-8444-555555555555"
HOSTILE = "\x1b]0;owned\x07\x1b[31mred\u202e \ud83d half"


@pytest.fixture
def stored(run: Run, tmp_path: Path) -> Run:
    """A store with one session, whose words try to take over the terminal."""
    path = tmp_path / "session.jsonl"
    path.write_text("\n".join(claude_lines(12, words=f"Fix src/app.py {HOSTILE} 修复解析器")) + "\n")
    assert run("replay", path, "--arms", "raw", "--quiet").code == 0
    return run


def test_an_empty_store_is_no_error(run: Run) -> None:
    for command in ("sessions", "handoffs"):
        assert "`transom run TASK` begins one, `transom replay FILE` imports one" in run(command).err
    assert "gateway, handoffs, config, replay, cache, …; `transom --help`" in run("rum").err
    assert run("sessions", "--json").out.strip() == "[]"
    assert run("verify").code == 0
    done = run("search", "anything")
    assert (done.code, done.out) == (0, "")
    assert "'anything' was not found" in done.err
    assert run("show", "latest").code == 2


@pytest.mark.parametrize("width", ["24", "40", "60", "80", "140"])
def test_sessions_are_listed_at_any_width(stored: Run, monkeypatch: pytest.MonkeyPatch, width: str) -> None:
    monkeypatch.setenv("COLUMNS", width)
    done = stored("sessions")
    assert "claude-code:11111111" in done.out
    assert "2026-03-04" in done.out
    assert max(map(len, done.out.splitlines())) <= int(width)


def test_what_a_narrow_list_of_sessions_leaves_out_is_said(stored: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for width, said in (("60", "the time, kind, model and the chain's head"), ("120", "the chain's head: from 140")):
        monkeypatch.setenv("COLUMNS", width)
        assert said in " ".join(stored("sessions").out.split())
    monkeypatch.setenv("COLUMNS", "150")
    assert "--json" not in stored("sessions").out


def test_sub_agents_behind_the_gateway_are_told_apart_by_what_they_were_asked(run: Run, tmp_path: Path) -> None:
    with compose.store(tmp_path / "store") as kept:
        opened = SessionOpened(format=FORMAT, title="agent")
        said = UserSaid(blocks=(Text(text="Look for the leak."),))
        drafts = [Draft(fact=fact, uuid=uuid, at=0) for uuid, fact in (("a", opened), ("b", said))]
        kept.log.append("1", 0, drafts)
    assert "agent: Look for the leak." in run("sessions").out


def test_one_long_id_does_not_lengthen_the_others(stored: Run, tmp_path: Path) -> None:
    for number in (1, 2):
        name = f"a-name-that-two-sessions-begin-with-and-part-from-late-{number}"
        (tmp_path / f"{number}.jsonl").write_text("\n".join(claude_lines(1, session=name)))
        stored("replay", f"{number}.jsonl", "--arms", "raw", "--quiet")
    shown = [line.split()[0] for line in stored("sessions").out.splitlines()[2:]]
    assert "claude-code:11111111" in shown
    assert all(stored("show", name).code == 0 for name in shown)


def test_a_list_that_cuts_lines_says_where_they_are_whole(stored: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--at SEQ" not in stored("show", "latest").out
    monkeypatch.setenv("COLUMNS", "60")
    assert "… is a line that has no room; --at SEQ shows an event" in stored("show", "latest").out


def test_sessions_as_json_have_the_head_of_the_chain(stored: Run) -> None:
    (row,) = json.loads(stored("sessions", "--json").out)
    assert row["session_id"] == ID
    assert row["head"]["seq"] == row["events"]
    assert len(row["head"]["digest"]) == 64


@pytest.mark.parametrize("name", ["latest", ID, "1111", "claude-code:1111"])
def test_a_session_is_called_by_its_id_its_start_or_latest(stored: Run, name: str) -> None:
    done = stored("show", name)
    assert done.code == 0
    assert ID in done.out


def test_the_start_of_two_sessions_is_refused_with_both(stored: Run, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(claude_lines(2, session="11119999-2222-4333-8444-555555555555")))
    stored("replay", other, "--arms", "raw", "--quiet")
    done = stored("show", "1111")
    assert done.code == 2
    assert "the start of 2 sessions" in done.err
    assert "11119999" in done.err
    assert stored("show", "11119").code == 0


def test_nothing_of_a_transcript_reaches_the_terminal_as_a_command(stored: Run) -> None:
    for call in (
        ("show", "latest"),
        ("show", "latest", "--at", "2"),
        ("show", "latest", "--window"),
        ("search", "app.py"),
        ("sessions",),
        ("export", "latest", "--format", "md"),
        ("replay", "--session", "latest", "--arms", "raw"),
    ):
        done = stored(*call)
        assert done.code == 0, done.err
        assert not set("\x1b\x07\u202e") & set(done.out + done.err), call
        assert not any("\ud800" <= letter <= "\udfff" for letter in done.out), call
    assert "�" in stored("show", "latest", "--window").out


def test_one_event_is_shown_whole(stored: Run) -> None:
    events = json.loads(stored("show", "latest", "--json").out)
    result = next(event for event in events if event["fact"]["fact"] == "tool_returned")
    done = stored("show", "latest", "--at", str(result["seq"]))
    assert done.out.count("Retry-After") == 8
    assert result["digest"] in done.out
    plain = json.loads(stored("show", "latest", "--at", str(result["seq"]), "--json").out)
    assert plain == result


def test_the_window_grows_with_the_seq_and_is_the_fold(stored: Run) -> None:
    early = json.loads(stored("show", "latest", "--window", "--at", "4", "--json").out)
    late = json.loads(stored("show", "latest", "--window", "--json").out)
    assert len(early["items"]) < len(late["items"])
    for before, after in zip(early["items"], late["items"], strict=False):
        assert (before["source"], before["blocks"]) == (after["source"], after["blocks"])
    assert early["tokens"] < late["tokens"]
    assert late["generation"] == 0
    text = stored("show", "latest", "--window", "--at", "4").out
    assert "1 user · event" in text
    assert "修复解析器" in text


def test_the_window_of_a_policy_is_what_its_arm_would_have_shown(stored: Run) -> None:
    done = stored("show", "latest", "--window", "--policy", "rollover", "--context-limit", "16k", "--json")
    assert done.code == 2
    assert "no reply of the model stands there or after it" in done.err
    events = json.loads(stored("show", "latest", "--json").out)
    replies = [event["seq"] for event in events if event["fact"]["fact"] == "model_replied"]
    asked = ("show", "latest", "--policy", "rollover", "--context-limit", "16k", "--at", str(replies[-1]))
    window = json.loads(stored(*asked, "--json").out)
    assert (window["seq"], window["policy"]) == (replies[-1], "rollover")
    assert window["generation"] >= 1
    assert any("seed" in item["marks"] for item in window["items"])
    assert window["tokens"] <= 16_000
    known = {event["seq"] for event in events}
    assert {item["source"] for item in window["items"] if item["source"]} <= known
    assert "under rollover, at reply" in stored(*asked).out
    assert stored("show", "latest", "--policy", "fifi").code == 2
    assert "goes with --policy" in stored("show", "latest", "--window", "--context-limit", "16k").err


@pytest.mark.parametrize("at", ["0", "-3", "99999", "x"])
def test_an_event_that_is_not_there_is_refused_with_the_range(stored: Run, at: str) -> None:
    done = stored("show", "latest", "--at", at)
    assert done.code == 2
    assert "--at" in done.err


@pytest.mark.parametrize(
    "query", ["Retry-After", "retry-after", "file_7", "修复", "handler(request)", "src/file_11.py"]
)
def test_words_identifiers_and_chinese_are_found(stored: Run, query: str) -> None:
    hits = json.loads(stored("search", query, "--json").out)
    assert hits
    assert all(query.lower() in hit["text"].lower() for hit in hits)
    assert query.lower() in stored("search", query, "--session", "1111", "--limit", "1").out.lower()


def test_a_search_that_cannot_be_made_says_why(stored: Run) -> None:
    assert stored("search", "  ").code == 2
    assert stored("search", "x", "--limit", "0").code == 2
    assert stored("search", "x", "--session", "nobody").code == 2
    assert stored("search", "x", "--limit", "many").code == 2


def test_without_a_name_the_latest_session_is_shown_and_exported(stored: Run) -> None:
    assert stored("show").out == stored("show", "latest").out
    assert stored("export").out == stored("export", "latest").out


def test_a_call_that_is_none_is_one_sentence(stored: Run) -> None:
    for call in (("show", "a", "b"), ("search",), ("cache", "what")):
        done = stored(*call)
        assert done.code == 2
        assert ".;" not in done.err
    done = stored("cache")
    assert (done.code, all(word in done.err for word in ("stats", "reasons", "inspect"))) == (2, True)


def test_a_sound_store_verifies(stored: Run) -> None:
    done = stored("verify")
    assert done.code == 0
    assert "every digest follows" in done.out
    assert stored("verify", "1111").code == 0


def test_a_changed_byte_is_named_and_exits_1(stored: Run, tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "store" / "log.db")
    triggers = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for trigger, _ in triggers:
        db.execute(f"DROP TRIGGER {trigger}")
    ((row, payload),) = db.execute("SELECT id, payload FROM event WHERE kind = 'tool_returned' LIMIT 1").fetchall()
    changed = bytearray(payload)
    changed[len(changed) // 2] ^= 1
    db.execute("UPDATE event SET payload = ? WHERE id = ?", (bytes(changed), row))
    for _, statement in triggers:
        db.execute(statement)
    db.commit()
    db.close()
    done = stored("verify")
    assert done.code == 1
    assert f"session {ID}, event" in done.err
    assert stored("verify", "latest").code == 1


def _damage(store: Path, seq: int) -> None:
    """Change a byte of an event in the file itself, as a disk would."""
    with sqlite3.connect(store / "log.db") as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (payload,) = db.execute("SELECT payload FROM event WHERE id & 0xFFFFFFFFFF = ?", (seq,)).fetchone()
    db.close()
    data = bytearray((store / "log.db").read_bytes())
    data[data.index(payload[:60]) + 40] ^= 1
    (store / "log.db").write_bytes(data)


def test_what_stands_before_a_damaged_byte_comes_out_of_every_reader(stored: Run, tmp_path: Path) -> None:
    sound = stored("export", "latest").out.splitlines(keepends=True)
    _damage(tmp_path / "store", 9)
    named = f"session {ID}, event 9: its digest does not follow from event 8"
    done = stored("export", "latest")
    assert (done.code, done.out) == (1, "".join(sound[:8]))
    assert f"{named}; what was written ends before it" in done.err
    assert stored("export", "latest", "-o", "good.jsonl").code == 1
    assert stored("verify", "good.jsonl").out.startswith("good.jsonl: 8 events")
    done = stored("export", "latest", "--format", "md")
    assert (done.code, "src/file_2.py" in done.out, named in done.err) == (1, True, True)
    done = stored("show", "latest")
    assert (done.code, len(done.out.splitlines()), named in done.err) == (1, 10, True)


def test_what_stands_before_a_damaged_page_comes_out_too(stored: Run, tmp_path: Path) -> None:
    sound = stored("export", "latest").out.splitlines(keepends=True)
    db = sqlite3.connect(tmp_path / "store" / "log.db")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    page = db.execute("PRAGMA page_size").fetchone()[0]
    (payload,) = db.execute("SELECT payload FROM event WHERE id & 0xFFFFFFFFFF = 15").fetchone()
    db.close()
    path = tmp_path / "store" / "log.db"
    data = bytearray(path.read_bytes())
    start = data.index(payload[:60]) // page * page
    data[start : start + page] = b"\xff" * page
    path.write_bytes(data)
    done = stored("export", "latest")
    kept = done.out.splitlines(keepends=True)
    assert (done.code, kept) == (1, sound[: len(kept)])
    assert 0 < len(kept) < 15
    assert f"session {ID}, event {len(kept) + 1}: cannot be read" in done.err


def test_verify_does_not_advise_itself(stored: Run, tmp_path: Path) -> None:
    os.truncate(tmp_path / "store" / "log.db", 8192)
    done = stored("verify")
    assert done.code == 1
    assert "malformed; restore the file from a copy" in done.err
    assert "transom verify" not in done.err


def test_export_lines_verify_by_hand_and_come_back_to_the_letter(stored: Run, tmp_path: Path) -> None:
    assert stored("export", "latest", "-o", "all.jsonl").code == 0
    digest = GENESIS
    for line in (tmp_path / "all.jsonl").read_bytes().splitlines():
        head, rest = line.split(b'",', 1)
        digest = hashlib.sha256(_TAG + digest + b"{" + rest).digest()
        assert head.decode() == f'{{"digest":"{digest.hex()}'
    back = stored("replay", "all.jsonl", "--arms", "raw", "--store", "second")
    assert back.code == 0, back.err
    assert stored("sessions", "--json", "--store", "second").out == stored("sessions", "--json").out
    assert stored("verify", "--store", "second").code == 0
    assert stored("export", "latest", "--store", "second").out == (tmp_path / "all.jsonl").read_text()
    again = stored("replay", "all.jsonl", "--arms", "raw", "--store", "second")
    assert "Imported" not in again.err


def test_forks_children_and_images_come_back_from_their_export(run: Run, tmp_path: Path) -> None:
    assert run("replay", DATA / "claude-code" / "session.jsonl", "--arms", "raw", "--quiet", "--all").code in {0, 2}
    rows = json.loads(run("sessions", "--json").out)
    assert {row["kind"] for row in rows} >= {"root", "child"}
    for number, row in enumerate(rows):
        file = tmp_path / f"{number}.jsonl"
        assert run("export", row["session_id"], "-o", file).code == 0
        run("replay", file, "--arms", "raw", "--quiet", "--all", "--store", f"s{number}")
        back = json.loads(run("sessions", "--json", "--store", f"s{number}").out)
        assert row in back
        assert run("verify", "--store", f"s{number}").code == 0


def test_a_changed_export_is_named_by_line_and_what_stands_before_it_is_kept(stored: Run, tmp_path: Path) -> None:
    stored("export", "latest", "-o", "all.jsonl")
    lines = (tmp_path / "all.jsonl").read_text().splitlines()
    lines[9] = lines[9].replace("Retry", "Reply").replace("file_", "fill_")
    (tmp_path / "bent.jsonl").write_text("\n".join(lines))
    done = stored("replay", "bent.jsonl", "--store", "second")
    assert done.code == 2
    assert "bent.jsonl: line 10: its digest does not follow" in done.err
    (row,) = json.loads(stored("sessions", "--json", "--store", "second").out)
    assert row["events"] == 9
    assert stored("verify", "--store", "second").code == 0


def test_an_export_is_verified_as_a_file_and_its_first_bad_line_named(stored: Run, tmp_path: Path) -> None:
    stored("export", "latest", "-o", "all.jsonl")
    done = stored("verify", "all.jsonl", "--store", "nowhere")
    assert (done.code, done.out.startswith("all.jsonl: 27 events, every digest follows")) == (0, True), done
    text = (tmp_path / "all.jsonl").read_text().splitlines()
    text[9] = text[9].replace("Retry", "Retri", 1).replace("file_", "fill_", 1)
    (tmp_path / "bent.jsonl").write_text("\n".join(text))
    for code, call in ((1, ("verify", "bent.jsonl")), (2, ("replay", "bent.jsonl", "--arms", "raw"))):
        done = stored(*call)
        assert done.code == code
        assert "bent.jsonl: line 10: its digest does not follow" in done.err
    assert stored("verify", "session.jsonl").code == 2


def test_markdown_is_for_people(stored: Run) -> None:
    text = stored("export", "latest", "--format", "md").out
    assert text.startswith("# claude-code:11111111")
    assert "*tool call" in text
    assert "```" in text
    done = stored("export", "latest", "--format", "pdf")
    assert done.code == 2


@pytest.mark.parametrize(
    "call", [("sessions",), ("search", "x"), ("verify",), ("show", "latest"), ("export", "latest")]
)
def test_a_store_that_is_not_there_is_not_made_by_reading(run: Run, tmp_path: Path, call: tuple[str, ...]) -> None:
    done = run(*call, "--store", "nowhere")
    assert done.code == 2
    assert "holds no store" in done.err
    assert not (tmp_path / "nowhere").exists()


def test_a_file_that_is_no_log_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "log.db").write_bytes(b"these are not the bytes of a log" * 100)
    done = run("sessions")
    assert done.code == 2
    assert "is no Transom log" in done.err


def test_a_pipe_is_written_into_and_stays_a_pipe(stored: Run, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert stored("export", "latest", "--format", "md", "-o", pipe).code == 0
        assert os.read(reader, 100).startswith(b"# claude-code:")
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_link_stays_and_its_target_is_written(stored: Run, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.md"
    link.symlink_to("there/text.md")
    assert stored("export", "latest", "--format", "md", "-o", link).code == 0
    assert link.is_symlink()
    assert (tmp_path / "there" / "text.md").read_text().startswith("# claude-code:")


def test_a_name_no_disk_can_hold_is_a_sentence(stored: Run) -> None:
    done = stored("export", "latest", "-o", "n" * 300)
    assert done.code == 2
    assert "File name too long" in done.err


@pytest.mark.parametrize("arguments", [("sessions",), ("replay", "session.jsonl")])
def test_a_store_no_disk_can_hold_is_a_sentence(stored: Run, arguments: tuple[str, ...]) -> None:
    done = stored(*arguments, "--store", "n" * 300)
    assert done.code == 2
    assert "File name too long; name another folder" in done.err
