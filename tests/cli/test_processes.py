"""The command as a process: start-up, pipes, colours, and being interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .conftest import claude_lines

TRANSOM = Path(sys.executable).parent / "transom"


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "TRANSOM_", "COLUMNS"))}
    return kept | {"HOME": str(tmp_path), "TRANSOM_HOME": str(tmp_path / "store")} | more


def call(tmp_path: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "transom", *arguments],
        cwd=tmp_path,
        env=environment(tmp_path, **more),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX here")
def test_an_interrupted_import_leaves_a_store_that_verifies_and_the_next_run_completes_it(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text("\n".join(claude_lines(3_000)) + "\n")
    command = [sys.executable, "-m", "transom", "replay", str(path), "--arms", "raw"]
    process = subprocess.Popen(
        command, env=environment(tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    wal = tmp_path / "store" / "log.db-wal"
    deadline = time.monotonic() + 60
    while not (wal.exists() and wal.stat().st_size > 50_000):
        assert time.monotonic() < deadline
        assert process.poll() is None, "it was done before it could be interrupted"
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "interrupted" in said
    assert "Traceback" not in said
    assert call(tmp_path, "verify").returncode == 0
    done = call(tmp_path, "replay", str(path), "--arms", "raw", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert '"steps": 3000' in done.stdout
    assert call(tmp_path, "verify").returncode == 0


def test_a_piped_command_is_plain_and_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text("\n".join(claude_lines(400)) + "\n")
    done = call(tmp_path, "replay", "session.jsonl", "--arms", "raw", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    shown = subprocess.run(
        ["bash", "-c", f'set -o pipefail; "{sys.executable}" -m transom show latest --window | head -1'],
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shown.returncode == 0
    assert shown.stdout.startswith("the window of claude-code:")
    assert "Traceback" not in shown.stderr
    assert "Exception" not in shown.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_nobody_there(tmp_path: Path, closed: str) -> None:
    (tmp_path / "s.json").write_text('{"step": [{"say": "Done."}]}')
    flags = "--script s.json --context-limit 16k --unsandboxed --auto"
    line = f'"{sys.executable}" -m transom run Look. {flags} {closed}'
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=environment(tmp_path), capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert call(tmp_path, "verify").returncode == 0


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["resume", "--help"]])
def test_help_loads_nothing_of_the_kernel(arguments: list[str]) -> None:
    code = f"import sys; from transom.cli import main; main({arguments}); sys.exit('transom.session' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
