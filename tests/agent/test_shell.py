from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from transom.adapters.sandbox import Unsandboxed
from transom.agent.shell import Run, effect, environment, run
from transom.core.block import ToolResultRaw

from .conftest import Call


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def is_gone(pid: int) -> bool:
    """Whether the process ends within a second: SIGKILL is sent, not waited for, where it is nobody's child."""
    for _ in range(100):
        if not is_alive(pid):
            return True
        time.sleep(0.01)
    return False


def wait_for(path: Path) -> int:
    for _ in range(500):
        if path.exists() and path.read_text().strip():
            return int(path.read_text())
        time.sleep(0.01)
    raise AssertionError(f"{path.name} was never written")


def test_output_and_exit_code_come_back(call: Call) -> None:
    given = call("run", command="echo out; echo err >&2; pwd | xargs basename; exit 3")
    assert given.text == "out\nerr\nws\n[exit code 3]"
    assert given.is_error
    assert given.exit_code == 3
    assert call("run", command="true").text == "[exit code 0]"
    assert not call("run", command="printf x").is_error
    assert call("run", command="printf x").text == "x\n[exit code 0]"


def test_a_command_that_a_signal_ended_says_which(call: Call) -> None:
    given = call("run", command="kill -SEGV $$")
    assert given.text.endswith("[ended by SIGSEGV]")
    assert given.exit_code == -11


def test_there_is_no_input_and_no_terminal(call: Call) -> None:
    assert call("run", command="cat; test -t 1 || echo none", timeout=5).text == "none\n[exit code 0]"


def test_bytes_that_are_no_text_are_replaced(call: Call) -> None:
    assert call("run", command=r"printf 'caf\351\0x'").text == "caf\ufffd\x00x\n[exit code 0]"


def test_a_command_that_takes_too_long_is_ended_with_what_it_printed(call: Call) -> None:
    began = time.monotonic()
    given = call("run", command="echo begun; sleep 60", timeout=1)
    assert time.monotonic() - began < 10
    assert given.text.startswith("begun\n[ended after 1 s, with all it had started; give a longer timeout")
    assert given.is_error
    assert given.exit_code is None


def test_children_that_ignore_sigterm_and_leave_the_group_are_ended_too(root: Path, call: Call) -> None:
    if not Path("/proc/self/task").is_dir():
        pytest.skip("finding children that left the group needs /proc")
    code = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open(%r, 'w').write(str(os.getpid())); time.sleep(60)"
    (root / "deaf.py").write_text(code % "deaf")
    (root / "gone.py").write_text(code % "gone")
    given = call("run", command=f"{sys.executable} deaf.py & setsid {sys.executable} gone.py & wait", timeout=2)
    assert "ended after 2 s" in given.text
    for name in ("deaf", "gone"):
        assert is_gone(wait_for(root / name)), name


def test_a_command_may_clean_up_before_it_is_killed(root: Path, call: Call) -> None:
    call("run", command="trap 'rm lock; exit' TERM; touch lock; while :; do sleep 0.05; done", timeout=1)
    assert not (root / "lock").exists()


def test_what_runs_in_the_background_does_not_hold_the_call_and_ends_with_it(root: Path, call: Call) -> None:
    began = time.monotonic()
    given = call("run", command="sleep 60 & echo $! >pid; echo done")
    assert time.monotonic() - began < 10
    assert given.text == "done\n[exit code 0]"
    assert is_gone(int((root / "pid").read_text()))


def test_a_command_that_closes_its_output_is_waited_for(root: Path, call: Call) -> None:
    given = call("run", command="exec >&- 2>&-; sleep 0.3; touch late")
    assert given.exit_code == 0
    assert (root / "late").exists()


def test_a_megabyte_of_output_is_kept_whole_and_more_is_cut_with_a_count(call: Call) -> None:
    whole = call("run", command="seq 1 150000")
    assert len(whole.text) == 938_895 + len("[exit code 0]")
    cut = call("run", command="seq 1 1000000")  # 6.9 MB
    assert cut.text.startswith("1\n2\n3\n")
    assert cut.text.endswith("\n999999\n1000000\n[exit code 0]")
    assert " bytes are left out here" in cut.text
    assert len(cut.text) < 4.3e6


def test_endless_output_costs_its_time_limit_and_no_more(call: Call) -> None:
    given = call("run", command="yes", timeout=1)
    assert "[ended after 1 s" in given.text
    assert len(given.text) < 4.3e6


def test_too_many_processes_end_the_command(root: Path) -> None:
    if not Path("/proc/loadavg").exists():
        pytest.skip("counting processes needs /proc")
    began = time.monotonic()
    outcome = run(root, Unsandboxed(most_processes=40), Run(command="for i in $(seq 60); do sleep 20 & done; wait"))
    assert time.monotonic() - began < 10
    (block,) = outcome.blocks
    assert isinstance(block, ToolResultRaw)
    assert block.text.endswith("[ended: more than 40 processes and threads; run fewer at once]")


