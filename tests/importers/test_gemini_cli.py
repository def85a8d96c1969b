from __future__ import annotations

from pathlib import Path

import pytest

from transom.adapters.blobs import DirBlobs
from transom.core.block import Image, Opaque, Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import Fact, HostSaid, ModelReplied, Observed, SessionOpened, ToolReturned, Usage, UserSaid
from transom.errors import BadInput
from transom.importers import gemini_cli
from transom.importers.draft import Item, Said, Unknown
from transom.importers.source import open_source

__all__: list[str] = []

SESSION = Path(__file__).parent / "data" / "gemini-cli" / "session.json"
PICTURE = Image(
    media_type="image/png", artifact_id="6b7fa434f92a8b80aab02d9bf1a12e49ffcae424e4013a1c4f68b67e3d2bbcd0", size=70
)


@pytest.fixture
def items(tmp_path: Path) -> list[Item]:
    return list(gemini_cli.parse(open_source(SESSION), DirBlobs(tmp_path / "blobs", is_synced=False)))


def conversation(items: list[Item]) -> list[tuple[str, Fact]]:
    """(uuid, fact) of everything that is not merely observed."""
    said = (item for item in items if isinstance(item, Said))
    return [(item.uuid, item.fact) for item in said if not isinstance(item.fact, Observed)]


def test_a_session_opens_with_its_summary_and_its_place(items: list[Item]) -> None:
    opened = SessionOpened(
        format=1, agent="gemini-cli", model="gemini-3", provider="google", workspace="/srv/app", title="Icons"
    )
    first = items[0]
    assert isinstance(first, Said)
    assert (first.session, first.at, first.fact) == ("g-1", 1776160800000, opened)


def test_typed_words_and_the_files_they_name_are_told_apart(items: list[Item]) -> None:
    files = Opaque(kind="part", raw='{"fileData": {"fileUri": "gs://x"}}')
    assert conversation(items)[1:3] == [
        ("m1", UserSaid(blocks=(Text(text="Fix @README.md"), PICTURE, files))),
        (
            "m1.1",
            HostSaid(
                kind="injected",
                blocks=(Text(text="\n--- Content from referenced files ---"), Text(text="# Title")),
            ),
        ),
    ]


def test_a_message_is_one_reply_followed_by_its_results(items: list[Item]) -> None:
    assert conversation(items)[3:7] == [
        (
            "m2",
            ModelReplied(
                blocks=(
                    Thought(text="Plan\n\nRead first."),
                    Text(text="Reading."),
                    ToolCall(call_id="r_1", name="read_file", arguments='{"file_path": "README.md"}'),
                    ToolCall(call_id="s_1", name="run_shell_command", arguments='{"command": "false"}'),
                    ToolCall(call_id="q_1", name="ask", arguments="{}"),
                    ToolCall(call_id="w_1", name="write_file", arguments="{}"),
                ),
                model="gemini-3",
                usage=Usage(uncached=405, cached=600, output=70, reasoning=20),
            ),
        ),
        ("r_1", ToolReturned(call_id="r_1", blocks=(ToolResultRaw(text="# Title"), PICTURE), effect="read")),
        (
            "s_1",
            ToolReturned(
                call_id="s_1",
                blocks=(ToolResultRaw(text="Output: no\nExit Code: 1"), ToolResultRaw(text="and so on")),
                exit_code=1,
            ),
        ),
        ("q_1", ToolReturned(call_id="q_1", blocks=(ToolResultRaw(text='{"answer": 42}'),))),
    ]


def test_a_cancelled_call_is_a_reply_without_usage_and_an_error(items: list[Item]) -> None:
    call = ToolCall(call_id="s_2", name="run_shell_command", arguments='{"command": "git add"}')
    assert conversation(items)[7:9] == [
        ("m3", ModelReplied(blocks=(call,), model="gemini-3")),
        (
            "s_2",
            ToolReturned(call_id="s_2", blocks=(ToolResultRaw(text="[Operation Cancelled]"),), is_error=True),
        ),
    ]


def test_an_id_that_comes_again_gets_a_suffix_and_odd_counts_are_none(items: list[Item]) -> None:
    assert conversation(items)[9:] == [
        ("m4", UserSaid(blocks=(Text(text="Only that."),))),
        ("m4.1", UserSaid(blocks=(Text(text="And this."),))),
        (
            "m5",
            ModelReplied(blocks=(Text(text="Done."),), model="gemini-3", usage=Usage(cached=30, output=0, reasoning=0)),
        ),
    ]


def test_the_screen_and_what_nobody_understands_are_kept_raw(items: list[Item]) -> None:
    observed = {item.uuid: item.fact for item in items if isinstance(item, Said) and isinstance(item.fact, Observed)}
    assert observed["m0"].kind == "info"
    assert observed["r_1.display"] == Observed(kind="resultDisplay", raw='"read"')
    assert observed["unknown.hologram"].raw == '{"id": "m6", "type": "hologram"}'
    assert observed["unknown.user"].raw == '{"id": 7, "type": "user"}'
    assert [item.kind for item in items if isinstance(item, Unknown)] == ["hologram", "user"]


def test_only_a_session_is_sniffed_and_a_broken_one_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"sessionId": "x", "messages": []}', encoding="utf-8")
    assert gemini_cli.sniff(open_source(SESSION))
    assert not gemini_cli.sniff(open_source(other))
    other.write_text('{"sessionId": "x", "messages": [', encoding="utf-8")
    with pytest.raises(BadInput, match="other"):
        list(gemini_cli.parse(open_source(other), DirBlobs(tmp_path / "blobs", is_synced=False)))
