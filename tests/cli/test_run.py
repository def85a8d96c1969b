"""`transom run` as a person has it: at a terminal, in a pipe, with what is missing said."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from transom.adapters.provider_anthropic import DIALECT
from transom.adapters.sandbox import open_sandbox
from transom.agent.run import Agent
from transom.agent.tally import Tally
from transom.cli.display import Display
from transom.core.block import Text
from transom.core.event import Event, HostSaid, RequestFailed, WindowRefused
from transom.core.wire import Rendering
from transom.errors import UsageError
from transom.testing.builders import rules
from transom.testing.live import Live
from transom.testing.loopback import Canned, Loopback, sse

from .conftest import Run
from .test_processes import environment

LOOK = {"call": [{"tool": "read", "arguments": {"path": "a.txt"}}]}
BASE = ("--context-limit", "16k", "--unsandboxed", "--auto")


def script_file(folder: Path, *steps: Mapping[str, object], **more: object) -> Path:
    path = folder / "script.json"
    path.write_text(json.dumps({"step": list(steps), **more}))
    return path


@pytest.fixture
def place(home: Path, tmp_path: Path) -> Path:
    """A workspace with one file, which is the current folder."""
    (tmp_path / "a.txt").write_text("alpha\nbeta\n")
    return tmp_path


def test_a_task_is_worked_on_and_answered(run: Run, place: Path) -> None:
    writes = {"say": "I write.", "call": [{"tool": "write", "arguments": {"path": "b.txt", "content": "new\n"}}]}
    path = script_file(place, {"thought": "hm", **LOOK}, writes, {"say": "Done."})
    done = run("run", "Write b.txt.", "--script", path, *BASE)
    assert done.code == 0, done.err
    assert done.out == "I write.\nDone.\n"
    assert (place / "b.txt").read_text() == "new\n"
    assert "→ read: a.txt" in done.err
    assert "3 steps, 1 window" in done.err
    assert run("verify").code == 0


def test_quiet_prints_the_last_words_alone(run: Run, place: Path) -> None:
    path = script_file(place, {"say": "First.", **LOOK}, {"say": "Last."})
    done = run("run", "Look.", "--script", path, *BASE, "--quiet")
    assert (done.code, done.out, done.err) == (0, "Last.\n", "")


def test_json_is_a_line_an_event_and_one_for_the_end(run: Run, place: Path) -> None:
    path = script_file(place, LOOK, {"say": "Fertig \u001b[31m."})
    done = run("run", "Look.", "--script", path, *BASE, "--json")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert lines[-1]["ended"] == "answered"
    assert lines[-1]["steps"] == 2
    assert [line["fact"]["fact"] for line in lines[:3]] == ["session_opened", "epoch_opened", "user_said"]
    assert [line["seq"] for line in lines[:-1]] == list(range(1, len(lines)))
    assert done.out.isascii()
    assert "\x1b" not in done.out


def test_json_has_a_line_for_the_end_when_the_provider_fails_too(run: Run, place: Path) -> None:
    done = run("run", "Look.", "--script", script_file(place, {"fail": "429"}), *BASE, "--json")
    end = json.loads(done.out.splitlines()[-1])
    assert (done.code, end["ended"], end["steps"]) == (1, "error", 0)
    assert "429" in end["sentence"]
    assert end["session_id"] in done.err


def test_nothing_a_model_or_a_tool_says_reaches_the_terminal_as_a_command(run: Run, place: Path) -> None:
    (place / "a.txt").write_text("\x1b]0;title\x07\x1b[2J")
    says = {"say": "\x1b[2Jwiped", "call": [{"tool": "\x1b[1mno", "arguments": {"path": "\x1b[2J"}}], "anyway": True}
    path = script_file(place, says, LOOK, {"say": "\u202eDone."})
    done = run("run", "\x1b[31mLook.", "--script", path, *BASE)
    assert done.code == 0
    for letter in ("\x1b", "\x07", "\u202e"):
        assert letter not in done.out + done.err


def test_letters_that_do_no_harm_are_printed_as_they_are(run: Run, place: Path) -> None:
    words = "Fini\u202f! 10\u00a0km, 全部\u3000完成, می\u200cشود \U0001f468\u200d\U0001f467"
    path = script_file(place, {"say": f"{words}\u202e\u2028\u00ad"})
    for how in ((), ("--quiet",)):
        assert run("run", "Look.", "--script", path, *BASE, *how).out == f"{words}\ufffd\ufffd\ufffd\n"


def test_windows_handoffs_and_demotions_are_said_as_they_come(run: Run, place: Path) -> None:
    (place / "a.txt").write_text(("word " * 20 + "\n") * 45)
    claim = {"requirements": [{"text": "Rename all of it.", "source": "a.txt:1"}], "inferences": ["x"]}
    hands = {"call": [{"tool": "new_context", "arguments": {"handoff": claim, "related_files": []}}]}
    path = script_file(place, LOOK, hands, {"say": "Done."})
    done = run("run", "Look.", "--script", path, "--context-limit", "8k", "--unsandboxed", "--auto")
    assert "demoted to inference: Rename all of it. (a.txt:1: " in done.err
    assert "── window 2: the model handed over" in done.err
    shown = run("handoffs")
    assert shown.code == 0
    assert "window 1 → 2 · declared by the model" in shown.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no model is named"),
        (("--model", "claude-opus-4-5"), "ANTHROPIC_API_KEY"),
        (("--model", "gpt-5"), "OPENAI_API_KEY"),
        (("--model", "nobody-knows-7b"), "say --provider too"),
        (("--provider", "ollama", "--model", "nobody-knows-7b"), "say --context-limit"),
        (("--provider", "ollama"), "say which model with --model"),
        (("--provider", "nobody", "--model", "x"), "compatible-anthropic; or scripted, recorded, local. A server"),
        (("--provider", "recorded", "--model", "nobody"), "no session is called 'nobody'"),
        (("--provider", "compatible", "--model", "x", "--context-limit", "8k"), "base URL"),
        (("--provider", "scripted"), "--script FILE"),
        (("--provider", "scripted", "--script", "none.toml"), "none.toml: cannot be read"),
        (("--provider", "recorded"), "--model SESSION"),
        (("--provider", "local"), "GGUF"),
        (("--model", "a.gguf", "--context-limit", "4k"), "a.gguf: cannot be read"),
        (("--script", "s.json"), "say --context-limit"),
        (("--script", "s.json", "--context-limit", "many"), "context_limit = 'many' (flag)"),
        (("--script", "s.json", "--context-limit", "1"), "raise --context-limit to at least"),
        (("--script", "s.json", "--context-limit", "8k", "--policy", "none"), "policy = 'none' (flag)"),
        (("--script", "s.json", "--context-limit", "8k", "--max-steps", "-1"), "max_steps = '-1' (flag)"),
        (("--script", "s.json", "--context-limit", "8k", "--ask", "--auto"), "give one of them"),
        (("--script", "s.json", "--context-limit", "8k", "--ask"), "needs a terminal"),
        (("--script", "s.json", "--context-limit", "8k", "--unsandboxed"), "needs --auto"),
        (("--script", "s.json", "--context-limit", "8k", "--workspace", "nowhere"), "is not a folder"),
    ],
)
def test_what_is_missing_is_said_in_a_sentence(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    for name in [name for name in os.environ if name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    (place / "s.json").write_text('{"step": [{"say": "Done."}]}')
    done = run("run", "Look.", *arguments)
    assert done.code in (1, 2)
    assert said in done.err
    assert not done.out


def test_no_session_is_left_behind_by_a_call_that_could_not_begin(run: Run, place: Path) -> None:
    path = script_file(place, {"say": "Done."})
    assert run("run", "Look.", "--script", path, "--context-limit", "8k", "--workspace", "nowhere").code == 2
    assert "No session" in run("sessions").err


@pytest.mark.parametrize(
    ("bound", "said"),
    [(("--max-steps", "2"), "2 steps were made"), (("--max-minutes", "0.00001"), "seconds have passed")],
)
def test_a_bound_ends_the_run_with_its_name_and_the_way_on(
    run: Run, place: Path, bound: tuple[str, ...], said: str
) -> None:
    path = script_file(place, {**LOOK, "times": 5}, {"say": "Done."})
    done = run("run", "Look.", "--script", path, *BASE, *bound)
    assert done.code == 1
    assert said in done.err
    assert "go on with: transom resume" in done.err
    assert run("resume", "--script", path, *BASE).code == 0


def test_trouble_of_the_model_is_said_with_the_way_on(run: Run, place: Path) -> None:
    path = script_file(place, LOOK, {"fail": "401"})
    done = run("run", "Look.", "--script", path, *BASE)
    assert done.code == 1
    assert "the request failed (invalid): 401" in done.err
    assert "everything so far is stored; go on with: transom resume" in done.err


def test_a_recorded_session_is_played_again_by_name(run: Run, place: Path) -> None:
    path = script_file(place, LOOK, {"say": "Done."})
    first = run("run", "Look.", "--script", path, *BASE, "--json")
    name = json.loads(first.out.splitlines()[-1])["session_id"]
    for called in (name, name[:8], "latest"):
        again = run("run", "Look.", "--provider", "recorded", "--model", called, *BASE)
        assert (again.code, again.out) == (0, "Done.\n"), again.err


def test_a_model_behind_an_api_is_streamed_priced_and_counted(run: Run, place: Path) -> None:
    piece = {"id": "x", "model": "gpt-5-mini", "choices": [{"index": 0, "delta": {"content": "Hello."}}]}
    end = {
        "id": "x",
        "model": "gpt-5-mini",
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 500}},
    }
    with Loopback(Canned(body=sse(json.dumps(piece), json.dumps(end), "[DONE]"))) as server:
        url = f"{server.base_url}/v1"
        done = run(
            "run",
            "Hi.",
            "--provider",
            "compatible",
            "--base-url",
            url,
            "--model",
            "gpt-5-mini",
            "--unsandboxed",
            "--auto",
        )
    assert (done.code, done.out) == (0, "Hello.\n"), done.err
    assert re.search(r"1,010 of \d[\d,]+ \(reported\) · 50% cached · \$0\.000\d", done.err)


def test_a_new_try_after_passing_trouble_is_told_beside_the_answer(run: Run, place: Path) -> None:
    said = {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": "Hello."}, "finish_reason": "stop"}]}
    busy = Canned(status=503, body=b"busy", media_type="text/plain", headers={"retry-after-ms": "1"})
    with Loopback(busy, busy, Canned(body=sse(json.dumps(said), "[DONE]"))) as server:
        model = ("--provider", "compatible", "--base-url", f"{server.base_url}/v1", "--model", "m")
        done = run("run", "Hi.", *model, "--context-limit", "16k", "--unsandboxed", "--auto")
    with Loopback(busy, Canned(body=sse(json.dumps(said), "[DONE]"))) as other:
        model = (*model[:3], f"{other.base_url}/v1", *model[4:])
        told = run("run", "Hi.", *model, "--context-limit", "16k", "--unsandboxed", "--auto", "--json")
    assert all(json.loads(line) for line in told.out.splitlines())
    assert told.err.count("asking again in 0.0 s") == 1
    assert (done.code, done.out) == (0, "Hello.\n"), done.err
    assert done.err.count("asking again in 0.0 s") == 2
    assert "(try 3 of 6)" in done.err
    assert server.base_url in done.err


def test_a_task_is_piped_in(tmp_path: Path) -> None:
    path = script_file(tmp_path, {"say": "Done."})
    command = [sys.executable, "-m", "transom", "run", "--script", str(path), *BASE, "--json"]
    for given, code in ((b"\xef\xbb\xbfLook \xff at it.\n", 0), (b"  \n", 2)):
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(tmp_path), input=given, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == code, done.stderr
        said = [json.loads(line) for line in done.stdout.splitlines()[2:3]]
        assert [one["fact"]["blocks"][0]["text"] for one in said] == ["Look \ufffd at it."] * (not code)
    assert b"there is no task" in done.stderr


def test_commands_run_in_the_sandbox_and_do_not_see_the_store(run: Run, place: Path) -> None:
    try:
        open_sandbox(place)
    except UsageError as problem:
        pytest.skip(str(problem))
    work = place / "work"
    work.mkdir()
    store = place / "store"
    command = f"ls {store}; touch {place}/escaped; touch inside"
    calls = {"call": [{"tool": "run", "arguments": {"command": command}}]}
    path = script_file(place, calls, {"say": "Done."})
    assert run("run", "Go.", "--script", path, "--context-limit", "16k", "--workspace", work).code == 0
    assert (work / "inside").exists()
    assert not (place / "escaped").exists()


class Terminal:
    """The command at a terminal of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "transom", *arguments],
            cwd=folder,
            env=environment(folder, TERM="xterm", COLUMNS="100"),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def until(self, text: str) -> None:
        deadline = time.monotonic() + 60
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if not self._read():
                raise AssertionError(f"it ended before {text!r}: {self.seen}")

    def _read(self) -> bool:
        if not select.select([self._ours], [], [], 0.1)[0]:
            return True
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # the other side of a terminal was closed
            return False
        self.seen += data.decode("utf-8", "replace")
        return bool(data)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        deadline = time.monotonic() + 60
        while self._read() and time.monotonic() < deadline:
            pass
        os.close(self._ours)
        return self.process.wait(10)


