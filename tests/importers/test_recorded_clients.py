"""The recorded sessions of Codex, opencode, Gemini CLI and Copilot CLI, against what their manifest counts.

Where a figure is counted otherwise here, the reason stands beside the number. All other figures are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from transom.adapters.blobs import DirBlobs
from transom.core.block import Opaque, ToolCall
from transom.core.event import HostSaid, ModelReplied, SessionOpened, ToolReturned, Usage, UserSaid
from transom.importers import codex, copilot_cli, gemini_cli, opencode
from transom.importers.draft import Cleared, Compacted, Item, Quarantined, Said, Unknown
from transom.importers.source import Source, open_source
from transom.ports import Blobs

__all__: list[str] = []

PARSERS: dict[str, tuple[Callable[[Source], bool], Callable[[Source, Blobs], Iterator[Item]]]] = {
    codex.FORMAT: (codex.sniff, codex.parse),
    copilot_cli.FORMAT: (copilot_cli.sniff, copilot_cli.parse),
    gemini_cli.FORMAT: (gemini_cli.sniff, gemini_cli.parse),
    opencode.FORMAT: (opencode.sniff, opencode.parse),
}


class Figures(msgspec.Struct):
    calls_with_usage: int = 0
    uncached_input: int = 0
    cache_read: int = 0
    output: int = 0
    cache_write: int | None = None


class Entry(msgspec.Struct):
    file: str
    format: str
    user_prompts: int
    assistant_steps: int
    tool_calls: int
    tool_results: int
    tool_errors: int
    usage: Figures | None = None
    compaction: dict[str, int] | None = None


class Manifest(msgspec.Struct):
    files: list[Entry]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One file as read, and what the manifest says of it."""

    entry: Entry
    items: list[Item]

    @property
    def name(self) -> str:
        return self.entry.file.partition("--")[2].split(".")[0]

    def facts(self) -> list[Said]:
        return [item for item in self.items if isinstance(item, Said)]

    def replies(self) -> list[ModelReplied]:
        return [said.fact for said in self.facts() if isinstance(said.fact, ModelReplied)]

    def results(self) -> list[ToolReturned]:
        return [said.fact for said in self.facts() if isinstance(said.fact, ToolReturned)]

    def usages(self) -> list[Usage]:
        return [reply.usage for reply in self.replies() if reply.usage]

    def calls(self) -> int:
        return sum(isinstance(block, ToolCall) for reply in self.replies() for block in reply.blocks)

    def count(self, kind: type[UserSaid | HostSaid]) -> int:
        return sum(isinstance(said.fact, kind) for said in self.facts())


@pytest.fixture(scope="module")
def recorded(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Recorded]]:
    blobs = DirBlobs(tmp_path_factory.mktemp("blobs"), is_synced=False)
    manifest = msgspec.json.decode((shared / "MANIFEST.json").read_bytes(), type=Manifest)
    found: dict[str, list[Recorded]] = {name: [] for name in PARSERS}
    for entry in manifest.files:
        if entry.format in PARSERS:
            sniff, parse = PARSERS[entry.format]
            source = open_source(shared / entry.file)
            assert sniff(source), entry.file
            found[entry.format].append(Recorded(entry=entry, items=list(parse(source, blobs))))
    return found


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_every_recorded_session_is_whole(recorded: dict[str, list[Recorded]], name: str) -> None:
    assert recorded[name]
    for file in recorded[name]:
        assert [item for item in file.items if isinstance(item, Unknown | Quarantined)] == [], file.name
        uuids = [(said.session, said.uuid) for said in file.facts()]
        assert len(uuids) == len(set(uuids)), file.name
        first, *rest = file.facts()
        assert isinstance(first.fact, SessionOpened)
        assert first.fact.model
        assert not any(isinstance(said.fact, SessionOpened) for said in rest), "no recorded session here branches"
        called: set[str] = set()
        for said in file.facts():
            if isinstance(said.fact, ModelReplied):
                called |= {block.call_id for block in said.fact.blocks if isinstance(block, ToolCall)}
            if isinstance(said.fact, ToolReturned):
                assert said.fact.call_id in called, file.name


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_what_was_sent_and_read_from_the_cache_adds_up(recorded: dict[str, list[Recorded]], name: str) -> None:
    for file in recorded[name]:
        if file.entry.usage:
            usages = file.usages()
            assert len(usages) == file.entry.usage.calls_with_usage, file.name
            assert sum(usage.uncached for usage in usages) == file.entry.usage.uncached_input, file.name
            assert sum(usage.cached for usage in usages) == file.entry.usage.cache_read, file.name
            assert sum(usage.written for usage in usages) == (file.entry.usage.cache_write or 0), file.name


def test_codex_replies_are_the_distinct_totals(recorded: dict[str, list[Recorded]]) -> None:
    # One reply more: a response that was interrupted before its tokens were counted.
    broken = {"c660cfaaed": 1}
    for file in recorded[codex.FORMAT]:
        aborted = [reply for reply in file.replies() if reply.usage is None]
        assert len(file.replies()) - len(aborted) == file.entry.assistant_steps, file.name
        assert len(aborted) == broken.get(file.name, 0), file.name
        assert all(reply.stop_reason == "aborted" for reply in aborted)
        assert file.entry.usage
        assert sum(usage.output for usage in file.usages()) == file.entry.usage.output


