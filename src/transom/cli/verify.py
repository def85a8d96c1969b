"""`transom verify`: every digest is derived again, and what stands beside it is checked."""

from __future__ import annotations

from rich.text import Text

from transom import compose
from transom.cli.naming import find_session
from transom.cli.options import SessionName, StoreFolder
from transom.cli.terminal import out, printable, say
from transom.errors import LogDamaged
from transom.lab.tables import counted

__all__ = ["verify"]


def verify(session: SessionName = "", /, *, store: StoreFolder = None) -> int:
    """Re-derive the digest chains of one session or all, and name the first bad place.

    Exits 1 if something does not verify.
    """
    with compose.store(store, is_new_allowed=False) as kept:
        named = find_session(kept.log, session).session_id if session else None
        found = kept.log.verify(named)
    bad = [one for one in found if one.problem]
    if bad:
        for one in bad[1:]:
            say(one.problem, style="red")
        raise LogDamaged(bad[0].problem)
    events = sum(one.events for one in found)
    what = f"{printable(named)} and what it continues" if named else counted(len(found), "session")
    out().print(Text(f"{what}: {counted(events, 'event')}, every digest follows from the one before."))
    return 0
