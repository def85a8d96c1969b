"""A live session in a test: a scripted model, a few small tools over a folder of texts, and every request as sent.

`Live` is to a step what `builders.Story` is to an append. Its tools have each effect once: `read` a file, `write` one,
`post` to the world outside, `look` at nothing. What is sent is kept as bytes, so that a test says what the model saw.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from transom.adapters.memory_log import MemoryLog
from transom.adapters.scripted import ScriptedProvider
from transom.adapters.scripted_format import script_of
from transom.core.block import Text, ToolCall, ToolResultRaw
from transom.core.canon import FORMAT
from transom.core.event import (
    Effect,
    EpochOpened,
    Event,
    Fact,
    HostSaid,
    ModelReplied,
    Section,
    SessionOpened,
    Tool,
    UserSaid,
    WindowOpened,
)
from transom.core.evidence import Files
from transom.core.surface import GUIDANCE, HOST_TOOLS
from transom.core.wire import Dialect
from transom.errors import PathEscaped
from transom.ports import Delta, Log, Outcome, Outgoing, Provider, Reply, Sources
from transom.session import Rules, Session, Stepped, World
from transom.testing.builders import rules, text

__all__ = ["Heard", "Live", "Shelf", "handoff", "step"]

_EFFECTS: dict[str, Effect] = {"read": "read", "write": "write", "post": "external", "look": "none"}
_SCHEMA = '{"type":"object","properties":{"path":{"type":"string"},"text":{"type":"string"}}}'


@dataclass(slots=True)
class Shelf:
    """The tools, over a mapping from path to text. `stops` raises `KeyboardInterrupt` at a call of that name."""

    texts: dict[str, str] = field(default_factory=dict)
    posted: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    stops: str = ""

    def catalogue(self) -> tuple[Tool, ...]:
        return tuple(Tool(name=name, schema=_SCHEMA) for name in _EFFECTS)

    def effect(self, call: ToolCall) -> Effect:
        return _EFFECTS.get(call.name, "none")

    def run(self, call: ToolCall) -> Outcome:
        if call.name == self.stops:
            raise KeyboardInterrupt
        self.ran.append(call.call_id)
        try:
            asked = json.loads(call.arguments)
        except ValueError as problem:
            return _outcome(f"{call.name}: {problem}", is_error=True)
        path, words = asked.get("path", ""), asked.get("text", "")
        match call.name:
            case "read" if path in self.texts:
                return _outcome(self.texts[path])
            case "write":
                self.texts[path] = words
                return _outcome(f"wrote {path}")
            case "post":
                self.posted.append(words)
                return _outcome(f"posted {words}")
            case "look":
                return _outcome(words)
            case _:
                return _outcome(f"{call.name}: error: ENOENT {path}", is_error=True)

    def files(self) -> Files:
        def resolve(path: str) -> str:
            if path.startswith("outside"):
                raise PathEscaped(f"path {path!r}: leads outside the workspace")
            return path

        return Files(resolve=resolve, text=self.texts.get)


def _outcome(words: str, *, is_error: bool = False) -> Outcome:
    return Outcome(blocks=(ToolResultRaw(text=words),), is_error=is_error)


@dataclass(slots=True)
class Heard:
    """A provider that keeps what it was sent: head, body and tail as one."""

    inner: Provider
    sent: list[bytes] = field(default_factory=list)
    asked: list[Outgoing] = field(default_factory=list)

    @property
    def dialect(self) -> Dialect:
        return self.inner.dialect

    def send(self, request: Outgoing) -> Iterator[Delta | Reply]:
        wire = request.wire
        head = (segment.data for segment in wire.head)
        self.sent.append(b"\n".join((*head, *wire.body[: wire.messages], wire.tail)))
        self.asked.append(request)
        yield from self.inner.send(request)


class Live:
    """A session with `script` for a model. `steps` and `reactions` are those of docs/scripted.md."""

    def __init__(
        self,
        steps: list[dict[str, object]],
        *,
        reactions: list[dict[str, object]] | None = None,
        take: Mapping[str, str] | None = None,
        given: Rules | None = None,
        window_tokens: int = 0,
        shelf: Shelf | None = None,
        log: Log | None = None,
        system: str = GUIDANCE,
        sources: Sources | None = None,
        head: EpochOpened | None = None,
    ) -> None:
        self.rules = given or rules("rollover", 8_000)
        self.script = script_of(
            {
                "take": {"user": r"user message above: (\w+)\]", **(take or {})},
                "step": steps,
                "reaction": reactions or [],
                "window_tokens": window_tokens,
            }
        )
        self.log = MemoryLog() if log is None else log
        self.shelf = shelf or Shelf()
        self.sources = sources
        self.told: list[Event] = []
        self.provider = Heard(ScriptedProvider(self.script, self.rules.dialect))
        if self.log.sessions("s"):
            self.reopen()
            return
        self.session = Session.start(self.log, "s", SessionOpened(format=FORMAT, agent="transom"), self.rules)
        tools = (*self.shelf.catalogue(), *HOST_TOOLS)
        self.session.append(head or EpochOpened(sections=(Section(key="guidance", text=system),), tools=tools))

    @property
    def world(self) -> World:
        return World(
            provider=self.provider,
            tools=self.shelf,
            files=self.shelf.files(),
            model="scripted",
            max_output_tokens=1000,
            sources=self.sources,
            told=self.told.append,
        )

    def user(self, words: str) -> Event:
        """Words of the user, and beside them their name, so that a handoff can cite it."""
        event = self.session.append(UserSaid(blocks=(text(words),)))[0]
        name = text(f"[message_uuid of the user message above: {event.uuid}]")
        self.session.append(HostSaid(kind="injected", blocks=(name,)))
        return event

    def step(self) -> Stepped:
        return self.session.step(self.world)

    def run(self, most: int = 200) -> Stepped:
        """Steps until the turn is over."""
        for _ in range(most):
            stepped = self.step()
            if stepped.is_turn_over:
                return stepped
        raise AssertionError(f"the turn is not over after {most} steps")

    def reopen(self) -> None:
        """As after the end of the process: all is read from the log, and what was left open is settled."""
        self.session = Session.open(self.log, "s", self.rules)
        after = [event.fact.response_id for event in self.events() if isinstance(event.fact, ModelReplied)]
        model = ScriptedProvider(self.script, self.rules.dialect, after=after[-1] if after else "")
        self.provider = Heard(model, self.provider.sent, self.provider.asked)
        self.session.resume(self.world)

    def events(self) -> list[Event]:
        return list(self.log.read("s"))

    def facts(self) -> list[Fact]:
        return [event.fact for event in self.events()]

    def windows(self) -> list[WindowOpened]:
        return [fact for fact in self.facts() if isinstance(fact, WindowOpened)]

    def notices(self, kind: str) -> list[str]:
        """What the host said of this kind."""
        said = [fact for fact in self.facts() if isinstance(fact, HostSaid) and fact.kind == kind]
        return [block.text for fact in said for block in fact.blocks if isinstance(block, Text)]


def step(say: str = "", *calls: tuple[str, object], **more: object) -> dict[str, object]:
    """A step of a script: words, then calls as (tool, arguments); arguments that are text are taken raw."""
    made = [
        {"tool": name, "raw": given} if isinstance(given, str) else {"tool": name, "arguments": given}
        for name, given in calls
    ]
    return {**({"say": say} if say else {}), **({"call": made} if made else {}), **more}


def handoff(
    *requirements: tuple[str, str], inferences: tuple[str, ...] = ("all is well",), **more: object
) -> tuple[str, object]:
    """A `new_context` call."""
    listed = [{"text": words, "source": source} for words, source in requirements]
    return "new_context", {"handoff": {"requirements": listed, "inferences": list(inferences), **more}}
