"""The command line: one file a command, each parses, calls and prints.

    exit 0    done
    exit 1    something stored is damaged, or a rule said no
    exit 2    the input or the call cannot be used
    exit 130  interrupted; the store is as it was after the last whole append

Nothing heavy is imported before it is needed: `transom --help` loads no command.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from inspect import cleandoc
from io import TextIOWrapper
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING

from transom.errors import KernelError, UsageError

if TYPE_CHECKING:
    from cyclopts import App

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "run": "Work on a task: an agent in a sandbox, in windows that it hands over itself.",
    "resume": "Go on with a run, whatever ended it.",
    "demo": "Watch a scripted model mend a small repository over several windows; no key, no network.",
    "gateway": "Put agents that exist behind it by changing one URL: rollover, offload, recall, a log.",
    "handoffs": "Show what each window left to the next one, what was demoted, and what changed between them.",
    "config": "Show each setting of a run and where it comes from.",
    "replay": "Replay recorded sessions under several policies: tokens, price, boundaries, what was lost.",
    "cache": "Show what was read from the provider's prompt cache, what was billed again and why.",
    "budget": "Say whether a new window would pay now: what it costs, what it saves, and how sure that is.",
    "sessions": "List the stored sessions.",
    "show": "Show a session's events, one event whole, or the exact window at any point.",
    "search": "Find words, identifiers or error strings in every stored session.",
    "verify": "Re-derive the digest chains and name the first bad place.",
    "export": "Write a session as event lines with their digests, or as text for people.",
}

_HELP = (
    "Keeps a long-running agent in a small, clean window; everything that happened stays in a verifiable log.\n\n"
    "Reads the sessions of Claude Code, Codex, opencode, pi, Gemini CLI, Copilot CLI, OpenHands, SWE-agent, "
    "mini-swe-agent, Inspect, Terminal-Bench, and plain OpenAI or Anthropic message lists: files, folders, gz, zst, "
    "tar, zip.\n\n"
    "Exit codes: 0 done; 1 something stored is damaged, a rule said no, or a bound ended a run; 2 the input or the "
    "call cannot be used; 130 interrupted."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Only here is everything caught: a person gets a sentence, never a
    traceback (TRANSOM_TRACEBACK=1 shows it)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by who started us: its number must not go to a file of the store
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - as long as we run
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        return _run(sys.argv[1:] if arguments is None else list(arguments))
    except KeyboardInterrupt:
        _complain(
            "interrupted; what was stored so far is whole. The same again goes on from there; a run: transom resume"
        )
        return 130
    except UsageError as error:
        _complain(str(error))
        return 2
    except KernelError as error:
        _complain(str(error))
        return 1
    except BrokenPipeError:
        # Whoever read our output has what it wanted (`| head`); without this the interpreter complains at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001 - the edge: a sentence for a person, the traceback on request
        if os.environ.get("TRANSOM_TRACEBACK"):
            traceback.print_exc()
        _complain(
            f"this should not happen: {type(error).__name__}: {error}; "
            "TRANSOM_TRACEBACK=1 shows where, for a report to the authors"
        )
        return 1


def _run(arguments: list[str]) -> int:
    from cyclopts import CycloptsError

    try:
        result = _app(arguments)(arguments)
    except CycloptsError as error:
        said = str(error).replace("...", "…").rstrip(".")
        raise UsageError(f"{said}; `transom --help` and `transom COMMAND --help` say how to call it") from None
    return result if isinstance(result, int) else 0


def _app(arguments: Sequence[str]) -> App:
    from cyclopts import App, Parameter

    app = App(
        name="transom",
        help=_HELP,
        version=_version,
        default_parameter=Parameter(show_default=False, negative=()),
        help_format="plaintext",
        exit_on_error=False,
        print_error=False,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for name, words in COMMANDS.items():
        app.command(f"transom.cli.{name}:{name}", name=name, help=_told(name, arguments) or words)
    return app


def _told(name: str, arguments: Sequence[str]) -> str:
    """All that the command's docstring says, if it is the one that help is wanted on; else nothing is loaded."""
    if name not in arguments[:1] or not {"--help", "-h"} & set(arguments):
        return ""
    command = getattr(import_module(f"transom.cli.{name}"), name)
    said = cleandoc(command.__doc__ or "") if isinstance(command, FunctionType) else ""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in said.split("\n\n"))


def _version() -> str:
    from importlib.metadata import version

    return f"transom {version('transom')}"


def _complain(sentence: str) -> None:
    from transom.cli.terminal import say

    say(f"transom: {sentence}", style="red")
