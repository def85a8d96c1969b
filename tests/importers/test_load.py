from __future__ import annotations

import base64
import gzip
import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.blobs import DirBlobs
from transom.adapters.counter import HeuristicCounter
from transom.adapters.memory_log import MemoryLog
from transom.adapters.sqlite_log import SqliteLog
from transom.core.block import ToolResultRaw
from transom.core.event import (
    BlockReplaced,
    Draft,
    Event,
    Fact,
    ModelReplied,
    Observed,
    Replacement,
    SessionOpened,
    SourceRead,
    UserSaid,
    WindowOpened,
)
from transom.errors import BadInput
from transom.importers.load import Imported, load
from transom.measuring import IMAGE_TOKENS, bare, dimensions

__all__: list[str] = []

DATA = Path(__file__).parent / "data"
CLAUDE = DATA / "claude-code" / "session.jsonl"
TREE = DATA / "pi" / "tree.jsonl"
SESSION = "claude-code:11111111-2222-4333-8444-555555555555"
COUNTER = HeuristicCounter()


class Store:
    """A log, its blobs and the imports into them."""

    def __init__(self, folder: Path, log: MemoryLog | None = None) -> None:
        self.log = log or MemoryLog()
        self.blobs = DirBlobs(folder / "blobs", is_synced=False)

    def load(self, path: Path) -> list[Imported]:
        return load(path, log=self.log, blobs=self.blobs, counter=COUNTER)

    def facts(self, session_id: str) -> dict[str, Fact]:
        """What a session was told, without counts and without the imports' own facts."""
        events = (
            event for event in self.log.read(session_id) if not isinstance(event.fact, SourceRead | SessionOpened)
        )
        return {event.uuid: bare(event.fact) for event in events}

    def count(self) -> int:
        return sum(row.events for row in self.log.sessions())

    def problems(self) -> list[str]:
        return [found.problem for found in self.log.verify() if found.problem]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def user(uuid: str, parent: str | None, text: str, **fields: object) -> dict[str, object]:
    return line(uuid, parent, "user", {"role": "user", "content": text}, **fields)


def reply(uuid: str, parent: str | None, message_id: str, text: str) -> dict[str, object]:
    content = [{"type": "text", "text": text}]
    return line(uuid, parent, "assistant", {"id": message_id, "role": "assistant", "model": "m", "content": content})


def line(uuid: str, parent: str | None, type_: str, message: object, **fields: object) -> dict[str, object]:
    base = {"uuid": uuid, "parentUuid": parent, "type": type_, "sessionId": "s", "isSidechain": False}
    return {**base, "timestamp": "2026-03-01T10:00:00Z", "message": message, **fields}


def written(path: Path, *records: object) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


TALK = (user("u1", None, "one"), reply("r1", "u1", "m1", "two"), user("u2", "r1", "three"))


def last(store: Store, session_id: str) -> Fact:
    return list(store.log.read(session_id))[-1].fact


def test_a_session_is_appended_and_ends_with_what_was_read(store: Store) -> None:
    found = store.load(CLAUDE)
    assert [(imported.session_id, imported.status) for imported in found] == [
        (SESSION, "new"),
        (f"{SESSION}/agent-ab12", "new"),
        (f"{SESSION}#u4", "new"),
    ]
    read = last(store, SESSION)
    assert isinstance(read, SourceRead)
    assert (read.path, read.format, read.size) == (str(CLAUDE), "claude-code", CLAUDE.stat().st_size)
    assert (read.unknown, read.quarantined) == ((("hologram", 1),), ((35, "torn last line"),))
    assert len(read.notes) == 2
    assert (found[0].unknown, found[0].quarantined, found[0].notes) == (read.unknown, read.quarantined, read.notes)
    assert found[0].appended == len(list(store.log.read(SESSION))) - 1
    (torn,) = (uuid for uuid in store.facts(SESSION) if uuid.startswith("L35."))
    assert store.facts(SESSION)[torn] == Observed(
        kind="quarantined", raw='{"parentUuid":"r9","type":"user","uuid":"u9","sess'
    )
    assert store.problems() == []


