from __future__ import annotations

import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from transom.adapters.blobs import DirBlobs
from transom.adapters.sqlite_log import SqliteLog
from transom.adapters.sqlite_log.log import INLINE_LIMIT
from transom.adapters.sqlite_log.rows import Stretch, lineage, walked
from transom.adapters.sqlite_log.verify import verified
from transom.core.block import Image, Text, ToolResultRaw, ToolResultRef
from transom.core.canon import FORMAT, GENESIS
from transom.core.event import (
    BlockReplaced,
    Draft,
    Event,
    Fact,
    Observed,
    Replacement,
    Seed,
    SessionOpened,
    ToolReturned,
    UserSaid,
    WindowOpened,
)
from transom.errors import BadInput, LogDamaged, LogTooNew, SequenceConflict, Unwritable, UsageError
from transom.testing.conformance import LOG_CASES, LogCase


def opened(folder: Path, *, is_full: bool = False) -> SqliteLog:
    blobs = DirBlobs(folder / "blobs", is_synced=False)
    return SqliteLog(folder / "log.db", blobs, synchronous="FULL" if is_full else "NORMAL")


def drafts(*facts: Fact) -> list[Draft]:
    return [Draft(fact=fact, uuid=f"u{number}", at=number) for number, fact in enumerate(facts)]


def said(text: str) -> UserSaid:
    return UserSaid(blocks=(Text(text=text),))


def begun(log: SqliteLog, *texts: str) -> None:
    log.append("s", 0, drafts(SessionOpened(format=FORMAT), *map(said, texts)))


def found(log: SqliteLog, query: str) -> list[int]:
    return [hit.seq for hit in log.search(query)]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    with opened(tmp_path) as log:
        yield log


@pytest.mark.parametrize("case", LOG_CASES, ids=lambda case: case.__name__)
def test_the_sqlite_log_keeps_its_port(case: LogCase, tmp_path: Path) -> None:
    numbers: Iterator[int] = count()
    logs: list[SqliteLog] = []

    def make() -> SqliteLog:
        logs.append(opened(tmp_path / str(next(numbers))))
        return logs[-1]

    case(make)
    for log in logs:
        log.close()


# -- the file


