"""`transom demo`: a real governed run without a key.

A scripted model mends a small repository in a window so small that it must hand over again and again; then its
handoffs, what was demoted of them, and its chain are shown.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.text import Text

from transom import compose
from transom.cli.handoffs import handed_over, show_handoffs
from transom.cli.terminal import out, printable, say
from transom.errors import BadInput, LogDamaged, UsageError
from transom.lab.tables import counted

if TYPE_CHECKING:
    from transom.agent.run import Agent
    from transom.compose import Store

__all__ = ["demo"]

_LIMIT = 7_000
"""Tokens: the head alone is more than a quarter of it."""
_MARK = ".transom-demo"
"""Says that what lies beside it may be made anew."""
_TASK = "Make the test suite of this repository pass. SPEC.md is the customer's word. Do not change the tests."


def demo(
    *,
    folder: Annotated[
        Path | None, Parameter(help="Where the repository and the store are put, anew. Without it, a temporary folder.")
    ] = None,
) -> int:
    """Run the demo, without a key or a network: the windows as they come, then what was handed over and demoted, and
    the verified chain.
    """
    place = _fresh(folder)
    with compose.demo() as data, compose.store(place / "store") as kept:
        shutil.copytree(data / "repo", place / "repo", ignore=shutil.ignore_patterns("__pycache__"))
        if shutil.which("git"):  # a repository of its own, so that the rules of one around it are not its rules
            subprocess.run(["git", "init", "--quiet", str(place / "repo")], check=False)
        agent = _run(kept, data / "script.toml", place / "repo")
        session_id = agent.session.session_id
        _title("What each window left to the next")
        show_handoffs(handed_over(kept.log.read(session_id)))
        _title("The chain")
        (verified,) = kept.log.verify(session_id)
        if verified.problem:
            raise LogDamaged(verified.problem)
        out().print(f"{counted(verified.events, 'event')}, every digest follows from the one before.")
    _title("Look further")
    store = place / "store"
    for command in ("show latest", "show latest --window", "search kilogram", "handoffs latest --json"):
        out().print(Text(f"  {printable(f'transom {command} --store {store}')}"), soft_wrap=True)
    return 0


def _fresh(folder: Path | None) -> Path:
    """A folder for the demo alone: what an earlier one left there is removed, anything else is left alone."""
    if folder is None:
        return Path(mkdtemp(prefix="transom-demo-"))
    if folder.exists() and not (folder / _MARK).exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadInput(f"{folder}: holds something else; name a new or an empty folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _MARK).touch()
        for name in ("repo", "store"):
            if (folder / name).exists():
                shutil.rmtree(folder / name)
    except OSError as problem:
        raise BadInput(f"{folder}: {problem.strerror}; name another folder with --folder") from None
    return folder


def _run(kept: Store, script: Path, repository: Path) -> Agent:
    from transom import live
    from transom.cli.display import Display

    view = Display(is_one=True)
    chosen = live.model("scripted", context_limit=_LIMIT, script=script)
    manner = live.Manner(show=view.show, told=view.told)
    try:
        agent = live.agent(kept, chosen, repository, manner)
    except UsageError as problem:
        say(f"{problem}. The demo's own few commands run without one.", style="yellow")
        agent = live.agent(kept, chosen, repository, replace(manner, is_unsandboxed=True))
    view.attach(agent)
    _title(f"A task, in windows of {_LIMIT:,} tokens: {_TASK}")
    agent.say(_TASK)
    ended = agent.run()
    if ended.reason != "answered":
        say(f"the demo did not end as it should: {ended.sentence}", style="red")
    return agent


def _title(text: str) -> None:
    sys.stderr.flush()
    out().print(Text(f"\n{text}\n", style="bold"), soft_wrap=True)
