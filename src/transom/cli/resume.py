"""`transom resume`: a run goes on, whatever ended it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from transom.cli.naming import find_session
from transom.cli.options import Options, OptionsOf, SessionName
from transom.core.event import SessionOpened
from transom.core.policy import PRESETS
from transom.errors import UsageError

if TYPE_CHECKING:
    from transom.ports import Log, SessionRow

__all__ = ["resume"]


def resume(
    session: SessionName = "",
    message: Annotated[str, Parameter(help="The next user message, if there is one.")] = "",
    /,
    *,
    options: OptionsOf = Options(),  # noqa: B008 - frozen
) -> int:
    """Go on with a run that was stopped, bounded or killed; without a name, with the newest.

    Calls that were open are settled first: one that only reads is run again, of any other the model is told that its
    outcome is not known. What the session ran with is taken over, but for --base-url, --script and what concerns its
    rights.
    """
    from transom import compose, live
    from transom.agent.run import Stop
    from transom.agent.tally import Tally
    from transom.cli.asking import is_person_there, next_message
    from transom.cli.display import Display, Silent
    from transom.cli.driving import chosen_model, drive, manner_of, note_price, settings_of
    from transom.cli.terminal import printable, say

    with compose.store(options.store, is_new_allowed=False) as kept:
        row = _row(kept.log, session)
        opened = _opened(kept.log, row)
        workspace = options.workspace or Path(opened.workspace)
        if not workspace.is_dir():
            if options.workspace:
                raise UsageError(f"--workspace {workspace}: is not a folder; name the one to work in")
            raise UsageError(f"its workspace {workspace} is gone; name where it is now with --workspace")
        settings = settings_of(options, workspace, _session_values(opened))
        view = Silent(is_json=options.json) if options.json or options.quiet else Display()
        manner = manner_of(settings, view, Stop())
        if manner.policy.name != opened.policy:
            say(f"it ran under the policy {printable(opened.policy)} and goes on under {manner.policy.name}")
        with kept.hold(row.session_id):
            chosen = chosen_model(settings, kept, Tally(None, kept.log.read(row.session_id)))
            note_price(chosen, settings)
            try:
                agent = live.agent(kept, chosen, workspace, manner, session_id=row.session_id, is_new=False)
                view.attach(agent)
                if not message and agent.is_answered and is_person_there():
                    message = next_message("you (empty line: end)> ")
                if not message and agent.is_answered:
                    state = "all was answered" if agent.session.state.words else "it ended before its task was stored"
                    say(f"{row.session_id}: {state}; say what is next: transom resume SESSION 'MESSAGE'")
                    return 0
                return drive(agent, view, options, message)
            finally:
                chosen.close()


def _row(log: Log, name: str) -> SessionRow:
    if name and name != "latest":
        try:
            return find_session(log, name)
        except UsageError as problem:
            words = "words for the newest run stand behind `latest`: transom resume latest 'MESSAGE'"
            raise UsageError(f"{problem}; {words}") from None
    own = next((row for row in log.sessions() if row.agent == "transom"), None)
    if own is None:
        raise UsageError("no run is stored yet; `transom run TASK` begins one")
    return own


def _opened(log: Log, row: SessionRow) -> SessionOpened:
    first = next(log.read(row.session_id, 0, 1)).fact
    if not isinstance(first, SessionOpened) or first.agent != "transom":
        raise UsageError(
            f"{row.session_id}: recorded by {row.agent or 'another agent'}; that can be shown and replayed, not resumed"
        )
    return first


def _session_values(opened: SessionOpened) -> dict[str, str]:
    return {
        "provider": opened.provider,
        "model": "" if opened.provider == "scripted" else opened.model,
        "context_limit": str(opened.context_limit or ""),
        "policy": opened.policy if opened.policy in PRESETS else "",
    }
