from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from transom.adapters.blobs import DirBlobs
from transom.core.block import Image, Opaque, Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import HostSaid, ModelReplied, Observed, Seed, SessionOpened, ToolReturned, Usage, UserSaid
from transom.importers import pi
from transom.importers.draft import Compacted, Item, Note, Quarantined, Said, Unknown
from transom.importers.source import open_source

__all__: list[str] = []

DATA = Path(__file__).parent / "data" / "pi"
PICTURE = "6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0"
SESSION = "7ree"
FORK = "7ree#s1"


@pytest.fixture
def blobs(tmp_path: Path) -> DirBlobs:
    return DirBlobs(tmp_path / "blobs", is_synced=False)


def items_of(path: Path, blobs: DirBlobs) -> list[Item]:
    source = open_source(path)
    assert pi.sniff(source)
    return list(pi.parse(source, blobs))


@pytest.fixture
def tree(blobs: DirBlobs) -> list[Item]:
    return items_of(DATA / "tree.jsonl", blobs)


def facts(items: list[Item], session: str) -> dict[str, object]:
    return {
        item.uuid: item.fact
        for item in items
        if isinstance(item, Said) and item.session == session and not isinstance(item.fact, Observed)
    }


def test_the_session_knows_its_model_workspace_and_title(tree: list[Item]) -> None:
    assert facts(tree, SESSION)["opened"] == SessionOpened(
        format=1,
        agent="pi",
        agent_version="3",
        model="acme-1",
        provider="acme",
        workspace="/home/dev/shop",
        title="Shop",
    )


def test_a_reply_has_its_thought_its_calls_and_its_cost(tree: list[Item]) -> None:
    thought = '{"type":"thinking","thinking":"Read first.","thinkingSignature":"c2ln"}'
    assert facts(tree, SESSION)["r1"] == ModelReplied(
        blocks=(
            Thought(text="Read first.", opaque=thought),
            ToolCall(call_id="t1", name="read", arguments='{"path":"cart.py"}'),
            ToolCall(call_id="t2", name="bash", arguments='{"command":"ls"}'),
        ),
        model="acme-1",
        stop_reason="toolUse",
        usage=Usage(uncached=100, cached=5, written=7, output=20, cost_microusd=12500),
        response_id="resp_1",
    )


def test_results_have_pictures_effects_and_errors(tree: list[Item]) -> None:
    found = facts(tree, SESSION)
    assert found["x1"] == ToolReturned(
        call_id="t1",
        blocks=(
            ToolResultRaw(text="def total(): ..."),
            Image(media_type="image/png", artifact_id=PICTURE, size=70),
        ),
        effect="read",
    )
    assert found["x2"] == ToolReturned(call_id="t2", blocks=(ToolResultRaw(text="no such shop"),), is_error=True)


def test_an_aborted_reply_without_figures_has_no_usage(tree: list[Item]) -> None:
    assert facts(tree, SESSION)["r2"] == ModelReplied(blocks=(), model="acme-1", stop_reason="aborted")
    third = facts(tree, SESSION)["r3"]
    assert isinstance(third, ModelReplied)
    assert third.usage == Usage(uncached=1, cached=130, output=2)


def test_only_what_a_person_typed_is_the_users(tree: list[Item]) -> None:
    found = {**facts(tree, SESSION), **facts(tree, FORK)}
    assert [uuid for uuid, fact in found.items() if isinstance(fact, UserSaid)] == ["u1", "u2", "u3"]
    assert found["c1"] == HostSaid(kind="injected", blocks=(Text(text="Vault: prices are in cents."),))
    ran = "Ran `pytest`\n```\n1 failed\n```\nexit code 1"
    assert found["b1"] == HostSaid(kind="injected", blocks=(Text(text=ran),))
    assert [uuid for uuid, fact in found.items() if isinstance(fact, HostSaid)] == ["c1", "b1", "s1", "g1", "i1"]


def test_a_compaction_keeps_what_it_names_behind_the_summary(tree: list[Item]) -> None:
    (found,) = (item for item in tree if isinstance(item, Compacted))
    seed = Seed(role="user", blocks=(Text(text="The total is being fixed."),))
    assert (found.session, found.seed, found.kept_tail, found.tokens_before) == (SESSION, (seed,), ("u2", "r3"), 133)


def test_an_entry_behind_an_older_one_starts_a_fork(tree: list[Item]) -> None:
    assert list(facts(tree, FORK)) == ["opened", "s1", "u3", "g1", "i1"]
    opened = next(item for item in tree if isinstance(item, Said) and item.session == FORK)
    assert opened.parent == (SESSION, "r3")