def test_the_log_and_its_folder_are_private(tmp_path: Path) -> None:
    with opened(tmp_path / "new") as log:
        begun(log, "x" * INLINE_LIMIT)
        assert log.search("xx")
        for path in (tmp_path / "new").rglob("*"):
            assert path.stat().st_mode & 0o077 == 0, path
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_a_closed_log_is_one_file_and_opens_again(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        begun(log, "one")
        events = list(log.read("s"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.db", "log.search.db"]
    with opened(tmp_path) as log:
        assert list(log.read("s")) == events
        assert log.append("s", 2, drafts(said("two")))[0].seq == 3


@pytest.mark.parametrize("is_full", [False, True])
def test_an_append_is_one_commit_at_the_chosen_durability(tmp_path: Path, is_full: bool) -> None:
    with opened(tmp_path, is_full=is_full) as log:
        statements: list[str] = []
        log._db.set_trace_callback(statements.append)
        begun(log, "one", "two", "three")
        assert statements.count("COMMIT") == 1
        assert log._db.execute("PRAGMA synchronous").fetchone() == (2 if is_full else 1,)
        assert log._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_file_that_is_no_log_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    path.write_text('{"type":"user"}\n' * 100)
    with pytest.raises(BadInput, match=r"log\.db: is no Transom log"):
        opened(tmp_path)
    assert path.read_text().startswith('{"type"')
    path.unlink()
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE cookies (name)")
    other.close()
    with pytest.raises(BadInput, match="another program"):
        opened(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(BadInput, match="is a folder"):
        opened(tmp_path)


def test_an_empty_file_becomes_a_log(tmp_path: Path) -> None:
    (tmp_path / "log.db").touch()
    with opened(tmp_path) as log:
        assert log.sessions() == []


def test_a_newer_format_is_refused_with_both_versions(tmp_path: Path) -> None:
    opened(tmp_path).close()
    changed(tmp_path, f"PRAGMA user_version = {FORMAT + 6}")
    with pytest.raises(LogTooNew, match=rf"format {FORMAT + 6}; this Transom reads up to {FORMAT}"):
        opened(tmp_path)
    changed(tmp_path, "PRAGMA user_version = 0")
    with pytest.raises(LogDamaged, match="format 0"):
        opened(tmp_path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unwritable, match="file"):
        opened(tmp_path / "file" / "below")


# -- L1


def changed(folder: Path, *statements: str) -> None:
    """What a stranger with an SQLite shell does."""
    db = sqlite3.connect(folder / "log.db")
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def bypassed(folder: Path, *statements: str) -> None:
    """The same by one who takes the triggers away for the while."""
    db = sqlite3.connect(folder / "log.db")
    triggers = db.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER {name}")
    for statement in statements:
        db.execute(statement)
    for _, sql in triggers:
        db.execute(sql)
    db.commit()
    db.close()


@pytest.mark.parametrize(
    "statement",
    ["UPDATE event SET at = 0", "DELETE FROM event", "UPDATE session SET base = 9", "DELETE FROM session"],
)
def test_the_log_only_grows_l1(tmp_path: Path, statement: str) -> None:
    with opened(tmp_path) as log:
        begun(log, "one")
    with pytest.raises(sqlite3.IntegrityError, match="the log only grows"):
        changed(tmp_path, statement)


def test_a_log_without_its_triggers_is_not_opened(tmp_path: Path) -> None:
    opened(tmp_path).close()
    changed(tmp_path, "DROP TRIGGER event_update")
    with pytest.raises(LogDamaged, match="'event_update' is not as log format"):
        opened(tmp_path)


# -- what does not verify


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        (
            "UPDATE event SET payload = CAST(replace(payload, 'two', 'tow') AS BLOB) WHERE id & 255 = 3",
            "event 3: its digest",
        ),
        ("UPDATE event SET uuid = 'other' WHERE id & 255 = 2", "event 2: its digest"),
        ("UPDATE event SET at = 7 WHERE id & 255 = 2", "event 2: its digest"),
        ("UPDATE event SET digest = zeroblob(32) WHERE id & 255 = 4", "event 4: its digest"),
        ("UPDATE event SET kind = 'observed' WHERE id & 255 = 2", "event 2: its kind"),
        ("DELETE FROM event WHERE id & 255 = 2", "event 2: is missing"),
        ("DELETE FROM event WHERE id & 255 = 1", "event 1: is missing"),
    ],
)
def test_a_changed_row_is_named_and_never_read_as_another_event(tmp_path: Path, statement: str, place: str) -> None:
    with opened(tmp_path) as log:
        begun(log, "one", "two", "three")
        events = list(log.read("s"))
    bypassed(tmp_path, statement)
    with opened(tmp_path) as log:
        assert [place in row.problem for row in log.verify()] == [True]
        seen: list[Event] = []
        with pytest.raises(LogDamaged, match=place):
            seen.extend(log.read("s"))
        assert seen == events[: len(seen)]


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE session SET id = 'x' WHERE id = 's'", "its digest does not follow"),
        ("UPDATE session SET base = 1 WHERE id = 'f'", "is missing"),
        ("UPDATE session SET parent = NULL WHERE id = 'f'", "it continues is missing"),
        ("DELETE FROM session WHERE id = 'other'", "which has no row"),
        ("INSERT INTO session (id, base) VALUES ('ghost', 0)", "no events"),
    ],
)
def test_a_changed_session_row_is_named(tmp_path: Path, statement: str, problem: str) -> None:
    with opened(tmp_path) as log:
        begun(log, "one", "two")
        link = log.sessions("s")[0].head
        log.append("f", link.seq, drafts(SessionOpened(format=FORMAT, kind="fork", parent=link)))
        log.append("other", 0, drafts(SessionOpened(format=FORMAT)))
    bypassed(tmp_path, statement)
    with opened(tmp_path) as log:
        assert problem in " ".join(row.problem for row in log.verify())


def test_a_row_of_the_wrong_types_is_damage(tmp_path: Path) -> None:
    stretch = Stretch(key=1, session_id="s", base=0, last=9)
    for row in ((1, b"u", 0, "x", b"", b"{}"), (1, "u", "0", "x", b"", b"{}"), (1, "u", 0, "x", b"", "{}")):
        rows = walked(lambda *_, row=row: [(*row, None)], DirBlobs(tmp_path), stretch, 0, GENESIS)
        with pytest.raises(LogDamaged, match="event 1: its row holds values of the wrong type"):
            list(rows)


