"""run: one shell command in the workspace, inside a sandbox, under a time limit.

The result is the output as it came, then one line that says how it ended. A command gets no input, no terminal and no
variable whose name says it is a secret. What it started ends with it. Its effect is `external` unless every word of it
is plainly a look at the workspace: a resume runs such a command again and tells the model of all others.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from transom.agent.process import Ended, follow
from transom.agent.said import failed
from transom.agent.spool import Spool
from transom.core.block import ToolResultRaw
from transom.core.event import Effect
from transom.ports import Outcome, Sandbox

__all__ = ["Run", "effect", "environment", "run"]

_MOST_SECONDS = 3600
_PLAIN = re.compile(r"(?:[\w ./,:=@%+^'\"-]|(?<=\w)~)+", re.ASCII)
"""What a look is written with: no operator, redirection, substitution, glob or second line."""
_LOOKS = frozenset(
    ("basename", "cat", "cmp", "diff", "dirname", "du", "echo", "grep", "head", "ls", "nl", "pwd", "stat", "tail", "wc")
)
_GIT_LOOKS = frozenset(("blame", "diff", "log", "ls-files", "rev-parse", "show", "status"))
_ODD = re.compile(r"/|--o(?!neline$)|--e|(?:.*[/=:])?\.\.(?:/|$)|.*=/")
"""Words that lead out of the workspace, or are git's `--output` and `--ext-diff`, which it takes abbreviated too."""
_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH_SOCK|BEARER|COOKIE|_(AUTH|PASS|PAT|PWD)$", re.IGNORECASE
)
_QUIET = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "true",
    "GIT_TERMINAL_PROMPT": "0",
}


class Run(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Run a shell command in the workspace and see its output and exit code. There is no terminal and no input. Each
    starts anew there: a cd or an export holds for one command. Whatever it starts in the background ends with it: run
    a server and what uses it in one command."""

    command: Annotated[str, Meta(min_length=1, max_length=100_000, description="As typed in a shell.")]
    timeout: Annotated[int, Meta(ge=1, le=_MOST_SECONDS, description="Seconds until it is ended.")] = 120


def effect(args: Run) -> Effect:
    """`read` only for one plain command of a short list, over paths inside the workspace."""
    if not _PLAIN.fullmatch(args.command):
        return "external"
    try:
        words = shlex.split(args.command)
    except ValueError:
        return "external"
    is_git = words[:1] == ["git"]
    name, rest = (words[1:2], words[2:]) if is_git else (words[:1], words[1:])
    if not name or name[0] not in (_GIT_LOOKS if is_git else _LOOKS):
        return "external"
    return "external" if any(_ODD.match(word) for word in rest) else "read"


def environment() -> dict[str, str]:
    """Our own without secrets, and set for a reader that is no person."""
    return {name: value for name, value in os.environ.items() if not _SECRET.search(name)} | _QUIET


def run(root: Path, sandbox: Sandbox, args: Run) -> Outcome:
    if "\x00" in args.command:
        return failed("The command holds a NUL character, which no shell takes. Nothing was run; send it without.")
    spool = Spool()
    ended = follow(
        sandbox.argv(args.command),
        root=root,
        environment=environment(),
        spool=spool,
        seconds=args.timeout,
        most_processes=sandbox.most_processes,
        has_keeper=sandbox.has_keeper,
    )
    output = spool.text()
    if output and not output.endswith("\n"):
        output += "\n"
    return Outcome(
        blocks=(ToolResultRaw(text=output + _how(ended, args, sandbox)),),
        is_error=ended.end != "exit" or ended.exit_code != 0,
        exit_code=ended.exit_code if ended.end == "exit" else None,
    )


def _how(ended: Ended, args: Run, sandbox: Sandbox) -> str:
    if ended.end == "time":
        longer = f"give a longer timeout (up to {_MOST_SECONDS}) or " if args.timeout < _MOST_SECONDS else ""
        return f"[ended after {args.timeout} s, with all it had started; {longer}run less at once]"
    if ended.end == "processes":
        return f"[ended: more than {sandbox.most_processes} processes and threads; run fewer at once]"
    if ended.exit_code < 0:
        return f"[ended by {_signal_name(-ended.exit_code)}]"
    return f"[exit code {ended.exit_code}]"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
