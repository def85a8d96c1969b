"""Write the golden logs of the present format that do not exist yet: `python tests/golden/make.py`.

A golden log is never edited and never written again; a new fact or field gets a new file here, with a new name. Each
line is {"digest": hex after the event, "event": its canonical envelope}.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from transom.adapters.memory_log import MemoryLog
from transom.core.block import Image, Opaque, Text, Thought, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.canon import FORMAT, envelope
from transom.core.event import (
    BlockReplaced,
    CheckpointAccepted,
    Coverage,
    Demotion,
    Draft,
    EpochOpened,
    Event,
    Fact,
    Handoff,
    HostSaid,
    Inference,
    Link,
    ModeChanged,
    ModelReplied,
    NegativeNoted,
    NodeCheckpointed,
    Observed,
    RecallMissed,
    RelatedFile,
    Replacement,
    RequestFailed,
    RequestSent,
    Requirement,
    RolloverDeclared,
    Section,
    SectionChanged,
    Seed,
    SessionOpened,
    SourceRead,
    SummaryProposed,
    SummaryRefused,
    SummaryRequested,
    TaskCommitted,
    TaskFailed,
    TaskPicked,
    TaskVerified,
    TodoChanged,
    TodoItem,
    Tool,
    ToolDispatched,
    ToolReturned,
    Usage,
    UserDisposed,
    UserSaid,
    WindowOpened,
    WindowRefused,
    encode_fact,
)

_COVERED = Coverage(through_seq=4, digest="ab" * 32)


def every_fact() -> list[Event]:
    log = MemoryLog()
    return _appended(log, "every-fact", 0, [*_conversation(), *_window(), *_state()])


def _conversation() -> list[Fact]:
    call = ToolCall(call_id="c1", name="read_file", arguments='{"path": "src/budget.py", "n": 1e3}', tokens=17)
    return [
        SessionOpened(
            format=FORMAT,
            agent="claude-code",
            agent_version="2.1",
            model="m-1",
            provider="p",
            workspace="/home/u/project",
            title="Fix the budget · 修复预算",
            policy="gssc",
            counter="o200k",
            context_limit=200_000,
        ),
        SourceRead(
            path="a.jsonl",
            format="claude-code",
            size=2**53 + 1,
            sha256="00" * 32,
            records=3,
            unknown=(("new-kind", 2),),
            quarantined=((7, "not JSON"),),
            notes=("the last line is torn",),
        ),
        EpochOpened(
            sections=(Section(key="system", text="You are careful.\n", tokens=5),),
            tools=(Tool(name="read_file", description="Reads.", schema='{"type":"object"}', tokens=9),),
            unseen_tokens=12_000,
        ),
        UserSaid(blocks=(Text(text="请修复 src/budget.py:12\0\x1b[0m", tokens=9, content="cjk", is_protected=True),)),
        UserSaid(blocks=(Text(text="stop"),), by="operator"),
        ModelReplied(
            blocks=(
                Thought(text="hm", opaque='{"signature":"x=="}', tokens=1),
                Text(text="half an emoji: \ud83d", tokens=6),
                call,
                Opaque(kind="server_tool_use", raw='{"b":1,"a":2.50}', tokens=8),
            ),
            model="m-1",
            stop_reason="tool_use",
            usage=Usage(uncached=1, cached=2, written=3, written_1h=1, output=4, reasoning=0, cost_microusd=5),
            response_id="r1",
        ),
        ToolReturned(
            call_id="c1",
            blocks=(
                ToolResultRaw(text='"quoted" \\ \u2028 é', tokens=3),
                Image(media_type="image/png", artifact_id="cd" * 32, size=99, url="https://e.x/i.png", tokens=85),
            ),
            is_error=True,
            effect="read",
            exit_code=-1,
        ),
        HostSaid(kind="reminder", blocks=(Text(text="remember"),)),
        Observed(kind="progress", raw='{"type":"progress"}'),
    ]


def _window() -> list[Fact]:
    stub = ToolResultRef(text="9 KB of logs", artifact_id="ef" * 32, size=9216, tokens=4)
    return [
        ToolDispatched(call_ids=("c1", "c2")),
        RecallMissed(query="SECRET_KEY"),
        SectionChanged(key="date", text="2026-01-01"),
        SectionChanged(key="skills", text=None),
        BlockReplaced(
            how="offload", targets=(Replacement(seq=7, index=0, block=stub), Replacement(seq=7, index=1, block=None))
        ),
        RolloverDeclared(
            call_id="c2",
            handoff=Handoff(
                requirements=(Requirement(text="keep the API", source="u3"),),
                inferences=(Inference(text="the bug is old", generation=1),),
                conflicts=("a says 1, b says 2",),
                unverified=("does CI pass?",),
            ),
            related_files=(RelatedFile(path="src/budget.py", role="implementation", note="line 12"),),
            demoted=(Demotion(text="use Redis", source="u99", reason="no such message"),),
        ),
        WindowOpened(
            cause="model",
            generation=1,
            seed=(Seed(role="user", blocks=(Text(text="again"),), of=4), Seed(role="host", blocks=(stub,))),
            kept_head=(4,),
            kept_tail=(6, 7),
            coverage=_COVERED,
            tokens_before=90_000,
            tokens_after=4_000,
            declared_by="u11",
        ),
        WindowRefused(cause="mask", reason="would gain 12 tokens", tokens_before=500, tokens_after=488),
        SummaryRequested(coverage=_COVERED, prompt_version="1"),
        SummaryProposed(
            coverage=_COVERED,
            text="sum",
            model="m-2",
            prompt_version="1",
            stop_reason="end_turn",
            usage=Usage(output=3),
        ),
        SummaryRefused(coverage=_COVERED, reason="too short"),
        CheckpointAccepted(
            coverage=_COVERED, text="sum", model="m-2", prompt_version="1", predecessor="u9", carried=("E4711",)
        ),
        RequestSent(
            head="aa", body="bb", body_messages=3, tail="cc", verdict="miss", reasons=("reset:rollover",), tokens=4000
        ),
        RequestFailed(kind="overflow", message="prompt is too long: 210000 > 200000"),
    ]


def _state() -> list[Fact]:
    return [
        TodoChanged(items=(TodoItem(text="fix", status="in_progress"), TodoItem(text="test", status="pending"))),
        NegativeNoted(attempt="pip install x", outcome="E: no such package"),
        UserDisposed(seq=4, disposition="answered", by=6),
        ModeChanged(mode="plan", pending_approvals=("c3",)),
        TaskPicked(task_id="t1", attempt=1),
        TaskVerified(task_id="t1", command="make test", exit_code=2),
        TaskFailed(task_id="t1", attempt=1, error="2 failed"),
        TaskCommitted(task_id="t1", commit="0123abc"),
        NodeCheckpointed(run_id="r", node="n", commit="0123abc"),
    ]


def forks() -> list[Event]:
    log = MemoryLog()
    said: list[Fact] = [UserSaid(blocks=(Text(text=text),)) for text in ("one", "two", "three")]
    trunk = _appended(log, "trunk", 0, [SessionOpened(format=FORMAT), *said])
    parent = Link(session_id="trunk", seq=2, digest=trunk[1].digest.hex())
    branch = _appended(log, "branch", 2, [SessionOpened(format=FORMAT, kind="fork", parent=parent), said[1]])
    tip = Link(session_id="branch", seq=4, digest=branch[-1].digest.hex())
    twig = _appended(log, "twig", 4, [SessionOpened(format=FORMAT, kind="fork", parent=tip), said[2]])
    child = _appended(log, "child", 0, [SessionOpened(format=FORMAT, kind="child", parent=tip), said[0]])
    return [*trunk, *branch, *twig, *child]


def requests() -> list[Event]:
    """Who was asked, under which request fields."""
    log = MemoryLog()
    asked = RequestSent(head="aa", body="bb", body_messages=1, verdict="miss", reasons=("initial",), provider="p")
    return _appended(
        log,
        "requests",
        0,
        [
            SessionOpened(format=FORMAT),
            EpochOpened(),
            UserSaid(blocks=(Text(text="one"),)),
            msgspec.structs.replace(asked, model="m-1"),
            msgspec.structs.replace(asked, model="m-2", fields="0123456789abcdef", reasons=("change:model",)),
            EpochOpened(reason="resume"),
        ],
    )


def context() -> list[Event]:
    """What changed around an agent: said once, and again by the window that dropped it."""
    log = MemoryLog()
    said = Text(text="[rules]\nUse tabs.\n\n[date]\n(no longer stands)", tokens=9, is_protected=True)
    return _appended(
        log,
        "context",
        0,
        [
            SessionOpened(format=FORMAT),
            EpochOpened(sections=(Section(key="date", text="2026-01-01"),), order=("rules", "date")),
            UserSaid(blocks=(Text(text="one"),)),
            SectionChanged(key="rules", text="Use tabs."),
            SectionChanged(key="date", text=None),
            HostSaid(kind="context", blocks=(said,), sections=("rules", "date")),
            WindowOpened(
                cause="operator", generation=1, seed=(Seed(role="host", blocks=(said,), sections=("rules", "date")),)
            ),
        ],
    )


def _appended(log: MemoryLog, session_id: str, after: int, facts: Sequence[Fact]) -> list[Event]:
    drafts = [
        Draft(fact=fact, uuid=f"{session_id}-{number}", at=1_767_225_600_000 + 1000 * number)
        for number, fact in enumerate(facts)
    ]
    return list(log.append(session_id, after, drafts))


def main() -> None:
    folder = Path(__file__).parent / f"v{FORMAT}"
    folder.mkdir(exist_ok=True)
    for name, events in (("every-fact", every_fact), ("forks", forks), ("requests", requests), ("context", context)):
        path = folder / f"{name}.jsonl"
        if path.exists():
            print(f"{path} stays as it is")  # noqa: T201 - a tool for a person
            continue
        lines = []
        for event in events():
            data = envelope(event.session_id, event.seq, event.uuid, event.at, encode_fact(event.fact))
            lines.append(b'{"digest":"%b","event":%b}\n' % (event.digest.hex().encode(), data))
        path.write_bytes(b"".join(lines))


if __name__ == "__main__":
    main()
