"""Redaction: named secrets that are neither stored nor sent on.

A rule is a name and a pattern. What it matches in a client's words, results and system text is replaced by
`[redacted NAME]` before anything is stored, and stands so in what goes upstream. An element that was changed is
declared by a fact (`BlockReplaced`, how `redact`), so the log says that something stood there, and what kind of thing.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transom.core.event import BlockReplaced, Fact, HostSaid, ModelReplied, Replacement, ToolReturned, UserSaid
from transom.errors import BadInput, reason_of

__all__ = ["KNOWN", "NO_RULES", "Redactor", "read_rules", "redaction"]

KNOWN = {
    "anthropic-key": r"sk-ant-[A-Za-z0-9_-]{20,}",
    "openai-key": r"sk-(?:proj-)?[A-Za-z0-9_-]{32,}",
    "aws-access-key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "github-token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})",
    "slack-token": r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    "google-key": r"\bAIza[0-9A-Za-z_-]{35}",
    "jwt": r"\beyJ[A-Za-z0-9_-]{10,4000}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    "private-key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[^-]++|-(?!----))*+-{5,}END [A-Z ]*PRIVATE KEY-----",
}
"""The documented forms of common credentials (their makers' pages, 2026). Each takes time in proportion to the text,
also where a thousand of them begin and none ends: all requests wait for it."""


@dataclass(frozen=True, slots=True)
class Redactor:
    """`rules`: name and compiled pattern, in order. No rules: nothing is changed."""

    rules: tuple[tuple[str, re.Pattern[str]], ...] = ()

    def json(self, raw: bytes) -> bytes:
        """A JSON value with every string redacted, names of fields too; the very same bytes if nothing matched."""
        if not self.rules or not self._may_match(raw):
            return raw
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            return self.text(raw.decode("utf-8", "replace")).encode()
        made = self._value(value)
        return raw if made == value else json.dumps(made, ensure_ascii=True, separators=(",", ":")).encode()

    def text(self, text: str) -> str:
        for name, pattern in self.rules:
            text = pattern.sub(f"[redacted {name}]", text)
        return text

    def _may_match(self, raw: bytes) -> bool:
        """Escapes hide nothing from a pattern but line ends and quotes, so a match in the raw text is looked for with
        these undone."""
        text = raw.decode("utf-8", "replace")
        if "\\" in text:
            text = text.replace("\\n", "\n").replace('\\"', '"').replace("\\/", "/").replace("\\\\", "\\")
        return "\\u" in text or any(pattern.search(text) for _, pattern in self.rules)

    def _value(self, value: object) -> object:
        match value:
            case str():
                return self.text(value)
            case list():
                return [self._value(one) for one in value]
            case dict():
                return {self.text(name): self._value(one) for name, one in value.items()}
            case _:
                return value


NO_RULES = Redactor()


def read_rules(source: str) -> Redactor:
    """`known` for the rules above, or a TOML file of names and patterns under `[redact]`, in which `known = true` takes
    the rules above too. Raises `BadInput` with the file and the name."""
    if source == "known":
        return Redactor(_compiled("known", KNOWN))
    try:
        found = tomllib.loads(Path(source).read_text("utf-8")).get("redact")
    except (OSError, ValueError) as problem:
        why = reason_of(problem)
        raise BadInput(f"{source}: cannot be read: {why}; it takes names and patterns under [redact]") from None
    if not isinstance(found, dict):
        raise BadInput(f"{source}: has no [redact]; it takes names and patterns there")
    known = KNOWN if found.pop("known", False) is True else {}
    return Redactor(_compiled(source, {**known, **found}))


def _compiled(source: str, rules: dict[str, object] | dict[str, str]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    made = []
    for name, pattern in rules.items():
        if not isinstance(pattern, str):
            raise BadInput(f"{source}: redact.{name}: is no string; write a regular expression")
        try:
            compiled = re.compile(pattern)
        except re.error as problem:
            raise BadInput(f"{source}: redact.{name}: {problem}") from None
        if compiled.search(""):
            raise BadInput(f"{source}: redact.{name}: matches nothing at all, so it would stand everywhere")
        made.append((name, compiled))
    return tuple(made)


def redaction(before: int, said: Sequence[Fact]) -> BlockReplaced:
    """Names what was replaced in these facts, the first of which gets the seq after `before`."""
    return BlockReplaced(
        how="redact",
        targets=tuple(
            Replacement(seq=before + place, index=index, block=block)
            for place, fact in enumerate(said, 1)
            if isinstance(fact, UserSaid | HostSaid | ToolReturned | ModelReplied)
            for index, block in enumerate(fact.blocks)
            if "[redacted " in getattr(block, "text", "") or "[redacted " in getattr(block, "arguments", "")
        ),
    )