def test_unknown_entries_and_roles_are_named_and_kept(tree: list[Item]) -> None:
    assert [item.kind for item in tree if isinstance(item, Unknown)] == ["message:oracle", "nebula"]
    kinds = Counter(item.fact.kind for item in tree if isinstance(item, Said) and isinstance(item.fact, Observed))
    assert kinds == {
        "session": 1,
        "model_change": 1,
        "session_info": 1,
        "details": 1,
        "compaction": 1,
        "message": 1,
        "nebula": 1,
    }


def test_the_first_form_names_what_it_keeps_by_number(blobs: DirBlobs) -> None:
    items = items_of(DATA / "list.jsonl", blobs)
    assert list(facts(items, "1157")) == ["opened", "L2", "L3", "L4"]
    (found,) = (item for item in items if isinstance(item, Compacted))
    assert found.kept_tail == ("L4",)
    assert len([item for item in items if isinstance(item, Note)]) == 1


def test_blocks_nobody_knows_are_carried_as_they_came(tmp_path: Path, blobs: DirBlobs) -> None:
    path = tmp_path / "odd.jsonl"
    header = '{"type":"session","id":"o","timestamp":"2026-03-01T10:00:00Z"}'
    odd = '{"type":"message","id":"r","message":{"role":"assistant","content":[{"type":"aura"},{"type":5}]}}'
    path.write_text(f"{header}\n{odd}\n" + '{"type":"message","message":5}\n', encoding="utf-8")
    items = items_of(path, blobs)
    reply = facts(items, "o")["r"]
    assert isinstance(reply, ModelReplied)
    assert reply.blocks == (Opaque(kind="aura", raw='{"type":"aura"}'), Opaque(kind="malformed", raw='{"type":5}'))
    assert [item.line for item in items if isinstance(item, Quarantined)] == [3]


class Recorded(msgspec.Struct):
    calls_with_usage: int | None = 0
    uncached_input: int | None = 0
    cache_read: int | None = 0
    cache_write: int | None = 0
    output: int | None = 0


class Listed(msgspec.Struct):
    file: str
    malformed_lines: int
    assistant_steps: int
    tool_calls: int
    tool_results: int
    user_prompts: int
    usage: Recorded
    compaction: dict[str, int] | None


class Manifest(msgspec.Struct):
    files: list[msgspec.Raw]


def test_recorded_sessions_have_the_figures_of_the_manifest(shared: Path, blobs: DirBlobs) -> None:
    """Equal but for two files. In one the manifest does not count a line with two values, a reply and a compaction. In
    the other, of a gateway, it counts what the gateway wrote itself as two steps and three prompts."""
    manifest = msgspec.json.decode((shared / "MANIFEST.json").read_bytes(), type=Manifest)
    listed = [msgspec.json.decode(raw, type=Listed) for raw in manifest.files if b'"format": "pi"' in bytes(raw)]
    assert len(listed) == 7
    for entry in listed:
        items = items_of(shared / entry.file, blobs)
        said = [item.fact for item in items if isinstance(item, Said)]
        replies = [fact for fact in said if isinstance(fact, ModelReplied)]
        usages = [fact.usage for fact in replies if fact.usage]
        calls = [block.call_id for fact in replies for block in fact.blocks if isinstance(block, ToolCall)]
        results = [fact.call_id for fact in said if isinstance(fact, ToolReturned)]
        steps = sum(isinstance(fact, HostSaid) and is_gateways(fact) for fact in said)
        torn = entry.malformed_lines
        assert len(replies) - torn + steps == entry.assistant_steps, entry.file
        assert len(usages) - torn == entry.usage.calls_with_usage
        assert (len(calls), len(results)) == (entry.tool_calls, entry.tool_results)
        assert set(results) <= set(calls)
        assert sum(isinstance(item, Compacted) for item in items) - torn == (entry.compaction or {}).get(
            "compaction", 0
        )
        prompts = sum(isinstance(fact, UserSaid) for fact in said)
        assert entry.user_prompts - prompts == (3 if steps else 0)
        if not torn:
            assert sum(usage.uncached for usage in usages) == entry.usage.uncached_input
            assert sum(usage.cached for usage in usages) == entry.usage.cache_read
            assert sum(usage.written for usage in usages) == (entry.usage.cache_write or 0)
            assert sum(usage.output for usage in usages) == entry.usage.output
        assert not [item for item in items if isinstance(item, Unknown | Quarantined)]


def is_gateways(fact: HostSaid) -> bool:
    return any(isinstance(block, Text) and "subagents:\n-----" in block.text for block in fact.blocks)
