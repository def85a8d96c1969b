"""`transom run`: an agent works on a task, in windows that it hands over itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from transom.cli.options import Options, OptionsOf

__all__ = ["run"]


def run(
    task: Annotated[
        str, Parameter(help="What is to be done. Without it: what is piped in, else it is asked for.")
    ] = "",
    /,
    *,
    options: OptionsOf = Options(),  # noqa: B008 - frozen
) -> int:
    """Work on a task in this folder: read, write, run commands in a sandbox, and hand over to a new window in time.

    Exits 0 when the task was answered, 1 when a bound ended it, 130 when you did; `transom resume` goes on.
    """
    from uuid import uuid4

    from transom import compose, live
    from transom.agent.run import Stop
    from transom.cli.asking import task_of
    from transom.cli.display import Display, Silent
    from transom.cli.driving import chosen_model, drive, manner_of, note_price, settings_of

    workspace = options.workspace or Path()
    settings = settings_of(options, workspace)
    view = Silent(is_json=options.json) if options.json or options.quiet else Display()
    manner = manner_of(settings, view, Stop())
    with compose.store(options.store) as kept:
        chosen = chosen_model(settings, kept)
        note_price(chosen, settings)
        session_id = str(uuid4())
        try:
            with kept.hold(session_id):
                words = task_of(task)
                agent = live.agent(kept, chosen, workspace, manner, session_id=session_id)
                return drive(agent, view, options, words)
        finally:
            chosen.close()
