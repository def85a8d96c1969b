"""Asking the person at the terminal: for a task, for the next message, for leave to make a call.

Ctrl-C at a question means no, and stop: it does not end the process, so that the call has a result in the log.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from transom.cli.terminal import printable, say
from transom.errors import UsageError

if TYPE_CHECKING:
    from transom.agent.run import Stop
    from transom.core.block import ToolCall
    from transom.core.event import Effect

__all__ = ["approver", "is_person_there", "next_message", "task_of"]

_SHOWN_CHARS = 2000
"""Of what is to be allowed, at either end: what is left out is counted, so that nothing hides behind a long start."""


def is_person_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def task_of(given: str) -> str:
    """The task: the one given, else what is piped in, else what is typed. Raises `UsageError` if it is empty."""
    words = given
    if not words and not sys.stdin.isatty():
        words = sys.stdin.buffer.read().decode("utf-8-sig", "replace")  # PowerShell pipes a mark before it
    elif not words:
        words = next_message("What is to be done? ")
    if not words.strip():
        raise UsageError("there is no task; write it behind `transom run`, or pipe it in")
    return words.strip()


def next_message(question: str) -> str:
    """One line; empty at the end of input and at Ctrl-C."""
    return _line(question) or ""


def approver(how: str, stop: Stop) -> Callable[[ToolCall, Effect], bool]:
    """`auto` allows all; `ask` asks before every call that changes something. Raises `UsageError` for `ask` where
    nobody can be asked."""
    if how == "auto":
        return lambda _call, _effect: True
    if not is_person_there():
        raise UsageError("--ask needs a terminal to ask at; say --auto, or run it in one")
    always: set[str] = set()

    def approve(call: ToolCall, effect: Effect) -> bool:
        if effect in ("none", "read") or call.name in always:
            return True
        say(f"{call.name} ({effect}): {_shown(call.arguments)}", style="yellow")
        answer = _line("allow it? [y]es, [n]o, [a]lways this tool: ")
        if answer is None:
            stop.ask()
            return False
        if answer.strip().lower() in ("a", "always"):
            always.add(call.name)
        return answer.strip().lower() in ("y", "yes", "a", "always")

    return approve


def _shown(arguments: str) -> str:
    text = printable(arguments)
    left = len(text) - 2 * _SHOWN_CHARS
    if left <= 0:
        return text
    return f"{text[:_SHOWN_CHARS]}\n[… {left:,} characters are not shown …]\n{text[-_SHOWN_CHARS:]}"


def _line(question: str) -> str | None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        sys.stderr.write(question)
        sys.stderr.flush()
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        sys.stderr.write("\n")
        return None
    finally:
        signal.signal(signal.SIGINT, before)
    return line.rstrip("\n") if line else None
