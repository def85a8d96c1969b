"""Plain message arrays, requests and LiteLLM's completion log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from transom.adapters.blobs import DirBlobs
from transom.core.block import Image, Opaque, Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import (
    EpochOpened,
    HostSaid,
    ModelReplied,
    Observed,
    Section,
    SessionOpened,
    Tool,
    ToolReturned,
    Usage,
    UserSaid,
)
from transom.errors import BadInput
from transom.importers import chat
from transom.importers.draft import Item, Note, Quarantined, Said, Unknown
from transom.importers.source import open_source
from transom.testing.imports import broken_rules, facts, figures

_DATA = Path(__file__).parent / "data" / "openai-chat"
_PNG = "4c4b6a3be1314ab86138bef4314dde022e600960d8689a2c8f8631802d20dab6"
"""sha256 of the eight bytes that begin every PNG."""


def _read(path: Path, store: Path) -> list[Item]:
    source = open_source(path)
    assert chat.sniff(source)
    items = list(chat.parse(source, DirBlobs(store, is_synced=False)))
    assert not list(broken_rules(items))
    return items


def test_a_completion_log_is_the_whole_run_with_the_usage_of_each_call(tmp_path: Path) -> None:
    items = _read(_DATA / "run.completion.json", tmp_path)
    opened, kwargs, head, asked, first, *results, seen, last = facts(items)
    assert opened == SessionOpened(format=1, agent="openai-chat", model="clock-1")
    assert isinstance(kwargs, Observed)
    assert json.loads(json.loads(kwargs.raw))["temperature"] == 0
    schema = '{"type": "object", "properties": {"path": {"type": "string"}}}'
    assert head == EpochOpened(
        sections=(Section(key="system", text="You fix clocks."),),
        tools=(Tool(name="read_file", description="Read a file.", schema=schema),),
    )
    assert asked == UserSaid(blocks=(Text(text="The clock in clock.py is late. 钟慢了。"),))
    assert first == ModelReplied(
        blocks=(
            Text(text="I look at both."),
            ToolCall(call_id="c1", name="read_file", arguments='{"path": "clock.py"}'),
            ToolCall(call_id="c2", name="run", arguments='{"command": "make test"}'),
        ),
        model="clock-1",
        stop_reason="tool_calls",
        usage=Usage(uncached=6, cached=4, written=20, output=9, cost_microusd=1000),
    )
    assert results == [
        ToolReturned(call_id="c1", blocks=(ToolResultRaw(text="LATE = 5"),), effect="read"),
        ToolReturned(call_id="c2", blocks=(ToolResultRaw(text=""),), effect="external"),
    ]
    assert seen == UserSaid(blocks=(Text(text="See?"), Image(media_type="image/png", artifact_id=_PNG, size=8)))
    assert last == ModelReplied(
        blocks=(Thought(text="Five is the delay."), Text(text="Set LATE to 0.")),
        model="clock-1",
        stop_reason="stop",
        usage=Usage(uncached=50, output=7, cost_microusd=2000),
        response_id="r2",
    )


def test_a_call_in_the_usage_file_dates_its_reply_and_nothing_else_is_dated(tmp_path: Path) -> None:
    items = _read(_DATA / "run.completion.json", tmp_path)
    dates = [item.at for item in items if isinstance(item, Said) and isinstance(item.fact, ModelReplied)]
    assert dates == [1700000001250, 1700000005500]
    assert {item.at for item in items if isinstance(item, Said) and isinstance(item.fact, ToolReturned)} == {0}


def test_an_anthropic_request_keeps_thinking_errors_images_and_parts_nobody_knows(tmp_path: Path) -> None:
    items = _read(_DATA / "anthropic.json", tmp_path)
    _, head, _, reply, *results, reminder, typed, second, odd, other = facts(items)
    assert isinstance(head, EpochOpened)
    assert head.sections == (Section(key="system", text="You mend gears."), Section(key="system.2", text="Be brief."))
    assert [tool.name for tool in head.tools] == ["grep", ""]
    assert json.loads(head.tools[1].schema) == {"type": "clairvoyance_1"}
    assert isinstance(reply, ModelReplied)
    thought, text, *calls = reply.blocks
    assert isinstance(thought, Thought)
    assert thought.text == "Look first."
    assert json.loads(thought.opaque)["signature"] == "c2ln"
    assert text == Text(text="Looking.")
    assert [call.name for call in calls if isinstance(call, ToolCall)] == ["grep", "bash"]
    picture = Image(media_type="image/png", artifact_id=_PNG, size=8)
    assert results == [
        ToolReturned(call_id="t1", blocks=(ToolResultRaw(text="gear.c:3: int teeth = 0;"), picture), effect="read"),
        ToolReturned(call_id="t2", blocks=(ToolResultRaw(text="make: *** [all] Error 2"),), is_error=True),
    ]
    assert reminder == HostSaid(
        kind="injected", blocks=(Text(text="<system-reminder>Mind the oil.</system-reminder>"),)
    )
    assert isinstance(typed, UserSaid)
    assert typed.blocks[0] == Text(text="Do not touch the spring.")
    assert isinstance(typed.blocks[1], Opaque)
    assert isinstance(second, ModelReplied)
    assert [type(block) for block in second.blocks] == [Opaque, Text]
    assert isinstance(odd, Observed)
    assert isinstance(other, Observed)
    assert [item.kind for item in items if isinstance(item, Unknown)] == ["message of role wizard", "message of role ?"]


def test_an_array_of_the_first_function_calls_is_paired_by_name(tmp_path: Path) -> None:
    items = _read(_DATA / "array.json", tmp_path)
    _, head, asked, call, result, told, reply = facts(items)
    assert head == EpochOpened(sections=(Section(key="system", text="Old style."),))
    assert isinstance(asked, UserSaid)
    assert isinstance(call, ModelReplied)
    assert call.blocks == (ToolCall(call_id="m3.call", name="count", arguments='{"what": "birds"'),)
    assert isinstance(result, ToolReturned)
    assert result.call_id == "m3.call"
    assert told == HostSaid(kind="injected", blocks=(Text(text="Answer in one word."),))
    assert isinstance(reply, ModelReplied)


def test_lines_of_messages_are_one_conversation_and_a_torn_end_is_said(tmp_path: Path) -> None:
    items = _read(_DATA / "lines.jsonl", tmp_path)
    asked = facts(items)[2]
    assert isinstance(asked, UserSaid)
    assert asked.blocks == (Text(text="Half an emoji: \ud83d"),)
    assert [item.uuid for item in items if isinstance(item, Said)] == ["open", "head", "2", "3"]
    assert any(isinstance(item, Note) and "torn" in item.text for item in items)
    assert [item.line for item in items if isinstance(item, Quarantined)] == [4]


def test_a_request_that_begins_with_the_one_before_it_continues_its_conversation(tmp_path: Path) -> None:
    items = _read(_DATA / "requests.jsonl", tmp_path)
    first, second = dict.fromkeys(item.session for item in items if isinstance(item, Said))
    said = facts(items, first)
    assert [type(fact) for fact in said] == [SessionOpened, UserSaid, ModelReplied, UserSaid, Observed]
    reply = said[2]
    assert isinstance(reply, ModelReplied)
    assert reply.usage == Usage(uncached=3, cached=1, written=8, written_1h=6, output=2)
    assert [type(fact) for fact in facts(items, second)] == [SessionOpened, UserSaid, ModelReplied]


def test_a_grown_file_keeps_its_session_and_its_uuids(tmp_path: Path) -> None:
    messages = json.loads((_DATA / "array.json").read_text())
    short, long = tmp_path / "a" / "x.json", tmp_path / "b" / "x.json"
    for path, size in ((short, 3), (long, 6)):
        path.parent.mkdir()
        path.write_text(json.dumps(messages[:size]))
    before, after = _read(short, tmp_path), _read(long, tmp_path)
    assert after[: len(before)] == before


@pytest.mark.parametrize("text", ["", "[]", "{}", "hello", '{"messages": 5}', '[{"role"', '{"type": "x"}'])
def test_what_holds_no_message_is_not_taken_for_a_conversation(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    if not chat.sniff(open_source(path)):
        return
    with pytest.raises(BadInput):
        list(chat.parse(open_source(path), DirBlobs(tmp_path)))


def test_a_message_nested_too_deep_is_kept_aside_and_the_others_are_read(tmp_path: Path) -> None:
    deep = '{"role":"user","content":[' + "[" * 600 + "]" * 600 + "]}"
    path = tmp_path / "x.json"
    path.write_text('[{"role":"user","content":"a"},' + deep + ',{"role":"assistant","content":"b"}]')
    items = _read(path, tmp_path / "store")
    assert figures(items).replies == 1


def test_every_shared_completion_log_has_the_figures_of_the_manifest(shared: Path, tmp_path: Path) -> None:
    """`uncached_input` of the manifest includes what was written to the cache: LiteLLM's prompt does."""
    entries = json.loads((shared / "MANIFEST.json").read_bytes())["files"]
    for entry in (entry for entry in entries if entry["format"] == chat.FORMAT):
        got = figures(_read(shared / entry["file"], tmp_path))
        usage = entry["usage"]
        assert (got.replies, got.calls, got.results) == (
            entry["assistant_steps"],
            entry["tool_calls"],
            entry["tool_results"],
        )
        assert (got.usages, got.uncached + got.written, got.cached, got.written, got.output) == (
            usage["calls_with_usage"],
            usage["uncached_input"],
            usage["cache_read"],
            usage["cache_write"],
            usage["output"],
        )


@pytest.mark.parametrize(
    ("text", "is_chat"),
    [
        ('{"at":1,"path":"/v1/messages","body":{"messages":[{"role":"user","content":"hi"}]}}\n', False),
        ('{"request":{"messages":[{"role":"user","content":"hi"}]},"status":200}\n{"request":{}}\n', False),
        ('{"messages":[{"role":"oracle","content":"hi"}]}', False),
        ('{"messages":[]}', False),
        ('[{"role":"oracle","content":"hi"},{"role":"user","content":"hi"}]', True),
        ('{"messages":[{"role":"user","content":"hi"}]}', True),
        ('{"role":"assistant","tool_calls":[]}\n', True),
        ('{"messages":[{"role":"user","content":"' + "x" * 2_000_000 + '"}]}', True),
        ('[{"role":"user","content":"' + "x" * 2_000_000 + '"}]', True),
        ('[{"kind":"log","text":"' + "x" * 2_000_000 + '"}]', False),
    ],
    ids=["log", "log-of-pairs", "role", "none", "list", "request", "line", "long", "long-list", "long-other"],
)
def test_only_messages_of_known_roles_are_sniffed(tmp_path: Path, text: str, is_chat: bool) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text(text)
    assert chat.sniff(open_source(path)) is is_chat
