"""Small builders for facts and sessions: what a story in a test needs to say and nothing more.

Everything is deterministic: the clock counts milliseconds, ids count up, and the counter needs no package. A
`Story` is a session with short verbs for what its world does: a user speaks, a model replies, tools return.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from transom.adapters.counter import HeuristicCounter
from transom.adapters.memory_log import MemoryLog
from transom.adapters.provider_anthropic import DIALECT
from transom.core.block import Block, Image, Text, Thought, ToolCall, ToolResultRaw
from transom.core.budget import Limits, limits
from transom.core.canon import FORMAT
from transom.core.costrule import Tariff
from transom.core.event import (
    Effect,
    Event,
    Fact,
    HostSaid,
    ModelReplied,
    SessionOpened,
    ToolReturned,
    Usage,
    UserSaid,
)
from transom.core.policy import PRESETS, Policy
from transom.core.wire import Dialect
from transom.ports import Counter, Log
from transom.session import Prepared, Rules, Session

__all__ = ["COUNTER", "Story", "call", "image", "result", "rules", "text", "thought"]

COUNTER: Counter = HeuristicCounter()


def text(words: str, *, is_protected: bool = False) -> Text:
    found = COUNTER.measure(words)
    return Text(text=words, tokens=found.tokens, content=found.content, is_protected=is_protected)


def thought(words: str, opaque: str = "") -> Thought:
    found = COUNTER.measure(words)
    return Thought(text=words, opaque=opaque, tokens=found.tokens, content=found.content)


def call(call_id: str, name: str = "bash", arguments: str = "{}") -> ToolCall:
    found = COUNTER.measure(arguments)
    return ToolCall(call_id=call_id, name=name, arguments=arguments, tokens=found.tokens + 4, content=found.content)


def result(words: str) -> ToolResultRaw:
    found = COUNTER.measure(words)
    return ToolResultRaw(text=words, tokens=found.tokens, content=found.content)


def image(tokens: int = 1500) -> Image:
    return Image(media_type="image/png", artifact_id="ab" * 32, size=9000, tokens=tokens)


def rules(
    policy: str | Policy = "rollover",
    limit: int | Limits = 32_000,
    *,
    dialect: Dialect = DIALECT,
    counter: Counter = COUNTER,
    tariff: Tariff | None = None,
) -> Rules:
    """Rules with a clock and ids that count up from one."""
    ticks, names = count(1), count(1)
    return Rules(
        policy=PRESETS[policy] if isinstance(policy, str) else policy,
        bounds=limits(limit) if isinstance(limit, int) else limit,
        counter=counter,
        dialect=dialect,
        clock=lambda: next(ticks),
        ids=lambda: f"u{next(names)}",
        tariff=tariff,
    )


@dataclass(slots=True)
class Story:
    """A session and what happens to it. `calls` are the open calls of the newest reply, oldest first."""

    rules: Rules
    log: Log = field(default_factory=MemoryLog)
    session_id: str = "s"
    model: str = ""
    session: Session = field(init=False)
    numbers: Callable[[], int] = field(init=False)

    def __post_init__(self) -> None:
        opened = SessionOpened(format=FORMAT, agent="transom", model=self.model)
        self.session = Session.start(self.log, self.session_id, opened, self.rules)
        ticks = count(1)
        self.numbers = lambda: next(ticks)

    @property
    def calls(self) -> list[str]:
        return list(self.session.state.window.calls)

    def say(self, *facts: Fact) -> tuple[Event, ...]:
        return self.session.append(*facts)

    def user(self, *words: str | Block) -> Event:
        return self.say(UserSaid(blocks=_blocks(words)))[0]

    def host(self, *words: str | Block) -> Event:
        return self.say(HostSaid(kind="injected", blocks=_blocks(words)))[0]

    def reply(self, *words: str | Block, usage: Usage | None = None, stop_reason: str = "end_turn") -> Event:
        return self.say(ModelReplied(blocks=_blocks(words), usage=usage, stop_reason=stop_reason))[0]

    def returned(
        self,
        call_id: str,
        words: str | Block = "ok",
        *,
        is_error: bool = False,
        effect: Effect = "read",
        exit_code: int | None = None,
    ) -> Event:
        block = result(words) if isinstance(words, str) else words
        fact = ToolReturned(call_id=call_id, blocks=(block,), is_error=is_error, effect=effect, exit_code=exit_code)
        return self.say(fact)[0]

    def step(self, *, model_hands_over: bool = False) -> Prepared:
        """Boundary and request."""
        self.session.boundary(model_hands_over=model_hands_over)
        return self.session.request()

    def work(self, words: str = "ok", *, arguments: str = "", name: str = "bash", is_error: bool = False) -> Prepared:
        """One whole step: a request, a reply with one call, its result."""
        prepared = self.step()
        number = self.numbers()
        self.reply(f"step {number}", call(f"call_{number}", name, arguments or f'{{"command":"run {number}"}}'))
        self.returned(f"call_{number}", words, is_error=is_error)
        return prepared

    def reopen(self) -> Session:
        """As after a restart: everything but the log is lost."""
        self.session = Session.open(self.log, self.session_id, self.rules)
        return self.session

    def shown(self) -> str:
        """All text in the window, one block a line."""
        items = self.session.state.window.items
        return "\n".join(getattr(block, "text", "") for item in items for block in item.blocks)

    def events(self) -> list[Event]:
        return list(self.log.read(self.session_id))


def _blocks(words: Sequence[str | Block]) -> tuple[Block, ...]:
    return tuple(text(word) if isinstance(word, str) else word for word in words)
