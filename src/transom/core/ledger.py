"""The ledger: of each answered request, what the provider should have read from its cache, and what it says it did.

It is computed from the log alone, whenever somebody asks, so it is the same for a live session, an imported one and one
whose rules were not known when it ran; nothing of it is stored. Each request is rendered again (projection is
deterministic), so what it has in common with the one before is known to the byte; tokens come from the reported
prompts, which are exact at the ends of requests, and in between from our counts.

A recording has no requests, only replies, so a request is assumed before each reply, when the last thing it answers had
been said. What a recording cannot tell is not guessed:

1. Thoughts that a provider drops by itself when the user speaks: the reported growth tells (`usage.vote`).
2. A prompt that shrank though nothing on record was rewritten: the expectation is None, the reason `unrecorded`.
3. The head, which most recordings lack, is the first reported prompt less what we count of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import msgspec

from transom.core.breakpoints import breakpoints
from transom.core.cache import Pin, check, head_digest, pin_of, sent
from transom.core.cachesim import Cache, Mark, Sent
from transom.core.event import (
    BlockReplaced,
    EpochOpened,
    Event,
    HostSaid,
    ModelReplied,
    Observed,
    RequestSent,
    ToolReturned,
    Usage,
    UserSaid,
)
from transom.core.gssc import prunes
from transom.core.overlay import counted_tokens, head_tokens, prompt_tokens
from transom.core.pricing import Price
from transom.core.projection import fold
from transom.core.rewriting import is_own_form
from transom.core.state import State
from transom.core.usage import vote
from transom.core.wire import Dialect, Keyed, Rendering, Wire, common_prefix

__all__ = ["UNRECORDED", "Entry", "Prices", "Request", "ledger", "requests"]

UNRECORDED = "unrecorded"
"""The reason of a rewrite that the reported prompts show and the recording does not."""
_SHRUNK = 64
"""Tokens a prompt may shrink by without anything rewritten: reminders that a client moves along."""

_OF_CLIENT = "client_request"
"""What a gateway keeps of each request that it gets."""

Prices = Callable[[str], Price]
"""The price of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One answered request whose usage was reported."""

    step: int
    """Number of the reply."""
    seq: int
    """Of the reply."""
    asked: float
    """Seconds since the epoch."""
    key: str
    """Whose cache: the model."""
    price: Price
    usage: Usage
    is_long: bool
    expected: int | None
    """Tokens that should be read; None if the recording does not hold what changed."""
    warm: int
    """The same, had nothing expired."""
    could: int
    """The most that could be read: all of the prompt before, as far as this one is as long."""
    rewritten: int
    """Of that, tokens that are other bytes now."""
    is_counted: bool
    """The common start ends between two reported prompts: its length is our count."""
    verdict: str
    reasons: tuple[str, ...]
    head: int
    """Tokens of the head."""
    end: int
    """Tokens up to the last mark: what the next request may read of this one."""
    is_remembered: bool
    """False where a provider that reports writes neither read nor wrote: nothing of it was kept."""
    is_new_form: bool = False
    """The one before was a client's own bytes, and a gateway wrote this one: the same may stand there in other JSON."""


def ledger(events: Iterable[Event], dialect: Dialect, prices: Prices) -> Iterator[Entry]:
    """The entries of a session, in the order of its replies."""
    book = _Book(dialect, prices)
    for event in events:
        entry = book.take(event)
        if entry is not None:
            yield entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One that was sent, or that a recorded reply answers. Its wire is without the tail."""

    seq: int
    """Of the fact on it; of the reply where it is assumed."""
    asked: float
    key: str
    wire: Wire
    pin: Pin
    tail: int
    """Tokens."""
    items: int
    """In the window."""
    verdict: str
    reasons: tuple[str, ...]
    is_passed_on: bool = False
    """Behind a gateway that had changed nothing yet, so that the client's own bytes were sent."""
    is_as_sent: bool = False
    """The bytes are those that were sent, by the digests in the log."""


def requests(events: Iterable[Event], dialect: Dialect, prices: Prices) -> Iterator[Request]:
    """Every request of a session, unanswered ones too, in order."""
    book = _Book(dialect, prices)
    for event in events:
        before = book.request
        book.take(event)
        if book.request is not None and book.request is not before:
            yield book.request