def test_a_session_row_of_the_wrong_types_is_damage() -> None:
    for row in ((1, b"s", None, 0), (1, "s", None, "0")):
        with pytest.raises(LogDamaged, match="session s: the row of it or of an ancestor"):
            lineage(lambda *_, row=row: [row], "s")


def test_a_log_whose_sessions_cannot_be_listed_says_so(tmp_path: Path) -> None:
    def fetch(*_: object) -> list[object]:
        raise LogDamaged("a page is malformed")

    assert [row.problem for row in verified(fetch, DirBlobs(tmp_path), None)] == ["a page is malformed"]
    assert [row.problem for row in verified(fetch, DirBlobs(tmp_path), ["s"])] == ["a page is malformed"]
    assert verified(lambda *_: [], DirBlobs(tmp_path), ["s"])[0].problem.endswith("cannot be found by its name")


def test_a_fact_nobody_knows_is_damage_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(tmp_path)
    begun(log, "one")
    monkeypatch.setattr("transom.core.chain.encode_fact", lambda _: b'{"blocks":[],"fact":"user_said","by":"nobody"}')
    monkeypatch.setattr("transom.core.chain.decode_fact", lambda _: None)
    log.append("s", 2, drafts(said("two")))
    for unreadable in (lambda: list(log.read("s")), lambda: log.search("one"), log.close):
        with pytest.raises(LogDamaged, match=r"session s, event 3: cannot be decoded: .*by"):
            unreadable()


# -- large payloads and artifacts


def test_a_large_payload_is_a_blob_and_reads_as_any_other(tmp_path: Path, log: SqliteLog) -> None:
    begun(log, "x" * INLINE_LIMIT + " needle", "small")
    assert len(list(log._blobs.ids())) == 1
    assert (tmp_path / "log.db").stat().st_size + (tmp_path / "log.db-wal").stat().st_size < INLINE_LIMIT
    assert [event.fact for event in log.read("s", 1)] == [said("x" * INLINE_LIMIT + " needle"), said("small")]
    assert found(log, "needle") == found(log, "eedle") == [2]
    assert [row.problem for row in log.verify()] == [""]
    for path in (tmp_path / "blobs").rglob("?" * 64):
        path.unlink()
    with pytest.raises(LogDamaged, match=r"session s, event 2: its payload is gone"):
        list(log.read("s"))
    assert "event 2: its payload is gone" in log.verify()[0].problem


def test_a_session_may_open_with_a_large_payload(log: SqliteLog) -> None:
    log.append("s", 0, drafts(SessionOpened(format=FORMAT, title="t" * INLINE_LIMIT)))
    assert len(log.sessions()[0].title) == INLINE_LIMIT


def test_an_offloaded_result_is_searched_in_its_body(tmp_path: Path, log: SqliteLog) -> None:
    begun(log)
    body = "head\n" * 2000 + "E_TAIL_4711 at the very end 压缩"
    artifact_id = log._blobs.put(body.encode())
    log.append("s", 1, drafts(ToolReturned(call_id="c", blocks=(ToolResultRef(text="stub", artifact_id=artifact_id),))))
    for query in ("E_TAIL_4711", "TAIL", "AIL_4", "压缩", "stub"):
        assert found(log, query) == [2], query
    assert [row.problem for row in log.verify()] == [""]
    for path in (tmp_path / "blobs").rglob("?" * 64):
        path.write_bytes(b"forged")
    assert f"event 2: artifact {artifact_id}" in log.verify()[0].problem
    assert list(log.read("s"))[1].fact == ToolReturned(
        call_id="c", blocks=(ToolResultRef(text="stub", artifact_id=artifact_id),)
    )
    (tmp_path / "log.search.db").unlink()
    with opened(tmp_path) as again:
        assert found(again, "stub") == [2]
        assert found(again, "TAIL") == []


def test_every_artifact_an_event_refers_to_is_verified(log: SqliteLog) -> None:
    absent = Image(media_type="image/png", artifact_id="ab" * 32)
    facts: list[Fact] = [
        UserSaid(blocks=(absent,)),
        BlockReplaced(how="mask", targets=(Replacement(seq=1, index=0, block=absent),)),
        WindowOpened(cause="recorded", generation=1, seed=(Seed(role="user", blocks=(absent,)),)),
    ]
    for number, fact in enumerate(facts):
        log.append(f"s{number}", 0, drafts(SessionOpened(format=FORMAT), fact))
    assert [f"event 2: artifact {'ab' * 32}" in row.problem for row in log.verify()] == [True] * 3
    quoted = Observed(kind="x", raw='"artifact_id":"' + "ab" * 32)
    log.append("t", 0, drafts(SessionOpened(format=FORMAT), quoted))
    assert [row.problem for row in log.verify("t")] == [""]


