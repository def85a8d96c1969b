"""A model that plays a script: deterministic, offline, obedient or not. Shipped, for tests, demos and dry runs.

    [[step]]                      steps are played in order, one a request
    say = "I look at the file."
    [[step.call]]
    tool = ["read", "/^cat/"]     the first that is offered
    arguments = { path = "retry.py" }

    [[reaction]]                  looked at before the steps; takes the place of one without consuming it
    when = { text = "handing over", offered = "new_context" }
    [[reaction.call]]
    tool = "new_context"
    arguments = { handoff = { requirements = [{ text = "…", source = "{user}" }] } }

It sees what a model sees: the request's bytes, whatever the dialect. Which tools are offered follows from the head's
segments without the withheld ones; what is new is what stands behind the last reply. It misbehaves on demand: it fails
(`fail`), reports wrong numbers (`usage`), writes arguments that are none (`raw`), calls what is not offered (`anyway`).
What a well-behaved script cannot play (no such tool, another one forced, no step left) is a `BadInput` that names the
step, never a guess.

Tokens are bytes / 4, rounded up. The cached ones are those of the segments that the last answered request began with
too, as in an API that caches by itself; the tail is never cached. No clock and no chance: the same requests get the
same replies, ids included. A reply's `response_id` holds the place in the script: a player made with `after` that id
goes on where the session is, after whatever end of the process.

The format is in `scripted_format`, its manual in docs/scripted.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

import msgspec

from transom.adapters.scripted_format import Call, Placed, Reported, Script, When, fill
from transom.core.block import Text, Thought, ToolCall
from transom.core.event import Usage
from transom.core.wire import Dialect, Segment
from transom.errors import BadInput, Overflow, ProviderError, Unavailable, UsageError
from transom.ports import Delta, Outgoing, Reply

__all__ = ["ScriptedProvider"]

_Said: TypeAlias = Text | Thought | ToolCall

_OPENED = "Previous context is available in durable storage"
_NO_WORDS = {"type", "role", "id", "call_id", "tool_use_id", "tool_call_id", "name", "signature", "status"}
_ASKING = {"user", "tool", "system", "developer"}
_PLACE = re.compile(r"scripted-(\d+)-(\d+)-(\d+)-((?:\d+(?:\.\d+)*)?)")
_FAILURES = {
    "429": (Unavailable, "429 rate_limit_error: too many requests"),
    "529": (Unavailable, "529 overloaded_error: overloaded"),
    "400": (ProviderError, "400 invalid_request_error: the request was refused"),
    "401": (ProviderError, "401 authentication_error: the key is not valid"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    """Replies given, the next step, how often a step without end was played, how often each reaction was."""

    replies: int = 0
    step: int = 0
    again: int = 0
    spent: tuple[int, ...] = ()

    def name(self) -> str:
        return f"scripted-{self.replies}-{self.step}-{self.again}-{'.'.join(map(str, self.spent))}"


class _Seen:
    """A request as the model sees it; what costs a walk over the window is read only if the script asks for it."""

    def __init__(self, request: Outgoing) -> None:
        self._wire = request.wire
        self.forced = request.forced_tool
        self.withheld = request.withheld
        self.tools: dict[str, bytes] = {}
        self.stable: list[bytes] = []
        for segment in request.wire.head:
            kind, _, name = segment.name.partition(":")
            if kind == "tools":
                if name in request.withheld:
                    continue
                self.tools[name] = segment.data
            self.stable.append(segment.data)
        self.stable.extend(request.wire.body[: request.wire.messages])
        self.tokens = _tokens(sum(map(len, self.stable)) + len(request.wire.tail))

    @cached_property
    def fresh(self) -> str:
        """The text behind the last reply."""
        found: list[str] = []
        for place in range(self._wire.messages - 1, -1, -1):
            items = _items(self._wire.body[place])
            if any(not _asks(item) for item in items):
                break
            found[:0] = _words(items)
        return "\n".join(found)

    @cached_property
    def shown(self) -> str:
        """All text of the request, in its order."""
        body = self._wire.body[: self._wire.messages]
        found = [word for segment in self._wire.head for word in _head_words(segment)]
        found.extend(word for data in body for word in _words(_items(data)))
        return "\n".join((*found, self._wire.tail_text))

    @property
    def is_opened(self) -> bool:
        return _OPENED in self.fresh

    def meets(self, when: When) -> bool:
        return (
            self.tokens >= when.min_tokens
            and _any(when.offered, self.tools)
            and _any(when.withheld, self.withheld)
            and _any(when.forced, (self.forced,) if self.forced else ())
            and (when.opened is None or when.opened == self.is_opened)
            and (not when.text or re.search(when.text, self.fresh) is not None)
            and (not when.shown or re.search(when.shown, self.shown) is not None)
        )


class ScriptedProvider:
    """Plays `script` through the wire forms of `dialect`. `after`: the `response_id` of the session's last reply."""

    def __init__(self, script: Script, dialect: Dialect, *, after: str = "") -> None:
        self._script = script
        self._dialect = dialect
        self._position = _restored(script, after) if after else _Position(spent=(0,) * len(script.reactions))
        self._answered: list[bytes] = []

    @property
    def dialect(self) -> Dialect:
        return self._dialect

    @property
    def is_played_out(self) -> bool:
        """Whether every step was played; a step without end never is."""
        return self._position.step >= len(self._script.steps)

    def send(self, request: Outgoing) -> Iterator[Delta | Reply]:
        """One step. A request that is closed before its reply leaves the place in the script as it was."""
        seen = _Seen(request)
        limit = self._script.window_tokens
        if limit and seen.tokens > limit:
            raise Overflow(f"prompt is too long: {seen.tokens} tokens > {limit} maximum")
        placed, moved = self._next(seen)
        step = placed.step
        if step.fail and step.fail != "broken":
            self._position = moved
            _fail(step.fail, seen, limit)
        moved = replace(moved, replies=moved.replies + 1)
        blocks = self._blocks(placed, moved.replies, seen)
        deltas = [delta for block in blocks for delta in _deltas(block)]
        if step.fail:
            yield from deltas[: (len(deltas) + 1) // 2]
            self._position = replace(moved, replies=moved.replies - 1)
            raise Unavailable(f"the stream broke after {(len(deltas) + 1) // 2} of {len(deltas)} pieces")
        yield from deltas
        usage = self._usage(seen, blocks, step.usage)
        self._position, self._answered = moved, seen.stable
        has_calls = bool(step.call)
        yield Reply(
            blocks=blocks,
            stop_reason=step.stop or ("tool_use" if has_calls else "end_turn"),
            usage=usage,
            model=self._script.model,
            response_id=moved.name(),
        )

    def _next(self, seen: _Seen) -> tuple[Placed, _Position]:
        now = self._position
        for order, reaction in enumerate(self._script.reactions):
            count, when = now.spent[order], reaction.step.when
            if (count < reaction.step.times or not reaction.step.times) and when and seen.meets(when):
                spent = (*now.spent[:order], count + 1, *now.spent[order + 1 :])
                return replace(reaction, number=count + 1), replace(now, spent=spent)
        steps = self._script.steps
        for place in range(now.step, len(steps)):
            placed = steps[place]
            again = now.again if place == now.step else 0
            if placed.step.when is not None and not seen.meets(placed.step.when):
                continue
            if placed.number:
                return placed, replace(now, step=place + 1, again=0)
            return replace(placed, number=again + 1), replace(now, step=place, again=again + 1)
        raise BadInput(
            f"{self._script.name}: all its steps ({len(steps)}) are played and the model is asked again; end with a "
            "step that makes no call, or add a step or a reaction for this request"
        )

    def _blocks(self, placed: Placed, reply: int, seen: _Seen) -> tuple[_Said, ...]:
        step = placed.step
        take = self._script.take

        def value(name: str) -> str:
            found = list(re.finditer(take[name], seen.shown))
            if not found:
                raise BadInput(f"{placed.place}: take.{name}: nothing in the request matches {take[name]!r}")
            return found[-1][min(1, found[-1].re.groups)]

        def filled(text: str) -> str:
            return fill(text, placed.number, value, take)

        is_free = step.anyway or self._script.anyway
        made: list[_Said] = []
        if step.thought:
            made.append(Thought(text=filled(step.thought)))
        if step.say:
            made.append(Text(text=filled(step.say)))
        for order, call in enumerate(step.call, 1):
            name = _chosen(call, seen, f"{placed.place}, call {order}, tool", is_free=is_free)
            arguments = filled(call.raw) if call.raw is not None else _arguments(call, seen.tools.get(name), filled)
            made.append(ToolCall(call_id=f"call_{reply}_{order}", name=name, arguments=arguments))
        if seen.forced and not is_free and not any(isinstance(b, ToolCall) and b.name == seen.forced for b in made):
            raise BadInput(
                f"{placed.place}, call: the host forces {seen.forced} and the step does not call it; add a reaction "
                "with when.forced, or say `anyway = true`"
            )
        return tuple(made)

    def _usage(self, seen: _Seen, blocks: tuple[_Said, ...], said: Reported | str | None) -> Usage | None:
        if isinstance(said, str):
            return None
        kept = 0
        for old, new in zip(self._answered, seen.stable, strict=False):
            if old != new:
                break
            kept += len(new)
        cached = kept // 4
        thoughts = sum(len(block.text.encode("utf-8", "replace")) for block in blocks if isinstance(block, Thought))
        output = _tokens(sum(len(delta.text.encode("utf-8", "replace")) for b in blocks for delta in _deltas(b)))
        true = Usage(uncached=seen.tokens - cached, cached=cached, output=output, reasoning=_tokens(thoughts))
        if said is None:
            return true
        wrong = {name: number for name in Reported.__struct_fields__ if (number := getattr(said, name)) is not None}
        return msgspec.structs.replace(true, **wrong)


def _restored(script: Script, after: str) -> _Position:
    found = _PLACE.fullmatch(after)
    spent = tuple(int(count) for count in found[4].split(".") if count) if found else ()
    if found is None or len(spent) != len(script.reactions) or int(found[2]) > len(script.steps):
        raise UsageError(
            f"{after!r} is no reply of the script {script.name}; go on with the script the session began with"
        )
    return _Position(replies=int(found[1]), step=int(found[2]), again=int(found[3]), spent=spent)


def _fail(kind: str, seen: _Seen, limit: int) -> None:
    if kind == "overflow":
        raise Overflow(f"prompt is too long: {seen.tokens} tokens > {limit or seen.tokens - 1} maximum")
    error, text = _FAILURES[kind]
    raise error(text)


def _chosen(call: Call, seen: _Seen, place: str, *, is_free: bool) -> str:
    for name in call.names:
        if len(name) > 1 and name[0] == name[-1] == "/":
            for offered in seen.tools:
                if re.search(name[1:-1], offered):
                    return offered
        elif name in seen.tools:
            return name
    if is_free:
        return call.names[0].strip("/")
    withheld = f"; withheld: {', '.join(sorted(seen.withheld))}" if seen.withheld else ""
    raise BadInput(
        f"{place}: none of {', '.join(call.names)} is offered (offered: {', '.join(seen.tools) or 'none'}{withheld}); "
        "name an alternative, or say `anyway = true` to call it all the same"
    )


def _arguments(call: Call, tool: bytes | None, filled: Callable[[str], str]) -> str:
    known = _properties(tool) if tool else frozenset()
    made = {}
    for key, value in call.arguments.items():
        names = key.split("|")
        made[next((name for name in names if name in known), names[0])] = _filled(value, filled)
    return json.dumps(made, ensure_ascii=False, default=str)


def _filled(value: object, filled: Callable[[str], str]) -> object:
    if isinstance(value, str):
        return filled(value)
    if isinstance(value, list):
        return [_filled(one, filled) for one in value]
    if isinstance(value, dict):
        return {key: _filled(one, filled) for key, one in value.items()}
    return value


def _properties(tool: bytes) -> frozenset[str]:
    """The names of a tool's parameters, in any dialect's form."""
    found = msgspec.json.decode(tool)
    for key in ("function", "input_schema", "parameters"):
        if isinstance(found, dict):
            found = found.get(key, found)
    named = found.get("properties") if isinstance(found, dict) else None
    return frozenset(named) if isinstance(named, dict) else frozenset()


def _items(data: bytes) -> list[dict[str, object]]:
    """A segment's JSON objects; a group of results is several messages in some dialects."""
    return msgspec.json.decode(b"[%b]" % data, type=list[dict[str, object]])


def _head_words(segment: Segment) -> list[str]:
    """Some dialects write a section as the inside of one JSON string."""
    try:
        return _words(_items(segment.data))
    except msgspec.DecodeError:
        return [msgspec.json.decode(b'"%b"' % segment.data, type=str)]


def _asks(item: dict[str, object]) -> bool:
    return item.get("role") in _ASKING or str(item.get("type", "")).endswith("_output")


def _words(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [word for one in value for word in _words(one)]
    if isinstance(value, dict):
        return [word for key, one in value.items() if key not in _NO_WORDS for word in _words(one)]
    return []


def _any(expression: str, names: Mapping[str, bytes] | frozenset[str] | tuple[str, ...]) -> bool:
    return not expression or any(re.search(expression, name) for name in names)


def _deltas(block: Text | Thought | ToolCall) -> list[Delta]:
    if isinstance(block, ToolCall):
        return [Delta(kind="call", text=block.name), Delta(kind="call", text=block.arguments)]
    kind: Literal["text", "thought"] = "text" if isinstance(block, Text) else "thought"
    return [Delta(kind=kind, text=line) for line in block.text.splitlines(keepends=True)]


def _tokens(size: int) -> int:
    return (size + 3) // 4
