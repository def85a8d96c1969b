from __future__ import annotations

from pathlib import Path

import pytest

from transom.adapters.blobs import DirBlobs
from transom.core.block import Image, Opaque, Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import (
    EpochOpened,
    Fact,
    HostSaid,
    ModelReplied,
    Observed,
    Section,
    Seed,
    SessionOpened,
    Tool,
    ToolReturned,
    Usage,
    UserSaid,
)
from transom.importers import codex
from transom.importers.draft import Compacted, Item, Note, Quarantined, Said, Unknown
from transom.importers.source import open_source

__all__: list[str] = []

DATA = Path(__file__).parent / "data" / "codex"
PICTURE = "6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0"


@pytest.fixture
def blobs(tmp_path: Path) -> DirBlobs:
    return DirBlobs(tmp_path / "blobs", is_synced=False)


def items_of(path: Path, blobs: DirBlobs) -> list[Item]:
    return list(codex.parse(open_source(path), blobs))


def conversation(items: list[Item]) -> list[tuple[str, Fact]]:
    """(uuid, fact) of everything that is not merely observed."""
    said = (item for item in items if isinstance(item, Said))
    return [(item.uuid, item.fact) for item in said if not isinstance(item.fact, Observed)]


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "rollout.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogatepass")
    return path


def test_a_rollout_whose_token_counts_follow_the_outputs_is_read_whole(blobs: DirBlobs) -> None:
    items = items_of(DATA / "after_outputs.jsonl", blobs)
    agents, environment = (
        "# AGENTS.md instructions for /srv/app\n\nUse tabs.",
        "<environment_context>\n  <cwd>/srv/app</cwd>\n</environment_context>",
    )
    thought = '{"type":"reasoning","summary":[{"type":"summary_text","text":"Look at the styles."}],"encrypted_content":"gAAA"}'
    search = '{"type":"web_search_call","status":"completed","action":{"type":"search","query":"grey button"}}'
    page = "Chunk ID: 1f\nWall time: 0.1 seconds\nProcess exited with code 1\nOriginal token count: 3\nOutput:\n"
    patch = "apply_patch verification failed: Failed to find expected lines in /srv/app/a.css"
    interrupted = "<turn_aborted>\nThe user interrupted the previous turn.\n</turn_aborted>"
    assert conversation(items) == [
        (
            "session",
            SessionOpened(
                format=1,
                agent="codex",
                agent_version="0.142.4",
                model="gpt-5.5",
                provider="openai",
                workspace="/srv/app",
                context_limit=258400,
            ),
        ),
        (
            "epoch",
            EpochOpened(
                sections=(Section(key="base_instructions", text="You fix things."),),
                tools=(Tool(name="notify", description="Tell someone.", schema='{"type":"object"}'),),
            ),
        ),
        ("3", HostSaid(kind="injected", blocks=(Text(text="<permissions instructions>\nAsk first."),))),
        ("4", HostSaid(kind="injected", blocks=(Text(text=agents), Text(text=environment)))),
        (
            "6",
            UserSaid(
                blocks=(
                    Text(text="Why is the button grey?"),
                    Image(media_type="image/png", artifact_id=PICTURE, size=70),
                )
            ),
        ),
        (
            "8",
            ModelReplied(
                blocks=(
                    Thought(text="Look at the styles.", opaque=thought),
                    Text(text="Looking."),
                    ToolCall(call_id="c1", name="exec_command", arguments='{"cmd":"cat a.css"}'),
                    ToolCall(call_id="c2", name="mcp__web__get_page", arguments="{}"),
                ),
                model="gpt-5.5",
                usage=Usage(uncached=400, cached=600, output=50, reasoning=20),
            ),
        ),
        (
            "13",
            ToolReturned(call_id="c1", blocks=(ToolResultRaw(text=page + "cat: a.css: No such file"),), exit_code=1),
        ),
        (
            "14",
            ToolReturned(
                call_id="c2",
                blocks=(ToolResultRaw(text="a page"), Image(media_type="", url="https://example.invalid/shot.png")),
            ),
        ),
        (
            "17",
            ModelReplied(
                blocks=(
                    Opaque(kind="web_search_call", raw=search),
                    ToolCall(call_id="c3", name="apply_patch", arguments="*** Begin Patch\n*** End Patch"),
                ),
                model="gpt-5.5",
                usage=Usage(uncached=100, cached=1000, output=30, reasoning=0),
            ),
        ),
        ("19", ToolReturned(call_id="c3", blocks=(ToolResultRaw(text=patch),), is_error=True, effect="write")),
        (
            "21",
            ModelReplied(
                blocks=(ToolCall(call_id="c4", name="tool_search", arguments='{"query":"issues"}'),),
                model="gpt-5.5",
                usage=Usage(uncached=100, cached=1100, output=20, reasoning=0),
            ),
        ),
        (
            "22",
            ToolReturned(
                call_id="c4", blocks=(ToolResultRaw(text='[{"type":"namespace","name":"issues"}]'),), effect="read"
            ),
        ),
        (
            "28",
            ModelReplied(
                blocks=(Thought(text="", opaque='{"type":"reasoning","summary":[]}'),),
                model="gpt-5.5",
                stop_reason="aborted",
            ),
        ),
        ("30", HostSaid(kind="injected", blocks=(Text(text=interrupted),))),
        ("35", UserSaid(blocks=(Text(text="Go on."),))),
        (
            "36",
            ModelReplied(
                blocks=(Text(text="It is disabled."),),
                model="gpt-5.5",
                usage=Usage(uncached=380, cached=100, output=20, reasoning=0),
            ),
        ),
        ("39", UserSaid(blocks=(Text(text="Thanks. Fix it."),))),
    ]
    assert blobs.has(PICTURE)


