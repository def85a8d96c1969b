"""Wire: a request as segments of bytes, and the digests of what a provider's cache keys on.

Head segments (each tool, each system section), then one segment per wire message, then the tail. Rendering is pure
and per dialect: a dialect is two functions from state to bytes. Segments are never joined here, so a step costs what
it adds (design 16): `Rendering` keeps the segments of a window and renders only what is new or was rewritten. It is a
cache of a pure function: `render` from nothing gives the same bytes, and a property test holds it to that (L2).

`rolling[i]` is sha256 over the first `i` messages, each framed by its length, so two bodies share exactly the prefix
up to the last equal digest.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from transom.core.state import NOTHING, Counts, Head, Item, State, add_counts
from transom.core.surface import Surface, surface

__all__ = ["Dialect", "Keyed", "Rendering", "Segment", "Wire", "common_prefix", "groups", "head_digests"]


_CLASSES = len(NOTHING)
_Known: TypeAlias = Mapping[int, tuple[Sequence[Item], bytes]]
"""The id of a message's first item -> its items (which keep the id alive) and its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A named piece of the head: `tools:<name>` or `system:<key>`."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed:
    """What else a provider keys its cache on: who is asked, and a digest of the request fields that the messages are
    cached under (thinking, output forms). Empty: not known, as in a replay."""

    provider: str = ""
    model: str = ""
    fields: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one provider writes a head, a message and a tail. Pure; cache marks are not part of the bytes."""

    name: str
    head: Callable[[Head], tuple[Segment, ...]]
    message: Callable[[Sequence[Item]], bytes]
    """A group of items that form one wire message; empty bytes if nothing in it is shown."""
    tail: Callable[[str], bytes]
    keyed: Keyed = Keyed()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A request. `body`, `rolling`, `sums`, `ends` and `blocks` are views on growing lists: only the first `messages`
    (one more of all but `body`) belong to this request. Of its first `i` messages, `counts(i)` sums the tokens,
    `ends[i]` the items and `blocks[i]` the content blocks. `replies` are the places of the model's own messages."""

    head: tuple[Segment, ...]
    head_digests: dict[str, str]
    body: Sequence[bytes]
    rolling: Sequence[bytes]
    sums: array[int]
    """Of each message and all before it, one number of each content class."""
    ends: array[int]
    blocks: array[int]
    replies: Sequence[int]
    messages: int
    tail: bytes
    tail_text: str
    keyed: Keyed

    def counts(self, messages: int) -> Counts:
        """Tokens of the first so many messages."""
        return _sum_at(self.sums, messages)

    def segments(self) -> list[bytes]:
        """All bytes in the provider's order; what the digests are over."""
        shown = [segment.data for segment in self.head]
        shown.extend(self.body[: self.messages])
        if self.tail:
            shown.append(self.tail)
        return shown


def _sum_at(sums: array[int], place: int) -> Counts:
    prose, code, cjk, data, hidden = sums[_CLASSES * place : _CLASSES * (place + 1)]
    return prose, code, cjk, data, hidden


def groups(items: Sequence[Item], start: int = 0) -> list[tuple[int, int]]:
    """(from, to) positions of the wire messages in `items[start:]`: a reply alone, or all of one turn before it."""
    found = []
    first = start
    for place in range(start, len(items)):
        last = place + 1 == len(items)
        if last or _ends(items[place], items[place + 1]):
            found.append((first, place + 1))
            first = place + 1
    return found


def _ends(item: Item, following: Item) -> bool:
    return item.role == "assistant" or following.role == "assistant" or item.turn != following.turn


