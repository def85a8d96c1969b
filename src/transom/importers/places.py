"""Where agents keep their sessions: the usual places in a home directory, the newest session first.

    Claude Code  ~/.claude/projects/*/*.jsonl                    CLAUDE_CONFIG_DIR moves ~/.claude
    Codex        ~/.codex/sessions/**/rollout-*.jsonl            CODEX_HOME moves ~/.codex
    pi           ~/.pi/agent/sessions/**/*.jsonl                 PI_CODING_AGENT_DIR moves ~/.pi/agent
    opencode     ~/.local/share/opencode                         XDG_DATA_HOME moves ~/.local/share

A sub-agent's own file (`agent-*.jsonl`) is no session of its own. opencode has a file a part or, since 1.2, one
database: its session is put together as `opencode export` writes it (`opencode_store`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from transom.importers import opencode_store

__all__ = ["Recent", "recent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """A session somewhere in a usual place. `path` is the transcript, or for opencode what holds it."""

    agent: str
    path: Path
    at: float
    """Seconds since the epoch of its last change."""
    opencode_id: str = ""


def recent(home: Path, environment: Mapping[str, str]) -> Iterator[Recent]:
    """Every session there is, the newest first."""
    found = [*_files(home, environment), *_opencode(home, environment)]
    yield from sorted(found, key=lambda one: (one.at, str(one.path), one.opencode_id), reverse=True)


def _moved(environment: Mapping[str, str], name: str, usual: Path) -> Path:
    named = environment.get(name)
    return Path(named) if named else usual


def _files(home: Path, environment: Mapping[str, str]) -> Iterator[Recent]:
    places = (
        ("Claude Code", _moved(environment, "CLAUDE_CONFIG_DIR", home / ".claude") / "projects", "*/*.jsonl"),
        ("Codex", _moved(environment, "CODEX_HOME", home / ".codex") / "sessions", "**/rollout-*.jsonl"),
        ("pi", _moved(environment, "PI_CODING_AGENT_DIR", home / ".pi" / "agent") / "sessions", "**/*.jsonl"),
    )
    for agent, folder, pattern in places:
        for path in folder.glob(pattern):
            if path.name.startswith("agent-"):
                continue
            try:
                status = path.stat()
            except OSError:
                continue  # gone since it was listed, or a dangling link
            if status.st_size:
                yield Recent(agent=agent, path=path, at=status.st_mtime)


def _opencode(home: Path, environment: Mapping[str, str]) -> Iterator[Recent]:
    folder = _moved(environment, "XDG_DATA_HOME", home / ".local" / "share") / "opencode"
    for session in opencode_store.sessions(folder):
        yield Recent(agent="opencode", path=session.place, at=session.at, opencode_id=session.session_id)