def test_a_compaction_opens_a_window_of_its_replacement_history(blobs: DirBlobs) -> None:
    items = items_of(DATA / "after_outputs.jsonl", blobs)
    assert [item for item in items if isinstance(item, Compacted)] == [
        Compacted(
            session="thread-1",
            uuid="32",
            at=1780308032000,
            seed=(
                Seed(role="user", blocks=(Text(text="Why is the button grey?"),)),
                Seed(role="host", blocks=(Text(text="Ask first."),)),
                Seed(role="assistant", blocks=(Text(text="Looking."),)),
                Seed(
                    role="host",
                    blocks=(Opaque(kind="compaction", raw='{"type":"compaction","encrypted_content":"gBBB"}'),),
                ),
            ),
            tokens_before=1220,
        )
    ]


def test_what_was_never_sent_and_what_nobody_understands_is_kept_raw(blobs: DirBlobs) -> None:
    items = items_of(DATA / "after_outputs.jsonl", blobs)
    lines = (DATA / "after_outputs.jsonl").read_text("utf-8").splitlines()
    observed = {item.uuid: item.fact for item in items if isinstance(item, Said) and isinstance(item.fact, Observed)}
    assert observed["9"] == Observed(kind="event_msg/agent_message", raw=lines[8])
    assert observed["24"] == Observed(kind="response_item/ghost_snapshot", raw=lines[23])
    assert observed["26"] == Observed(kind="weather/?", raw=lines[25])
    unknown = [item.kind for item in items if isinstance(item, Unknown)]
    assert unknown == ["response_item/hologram", "weather/?", "response_item/function_call"]


def test_a_response_the_file_ends_in_is_quarantined(blobs: DirBlobs) -> None:
    items = items_of(DATA / "after_outputs.jsonl", blobs)
    lines = (DATA / "after_outputs.jsonl").read_text("utf-8").splitlines()
    *_, user, first, second = items
    assert isinstance(user, Said)
    assert user.fact == UserSaid(blocks=(Text(text="Thanks. Fix it."),))
    assert isinstance(first, Quarantined)
    assert isinstance(second, Quarantined)
    assert [(item.line, item.raw) for item in (first, second)] == [(40, lines[39]), (41, lines[40])]


