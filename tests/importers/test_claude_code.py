from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from transom.adapters.blobs import DirBlobs
from transom.core.block import Image, Opaque, Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import HostSaid, ModelReplied, Observed, Seed, SessionOpened, ToolReturned, Usage, UserSaid
from transom.importers import claude_code, claude_stream
from transom.importers.draft import Cleared, Compacted, Item, Note, Quarantined, Said, Unknown
from transom.importers.source import open_source

__all__: list[str] = []

SESSION_FILE = Path(__file__).parent / "data" / "claude-code" / "session.jsonl"
SESSION = "11111111-2222-4333-8444-555555555555"
CHILD = f"{SESSION}/agent-ab12"
FORK = f"{SESSION}#u4"
PICTURE = "6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0"
CLEARED = "[Old tool result content cleared]"


@pytest.fixture
def blobs(tmp_path: Path) -> DirBlobs:
    return DirBlobs(tmp_path / "blobs", is_synced=False)


def items_of(path: Path, blobs: DirBlobs) -> list[Item]:
    return list(claude_code.parse(open_source(path), blobs))


@pytest.fixture
def items(blobs: DirBlobs) -> list[Item]:
    return items_of(SESSION_FILE, blobs)


def names(items: list[Item], session: str) -> list[str]:
    """uuids of a session's conversation, in order."""
    return [
        item.uuid
        for item in items
        if ((isinstance(item, Said) and not isinstance(item.fact, Observed)) or isinstance(item, Compacted | Cleared))
        and item.session == session
    ]


def said(items: list[Item], uuid: str) -> Said:
    found = [item for item in items if isinstance(item, Said) and item.uuid == uuid]
    assert len(found) == 1
    return found[0]


def written(path: Path, *records: object) -> Path:
    file = path / "session.jsonl"
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return file


def record(uuid: str, parent: str | None, type_: str, **fields: object) -> dict[str, object]:
    base = {"uuid": uuid, "parentUuid": parent, "type": type_, "sessionId": "s", "isSidechain": False}
    return {**base, "timestamp": "2026-03-01T10:00:00Z", **fields}


def user(uuid: str, parent: str | None, text: str, **fields: object) -> dict[str, object]:
    return record(uuid, parent, "user", message={"role": "user", "content": text}, **fields)


def reply(uuid: str, parent: str | None, message_id: str, *content: object, **fields: object) -> dict[str, object]:
    message = {"id": message_id, "role": "assistant", "model": "m", "content": list(content)}
    return record(uuid, parent, "assistant", message=message, **fields)


def test_the_facts_of_a_session_come_in_the_order_in_which_the_model_saw_them(items: list[Item]) -> None:
    assert names(items, SESSION) == [
        *("opened", "u0", "u1", "a1", "r1a", "x1", "x2", "r2", "x3", "mc1", "r3", "x4", "u2", "y1", "a2", "r4"),
        *("u3", "r5"),
    ]
    assert names(items, FORK) == ["opened", "u4", "r6", "cs1", "r7", "r8", "x5", "r9"]
    assert names(items, CHILD) == ["opened", "s1", "s2", "s3"]


def test_records_of_one_response_are_one_reply_with_the_last_usage(items: list[Item]) -> None:
    assert said(items, "r1a").fact == ModelReplied(
        blocks=(
            Thought(
                text="Look at both files.",
                opaque='{"type":"thinking","thinking":"Look at both files.","signature":"c2ln"}',
            ),
            ToolCall(call_id="t1", name="Read", arguments='{"file_path":"/home/dev/shop/cart.py"}'),
            ToolCall(call_id="t2", name="Bash", arguments='{"command":"pytest -q"}'),
        ),
        model="claude-test-1",
        stop_reason="tool_use",
        usage=Usage(uncached=3, cached=1000, written=200, written_1h=50, output=42),
        response_id="msg_1",
    )


def test_results_have_their_effect_their_error_and_their_exit_code(items: list[Item]) -> None:
    failed = "Exit code 1\nFAILED test_cart.py::test_two_items - AssertionError: 5 != 8"
    assert said(items, "x2").fact == ToolReturned(
        call_id="t2", blocks=(ToolResultRaw(text=failed),), is_error=True, effect="external", exit_code=1
    )
    first = said(items, "x1").fact
    assert isinstance(first, ToolReturned)
    assert (first.effect, first.is_error, first.exit_code) == ("read", False, None)


