from __future__ import annotations

from pathlib import Path

import pytest

from transom.adapters.blobs import DirBlobs
from transom.core.block import Text, ToolCall, ToolResultRaw
from transom.core.event import HostSaid, ModelReplied, Observed, Seed, SessionOpened, ToolReturned, Usage, UserSaid
from transom.importers import claude_code, claude_stream
from transom.importers.draft import Compacted, Item, Said, Unknown
from transom.importers.source import open_source

__all__: list[str] = []

STREAM = Path(__file__).parent / "data" / "claude-code" / "stream.jsonl"
SUMMARY = "This session is being continued from a previous conversation that ran out of context. It was looked."


@pytest.fixture
def items(tmp_path: Path) -> list[Item]:
    blobs = DirBlobs(tmp_path / "blobs", is_synced=False)
    return list(claude_stream.parse(open_source(STREAM), blobs))


def test_a_stream_is_told_by_its_init() -> None:
    source = open_source(STREAM)
    assert claude_stream.sniff(source)
    assert not claude_code.sniff(source)


def test_the_conversation_is_read_in_the_order_of_the_lines(items: list[Item]) -> None:
    usage = Usage(uncached=2, cached=10, written=90, output=31)
    facts = {item.uuid: item.fact for item in items if isinstance(item, Said) and item.session == "5e55"}
    assert [facts[uuid] for uuid in ("opened", "L1", "L2")] == [
        SessionOpened(
            format=1,
            agent="claude-code",
            agent_version="2.0.76",
            model="claude-test-1",
            provider="anthropic",
            workspace="/home/dev/shop",
        ),
        Observed(kind="system:init", raw=STREAM.read_text(encoding="utf-8").splitlines()[0]),
        ModelReplied(
            blocks=(
                Text(text="Two looks at once."),
                ToolCall(call_id="t1", name="Task", arguments='{"prompt":"look"}'),
            ),
            model="claude-test-1",
            stop_reason="tool_use",
            usage=usage,
            response_id="m1",
        ),
    ]
    names = [item.uuid for item in items if isinstance(item, Said | Compacted) and item.session == "5e55"]
    observed = {uuid for uuid, fact in facts.items() if isinstance(fact, Observed)}
    assert [uuid for uuid in names if uuid not in observed] == ["opened", "L2", "L6", "L9", "L10", "L13"]
    assert observed == {"L1", "L7", "L8", "L11", "L12", "L14"}


def test_a_sub_agent_is_a_child_behind_the_call(items: list[Item]) -> None:
    child = [item for item in items if isinstance(item, Said) and item.session == "5e55/t1"]
    assert [item.uuid for item in child] == ["opened", "L4", "L5"]
    assert child[0].parent == ("5e55", "L2")
    assert child[1].fact == UserSaid(blocks=(Text(text="look"),), by="operator")


def test_a_boundary_and_the_message_after_it_are_one_compaction(items: list[Item]) -> None:
    (found,) = (item for item in items if isinstance(item, Compacted))
    assert (found.uuid, found.tokens_before) == ("L9", 140)
    assert found.seed == (Seed(role="user", blocks=(Text(text=SUMMARY),)),)


def test_results_words_and_unknown_lines_are_kept(items: list[Item]) -> None:
    facts = {item.uuid: item.fact for item in items if isinstance(item, Said)}
    assert facts["L6"] == ToolReturned(call_id="t1", blocks=(ToolResultRaw(text="seen"),))
    assert facts["L13"] == UserSaid(blocks=(Text(text="One more thing."),))
    assert [item.kind for item in items if isinstance(item, Unknown)] == ["aurora"]


def test_a_plain_stream_has_its_fields_on_the_line_itself(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text(
        '{"type":"system","subtype":"init","session_id":"p1","cwd":"/w","model":"claude-test-1","uuid":"i"}\n'
        '{"type":"system","subtype":"compact_boundary","compact_metadata":{"pre_tokens":5},"uuid":"b"}\n'
        '{"type":"user","message":{"role":"user","content":"Summary."},"uuid":"s"}\n'
        '{"type":"user","message":{"role":"user","content":"<system-reminder>mind</system-reminder>"},"uuid":"h"}\n'
        '{"type":"user","message":7,"uuid":"o"}\n',
        encoding="utf-8",
    )
    source = open_source(path)
    assert claude_stream.sniff(source)
    items = list(claude_stream.parse(source, DirBlobs(tmp_path / "blobs", is_synced=False)))
    opened = items[0]
    assert isinstance(opened, Said)
    assert (opened.session, opened.fact.workspace if isinstance(opened.fact, SessionOpened) else "") == ("p1", "/w")
    assert [item.tokens_before for item in items if isinstance(item, Compacted)] == [5]
    assert [item.uuid for item in items if isinstance(item, Said) and isinstance(item.fact, HostSaid)] == ["h"]
    assert [item.kind for item in items if isinstance(item, Unknown)] == ["user"]