def test_a_rollout_whose_token_counts_come_before_the_outputs_is_read_whole(blobs: DirBlobs) -> None:
    items = items_of(DATA / "before_outputs.jsonl", blobs)
    done = "Command: /bin/sh -lc true\nChunk ID: 9\nWall time: 0.0 seconds\nProcess exited with code 0\nOutput:\n"
    opened = SessionOpened(
        format=1,
        agent="codex",
        agent_version="0.118.0",
        model="gpt-5.4",
        provider="openai",
        workspace="/srv/app",
        context_limit=258400,
    )
    assert conversation(items)[:6] == [
        ("session", opened),
        ("4", UserSaid(blocks=(Text(text="Run both."),))),
        (
            "6",
            ModelReplied(
                blocks=(
                    ToolCall(call_id="a1", name="shell_command", arguments='{"command":"true"}'),
                    ToolCall(call_id="a2", name="update_plan", arguments='{"plan":[]}'),
                ),
                model="gpt-5.4",
                usage=Usage(uncached=200, output=10, reasoning=0),
            ),
        ),
        ("9", ToolReturned(call_id="a1", blocks=(ToolResultRaw(text=done),), exit_code=0)),
        ("10", UserSaid(blocks=(Text(text="And quickly."),))),
        ("11", ToolReturned(call_id="a2", blocks=(ToolResultRaw(text="Plan updated"),), effect="none")),
    ]


def test_two_values_on_one_line_are_two_records_with_two_uuids(blobs: DirBlobs) -> None:
    items = items_of(DATA / "before_outputs.jsonl", blobs)
    said = {item.uuid: item.fact for item in items if isinstance(item, Said)}
    reply, screen = said["12"], said["12.1"]
    assert isinstance(reply, ModelReplied)
    assert reply.usage == Usage(uncached=0, output=20, reasoning=0), "a negative count is no count"
    assert isinstance(screen, Observed)
    assert screen.kind == "event_msg/agent_message"


def test_a_rollback_forks_from_before_the_turns_it_took_away(blobs: DirBlobs) -> None:
    items = items_of(DATA / "before_outputs.jsonl", blobs)
    said = [item for item in items if isinstance(item, Said)]
    (fork,) = (item for item in said if isinstance(item.fact, SessionOpened) and item.fact.kind == "fork")
    assert fork.session == "thread-2~16"
    assert fork.parent == ("thread-2", "9")
    assert [item.uuid for item in said if item.session == fork.session] == ["session", "17", "18", "19", "20"]
    assert Note(text="this rollout continues thread thread-0, which is another file") in items


def test_a_rollout_whose_token_counts_lead_the_items_gives_each_reply_its_own(blobs: DirBlobs) -> None:
    replies = [fact for _, fact in conversation(items_of(DATA / "before_items.jsonl", blobs))]
    assert [fact.usage for fact in replies if isinstance(fact, ModelReplied)] == [
        Usage(uncached=100, output=10, reasoning=0),
        Usage(uncached=15, cached=100, output=15, reasoning=0),
        Usage(uncached=10, cached=115, output=15, reasoning=0),
    ]
    results = [fact for fact in replies if isinstance(fact, ToolReturned)]
    assert [fact.exit_code for fact in results] == [0, None], "the first form wraps the code in JSON"
    assert isinstance(replies[3], ModelReplied)
    assert replies[3].blocks[0] == Thought(
        text="ls", opaque='{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"ls"}]}'
    )


def test_a_rollout_without_token_counts_ends_a_response_at_its_outputs(blobs: DirBlobs, tmp_path: Path) -> None:
    call = '{"type":"response_item","payload":{"type":"local_shell_call","call_id":"s%d","action":{"command":["ls"]}}}'
    out = '{"type":"response_item","payload":{"type":"function_call_output","call_id":"s%d","output":"Exit code: 3"}}'
    end = '{"type":"response_item","payload":{"type":"message","role":"assistant","content":[]}}'
    picture = '{"type":"response_item","payload":{"type":"image_generation_call","id":"ig"}}'
    path = written(tmp_path, call % 1, out % 1, call % 2, out % 2, picture, end)
    facts = [fact for _, fact in conversation(items_of(path, blobs))]
    shell = ToolCall(call_id="s1", name="local_shell", arguments='{"command":["ls"]}')
    assert facts[1] == ModelReplied(blocks=(shell,))
    assert facts[2] == ToolReturned(call_id="s1", blocks=(ToolResultRaw(text="Exit code: 3"),), exit_code=3)
    assert facts[-1] == ModelReplied(
        blocks=(Opaque(kind="image_generation_call", raw='{"type":"image_generation_call","id":"ig"}'),)
    )


