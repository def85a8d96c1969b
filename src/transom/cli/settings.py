"""What `run` and `resume` go by, and where each value comes from.

    flag > session (resume: what it ran with) > TRANSOM_* > .transom.toml of the workspace > config.toml > default

A repository brings its own `.transom.toml`, so that file may not say where a key is sent, whose words are obeyed
(another provider, a script, a model file it brings), what runs without being asked, or outside of a sandbox: such a
line is refused by name, not passed over. A bound of the user's own it may make tighter, never looser.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from transom.cli.terms import parse_tokens
from transom.core.policy import PRESETS, Policy
from transom.errors import BadInput, UsageError, reason_of

__all__ = ["KEYS", "PROJECT_FILE", "Key", "Setting", "Settings", "settle", "user_file"]

PROJECT_FILE = ".transom.toml"
_YES = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_MICRO = 1_000_000
_BOUNDS = ("max_steps", "max_spend", "max_minutes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A setting: its default, and whether a project may say it."""

    default: str = ""
    is_project: bool = True
    kind: type = str


KEYS: dict[str, Key] = {
    "provider": Key(is_project=False),
    "model": Key(),
    "base_url": Key(is_project=False),
    "script": Key(is_project=False),
    "context_limit": Key(),
    "policy": Key(default="rollover"),
    "approve": Key(is_project=False),
    "unsandboxed": Key(default="false", is_project=False, kind=bool),
    "network": Key(default="false", is_project=False, kind=bool),
    "max_steps": Key(default="0"),
    "max_spend": Key(default="0"),
    "max_minutes": Key(default="0"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value as text, and who said so."""

    value: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """One value for each of `KEYS`. Reading one raises `UsageError` with its origin if it is none of its kind."""

    values: Mapping[str, Setting]

    def text(self, key: str) -> str:
        return self.values[key].value

    def flag(self, key: str) -> bool:
        said = self.values[key]
        if said.value.lower() not in _YES:
            raise UsageError(f"{key} = {said.value!r} ({said.origin}): say true or false")
        return _YES[said.value.lower()]

    def number(self, key: str) -> float:
        said = self.values[key]
        try:
            found = float(said.value)
        except ValueError:
            found = -1
        if not 0 <= found < 1e9:
            raise UsageError(f"{key} = {said.value!r} ({said.origin}): is no number from 0 on; 0 is no bound")
        return found

    def tokens(self) -> int:
        """The context limit; 0 = not said."""
        said = self.values["context_limit"]
        return parse_tokens(said.value, f"context_limit = {said.value!r} ({said.origin})") if said.value else 0

    def steps(self) -> int:
        """The most steps; 0 = no bound. A fraction of one is none, so it is no number of steps either."""
        said, found = self.values["max_steps"], self.number("max_steps")
        if not found.is_integer():
            raise UsageError(f"max_steps = {said.value!r} ({said.origin}): is no whole number")
        return int(found)

    def approval(self) -> str:
        """`ask`, `auto`, or empty if nobody says."""
        said = self.values["approve"]
        if said.value not in ("", "ask", "auto"):
            raise UsageError(f"approve = {said.value!r} ({said.origin}): say ask or auto")
        return said.value

    def microusd(self) -> int:
        return round(self.number("max_spend") * _MICRO)

    def policy(self) -> Policy:
        said = self.values["policy"]
        if said.value in PRESETS and said.value != "recorded":
            return PRESETS[said.value]
        if said.value.endswith(".toml"):
            from transom import compose

            return compose.policy(Path(said.value))
        known = ", ".join(name for name in PRESETS if name != "recorded")
        raise UsageError(f"policy = {said.value!r} ({said.origin}): name one of {known}, or a file NAME.toml")


def user_file() -> Path:
    return platformdirs.user_config_path("transom", appauthor=False) / "config.toml"


def settle(flags: Mapping[str, str | None], workspace: Path, session: Mapping[str, str] | None = None) -> Settings:
    """One value each, from the first that says it. Raises `BadInput` for a file that cannot be used."""
    project, own = _file(workspace / PROJECT_FILE, is_project=True), _file(user_file(), is_project=False)
    loosened = [key for key in _BOUNDS if key in project and key in own and _is_looser(project[key], own[key])]
    layers = (
        ("flag", {key: value for key, value in flags.items() if value is not None}),
        ("session", {key: value for key, value in (session or {}).items() if value}),
        ("environment", {key: os.environ[_variable(key)] for key in KEYS if os.environ.get(_variable(key))}),
        (str(workspace / PROJECT_FILE), {key: value for key, value in project.items() if key not in loosened}),
        (str(user_file()), own),
    )
    found: dict[str, Setting] = {}
    for key, one in KEYS.items():
        origin, values = next(((name, said) for name, said in layers if key in said), ("default", {key: one.default}))
        found[key] = Setting(value=values[key], origin=_variable(key) if origin == "environment" else origin)
    return Settings(values=found)


def _is_looser(bound: str, own: str) -> bool:
    """0 is no bound. What is no number is for its reader to refuse."""
    try:
        theirs, mine = float(bound), float(own)
    except ValueError:
        return False
    return mine > 0 and (theirs == 0 or theirs > mine)


def _variable(key: str) -> str:
    return f"TRANSOM_{key.upper()}"


def _file(path: Path, *, is_project: bool) -> dict[str, str]:
    """The values of a file; none if there is no such file."""
    if not path.is_file():
        return {}
    try:
        said = tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise BadInput(f"{path}: cannot be read as settings: {reason_of(problem)}") from problem
    for key, value in said.items():
        if key not in KEYS:
            raise BadInput(f"{path}: {key}: is no setting; there are {', '.join(KEYS)}")
        if is_project and (not KEYS[key].is_project or (key == "model" and str(value).lower().endswith(".gguf"))):
            raise BadInput(
                f"{path}: {key}: may not stand in a project's file, since whoever wrote the repository would decide "
                f"it; say it in {user_file()}, by {_variable(key)} or by a flag"
            )
        if not isinstance(value, str | int | float):
            raise BadInput(f"{path}: {key}: is a list, a table or a date; a setting is one value")
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in said.items()}
    for key in ("policy", "script"):  # a path in a file is meant from where the file stands
        if texts.get(key, "").endswith((".toml", ".json")):
            texts[key] = str(path.parent / texts[key])
    return texts
