"""One command as processes: started in a session of its own, watched, and ended with all its children.

Theory. The first process leads a process group. Ending takes two blows: SIGTERM to all, then after a grace SIGKILL,
which no process can refuse. What has left the group (`setsid`) is found as a descendant through /proc, where the system
has it. Out of reach is what left the group and lost its parent; inside a sandbox with a process namespace of its own
nothing is, since its keeper's death is the death of all. What can be reached is also ended when the command ended well.

The watch reads output without ever blocking on it and looks at the time. The number of processes is looked at in two
ways: all of the machine's fifty times a second, which costs one short read, so that a fork bomb is met while there is
still a processor to meet it with; and every second those of the command, one by one.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal, Self

from transom.agent.spool import Spool

__all__ = ["End", "Ended", "follow"]

End = Literal["exit", "time", "processes"]
_LOOK_SECONDS = 0.02
"""A fork bomb in Python makes some ten processes a millisecond on two cores (measured)."""
_COUNT_SECONDS = 1.0
_GRACE_SECONDS = 1.0
"""Between SIGTERM and SIGKILL: enough to remove a lock file, short beside any time limit."""
_READ_BYTES = 65536
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SIGNALLED = 128
"""What a shell adds to the signal that ended a program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """`exit_code` is negative for a signal, as `subprocess` has it."""

    end: End
    exit_code: int
    seconds: float


def follow(
    argv: Sequence[str],
    *,
    root: Path,
    environment: Mapping[str, str],
    spool: Spool,
    seconds: float,
    most_processes: int,
    has_keeper: bool,
) -> Ended:
    """Run to the end, or end it. Raises `OSError` if it cannot start; whatever else is raised (Ctrl-C, SIGTERM),
    nothing of the command is left running."""
    began = time.monotonic()
    with _Interrupts() as interrupts:
        process = subprocess.Popen(
            argv,
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdout is not None
        with process.stdout:
            end: End = "time"
            try:
                tally = _Tally(process.pid, most_processes)
                end = _watch(
                    process,
                    output=process.stdout.fileno(),
                    spool=spool,
                    deadline=began + seconds,
                    tally=tally,
                    interrupts=interrupts,
                )
                exit_code = process.returncode
            finally:
                _end(process, has_keeper=has_keeper, is_gentle=end != "processes")  # a fork bomb would use the grace
            _drain(process.stdout.fileno(), spool)
    return Ended(end=end, exit_code=exit_code or 0, seconds=time.monotonic() - began)


class _Interrupts:
    """Keeps Ctrl-C, SIGTERM and the closing of the terminal from striking where a process has been started and is not
    yet held, or while it is being ended. What was there before is done at the next `deliver`, or after the end: a
    handler is called (that of Ctrl-C raises); what would have ended us raises `SystemExit`, since a command in a
    session of its own would live on."""

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], object] | signal.Handlers] = {}
        self._pending: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                handler = signal.getsignal(number)
                if callable(handler) or handler is signal.SIG_DFL:
                    self._handlers[number] = handler
                    signal.signal(number, self._note)
        return self

    def __exit__(self, *raised: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self.deliver()

    def deliver(self) -> None:
        while self._pending:
            number, frame = self._pending.pop(0)
            handler = self._handlers[number]
            if not callable(handler):
                raise SystemExit(_SIGNALLED + number)
            handler(number, frame)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._pending.append((number, frame))


def _watch(
    process: subprocess.Popen[bytes],
    *,
    output: int,
    spool: Spool,
    deadline: float,
    tally: _Tally,
    interrupts: _Interrupts,
) -> End:
    """Read until the first process is gone or must be ended. A child that keeps the output open keeps nobody."""
    with selectors.DefaultSelector() as selector:
        selector.register(output, selectors.EVENT_READ)
        while process.poll() is None:
            if not selector.get_map():
                _wait(process, _LOOK_SECONDS)
            elif selector.select(_LOOK_SECONDS):
                data = os.read(output, _READ_BYTES)
                if data:
                    spool.add(data)
                else:
                    selector.unregister(output)
            interrupts.deliver()
            now = time.monotonic()
            if now >= deadline:
                return "time"
            if tally.is_exceeded(now):
                return "processes"
    return "exit"


class _Tally:
    """Whether a command has more processes and threads than `most`, or all of the machine got so many within a second
    (rather another program's burst taken for this one's than a machine that no longer answers)."""

    def __init__(self, pid: int, most: int) -> None:
        self._pid = pid
        self._most = most
        self._before = _tasks()
        self._next_look = self._next_count = 0.0

    def is_exceeded(self, now: float) -> bool:
        if now < self._next_look:
            return False
        self._next_look = now + _LOOK_SECONDS
        tasks = _tasks()
        if tasks - self._before > self._most:
            return True
        if now >= self._next_count:
            self._next_count = now + _COUNT_SECONDS
            self._before = tasks
            return len(_descendants(self._pid, self._most)) > self._most
        return False


def _tasks() -> int:
    """Processes and threads of the machine; 0 where it does not say."""
    try:
        return int(Path("/proc/loadavg").read_bytes().split()[3].partition(b"/")[2])
    except OSError:
        return 0


def _drain(output: int, spool: Spool) -> None:
    """What is still in the pipe. Somebody out of reach may hold it open, so this never waits."""
    os.set_blocking(output, False)
    with contextlib.suppress(BlockingIOError):
        while data := os.read(output, _READ_BYTES):
            spool.add(data)


def _end(process: subprocess.Popen[bytes], *, has_keeper: bool, is_gentle: bool) -> None:
    if has_keeper and not is_gentle:
        _signal_group(process.pid, signal.SIGKILL)
    family = _descendants(process.pid)
    if process.poll() is None and is_gentle:
        for pid in family:
            _signal(pid, signal.SIGTERM)
        if not has_keeper or not family:
            _signal_group(process.pid, signal.SIGTERM)
        _wait(process, _GRACE_SECONDS)
        family |= _descendants(process.pid)
    _signal_group(process.pid, signal.SIGKILL)
    for pid in family:
        _signal(pid, signal.SIGKILL)
    process.wait()


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):  # the caller looks again, or has SIGKILL
        process.wait(seconds)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # all gone; macOS says EPERM for only zombies
        os.killpg(leader, number)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # gone, or by now of another user
        os.kill(pid, number)


def _descendants(pid: int, most: int = 1 << 20) -> set[int]:
    """Processes and threads below `pid`, `pid`'s own threads left out; no more than a few above `most` are looked up.
    Empty where the system has no /proc."""
    found: set[int] = set()
    ask = [pid]
    while ask and len(found) <= most:
        parent = ask.pop()
        try:
            threads = list(Path(f"/proc/{parent}/task").iterdir())
            children = b"".join((thread / "children").read_bytes() for thread in threads)
        except OSError:
            continue  # gone meanwhile
        if parent != pid:
            found.update(int(thread.name) for thread in threads)
        ask.extend(int(child) for child in children.split())
    return found