# -- the search index


def test_a_search_sees_what_another_process_appended(tmp_path: Path, log: SqliteLog) -> None:
    begun(log, "alpha")
    assert found(log, "alpha") == [2]
    with opened(tmp_path) as other:
        other.append("s", 2, drafts(said("bravo"), said("alpha again")))
        assert found(other, "alpha") == found(log, "alpha")
        assert found(log, "bravo") == [3]
    assert log.append("s", 4, drafts(said("charlie")))[0].seq == 5
    assert found(log, "charlie") == [5]


def test_the_index_may_be_deleted_or_damaged_or_anothers(tmp_path: Path) -> None:
    def rebuilt(change: Callable[[Path], object]) -> None:
        change(tmp_path / "a" / "log.search.db")
        with opened(tmp_path / "a") as log:
            assert found(log, "alpha") == [2]
            assert found(log, "bravo") == []
            assert log.append("s", log.sessions("s")[0].head.seq, drafts(said("more")))

    for name, text in (("a", "alpha"), ("b", "bravo")):
        with opened(tmp_path / name) as log:
            begun(log, text, "and more")
            log.search(text)
    rebuilt(lambda path: path.unlink())
    rebuilt(lambda path: path.write_bytes(b"not SQLite"))
    rebuilt(lambda path: path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 8192))
    rebuilt(lambda path: path.write_bytes((tmp_path / "b" / "log.search.db").read_bytes()))


def test_a_large_backlog_is_indexed_over_sessions(log: SqliteLog) -> None:
    for number in range(5):
        texts = [f"word{number}x{index}" for index in range(260)]
        log.append(f"s{number}", 0, drafts(SessionOpened(format=FORMAT), *map(said, texts)))
    for number in range(5):
        assert [(hit.session_id, hit.seq) for hit in log.search(f"word{number}x259")] == [(f"s{number}", 261)]


def test_what_only_the_host_saw_is_found_when_nothing_else_is(log: SqliteLog) -> None:
    begun(log, "ordinary words")
    log.append("s", 2, drafts(Observed(kind="progress", raw='{"stderr":"E9 ordinary"}')))
    assert found(log, "ordinary") == [2]
    assert found(log, "E9") == [3]


def test_a_common_word_is_ranked_where_it_says_most(log: SqliteLog) -> None:
    begun(log, *("needle " + "straw " * 400 for _ in range(30)), "needle here", *("straw " * 9 for _ in range(9)))
    assert found(log, "needle")[0] == 32
    assert len(found(log, "needle")) == 20
    assert sorted(hit.seq for hit in log.search("needle", "s", 100)) == list(range(2, 33))
    assert [hit.seq for hit in log.search("eedl", "s", 3)] == [32, 31, 30]
    assert len(log.search("eedl", limit=25)) == 25


