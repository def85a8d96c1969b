"""What a person reads: a line of every fact, the bar, and the sentence for what should not happen."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from transom.cli import main, terminal
from transom.cli.reading import block_words, headline, tokens_of, whole
from transom.core.block import Image, Opaque, Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import (
    BlockReplaced,
    EpochOpened,
    Fact,
    ModelReplied,
    RecallMissed,
    Replacement,
    RequestSent,
    Section,
    Seed,
    SourceRead,
    TaskPicked,
    TodoChanged,
    ToolDispatched,
    ToolReturned,
    UserDisposed,
    UserSaid,
    WindowOpened,
    WindowRefused,
)

from .conftest import DATA, Run


@pytest.mark.parametrize(
    ("fact", "line"),
    [
        (UserSaid(blocks=(Text(text="\n\n  First.\nSecond."),)), "First."),
        (UserSaid(blocks=(Image(media_type="image/png", size=1234),)), "[image image/png, 1,234 bytes]"),
        (UserSaid(blocks=()), "(nothing)"),
        (UserSaid(blocks=(Opaque(kind="injected", raw="{}"), Text(text="Hi"))), "Hi"),
        (UserDisposed(seq=4, disposition="answered"), "the user's message in event 4 is answered"),
        (ToolDispatched(call_ids=("a", "b")), "runs a b"),
        (RecallMissed(query="no such\nword"), "nothing found: no such word"),
        (ModelReplied(blocks=(Thought(text="hm"),)), "(thinking)"),
        (ModelReplied(blocks=()), "(nothing)"),
        (
            ModelReplied(blocks=(Text(text="I look."), ToolCall(call_id="1", name="ls", arguments="{}"))),
            "I look. → ls {}",
        ),
        (ToolReturned(call_id="1", blocks=(ToolResultRaw(text="no"),), is_error=True), "error: no"),
        (WindowOpened(cause="hard-limit", generation=2), "a new window opened: hard-limit, generation 2"),
        (WindowRefused(cause="mask", reason="it would gain too little"), "no new window: it would gain too little"),
        (
            BlockReplaced(how="mask", targets=(Replacement(seq=1, index=0, block=None),)),
            "1 block replaced: mask",
        ),
        (RequestSent(head="", body="", body_messages=1, verdict="miss", reasons=("initial",)), "request: miss initial"),
        (EpochOpened(unseen_tokens=1500), "head: 0 sections, 0 tools, 1,500 tokens unseen"),
        (SourceRead(path="a.jsonl", format="pi", size=2000, sha256=""), "read a.jsonl: 2,000 bytes of pi"),
        (TaskPicked(task_id="T1", attempt=2), "T1"),
        (TodoChanged(items=()), '{"fact":"todo_changed","items":[]}'),
    ],
)
def test_a_fact_has_one_line(fact: Fact, line: str) -> None:
    assert headline(fact) == line
    assert list(whole(fact)) or not getattr(fact, "blocks", ())


def test_tokens_are_those_put_before_the_model() -> None:
    text = Text(text="x", tokens=7)
    assert tokens_of(UserSaid(blocks=(text, text))) == 14
    assert tokens_of(WindowOpened(cause="task", generation=1, seed=(Seed(role="host", blocks=(text,)),))) == 7
    assert tokens_of(EpochOpened(sections=(Section(key="s", text="x", tokens=5),), unseen_tokens=10)) == 15
    assert tokens_of(TaskPicked(task_id="T", attempt=1)) == 0


def test_what_is_not_text_is_named_with_its_size() -> None:
    assert block_words(Opaque(kind="reasoning", raw="{}")) == "[reasoning, 2 bytes of the provider's own]"
    assert block_words(Image(media_type="image/png", url="https://x/y.png")).endswith("https://x/y.png]")


@pytest.mark.parametrize("folder", sorted(path.name for path in DATA.iterdir()))
def test_every_event_and_every_window_of_every_format_can_be_shown(run: Run, folder: str) -> None:
    assert run("replay", DATA / folder, "--arms", "raw", "--quiet").code == 0
    for row in json.loads(run("sessions", "--json").out)[:3]:
        name = row["session_id"]
        assert run("show", name, "--all").code == 0
        seqs = [event["seq"] for event in json.loads(run("show", name, "--all", "--json").out)]
        for seq in seqs[:: max(1, len(seqs) // 4)]:
            assert run("show", name, "--at", seq).out
            assert run("show", name, "--at", seq, "--window").out.startswith("the window of")
        assert run("export", name, "--format", "md").code == 0


@pytest.mark.parametrize(("at", "said"), [(0, ""), (-5, ""), (1_772_613_080_000, "2026-03-04"), (10**18, "?")])
def test_a_time_is_said_if_it_is_one(at: int, said: str) -> None:
    assert terminal.when(at).startswith(said)
    assert bool(terminal.when(at)) == bool(said)


def test_a_bar_is_shown_only_when_it_lasts_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = terminal.Bar(is_shown=True)
    quick.tell("arm", 1, 2)
    quick.end()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(terminal, "_PATIENCE", 0.0)
    slow = terminal.Bar(is_shown=True)
    time.sleep(0.01)
    slow.tell("ar\x1bm", 1, 2)
    slow.tell("reading", 3)
    slow.end()
    assert "\x1bm" not in capsys.readouterr().err


def test_what_should_not_happen_is_a_sentence_and_the_traceback_is_for_whoever_asks(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("transom.compose.store", broken)
    assert main(["verify"]) == 1
    said = capsys.readouterr().err
    assert "this should not happen: ZeroDivisionError: a defect" in said
    assert "Traceback" not in said
    monkeypatch.setenv("TRANSOM_TRACEBACK", "1")
    assert main(["verify"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_ctrl_c_is_exit_code_130(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("transom.compose.store", interrupted)
    assert main(["verify"]) == 130
    assert "interrupted" in capsys.readouterr().err
