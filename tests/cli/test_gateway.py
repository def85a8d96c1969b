"""`transom gateway` as a process: serve, set, start a client, show what it does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from transom.cli import main
from transom.gateway.clients import CLIENTS
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
        assert 'requests{status="plain"} 1' in shown
        assert main(["gateway", "status", "--at", url, "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["sessions"]
        assert row["requests"] == 1
        assert row["limit"] == 17_500
        text = httpx2.get(f"{url}/transom/metrics").text
        assert 'transom_requests_total{status="plain"} 1' in text
        assert httpx2.get(f"{url}/transom/health").json() == {"status": "ok"}
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


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


def test_a_client_that_cannot_be_served_is_named_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway", "env", "gemini-cli"]) == 2
    assert "speaks the Gemini API alone" in capsys.readouterr().err
    assert main(["gateway", "env", "x"]) == 2
    assert "known are claude-code, codex" in capsys.readouterr().err


def test_a_client_is_started_behind_a_gateway_of_its_own_and_its_exit_code_is_ours(tmp_path: Path) -> None:
    """The client is a script of that name; it asks once and leaves with 3."""
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
                *("--context-limit", "20k", "--store", str(tmp_path / "store"), "--", "claude", "-p", "hello"),
            ],
            env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 3, done.stderr
    assert done.stdout == "You said hello.\n"
    assert main(["verify", "--store", str(tmp_path / "store")]) == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["gateway", "--upstream", "x"], "write anthropic=URL or openai=URL"),
        (["gateway", "--upstream", "openai=ftp://x"], "is no http or https URL"),
        (["gateway", "--policy", "nothing"], "no preset is called"),
        (["gateway", "--port", "1", "--host", "192.0.2.1", "--token", "x"], "choose another"),
        (["gateway", "--redact", "gone.toml"], "it takes names and patterns"),
        (["gateway", "run"], "name the client after --"),
        (["gateway", "run", "--", "claude-code-that-is-not"], "is not known"),
        (["gateway", "status", "--at", "http://127.0.0.1:9"], "no gateway answers there"),
        (["gateway", "status", "--at", "x"], "is no http or https URL"),
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
