"""What stands around a command: bubblewrap where it works, nothing only where the user said so.

    workspace     read and write; of its `.git`, `hooks` and `config` read-only (git outside would run what they say),
                  and all of it where it is a file that names another folder (a worktree)
    system        read-only; folders of keys and of other sessions hidden; /tmp, /var/tmp, /run private and empty
    network       none, not even the machine's own, unless allowed
    processes     a namespace of their own that dies whole with the call, or with us; no new privileges; no
                  capabilities but, for root in the workspace of another user, those over the owners of files
    number        a command above `most_processes` is ended by what runs it; for a user who is not root the kernel
                  refuses more than four times as many
    storage       a process may hold half of the machine's in its heap; when all runs out the system takes the command
                  first; no core files

Not contained: reading what else the user may read; the share of processors and disk; what the workspace's files do to
whoever runs them later, outside. Git outside is one of these: it obeys the config of a repository that was made inside
and that the index or a `.git/commondir` names. With the network allowed, all of it, and sockets with abstract names.
For root no kernel limits processes: a fork bomb is ended, but the machine is slow until it is gone.

It is tried once when it is opened. A bubblewrap that fails later fails the command: nothing runs outside of it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from transom.errors import UsageError
from transom.ports import Sandbox

__all__ = ["MOST_PROCESSES", "Bubblewrap", "Unsandboxed", "open_sandbox", "secrets"]

MOST_PROCESSES = 1024
"""A build with a job per core of a large machine stays well below; a fork bomb passes it in a tenth of a second."""
_TRIAL_SECONDS = 20
_PRIVATE = ("/tmp", "/var/tmp", "/run")  # noqa: S108 - not used, but replaced by empty ones
_SECRETS = (
    *(".aws", ".azure", ".config/gcloud", ".config/gh", ".docker", ".git-credentials", ".gnupg", ".kube", ".netrc"),
    *(".password-store", ".pypirc", ".ssh", ".cargo/credentials", ".cargo/credentials.toml", ".config/github-copilot"),
    *(".claude/.credentials.json", ".codex/auth.json", ".gemini/oauth_creds.json", ".qwen/oauth_creds.json"),
    *(".local/share/opencode/auth.json", ".pi/agent/auth.json"),
)
_SETTINGS = tuple(f"/proc/{name}" for name in ("acpi", "asound", "bus", "fs", "irq", "scsi", "sys", "sysrq-trigger"))
"""What root may write without any capability: `sys/kernel/core_pattern` names a program that the kernel runs outside.
Those that container runtimes make read-only or hide (the OCI default). Bubblewrap leaves `sys` open for root."""
_NEEDED = ("/bin", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr")
_SYSTEM_SECRETS = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers.d", "/etc/ssl/private")
_BOUNDS = (
    "ulimit -c 0; ulimit -u {processes} 2>/dev/null || ulimit -p {processes} 2>/dev/null; "
    "ulimit -d {kilobytes} 2>/dev/null; echo 1000 2>/dev/null >/proc/self/oom_score_adj; "
)
"""`-u` is bash's and `-p` dash's name for processes. A limit that is lower already stays."""
_HOW_TO = (
    "Install bubblewrap (Debian, Ubuntu: apt install bubblewrap; Fedora: dnf install bubblewrap), or pass --unsandboxed"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bubblewrap:
    """The `Sandbox` port by bubblewrap. `program` is its path, `hidden` are real paths no command may see."""

    program: str
    root: Path
    is_network_allowed: bool = False
    hidden: tuple[Path, ...] = ()
    most_processes: int = MOST_PROCESSES
    heap_bytes: int
    has_keeper: bool = True

    @property
    def contained(self) -> str:
        network = "with the network" if self.is_network_allowed else "without network"
        return (
            f"Commands run in bubblewrap, {network}: they write only to {self.root} and to a private /tmp, see no keys "
            f"in the home folder, and end with their call; at most {self.most_processes} processes. Not contained: "
            "reading other files, the share of processors and disk, and what changed files do when someone runs them "
            "(git outside, too, may run what a repository made here says)."
            + (" You are root, so the kernel bounds no processes: run as a user." if os.geteuid() == 0 else "")
        )

    def argv(self, command: str) -> tuple[str, ...]:
        bounds = _BOUNDS.format(processes=4 * self.most_processes, kilobytes=self.heap_bytes // 1024)
        start = ("/bin/sh", "-c", f'{bounds}exec {_shell()} -c "$1"', "sh", command)
        return (self.program, *_namespaces(self.is_network_allowed), *self._rights(), *self._mounts(), "--", *start)

    def _rights(self) -> Iterator[str]:
        yield from ("--cap-drop", "ALL")
        if os.geteuid() == 0 and self.root.stat().st_uid != 0:  # without these root may not write another's files
            yield from ("--cap-add", "CAP_DAC_OVERRIDE", "--cap-add", "CAP_FOWNER", "--cap-add", "CAP_CHOWN")

    def _mounts(self) -> Iterator[str]:
        yield from ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
        for name in _SETTINGS:
            yield from ("--ro-bind-try", name, name)
        for folder in _PRIVATE:
            if Path(folder).is_dir() and not Path(folder).is_symlink():
                yield from ("--tmpfs", folder)
        if self.is_network_allowed:  # names are often resolved by a file under /run
            resolver = os.path.realpath("/etc/resolv.conf")
            yield from ("--ro-bind-try", resolver, resolver)
        root = str(self.root)
        yield from ("--bind", root, root)
        hidden = tuple(self._secrets())
        for above in map(str, self._above(hidden)):
            yield from ("--bind", above, above)
        yield from self._git()
        for path in hidden:
            yield from ("--tmpfs", str(path)) if path.is_dir() else ("--ro-bind", "/dev/null", str(path))
        yield from ("--chdir", root, "--setenv", "TMPDIR", _PRIVATE[0])
        yield from ("--setenv", "XDG_CACHE_HOME", f"{_PRIVATE[0]}/.cache")

    def _git(self) -> Iterator[str]:
        folder = self.root / ".git"
        if folder.is_dir() and not folder.is_symlink():
            yield from ("--bind", str(folder), str(folder))  # a mount cannot be moved away and made anew
            hooks, config = str(folder / "hooks"), str(folder / "config")
            yield from ("--ro-bind", hooks, hooks) if Path(hooks).is_dir() else ("--tmpfs", hooks)
            yield from ("--ro-bind-try", config, config)
        elif folder.is_file():
            yield from ("--ro-bind", str(folder), str(folder))

    def _above(self, hidden: Sequence[Path]) -> dict[Path, None]:
        """Folders of the workspace that hold what is hidden, from above: as mounts they cannot be moved away, with a
        secret that would stand in another place for the next command."""
        above = (folder for path in hidden for folder in reversed(path.parents))
        return dict.fromkeys(folder for folder in above if folder != self.root and folder.is_relative_to(self.root))

    def _secrets(self) -> Iterator[Path]:
        real = (Path(os.path.realpath(path)) for path in secrets())
        still = (path for path in self.hidden if os.path.realpath(path) == str(path))  # a link of a command's is none
        for path in dict.fromkeys((*real, *still)):
            is_under = any(path.is_relative_to(folder) for folder in _PRIVATE) and not path.is_relative_to(self.root)
            if path.exists() and not is_under and not self.root.is_relative_to(path):
                yield path


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsandboxed:
    """The `Sandbox` port that contains nothing, for a user who said so."""

    most_processes: int = MOST_PROCESSES
    has_keeper: bool = False

    @property
    def contained(self) -> str:
        return (
            "Commands run with all the rights of this user and with the network: nothing is contained but their time "
            "and, as far as they can be found, their number of processes."
        )

    def argv(self, command: str) -> tuple[str, ...]:
        return (_shell(), "-c", command)


def secrets() -> tuple[Path, ...]:
    """Where this user and the system keep keys and logins: the one list for commands and for the tools of files."""
    home = Path.home()
    return (*(home / name for name in _SECRETS if not _is_systems(home / name)), *map(Path, _SYSTEM_SECRETS))


def _is_systems(path: Path) -> bool:
    """Whether a link leads to what every command needs: a command may have made it, so that no sandbox works."""
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(one) or Path(one).is_relative_to(real) for one in _NEEDED)


def open_sandbox(
    root: Path,
    *,
    is_unsandboxed: bool = False,
    is_network_allowed: bool = False,
    hidden: Sequence[Path] = (),
    most_processes: int = MOST_PROCESSES,
) -> Sandbox:
    """The sandbox around `root`, tried once. Raises `UsageError` if there is none that works and none was not asked
    for, or if `root` is the whole system."""
    if is_unsandboxed:
        return Unsandboxed(most_processes=most_processes)
    if root == Path(root.anchor):
        raise UsageError(f"workspace {root}: is the whole system, which no sandbox can spare; name a folder in it")
    program = shutil.which("bwrap", path=_outside(root))
    if program is None:
        raise UsageError(f"no sandbox: there is no bubblewrap (bwrap) on this machine. {_HOW_TO}")
    sandbox = Bubblewrap(
        program=program,
        root=Path(os.path.realpath(root)),
        is_network_allowed=is_network_allowed,
        hidden=tuple(Path(os.path.realpath(path)) for path in (*hidden, *secrets())),  # a command may remove a link
        most_processes=most_processes,
        heap_bytes=_half_of_ram(),
    )
    problem = _trial(sandbox)
    if problem:
        raise UsageError(f"no sandbox: {program} does not work here: {problem}. {_HOW_TO}")
    return sandbox


def _trial(sandbox: Bubblewrap) -> str:
    """What bubblewrap says when it cannot run even this; empty if it can."""
    try:
        done = subprocess.run(
            sandbox.argv("exit 42"), capture_output=True, stdin=subprocess.DEVNULL, timeout=_TRIAL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    if done.returncode == 42:
        return ""
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return said[-1] if said else f"it ended with exit code {done.returncode}"


def _namespaces(is_network_allowed: bool) -> Iterator[str]:
    yield from ("--die-with-parent", "--new-session")
    yield from ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    if not is_network_allowed:
        yield "--unshare-net"


def _outside(root: Path) -> str:
    """PATH without what lies in `root`: a command of an earlier run may have put a bubblewrap of its own there."""
    real = Path(os.path.realpath(root))
    folders = [folder for folder in os.get_exec_path() if Path(folder).is_absolute()]
    return os.pathsep.join(one for one in folders if not Path(os.path.realpath(one)).is_relative_to(real))


def _shell() -> str:
    """Models write for bash."""
    return shutil.which("bash") or "/bin/sh"


def _half_of_ram() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
