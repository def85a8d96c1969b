"""`transom gateway` as a process: serve, set, start a client, show what it does."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx2
import msgspec
import pytest

from transom.cli import main
from transom.cli.status import Row, Status
from transom.errors import BadInput
from transom.gateway.clients import CLIENTS, client_in
from transom.testing.client import Client
from transom.testing.model_server import ModelServer


@contextmanager
def served(model: ModelServer, store: Path, *more: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a gateway in a process of its own."""
    ups = ["--upstream", f"anthropic={model.base_url}", "--upstream", f"openai={model.base_url}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "transom", "gateway", "--port", "0", *ups, "--store", str(store), *more],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert "gateway: http://127.0.0.1:" in line, line
        yield line.split()[1], process
    finally:
        process.terminate()
        process.wait(20)
        process.stderr.close()


def ready(url: str) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            return bool(httpx2.get(f"{url}/transom/ready").json()["ready"])
        except httpx2.HTTPError:
            time.sleep(0.05)
    return False


def test_a_gateway_serves_says_what_it_does_and_ends_when_it_is_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ModelServer(lambda _: ["Done."]) as model, served(model, tmp_path, "--context-limit", "20k") as (url, process):
        assert ready(url)
        client = Client("anthropic", url, lambda *_: "")
        client.say("Go.")
        assert not client.step()
        assert main(["gateway", "status", "--at", url]) == 0
        shown = capsys.readouterr().out
        assert "requests  plain 1\nverdicts  miss initial 1\n" in shown
        assert "unknown client" in shown
        assert "initial 1" in shown
        assert main(["gateway", "status", "--at", url, "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["sessions"]
        assert row["requests"] == 1
        assert (row["limit"], row["context_limit"]) == (17_500, 20_000)
        assert row["misses"] == {"initial": 1}
        text = httpx2.get(f"{url}/transom/metrics").text
        assert 'transom_requests_total{status="plain"} 1' in text
        assert httpx2.get(f"{url}/transom/health").json() == {"status": "ok"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


STATUS = Status(
    sessions=(
        Row(
            session="0123456789abcdef",
            client="mini-swe-agent",
            model="a-model-with-a-name-of-some-length",
            window=7,
            tokens=123_456,
            limit=170_000,
            context_limit=200_000,
            requests=1_234,
            boundaries=6,
            prompt_tokens=1_000,
            cached_tokens=970,
            usd=12.345,
            misses={"initial": 1, "reset:rollover": 6, "change:tools": 2},
            price="unknown",
            is_price_assumed=True,
        ),
    ),
    metrics={'requests{status="governed"}': 1_234, 'upstream_errors{kind="unavailable"}': 3, "output_tokens": 9},
)


@contextmanager
def telling(*answers: bytes, code: int = 200) -> Iterator[str]:
    """The address of a server that gives these answers, the last one for ever."""
    left = list(answers)

    class Teller(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.end_headers()
            self.wfile.write(left.pop(0) if len(left) > 1 else left[0])

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Teller) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("width", ["60", "80", "120", ""])
def test_status_shows_every_figure_whole_at_any_width_and_marks_what_is_assumed(
    width: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    with telling(msgspec.json.encode(STATUS)) as url:
        assert main(["gateway", "status", "--at", url]) == 0
    shown = capsys.readouterr().out
    assert "…" not in shown
    told = " ".join(shown.split())
    for figure in (
        *("01234567", "mini-swe-agent", "a-model-with-a-name-of-some-length", "7", "123,456 of 170,000", "97%", "6"),
        *("1,234", "$12.35 *", "initial 1", "reset:rollover 6", "change:tools 2", "unavailable 3", "governed 1,234"),
        "no price of the model is known: a-model-with-a-name-of-some-length by the entry `unknown`",
        "as counted here, of what the context limit leaves beside room for an answer",
    ):
        assert figure in told, figure
    if width:
        assert max(map(len, shown.splitlines())) <= int(width)


def test_status_of_a_gateway_that_nobody_asked_yet_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with telling(msgspec.json.encode(Status(sessions=(), metrics={}))) as url:
        assert main(["gateway", "status", "--at", url]) == 0
    assert "No session is in memory" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("code", "answer", "said"),
    [
        (200, b"<html>", "what answers there is no gateway, or one of another version"),
        (404, b"", "no gateway answers there: something else does (404)"),
        (401, b"", "the gateway there wants its token: --token"),
    ],
)
def test_what_answers_and_is_no_gateway_is_said(
    code: int, answer: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with telling(answer, code=code) as url:
        assert main(["gateway", "status", "--at", url]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_watch_into_a_pipe_prints_what_changed_and_ends_well_on_ctrl_c(flags: tuple[str, ...]) -> None:
    first, second = (msgspec.json.encode(Status(sessions=(), metrics={"unkept": number})) for number in (1, 2))
    with telling(first, first, second) as url:
        command = [sys.executable, "-m", "transom", "gateway", "status", "--watch", "--at", url, *flags]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        told: list[str] = []
        while len(told) < 2:
            line = process.stdout.readline()
            assert line, "it ended by itself"
            told += [line] if "unkept" in line else []
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        process.stdout.close()
    assert [("1" in line, "2" in line) for line in told] == [(True, False), (False, True)]
    assert not any("\x1b" in line for line in told)


def test_others_than_this_machine_need_a_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway", "--host", "0.0.0.0", "--store", str(tmp_path)]) == 2
    assert "give --token" in capsys.readouterr().err
    with ModelServer(lambda _: ["Done."]) as model, served(model, tmp_path, "--token", "hush") as (url, _):
        assert ready(url)
        client = Client("anthropic", url, lambda *_: "")
        client.say("Go.")
        with pytest.raises(Exception, match="401"):
            client.step()
        assert httpx2.get(f"{url}/transom/status").status_code == 401
        client.base_url = f"{url}/t/hush"
        assert not client.step()
        assert httpx2.get(f"{url}/transom/status", headers={"x-transom-token": "hush"}).status_code == 200
        assert b"hush" not in model.asked[0][2]
        assert not any("hush" in value for value in model.asked[0][1].values())


@pytest.mark.parametrize("name", list(CLIENTS))
def test_each_client_s_settings_name_the_gateway(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway", "env", name, "--port", "5151"]) == 0
    said = capsys.readouterr()
    assert "http://127.0.0.1:5151" in said.out
    assert "{root}" not in said.out + said.err
    assert "{v1}" not in said.out + said.err
    assert CLIENTS[name].version in said.err
    if CLIENTS[name].env:
        words = [line.split()[0] for line in said.out.splitlines()]
        assert set(words) <= {"export", "#", CLIENTS[name].command}, "a shell takes all of it"


def test_settings_name_the_host_and_the_token_of_the_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway", "env", "claude-code", "--host", "::1", "--port", "5151", "--token", "hush"]) == 0
    assert "ANTHROPIC_BASE_URL='http://[::1]:5151/t/hush'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "name", "rest"),
    [
        ("claude -p codex", "claude-code", "-p codex"),
        ("/usr/local/bin/claude.exe -p x", "claude-code", "-p x"),
        (r"C:\tools\codex.CMD exec", "codex", "exec"),
        ("npx claude", "claude-code", ""),
        ("npx -y @anthropic-ai/claude-code@latest -p x", "claude-code", "-p x"),
        ("npx -p @openai/codex codex exec", "codex", "exec"),
        ("env A=1 B=2 claude x", "claude-code", "x"),
        ("bunx opencode-ai", "", ""),
        ("uvx --from aider-chat aider --yes", "aider", "--yes"),
        ("uvx mini-swe-agent", "mini-swe-agent", ""),
        ("node /opt/bin/codex.js exec", "codex", "exec"),
        ("env A=1 ls", "", ""),
        ("vi claude", "", ""),
    ],
)
def test_a_client_is_found_behind_what_starts_it(command: str, name: str, rest: str) -> None:
    words = command.split()
    if not name:
        with pytest.raises(BadInput, match="--client NAME says which it is"):
            client_in(words)
        assert client_in(words, "codex")[0].name == "codex"
        return
    found, place = client_in(words)
    assert (found.name, " ".join(words[place + 1 :])) == (name, rest)


def test_a_store_that_cannot_be_used_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    with sqlite3.connect(tmp_path / "foreign" / "log.db") as db:
        db.execute("CREATE TABLE other (a)")
    db.close()
    (tmp_path / "file").touch()
    for store, said in (("foreign", "an SQLite file of another program"), ("file", "is a file; a store is a folder")):
        command = [sys.executable, "-m", "transom", "gateway", "--port", "0", "--store", str(tmp_path / store)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1, done.stderr
        assert said in done.stderr


def test_a_client_that_cannot_be_served_is_named_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway", "env", "gemini-cli"]) == 2
    assert "speaks the Gemini API alone" in capsys.readouterr().err
    assert main(["gateway", "env", "x"]) == 2
    assert "known are claude-code, codex" in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["20k", "0"])
def test_a_client_is_started_behind_a_gateway_of_its_own_and_its_exit_code_is_ours(limit: str, tmp_path: Path) -> None:
    """The client is a script of that name; it asks once and leaves with 3. Nobody knows the window of its model."""
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\n"
        "import os, sys, json, urllib.request as u\n"
        "url = os.environ['ANTHROPIC_BASE_URL'] + '/v1/messages'\n"
        "body = {'model': 'm1', 'max_tokens': 9, 'messages': [{'role': 'user', 'content': sys.argv[2]}]}\n"
        "asked = u.Request(url, json.dumps(body).encode(), {'content-type': 'application/json'})\n"
        "print(json.load(u.urlopen(asked))['content'][0]['text'])\n"
        "sys.exit(3)\n",
        "utf-8",
    )
    program.chmod(0o755)
    with ModelServer(lambda asked: [f"You said {asked['messages'][0]['content']}."]) as model:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "transom", "gateway", "run", "--upstream", f"anthropic={model.base_url}"),
                *("--context-limit", limit, "--store", str(tmp_path / "store"), "--", "claude", "-p", "hello"),
            ],
            env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 3, done.stderr
    assert done.stdout == "You said hello.\n"
    assert ("not all was governed: UsageError: " in done.stderr) == (limit == "0")
    assert main(["verify", "--store", str(tmp_path / "store")]) == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["gateway", "--upstream", "x"], "write anthropic=URL or openai=URL"),
        (["gateway", "--upstream", "openai=ftp://x"], "is no http or https URL"),
        (["gateway", "--policy", "nothing"], "no preset is called"),
        (["gateway", "--policy", "recorded"], "known are raw, fifo,"),
        (["gateway", "--port", "1", "--host", "192.0.2.1", "--token", "x"], "choose another"),
        (["gateway", "--redact", "gone.toml"], "gone.toml: cannot be read: No such file or directory; it takes names"),
        (["gateway", "run"], "name the client after --"),
        (["gateway", "run", "--", "claude-code-that-is-not"], "--client NAME says which it is, one of claude-code"),
        (["gateway", "status", "--at", "http://127.0.0.1:9"], "no gateway answers there: Connection refused"),
        (["gateway", "status", "--at", "ftp://x"], "is no http or https URL"),
        (["gateway", "status", "--at", "127.0.0.1:9"], "http://127.0.0.1:9: no gateway answers there"),
        (["gateway", "--port", "99999"], 'Invalid value "99999" for --port'),
        (["gateway", "env", "codex", "--port", "0"], 'Invalid value "0" for --port'),
        (["gateway", "--max-mb", "0"], 'Invalid value "0" for --max-mb'),
        (["gateway", "--timeout", "0"], "Must be > 0"),
        (["gateway", "--context-limit", "500"], "the gateway's own tools are"),
        (["gateway", "run", "--context-limit", "500", "--", "env", "claude"], "the gateway's own tools are"),
        (["gateway", "run", "--", "npx", "gemini"], "speaks the Gemini API alone"),
        (["gateway", "run", "--", "pi", "-p", "hi"], "pi is set by a file alone"),
        (["gateway", "run", "--client", "nobody", "--", "x"], "client 'nobody' is not known"),
        (["gateway", "env", "codex", "--token", "a/b"], "--token takes letters"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(
    arguments: list[str],
    problem: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRANSOM_HOME", str(tmp_path))
    assert main(arguments) == 2
    assert problem in capsys.readouterr().err
