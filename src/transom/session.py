"""The shell around the kernel: the only caller of `core` and ports together.

    append    facts get their place in the log and are folded
    boundary  what `before_step` decides is appended as one
    request   state -> wire, checked against the pin; the verdict is appended before anything is sent

A session belongs to one thread. Another writer on the same session makes an append fail with `SequenceConflict`; the
session then reads what was appended, folds it, decides again and retries, so that a decision is always made on the
state it follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from transom.core import gssc
from transom.core.boundary import before_step, prompt_tokens
from transom.core.budget import Limits
from transom.core.cache import Pin, Verdict, check, pin_of
from transom.core.event import Draft, Event, Fact, RequestSent, SessionOpened, WindowOpened
from transom.core.policy import Policy
from transom.core.projection import fold, project
from transom.core.state import State
from transom.core.wire import Dialect, Rendering, Wire
from transom.errors import SequenceConflict, UsageError
from transom.ports import Counter, Log, Snapshots

__all__ = ["Prepared", "Rules", "Session"]

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(State)
_COMPONENTS = ("tools", "system", "params")
"""Of the head, in the order in which `RequestSent.head` holds their digests."""
_RETRIES = 8
"""Lost races in a row before the conflict is reported: each means another writer got one append in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a session runs under. `clock` gives ms since the epoch, `ids` a new uuid at each call."""

    policy: Policy
    bounds: Limits
    counter: Counter
    dialect: Dialect
    clock: Callable[[], int]
    ids: Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request ready to send: its bytes, the verdict on them, and its size in the model's tokens."""

    wire: Wire
    verdict: Verdict
    tokens: int
    tail_tokens: int


class Session:
    """One session: its log, its state, and the rules it runs under."""

    def __init__(self, log: Log, state: State, rules: Rules, snapshots: Snapshots | None = None) -> None:
        """Use `start` or `open`."""
        self._snapshots = snapshots
        self.log = log
        self.state = state
        self.rules = rules
        self._rendering = Rendering(rules.dialect)
        self._pin: Pin | None = None
        self._pin_seq = 0
        self._tailed: tuple[int, Rules, str, int] | None = None

    @classmethod
    def start(
        cls, log: Log, session_id: str, opened: SessionOpened, rules: Rules, snapshots: Snapshots | None = None
    ) -> Session:
        """A new session. Raises `SequenceConflict` if the id is taken."""
        session = cls(log, State(session_id=session_id), rules, snapshots)
        session._place((Draft(fact=opened, uuid=rules.ids(), at=rules.clock()),))
        return session

    @classmethod
    def open(cls, log: Log, session_id: str, rules: Rules, snapshots: Snapshots | None = None) -> Session:
        """A session that is in the log: the same state, the same bytes and the same pin as before a restart (L2). With
        `snapshots` it costs the window and what came after its opening, not the history."""
        state = _saved(log, session_id, snapshots) if snapshots else State()
        return cls(log, project(log.read(session_id, state.seq), state), rules, snapshots)

    @property
    def session_id(self) -> str:
        return self.state.session_id

    def append(self, *facts: Fact, uuid: str = "", at: int | None = None) -> tuple[Event, ...]:
        """Append `facts` as one and fold them. `uuid` and `at` are for facts that have their own (replies, imports).

        Raises `SequenceConflict` if other writers win `_RETRIES` times in a row.
        """
        if uuid and len(facts) != 1:
            raise UsageError(f"uuid {uuid} names one fact, not {len(facts)}; append them one by one")
        now = self.rules.clock() if at is None else at
        drafts = tuple(Draft(fact=fact, uuid=uuid or self.rules.ids(), at=now) for fact in facts)
        return self._retried(lambda: drafts)

    def boundary(self, *, model_hands_over: bool = False) -> tuple[Event, ...]:
        """Decide, and append what was decided. Raises `OverBudget`."""

        def decide() -> tuple[Draft, ...]:
            facts = before_step(
                self.state,
                self.rules.policy,
                self.rules.bounds,
                self.rules.counter.measure,
                model_hands_over=model_hands_over,
                tail_tokens=self._tail()[1],
            )
            now = self.rules.clock() if facts else 0
            return tuple(Draft(fact=fact, uuid=self.rules.ids(), at=now) for fact in facts)

        return self._retried(decide)

    def request(self) -> Prepared:
        """The next request, with its verdict appended. Raises `UsageError` while calls are open (L4)."""
        made: list[Prepared] = []

        def decide() -> tuple[Draft, ...]:
            prepared = self._prepare()
            made.append(prepared)
            return (Draft(fact=_sent(prepared), uuid=self.rules.ids(), at=self.rules.clock()),)

        self._retried(decide)
        prepared = made[-1]
        if prepared.verdict.kind != "drift":
            self._pin, self._pin_seq = pin_of(prepared.wire), self.state.pin_seq
        return prepared

    def _prepare(self) -> Prepared:
        if self.state.window.calls:
            raise UsageError(
                f"session {self.session_id}: {len(self.state.window.calls)} calls have no result yet; append their "
                "results, or let `boundary` close them, before the next request"
            )
        text, tail_tokens = self._tail()
        wire = self._rendering.wire(self.state, text)
        verdict = check(self._pinned(wire), wire, self.state.declared)
        return Prepared(
            wire=wire, verdict=verdict, tokens=prompt_tokens(self.state) + tail_tokens, tail_tokens=tail_tokens
        )

    def _pinned(self, wire: Wire) -> Pin | None:
        """What the request must extend. After a restart, or when another writer sent the last one, it is rendered
        again: from this wire if that still starts with the pinned bytes, else from the state the pin was made of."""
        pinned = self.state.pin
        if pinned is not None and self._pin_seq != self.state.pin_seq:
            if not _starts_with(wire, pinned):
                then = project(self.log.read(self.session_id, until=self.state.pin_seq - 1))
                wire = Rendering(self.rules.dialect).wire(then)
            self._pin = _restored(pinned, wire)
            self._pin_seq = self.state.pin_seq
        return self._pin

    def _tail(self) -> tuple[str, int]:
        if self.rules.policy.where != "sandwich":
            return "", 0
        known = self._tailed
        if known is not None and known[0] == self.state.seq and known[1] is self.rules:
            return known[2:]  # a boundary that decided nothing, and now its request
        text = gssc.tail(self.state, self.rules.policy, self.rules.bounds.base - prompt_tokens(self.state))
        # Line by line, since most lines stand in every tail and the counter remembers short texts.
        tokens = sum(self.rules.counter.measure(line).tokens + 1 for line in text.splitlines())
        tokens = self.state.calibration.estimate((tokens, 0, 0, 0, 0), 1) if text else 0
        self._tailed = (self.state.seq, self.rules, text, tokens)
        return text, tokens

    def _retried(self, decide: Callable[[], Sequence[Draft]]) -> tuple[Event, ...]:
        for _ in range(_RETRIES):
            try:
                return self._place(decide())
            except SequenceConflict:
                project(self.log.read(self.session_id, self.state.seq), self.state)
        raise SequenceConflict(f"session {self.session_id}: {_RETRIES} appends in a row lost the race to other writers")

    def _place(self, drafts: Sequence[Draft]) -> tuple[Event, ...]:
        if not drafts:
            return ()
        events = self.log.append(self.session_id, self.state.seq, drafts)
        for event in events:
            fold(self.state, event)
        if self._snapshots and any(isinstance(event.fact, WindowOpened) for event in events):
            self._save(self._snapshots, events[-1].digest)
        return events

    def _save(self, snapshots: Snapshots, digest: bytes) -> None:
        try:
            state = _ENCODER.encode(self.state)
        except UnicodeEncodeError:
            return  # half an emoji in the window: this state is folded from the log instead
        snapshots.save(self.session_id, self.state.seq, digest, state)


