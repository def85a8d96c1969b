from __future__ import annotations

from pathlib import Path

import pytest

from transom.adapters.blobs import DirBlobs
from transom.core.block import Image, Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import (
    EpochOpened,
    Fact,
    HostSaid,
    ModelReplied,
    Observed,
    Section,
    Seed,
    SessionOpened,
    ToolReturned,
    Usage,
    UserSaid,
)
from transom.importers import copilot_cli
from transom.importers.draft import Compacted, Item, Note, Quarantined, Said, Unknown
from transom.importers.source import open_source

__all__: list[str] = []

EVENTS = Path(__file__).parent / "data" / "copilot-cli" / "events.jsonl"
PICTURE = Image(
    media_type="image/png", artifact_id="6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0", size=70
)


@pytest.fixture
def items(tmp_path: Path) -> list[Item]:
    return read(EVENTS, tmp_path)


def read(path: Path, tmp_path: Path) -> list[Item]:
    return list(copilot_cli.parse(open_source(path), DirBlobs(tmp_path / "blobs", is_synced=False)))


def conversation(items: list[Item], session: str = "s-1") -> list[tuple[str, Fact]]:
    """(uuid, fact) of everything one session says that is not merely observed."""
    said = (item for item in items if isinstance(item, Said) and item.session == session)
    return [(item.uuid, item.fact) for item in said if not isinstance(item.fact, Observed)]


def injected(text: str) -> HostSaid:
    return HostSaid(kind="injected", blocks=(Text(text=text),))


def test_the_system_message_opens_the_epoch_and_typed_words_stand_alone(items: list[Item]) -> None:
    opened = SessionOpened(
        format=1,
        agent="copilot-cli",
        agent_version="1.0.64",
        model="gpt-5.4",
        provider="github-copilot",
        workspace="/srv/app",
    )
    assert conversation(items)[:5] == [
        ("session", opened),
        ("e4", EpochOpened(sections=(Section(key="system", text="You are a terminal assistant."),))),
        ("e5", injected("<now>15:00</now>\n\n")),
        ("e5.1", UserSaid(blocks=(Text(text="Fix it."), PICTURE))),
        ("e5.2", injected("\n\n<reminder>be brief</reminder>")),
    ]


def test_a_message_is_one_reply_and_its_results_are_what_was_sent(items: list[Item]) -> None:
    assert conversation(items)[5:9] == [
        (
            "e7",
            ModelReplied(
                blocks=(
                    Thought(text="Run it.", opaque='{"reasoningOpaque":"op","encryptedContent":"enc"}'),
                    Text(text="On it."),
                    ToolCall(call_id="c1", name="bash", arguments='{"command":"false"}'),
                    ToolCall(call_id="c2", name="apply_patch", arguments="*** Begin Patch\n*** End Patch"),
                    ToolCall(call_id="c3", name="task", arguments='{"prompt":"look"}'),
                ),
                model="gpt-5.4-mini",
                usage=Usage(output=54),
                response_id="resp_1",
            ),
        ),
        (
            "e9",
            ToolReturned(call_id="c1", blocks=(ToolResultRaw(text="no\n<exited with exit code 1>"),), exit_code=1),
        ),
        (
            "e10",
            ToolReturned(
                call_id="c2", blocks=(ToolResultRaw(text="patch does not apply"),), is_error=True, effect="write"
            ),
        ),
        ("e14", ToolReturned(call_id="c3", blocks=(ToolResultRaw(text="nothing found"),))),
    ]


def test_what_a_sub_agent_did_is_a_child_session_of_the_call_that_started_it(items: list[Item]) -> None:
    child = "s-1/c3"
    (opened, *rest) = conversation(items, child)
    assert isinstance(opened[1], SessionOpened)
    assert opened[1].kind == "child"
    (start,) = (item for item in items if isinstance(item, Said) and (item.session, item.uuid) == (child, "session"))
    assert start.parent == ("s-1", "e7")
    call = ToolCall(call_id="k1", name="view", arguments='{"path":"/srv/app/a.css"}')
    assert rest == [
        ("e12", ModelReplied(blocks=(call,), model="gpt-5.4", usage=Usage(output=0))),
        ("e13", ToolReturned(call_id="k1", blocks=(ToolResultRaw(text="a picture"), PICTURE), effect="read")),
    ]


def test_skills_and_notifications_are_the_hosts_and_a_new_system_prompt_a_new_epoch(items: list[Item]) -> None:
    planner = EpochOpened(sections=(Section(key="system", text="You are a planner."),), reason="change:system")
    assert conversation(items)[9:12] == [
        ("e15", injected("<skill-context>be kind</skill-context>")),
        ("e16", injected("<system_notification>a shell ended</system_notification>")),
        ("e18", planner),
    ]


def test_a_compaction_opens_a_window_of_its_summary(items: list[Item]) -> None:
    assert [item for item in items if isinstance(item, Compacted)] == [
        Compacted(
            session="s-1",
            uuid="e20.window",
            at=1777906820000,
            seed=(Seed(role="host", blocks=(Text(text="It was broken."),)),),
            tokens_before=9000,
        )
    ]


def test_typed_words_that_were_sent_otherwise_are_kept_with_what_was_sent(items: list[Item]) -> None:
    assert conversation(items)[12:] == [
        ("u2", UserSaid(blocks=(Text(text="typed"),))),
        ("u2.1", injected("something else")),
        ("e22", ModelReplied(blocks=(Text(text="Done."),), model="gpt-5.4")),
    ]


def test_a_rewind_forks_from_before_the_message_it_took_back(items: list[Item]) -> None:
    fork = "s-1~rw"
    (start,) = (item for item in items if isinstance(item, Said) and (item.session, item.uuid) == (fork, "session"))
    assert start.parent == ("s-1", "e20.window")
    assert conversation(items, fork)[1:] == [
        ("e26", UserSaid(blocks=(Text(text="Better so."),))),
        ("u2", ModelReplied(blocks=(Text(text="Yes."),), model="gpt-5.4", usage=Usage(output=2))),
    ]


def test_the_screen_the_unknown_and_the_torn_end_are_kept(items: list[Item]) -> None:
    observed = {item.uuid: item.fact for item in items if isinstance(item, Said) and isinstance(item.fact, Observed)}
    assert observed["e9.1"] == Observed(kind="detailedContent", raw='"shown"')
    assert observed["e17"].kind == "system.message", "the same prompt again changes nothing"
    assert observed["29"].kind == "user.message", "a record without an id goes by its line"
    assert [item.kind for item in items if isinstance(item, Unknown)] == ["hologram.shown", "user.message"]
    assert [item.raw for item in items if isinstance(item, Quarantined)] == ['{"type":"user.mess']
    assert any(isinstance(item, Note) for item in items)


def test_a_session_is_opened_even_if_nothing_is_said_to_the_model(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"type":"hook.start"}\n' * 100, encoding="utf-8")
    first, *rest = read(path, tmp_path)
    assert isinstance(first, Said)
    assert isinstance(first.fact, SessionOpened)
    assert (first.session, len(rest)) == ("main", 100)
    path.write_bytes(b"")
    assert read(path, tmp_path) == []


def test_only_a_session_is_sniffed(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text('{"type":"user","data":{}}\n{"type":"session.start","data":{}}\n', encoding="utf-8")
    assert copilot_cli.sniff(open_source(EVENTS))
    assert not copilot_cli.sniff(open_source(other))
