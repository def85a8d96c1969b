"""What a person calls a session: its id, an unambiguous start of it (with or without the format), or `latest`: the
newest conversation that is nobody's fork or child, and, for what weighs replies, that has one.

A fork's or child's id continues the first session's behind `#` or `~`. The start of an id means the first session; with
the mark, and the start of what stands behind it, the other one.
"""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Sequence

from transom.core.event import ModelReplied, UserSaid
from transom.errors import UsageError
from transom.ports import Log, SessionRow

__all__ = ["LATEST", "find_session", "has_reply", "short_ids"]

LATEST = "latest"
_SHOWN = 8
_LENGTHS = (8, 13, 18, 23, 36)
_ID = re.compile(r"(?P<format>[^:#~]*:)?(?P<own>[^#~]*)(?P<mark>[#~]?)(?P<rest>.*)", re.DOTALL)


def find_session(log: Log, name: str, *, is_replied: bool = False) -> SessionRow:
    """The session called `name`. Raises `UsageError` if there is none, or more than one. `is_replied`: of `latest`, the
    newest in which a model has replied, if there is one."""
    if not name.strip():
        raise UsageError("a session is named by its id, the start of it, or `latest`; `transom sessions` lists them")
    rows = log.sessions()
    if name == LATEST:
        if not rows:
            raise UsageError(
                "no session is stored yet; `transom run TASK` begins one, `transom replay FILE` imports one"
            )
        roots = [row for row in rows if row.kind == "root"] or rows
        wanted = ModelReplied if is_replied else (UserSaid, ModelReplied)
        return next((row for row in roots if _has(log, row.session_id, wanted)), roots[0])
    found = _matches(rows, name)
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"no session is called {name!r}; `transom sessions` lists the {len(rows)} that are stored")
    ids = ", ".join(row.session_id for row in found[:_SHOWN]) + (", …" if len(found) > _SHOWN else "")
    raise UsageError(f"{name!r} is the start of {len(found)} sessions: {ids}; write more of it")


def has_reply(log: Log, session_id: str) -> bool:
    return _has(log, session_id, ModelReplied)


def _has(log: Log, session_id: str, kinds: type | tuple[type, ...]) -> bool:
    return any(isinstance(event.fact, kinds) for event in log.read(session_id))


def short_ids(rows: Sequence[SessionRow]) -> list[str]:
    """The ids, each cut where that leaves it different from every other; `find_session` finds them so."""
    shown = {row.session_id: row.session_id for row in rows}
    left = list(shown)
    for length in _LENGTHS:
        cuts = Tally(_cut(row.session_id, length) for row in rows)
        shown |= {name: _cut(name, length) for name in left if cuts[_cut(name, length)] == 1}
        left = [name for name in left if cuts[_cut(name, length)] > 1]
    return list(shown.values())


def _cut(session_id: str, length: int) -> str:
    format_, own, mark, rest = _split(session_id)
    return f"{format_}{own[:length]}{mark}{rest[:length]}"


def _split(session_id: str) -> tuple[str, str, str, str]:
    found = _ID.match(session_id)
    assert found is not None
    return found["format"] or "", found["own"], found["mark"], found["rest"]


def _matches(rows: Sequence[SessionRow], name: str) -> list[SessionRow]:
    exact = [row for row in rows if name in {row.session_id, row.session_id.partition(":")[2]}]
    if exact:
        return exact
    prefix, named, mark, rest = _split(name)
    start = prefix + named
    found = []
    for row in rows:
        format_, own, own_mark, own_rest = _split(row.session_id)
        is_start = own.startswith(start) or f"{format_}{own}".startswith(start)
        if is_start and (not mark or (mark == own_mark and own_rest.startswith(rest))):
            found.append(row)
    first = [row for row in found if not _split(row.session_id)[2]]
    return first if first and not mark else found
