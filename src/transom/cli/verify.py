"""`transom verify`: every digest is derived again, and what stands beside it is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.text import Text

from transom import compose
from transom.cli.naming import LATEST, find_session
from transom.cli.options import StoreFolder
from transom.cli.terminal import out, printable, say
from transom.errors import LogDamaged
from transom.lab.tables import counted

__all__ = ["verify"]


def verify(
    session: Annotated[
        str,
        Parameter(help="A session: its id, the start of it, or `latest`; or a file that `transom export` wrote. "
                  "Without it, the whole store."),
    ] = "",
    /,
    *,
    store: StoreFolder = None,
) -> int:  # fmt: skip
    """Re-derive the digest chains of a session, a whole store or an exported file, and name the first bad place.

    Exits 1 if something does not verify.
    """
    if session and session != LATEST and _is_there(Path(session)):
        found = compose.verified_export(Path(session))
        _say_sound(session, sum(found.values()))
        return 0
    with compose.store(store, is_new_allowed=False) as kept:
        named = find_session(kept.log, session).session_id if session else None
        checked = kept.log.verify(named)
    bad = [one for one in checked if one.problem]
    if bad:
        for one in bad[1:]:
            say(one.problem, style="red")
        raise LogDamaged(bad[0].problem)
    what = f"{named} and what it continues" if named else counted(len(checked), "session")
    _say_sound(what, sum(one.events for one in checked))
    return 0


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a name no disk can hold
        return False


def _say_sound(what: str, events: int) -> None:
    out().print(Text(f"{printable(what)}: {counted(events, 'event')}, every digest follows from the one before."))