def test_a_command_as_long_as_no_system_takes_is_told(call: Call) -> None:
    given = call("run", command="echo " + "é" * 99_000)
    assert given.is_error
    assert given.text.startswith("Argument list too long")
    assert "goes into a file first" in given.text


def test_secrets_of_the_environment_are_not_handed_on(monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    named = ("ANTHROPIC_API_KEY", "GITHUB_TOKEN", "my_password", "SSH_AUTH_SOCK", "AWS_SECRET_ACCESS_KEY")
    for name in (*named, "MYSQL_PWD", "GH_PAT", "GPG_PASSPHRASE", "npm_config__auth", "SMTP_PASS"):
        monkeypatch.setenv(name, "hush")
    monkeypatch.setenv("GOPATH", "/go")
    assert "hush" not in call("run", command="env").text
    assert environment()["GOPATH"] == "/go"
    assert "PATH" in environment()
    assert call("run", command="echo $TERM $PAGER").text.startswith("dumb cat\n")


def test_ctrl_c_ends_the_command_and_goes_on_up(root: Path) -> None:
    """A process of its own is interrupted while a command runs; the command's child must be gone."""
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from transom.adapters.sandbox import Unsandboxed
        from transom.agent.shell import Run, run
        try:
            run(Path(sys.argv[1]), Unsandboxed(), Run(command="sleep 60 & echo $! >pid; wait"))
        except KeyboardInterrupt:
            print("interrupted")
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script, root], stdout=subprocess.PIPE, text=True)
    pid = wait_for(root / "pid")
    assert is_alive(pid)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert out == "interrupted\n"
    assert is_gone(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_does_not_outlive_who_is_told_to_end_or_loses_the_terminal(root: Path, number: int) -> None:
    script = (
        "import signal, sys; from pathlib import Path; from transom.adapters.sandbox import Unsandboxed; "
        "from transom.agent.shell import Run, run; signal.signal(signal.SIGHUP, signal.SIG_DFL); "  # as without nohup
        "run(Path(sys.argv[1]), Unsandboxed(), Run(command='sleep 60 & echo $! >pid; wait'))"
    )
    process = subprocess.Popen([sys.executable, "-c", script, root])
    pid = wait_for(root / "pid")
    process.send_signal(number)
    assert process.wait(30) == 128 + number
    assert is_gone(pid)


def test_ctrl_c_at_any_moment_leaves_nothing_running(root: Path) -> None:
    script = textwrap.dedent(
        """
        import os, random, signal, sys, threading
        from pathlib import Path
        from transom.adapters.sandbox import Unsandboxed
        from transom.agent.shell import Run, run
        stopped = 0
        for n in range(60):
            timer = threading.Timer(random.Random(n).uniform(0, 0.02), os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                run(Path(sys.argv[1]), Unsandboxed(), Run(command="echo $$ >>pids; sleep 60"))
            except KeyboardInterrupt:
                stopped += 1
            timer.join()
        print(stopped)
        """
    )
    done = subprocess.run([sys.executable, "-c", script, root], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "60\n"
    begun = (root / "pids").read_text().split()
    assert begun
    assert all(is_gone(int(pid)) for pid in begun)


@pytest.mark.parametrize(
    "command",
    [
        *(
            "ls",
            "ls -la src",
            "cat a.txt b.txt",
            "git status --short",
            "git log -3 --oneline",
            "git diff HEAD~1",
            "wc -l a",
        ),
        *(
            "head -n 5 'a file.txt'",
            "grep -rn TODO src",
            "echo done",
            "git show HEAD:src/a.py",
            "pwd",
            "git log main..HEAD",
        ),
    ],
)
def test_a_plain_look_is_a_read(command: str) -> None:
    assert effect(Run(command=command)) == "read"


@pytest.mark.parametrize(
    "command",
    [
        *("make", "ls; rm x", "ls | tee x", "cat a > b", "cat $(x)", "cat `x`", "ls && rm x", "ls\nrm x", "ls & rm x"),
        *(
            "git commit -m x",
            "git push",
            "git -c a=b status",
            "git",
            "git diff --output=x",
            "git diff --ext-diff",
            "git diff --outp=x",
            "git log --exe",
        ),
        *(
            "cat /etc/passwd",
            "cat ../x",
            "cat ~/x",
            "ls --color=/x",
            "find . -delete",
            "rg --pre x y",
            "env x",
            "cat 'x",
        ),
        *("./ls", "/bin/ls", "ls *.py", "sort -o a b", "sed -i s/a/b/ x", "A=1 ls", "", " ", "ls # x", "cat {a,b}"),
    ],
)
def test_all_else_is_external(command: str) -> None:
    assert effect(Run(command=command)) == "external"


def test_nothing_is_left_open_by_many_commands(root: Path) -> None:
    here = Path("/proc/self/fd")
    if not here.is_dir():
        pytest.skip("counting open files needs /proc")
    before = len(list(here.iterdir()))
    for _ in range(30):
        run(root, Unsandboxed(), Run(command=":"))
    assert len(list(here.iterdir())) == before
