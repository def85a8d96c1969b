"""The lab drives the real kernel with recorded sessions; its figures can be recomputed from its traces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from transom import compose
from transom.adapters.memory_log import MemoryLog
from transom.core.budget import limits
from transom.core.canon import FORMAT
from transom.core.economics import cost
from transom.core.event import (
    BlockReplaced,
    Draft,
    EpochOpened,
    Fact,
    ModelReplied,
    Replacement,
    Section,
    Seed,
    SessionOpened,
    ToolReturned,
    Usage,
    UserSaid,
    WindowOpened,
)
from transom.core.policy import PRESETS
from transom.core.pricing import find_price
from transom.errors import BadInput
from transom.importers.load import load
from transom.lab.arms import Setting
from transom.lab.figures import Result
from transom.lab.replay import Replayed, replay_session
from transom.lab.script import script_of
from transom.lab.trace import trace_of, write_trace
from transom.ports import Log
from transom.testing.builders import COUNTER, call, result, text, thought

ARMS = ("recorded", "raw", "fifo", "mask", "gssc", "rollover", "rollover-cost")
GOVERNED = ("fifo", "mask", "gssc", "rollover", "rollover-cost")
SHA = "9f86d081884c7d65"


class NoBlobs:
    """The sample and the stories hold no pictures, so nothing is stored."""

    def put(self, data: bytes) -> str:
        raise AssertionError(f"{len(data)} bytes of picture")


def replayed(log: Log, session_id: str = "s", limit: int = 32_000, arms: Sequence[str] = ARMS) -> Replayed:
    setting = Setting(bounds=limits(limit), counter=COUNTER, dialect=compose.dialect_for())
    table = compose.prices()
    return replay_session(
        log,
        session_id,
        [PRESETS[arm] for arm in arms],
        setting,
        price=lambda model: find_price(table, model),
        scratch=MemoryLog,
    )


def story(facts: Sequence[Fact]) -> MemoryLog:
    """A recorded session that holds `facts`, a minute apart."""
    log = MemoryLog()
    opened = SessionOpened(format=FORMAT, agent="claude-code", model="claude-sonnet-4-5")
    drafts = [Draft(fact=fact, uuid=f"u{n}", at=60_000 * n) for n, fact in enumerate((opened, *facts), 1)]
    log.append("s", 0, drafts)
    return log


def step(number: int, arguments: str, output: str, usage: Usage | None = None) -> list[Fact]:
    reply = ModelReplied(blocks=(call(f"c{number}", arguments=arguments),), model="claude-sonnet-4-5", usage=usage)
    return [reply, ToolReturned(call_id=f"c{number}", blocks=(result(output),))]


def by_arm(found: Replayed) -> dict[str, Result]:
    return {run.result.arm: run.result for run in found.runs}


@pytest.fixture(scope="module")
def sample() -> tuple[MemoryLog, str]:
    log = MemoryLog()
    with compose.sample() as path:
        (imported,) = load(path, log=log, blobs=NoBlobs(), counter=COUNTER)  # type: ignore[arg-type]
    return log, imported.session_id


@pytest.mark.parametrize("limit", [48_000, 128_000])
def test_every_arm_keeps_its_promises_on_the_sample(sample: tuple[MemoryLog, str], limit: int) -> None:
    found = by_arm(replayed(*sample, limit=limit))
    for arm, figures in found.items():
        assert figures.undeclared_misses == 0
        assert figures.unpaired_calls == 0
        assert figures.steps == found["raw"].steps or figures.refused
        recall = figures.handle_recall
        assert recall.n == recall.visible + recall.recallable + recall.lost
        if arm in GOVERNED:
            assert figures.peak_tokens <= limit
            assert recall.lost == 0
        if arm in ("gssc", "rollover"):
            assert figures.constraints_verbatim.n == figures.constraints_verbatim.kept > 0
    assert found["raw"].handle_recall.visible == found["raw"].handle_recall.n > 0


def test_a_replay_gives_the_same_figures_again(sample: tuple[MemoryLog, str]) -> None:
    first, second = (
        [msgspec.structs.replace(run.result, seconds=0) for run in replayed(*sample, limit=64_000).runs]
        for _ in range(2)
    )
    assert first == second


def test_our_count_of_the_prompts_is_near_the_reported_one(sample: tuple[MemoryLog, str]) -> None:
    script = script_of(*sample)
    assert script.checks
    assert script.counter_error is not None
    assert abs(script.counter_error) < 0.1


def test_the_cost_of_the_ungoverned_arm_follows_from_its_trace() -> None:
    facts: list[Fact] = [UserSaid(blocks=(text("Build it. " * 900),))]
    for number in range(60):
        facts += step(
            number, '{"command":"make"}', f"object {number} compiled without a word\n" * (number % 7 * 20 + 1)
        )
    found = replayed(story(facts), limit=1_000_000)
    trace = trace_of(found)
    raw = next(arm for arm in trace.arms if arm.arm == "raw")
    assert raw.schedule == (1,)
    recomputed = sum(
        trace.parameters.r * kept + trace.parameters.w * (size - kept)
        for size, kept in zip(raw.prompts, raw.cached, strict=True)
    )
    assert raw.cost == pytest.approx(recomputed)
    assert raw.cost == pytest.approx(cost(trace.trace, (1,), trace.parameters), rel=0.02)
    assert trace.optimum_cost is not None
    assert trace.optimum_cost <= cost(trace.trace, (1,), trace.parameters)


def test_a_trace_is_written_in_the_letters_of_the_cost_model(sample: tuple[MemoryLog, str], tmp_path: Path) -> None:
    found = replayed(*sample, limit=64_000)
    write_trace(tmp_path / "trace.json", [found])
    (session,) = json.loads((tmp_path / "trace.json").read_bytes())
    assert {"P", "a", "o", "seen", "gap"} <= session["trace"].keys()
    assert {"r", "w", "k", "rho", "limit"} <= session["parameters"].keys()
    assert [arm["arm"] for arm in session["arms"]] == list(ARMS)
    assert len(session["trace"]["a"]) == len(session["arms"][1]["S"])
    for step_number, seen in enumerate(session["trace"]["seen"], 1):
        assert all(0 < last < step_number for last in seen)


def test_a_handle_out_of_sight_is_recalled_once_and_charged() -> None:
    facts: list[Fact] = [UserSaid(blocks=(text("Find the commit that broke the build."),))]
    facts += step(0, '{"command":"git log"}', f"{SHA} broke the build\n")
    for number in range(1, 90):
        facts += step(number, '{"command":"make"}', f"object {number} compiled without a word\n" * 40)
    facts += step(90, f'{{"command":"git show {SHA}"}}', "diff")
    facts += step(91, f'{{"command":"git revert {SHA}"}}', "reverted")
    found = by_arm(replayed(story(facts), limit=24_000))
    assert found["raw"].handle_recall.recallable == 0
    for arm in ("rollover", "fifo"):
        assert found[arm].boundaries
        assert found[arm].handle_recall.recallable == 1, arm
        assert found[arm].side_tokens == 400
    assert "recalls" in " ".join(found["rollover"].modelled)


def test_a_recorded_compaction_is_replayed_and_what_it_lost_is_counted() -> None:
    facts: list[Fact] = [
        EpochOpened(sections=(Section(key="main", text="You fix builds.", tokens=5),)),
        UserSaid(blocks=(text("Find the commit. Never rewrite history."),)),
    ]
    facts += step(0, '{"command":"git log"}', f"{SHA} broke the build\n")
    facts.append(
        WindowOpened(cause="recorded", generation=1, seed=(Seed(role="user", blocks=(text("We look for a commit."),)),))
    )
    facts += step(1, f'{{"command":"git show {SHA}"}}', "diff")
    found = by_arm(replayed(story(facts)))
    assert found["recorded"].boundaries == {"recorded": 1}
    assert found["recorded"].misses == {"initial": 1, "reset:checkpoint": 1}
    assert found["recorded"].handle_recall.lost == 1
    assert found["recorded"].constraints_verbatim.kept == 0
    assert found["rollover"].handle_recall.visible == 1
    assert found["rollover"].recorded.compactions == 1


def test_recorded_clearing_is_a_named_miss_of_the_recorded_arm_only() -> None:
    facts: list[Fact] = [UserSaid(blocks=(text("Go."),))]
    facts += step(0, "{}", "a long listing\n" * 200)
    facts += step(1, "{}", "more")
    cleared = Replacement(seq=4, index=0, block=text("[cleared]"))
    facts.append(BlockReplaced(how="mask", targets=(cleared,)))
    facts += step(2, "{}", "done")
    found = by_arm(replayed(story(facts)))
    assert found["recorded"].misses == {"initial": 1, "reset:mask": 1}
    assert found["raw"].misses == {"initial": 1}
    assert found["recorded"].input_tokens < found["raw"].input_tokens


def test_a_head_the_recording_lacks_is_taken_from_the_first_reported_prompt() -> None:
    facts: list[Fact] = [UserSaid(blocks=(text("Go."),))]
    facts += step(0, "{}", "one", Usage(uncached=9_000, output=20))
    facts += step(1, "{}", "two", Usage(uncached=9_050, output=20))
    log = story(facts)
    script = script_of(log, "s")
    assert 8_900 < script.unseen_tokens <= 9_000
    assert by_arm(replayed(log))["raw"].peak_tokens >= 9_000


def test_thoughts_that_a_provider_drops_when_the_user_speaks_are_dropped_in_every_arm() -> None:
    facts: list[Fact] = [UserSaid(blocks=(text("Go."),))]
    prompt = 2_000
    for number in range(12):
        musing = "It could be the cache, or the clock, or neither of them. " * 30
        reply = ModelReplied(
            blocks=(thought(musing), text("Done.")), model="m-1", usage=Usage(uncached=prompt, output=450)
        )
        facts += [reply, UserSaid(blocks=(text(f"And then number {number}?"),))]
        prompt += 20
    log = story([*facts, ModelReplied(blocks=(text("ok"),), model="m-1", usage=Usage(uncached=prompt, output=2))])
    assert script_of(log, "s").drop_votes == 1
    found = by_arm(replayed(log))
    assert found["raw"].misses == {"initial": 1}  # such a thought was never sent, so nothing is missed
    assert found["raw"].peak_tokens < 2 * prompt


def test_what_cannot_fit_is_refused_with_the_numbers_and_the_step() -> None:
    facts: list[Fact] = [UserSaid(blocks=(text("Never touch this file. " * 9_000),))]
    facts += step(0, "{}", "one")
    found = by_arm(replayed(story(facts)))
    for arm in ("gssc", "rollover", "mask", "fifo"):
        assert found[arm].refused.startswith("step 1: ")
        assert "raise --context-limit to at least" in found[arm].refused
    assert not found["raw"].refused


def test_the_limit_that_a_refused_arm_is_advised_is_enough_to_its_end() -> None:
    """What the first window needs is not all: the user says more later."""
    facts: list[Fact] = []
    for number in range(6):
        facts += [UserSaid(blocks=(text(f"Never touch file {number}. " * 400),)), *step(number, "{}", "one " * 300)]
    refused = {name: one for name, one in by_arm(replayed(story(facts), limit=2_000)).items() if one.refused}
    assert len(refused) > 2
    (limit,) = {int(one.refused.split("at least ")[1].split(":")[0].replace(",", "")) for one in refused.values()}
    assert not any(one.refused for one in by_arm(replayed(story(facts), limit=limit)).values())


def test_a_session_without_a_reply_cannot_be_replayed() -> None:
    with pytest.raises(BadInput, match="no model reply"):
        script_of(story([UserSaid(blocks=(text("Hello?"),))]), "s")


SMALL = (
    "codex/agentv--0c8e41d812.jsonl.gz",
    "claude-code/cli--64321a2b52.jsonl.gz",
    "opencode/bestcodes.dev--1bca1a0365.json.gz",
    "pi/inspect_scout--6c1e944bb0.jsonl.gz",
    "openhands/benchmarks--3f3d5850ac.tar.gz",
    "gemini-cli/session-bridge--cd70ab3400.json.gz",
    "swe-agent/SWE-agent--052d5837ac--marshmallow-code__marshmallow-1867.traj.gz",
)


@pytest.mark.parametrize("name", SMALL)
def test_recorded_sessions_replay_within_every_promise(shared: Path, tmp_path: Path, name: str) -> None:
    check_file(shared / name, tmp_path, 128_000)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [32_000, 128_000])
def test_all_recorded_sessions_replay_within_every_promise(shared: Path, tmp_path: Path, limit: int) -> None:
    files = [path for path in sorted(shared.rglob("*.*")) if path.parent != shared and ".usage." not in path.name]
    assert len(files) > 70
    for path in files:
        check_file(path, tmp_path / path.name, limit)


def check_file(path: Path, folder: Path, limit: int) -> None:
    with compose.store(folder) as kept:
        compose.import_file(path, kept, counts=COUNTER)
        for row in kept.log.sessions():
            try:
                found = by_arm(replayed(kept.log, row.session_id, limit))
            except BadInput:
                continue  # nobody replied in it
            for arm, figures in found.items():
                assert figures.undeclared_misses == 0, (row.session_id, arm)
                assert figures.unpaired_calls == 0, (row.session_id, arm)
                if arm in GOVERNED:
                    assert figures.peak_tokens <= limit, (row.session_id, arm)
                if arm in ("gssc", "rollover"):
                    kept_words = figures.constraints_verbatim
                    assert kept_words.kept == kept_words.n, (row.session_id, arm)


def test_counts_are_compared_up_to_a_cut_that_nobody_recorded() -> None:
    facts: list[Fact] = [UserSaid(blocks=(text("Go."),))]
    for number, prompt in enumerate((9_000, 9_040, 9_080, 4_000, 4_040)):
        facts += step(number, "{}", "a line", Usage(uncached=prompt, output=5))
    log = story(facts)
    script = script_of(log, "s")
    assert script.cut_at == 4
    assert [check.step for check in script.checks] == [2, 3]
    assert any("not recorded" in words for words in by_arm(replayed(log))["raw"].modelled)


def test_a_head_that_we_count_too_high_is_corrected_by_the_first_prompt() -> None:
    tools = EpochOpened(sections=(Section(key="main", text="You help.", tokens=900),))
    facts: list[Fact] = [tools, UserSaid(blocks=(text("Go."),))]
    for number in range(3):
        facts += step(number, "{}", "a line", Usage(uncached=700 + 60 * number, output=5))
    script = script_of(story(facts), "s")
    assert script.unseen_tokens < 0
    assert abs(script.checks[0].error) < 0.03