def test_every_block_is_counted_and_the_counter_is_named(store: Store) -> None:
    store.load(CLAUDE)
    events = list(store.log.read(f"{SESSION}#u4"))
    opened = events[0].fact
    assert isinstance(opened, SessionOpened)
    assert opened.counter == COUNTER.name
    for event in events:
        if isinstance(event.fact, UserSaid | ModelReplied):
            assert all(block.tokens > 0 for block in event.fact.blocks)


def test_a_fork_continues_its_parents_chain(store: Store) -> None:
    store.load(CLAUDE)
    fork = next(event for event in store.log.read(f"{SESSION}#u4") if event.session_id != SESSION)
    assert isinstance(fork.fact, SessionOpened)
    parent = fork.fact.parent
    assert parent is not None
    origin = next(event for event in store.log.read(SESSION) if event.uuid == "r4")
    assert (parent.session_id, parent.seq, parent.digest) == (SESSION, origin.seq, origin.digest.hex())
    assert fork.seq == origin.seq + 1


def test_a_child_names_the_reply_that_started_it(store: Store) -> None:
    store.load(CLAUDE)
    child = next(iter(store.log.read(f"{SESSION}/agent-ab12"))).fact
    caller = next(event for event in store.log.read(SESSION) if event.uuid == "r3")
    assert isinstance(child, SessionOpened)
    assert child.parent is not None
    assert (child.kind, child.parent.seq) == ("child", caller.seq)


def test_a_recorded_compaction_keeps_events_by_their_seq(store: Store) -> None:
    store.load(TREE)
    events = {event.uuid: event for event in store.log.read("pi:7ree")}
    window = events["k1"].fact
    assert isinstance(window, WindowOpened)
    assert (window.cause, window.generation, window.tokens_before) == ("recorded", 1, 133)
    assert window.kept_tail == (events["u2"].seq, events["r3"].seq)
    assert window.seed[0].blocks[0].tokens > 0


def test_a_cleared_result_is_replaced_whole(store: Store) -> None:
    store.load(CLAUDE)
    events = {event.uuid: event for event in store.log.read(SESSION)}
    cleared = events["mc1"].fact
    assert isinstance(cleared, BlockReplaced)
    bare_fact = bare(cleared)
    assert isinstance(bare_fact, BlockReplaced)
    stub = ToolResultRaw(text="[Old tool result content cleared]", content="prose")
    assert bare_fact.targets == (
        Replacement(seq=events["x1"].seq, index=0, block=stub),
        Replacement(seq=events["x3"].seq, index=0, block=stub),
        Replacement(seq=events["x3"].seq, index=1, block=None),
    )


def test_an_unchanged_file_is_a_no_op_under_any_name_or_packing(store: Store, tmp_path: Path) -> None:
    first = store.load(CLAUDE)
    before = store.count()
    copy = tmp_path / "copy.gz"
    copy.write_bytes(gzip.compress(CLAUDE.read_bytes()))
    for path in (CLAUDE, copy):
        again = store.load(path)
        assert {(imported.session_id, imported.status, imported.appended) for imported in again} == {
            (imported.session_id, "unchanged", 0) for imported in first
        }
        assert again[0].session_id == SESSION
    assert store.count() == before


def test_a_file_that_grew_appends_only_what_is_new(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "s.jsonl", *TALK)
    store.load(path)
    written(path, *TALK, reply("r2", "u2", "m2", "four"))
    (found,) = store.load(path)
    assert (found.session_id, found.status, found.appended) == ("claude-code:s", "grown", 1)
    assert list(store.facts("claude-code:s")) == ["u1", "r1", "u2", "r2"]
    assert [type(event.fact) for event in store.log.read("claude-code:s")].count(SourceRead) == 2