def test_a_damaged_index_is_told_by_verify(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        begun(log, *(f"word{number}" for number in range(2000)))
        assert [row.problem for row in log.verify()] == [""]
        log.search("word7")
        assert [row.problem for row in log.verify()] == [""]
    path = tmp_path / "log.search.db"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + b"\xff" * 4096 + data[len(data) // 2 + 4096 :])
    with opened(tmp_path) as log:
        problems = [row.problem for row in log.verify()]
        assert "log.search.db" in problems[0]
        assert "the next search makes it anew" in problems[0]
        assert problems[1:] == [""]
    path.write_bytes(b"")
    with opened(tmp_path) as log:
        assert [row.problem for row in log.verify()] == [""]
        assert found(log, "word7") == [9]
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert [row.problem for row in log.verify()] == [""]
        other.close()


def test_verify_writes_nothing_into_the_index(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        begun(log, "one")
    path = tmp_path / "log.search.db"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA user_version = 0")
    db.close()
    before = path.read_bytes()[100:]
    with opened(tmp_path) as log:
        assert [row.problem for row in log.verify()] == [""]
    assert path.read_bytes()[100:] == before


def test_without_an_index_the_events_are_searched(tmp_path: Path) -> None:
    (tmp_path / "log.search.db").mkdir()
    with opened(tmp_path) as log:
        begun(log, "one")
        assert found(log, "one") == [2]
        assert found(log, "two") == []
        assert "log.search.db" in log.verify()[0].problem
        (tmp_path / "log.search.db").rmdir()


def test_a_reader_is_served_on_a_full_disk(tmp_path: Path) -> None:
    """A tmpfs of 1 MB stands for the disk; mounting one takes root."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        with opened(disk) as log:
            begun(log, "one")
        with suppress(OSError), (disk / "fill").open("wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
        with pytest.raises(Unwritable), opened(disk):
            pass
        with SqliteLog(disk / "log.db", DirBlobs(disk / "blobs"), is_reader=True) as log:
            assert [row.problem for row in log.verify()] == [""]
            assert found(log, "one") == [2]
            assert [event.seq for event in log.read("s")] == [1, 2]
            with pytest.raises(Unwritable):
                log.append("s", 2, drafts(said("two")))
    finally:
        subprocess.run(["umount", disk], check=True)


# -- writers beside each other


def test_a_head_that_moved_elsewhere_is_a_conflict_with_both_heads(tmp_path: Path, log: SqliteLog) -> None:
    begun(log, "one")
    with opened(tmp_path) as other:
        other.append("s", 2, drafts(said("two"), said("three")))
    with pytest.raises(SequenceConflict, match=r"follow event 2, but the log's head is event 4"):
        log.append("s", 2, drafts(said("late")))
    assert log.append("s", 4, drafts(said("on time")))[0].seq == 5
    with opened(tmp_path) as other, pytest.raises(SequenceConflict):
        other.append("s", 0, drafts(SessionOpened(format=FORMAT)))


def test_threads_share_a_log(log: SqliteLog) -> None:
    failures: list[Exception] = []

    def work(name: str) -> None:
        try:
            log.append(name, 0, drafts(SessionOpened(format=FORMAT)))
            for seq in range(1, 60):
                log.append(name, seq, drafts(said(f"{name} word{seq}")))
                assert [event.seq for event in log.read(name)] == list(range(1, seq + 2))
                if seq % 20 == 0:
                    assert log.search(f"{name} word{seq}")[0].session_id == name
        except Exception as error:  # noqa: BLE001 - handed to the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [row.events for row in log.sessions()] == [60] * 4
    assert {row.problem for row in log.verify()} == {""}


def test_a_log_held_by_another_is_unwritable_and_nothing_was_stored(tmp_path: Path, log: SqliteLog) -> None:
    begun(log, "one")
    other = sqlite3.connect(tmp_path / "log.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    log._db.execute("PRAGMA busy_timeout = 10")
    with pytest.raises(Unwritable, match="another process has held the log"):
        log.append("s", 2, drafts(said("two")))
    assert len(list(log.read("s"))) == 2
    other.execute("ROLLBACK")
    other.close()
    assert log.append("s", 2, drafts(said("two")))[0].seq == 3


def test_a_full_disk_is_said_and_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        begun(log, "one")
        pages = log._db.execute("PRAGMA page_count").fetchone()[0]
        log._db.execute(f"PRAGMA max_page_count = {pages + 4}")
        head = 2
        result = drafts(ToolReturned(call_id="c", blocks=(ToolResultRaw(text="x" * 3000),)))
        with pytest.raises(Unwritable, match=r"the disk is full; nothing of this write was stored"):  # noqa: PT012
            while True:
                head = log.append("s", head, result)[0].seq
        events = list(log.read("s"))
        assert len(events) == head > 2
        assert [row.problem for row in log.verify()] == [""]
        log._db.execute("PRAGMA max_page_count = 1000000")
        assert log.append("s", head, drafts(said("room again")))[0].seq == head + 1
    with opened(tmp_path) as log:
        assert list(log.read("s"))[:-1] == events


def test_a_log_that_was_closed_is_not_called_damaged(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append("s", 0, drafts(SessionOpened(format=1)))
    log.close()
    for use in (lambda: list(log.read("s")), lambda: log.append("s", 1, drafts(UserSaid(blocks=())))):
        with pytest.raises(UsageError, match=r"closed database\. Use a store inside its `with`"):
            use()