def test_odd_seeds_and_an_old_summary_are_kept(blobs: DirBlobs, tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '{"type":"session_meta","payload":{"id":"t"}}',
        '{"type":"compacted","payload":{"message":"So far: nothing.","replacement_history":[{"type":"message"},7,'
        '{"type":"message","role":"user","content":[{"type":"input_text","text":"<environment_context>"}]},'
        '{"type":"message","role":"user","content":[{"type":"input_audio"}]}]}}',
        '{"type":"response_item","payload":{"type":"compaction","encrypted_content":"x"}}',
        '{"type":"event_msg","payload":{"type":"thread_rolled_back","num_turns":2}}',
    )
    items = items_of(path, blobs)
    (compacted,) = (item for item in items if isinstance(item, Compacted))
    assert [seed.role for seed in compacted.seed] == ["host", "host", "host", "user", "host"]
    assert compacted.seed[0].blocks == (Opaque(kind="message", raw='{"type":"message"}'),)
    assert compacted.seed[1].blocks == (Opaque(kind="?", raw="7"),)
    assert compacted.seed[-1].blocks == (Text(text="So far: nothing."),)
    kinds = [type(fact) for _, fact in conversation(items)]
    assert kinds == [SessionOpened, HostSaid], "nothing to roll back: no fork"


def test_a_meta_line_of_another_shape_does_not_lose_the_rest(blobs: DirBlobs, tmp_path: Path) -> None:
    say = '{"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"%s"}]}}'
    path = written(tmp_path, '{"type":"session_meta","payload":{"id":7}}', "{}", say % "\\ud83d cut", say % "whole")
    items = items_of(path, blobs)
    assert Unknown(kind="session_meta/?") in items
    assert [item.line for item in items if isinstance(item, Quarantined)] == [2]
    said = [item.fact for item in items if isinstance(item, Said) and isinstance(item.fact, UserSaid)]
    assert said == [UserSaid(blocks=(Text(text="\ud83d cut"),)), UserSaid(blocks=(Text(text="whole"),))]


@pytest.mark.parametrize(
    ("source", "parent"),
    [
        ('{"subagent":{"thread_spawn":{"parent_thread_id":"thread-0","depth":1}}}', ("thread-0", "")),
        ('{"subagent":"review"}', None),
        ('"cli"', None),
    ],
)
def test_a_rollout_of_a_sub_agent_is_a_child_of_the_thread_that_spawned_it(
    blobs: DirBlobs, tmp_path: Path, source: str, parent: tuple[str, str] | None
) -> None:
    meta = '{"type":"session_meta","payload":{"id":"t","source":' + source + "}}"
    first, *_ = items_of(written(tmp_path, meta), blobs)
    assert isinstance(first, Said)
    assert isinstance(first.fact, SessionOpened)
    assert (first.fact.kind, first.parent) == ("child" if parent else "root", parent)


def test_many_items_before_the_first_reply_are_not_held_back_for_ever(blobs: DirBlobs, tmp_path: Path) -> None:
    note = '{"type":"event_msg","payload":{"type":"warning"}}'
    path = written(tmp_path, '{"type":"session_meta","payload":{"id":"t"}}', *[note] * 1000)
    items = codex.parse(open_source(path), blobs)
    first = next(items)
    assert isinstance(first, Said)
    assert isinstance(first.fact, SessionOpened)
    assert sum(1 for _ in items) == 1001


def test_an_empty_rollout_says_nothing_and_is_not_sniffed(blobs: DirBlobs, tmp_path: Path) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_bytes(b"")
    assert items_of(path, blobs) == []
    assert not codex.sniff(open_source(path))
    assert codex.sniff(open_source(DATA / "after_outputs.jsonl"))
