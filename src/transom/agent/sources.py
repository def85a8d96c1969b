"""What stands around the agent: the sections of its head that may change while it works (design 9).

Each source has a key, a place in the order, and a loader, which gives its text, or None where there is nothing. What a
loader cannot read now is an unavailable sample: the model keeps what it was told. In this order, what changes least
first, so that the heads of two sessions begin alike:

    memory        AGENTS.md of the user's own settings folder: what holds in every project
    rules         AGENTS.md of the project, from the repository's root down to the workspace
    nested_rules  where deeper ones lie
    skills        instructions for particular work, by name
    environment   workspace, platform, what commands may do
    date          today
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from transom.agent.rules import RULES_FILE, Nested, file_text, rules
from transom.agent.skills import skills
from transom.core.canon import plain_text
from transom.core.epochs import Sample

__all__ = ["Source", "Surroundings"]

_RULES_CHARS = 32 * 1024
"""Of the project's rules, whatever the window: Codex reads as much of them."""
_RULES_SHARE = 0.1
_MEMORY_SHARE = 0.025
_SKILLS_SHARE = 0.05
"""Of the context limit, in tokens, at four characters a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One section of the head that may change. `load` raises `OSError` where its text cannot be known now."""

    key: str
    load: Callable[[], str | None]

    def sample(self) -> Sample:
        try:
            text = self.load()
        except OSError:
            return Sample(key=self.key, is_available=False)
        return Sample(key=self.key, text=plain_text(text) if text else None)


class Surroundings:
    """The `Sources` port for an agent in the folder `root`. `commands` is a sentence about what a command may do,
    `memory` the file of the user's own notes, `today` the date, `hidden` what the workspace hides."""

    def __init__(
        self,
        root: Path,
        *,
        platform: str,
        commands: str,
        today: Callable[[], str],
        context_limit: int,
        memory: Path | None = None,
        hidden: Sequence[Path] = (),
    ) -> None:
        chars = 4 * context_limit
        environment = f"Workspace: {root}\nPlatform: {platform}\nCommands: {commands}"
        self._sources = (
            Source(key="memory", load=partial(_memory, memory, int(chars * _MEMORY_SHARE))),
            Source(key="rules", load=partial(rules, root, min(_RULES_CHARS, int(chars * _RULES_SHARE)), hidden)),
            Source(key="nested_rules", load=Nested(root).text),
            Source(key="skills", load=partial(skills, root, int(chars * _SKILLS_SHARE), hidden)),
            Source(key="environment", load=lambda: environment),
            Source(key="date", load=lambda: f"Date: {today()}"),
        )

    def sample(self) -> tuple[Sample, ...]:
        return tuple(source.sample() for source in self._sources)


def _memory(path: Path | None, room: int) -> str | None:
    text = file_text(path) if path is not None else None
    if not text:
        return None
    cut = f"\n[{len(text) - room:,} characters more in {path}]" if len(text) > room else ""
    return f"What the user wants known in every project, from their own {RULES_FILE}:\n{text[:room]}{cut}"