class Rendering:
    """The incremental form of `render` for one session."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._shows = True
        self._shown: tuple[int, Surface] | None = None
        self._head: tuple[Segment, ...] = ()
        self._head_digests: dict[str, str] = {}
        self._clear(-1)

    def _clear(self, opened: int) -> None:
        self._opened = opened
        self._edits = 0
        self._items = 0
        self._starts: list[int] = []
        self._groups: list[Sequence[Item]] = []
        self._hasher = hashlib.sha256()
        self.body: list[bytes] = []
        self.rolling: list[bytes] = [self._hasher.digest()]
        self.sums = array("q", NOTHING)  # of numbers, since a window may have tens of thousands of messages
        self.ends = array("q", [0])
        self.blocks = array("q", [0])
        self.replies: list[int] = []

    def show(self, *, shows: bool) -> None:
        """Whether the bytes of messages are kept. Without them `body` has an empty one for each; all else is the
        same."""
        if shows and not self._shows:
            self._clear(-1)
        self._shows = shows

    def wire(self, state: State, tail_text: str = "") -> Wire:
        """The request for `state` as it stands."""
        window = state.window
        now = (state.head.epoch, surface(state))
        if now != self._shown:
            self._shown = now
            self._head = self.dialect.head(_offered(state.head, now[1]))
            self._head_digests = head_digests(self._head, now[1].forced)
        known: _Known = {}
        if window.opened != self._opened:
            known = self._known(0)
            self._clear(window.opened)
        edited = min(window.edits[self._edits :], default=self._items)
        self._edits = len(window.edits)
        if edited < self._items:
            known = self._known(edited)
            self._rewind(edited)
        elif 0 < self._items < len(window.items) and not _ends(
            window.items[self._items - 1], window.items[self._items]
        ):
            self._rewind(self._items - 1)  # the last message was looked at before it was complete
        self._extend(window.items, known)
        return Wire(
            head=self._head,
            head_digests=self._head_digests,
            body=self.body,
            rolling=self.rolling,
            sums=self.sums,
            ends=self.ends,
            blocks=self.blocks,
            replies=self.replies,
            messages=len(self.body),
            tail=self.dialect.tail(tail_text) if tail_text else b"",
            tail_text=tail_text,
            keyed=self.dialect.keyed,
        )

    def _extend(self, items: Sequence[Item], known: _Known) -> None:
        for first, end in groups(items, self._items):
            group = items[first:end]
            before = known.get(id(group[0]))
            data = before[1] if before is not None and before[0] == group else self.dialect.message(group)
            self._items = end
            if not data:
                continue
            total = _sum_at(self.sums, len(self.body))
            for item in group:
                total = add_counts(total, item.counts)
            self._hasher.update(b"%d:" % len(data))
            self._hasher.update(data)
            if group[0].role == "assistant":
                self.replies.append(len(self.body))
            self._starts.append(first)
            self._groups.append(group)
            self.body.append(data if self._shows else b"")
            self.rolling.append(self._hasher.digest())
            self.sums.extend(total)
            self.ends.append(end)
            self.blocks.append(self.blocks[-1] + sum(len(item.blocks) for item in group))

    def _known(self, place: int) -> _Known:
        """The messages from item `place` on. An edited item is another object, and one that a new window keeps is the
        same, so what is found again by its first item and holds equal ones has the same bytes."""
        shown = zip(self._starts, self._groups, self.body, strict=True) if self._shows else ()
        return {id(group[0]): (group, data) for first, group, data in shown if first >= place}

    def _rewind(self, place: int) -> None:
        """Forget from the message that holds item `place` on. Lists are replaced: earlier wires keep theirs."""
        if not self._shows:  # what went into the digest is not there to be digested again
            edits = self._edits
            self._clear(self._opened)
            self._edits = edits
            return
        keep = len(self._starts)
        while keep and self._starts[keep - 1] > place:
            keep -= 1
        self._items = self._starts[keep - 1] if keep else 0
        keep = max(0, keep - 1)
        self._starts = self._starts[:keep]
        self._groups = self._groups[:keep]
        self.body = self.body[:keep]
        self.rolling = self.rolling[: keep + 1]
        self.sums = self.sums[: _CLASSES * (keep + 1)]
        self.ends = self.ends[: keep + 1]
        self.blocks = self.blocks[: keep + 1]
        self.replies = [place for place in self.replies if place < keep]
        self._hasher = hashlib.sha256()
        for data in self.body:
            self._hasher.update(b"%d:" % len(data))
            self._hasher.update(data)


def _offered(head: Head, now: Surface) -> Head:
    """The head without the tools that are taken out."""
    if not now.withheld:
        return head
    tools = tuple(tool for tool in head.tools if tool.name not in now.withheld)
    return msgspec.structs.replace(head, tools=tools)


def head_digests(head: Sequence[Segment], forced: str = "") -> dict[str, str]:
    """Per component (`tools`, `system`, and `params`: what else the cache keys on) one order-sensitive digest, and one
    per segment under its own name."""
    found: dict[str, str] = {"params": hashlib.sha256(forced.encode()).hexdigest()}
    for component in ("tools", "system"):
        hasher = hashlib.sha256()
        for segment in head:
            if segment.name.startswith(component):
                hasher.update(b"%d:" % len(segment.data))
                hasher.update(segment.data)
                found[segment.name] = hashlib.sha256(segment.data).hexdigest()
        found[component] = hasher.hexdigest()
    return found


def common_prefix(left: Sequence[bytes], left_end: int, right: Sequence[bytes], right_end: int) -> int:
    """How many messages two bodies share, by their rolling digests: equality is monotone, so a binary search."""
    low, high = 0, min(left_end, right_end)
    if left[high] == right[high]:
        return high
    while low + 1 < high:
        middle = (low + high) // 2
        if left[middle] == right[middle]:
            low = middle
        else:
            high = middle
    return low
