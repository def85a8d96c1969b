"""The script of a scripted model: how it is written, read and checked. `docs/scripted.md` is its manual.

A script is TOML or JSON, or the same as a mapping. It is checked whole before the first step is played: what is wrong
is a `BadInput` that names file, step and field. Steps that repeat (`times`, `do`) are unrolled here, so that a place in
a script is one number; only `times = 0` (for ever) is left to the player.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from transom.errors import BadInput

__all__ = ["Call", "Placed", "Reported", "Script", "Step", "When", "fill", "read_script", "script_of"]

T = TypeVar("T")
Failure = Literal["overflow", "429", "529", "400", "401", "broken"]

_STEPS = 100_000
"""More unrolled steps than any test plays: a slip of the pen (`times = 1e9`) ends in a sentence."""
_WHERE = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<field>.*)`)?$", re.DOTALL)
_TEMPLATE = re.compile(r"\{\{(?P<plain>\w+(?::\d+)?)\}\}|\{(?P<name>\w+)(?::(?P<size>\d+))?\}")
_FILLER = "All work and no play makes a model a dull one. "


class _Form(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class When(_Form, frozen=True, kw_only=True):
    """What must hold of a request. Every condition that is given must; words are regular expressions, searched."""

    text: str = ""
    """In what was said since the model's last reply."""
    shown: str = ""
    """Anywhere in the request."""
    opened: bool | None = None
    """Whether the request is the first of a window that has a predecessor."""
    offered: str = ""
    withheld: str = ""
    forced: str = ""
    min_tokens: int = 0


class Call(_Form, frozen=True, kw_only=True):
    """One call. Of several names the first that is offered is called; `/…/` is a regular expression. A key of
    `arguments` may name alternatives too: `path|file_path`. `raw` is the literal text instead, JSON or not."""

    tool: str | tuple[str, ...]
    arguments: dict[str, object] = {}
    raw: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.tool,) if isinstance(self.tool, str) else self.tool


class Reported(_Form, frozen=True, kw_only=True):
    """Numbers the model reports instead of the true ones."""

    uncached: int | None = None
    cached: int | None = None
    written: int | None = None
    output: int | None = None


class Step(_Form, frozen=True, kw_only=True):
    """One answer, or one failure."""

    when: When | None = None
    thought: str = ""
    say: str = ""
    call: tuple[Call, ...] = ()
    fail: Failure | None = None
    stop: str = ""
    """The stop reason, if it is not the one that follows from the calls."""
    usage: Reported | Literal["none"] | None = None
    anyway: bool = False
    """Play it although a tool is not offered, or another one is forced."""
    times: int = 1
    do: tuple[Step, ...] = ()


class _Whole(_Form, frozen=True, kw_only=True):
    model: str = "scripted"
    window_tokens: int = 0
    anyway: bool = False
    take: dict[str, str] = {}
    step: list[object] = []
    reaction: list[object] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A step where it stands. `number` counts its repetitions from one; 0 = it repeats without end."""

    step: Step
    place: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A checked script, unrolled. `take` is name -> expression; the newest match in the request is its value."""

    name: str
    model: str
    window_tokens: int
    anyway: bool
    take: Mapping[str, str]
    steps: tuple[Placed, ...]
    reactions: tuple[Placed, ...]


def read_script(path: str | Path) -> Script:
    """The script in a file: JSON if its name ends so, else TOML. Raises `BadInput`."""
    file = Path(path)
    try:
        text = file.read_text("utf-8")
        found = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise BadInput(f"{file}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{file}: no {'JSON' if file.suffix == '.json' else 'TOML'}: {error}") from None
    return script_of(found, name=str(file))


def script_of(found: object, *, name: str = "script") -> Script:
    """The script in a mapping. Raises `BadInput` naming `name`, step and field."""
    whole = _convert(found, _Whole, f"{name}: ")
    for key, expression in whole.take.items():
        if not key.isidentifier() or key in {"i", "pad"}:
            raise BadInput(f"{name}: take.{key}: is no name for a value; use letters, digits and _, not i or pad")
        _expression(expression, f"{name}: take.{key}")
    steps = [_step(raw, f"{name}: step {number}") for number, raw in enumerate(whole.step, 1)]
    reactions = [_step(raw, f"{name}: reaction {number}") for number, raw in enumerate(whole.reaction, 1)]
    for placed in reactions:
        if placed.step.when is None or placed.step.do:
            raise BadInput(f"{placed.place}, when: a reaction needs a condition and is a single step")
    if not steps and not reactions:
        raise BadInput(f"{name}: step: there is none; write at least one [[step]]")
    return Script(
        name=name,
        model=whole.model,
        window_tokens=whole.window_tokens,
        anyway=whole.anyway,
        take=whole.take,
        steps=_unrolled(steps, name),
        reactions=tuple(reactions),
    )


