from __future__ import annotations

import json
from pathlib import Path

import pytest

from transom.adapters.blobs import DirBlobs
from transom.core.block import Image, Opaque, Text, Thought, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.event import (
    EpochOpened,
    Fact,
    HostSaid,
    ModelReplied,
    Observed,
    RequestFailed,
    Section,
    SessionOpened,
    ToolReturned,
    Usage,
    UserSaid,
)
from transom.errors import BadInput
from transom.importers import opencode
from transom.importers.draft import Cleared, Compacted, Item, Said, Unknown
from transom.importers.source import open_source

__all__: list[str] = []

SESSION = Path(__file__).parent / "data" / "opencode" / "session.json"
PICTURE = Image(
    media_type="image/png", artifact_id="6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0", size=70
)


@pytest.fixture
def items(tmp_path: Path) -> list[Item]:
    return read(SESSION, tmp_path)


def read(path: Path, tmp_path: Path) -> list[Item]:
    return list(opencode.parse(open_source(path), DirBlobs(tmp_path / "blobs", is_synced=False)))


def conversation(items: list[Item]) -> list[tuple[str, Fact]]:
    """(uuid, fact) of everything that is not merely observed."""
    said = (item for item in items if isinstance(item, Said))
    return [(item.uuid, item.fact) for item in said if not isinstance(item.fact, Observed)]


def result(call_id: str, text: str) -> ToolReturned:
    return ToolReturned(call_id=call_id, blocks=(ToolResultRaw(text=text),))


def test_an_export_opens_with_its_title_its_place_and_its_system_prompt(items: list[Item]) -> None:
    opened = SessionOpened(
        format=1,
        agent="opencode",
        agent_version="1.14.30",
        model="gpt-5.4",
        provider="openai",
        workspace="/srv/app",
        title="Grey button",
    )
    sections = (Section(key="system-1", text="Be brief."), Section(key="system-2", text="Use tabs."))
    assert conversation(items)[:2] == [("session", opened), ("epoch", EpochOpened(sections=sections))]


def test_what_a_person_gave_and_what_the_client_put_in_are_told_apart(items: list[Item]) -> None:
    pdf = '{"type":"file","mime":"application/pdf","url":"data:application/pdf;base64,JVBERi0="}'
    assert conversation(items)[2:5] == [
        ("msg_1", UserSaid(blocks=(Text(text="Look at @a.css please"),))),
        ("msg_1.1", HostSaid(kind="injected", blocks=(Text(text="1: .grey {}"),))),
        (
            "msg_1.2",
            UserSaid(
                blocks=(
                    PICTURE,
                    Opaque(kind="file", raw=pdf),
                    Image(media_type="image/jpeg", url="https://example.invalid/a.jpg"),
                )
            ),
        ),
    ]


def test_each_step_is_one_reply_followed_by_its_results(items: list[Item]) -> None:
    assert conversation(items)[5:10] == [
        (
            "msg_2",
            ModelReplied(
                blocks=(
                    Thought(text="Read both.", opaque='{"openai": {"itemId": "rs_1"}}'),
                    Text(text="Reading."),
                    ToolCall(call_id="call_1", name="read", arguments='{"filePath": "/srv/app/a.css"}'),
                    ToolCall(call_id="call_2", name="bash", arguments='{"command": "false"}'),
                ),
                model="gpt-5.4",
                stop_reason="tool-calls",
                usage=Usage(uncached=100, cached=1000, written=15, output=65, reasoning=25, cost_microusd=12500),
            ),
        ),
        ("prt_13", ToolReturned(call_id="call_1", blocks=(ToolResultRaw(text="1: .grey {}"),), effect="read")),
        ("prt_14", ToolReturned(call_id="call_2", blocks=(ToolResultRaw(text="no\n"), PICTURE), exit_code=1)),
        (
            "msg_2.1",
            ModelReplied(
                blocks=(
                    ToolCall(call_id="call_3", name="edit", arguments='{"filePath": "/srv/app/a.css"}'),
                    ToolCall(call_id="call_4", name="bash", arguments='{"command": "sleep 9"}'),
                ),
                model="gpt-5.4",
                stop_reason="stop",
            ),
        ),
        (
            "prt_18",
            ToolReturned(
                call_id="call_3", blocks=(ToolResultRaw(text="oldString not found"),), is_error=True, effect="write"
            ),
        ),
    ]


