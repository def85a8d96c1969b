"""What an importer yields: facts, each said to belong to one session of the source.

An importer is a generator over a source's records; it never touches the log. The driver (`importers.load`) counts
tokens, assigns sequence numbers, resolves forks and appends. Rules every importer keeps:

1. One `ModelReplied` per response of the model: records that are pieces of one response are joined. Usage is
   taken once per response and split as `Usage` says.
2. What was sent to the model is conversation (`UserSaid`, `HostSaid` for injected text, `ModelReplied`,
   `ToolReturned`); everything else is `Observed`, raw. An unknown type is `Observed` and reported with `Unknown`.
3. Order is the order in which the model saw things. All results of a batch of calls come after their reply.
4. A branch or rewind is a fork: the first thing said on it is a `SessionOpened(kind="fork")` under a new session key,
   `Said.parent` naming the uuid it continues from. A sub-agent is a `SessionOpened(kind="child")`.
5. A recorded compaction is `Compacted`, a recorded clearing of results `Cleared`. Both name events
   by uuid: the driver turns uuids into seqs.
6. uuids are the source's own ids where it has them (unique per session, suffix `.1`, `.2`, … for the second and later
   facts of a record), else `<line>` based and stable under growth, so that re-import appends only what is new.
7. Times are ms since the epoch; 0 where the source has none.
8. Block `tokens` and `content` are left at their defaults: the driver measures.
"""

from __future__ import annotations

from dataclasses import dataclass

from transom.core.block import Block
from transom.core.event import Fact, How, Seed

__all__ = ["Cleared", "Compacted", "Item", "Note", "Quarantined", "Said", "Unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A fact of session `session` (a key of the source; the driver makes the session id from it). For the
    `SessionOpened` of a fork or child, `parent` is the (session key, uuid) it continues from or was started at."""

    session: str
    uuid: str
    at: int
    fact: Fact
    parent: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A recorded compaction of `session`: the driver appends `WindowOpened(cause="recorded")`. Events not named are
    out of the window; `kept_head`, `kept_tail` are uuids of earlier facts, in order."""

    session: str
    uuid: str
    at: int
    seed: tuple[Seed, ...]
    kept_head: tuple[str, ...] = ()
    kept_tail: tuple[str, ...] = ()
    tokens_before: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleared:
    """A recorded clearing of earlier results: `targets` pairs the uuid of a `ToolReturned` with what stands instead."""

    session: str
    uuid: str
    at: int
    how: How
    targets: tuple[tuple[str, Block], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A record (or block) type nobody understands; counted by name. The raw record is said as `Observed` beside it."""

    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantined:
    """A line that is no record: where, why, and its raw text (the driver logs it as `Observed`)."""

    line: int
    why: str
    raw: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A sentence for a person about the source as a whole."""

    text: str


Item = Said | Compacted | Cleared | Unknown | Quarantined | Note
