"""What a replay replays: files are imported, then their sessions chosen, and what is left out is said.

Roots are replayed, and forks with a reply of their own. A sub-agent's window is its own matter: it is replayed on
request, or when a file holds nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transom import compose
from transom.cli.naming import find_session, has_reply
from transom.cli.terminal import Bar, say, when
from transom.core.event import ModelReplied
from transom.errors import BadInput
from transom.lab.tables import counted
from transom.ports import Counter, SessionRow

__all__ = ["Chosen", "choose"]

_ATTEMPTS = 8
"""Newest sessions looked at before it is given up that one of them has a reply: a client opens a file at its start."""

_LISTED = 5

_PLACES = "~/.claude/projects, ~/.codex/sessions, ~/.pi/agent/sessions, ~/.local/share/opencode"


@dataclass(slots=True, kw_only=True)
class Chosen:
    """The sessions to replay, in order. `unusable` are files that were named and could not be read."""

    sessions: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)
    is_sample: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Intake:
    kept: compose.Store
    counts: Counter
    every: bool
    shown: Bar
    is_quiet: bool

    def say(self, sentence: str) -> None:
        if not self.is_quiet:
            say(sentence)

    def tell(self, name: str, number: int) -> None:
        self.shown.tell(f"reading {Path(name).name}", number)


def choose(
    kept: compose.Store,
    counts: Counter,
    *,
    files: Sequence[Path],
    names: Sequence[str],
    latest: bool,
    every: bool,
    shown: Bar,
    is_quiet: bool,
) -> Chosen:
    """Import what is named and choose. Raises `BadInput` if nothing can be used."""
    intake = _Intake(kept=kept, counts=counts, every=every, shown=shown, is_quiet=is_quiet)
    if counts.name == "heuristic":
        intake.say("Tokens are estimated; pip install 'transom[exact]' counts them exactly.")
    chosen = Chosen(sessions=[find_session(kept.log, name, is_replied=True).session_id for name in names])
    for path in files:
        try:
            found = compose.import_file(path, kept, counts=counts, progress=intake.tell)
        except BadInput as problem:
            chosen.unusable.append(str(problem))
            continue
        _say_imported(intake, found)
        chosen.sessions += _worth_it(intake, found)
    shown.end()
    if latest or not (files or names):
        found_sessions = _newest(intake)
        if latest and not found_sessions:
            raise BadInput(f"no recorded session with a reply was found in {_PLACES}; name a file instead")
        chosen.is_sample = not found_sessions
        chosen.sessions += found_sessions or _sample(intake)
    chosen.sessions = list(dict.fromkeys(chosen.sessions))
    if chosen.unusable and not chosen.sessions:
        raise BadInput("\n".join(chosen.unusable))
    for sentence in chosen.unusable:
        say(f"transom: {sentence}", style="red")
    return chosen


def _newest(intake: _Intake) -> list[str]:
    """The sessions of the newest transcript that has a reply; none if there is none."""
    passed = 0
    for one in compose.recent_sessions():
        if passed == _ATTEMPTS:
            break
        try:
            found = compose.import_recent(one, intake.kept, counts=intake.counts, progress=intake.tell)
        except BadInput as problem:
            intake.say(f"passed over: {problem}")
            passed += 1
            continue
        sessions = [session for session in _worth_it(intake, found) if has_reply(intake.kept.log, session)]
        if sessions:
            intake.shown.end()
            name = one.opencode_id or str(one.path)
            intake.say(f"The newest session: {one.agent}, {name}, last changed {when(int(one.at * 1000))}.")
            _say_imported(intake, found)
            return sessions
        passed += 1
    return []


def _sample(intake: _Intake) -> list[str]:
    intake.say(f"No recorded session was found in {_PLACES}: this is a sample that ships with Transom.")
    with compose.sample() as path:
        return _worth_it(intake, compose.import_file(path, intake.kept, counts=intake.counts))


def _worth_it(intake: _Intake, found: Sequence[compose.Imported]) -> list[str]:
    """The sessions of an import to replay; says what it leaves out."""
    rows = [row for imported in found for row in intake.kept.log.sessions(imported.session_id)]
    if intake.every:
        return [row.session_id for row in rows]
    main = [row for row in rows if row.kind == "root"]
    forks = [row for row in rows if row.kind == "fork"]
    live = [row for row in forks if _has_own_reply(intake.kept, row)]
    children = len(rows) - len(main) - len(forks)
    if not main and not live:
        return [row.session_id for row in rows]
    left = [f"sub-agents: {children}"] if children else []
    left += [f"forks without a reply of their own: {len(forks) - len(live)}"] if len(forks) > len(live) else []
    if left:
        intake.say(f"Left out, unless --all is given: sessions of {', '.join(left)}.")
    return [row.session_id for row in (*main, *live)]


def _has_own_reply(kept: compose.Store, row: SessionRow) -> bool:
    return any(
        isinstance(event.fact, ModelReplied) for event in kept.log.read(row.session_id, row.head.seq - row.events)
    )


def _say_imported(intake: _Intake, found: Sequence[compose.Imported]) -> None:
    """One line a source, and what a reader should know about what was read of it."""
    by_path: dict[str, list[compose.Imported]] = {}
    for imported in found:
        by_path.setdefault(imported.path, []).append(imported)
    for path, parts in by_path.items():
        appended = sum(part.appended for part in parts)
        if appended:
            sessions = f", {len(parts)} sessions" if len(parts) > 1 else ""
            more = "" if all(part.status == "new" for part in parts) else " more"
            intake.say(f"Imported {path}: {parts[0].format}{sessions}, {counted(appended, 'event')}{more}.")
        else:
            intake.say(f"{path}: the store has all of it.")
        for note in [note for part in parts for note in part.notes]:
            intake.say(f"  {note}")
        unknown = [f"{name} ({count})" for part in parts for name, count in part.unknown]
        if unknown:
            intake.say(f"  kept, but of a kind nobody knows: {', '.join(unknown)}")
        torn = [f"line {line}: {why}" for part in parts for line, why in part.quarantined]
        for place in torn[:_LISTED]:
            intake.say(f"  not readable, kept raw: {place}")
        if len(torn) > _LISTED:
            intake.say(f"  and {counted(len(torn) - _LISTED, 'more line')} like these")
