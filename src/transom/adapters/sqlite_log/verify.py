"""Verification: every chain is re-derived from its beginning, and what stands beside it is checked against it.

Named per session is the first bad place: the chain (seq, uuid, time, payload, session id), the kind column, the
session's own row against its `SessionOpened`, and every blob an event refers to, hashed whole. SQLite checks the
file's structure itself (`PRAGMA integrity_check`: pages, keys, types, indexes).
"""

from __future__ import annotations

from pathlib import Path

from transom.adapters.sqlite_log.rows import Fetch, Stretch, digest_at, fact_of, lineage, walked
from transom.adapters.sqlite_log.schema import SEQ_BITS, SEQ_MASK, event_id
from transom.core.block import Block, Image, ToolResultRef
from transom.core.canon import GENESIS
from transom.core.event import (
    BlockReplaced,
    Fact,
    HostSaid,
    ModelReplied,
    SessionOpened,
    ToolReturned,
    UserSaid,
    WindowOpened,
)
from transom.errors import ArtifactMissing, Damaged, LogDamaged
from transom.ports import Blobs, Verified

__all__ = ["file_problem", "verified"]

_REF = b'"artifact_id":"'


def verified(fetch: Fetch, blobs: Blobs, names: list[str] | None) -> list[Verified]:
    """Verify the named sessions (None: all) in that order."""
    try:
        chosen = names if names is not None else [row[0] for row in fetch("SELECT id FROM session ORDER BY key", ())]
    except LogDamaged as error:
        return [Verified(session_id="", events=0, problem=str(error))]
    return [_session(fetch, blobs, name) for name in chosen]


def file_problem(fetch: Fetch, path: Path) -> str:
    """What is wrong with the file as a whole, if anything is."""
    try:
        problems = [row[0] for row in fetch("PRAGMA integrity_check(1)", ())]
        orphan = _orphan(fetch)
    except LogDamaged as error:
        return str(error)
    if problems != ["ok"]:
        return f"{path}: {problems[0]}"
    return f"{path}: there are events of session number {orphan}, which has no row" if orphan is not None else ""


def _orphan(fetch: Fetch) -> int | None:
    """The key of events without a session. One look per session: from the end of its events to what comes next."""
    known = {row[0] for row in fetch("SELECT key FROM session", ())}
    at = -1
    while found := fetch("SELECT id FROM event WHERE id > ? ORDER BY id LIMIT 1", (at,)):
        key: int = found[0][0] >> SEQ_BITS
        if key not in known:
            return key
        at = event_id(key, SEQ_MASK)
    return None


def _session(fetch: Fetch, blobs: Blobs, name: str) -> Verified:
    count = 0
    try:
        stretches = lineage(fetch, name)
        if not stretches:
            raise LogDamaged(f"session {name}: is listed but cannot be found by its name")
        own = stretches[-1]
        previous = GENESIS if own.base == 0 else digest_at(fetch, stretches, own.base)
        if previous is None:
            raise LogDamaged(f"session {name}: the event {own.base} it continues is missing")
        for seq, _, _, _, payload in walked(fetch, blobs, own, own.base, previous):
            count += 1
            if count == 1:
                _check_opening(fetch, stretches, fact_of(name, seq, payload))
            if _REF in payload:
                _check_artifacts(blobs, name, seq, fact_of(name, seq, payload))
        if not count:
            raise LogDamaged(f"session {name}: has a row and no events")
    except Damaged as error:
        return Verified(session_id=name, events=count, problem=str(error))
    return Verified(session_id=name, events=count)


def _check_opening(fetch: Fetch, stretches: list[Stretch], fact: Fact) -> None:
    """The session's row says the same as its first event, and the parent it names is still there."""
    own = stretches[-1]
    name = own.session_id
    if not isinstance(fact, SessionOpened):
        raise LogDamaged(f"session {name}: its first event is not session_opened")
    parent = fact.parent
    before = stretches[-2].session_id if len(stretches) > 1 else None
    is_fork = fact.kind == "fork" and parent is not None
    if (before, own.base) != ((parent.session_id, parent.seq) if is_fork and parent else (None, 0)):
        raise LogDamaged(f"session {name}: its row says it continues event {own.base} of {before}, its event does not")
    if parent is not None:
        found = digest_at(fetch, lineage(fetch, parent.session_id), parent.seq)
        if found is None or found.hex() != parent.digest:
            raise LogDamaged(f"session {name}: event {parent.seq} of its parent {parent.session_id} is not as it was")


def _check_artifacts(blobs: Blobs, name: str, seq: int, fact: Fact) -> None:
    for block in _blocks(fact):
        if isinstance(block, Image | ToolResultRef) and block.artifact_id:
            try:
                blobs.get(block.artifact_id)
            except ArtifactMissing as error:
                raise LogDamaged(f"session {name}, event {seq}: {error}") from error


def _blocks(fact: Fact) -> list[Block]:
    match fact:
        case UserSaid() | ModelReplied() | ToolReturned() | HostSaid():
            return list(fact.blocks)
        case WindowOpened():
            return [block for seed in fact.seed for block in seed.blocks]
        case BlockReplaced():
            return [target.block for target in fact.targets if target.block is not None]
        case _:
            return []