def test_a_picture_in_a_result_is_stored(items: list[Item], blobs: DirBlobs) -> None:
    fact = said(items, "x3").fact
    assert isinstance(fact, ToolReturned)
    assert fact.blocks == (
        ToolResultRaw(text="The file was updated."),
        Image(media_type="image/png", artifact_id=PICTURE, size=70),
    )
    assert fact.effect == "write"
    assert len(blobs.get(PICTURE)) == 70


def test_only_what_a_person_typed_is_the_users(items: list[Item]) -> None:
    typed = [item.uuid for item in items if isinstance(item, Said) and isinstance(item.fact, UserSaid)]
    assert typed == ["u1", "s1", "a2", "u3", "u4"]
    for uuid in ("u0", "a1", "u2", "y1"):
        fact = said(items, uuid).fact
        assert isinstance(fact, HostSaid)
        assert fact.kind == "injected"
    child = said(items, "s1").fact
    assert isinstance(child, UserSaid)
    assert child.by == "operator"


def test_what_was_never_sent_is_kept_raw(items: list[Item]) -> None:
    kinds = Counter(item.fact.kind for item in items if isinstance(item, Said) and isinstance(item.fact, Observed))
    assert kinds == {
        "file-history-snapshot": 1,
        "ai-title": 1,
        "progress": 2,
        "toolUseResult": 2,
        "system:microcompact_boundary": 1,
        "system:compact_boundary": 1,
        "hologram": 1,
    }
    raw = said(items, "x1.1").fact
    assert isinstance(raw, Observed)
    assert raw.raw.startswith('{"type":"text","file":{"filePath"')


def test_the_session_knows_its_agent_model_workspace_and_title(items: list[Item]) -> None:
    opened = items[0]
    assert isinstance(opened, Said)
    assert opened.fact == SessionOpened(
        format=1,
        agent="claude-code",
        agent_version="2.1.49",
        model="claude-test-1",
        provider="anthropic",
        workspace="/home/dev/shop",
        title="Fix the cart total",
    )


def test_a_rewind_is_a_fork_behind_the_fact_it_goes_back_to(items: list[Item]) -> None:
    fork = next(item for item in items if isinstance(item, Said) and item.session == FORK)
    assert fork.parent == (SESSION, "r4")
    assert isinstance(fork.fact, SessionOpened)
    assert fork.fact.kind == "fork"


def test_a_sub_agent_is_a_child_of_the_reply_that_called_it(items: list[Item]) -> None:
    child = next(item for item in items if isinstance(item, Said) and item.session == CHILD)
    assert child.parent == (SESSION, "r3")
    assert isinstance(child.fact, SessionOpened)
    assert child.fact.kind == "child"
    result = said(items, "s3").fact
    assert isinstance(result, ToolReturned)
    assert result.effect == "read"


def test_a_boundary_and_its_summary_are_one_compaction(items: list[Item]) -> None:
    found = [item for item in items if isinstance(item, Compacted)]
    text = "This session is being continued from a previous conversation that ran out of context. "
    seed = Seed(role="user", blocks=(Text(text=text + "The cart total is fixed."),))
    assert [(item.session, item.seed, item.tokens_before) for item in found] == [(FORK, (seed,), 1558)]


def test_a_boundary_without_a_summary_still_clears_the_window(tmp_path: Path, blobs: DirBlobs) -> None:
    path = written(
        tmp_path,
        user("u1", None, "go"),
        record("b", None, "system", subtype="compact_boundary", logicalParentUuid="u1"),
        reply("r", "b", "m1", {"type": "text", "text": "on"}),
    )
    assert names(items_of(path, blobs), "s") == ["opened", "u1", "b", "r"]


def test_micro_compaction_names_the_results_it_cleared(items: list[Item]) -> None:
    (cleared,) = (item for item in items if isinstance(item, Cleared))
    stub = ToolResultRaw(text=CLEARED)
    assert (cleared.how, cleared.targets) == ("mask", (("x1", stub), ("x3", stub)))