@given(st.data())
def test_a_file_cut_at_any_byte_and_then_whole_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Cut, imported, grown, imported: every fact of the whole file stands in its session or the fork that goes on."""
    folder = tmp_path_factory.mktemp("cut")
    source = data.draw(
        st.sampled_from([CLAUDE, TREE, DATA / "claude-code" / "stream.jsonl", DATA / "pi" / "list.jsonl"])
    )
    whole = source.read_bytes()
    first_line = whole.index(b"\n", whole.index(b'"timestamp"')) + 1
    cut = data.draw(st.integers(first_line, len(whole)))
    fresh = Store(folder / "fresh")
    expected = {imported.session_id: fresh.facts(imported.session_id) for imported in fresh.load(source)}
    path = folder / "s.jsonl"
    store = Store(folder / "grown")
    for size in (cut, len(whole)):
        path.write_bytes(whole[:size])
        try:
            found = store.load(path)
        except BadInput:
            assert size < len(whole)
            continue
    grown = {imported.session_id.partition("~")[0]: store.facts(imported.session_id) for imported in found}
    for session_id, facts in expected.items():
        logged = grown[session_id]
        for uuid, fact in facts.items():
            assert logged[uuid] == fact or isinstance(fact, WindowOpened | BlockReplaced), (uuid, cut)
    assert store.problems() == []


def test_a_rewritten_file_goes_on_as_a_fork_behind_the_common_prefix(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "s.jsonl", *TALK)
    store.load(path)
    written(path, *TALK[:2], user("v2", "r1", "other"))
    (found,) = store.load(path)
    assert (found.session_id, found.status, found.appended) == ("claude-code:s~2", "fork", 2)
    assert found.notes == (
        "claude-code:s was rewritten: v2 stands where u2 was at the last import; it goes on as claude-code:s~2 behind event 3",
    )
    assert list(store.facts("claude-code:s~2")) == ["u1", "r1", "v2"]
    assert list(store.facts("claude-code:s")) == ["u1", "r1", "u2"]
    read = last(store, "claude-code:s~2")
    assert isinstance(read, SourceRead)
    assert read.notes == found.notes
    assert [imported.status for imported in store.load(path)] == ["unchanged"]
    written(path, *TALK[:2], user("v2", "r1", "other"), user("v3", "v2", "more"))
    (grown,) = store.load(path)
    assert (grown.session_id, grown.status, grown.appended) == ("claude-code:s~2", "grown", 1)
    assert store.problems() == []


def test_a_reply_that_was_seen_half_goes_on_as_a_fork(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "s.jsonl", TALK[0], reply("r1", "u1", "m1", "two"))
    store.load(path)
    written(path, TALK[0], reply("r1", "u1", "m1", "two"), reply("r1b", "r1", "m1", "and a half"))
    (found,) = store.load(path)
    assert (found.session_id, found.status) == ("claude-code:s~2", "fork")
    assert "r1 says something else than at the last import" in found.notes[0]
    last_reply = store.facts("claude-code:s~2")["r1"]
    assert isinstance(last_reply, ModelReplied)
    assert len(last_reply.blocks) == 2


def test_an_older_copy_changes_nothing(store: Store, tmp_path: Path) -> None:
    newer = written(
        tmp_path / "new.jsonl",
        *TALK,
        reply("r2", "u2", "m2", "four"),
        reply("r2b", "r2", "m2", "five"),
        user("u3", "r2b", "six"),
    )
    older = written(tmp_path / "old.jsonl", *TALK, reply("r2", "u2", "m2", "four"))
    store.load(newer)
    (found,) = store.load(older)
    assert (found.status, found.appended) == ("unchanged", 0)
    assert found.notes == ("an older copy of a session the log knows to a later point: nothing is new",)
    assert [imported.status for imported in store.load(newer)] == ["unchanged"]


def test_a_copy_from_between_two_imports_changes_nothing_and_is_the_session(store: Store, tmp_path: Path) -> None:
    """Whichever is read again, in whatever order: the shortest, one between, the whole."""
    more = (*TALK, reply("r2", "u2", "m2", "four"), user("u3", "r2", "six"), reply("r3", "u3", "m3", "seven"))
    copies = [written(tmp_path / f"{size}.jsonl", *more[:size]) for size in (2, 4, 6)]
    for path in (copies[0], copies[2]):
        store.load(path)
    for path in (*copies, *copies[::-1]):
        (found,) = store.load(path)
        assert (found.session_id, found.status, found.appended) == ("claude-code:s", "unchanged", 0)
    assert [row.session_id for row in store.log.sessions()] == ["claude-code:s"]


def rewritten(text: str) -> str:
    """The same JSON with other spaces, where it is some."""
    try:
        return json.dumps(json.loads(text), indent=None if "\n" not in text.strip() else 7, separators=(" , ", " :  "))
    except ValueError:
        return text


@pytest.mark.parametrize("name", ["claude-code/session", "codex/before_items", "pi/tree", "opencode/session"])
def test_a_copy_whose_json_was_written_anew_is_the_same_session(store: Store, tmp_path: Path, name: str) -> None:
    (source,) = DATA.glob(f"{name}.json*")
    store.load(source)
    text = source.read_text("utf-8")
    whole = text if source.suffix == ".json" else ""
    copy = tmp_path / source.name
    copy.write_text(
        rewritten(whole) if whole else "".join(f"{rewritten(line)}\n" for line in text.splitlines()), "utf-8"
    )
    before = {row.session_id: row.events for row in store.log.sessions()}
    assert {found.appended for found in store.load(copy)} == {0}
    after = {row.session_id: row.events for row in store.log.sessions()}
    assert after.keys() == before.keys()
    assert all(after[name] - before[name] <= 1 for name in after), "what says that it was read"


def test_a_copy_of_what_was_rewritten_since_is_the_session_it_was(store: Store, tmp_path: Path) -> None:
    old = written(tmp_path / "old.jsonl", *TALK)
    store.load(old)
    (fork,) = store.load(written(tmp_path / "new.jsonl", user("u1", "", "another"), reply("r1", "u1", "m1", "way")))
    assert fork.session_id == "claude-code:s~2"
    store.load(written(tmp_path / "longer.jsonl", *TALK, reply("r2", "u2", "m2", "four")))
    (again,) = store.load(old)
    assert (again.session_id, again.status) == ("claude-code:s", "unchanged")


class Stopping(MemoryLog):
    """A log during whose nth append the user presses Ctrl-C."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def append(self, session_id: str, after: int, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        if self.left == 0:
            self.left = -1
            raise KeyboardInterrupt
        self.left -= 1
        return super().append(session_id, after, drafts)


