"""What a person calls a session: its id, an unambiguous start of it (with or without the format), or `latest`."""

from __future__ import annotations

from transom.errors import UsageError
from transom.ports import Log, SessionRow

__all__ = ["LATEST", "find_session"]

LATEST = "latest"
_SHOWN = 8


def find_session(log: Log, name: str) -> SessionRow:
    """The session called `name`. Raises `UsageError` if there is none, or more than one."""
    if not name.strip():
        raise UsageError("a session is named by its id, the start of it, or `latest`; `transom sessions` lists them")
    rows = log.sessions()
    if name == LATEST:
        if not rows:
            raise UsageError("no session is stored yet; `transom replay FILE` imports one")
        return next((row for row in rows if row.kind == "root"), rows[0])
    exact = [row for row in rows if name in {row.session_id, _own_part(row.session_id)}]
    found = exact or [
        row for row in rows if row.session_id.startswith(name) or _own_part(row.session_id).startswith(name)
    ]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"no session is called {name!r}; `transom sessions` lists the {len(rows)} that are stored")
    ids = ", ".join(row.session_id for row in found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
    raise UsageError(f"{name!r} is the start of {len(found)} sessions: {ids}; write more of it")


def _own_part(session_id: str) -> str:
    """The id without `<format>:`."""
    return session_id.partition(":")[2] or session_id