def test_a_sub_task_a_person_started_is_a_reply_without_usage(items: list[Item]) -> None:
    started = HostSaid(kind="injected", blocks=(Text(text="The following tool was executed by the user"),))
    call = ToolCall(call_id="call_5", name="task", arguments='{"prompt": "Review it."}')
    told = HostSaid(kind="injected", blocks=(Text(text="Summarize the task tool output above."),))
    assert conversation(items)[10:14] == [
        ("REDACTED", started),
        ("msg_4", ModelReplied(blocks=(call,), model="gpt-5.4", stop_reason="tool-calls")),
        ("prt_31", result("call_5", "Fine.")),
        ("REDACTED.1", told),
    ]


def test_an_error_left_the_prompt_and_an_aborted_reply_did_not(items: list[Item]) -> None:
    assert conversation(items)[14:16] == [
        ("msg_5", RequestFailed(kind="overflow", message="too long")),
        ("msg_6", ModelReplied(blocks=(Text(text="I was"),), model="gpt-5.4", stop_reason="aborted")),
    ]
    unsent = [item.fact for item in items if isinstance(item, Said) and item.uuid == "msg_5.unsent"]
    assert unsent == [Observed(kind="unsent", raw='{"id": "prt_33", "type": "text", "text": "half a"}')]


def test_outputs_pruned_between_two_messages_are_cleared_there(items: list[Item]) -> None:
    cleared = Cleared(
        session="ses_a1",
        uuid="pruned.1035",
        at=1036,
        how="mask",
        targets=(
            ("prt_13", ToolResultRef(text="[Old tool result content cleared]", size=11)),
            ("prt_14", ToolResultRef(text="[Old tool result content cleared]", size=3)),
        ),
    )
    place = items.index(cleared)
    following = items[place + 1]
    assert isinstance(following, Said)
    assert following.uuid == "msg_7"


def test_a_compaction_keeps_its_question_and_its_summary(items: list[Item]) -> None:
    place = next(number for number, item in enumerate(items) if isinstance(item, Compacted))
    assert items[place] == Compacted(
        session="ses_a1", uuid="msg_8.compaction", at=1041, seed=(), kept_tail=("msg_7", "msg_8"), tokens_before=1180
    )
    summary = ModelReplied(
        blocks=(Text(text="## Goal\nThe button."),),
        model="gpt-5.4",
        stop_reason="stop",
        usage=Usage(uncached=900, output=50, reasoning=0, cost_microusd=0),
    )
    assert ("msg_8", summary) in conversation(items)


def test_a_revert_that_stands_is_a_fork_from_before_it(items: list[Item]) -> None:
    fork = items[-1]
    assert isinstance(fork, Said)
    assert isinstance(fork.fact, SessionOpened)
    assert (fork.session, fork.parent, fork.fact.kind) == ("ses_a1~msg_9", ("ses_a1", "msg_8.compaction"), "fork")


def test_what_was_never_sent_and_what_nobody_understands_is_kept_raw(items: list[Item]) -> None:
    observed = {item.uuid: item.fact for item in items if isinstance(item, Said) and isinstance(item.fact, Observed)}
    assert observed["prt_14.metadata"] == Observed(kind="tool/metadata", raw='{"exit": 1}')
    assert observed["msg_2.patch"] == Observed(
        kind="patch", raw='{"id": "prt_16", "type": "patch", "hash": "h1", "files": []}'
    )
    assert observed["msg_2.unknown"].raw == '{"id": "prt_21", "type": "hologram", "depth": 3}'
    assert {"msg_1.file", "msg_1.text", "REDACTED.subtask", "msg_2.info"} <= observed.keys()
    assert [item.kind for item in items if isinstance(item, Unknown)] == ["hologram", "?"]


def test_a_document_that_is_no_export_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_text('{"info": {"id": "ses_1"}, "messages": 3}', encoding="utf-8")
    with pytest.raises(BadInput, match="messages"):
        read(path, tmp_path)


def test_a_negative_count_is_no_count_and_a_lone_surrogate_is_kept(tmp_path: Path) -> None:
    finish = {"type": "step-finish", "cost": -1, "tokens": {"input": -5, "output": 3}}
    parts = [{"type": "text", "text": "a \ud83d b"}, finish]
    document = {
        "info": {"id": "ses_2"},
        "messages": [{"info": {"role": "assistant", "id": "m", "finish": "stop"}, "parts": parts}],
    }
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    (reply,) = (fact for _, fact in conversation(read(path, tmp_path)) if isinstance(fact, ModelReplied))
    assert reply.blocks == (Text(text="a \ud83d b"),)
    assert reply.usage == Usage(output=3, reasoning=0, cost_microusd=0)


def test_only_an_export_is_sniffed(tmp_path: Path) -> None:
    other = tmp_path / "run.traj.json"
    other.write_text('{"info": {"model_stats": {}}, "messages": []}', encoding="utf-8")
    assert opencode.sniff(open_source(SESSION))
    assert not opencode.sniff(open_source(other))