@pytest.mark.parametrize("after", range(9))
def test_an_interrupted_import_is_clean_and_goes_on(tmp_path: Path, after: int) -> None:
    whole = Store(tmp_path / "whole")
    whole.load(CLAUDE)
    store = Store(tmp_path / "stopped", Stopping(after))
    try:
        store.load(CLAUDE)
    except KeyboardInterrupt:
        assert store.problems() == []
        store.load(CLAUDE)
    for row in whole.log.sessions():
        assert store.facts(row.session_id) == whole.facts(row.session_id)
    assert len(store.log.sessions()) == 3
    assert store.problems() == []


class Raced(MemoryLog):
    """A log into which somebody else imports the same file just before our first append."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.blobs = DirBlobs(folder, is_synced=False)
        self.is_racing = False

    def append(self, session_id: str, after: int, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        if not self.is_racing:
            self.is_racing = True
            load(CLAUDE, log=self, blobs=self.blobs, counter=COUNTER)
        return super().append(session_id, after, drafts)


def test_a_lost_race_is_tried_again(tmp_path: Path) -> None:
    store = Store(tmp_path, Raced(tmp_path / "raced"))
    assert {imported.status for imported in store.load(CLAUDE)} == {"unchanged"}
    whole = Store(tmp_path / "whole")
    whole.load(CLAUDE)
    assert store.count() == whole.count()


def test_a_folder_is_walked_and_what_is_no_transcript_is_listed(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / "b.jsonl").write_bytes(CLAUDE.read_bytes())
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(TREE.read_bytes()))
    (folder / "notes.txt").write_text("milk", encoding="utf-8")
    (folder / "cut.zip").write_bytes(b"PK\x03\x04nothing")
    found = store.load(folder)
    assert [imported.format for imported in found] == ["pi", "pi", "claude-code", "claude-code", "claude-code"]
    assert found[0].notes[-1] == f"2 files are no transcripts: {folder}/cut.zip, {folder}/notes.txt"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty; nothing to import"),
        (b" \n\n", "is empty; nothing to import"),
        (b"\x7fELF\x00\x01", "is binary, no transcript"),
        (b"once upon a time", "is no transcript of a known format"),
        (b'{"a":1}\n{"b":2}\n', "is no transcript of a known format"),
        (b"PK\x03\x04nothing", "the archive is damaged or cut"),
    ],
)
def test_an_unusable_file_is_a_sentence(store: Store, tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(BadInput, match=message) as caught:
        store.load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert store.log.sessions() == []


def test_an_empty_folder_is_said_to_be_empty(store: Store, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(BadInput, match=r"nothing: is empty; name a folder with transcripts in it"):
        store.load(tmp_path / "nothing")


def test_a_folder_without_a_transcript_is_a_sentence(store: Store, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    for number in range(25):
        (tmp_path / "none" / f"{number:02}.txt").write_text("no", encoding="utf-8")
    with pytest.raises(BadInput, match=r"holds no transcript\. 25 files are no transcripts: .*, and 5 more"):
        store.load(tmp_path / "none")


def test_every_sample_of_every_format_is_read_once(store: Store) -> None:
    found = store.load(DATA)
    assert len({imported.format for imported in found}) >= 11
    assert {imported.status for imported in found} <= {"new", "grown", "fork"}
    assert store.problems() == []
    count = store.count()
    assert {imported.status for imported in store.load(DATA)} == {"unchanged"}
    assert store.count() == count


def test_a_damaged_session_in_a_folder_costs_only_itself(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(TREE.read_bytes())
    export = next((DATA / "opencode").glob("*.json"))
    (folder / "b.json").write_bytes(export.read_bytes()[:-20])
    found = store.load(folder)
    assert {imported.format for imported in found} == {"pi"}
    assert found[0].notes[-1].startswith(f"1 file is no transcript: {folder}/b.json: line ")
    with pytest.raises(BadInput, match="the document is truncated"):
        store.load(folder / "b.json")


def test_a_fork_keeps_events_of_its_parent(store: Store, tmp_path: Path) -> None:
    def entry(name: str, parent: str | None, **fields: object) -> dict[str, object]:
        return {
            "type": "message",
            "id": name,
            "parentId": parent,
            "message": {"role": "user", "content": name},
            **fields,
        }

    header = {"type": "session", "id": "p", "timestamp": "2026-03-01T10:00:00Z"}
    path = written(
        tmp_path / "p.jsonl",
        *(header, entry("a", None), entry("b", "a"), entry("c", "b"), entry("d", "b")),
        entry("k", "d", type="compaction", summary="so far", firstKeptEntryId="b"),
    )
    store.load(path)
    events = {event.uuid: event for event in store.log.read("pi:p#d")}
    window = events["k"].fact
    assert isinstance(window, WindowOpened)
    assert window.kept_tail == (events["b"].seq, events["d"].seq)


def test_a_source_without_an_id_is_named_by_its_first_record(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    init = '{"type":"system","subtype":"init"}\n'
    path.write_text(init, encoding="utf-8")
    (first,) = store.load(path)
    path.write_text(init + '{"type":"user","message":{"role":"user","content":"a"}}\n', encoding="utf-8")
    (second,) = store.load(path)
    assert first.session_id.startswith("claude-code:")
    assert len(first.session_id) == len("claude-code:") + 16
    assert (second.session_id, second.status) == (first.session_id, "grown")


def test_facts_with_the_same_name_are_all_kept(store: Store, tmp_path: Path) -> None:
    twice = written(tmp_path / "s.jsonl", TALK[0], TALK[1], TALK[1], TALK[0])
    store.load(twice)
    assert len(store.facts("claude-code:s")) == len({*store.facts("claude-code:s")})
    assert next(iter(store.facts("claude-code:s"))) == "u1"
    assert "u1~1" in [event.uuid for row in store.log.sessions() for event in store.log.read(row.session_id)]
    written(twice, TALK[0], TALK[1], TALK[1], TALK[0], user("u9", "u1", "on"))
    assert {imported.status for imported in store.load(twice)} <= {"grown", "unchanged"}


def test_a_child_whose_parent_is_not_known_stands_on_its_own(store: Store, tmp_path: Path) -> None:
    path = written(tmp_path / "agent.jsonl", user("c1", None, "look", isSidechain=True, agentId="7f"))
    (found,) = store.load(path)
    assert found.session_id == "claude-code:s/agent-7f"
    assert "the session it belongs to is not known" in found.notes[0]
    assert store.log.sessions()[0].kind == "root"


def test_a_child_finds_the_parent_another_file_brought(store: Store, tmp_path: Path) -> None:
    store.load(written(tmp_path / "s.jsonl", *TALK))
    store.load(written(tmp_path / "agent.jsonl", user("c1", None, "look", isSidechain=True, agentId="7f")))
    (row,) = store.log.sessions("claude-code:s/agent-7f")
    assert (row.kind, row.parent_id) == ("child", "claude-code:s")


def test_clocks_names_and_text_that_a_store_cannot_take_are_made_fit(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(
        '{"type":"session","id":"a\\u0000b","timestamp":"2026-03-01T10:00:00Z"}\n'
        '{"type":"message","id":"\\ud83d","timestamp":"9999-12-31T23:59:59Z","message":{"role":"user","content":"\\ud83d"}}\n'
        '{"type":"message","id":"2","timestamp":"1600-01-01T00:00:00Z","message":{"role":"user","content":"b"}}\n',
        encoding="utf-8",
    )
    (found,) = store.load(path)
    assert found.session_id == "pi:ab"
    assert [event.uuid for event in store.log.read("pi:ab")][2:4] == ["?", "2"]
    assert store.problems() == []


def test_progress_is_told_on_long_work(store: Store, tmp_path: Path) -> None:
    rows = [user(f"u{number}", f"u{number - 1}" if number else None, "on") for number in range(600)]
    told: list[tuple[str, int]] = []
    path = written(tmp_path / "s.jsonl", *rows)
    load(path, log=store.log, blobs=store.blobs, counter=COUNTER, progress=lambda name, done: told.append((name, done)))
    assert told == [(str(path), 256), (str(path), 512)]


@pytest.mark.parametrize(
    ("head", "size"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x03\x20\0\0\x02\x58", (800, 600)),
        (b"GIF89a\x20\x03\x58\x02", (800, 600)),
        (b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x20\x03\x58\x02", (800, 600)),
        (b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x1f\xc3\x95\0" + bytes(8), (800, 600)),
        (b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0\x1f\x03\0\x57\x02\0", (800, 600)),
        (b"RIFF\0\0\0\0WEBPnone" + bytes(20), None),
        (b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x11\x08\x02\x58\x03\x20", (800, 600)),
        (b"\xff\xd8\xff\xe0\0\x04ab", None),
        (b"BM", None),
    ],
)
def test_a_pictures_size_is_read_from_its_first_bytes(head: bytes, size: tuple[int, int] | None) -> None:
    assert dimensions(head) == size


def test_a_picture_weighs_what_its_size_says_or_a_flat_estimate(store: Store, tmp_path: Path) -> None:
    big = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\x0c\x40\0\0\x06\x20"
    rows = [
        '{"type":"session","id":"p","timestamp":"2026-03-01T10:00:00Z"}',
        *(
            json.dumps({"type": "message", "id": name, "message": {"role": "user", "content": [picture(data)]}})
            for name, data in (("big", base64.b64encode(big).decode()), ("odd", "eA=="), ("bad", "!"))
        ),
    ]
    path = tmp_path / "p.jsonl"
    path.write_text("\n".join(rows), encoding="utf-8")
    store.load(path)
    events = {event.uuid: event.fact for event in store.log.read("pi:p")}
    weights = {name: fact.blocks[0].tokens for name, fact in events.items() if isinstance(fact, UserSaid)}
    assert weights["big"] == round(1568 * 784 / 750)
    assert weights["odd"] == IMAGE_TOKENS
    assert weights["bad"] > 0


def picture(data: str) -> dict[str, str]:
    return {"type": "image", "data": data, "mimeType": "image/png"}


PROGRAM = """
import resource, sys
from pathlib import Path
from transom.adapters.blobs import DirBlobs
from transom.adapters.counter import HeuristicCounter
from transom.adapters.sqlite_log import SqliteLog
from transom.importers.load import load
path, folder = Path(sys.argv[1]), Path(sys.argv[2])
blobs = DirBlobs(folder / "blobs", is_synced=False)
with SqliteLog(folder / "log.db", blobs) as log:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    load(path, log=log, blobs=blobs, counter=HeuristicCounter())
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_memory_is_bounded_by_names_and_one_batch(tmp_path: Path) -> None:
    """50 MB in 26,000 records: the importer may hold 4 MB of a batch, its copies on the way into the store, and some
    500 bytes an event for names; the whole file would be 50 MB and more."""
    path = tmp_path / "s.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(26_000):
            text = f"{number} " + "the quick brown fox " * 90
            file.write(json.dumps(user(f"u{number}", f"u{number - 1}" if number else None, text)) + "\n")
    assert path.stat().st_size > 50_000_000
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), str(tmp_path)],
        capture_output=True,
        check=True,
        text=True,
        env=environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)),
    )
    assert int(done.stdout) < 60_000