def test_unknown_torn_and_unreadable_records_are_named(items: list[Item]) -> None:
    assert [item.kind for item in items if isinstance(item, Unknown)] == ["hologram"]
    assert [(item.line, item.why) for item in items if isinstance(item, Quarantined)] == [(35, "torn last line")]
    assert [item.text.split(",")[0] for item in items if isinstance(item, Note)] == [
        "line 34 holds 2 values",
        "the last line (35) is torn: the file was copied while it was being written",
    ]


def test_a_result_written_before_its_call_stands_behind_it(items: list[Item]) -> None:
    order = names(items, FORK)
    assert order.index("x5") == order.index("r8") + 1


def test_a_lone_surrogate_survives(items: list[Item]) -> None:
    fact = said(items, "r9").fact
    assert isinstance(fact, ModelReplied)
    assert fact.blocks == (Text(text="half an emoji \ud83d here"),)


def test_a_command_the_client_ran_starts_no_fork(tmp_path: Path, blobs: DirBlobs) -> None:
    synthetic = {"id": "x", "role": "assistant", "model": "<synthetic>", "content": [{"type": "text", "text": "-"}]}
    path = written(
        tmp_path,
        user("u1", None, "go"),
        reply("r1", "u1", "m1", {"type": "text", "text": "gone"}),
        user("e", "r1", "<command-name>/exit</command-name>"),
        record("y", "r1", "assistant", message=synthetic),
        user("u2", "y", "again"),
    )
    assert names(items_of(path, blobs), "s") == ["opened", "u1", "r1", "e", "y", "u2"]


