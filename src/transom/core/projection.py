"""The projection: `fold(state, event)` is the whole definition of what each fact does (laws L2, L3).

Folding never decides. A fact that changes what the model sees also says so to the cache contract: `state.declared`
collects the reasons since the last request (L5).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import msgspec

from transom.core.blackboard import note_call, note_result
from transom.core.block import Block, Text, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.calibration import calibration_for
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
    ToolReturned,
    UserDisposed,
    UserSaid,
    WindowOpened,
    WindowRefused,
)
from transom.core.literals import constraints
from transom.core.state import (
    NOTHING,
    Head,
    Item,
    Role,
    State,
    Window,
    Words,
    add_counts,
    counts_of,
    replaced,
    thoughts_of,
)

__all__ = ["fold", "project"]

_TELLING = 150
"""Tokens of thoughts from which a prompt's growth tells whether they were kept."""


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
            _sent(state, fact)
        case Observed() | SourceRead() | RequestFailed() | SummaryRequested() | SummaryProposed() | SummaryRefused():
            pass
        case UserSaid():
            _user(state, event, fact)
        case HostSaid():
            _host(state, event, fact)
        case BlockReplaced():
            _replace(state, fact)
        case WindowOpened():
            _open(state, event, fact)
        case WindowRefused():
            state.refused_tokens = fact.tokens_before
        case UserDisposed():
            for words in reversed(state.words):
                if words.seq == fact.seq:
                    words.disposition = fact.disposition
        case SessionOpened():
            state.session_id, state.opened = event.session_id, fact
            state.model = fact.model
            state.calibration = calibration_for(fact.model)
        case EpochOpened():
            state.head = Head(
                sections=fact.sections,
                tools=fact.tools,
                unseen_tokens=fact.unseen_tokens,
                epoch=state.head.epoch + 1,
                changes={},
            )
            if state.requests:
                state.declared.append("change:system" if fact.reason == "initial" else fact.reason)
        case SectionChanged():
            state.head.changes[fact.key] = fact.text
        case RolloverDeclared():
            state.intent, state.intent_uuid = fact, event.uuid
        case CheckpointAccepted():
            state.checkpoint = fact
        case TodoChanged():
            state.board.todo = fact.items
        case NegativeNoted():
            note_result(
                state.board,
                name="noted",
                arguments=fact.attempt,
                text=fact.outcome,
                failed=True,
                effect="none",
                seq=event.seq,
                uuid=event.uuid,
            )
        case ModeChanged():
            state.mode, state.pending_approvals = fact.mode, fact.pending_approvals
        case TaskPicked() | TaskVerified() | TaskFailed() | TaskCommitted() | NodeCheckpointed():
            pass
        case _:
            assert_never(fact)
    return state


def _push(state: State, item: Item) -> None:
    window = state.window
    if item.seq:
        window.place[item.seq] = len(window.items)
    window.items.append(item)
    window.counts = add_counts(window.counts, item.counts)
    if not state.steps and not state.requests:
        state.first.append(item)


def _item(state: State, event: Event, role: Role, blocks: tuple[Block, ...]) -> Item:
    return Item(
        seq=event.seq,
        uuid=event.uuid,
        role=role,
        blocks=blocks,
        turn=state.turn,
        step=state.steps,
        counts=counts_of(blocks),
    )


def _user(state: State, event: Event, fact: UserSaid) -> None:
    item = _item(state, event, "user", fact.blocks)
    _push(state, item)
    said = tuple(line for block in fact.blocks if isinstance(block, Text) for line in constraints(block.text))
    state.words.append(Words(seq=event.seq, uuid=event.uuid, blocks=fact.blocks, counts=item.counts, constraints=said))


def _host(state: State, event: Event, fact: HostSaid) -> None:
    _push(state, _item(state, event, "host", fact.blocks))
    state.reminder_claimed = state.reminder_claimed or fact.kind == "reminder"
    state.fallback_claimed = state.fallback_claimed or fact.kind == "fallback"


def _reply(state: State, event: Event, fact: ModelReplied) -> None:
    item = _item(state, event, "assistant", fact.blocks)
    if fact.model and fact.model != state.model:
        state.model, state.known_prompt = fact.model, 0
        state.calibration = calibration_for(fact.model)
    if fact.usage is not None:
        _learn(state, fact.usage.prompt)
        hidden = max(0, fact.usage.output - state.calibration.visible(item.counts))
        item = msgspec.structs.replace(item, counts=add_counts(item.counts, (0, 0, 0, 0, hidden)))
    calls = {block.call_id: (block.name, block.arguments) for block in fact.blocks if isinstance(block, ToolCall)}
    state.steps += 1
    state.turn += 1
    state.window.seen = state.window.sent
    _push(state, item)
    state.window.calls = calls
    if not calls:
        state.answered_through = event.seq
    for block in fact.blocks:
        if isinstance(block, ToolCall):
            note_call(state.board, block)