def test_codex_calls_and_results_are_the_recorded_ones(recorded: dict[str, list[Recorded]]) -> None:
    # Searches for tools are calls with results here; the manifest counts neither.
    tool_searches = {"01466bfb51": 3, "7a4cf60730": 1, "c660cfaaed": 1, "d6aa574561": 1}
    for file in recorded[codex.FORMAT]:
        blocks = [block for reply in file.replies() for block in reply.blocks]
        # A web search is no call here: it has no result of its own.
        web_searches = sum(isinstance(block, Opaque) and block.kind == "web_search_call" for block in blocks)
        extra = tool_searches.get(file.name, 0)
        assert file.calls() + web_searches - extra == file.entry.tool_calls, file.name
        assert len(file.results()) - extra == file.entry.tool_results, file.name


def test_codex_user_words_are_those_the_screen_showed(recorded: dict[str, list[Recorded]]) -> None:
    # The manifest counts every message of the user role, injected ones included.
    for file in recorded[codex.FORMAT]:
        shown = [said for said in file.facts() if getattr(said.fact, "kind", "") == "event_msg/user_message"]
        assert file.count(UserSaid) == len(shown), file.name
        assert len(shown) < file.entry.user_prompts, file.name


@pytest.mark.parametrize("name", [codex.FORMAT, copilot_cli.FORMAT, gemini_cli.FORMAT])
def test_compactions_are_the_recorded_ones(recorded: dict[str, list[Recorded]], name: str) -> None:
    for file in recorded[name]:
        compacted = [item for item in file.items if isinstance(item, Compacted)]
        assert len(compacted) == (file.entry.compaction or {}).get("compacted", 0), file.name
        assert all(item.seed and item.tokens_before for item in compacted), file.name


def test_opencode_compactions_and_prunings_are_the_recorded_ones(recorded: dict[str, list[Recorded]]) -> None:
    for file in recorded[opencode.FORMAT]:
        stated = file.entry.compaction or {}
        compacted = [item for item in file.items if isinstance(item, Compacted)]
        pruned = sum(len(item.targets) for item in file.items if isinstance(item, Cleared))
        assert len(compacted) == stated.get("compaction part", 0), file.name
        assert pruned == stated.get("tool output pruned (state.time.compacted)", 0), file.name


def test_a_clearing_or_a_kept_fact_names_one_said_before(recorded: dict[str, list[Recorded]]) -> None:
    for files in recorded.values():
        for file in files:
            said: set[tuple[str, str]] = set()
            for item in file.items:
                if isinstance(item, Said):
                    said.add((item.session, item.uuid))
                if isinstance(item, Cleared):
                    assert {(item.session, uuid) for uuid, _ in item.targets} <= said
                if isinstance(item, Compacted):
                    assert {(item.session, uuid) for uuid in (*item.kept_head, *item.kept_tail)} <= said


@pytest.mark.parametrize("name", [copilot_cli.FORMAT, gemini_cli.FORMAT, opencode.FORMAT])
def test_steps_calls_and_results_of_the_others_are_equal(recorded: dict[str, list[Recorded]], name: str) -> None:
    for file in recorded[name]:
        assert len(file.replies()) == file.entry.assistant_steps, file.name
        assert file.calls() == file.entry.tool_calls, file.name
        assert len(file.results()) == file.entry.tool_results, file.name


@pytest.mark.parametrize("name", [gemini_cli.FORMAT, opencode.FORMAT])
def test_output_tokens_differ_only_by_the_reasoning_counted_apart(
    recorded: dict[str, list[Recorded]], name: str
) -> None:
    # `Usage.output` holds reasoning; the manifest sums the field as it stands, which in Gemini CLI and in opencode
    # from 1.14 on leaves reasoning out.
    for file in recorded[name]:
        assert file.entry.usage
        output = sum(usage.output for usage in file.usages())
        reasoning = sum(usage.reasoning for usage in file.usages())
        assert output - file.entry.usage.output in {0, reasoning}, file.name


def test_errors_of_the_others_are_the_recorded_ones(recorded: dict[str, list[Recorded]]) -> None:
    # opencode 1bca1a0365: the manifest's sixth error is a message that was aborted, not a result. Gemini CLI
    # cd70ab3400: two cancelled calls, whose result the model saw as an error. Copilot CLI 7f20d04ae3: one result
    # with `success: false`.
    otherwise = {"1bca1a0365": 5, "cd70ab3400": 2, "7f20d04ae3": 1}
    for name in (copilot_cli.FORMAT, gemini_cli.FORMAT, opencode.FORMAT):
        for file in recorded[name]:
            errors = sum(result.is_error for result in file.results())
            assert errors == otherwise.get(file.name, file.entry.tool_errors), file.name


def test_user_words_of_the_others_are_fewer_only_by_what_the_client_wrote(
    recorded: dict[str, list[Recorded]],
) -> None:
    # opencode: messages that hold only a sub-task, a compaction or synthetic text; Copilot CLI: two skills' texts.
    written_by_client = {"2c68e8c4cd": 12, "4f2f821db8": 6, "c9cca9fa8a": 12, "b880ee06f2": 2, "c5014b3560": 2}
    for name in (copilot_cli.FORMAT, gemini_cli.FORMAT, opencode.FORMAT):
        for file in recorded[name]:
            own = file.count(UserSaid) + written_by_client.get(file.name, 0)
            assert own == file.entry.user_prompts, file.name


def test_a_grown_codex_snapshot_extends_the_earlier_one(recorded: dict[str, list[Recorded]]) -> None:
    files = {file.name: file.items for file in recorded[codex.FORMAT]}
    earlier, later = files["0c8e41d812"], files["7a4cf60730"]
    assert later[: len(earlier)] == earlier
    assert len(later) > len(earlier)