def test_an_inline_side_chain_is_a_child(tmp_path: Path, blobs: DirBlobs) -> None:
    call = {"type": "tool_use", "id": "t", "name": "Task", "input": {}}
    path = written(
        tmp_path,
        user("u1", None, "go"),
        reply("r1", "u1", "m1", call),
        user("c1", None, "look", isSidechain=True),
        reply("c2", "c1", "m2", {"type": "text", "text": "seen"}, isSidechain=True),
        record("x", "r1", "user", message={"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}),
    )
    items = items_of(path, blobs)
    assert names(items, "s") == ["opened", "u1", "r1", "x"]
    assert names(items, "s/c1") == ["opened", "c1", "c2"]


def test_a_sub_agents_own_file_is_a_child_of_the_session_it_names(tmp_path: Path, blobs: DirBlobs) -> None:
    path = written(tmp_path, user("c1", None, "look", isSidechain=True, agentId="7f"))
    opened = items_of(path, blobs)[0]
    assert isinstance(opened, Said)
    assert (opened.session, opened.parent) == ("s/agent-7f", ("s", ""))


def test_blocks_nobody_knows_are_carried_as_they_came(tmp_path: Path, blobs: DirBlobs) -> None:
    path = written(tmp_path, user("u1", None, "go"), reply("r1", "u1", "m1", {"type": "aura", "hue": 3}, 7))
    fact = said(items_of(path, blobs), "r1").fact
    assert isinstance(fact, ModelReplied)
    assert fact.blocks == (Opaque(kind="aura", raw='{"type": "aura", "hue": 3}'), Opaque(kind="malformed", raw="7"))


def test_negative_and_missing_usage_is_no_figure(tmp_path: Path, blobs: DirBlobs) -> None:
    odd = reply("r1", "u1", "m1", {"type": "text", "text": "a"})
    odd["message"] = {
        "id": "m1",
        "role": "assistant",
        "content": "a",
        "usage": {"input_tokens": -5, "output_tokens": None},
    }
    path = written(tmp_path, user("u1", None, "go"), odd, reply("r2", "r1", "m2", {"type": "text", "text": "b"}))
    items = items_of(path, blobs)
    first, second = said(items, "r1").fact, said(items, "r2").fact
    assert isinstance(first, ModelReplied)
    assert isinstance(second, ModelReplied)
    assert first.usage == Usage()
    assert second.usage is None


def test_a_record_of_an_odd_shape_costs_only_itself(tmp_path: Path, blobs: DirBlobs) -> None:
    path = written(tmp_path, user("u1", None, "go"), {"type": "user", "uuid": 7}, user("u2", "u1", "on"))
    items = items_of(path, blobs)
    assert [item.line for item in items if isinstance(item, Quarantined)] == [2]
    assert names(items, "s") == ["opened", "u1", "u2"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What the manifest counts."""

    assistant_steps: int
    tool_calls: int
    tool_results: int
    calls_with_usage: int
    uncached_input: int
    cache_read: int
    cache_write: int
    compactions: int


class Recorded(msgspec.Struct):
    calls_with_usage: int | None = 0
    uncached_input: int | None = 0
    cache_read: int | None = 0
    cache_write: int | None = 0
    output: int | None = 0


class Listed(msgspec.Struct):
    file: str
    format: str
    flags: list[str]
    assistant_steps: int
    tool_calls: int
    tool_results: int
    user_prompts: int
    usage: Recorded
    compaction: dict[str, int] | None


class Manifest(msgspec.Struct):
    files: list[msgspec.Raw]


def figures(items: list[Item]) -> Figures:
    """The manifest's figures of a file. It counts no sub-agent that stands only inside progress records."""
    facts = [item.fact for item in items if isinstance(item, Said) and "/agent-" not in item.session]
    replies = [fact for fact in facts if isinstance(fact, ModelReplied)]
    usages = [fact.usage for fact in replies if fact.usage]
    return Figures(
        assistant_steps=len(replies),
        tool_calls=sum(isinstance(block, ToolCall) for fact in replies for block in fact.blocks),
        tool_results=sum(isinstance(fact, ToolReturned) for fact in facts),
        calls_with_usage=len(usages),
        uncached_input=sum(usage.uncached for usage in usages),
        cache_read=sum(usage.cached for usage in usages),
        cache_write=sum(usage.written for usage in usages),
        compactions=sum(isinstance(item, Compacted) for item in items),
    )


def test_recorded_sessions_have_the_figures_of_the_manifest(shared: Path, blobs: DirBlobs) -> None:
    """Equal but for two. Steps: the manifest counts the client's own replies, which have no usage. Output: the manifest
    takes the first record of a response, which may hold a place holder; the last one has the final count."""
    manifest = msgspec.json.decode((shared / "MANIFEST.json").read_bytes(), type=Manifest)
    listed = [
        msgspec.json.decode(raw, type=Listed) for raw in manifest.files if b'"format": "claude-code"' in bytes(raw)
    ]
    assert len(listed) == 21
    for entry in listed:
        source = open_source(shared / entry.file)
        importer = claude_stream if "stream-json" in entry.flags else claude_code
        assert [module.sniff(source) for module in (claude_code, claude_stream)] == [
            importer is claude_code,
            importer is claude_stream,
        ]
        items = list(importer.parse(source, blobs))
        found = figures(items)
        compactions = entry.compaction or {}
        assert found == Figures(
            assistant_steps=entry.usage.calls_with_usage or 0,
            tool_calls=entry.tool_calls,
            tool_results=entry.tool_results,
            calls_with_usage=entry.usage.calls_with_usage or 0,
            uncached_input=entry.usage.uncached_input or 0,
            cache_read=entry.usage.cache_read or 0,
            cache_write=entry.usage.cache_write or 0,
            compactions=compactions.get("isCompactSummary", compactions.get("compact_boundary", 0)),
        ), entry.file
        cleared = sum(isinstance(item, Cleared) for item in items)
        assert cleared == compactions.get("microcompact_boundary", 0)
        assert sum(output_of(item) for item in items) >= (entry.usage.output or 0)
        assert not [item for item in items if isinstance(item, Unknown | Quarantined)], entry.file
        assert unpaired(items) == [], entry.file


def output_of(item: Item) -> int:
    if isinstance(item, Said) and isinstance(item.fact, ModelReplied) and item.fact.usage:
        return item.fact.usage.output
    return 0


def unpaired(items: list[Item]) -> list[str]:
    """Results without an earlier call in their session or the one it was forked from."""
    calls: dict[str, set[str]] = {}
    lost: list[str] = []
    for item in items:
        if not isinstance(item, Said):
            continue
        match item.fact:
            case SessionOpened():
                known = calls[item.parent[0]] if item.fact.kind == "fork" and item.parent else set()
                calls[item.session] = set(known)
            case ModelReplied():
                calls[item.session].update(b.call_id for b in item.fact.blocks if isinstance(b, ToolCall))
            case ToolReturned() if item.fact.call_id not in calls[item.session]:
                lost.append(item.uuid)
            case _:
                pass
    return lost
