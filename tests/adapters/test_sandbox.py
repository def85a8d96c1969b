"""The sandbox, by what commands can do inside of it. Fork bombs run only as a user whom the kernel bounds."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from transom.adapters.sandbox import Bubblewrap, Unsandboxed, open_sandbox
from transom.agent.shell import Run, run
from transom.core.block import ToolResultRaw
from transom.errors import UsageError
from transom.ports import Sandbox

_PYTHON = Path(sys.executable).resolve()
"""Not the one of a virtual environment, which may stand in a folder that the sandbox has its own of (`/tmp`)."""

_NOBODY = 54321
"""A user that owns no process and no file of the machine."""


def needs_bubblewrap(root: Path) -> None:
    if not shutil.which("bwrap"):
        pytest.skip("bubblewrap (bwrap) is not installed")
    try:
        open_sandbox(root)
    except UsageError as problem:
        pytest.skip(f"bubblewrap does not work here: {problem}")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    (folder / ".ssh" / "id").write_text("private key")
    (folder / ".netrc").write_text("password")
    (folder / ".codex").mkdir()
    (folder / ".codex" / "auth.json").write_text("login of an agent")
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def root(tmp_path: Path, home: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    needs_bubblewrap(folder)
    return folder


def said(root: Path, sandbox: Sandbox, command: str, timeout: int = 20) -> str:
    (block,) = run(root, sandbox, Run(command=command, timeout=timeout)).blocks
    assert isinstance(block, ToolResultRaw)
    return block.text


def test_a_command_writes_to_the_workspace_and_nowhere_else(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    text = said(root, open_sandbox(root), f"echo in >in; echo x >{outside}/x; echo x >/etc/transom-x; echo $PWD")
    assert (root / "in").read_text() == "in\n"
    assert list(outside.iterdir()) == []
    assert not Path("/etc/transom-x").exists()
    assert f"{root}\n[exit code 0]" in text
    assert text.count("Read-only file system") + text.count("No such file or directory") == 2


def test_a_link_out_of_the_workspace_is_not_written_through(root: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/var/lib" if os.geteuid() == 0 else Path.cwd()) as folder:
        (root / "out").symlink_to(folder)
        assert "Read-only file system" in said(root, open_sandbox(root), "echo x >out/x")
        assert list(Path(folder).iterdir()) == []


def test_temporary_files_are_private_and_gone_after_the_call(root: Path) -> None:
    sandbox = open_sandbox(root)
    mark = Path("/tmp/transom-mark")
    assert said(root, sandbox, f"echo x >{mark}; cat {mark}; echo $TMPDIR") == "x\n/tmp\n[exit code 0]"
    assert not mark.exists()
    assert "No such file" in said(root, sandbox, f"cat {mark}")


def test_keys_and_what_is_hidden_are_not_seen(root: Path, home: Path, tmp_path: Path) -> None:
    store = root / "store"
    store.mkdir()
    (store / "log.db").write_text("other sessions")
    sandbox = open_sandbox(root, hidden=(store, tmp_path / "not-there"))
    text = said(root, sandbox, "cat ~/.ssh/id ~/.netrc ~/.codex/auth.json store/log.db /etc/shadow; ls ~ 2>&1")
    assert not any(word in text for word in ("private key", "password", "login of", "other sessions", "root:"))
    inside = open_sandbox(home)
    text = said(home, inside, "cat .ssh/id .netrc .codex/auth.json; echo ok >note")
    assert not any(word in text for word in ("private key", "password", "login of"))
    assert (home / "note").read_text() == "ok\n"


def test_what_is_hidden_is_not_moved_to_where_it_is_seen(home: Path) -> None:
    needs_bubblewrap(home)
    names = (".config/gh/hosts.yml", "work/deep/store/log.db", ".git/store/log.db", ".git/hooks/x")
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("token")
    sandbox = open_sandbox(home, hidden=(home / "work" / "deep" / "store", home / ".git" / "store"))
    said(home, sandbox, "for name in .config .codex .ssh work work/deep .git .git/store; do mv $name moved; done")
    assert all((home / name).read_text() == "token" for name in names)
    text = said(home, sandbox, "echo evil >.git/hooks/x; echo ok >work/deep/note; grep -r token . .git; cat .codex/*")
    assert "token" not in text.replace("./.git/hooks/x:token", "").replace(".git/hooks/x:token", "")
    assert "login of" not in text
    assert (home / ".git" / "hooks" / "x").read_text() == "token"
    assert (home / "work" / "deep" / "note").read_text() == "ok\n"


def test_what_a_link_hides_stays_hidden_when_the_link_goes(home: Path) -> None:
    needs_bubblewrap(home)
    (home / "dotfiles").mkdir()
    (home / "dotfiles" / "gh").write_text("token")
    (home / ".docker").symlink_to("dotfiles/gh")
    (home / "dotfiles" / "store").write_text("token")
    (home / "store").symlink_to("dotfiles/store")
    sandbox = open_sandbox(home, hidden=(home / "store",))
    assert "token" not in said(home, sandbox, "cat dotfiles/*; rm .docker store; mkdir .docker store")
    assert (home / ".docker").is_dir()
    assert "token" not in said(home, sandbox, "cat dotfiles/*")


@pytest.mark.parametrize("target", ["/usr", "/", "/usr/lib", "/etc"])
def test_a_link_that_a_command_made_leaves_the_sandbox_working(home: Path, target: str) -> None:
    needs_bubblewrap(home)
    sandbox = open_sandbox(home)
    assert said(home, sandbox, f"ln -s {target} .aws; echo made") == "made\n[exit code 0]"
    assert said(home, sandbox, "echo on") == "on\n[exit code 0]"
    assert said(home, open_sandbox(home), "ls >/dev/null; echo on") == "on\n[exit code 0]"


def test_there_is_no_network_unless_it_is_allowed(root: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"{_PYTHON} -c \"import socket; socket.create_connection(('127.0.0.1', {port}), 5)\""
        assert "[exit code 1]" in said(root, open_sandbox(root), code)
        allowed = open_sandbox(root, is_network_allowed=True)
        assert said(root, allowed, code) == "[exit code 0]"
        assert "with the network" in allowed.contained


def test_processes_of_the_machine_are_neither_seen_nor_reached(root: Path) -> None:
    text = said(root, open_sandbox(root), f"ls -d /proc/[0-9]* | wc -l; kill -0 {os.getpid()}")
    assert int(text.split()[0]) < 12
    assert "No such process" in text or os.getpid() < 12


def test_no_privilege_is_held_or_gained(root: Path) -> None:
    text = said(root, open_sandbox(root), "grep -E '^(CapEff|NoNewPrivs)' /proc/self/status; mount -t tmpfs x /mnt")
    assert text.startswith("CapEff:\t0000000000000000\nNoNewPrivs:\t1\n")
    assert "[exit code 0]" not in text


def test_no_setting_of_the_kernel_is_written_by_root_either(root: Path) -> None:
    """The same value is written that stands there: where it could be written, nothing is harmed."""
    name = "/proc/sys/kernel/core_pattern"
    text = said(root, open_sandbox(root), f'same=$(cat {name}); printf %s "$same" >{name}')
    assert "[exit code 1]" in text
    assert "Read-only file system" in text or (os.geteuid() != 0 and "Permission denied" in text)


def test_root_works_in_the_workspace_of_another_user(root: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("giving a folder away needs root")
    (root / "theirs").write_text("x")
    for path in (root, root / "theirs"):
        os.chown(path, _NOBODY, _NOBODY)
    root.chmod(0o700)
    text = said(root, open_sandbox(root), "echo y >>theirs; echo z >mine; cat theirs; cat /etc/shadow; echo x >/etc/x")
    assert text.startswith("xy\n")
    assert (root / "mine").read_text() == "z\n"
    assert "root:" not in text
    assert not Path("/etc/x").exists()


@pytest.mark.parametrize("has_hooks", [True, False])
def test_hooks_and_config_that_git_obeys_outside_cannot_be_planted(root: Path, has_hooks: bool) -> None:
    subprocess.run(["git", "init", "-q", "--template=", root], check=True)
    if has_hooks:
        (root / ".git" / "hooks").mkdir()
    for command in (
        "echo 'touch ran' >.git/hooks/pre-commit; false",
        "git config core.fsmonitor ./x",
        "mv .git old && cp -r old .git",
        "rm -rf .git/hooks",
    ):
        assert "[exit code 0]" not in said(root, open_sandbox(root), command), command
    assert not (root / ".git" / "hooks" / "pre-commit").exists()
    commit = "echo x >a && git add a && git -c user.name=n -c user.email=e commit -qm x && git log --format=%s"
    assert said(root, open_sandbox(root), commit).endswith("x\n[exit code 0]")


def test_where_a_worktree_has_its_repository_is_not_changed(root: Path) -> None:
    (root / ".git").write_text("gitdir: /elsewhere\n")
    for command in ("echo gitdir: evil >.git", "rm .git", "mv .git old", "ln -sf evil .git"):
        assert "[exit code 0]" not in said(root, open_sandbox(root), command), command
    assert (root / ".git").read_text() == "gitdir: /elsewhere\n"


def test_a_bubblewrap_in_the_workspace_is_none(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "bin").mkdir()
    (root / "bin" / "bwrap").write_text("#!/bin/sh\nexit 42\n")
    (root / "bin" / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{root / 'bin'}{os.pathsep}{os.environ['PATH']}")
    sandbox = open_sandbox(root)
    assert isinstance(sandbox, Bubblewrap)
    assert not Path(sandbox.program).is_relative_to(root)


def test_nothing_outlives_the_call(root: Path) -> None:
    sandbox = open_sandbox(root)
    code = f"{_PYTHON} -c \"import time; time.sleep(0.7); open('late', 'w')\""
    assert said(root, sandbox, f"setsid nohup {code} >/dev/null 2>&1 & disown; echo begun") == "begun\n[exit code 0]"
    text = said(root, sandbox, f"trap '' TERM; setsid {code} & sleep 60", timeout=1)
    assert "[ended after 1 s" in text
    (root / "late").unlink(missing_ok=True)
    time.sleep(1)
    assert not (root / "late").exists()


def test_a_command_may_clean_up_before_it_is_killed(root: Path) -> None:
    said(root, open_sandbox(root), "trap 'rm lock; exit' TERM; touch lock; while :; do sleep 0.05; done", timeout=1)
    assert not (root / "lock").exists()


def test_killing_us_kills_the_command(root: Path) -> None:
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from transom.adapters.sandbox import open_sandbox
        from transom.agent.shell import Run, run
        root = Path(sys.argv[1])
        run(root, open_sandbox(root), Run(command="touch begun; sleep 1; touch late"))
        """
    )
    process = subprocess.Popen([sys.executable, "-c", script, root])
    for _ in range(1000):
        if (root / "begun").exists():
            break
        time.sleep(0.01)
    process.kill()
    process.wait()
    time.sleep(1.5)
    assert (root / "begun").exists()
    assert not (root / "late").exists()


