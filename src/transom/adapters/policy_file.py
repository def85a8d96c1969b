"""Reads a policy from a TOML file: the fields of `core.policy.Policy`, every one but `name` with a default."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from transom.core.policy import PRESETS, Policy
from transom.errors import BadInput, reason_of

__all__ = ["load_policy"]


def load_policy(file: Path) -> Policy:
    """The policy in `file`. Raises `BadInput` naming file and field."""
    try:
        plain = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        raise BadInput(f"{file}: cannot be read as a policy: {reason_of(problem)}") from problem
    except tomllib.TOMLDecodeError as problem:
        raise BadInput(f"{file}: is not TOML: {problem}") from problem
    try:
        policy = msgspec.convert(plain, Policy)
    except msgspec.ValidationError as problem:
        said, _, path = str(problem).partition(" - at `$")
        field = path.strip("`.")
        known = ", ".join(Policy.__struct_fields__)
        raise BadInput(
            f"{file}: {field + ': ' if field else ''}{said}; the fields of a policy are {known}"
        ) from problem
    _check(policy, file)
    return policy


def _check(policy: Policy, file: Path) -> None:
    if not policy.name.strip():
        raise BadInput(f"{file}: name: is empty; the arm is called by it")
    if policy.name in PRESETS:
        raise BadInput(f"{file}: name: {policy.name!r} is a policy of Transom; choose another name")
    if policy.how == "recorded":
        raise BadInput(f"{file}: how: 'recorded' is what the recording did; name the arm `recorded` with --arms")
    if policy.when == "cost" and policy.how != "rollover":
        raise BadInput(f"{file}: when: 'cost' opens windows, so how is 'rollover', not {policy.how!r}")
    if policy.how == "offload" and not policy.offload_above:
        raise BadInput(f"{file}: offload_above: how = 'offload' needs it: results of more tokens are large")
    for field in ("watermark", "low_water", "min_gain", "seed", "history"):
        share = getattr(policy, field)
        if not 0 <= share <= 1:
            raise BadInput(f"{file}: {field}: is a share of the window, from 0 to 1, not {share}")
    if policy.low_water >= policy.watermark:
        raise BadInput(f"{file}: low_water: {policy.low_water} must be below the watermark {policy.watermark}")
    for field in ("offload_above", "keep_steps", "thought_turns"):
        if getattr(policy, field) < 0:
            raise BadInput(f"{file}: {field}: cannot be negative")