@dataclass(slots=True)
class _Line:
    """The newest answered request, and what is known of the tokens at its start."""

    pin: Pin | None = None
    key: str = ""
    tokens: int = 0
    """Of its prompt without the tail."""
    items: int = 0
    """That stood in its window."""
    reply: Usage | None = None
    is_passed_on: bool = False
    ends: list[tuple[int, int]] = field(default_factory=list)
    """(messages, tokens) where earlier requests ended whose bytes still stand."""

    def followed(self, request: Request, key: str, tokens: int, marked: int, reply: Usage) -> _Line:
        """By the next request; the ends are handed on."""
        self.ends.append((request.wire.messages, marked))
        return _Line(
            pin=request.pin,
            key=key,
            tokens=tokens,
            items=request.items,
            reply=reply,
            is_passed_on=request.is_passed_on,
            ends=self.ends,
        )


def _messages(end: tuple[int, int]) -> int:
    return end[0]


class _Book:
    def __init__(self, dialect: Dialect, prices: Prices) -> None:
        self._state = State()
        self._rendering = Rendering(dialect)
        self._prices = prices
        self._line = _Line()
        self._cache = Cache()
        self._pending: Request | None = None
        self.request: Request | None = None
        """The newest."""
        self._pin: Pin | None = None
        self._said_at = 0
        self._steps = 0
        self._unseen: int | None = None
        self._shared = 0
        self._is_user = self._writes = False
        self._is_behind = self._is_written = False
        """A gateway's session; one whose requests the gateway writes."""

    def take(self, event: Event) -> Entry | None:
        fact = event.fact
        entry = None
        self._is_behind = self._is_behind or (isinstance(fact, Observed) and fact.kind == _OF_CLIENT)
        self._is_written = self._is_written or is_own_form(fact)
        match fact:
            case RequestSent():
                self._pending = self.request = self._sent(event, fact)
            case ModelReplied():
                self._steps += 1
                if not self._is_copy(fact):
                    entry = self._answered(event, fact)
                self._pending, self._said_at, self._is_user = None, 0, False
            case UserSaid() | HostSaid() | ToolReturned():
                self._is_user = self._is_user or isinstance(fact, UserSaid)
                self._said_at = max(self._said_at, event.at)
            case _:
                pass
        fold(self._state, event)
        if isinstance(fact, EpochOpened) and self._unseen and not self._state.head.unseen_tokens:
            self._state.head.unseen_tokens = self._unseen
        return entry

    def _is_copy(self, fact: ModelReplied) -> bool:
        """A reply that a client wrote itself, beside the usage of the one before."""
        usage = fact.usage
        return usage is not None and usage.output > 0 and not fact.response_id and usage == self._line.reply

    def _sent(self, event: Event, fact: RequestSent) -> Request:
        wire = self._rendering.wire(self._state)
        key = f"{fact.provider}/{fact.model}" if fact.model else ""
        keyed = Keyed(provider=fact.provider, model=fact.model, fields=fact.fields)
        return Request(
            seq=event.seq,
            asked=event.at / 1000,
            key=key,
            wire=wire,
            pin=replace(pin_of(wire), keyed=keyed),
            tail=max(0, fact.tokens - prompt_tokens(self._state)),
            items=len(self._state.window.items),
            verdict=fact.verdict,
            reasons=fact.reasons,
            is_passed_on=self._is_behind and not self._is_written,
            is_as_sent=head_digest(wire) == fact.head and wire.rolling[wire.messages].hex() == fact.body,
        )

    def _assumed(self, event: Event, fact: ModelReplied) -> Request:
        """The request that a recorded reply answers."""
        state = self._state
        if self._is_user and fact.usage is not None and vote(state, fact.usage.prompt) > 0:
            dropped = prunes(state.window.items[: state.window.sent + 1])
            fold(state, msgspec.structs.replace(event, fact=BlockReplaced(how="prune", targets=tuple(dropped))))
        wire = self._rendering.wire(state)
        verdict = check(self._pin, wire, state.declared)
        self._pin = pin_of(wire)
        fold(state, msgspec.structs.replace(event, fact=sent(wire, verdict, 0)))
        asked = min(self._said_at, event.at) if self._said_at and event.at else self._said_at or event.at
        return Request(
            seq=event.seq,
            asked=asked / 1000,
            key=fact.model,
            wire=wire,
            pin=pin_of(wire),
            tail=0,
            items=len(state.window.items),
            verdict=verdict.kind,
            reasons=verdict.reasons,
        )

    def _answered(self, event: Event, fact: ModelReplied) -> Entry | None:
        request = self.request = self._pending or self._assumed(event, fact)
        usage = fact.usage
        if usage is None or usage.prompt <= 0:
            return None
        self._learn_head(usage)
        state, line, wire = self._state, self._line, request.wire
        price = self._prices(fact.model or state.model)
        self._writes = self._writes or usage.written > 0
        is_long = 2 * usage.written_1h > usage.written
        key = request.key or fact.model
        reasons, could = request.reasons, min(line.tokens, usage.prompt)
        if line.key and key != line.key and "change:model" not in reasons:
            reasons = (*reasons, "change:model")
        kept, messages, is_counted = self._kept(wire, request.pin.keyed)
        is_known = not is_counted and not self._pending and key == line.key
        is_cut = is_known and kept > usage.prompt + _SHRUNK
        if is_cut:
            kept, reasons = min(head_tokens(state), kept), (*reasons, UNRECORDED)
        body = usage.prompt - request.tail
        held = usage.cached + usage.written
        end = held if self._writes and held else body
        while line.ends and line.ends[-1][0] > messages:
            line.ends.pop()
        ask = Sent(
            at=request.asked,
            tokens=usage.prompt,
            kept=kept,
            answered=self._said_again(usage.prompt) if kept == line.tokens else 0,
            marks=self._marks(wire, messages, end),
            key=key,
            is_long=is_long,
            is_remembered=held > 0 or not self._writes,
        )
        found = self._cache.send(ask, price.rules)
        entry = Entry(
            step=self._steps,
            seq=event.seq,
            asked=request.asked,
            key=key,
            price=price,
            usage=usage,
            is_long=is_long,
            expected=None if is_cut else found.read,
            warm=found.warm,
            could=could,
            rewritten=max(0, could - kept),
            is_counted=is_counted,
            verdict=request.verdict,
            reasons=reasons,
            head=head_tokens(state),
            end=end,
            is_remembered=ask.is_remembered,
            is_new_form=line.is_passed_on and not request.is_passed_on,
        )
        if is_cut:
            line.ends.clear()
        marked = end if 0 <= body - end <= _SHRUNK else body  # a few tokens of framing stand behind the last mark
        self._line = line.followed(request, key, body, marked, usage)
        return entry

    def _learn_head(self, usage: Usage) -> None:
        state = self._state
        if self._unseen is None:
            self._shared = usage.cached
            self._unseen = max(-head_tokens(state), usage.prompt - counted_tokens(state))
            state.head.unseen_tokens += self._unseen

    def _kept(self, wire: Wire, keyed: Keyed) -> tuple[int, int, bool]:
        """(tokens, messages) that are the same bytes as in the newest answered request, and whether the tokens are our
        count."""
        line = self._line
        if line.pin is None:
            return 0, 0, False
        if any(line.pin.head[name] != wire.head_digests[name] for name in ("tools", "system")):
            return 0, 0, False
        if line.pin.head["params"] != wire.head_digests["params"] or line.pin.keyed.fields != keyed.fields:
            return head_tokens(self._state), 0, True
        messages = common_prefix(line.pin.rolling, line.pin.messages, wire.rolling, wire.messages)
        tokens, is_counted = self._tokens_at(wire, messages)
        return tokens, messages, is_counted

    def _tokens_at(self, wire: Wire, messages: int) -> tuple[int, bool]:
        """Tokens of head and first messages: exact where a request ended, else our count from there on."""
        state, ends = self._state, self._line.ends
        place = bisect_right(ends, messages, key=_messages)
        count, tokens = ends[place - 1] if place else (0, head_tokens(state))
        more = ends[place][1] if place < len(ends) else None
        if count == messages and count:
            return tokens, False
        estimate = state.calibration.estimate
        tokens += estimate(wire.counts(messages), wire.ends[messages]) - estimate(wire.counts(count), wire.ends[count])
        return (tokens if more is None else min(tokens, more)), True

    def _marks(self, wire: Wire, kept: int, end: int) -> tuple[Mark, ...]:
        """Where the kernel marks; a recorded client is taken to mark what the kernel does but the first message, and
        its head to end where its very first request found what other sessions had left."""
        *places, last = breakpoints(wire, kept)
        marks = []
        for place in places:
            tokens = self._tokens_at(wire, place)[0]
            if self._pending is None and place <= 1:
                tokens = self._shared or head_tokens(self._state)
            marks.append(Mark(tokens=min(tokens, end), blocks=wire.blocks[place]))
        return (*marks, Mark(tokens=end, blocks=wire.blocks[last]))

    def _said_again(self, prompt: int) -> int:
        """Tokens of the newest reply that stand in this prompt: all of them, or none if its hidden part was dropped."""
        line, state = self._line, self._state
        usage = line.reply
        if usage is None or usage.output <= 0:
            return 0
        if usage.reasoning <= 0:
            return usage.output
        after = sum(state.calibration.estimate(item.counts, 1) for item in state.window.items[line.items + 1 :])
        grown = prompt - line.tokens - after
        return usage.output if abs(grown - usage.output) < abs(grown - usage.output + usage.reasoning) else 0