def fill(text: str, number: int, value: Callable[[str], str], names: Mapping[str, str]) -> str:
    """The text with `{i}`, `{pad:N}` (N characters) and the names of `take` replaced; `{{i}}` stands for `{i}`. Braces
    around anything else are left alone, so that code can stand in a script."""

    def one(found: re.Match[str]) -> str:
        if plain := found["plain"]:
            known = plain == "i" or plain.startswith("pad:") or plain in names
            return "{" + plain + "}" if known else found[0]
        name, size = found["name"], found["size"]
        if name == "i" and size is None:
            return str(number)
        if name == "pad" and size is not None:
            return (_FILLER * (int(size) // len(_FILLER) + 1))[: int(size)].rstrip().ljust(int(size), ".")
        return value(name) if name in names and size is None else found[0]

    return _TEMPLATE.sub(one, text)


def _convert(found: object, form: type[T], place: str) -> T:
    try:
        return msgspec.convert(found, form)
    except msgspec.ValidationError as error:
        where = _WHERE.match(str(error))
        what, field = (where["what"], where["field"]) if where else (str(error), None)
        raise BadInput(f"{place}{f'{field}: ' if field else ''}{what}; docs/scripted.md has all") from None


def _step(raw: object, place: str) -> Placed:
    """Inner lists are converted one by one, since the codec does not say which member of a list is wrong."""
    if not isinstance(raw, dict):
        raise BadInput(f"{place}: is no table of fields")
    lists = {key: raw.get(key, []) for key in ("call", "do")}
    for key, inner in lists.items():
        if not isinstance(inner, list | tuple):
            raise BadInput(f"{place}, {key}: is no list; write [[step.{key}]]")
    step = _convert({key: inner for key, inner in raw.items() if key not in lists}, Step, f"{place}, ")
    calls = tuple(_convert(one, Call, f"{place}, call {number}, ") for number, one in enumerate(lists["call"], 1))
    inner = tuple(_step(one, f"{place}, do {number}").step for number, one in enumerate(lists["do"], 1))
    made = msgspec.structs.replace(step, call=calls, do=inner)
    _check(made, place)
    return Placed(step=made, place=place, number=0 if made.times == 0 else 1)


def _check(step: Step, place: str) -> None:
    if step.times < 0:
        raise BadInput(f"{place}, times: {step.times} is negative; 0 means for ever")
    says = bool(step.say or step.thought or step.call or step.fail or step.stop)
    if step.do and (says or step.when or any(inner.do or inner.times == 0 for inner in step.do)):
        raise BadInput(f"{place}, do: a group has only `times` and `do`, and its steps neither `do` nor times = 0")
    if not step.do and not says:
        raise BadInput(f"{place}: does nothing; give say, thought, call, fail or stop")
    if step.fail and step.fail != "broken" and (step.say or step.call or step.thought):
        raise BadInput(f"{place}, fail: {step.fail} comes before the first word; leave say, thought and call out")
    for number, call in enumerate(step.call, 1):
        if not call.names or not all(call.names):
            raise BadInput(f"{place}, call {number}, tool: names no tool")
        if call.raw is not None and call.arguments:
            raise BadInput(f"{place}, call {number}, raw: stands instead of arguments; give one of them")
        for name in call.names:
            if len(name) > 1 and name[0] == name[-1] == "/":
                _expression(name[1:-1], f"{place}, call {number}, tool")
    if step.when is not None:
        conditions = {name: getattr(step.when, name) for name in When.__struct_fields__}
        if all(value in {"", None, 0} and value is not False for value in conditions.values()):
            raise BadInput(f"{place}, when: is empty; give one of {', '.join(conditions)}")
        for name in ("text", "shown", "offered", "withheld", "forced"):
            _expression(conditions[name], f"{place}, when.{name}")


def _expression(text: str, place: str) -> None:
    try:
        re.compile(text)
    except re.error as error:
        raise BadInput(f"{place}: {text!r} is no regular expression: {error}") from None


def _unrolled(steps: list[Placed], name: str) -> tuple[Placed, ...]:
    size = sum(placed.step.times * (sum(inner.times for inner in placed.step.do) or 1) for placed in steps)
    if size > _STEPS:
        raise BadInput(f"{name}: step: {size:,} steps with all repetitions, of at most {_STEPS:,}")
    found: list[Placed] = []
    for placed in steps:
        inner = placed.step.do
        if placed.number == 0 and inner:
            raise BadInput(f"{placed.place}, times: only a single step repeats for ever")
        for number in range(1, placed.step.times + 1):
            if not inner:
                found.append(Placed(step=placed.step, place=placed.place, number=number))
            for order, one in enumerate(inner, 1):
                place = f"{placed.place}, do {order}"
                found.extend(Placed(step=one, place=place, number=number) for _ in range(one.times))
        if placed.number == 0:
            found.append(placed)
    return tuple(found)