def test_a_heap_is_bounded(root: Path) -> None:
    sandbox = open_sandbox(root)
    assert isinstance(sandbox, Bubblewrap)
    small = Bubblewrap(program=sandbox.program, root=root, heap_bytes=200 * 1024 * 1024)
    text = said(root, small, f'{_PYTHON} -c "x = bytearray(400 * 1024 * 1024)"; cat /proc/self/oom_score_adj')
    assert "MemoryError" in text
    assert text.endswith("1000\n[exit code 0]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounded:
    """A sandbox started by a user who may have `processes` at most: what is tested here cannot hurt the machine."""

    inner: Sandbox
    processes: int
    has_keeper: bool = True

    @property
    def contained(self) -> str:
        return self.inner.contained

    @property
    def most_processes(self) -> int:
        return self.inner.most_processes

    def argv(self, command: str) -> tuple[str, ...]:
        user = ("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--")
        return (*user, "prlimit", f"--nproc={self.processes}:{self.processes}", "--", *self.inner.argv(command))


@pytest.fixture
def nobodys(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A workspace of nobody, where a bomb can be tried by root too."""
    if os.geteuid() != 0 or not shutil.which("setpriv") or not shutil.which("prlimit"):
        pytest.skip("becoming another user needs root, setpriv and prlimit")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        monkeypatch.setenv("HOME", folder)
        needs_bubblewrap(root)
        bounded = Bounded(inner=open_sandbox(root), processes=50)
        if said(root, bounded, "exit 0") != "[exit code 0]":
            pytest.skip("bubblewrap does not work here for a user who is not root")
        yield root


@pytest.mark.parametrize("bomb", [":(){ :|:& };:; sleep 20", "for i in $(seq 300); do sleep 20 & done; wait"])
def test_a_fork_bomb_is_ended_and_leaves_nothing(nobodys: Path, bomb: str) -> None:
    bounded = Bounded(inner=open_sandbox(nobodys, most_processes=60), processes=200)
    began = time.monotonic()
    assert "[ended: more than 60 processes and threads" in said(nobodys, bounded, bomb)
    assert time.monotonic() - began < 15
    for _ in range(500):
        if not subprocess.run(["pgrep", "-U", str(_NOBODY)], capture_output=True, check=False).stdout:
            return
        time.sleep(0.01)
    raise AssertionError("processes of the bomb are left")


def test_the_kernel_bounds_the_processes_of_a_user_who_is_not_root(nobodys: Path) -> None:
    bounded = Bounded(inner=open_sandbox(nobodys, most_processes=30), processes=500)
    assert said(nobodys, bounded, "ulimit -u") == "120\n[exit code 0]"


def fake_bubblewrap(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_a_bubblewrap_that_does_not_work_is_refused_with_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "ws"
    place.mkdir()
    fake_bubblewrap(tmp_path / "bin", monkeypatch, "echo 'bwrap: No permissions to create new namespace' >&2; exit 1")
    with pytest.raises(UsageError, match=r"No permissions to create new namespace\. Install .* --unsandboxed"):
        open_sandbox(place)
    fake_bubblewrap(tmp_path / "bin", monkeypatch, "exit 0")
    with pytest.raises(UsageError, match="exit code 0"):
        open_sandbox(place)
    (tmp_path / "bin" / "bwrap").write_bytes(b"\x00 no program")
    with pytest.raises(UsageError, match="does not work here"):
        open_sandbox(place)


def test_a_bubblewrap_that_fails_later_runs_nothing_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "ws"
    place.mkdir()
    fake_bubblewrap(
        tmp_path / "bin", monkeypatch, "test -e broken && { echo 'bwrap: out of order' >&2; exit 1; }; exit 42"
    )
    monkeypatch.chdir(place)
    sandbox = open_sandbox(place)
    (place / "broken").touch()
    assert said(place, sandbox, "touch harm") == "bwrap: out of order\n[exit code 1]"
    assert not (place / "harm").exists()


def test_without_bubblewrap_there_is_no_sandbox_unless_the_user_wants_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"there is no bubblewrap \(bwrap\) on this machine\. Install"):
        open_sandbox(tmp_path)
    sandbox = open_sandbox(tmp_path, is_unsandboxed=True)
    assert isinstance(sandbox, Unsandboxed)
    assert "nothing is contained" in sandbox.contained
    assert said(tmp_path, sandbox, "echo x") == "x\n[exit code 0]"


def test_the_whole_system_is_no_workspace(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is the whole system"):
        open_sandbox(Path("/"))


def test_what_is_contained_is_said(root: Path) -> None:
    text = open_sandbox(root).contained
    assert f"write only to {root}" in text
    assert "without network" in text
    assert "Not contained: reading other files" in text
    assert ("You are root" in text) == (os.geteuid() == 0)