def _saved(log: Log, session_id: str, snapshots: Snapshots) -> State:
    """The newest saved state that stands on this log's chain; an empty one if there is none."""
    for seq, digest, data in snapshots.newest(session_id):
        event = next(log.read(session_id, seq - 1, seq), None)
        if event is not None and event.digest == digest:
            return _DECODER.decode(data)
    return State()


def _sent(prepared: Prepared) -> RequestSent:
    wire = prepared.wire
    return RequestSent(
        head=_head_digest(wire),
        body=wire.rolling[wire.messages].hex(),
        body_messages=wire.messages,
        verdict=prepared.verdict.kind,
        reasons=prepared.verdict.reasons,
        tokens=prepared.tokens,
    )


def _starts_with(wire: Wire, pinned: RequestSent) -> bool:
    end = pinned.body_messages
    return _head_digest(wire) == pinned.head and end <= wire.messages and wire.rolling[end].hex() == pinned.body


def _head_digest(wire: Wire) -> str:
    return "".join(wire.head_digests[component] for component in _COMPONENTS)


def _restored(pinned: RequestSent, wire: Wire) -> Pin:
    """The pin as the log has it. Bytes that render otherwise now (another kernel, another dialect) are seen: what the
    log stored does not follow from them, so none of them count as kept."""
    size = len(pinned.head) // len(_COMPONENTS)
    head = {name: pinned.head[place * size :][:size] for place, name in enumerate(_COMPONENTS)}
    end = pinned.body_messages
    if _head_digest(wire) == pinned.head:
        head = wire.head_digests
    rolling = wire.rolling
    if end > wire.messages or rolling[end].hex() != pinned.body:
        rolling = [*(b"" for _ in range(end)), bytes.fromhex(pinned.body)]
    return Pin(head=head, rolling=rolling, messages=end)
