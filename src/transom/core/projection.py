"""The projection: `fold(state, event)` is the whole definition of what each fact does (laws L2, L3).

Folding never decides. A fact that changes what the model sees also says so to the cache contract: `state.declared`
collects the reasons since the last request (L5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

import msgspec

from transom.core import pace
from transom.core.blackboard import NOTED, note_call, note_result, note_unknown
from transom.core.block import Block, ToolCall, ToolResultRaw
from transom.core.calibration import calibration_for
from transom.core.epochs import opened, patched, stated
from transom.core.event import (
    BlockReplaced,
    CheckpointAccepted,
    EpochOpened,
    Event,
    HostSaid,
    ModeChanged,
    ModelReplied,
    NegativeNoted,
    NodeCheckpointed,
    Observed,
    RecallMissed,
    RequestFailed,
    RequestSent,
    RolloverDeclared,
    SectionChanged,
    SessionOpened,
    SourceRead,
    SummaryProposed,
    SummaryRefused,
    SummaryRequested,
    TaskCommitted,
    TaskFailed,
    TaskPicked,
    TaskVerified,
    TodoChanged,
    ToolDispatched,
    ToolReturned,
    UserDisposed,
    UserSaid,
    WindowOpened,
    WindowRefused,
)
from transom.core.pairing import awaited, closed, distinct, paired, stray
from transom.core.rewriting import declare, replace, rules_in
from transom.core.state import (
    MISS_OF,
    Item,
    Role,
    State,
    Window,
    Words,
    add_counts,
    counts_of,
    folded,
)
from transom.core.surface import FALLBACK_CHANCES, hosted, surface
from transom.core.usage import answers, learn

__all__ = ["fold", "project"]


def project(events: Iterable[Event], state: State | None = None) -> State:
    """The fold of all `events`."""
    made = State() if state is None else state
    for event in events:
        fold(made, event)
    return made


def fold(state: State, event: Event) -> State:
    """Apply one event and return the state, which is the one given."""
    fact = event.fact
    state.seq = event.seq
    match fact:
        case ToolReturned():
            _result(state, event, fact)
        case ModelReplied():
            _reply(state, event, fact)
        case RequestSent():
            _sent(state, event, fact)
        case RequestFailed():
            state.is_overflowed = fact.kind == "overflow"
            if state.fallbacks and fact.kind == "invalid":
                state.fallbacks = FALLBACK_CHANCES  # the provider will not have it: the host rolls over
            elif state.fallbacks and fact.kind == "unavailable":
                state.fallback_turn = state.turn  # the model has not heard the notice: no chance of its is used up
        case ToolDispatched():
            state.dispatched.update(fact.call_ids)
        case RecallMissed():
            state.missed.append(fact.query)
        case Observed() | SourceRead() | SummaryRequested() | SummaryProposed() | SummaryRefused():
            pass
        case UserSaid():
            _user(state, event, fact)
        case HostSaid():
            _host(state, event, fact)
        case BlockReplaced():
            replace(state, fact)
        case WindowOpened():
            _open(state, event, fact)
        case WindowRefused():
            _refused(state, fact)
        case UserDisposed():
            _disposed(state, fact)
        case SessionOpened():
            _opened(state, event, fact)
        case EpochOpened():
            _epoch(state, fact)
        case SectionChanged():
            state.head = patched(state.head, (fact,))
        case RolloverDeclared():
            state.intent, state.intent_uuid = fact, event.uuid
            pace.declared(state)
        case CheckpointAccepted():
            state.checkpoint = fact
        case TodoChanged():
            state.board.todo = fact.items
        case NegativeNoted():
            _noted(state, event, fact)
        case ModeChanged():
            state.mode, state.pending_approvals = fact.mode, fact.pending_approvals
        case TaskPicked() | TaskVerified() | TaskFailed() | TaskCommitted() | NodeCheckpointed():
            pass
        case _:
            assert_never(fact)
    return state


def _opened(state: State, event: Event, fact: SessionOpened) -> None:
    """A fork goes on with what its parent has learnt about the same model."""
    state.session_id, state.opened = event.session_id, fact
    if fact.model != state.model or not state.steps:
        state.model = fact.model
        state.calibration = calibration_for(fact.model)


def _epoch(state: State, fact: EpochOpened) -> None:
    state.head = opened(fact, state.head.epoch + 1)
    state.known_prompt = 0
    declare(state, "change:system" if fact.reason == "initial" else fact.reason)


def _disposed(state: State, fact: UserDisposed) -> None:
    for words in reversed(state.words):
        if words.seq == fact.seq:
            words.disposition = fact.disposition
            return


def _refused(state: State, fact: WindowRefused) -> None:
    state.refused_tokens = fact.tokens_before
    if fact.cause in {"hard-limit", "model"} and state.fallbacks:  # there is room yet: everything may be called again
        _narrowed(state)
        state.fallbacks = 0
    if fact.cause == "model":
        state.intent, state.intent_uuid = None, ""


def _noted(state: State, event: Event, fact: NegativeNoted) -> None:
    note_result(
        state.board,
        name=NOTED,
        arguments=fact.attempt,
        text=fact.outcome,
        failed=True,
        effect="none",
        seq=event.seq,
        uuid=event.uuid,
    )


def _push(state: State, item: Item) -> None:
    window = state.window
    if item.seq:
        window.place[item.seq] = len(window.items)
    window.items.append(item)
    window.known.update(item.states)
    window.counts = add_counts(window.counts, item.counts)
    if item.role == "tool":
        window.results = add_counts(window.results, item.counts)


def _said(state: State, item: Item) -> None:
    """Words of the user or the host: those before the first request and the first reply are the first message."""
    _push(state, item)
    if not state.steps and not state.requests:
        state.first.append(item)


def _item(state: State, event: Event, role: Role, blocks: tuple[Block, ...], wire: str) -> Item:
    return Item(
        seq=event.seq,
        uuid=event.uuid,
        role=role,
        blocks=blocks,
        turn=state.turn,
        step=state.steps,
        counts=counts_of(blocks),
        wire=wire,
    )


def _user(state: State, event: Event, fact: UserSaid) -> None:
    item = _item(state, event, "user", fact.blocks, fact.wire)
    _said(state, item)
    state.crowded = 0
    rules = rules_in(fact.blocks)
    state.words.append(Words(seq=event.seq, uuid=event.uuid, blocks=fact.blocks, counts=item.counts, constraints=rules))


def _host(state: State, event: Event, fact: HostSaid) -> None:
    item = _item(state, event, "host", fact.blocks, fact.wire)
    _said(state, msgspec.structs.replace(item, states=stated(state.head, fact.sections), stands=fact.stands))
    if fact.kind == "recall":
        pace.brought(state, item.counts)
    if fact.kind == "reminder" and not state.reminder_claimed:
        state.reminder_claimed = True
        pace.reminded(state)
    if fact.kind == "fallback":
        state.fallbacks += 1
        state.fallback_turn = state.turn
        _narrowed(state)


def _narrowed(state: State) -> None:
    """The surface is about to change: a forced choice is another parameter, tools taken out another catalogue."""
    if state.fallbacks > 1:
        declare(state, "change:params")
    if state.fallbacks > 2:
        declare(state, "change:tools")


def _reply(state: State, event: Event, fact: ModelReplied) -> None:
    for call_id in state.window.calls:
        _push(state, closed(call_id, turn=state.turn, step=state.steps))
    blocks = distinct(fact.blocks)
    item = _item(state, event, "assistant", blocks, fact.wire if blocks == fact.blocks else "")
    if fact.model and fact.model != state.model:
        state.model, state.known_prompt = fact.model, 0
        state.calibration = calibration_for(fact.model)
    if fact.usage is not None and not surface(state).withheld:  # the next prompt has those tools again
        learn(state, fact.usage.prompt)
        hidden = max(0, fact.usage.output - state.calibration.visible(item.counts))
        item = msgspec.structs.replace(item, counts=add_counts(item.counts, (0, 0, 0, 0, hidden)))
    calls = {block.call_id: (block.name, block.arguments) for block in blocks if isinstance(block, ToolCall)}
    pace.replied(state, event.at, state.calibration.visible(item.counts) + item.counts[4], len(calls))
    state.steps += 1
    state.turn += 1
    state.window.seen = state.window.sent
    _push(state, item)
    state.window.calls = calls
    if not calls and not state.fallbacks and answers(fact):  # in the fallback stage a handoff was asked for
        state.answered_through = event.seq
    own = hosted(state)
    for block in blocks:
        if isinstance(block, ToolCall):
            note_call(state.board, block, may_plan=block.name not in own)


def _result(state: State, event: Event, fact: ToolReturned) -> None:
    call_id = awaited(fact.call_id, state.window.calls)
    call = state.window.calls.pop(call_id, None)
    state.dispatched.discard(call_id)
    item = _item(state, event, "tool", fact.blocks, fact.wire)
    item = msgspec.structs.replace(item, call_id=call_id, is_error=fact.is_error)
    _push(state, item if call else stray(item))
    if call is None:
        return
    if fact.by == "host":
        note_unknown(state.board, *call, fact.effect, event.seq)
        return
    state.window.returned += 1
    pace.returned(state, call, fact.effect, item.counts)
    name, arguments = call
    failed = fact.is_error or fact.exit_code not in (None, 0)
    text = "\n".join(block.text for block in fact.blocks if isinstance(block, ToolResultRaw)) if failed else ""
    note_result(
        state.board,
        name=name,
        arguments=arguments,
        text=text,
        failed=failed,
        effect=fact.effect,
        seq=event.seq,
        uuid=event.uuid,
    )


def _sent(state: State, event: Event, fact: RequestSent) -> None:
    pace.asked(state, event.at)
    state.requests += 1
    state.turn += 1
    state.tail_tokens = fact.tail_tokens
    state.window.sent = len(state.window.items)
    if fact.verdict != "drift":
        state.pin, state.pin_seq = fact, event.seq
        state.declared.clear()


def _open(state: State, event: Event, fact: WindowOpened) -> None:
    pace.opening(state)
    old = state.window
    spec = {item.seq: item for item in state.first}

    def kept(seqs: tuple[int, ...]) -> Iterator[Item]:
        for seq in seqs:
            place = old.place.get(seq)
            item = spec.get(seq) if place is None else old.items[place]
            if item is not None:
                yield item

    seeds = (
        Item(
            seq=0,
            uuid=f"{event.uuid}.{number}",
            role=seed.role,
            blocks=seed.blocks,
            turn=state.turn,
            step=state.steps,
            counts=counts_of(seed.blocks),
            of=seed.of,
            states=stated(state.head, seed.sections),
        )
        for number, seed in enumerate(fact.seed)
    )
    items, calls = paired([*kept(fact.kept_head), *seeds, *kept(fact.kept_tail)], old.calls)
    state.window = Window(generation=fact.generation, opened=event.seq, step=state.steps, calls=calls)
    for item in items:
        _push(state, item)
    pace.opened(state)
    state.boundaries += 1
    is_full = fact.cause in ("hard-limit", "overflow", "watermark", "fifo")
    state.crowded = state.crowded + 1 if is_full and old.returned <= 1 else 0
    state.refused_tokens = state.known_prompt = 0
    _narrowed(state)
    state.fallbacks, state.reminder_claimed, state.is_overflowed = 0, False, False
    state.missed.clear()
    if state.intent is not None:
        state.handoff = state.intent
        for one in state.intent.handoff.inferences:
            state.inferences.setdefault(folded(one.text), one.generation)
    state.intent, state.intent_uuid = None, ""
    declare(state, MISS_OF[fact.cause])