def _learn(state: State, prompt: int) -> None:
    """The reported prompt grew by what was appended since the last one: calibrate."""
    window = state.window
    if state.known_prompt and prompt:
        grown = prompt - state.known_prompt
        added = add_counts(window.counts, state.known_counts, -1)
        messages = len(window.items) - state.known_items
        if any(item.role == "user" for item in window.items[state.known_items :]):
            state.drop_votes += _vote(state, state.calibration.estimate(added, messages), grown)
        state.calibration = state.calibration.observe(added, messages, grown)
    state.known_prompt, state.known_counts, state.known_items = prompt, window.counts, len(window.items)


def _vote(state: State, kept: int, grown: int) -> int:
    """Did the prompt grow as if the thoughts of the turn before were kept, or as if they were dropped?"""
    thoughts = NOTHING
    for item in reversed(state.window.items[: state.known_items + 1]):
        if item.role == "user":
            break
        thoughts = add_counts(thoughts, thoughts_of(item))
    size = state.calibration.estimate(thoughts)
    if size < _TELLING:
        return 0
    return 1 if abs(grown - kept + size) < abs(grown - kept) else -1


def _result(state: State, event: Event, fact: ToolReturned) -> None:
    call = state.window.calls.pop(fact.call_id, None)
    if call is None:
        _push(state, _orphan(state, event, fact))
        return
    item = Item(
        seq=event.seq,
        uuid=event.uuid,
        role="tool",
        blocks=fact.blocks,
        turn=state.turn,
        step=state.steps,
        counts=counts_of(fact.blocks),
        call_id=fact.call_id,
        is_error=fact.is_error,
    )
    _push(state, item)
    if fact.by == "host":
        return
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


def _orphan(state: State, event: Event, fact: ToolReturned) -> Item:
    """A result whose call is not open (never made, answered before, or in an earlier window): shown as host text,
    since no provider accepts a result without its call (L10)."""
    shown = tuple(
        Text(text=block.text, tokens=block.tokens, content=block.content)
        if isinstance(block, ToolResultRaw | ToolResultRef)
        else block
        for block in fact.blocks
    )
    note = Text(text=f"[result of an earlier call {fact.call_id}]", tokens=12)
    return _item(state, event, "host", (note, *shown))


def _sent(state: State, fact: RequestSent) -> None:
    state.requests += 1
    state.turn += 1
    state.window.sent = len(state.window.items)
    state.window.rewritten = -1
    state.declared.clear()
    if fact.verdict != "drift":
        state.pin = fact


def _replace(state: State, fact: BlockReplaced) -> None:
    window = state.window
    shown = False
    for target in fact.targets:
        place = window.place.get(target.seq)
        if place is None:
            continue
        item = window.items[place]
        window.items[place] = after = replaced(item, target, fact.how)
        window.counts = add_counts(add_counts(window.counts, item.counts, -1), after.counts)
        state.known_prompt = 0
        if place < window.sent:
            shown = True
            window.rewritten = place if window.rewritten < 0 else min(place, window.rewritten)
    if shown:
        state.declared.append(f"reset:{fact.how}")


def _open(state: State, event: Event, fact: WindowOpened) -> None:
    old = state.window
    spec = {item.seq: item for item in state.first}
    state.window = Window(generation=fact.generation, opened=event.seq, items=[], place={}, step=state.steps)
    state.window.calls = old.calls

    def keep(seqs: tuple[int, ...]) -> None:
        for seq in seqs:
            place = old.place.get(seq)
            item = spec.get(seq) if place is None else old.items[place]
            if item is not None:
                _push(state, item)

    keep(fact.kept_head)
    for number, seed in enumerate(fact.seed):
        _push(
            state,
            Item(
                seq=0,
                uuid=f"{event.uuid}.{number}",
                role=seed.role,
                blocks=seed.blocks,
                turn=state.turn,
                step=state.steps,
                counts=counts_of(seed.blocks),
                of=seed.of,
            ),
        )
    keep(fact.kept_tail)
    if not any(item.role == "assistant" for item in reversed(state.window.items)):
        state.window.calls = {}  # their reply is out of the window, so their results will be strays (L10)
    state.boundaries += 1
    state.refused_tokens = state.known_prompt = 0
    state.reminder_claimed = state.fallback_claimed = False
    state.intent, state.intent_uuid = None, ""
    if state.requests:
        state.declared.append(_REASONS[fact.cause])


_REASONS = {
    "model": "reset:rollover",
    "hard-limit": "reset:rollover",
    "cost": "reset:rollover",
    "watermark": "reset:rollover",
    "task": "reset:rollover",
    "operator": "reset:rollover",
    "overflow": "reset:overflow",
    "fifo": "reset:fifo",
    "checkpoint": "reset:checkpoint",
    "recorded": "reset:checkpoint",
}