def test_at_a_terminal_the_task_and_the_next_message_are_typed(tmp_path: Path) -> None:
    path = script_file(tmp_path, {"thought": "Thinking.", "say": "First answer."}, {"say": "Second answer."})
    term = Terminal(tmp_path, "run", "--script", str(path), *BASE)
    term.until("What is to be done?")
    term.type("Look.\n")
    term.until("empty line: end")
    assert re.search(r"Thinking\.\S*\r\n\S*First answer\.\S*\r\n", term.seen)
    term.type("And now?\n")
    term.until("Second answer.")
    term.type("\n")
    assert term.end() == 0
    assert "2 steps, 1 window" in term.seen


def test_asking_before_a_change_takes_yes_no_and_always(tmp_path: Path) -> None:
    def writes(name: str) -> dict[str, object]:
        return {"call": [{"tool": "write", "arguments": {"path": name, "content": "x"}}]}

    path = script_file(tmp_path, LOOK, *map(writes, ("no", "yes", "always", "unasked")), {"say": "Done."})
    term = Terminal(tmp_path, "run", "Look.", "--script", str(path), "--context-limit", "16k", "--unsandboxed")
    for answer in ("n", "y", "a"):
        term.until("[a]lways this tool: ")
        term.seen = ""
        term.type(f"{answer}\n")
    term.until("empty line: end")
    term.type("\n")
    assert term.end() == 0
    assert [name for name in ("no", "yes", "always", "unasked") if (tmp_path / name).exists()] == [
        *("yes", "always", "unasked")
    ]


