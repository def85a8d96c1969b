"""State: what a session is after its events. Types only; `projection` says how each fact makes them.

A State is one accumulator that `fold` updates in place: the cost of one event does not depend on the history's length
(decision 0002). Whoever holds it owns it; a second branch starts from its own fold, never from a shared State.

The window is an ordered list of items. Every item knows its source event; seeds know the event whose words they
repeat. An item's `turn` is the number of requests sent and replies received before it, so which items form one wire
message is a fact of the state and not of the renderer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from transom.core.blackboard import Blackboard
from transom.core.block import CONTENTS, Block, Text, Thought
from transom.core.calibration import Calibration, Counts
from transom.core.costrule import Estimates
from transom.core.event import (
    CheckpointAccepted,
    Disposition,
    How,
    Replacement,
    RequestSent,
    RolloverDeclared,
    Section,
    SessionOpened,
    Tool,
    WindowCause,
)

__all__ = [
    "MISS_OF",
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
    "folded",
    "replaced",
    "thoughts_of",
]

Role = Literal["user", "assistant", "tool", "host"]
_PLACE = {name: place for place, name in enumerate(CONTENTS)}
NOTHING: Counts = (0, 0, 0, 0, 0)

MISS_OF: dict[WindowCause, str] = {
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
"""The named miss (L5) that opening a window for a cause is."""


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
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
    wire: str = ""
    """As `UserSaid.wire`."""
    states: tuple[tuple[str, str | None], ...] = ()
    """Sections of the head whose text it says: key and text, None for one that no longer stands."""
    stands: str = ""
    """As `HostSaid.stands`."""


class Head(msgspec.Struct, kw_only=True):
    sections: tuple[Section, ...] = ()
    tools: tuple[Tool, ...] = ()
    unseen_tokens: int = 0
    epoch: int = 0
    changes: dict[str, str | None] = {}
    """Sections changed since the epoch opened: shown by the host's words, never in the frozen head."""
    order: tuple[str, ...] = ()
    """Keys of all sections there are or were, in their order."""


class Window(msgspec.Struct, kw_only=True):
    """What the model sees after the head."""

    generation: int = 0
    opened: int = 0
    """seq of the fact that opened it; 0 = the first window."""
    items: list[Item] = []
    place: dict[int, int] = {}
    """seq -> position in `items`."""
    counts: Counts = NOTHING
    results: Counts = NOTHING
    """The part of `counts` that tool results make up."""
    sent: int = 0
    """Items that a request has already shown."""
    seen: int = 0
    """Items that stood in a request which the model answered; the rest it has not seen."""
    step: int = 0
    """Replies received before it opened."""
    edits: list[int] = []
    """Positions whose blocks changed since the window opened, in the order they did."""
    returned: int = 0
    """Results that tools gave since it opened."""
    calls: dict[str, tuple[str, str]] = {}
    """Open calls of the newest reply: call id -> (name, raw arguments)."""
    known: dict[str, str | None] = {}
    """What the items say of sections of the head, the last word of each: all else is as the frozen head has it."""


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
    """seq of the newest reply that ended a turn (words, no calls, not broken off): it answers every user message before
    it."""
    declared: list[str] = []
    """Reasons for a miss since the last request that was no drift (L5)."""
    pin: RequestSent | None = None
    """The last request whose bytes were accepted as the baseline."""
    pin_seq: int = 0
    """Its seq."""
    intent: RolloverDeclared | None = None
    intent_uuid: str = ""
    dispatched: set[str] = set()
    """Calls that were started and have no result yet."""
    missed: list[str] = []
    """Recalls that found nothing in this window."""
    reminder_claimed: bool = False
    fallbacks: int = 0
    """Fallback notices in this window: each is one request with a narrower surface."""
    fallback_turn: int = 0
    """`turn` at the newest of them: the next follows only after a request was made with it."""
    crowded: int = 0
    """Windows in a row that were full again after one result of a tool, or none (L11)."""
    is_overflowed: bool = False
    """The provider refused the last request as larger than its window."""
    handoff: RolloverDeclared | None = None
    """The last one a model wrote and a boundary committed: what the host has checked of it outlives the next window."""
    inferences: dict[str, int] = {}
    """What models have inferred so far, folded -> the generation in which it was first said (L7)."""
    mode: str = ""
    pending_approvals: tuple[str, ...] = ()
    boundaries: int = 0
    refused_tokens: int = 0
    """The window's tokens when a rewrite was last refused: it is tried again only when the window has grown (L11)."""
    tail_tokens: int = 0
    """Of the last request's tail: reported with its prompt, and gone with it."""
    known_prompt: int = 0
    """The last reported prompt, if the window has only grown since; what it grows by calibrates the counts."""
    known_counts: Counts = (0, 0, 0, 0, 0)
    known_items: int = 0
    drop_votes: int = 0
    """Whether the provider drops the thoughts of earlier turns when the user speaks (Anthropic before Opus 4.5,
    OpenAI's reasoning items): each reported prompt after a user message votes for (+1) or against (-1)."""
    checkpoint: CheckpointAccepted | None = None
    estimates: Estimates = msgspec.field(default_factory=Estimates)
    """What the session has shown of its own cost (`costrule`)."""


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


def thoughts_of(item: Item) -> Counts:
    """Tokens of a message's thoughts, and of what the provider counted but did not show."""
    shown = counts_of(block for block in item.blocks if isinstance(block, Thought))
    return add_counts(shown, (0, 0, 0, 0, item.counts[4] - shown[4]))


_HIDDEN = Text(text="")
"""Stands where a block was hidden, so that the indices of its neighbours stay what the log says. Never rendered."""


def replaced(item: Item, target: Replacement, how: How) -> Item:
    """The item with one block shown as another. A prune also takes what the provider counted of a reply but did not
    show; an index behind the last block means only that. What it said of the head, it no longer says, unless it was
    redacted: that is not to be said again."""
    blocks = item.blocks
    if target.index < len(blocks):
        blocks = (*blocks[: target.index], target.block or _HIDDEN, *blocks[target.index + 1 :])
    counts = add_counts(add_counts(item.counts, counts_of(item.blocks), -1), counts_of(blocks))
    if how == "prune":
        counts = (*counts[:4], 0)
    states = item.states if how == "redact" else ()
    return msgspec.structs.replace(item, blocks=blocks, counts=counts, wire="", states=states)


def folded(text: str) -> str:
    """A text as it is compared: white space folded, without case and closing marks."""
    return " ".join(text.split()).strip(" .;。；").casefold()
