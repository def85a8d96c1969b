"""State: what the fold of a session's events makes, and the only way to make it (laws L2, L3).

`fold(state, event)` is the whole definition of what each fact does. The cost of one event does not depend on the
history's length, so a State is one accumulator that `fold` updates and returns: whoever holds it owns it, and a second
branch starts from `fold` over the events, never from a shared State (decision 0002).

The window is an ordered list of items. Every item knows its source event; seeds know the event whose words they
repeat. An item's `turn` is the number of requests sent and replies received before it, so which items form one wire
message is a fact of the state and not of the renderer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, assert_never

import msgspec

from transom.core.blackboard import Blackboard, note_call, note_result
from transom.core.block import CONTENTS, Block, Text, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.calibration import Calibration, Counts, calibration_for
from transom.core.event import (
    BlockReplaced,
    CheckpointAccepted,
    Disposition,
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
    Section,
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
    Tool,
    ToolReturned,
    UserDisposed,
    UserSaid,
    WindowOpened,
    WindowRefused,
)
from transom.core.literals import constraints

__all__ = [
    "NOTHING",
    "Counts",
    "Head",
    "Item",
    "Role",
    "State",
    "Window",
    "Words",
    "add_counts",
    "counts_of",
    "fold",
    "project",
]

Role = Literal["user", "assistant", "tool", "host"]
_PLACE = {name: place for place, name in enumerate(CONTENTS)}
NOTHING: Counts = (0, 0, 0, 0, 0)
_HIDDEN = Text(text="")
"""Stands where a block was hidden, so that the indices of its neighbours stay what the log says. Never rendered."""


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message in the window. `seq` is its source event (0 for a seed, whose `of` may name one)."""

    seq: int
    uuid: str
    role: Role
    blocks: tuple[Block, ...]
    turn: int
    step: int
    """Replies received before it: its age is counted in steps."""
    counts: Counts
    call_id: str = ""
    is_error: bool = False
    of: int = 0


class Head(msgspec.Struct, kw_only=True):
    sections: tuple[Section, ...] = ()
    tools: tuple[Tool, ...] = ()
    unseen_tokens: int = 0
    epoch: int = 0
    changes: dict[str, str | None] = {}
    """Sections changed since the epoch opened: shown by the host's words, never in the frozen head."""


class Window(msgspec.Struct, kw_only=True):
    """What the model sees after the head."""

    generation: int = 0
    opened: int = 0
    """seq of the fact that opened it; 0 = the first window."""
    items: list[Item] = []
    place: dict[int, int] = {}
    """seq -> position in `items`."""
    counts: Counts = NOTHING
    sent: int = 0
    """Items that a request has already shown."""
    seen: int = 0
    """Items that stood in a request which the model answered; the rest it has not seen."""
    step: int = 0
    """Replies received before it opened."""
    rewritten: int = -1
    """The first position whose blocks changed since the last request; -1 = none."""
    calls: dict[str, tuple[str, str]] = {}
    """Open calls of the newest reply: call id -> (name, raw arguments)."""


class Words(msgspec.Struct, kw_only=True):
    """One user message and what became of it."""

    seq: int
    uuid: str
    blocks: tuple[Block, ...]
    counts: Counts
    disposition: Disposition = "open"
    constraints: tuple[str, ...] = ()


class State(msgspec.Struct, kw_only=True):
    """Everything derived from a session's events."""

    session_id: str = ""
    seq: int = 0
    opened: SessionOpened | None = None
    model: str = ""
    head: Head = msgspec.field(default_factory=Head)
    window: Window = msgspec.field(default_factory=Window)
    first: list[Item] = []
    """The first wire message: what was said before the first request, the user's specification in it (L6 a)."""
    words: list[Words] = []
    board: Blackboard = msgspec.field(default_factory=Blackboard)
    calibration: Calibration = msgspec.field(default_factory=Calibration)
    steps: int = 0
    turn: int = 0
    requests: int = 0
    answered_through: int = 0
    """seq of the newest reply that ended a turn (no calls): it answers every user message before it."""
    declared: list[str] = []
    """Reasons for a miss since the last request (L5)."""
    pin: RequestSent | None = None
    """The last request whose bytes were accepted as the baseline."""
    intent: RolloverDeclared | None = None
    intent_uuid: str = ""
    reminder_claimed: bool = False
    fallback_claimed: bool = False
    mode: str = ""
    pending_approvals: tuple[str, ...] = ()
    boundaries: int = 0
    refused_tokens: int = 0
    """The window's tokens when a rewrite was last refused: it is tried again only when the window has grown (L11)."""
    known_prompt: int = 0
    """The last reported prompt, if the window has only grown since; what it grows by calibrates the counts."""
    known_counts: Counts = (0, 0, 0, 0, 0)
    known_items: int = 0
    checkpoint: CheckpointAccepted | None = None


def counts_of(blocks: Iterable[Block]) -> Counts:
    """Tokens per content class."""
    total = [0, 0, 0, 0, 0]
    for block in blocks:
        total[_PLACE[block.content]] += block.tokens
    return (total[0], total[1], total[2], total[3], total[4])


def add_counts(left: Counts, right: Counts, sign: int = 1) -> Counts:
    return (
        left[0] + sign * right[0],
        left[1] + sign * right[1],
        left[2] + sign * right[2],
        left[3] + sign * right[3],
        left[4] + sign * right[4],
    )


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
        state.calibration = state.calibration.observe(added, len(window.items) - state.known_items, grown)
    state.known_prompt, state.known_counts, state.known_items = prompt, window.counts, len(window.items)


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
        old = item.blocks
        new = (*old[: target.index], target.block or _HIDDEN, *old[target.index + 1 :])
        counts = add_counts(add_counts(item.counts, counts_of(old), -1), counts_of(new))
        window.items[place] = msgspec.structs.replace(item, blocks=new, counts=counts)
        window.counts = add_counts(add_counts(window.counts, item.counts, -1), counts)
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