KILLED = """
import sys
from pathlib import Path
from transom.adapters.blobs import DirBlobs
from transom.adapters.counter import HeuristicCounter
from transom.adapters.sqlite_log import SqliteLog
from transom.importers.load import load
path, folder = Path(sys.argv[1]), Path(sys.argv[2])
blobs = DirBlobs(folder / "blobs", is_synced=False)
with SqliteLog(folder / "log.db", blobs) as log:
    print("begin", flush=True)
    load(path, log=log, blobs=blobs, counter=HeuristicCounter())
"""


@pytest.mark.slow
def test_an_import_killed_at_any_moment_goes_on_and_ends_the_same(tmp_path: Path) -> None:
    rows = [user(f"u{number}", f"u{number - 1}" if number else None, "on " * 300) for number in range(3000)]
    path = written(tmp_path / "s.jsonl", *rows)
    whole = Store(tmp_path / "whole")
    whole.load(path)
    expected = whole.facts("claude-code:s")
    dice = random.Random(7)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    kills = partial_imports = 0
    for number in range(100):
        folder = tmp_path / f"run{number // 4}"
        folder.mkdir(exist_ok=True)
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path), str(folder)], stdout=subprocess.PIPE, env=environment
        ) as running:
            assert running.stdout is not None
            running.stdout.readline()
            try:
                running.wait(dice.uniform(0.0, 0.5))
            except subprocess.TimeoutExpired:
                running.kill()
                kills += 1
        blobs = DirBlobs(folder / "blobs", is_synced=False)
        with SqliteLog(folder / "log.db", blobs) as log:
            assert not [found for found in log.verify() if found.problem]
            events = list(log.read("claude-code:s")) if log.sessions() else []
            told = [event.uuid for event in events if not isinstance(event.fact, SourceRead | SessionOpened)]
            assert told == list(expected)[: len(told)]
            partial_imports += 0 < len(told) < len(expected)
            if number % 4 == 3:
                load(path, log=log, blobs=blobs, counter=COUNTER)
                facts = {event.uuid: bare(event.fact) for event in log.read("claude-code:s") if event.uuid in expected}
                assert facts == expected
    assert kills > 10
    assert partial_imports > 5