def test_what_is_to_be_allowed_hides_nothing_behind_a_long_start(tmp_path: Path) -> None:
    hidden = {"call": [{"tool": "run", "arguments": {"command": f": {'x' * 9000}; touch hidden"}}]}
    term = Terminal(tmp_path, "run", "Go.", "--script", str(script_file(tmp_path, hidden)), *BASE[:3], "--ask")
    term.until("[a]lways this tool: ")
    assert "; touch hidden" in term.seen
    assert re.search(r"\[… 5,\d\d\d characters are not shown …\]", term.seen)
    os.killpg(term.process.pid, signal.SIGINT)
    assert term.end() == 130


def test_ctrl_c_at_a_question_is_no_and_stop(tmp_path: Path) -> None:
    path = script_file(
        tmp_path, {"call": [{"tool": "write", "arguments": {"path": "b.txt", "content": "x"}}]}, {"say": "Done."}
    )
    term = Terminal(tmp_path, "run", "Look.", "--script", str(path), *BASE[:3], "--ask")
    term.until("[a]lways this tool: ")
    os.killpg(term.process.pid, signal.SIGINT)
    term.until("stopped on request")
    assert term.end() == 130
    assert not (tmp_path / "b.txt").exists()


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_once_ends_after_the_step_and_twice_at_once(tmp_path: Path, times: int) -> None:
    command = "echo $$ > started; until [ -e go ]; do sleep 0.1; done; touch whole"
    waits = {"call": [{"tool": "run", "arguments": {"command": command}}]}
    path = script_file(tmp_path, waits, {"say": "Done."})
    term = Terminal(tmp_path, "run", "Wait.", "--script", str(path), *BASE)
    deadline = time.monotonic() + 60
    while not (tmp_path / "started").exists():
        assert time.monotonic() < deadline
        term._read()
    os.killpg(term.process.pid, signal.SIGINT)
    term.until("stopping after this step; Ctrl-C again: now")
    if times == 2:
        os.killpg(term.process.pid, signal.SIGINT)
    else:
        (tmp_path / "go").touch()
    term.until("go on with: transom resume")
    assert term.end() == 130
    assert (tmp_path / "whole").exists() == (times == 1)
    resumed = subprocess.run(
        [sys.executable, "-m", "transom", "resume", "--script", str(path), *BASE, "--json"],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert ("is not known" in resumed.stdout) == (times == 2)


def test_a_narrow_terminal_folds_the_gauge_and_cuts_no_figure(
    run: Run, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    path = script_file(place, LOOK, {"say": "Done."})
    done = run("run", "Look.", "--script", path, *BASE)
    gauges = re.findall(r"step \d · window 1 \[[#-]+\]\s+[\d,]+ of [\d,]+\s+\(reported\)\s+·\s+\d+%\s+cached", done.err)
    assert len(gauges) == 2


def test_of_a_command_that_failed_its_own_words_are_shown(run: Run, place: Path) -> None:
    commands = ("echo first; exit 3", "exit 4", "echo started; echo 'Error: a fault'; exit 5")
    calls = [{"call": [{"tool": "run", "arguments": {"command": one}}]} for one in commands]
    done = run("run", "Go.", "--script", script_file(place, *calls, {"say": "Done."}), *BASE)
    assert [line for line in done.err.splitlines() if line.startswith("  exit ")] == [
        *("  exit 3: first", "  exit 4: no output", "  exit 5: Error: a fault")
    ]


def test_what_the_host_says_and_what_fails_is_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    view = Display()
    facts = (
        HostSaid(kind="reminder", blocks=(Text(text="[host] About 5 tokens are left." + " x" * 200),)),
        WindowRefused(cause="model", reason="would free nothing"),
        RequestFailed(kind="overflow", message="prompt is too long"),
        HostSaid(kind="injected", blocks=(Text(text="unseen"),)),
    )
    for fact in facts:
        view.told(Event(session_id="s", seq=1, uuid="u", at=1, digest=b"", fact=fact))
    said = capsys.readouterr().err
    assert said.replace("\n", " ").replace("  ", " ").count(" x") == 200
    assert "no new window (model): it would free nothing" in said
    assert "the request failed (overflow): prompt is too long" in said
    assert "unseen" not in said


def test_a_request_that_drifts_is_told_once_with_the_reason_and_the_place(capsys: pytest.CaptureFixture[str]) -> None:
    """The bytes of its messages change under the kernel's feet for two requests: one alarm."""
    moved = [b""]
    dialect = replace(DIALECT, message=lambda group: DIALECT.message(group) + moved[0])
    look: dict[str, object] = {"call": [{"tool": "read", "arguments": {"path": "a"}}]}
    live = Live([look, look, look, {"say": "Done."}], given=rules("rollover", 8_000, dialect=dialect))
    view = Display()
    world = replace(live.world, told=view.told)
    view.attach(Agent(live.session, world, Tally()))
    live.user("Fix it.")
    first = len(DIALECT.message(live.session.state.window.items))
    for moved[0] in (b"", b" ", b" ", b""):
        live.session._rendering = Rendering(dialect)
        live.session.step(world)
    told = " ".join(capsys.readouterr().err.split())
    assert told.count("nothing on record says why") == 1
    assert f"(drift:message[0], from byte {first} of message[0] on)" in told
    assert "transom cache inspect s shows both" in told
