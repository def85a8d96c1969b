"""The shell around the kernel: the only caller of `core` and ports together.

    append    facts are weighed, get their place in the log and are folded
    boundary  what `before_step` decides is appended as one
    request   state -> wire, checked against the pin; the verdict is appended before anything is sent
    step      all of it: boundary, request, send, run what the model called, each result as it comes

A session belongs to one thread. Another writer on the same session makes an append fail with `SequenceConflict`; the
session then reads what was appended, folds it, decides again and retries, so that a decision is always made on the
state it follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from transom.core import gssc
from transom.core.block import ToolCall
from transom.core.boundary import before_step, prompt_tokens
from transom.core.budget import Limits
from transom.core.cache import Pin, Verdict, check, pin_of, restored, sent, starts_with
from transom.core.canon import plain_text
from transom.core.costrule import Tariff
from transom.core.difference import Difference, drifted_at
from transom.core.event import (
    Draft,
    Event,
    Fact,
    ModelReplied,
    RequestFailed,
    SessionOpened,
    ToolDispatched,
    ToolReturned,
    WindowOpened,
)
from transom.core.evidence import Files
from transom.core.pairing import distinct
from transom.core.policy import Policy
from transom.core.projection import fold, project
from transom.core.state import State
from transom.core.surface import NEW_CONTEXT, surface, withheld_refusal
from transom.core.wire import Dialect, Rendering, Wire
from transom.errors import Overflow, ProviderError, SequenceConflict, Unavailable, UsageError
from transom.hosting import Desk, acts, is_hosted, left_open, of_unknown_outcome, refused
from transom.measuring import Scale
from transom.ports import Counter, Delta, Log, Outgoing, Provider, Reply, Sample, Snapshots, Sources, Tools

__all__ = ["Prepared", "Rules", "Session", "Stepped", "World"]

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(State)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a session runs under. `clock` gives ms since the epoch, `ids` a new uuid at each call."""

    policy: Policy
    bounds: Limits
    counter: Counter
    dialect: Dialect
    clock: Callable[[], int]
    ids: Callable[[], str]
    tariff: Tariff | None = None
    """What is paid; without it the cost rule does nothing."""
    races: int = 8
    """Appends in a row lost to other writers that are decided again on what those said; with 0, none is built upon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A request ready to send: its bytes, the verdict on them, and its size in the model's tokens."""

    wire: Wire
    verdict: Verdict
    tokens: int
    tail_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a live session acts on. `sources` are asked before each request; `show` is told pieces of the answer as they
    stream, `told` every appended event."""

    provider: Provider
    tools: Tools
    files: Files
    model: str
    max_output_tokens: int
    sources: Sources | None = None
    show: Callable[[Delta], None] = lambda _: None
    told: Callable[[Event], None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """One step's outcome. The turn is over when the model called nothing and was free to."""

    prepared: Prepared
    reply: ModelReplied
    is_turn_over: bool


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
        self._pinned_wire: Wire | None = None
        self.parted: Difference | None = None  # of a request that drifted
        self._hands_over = False
        self._tailed: tuple[int, Rules, str, int] | None = None
        self._scale = Scale(rules.counter)

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

    def go_on(self, rules: Rules) -> None:
        """Under other limits, or asking another model of the same API: what was rendered stays as it is."""
        self.rules, self._rendering.dialect = rules, rules.dialect

    def show(self, *, shows: bool) -> None:
        """Whether requests have their messages' bytes. To a caller that has them already they are a burden."""
        self._rendering.show(shows=shows)

    def append(self, *facts: Fact, uuid: str = "", at: int | None = None) -> tuple[Event, ...]:
        """Append `facts` as one and fold them; blocks without a count are counted. `uuid` and `at` are for facts that
        have their own (replies, imports). Raises `SequenceConflict` if `Rules.races` races in a row are lost."""
        if uuid and len(facts) != 1:
            raise UsageError(f"uuid {uuid} names one fact, not {len(facts)}; append them one by one")
        now = self.rules.clock() if at is None else at
        drafts = tuple(Draft(fact=self._scale.weigh(fact), uuid=uuid or self.rules.ids(), at=now) for fact in facts)
        return self._retried(lambda: drafts)

    def boundary(
        self, *, model_hands_over: bool = False, samples: Sequence[Sample] = (), since: int = 0
    ) -> tuple[Event, ...]:
        """Decide, and append what was decided; `samples` and `since` as in `before_step`. Raises `OverBudget`."""
        self._hands_over = model_hands_over

        def decide() -> tuple[Draft, ...]:
            facts = before_step(
                self.state,
                self.rules.policy,
                self.rules.bounds,
                self.rules.counter.measure,
                model_hands_over=model_hands_over,
                tail_tokens=self._tail()[1],
                tariff=self.rules.tariff,
                now=self.rules.clock() if self.rules.policy.when == "cost" else 0,
                samples=samples,
                since=since,
            )
            now = self.rules.clock() if facts else 0
            return tuple(Draft(fact=fact, uuid=self.rules.ids(), at=now) for fact in facts)

        return self._retried(decide)

    def request(self) -> Prepared:
        """The next request, with its verdict appended. Raises `UsageError` while calls are open (L4); as `boundary`."""
        return self._requested()[0]

    def _requested(self) -> tuple[Prepared, tuple[Event, ...]]:
        made: list[Prepared] = []

        def decide() -> tuple[Draft, ...]:
            if made:  # the race was lost: what another writer said is decided on too
                self.boundary(model_hands_over=self._hands_over)
            prepared = self._prepare()
            made.append(prepared)
            return (
                Draft(
                    fact=sent(prepared.wire, prepared.verdict, prepared.tokens, prepared.tail_tokens),
                    uuid=self.rules.ids(),
                    at=self.rules.clock(),
                ),
            )

        events = self._retried(decide)
        prepared = made[-1]
        self.parted = drifted_at(prepared.verdict, self._pinned_wire, prepared.wire)
        if prepared.verdict.kind != "drift":
            self._pin, self._pin_seq, self._pinned_wire = pin_of(prepared.wire), self.state.pin_seq, prepared.wire
        return prepared, events

    # -- a live model

    def step(self, world: World) -> Stepped:
        """One step: boundary, request, answer, and what the answer calls. Every line may be the last of a process:
        `resume` goes on from what is in the log.

        Raises `OverBudget`, and `ProviderError` when the other side failed for good; both are in the log.
        """
        for may_recover in (True, False):
            samples = world.sources.sample() if world.sources else ()
            self._told(world, self.boundary(model_hands_over=True, samples=samples))
            prepared, sent = self._requested()
            self._told(world, sent)
            narrowed = surface(self.state)
            try:
                reply = self._answer(world, prepared)
                break
            except Overflow as problem:
                self._failed(world, "overflow", problem)
                if not may_recover:
                    raise
            except ProviderError as problem:
                self._failed(world, "unavailable" if isinstance(problem, Unavailable) else "invalid", problem)
                if not may_recover or narrowed.allowed is None or isinstance(problem, Unavailable):
                    raise  # a refused request of the fallback stage leads to a rollover by code instead
        self._settle(world, reply)
        calls = any(isinstance(block, ToolCall) for block in reply.blocks)
        return Stepped(prepared=prepared, reply=reply, is_turn_over=not calls and narrowed.allowed is None)

    def resume(self, world: World) -> None:
        """Settle the calls a dead process left open: what was never started, or only reads, is run; what may have had
        its effect is told to the model as of unknown outcome."""
        calls, before = left_open(self.state)
        acted = [call for call in calls if call.call_id in self.state.dispatched and acts(world.tools.effect(call))]
        for call in acted:
            self._told(world, self.append(of_unknown_outcome(call, world.tools.effect(call))))
        self._run(world, [call for call in calls if call not in acted], before)

    def _answer(self, world: World, prepared: Prepared) -> ModelReplied:
        now = surface(self.state)
        request = Outgoing(
            wire=prepared.wire,
            model=world.model,
            max_output_tokens=world.max_output_tokens,
            forced_tool=now.forced,
            withheld=now.withheld,
            kept=prepared.verdict.kept,
        )
        for piece in world.provider.send(request):
            if isinstance(piece, Reply):
                return ModelReplied(
                    blocks=piece.blocks,
                    model=piece.model,
                    stop_reason=piece.stop_reason,
                    usage=piece.usage,
                    response_id=piece.response_id,
                )
            world.show(piece)
        raise ProviderError("the provider's answer ended without a reply; this is a fault of its adapter")

    def _failed(
        self, world: World, kind: Literal["overflow", "unavailable", "invalid"], problem: ProviderError
    ) -> None:
        self._told(world, self.append(RequestFailed(kind=kind, message=plain_text(str(problem)))))

    def _settle(self, world: World, reply: ModelReplied) -> None:
        """Append the reply, then run its calls."""
        events = self.append(reply)
        self._told(world, events)
        self._run(world, [block for block in distinct(reply.blocks) if isinstance(block, ToolCall)], events[-1].seq)

    def _run(self, world: World, calls: Sequence[ToolCall], before: int) -> None:
        """Run calls in order, each result appended as it comes; a `new_context` is heard after its siblings."""
        now = surface(self.state)
        above = self.rules.policy.offload_above
        desk = Desk(
            state=self.state,
            log=self.log,
            files=world.files,
            hard_limit=self.rules.bounds.hard,
            before=before,
            fits=lambda text: not above or self.rules.counter.measure(text).tokens <= above,
        )
        for call in calls:
            if call.name == NEW_CONTEXT:
                continue
            if not now.accepts(call.name):
                facts: tuple[Fact, ...] = (refused(call, withheld_refusal(call.name)),)
            elif is_hosted(call.name):
                facts = desk.answer(call)
            else:
                facts = (self._ran(world, call),)
            self._told(world, self.append(*facts))
        handoffs = [call for call in calls if call.name == NEW_CONTEXT]
        if handoffs:
            self._told(world, self.append(*desk.declare(handoffs)))

    def _ran(self, world: World, call: ToolCall) -> ToolReturned:
        effect = world.tools.effect(call)
        if acts(effect):
            self._told(world, self.append(ToolDispatched(call_ids=(call.call_id,))))
        found = world.tools.run(call)
        return ToolReturned(
            call_id=call.call_id,
            blocks=found.blocks,
            is_error=found.is_error,
            effect=effect,
            exit_code=found.exit_code,
        )

    @staticmethod
    def _told(world: World, events: Sequence[Event]) -> None:
        for event in events:
            world.told(event)

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
            if not starts_with(wire, pinned):
                then = project(self.log.read(self.session_id, until=self.state.pin_seq - 1))
                wire = Rendering(self.rules.dialect).wire(then)
            self._pin, self._pin_seq, self._pinned_wire = restored(pinned, wire), self.state.pin_seq, wire
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
        for _ in range(self.rules.races):
            try:
                return self._place(decide())
            except SequenceConflict:
                project(self.log.read(self.session_id, self.state.seq), self.state)
        if not self.rules.races:
            return self._place(decide())
        raise SequenceConflict(f"{self.session_id}: {self.rules.races} appends in a row lost the race to other writers")

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
