"""A provider's prompt cache by its own published rules: what each request should read of what was sent before it.

One line of requests is followed. Of each only its length matters and how much of its start is the same as in the one
before (`Sent.kept`): a cache remembers starts of the newest prompt, and what was rewritten is cut off them. So nothing
is compared twice, and bytes that come back after they were rewritten count as new.

    serves     what is remembered of a request                   what is read: the longest remembered start that
    prefix     all of it                                          is still the same, rounded down
    marks      its start up to each of its marks                  ends at most `lookback_blocks` before a mark
    ends       the whole of it                                    is among the newest `breakpoints`
    units      the whole of it, and where it left its elders      is still the same as a whole

Each key (a model, at a provider) has a cache of its own. A start that was idle for more than its time to live is gone;
a read refreshes all that it contains. What is shorter than the minimum is not cached, and what is read is a multiple of
the granularity. Where answers are kept (`keeps_output`), one that is sent back as it came is read too.

What a provider's machines do beside that (evict, route elsewhere, keep longer) is not in any rule: `ledger` names it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from transom.core.pricing import CacheRules

__all__ = ["Cache", "Expected", "Mark", "Sent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A cache mark: behind so many tokens and content blocks of the prompt."""

    tokens: int
    blocks: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A request as a cache sees it. `at` is in seconds."""

    at: float
    tokens: int
    kept: int = 0
    """Tokens at its start that are the same bytes as in the request before, whatever the key of that was."""
    answered: int = 0
    """Tokens of the answer to the request before that stand behind its prompt in this one, as they came."""
    marks: tuple[Mark, ...] = ()
    key: str = ""
    is_long: bool = False
    """The longer, dearer cache is asked for."""
    is_remembered: bool = True
    """False where the provider said that it kept nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Tokens the rules say are read, and what would be if nothing had expired."""

    read: int
    warm: int


@dataclass(slots=True)
class _Start:
    """A remembered start of the newest prompt of a key."""

    tokens: int
    blocks: int
    ttl: int
    used: float


@dataclass(slots=True)
class _Shelf:
    """What is remembered for one key, the shortest first. A read refreshes all that it contains, so the first `fresh`
    starts were last used at the same moment, `used`, whatever each says; a step costs the same however many there are.
    """

    is_prefix: bool
    starts: list[_Start] = field(default_factory=list)
    fresh: int = 0
    used: float = 0.0
    line: int = 0
    """Tokens of the newest prompt of this key that later requests, of any key, have kept."""
    is_cut: bool = False
    """The newest prompt of this key was not kept whole."""

    def cut(self, kept: int) -> None:
        """Forget what was rewritten; of a prefix, the rest of it stays."""
        if kept < self.line:
            self.line, self.is_cut = kept, True
        if self.is_prefix:
            for one in self.starts:
                one.tokens = min(one.tokens, kept)
        else:
            while self.starts and self.starts[-1].tokens > kept:
                self.starts.pop()
        self.fresh = min(self.fresh, len(self.starts))

    def answer(self, asked: int, through: int) -> None:
        """The answer to the newest prompt, of `asked` tokens, is sent back as it came."""
        newest = self.starts[-1] if self.starts else None
        if newest is not None and newest.tokens == asked < through:
            used = self.used if self.fresh == len(self.starts) else newest.used
            self.starts.append(_Start(through, newest.blocks, newest.ttl, used))

    def expire(self, now: float) -> None:
        """Forget what was idle too long."""
        idle = now - self.used
        head = [one for one in self.starts[: self.fresh] if not one.ttl or idle <= one.ttl] if idle else None
        tail = [one for one in self.starts[self.fresh :] if not one.ttl or now - one.used <= one.ttl]
        if head is not None and (len(head) < self.fresh or len(tail) < len(self.starts) - self.fresh):
            self.starts, self.fresh = head + tail, len(head)

    def touch(self, read: int, now: float, grain: int) -> None:
        """All that a read of so many tokens contains was used now."""
        count = bisect_right(self.starts, read + grain - 1, key=_tokens) if read else 0
        for one in self.starts[count : self.fresh]:
            one.used = self.used
        self.fresh, self.used = count, now

    def add(self, start: _Start) -> None:
        place = bisect_right(self.starts, start.tokens, key=_tokens)
        if place and self.starts[place - 1].tokens == start.tokens:
            return
        self.starts.insert(place, start)
        self.fresh += place < self.fresh


def _tokens(start: _Start) -> int:
    return start.tokens


class Cache:
    """The state of the caches over one line of requests."""

    def __init__(self) -> None:
        self._shelves: dict[str, _Shelf] = {}
        self._newest = 0

    def send(self, sent: Sent, rules: CacheRules) -> Expected:
        """What a request reads by the rules of its key; it is then remembered itself."""
        kept = min(sent.kept, self._newest)
        if kept < self._newest:  # else nothing was rewritten, whatever another model counts its tokens as
            for one in self._shelves.values():
                one.cut(min(kept, sent.tokens))
        shelf = self._shelves.setdefault(sent.key, _Shelf(is_prefix=rules.serves == "prefix"))
        if rules.keeps_output and kept == self._newest:
            shelf.answer(self._newest, min(kept + sent.answered, sent.tokens))
        warm = _longest(rules, sent, shelf.starts)
        shelf.expire(sent.at)
        read = _longest(rules, sent, shelf.starts)
        if sent.is_remembered:
            _remember(shelf, sent, rules, read)
        self._newest = sent.tokens
        return Expected(read=read, warm=warm)


def _longest(rules: CacheRules, sent: Sent, starts: Sequence[_Start]) -> int:
    """Tokens of the longest start that is found, rounded."""
    found = next((one.tokens for one in reversed(starts) if _reaches(rules, sent, one)), 0)
    return found - found % rules.granularity_tokens if found >= rules.min_prefix_tokens else 0


def _reaches(rules: CacheRules, sent: Sent, start: _Start) -> bool:
    if start.tokens > sent.tokens:
        return False
    if rules.serves != "marks":
        return True
    near = rules.lookback_blocks
    return any(mark.tokens >= start.tokens and (not near or mark.blocks - start.blocks <= near) for mark in sent.marks)


def _remember(shelf: _Shelf, sent: Sent, rules: CacheRules, read: int) -> None:
    ttl = rules.long_ttl_seconds if sent.is_long and rules.long_ttl_seconds else rules.ttl_seconds
    shelf.touch(read, sent.at, rules.granularity_tokens)
    if rules.serves == "prefix":
        shelf.starts, shelf.fresh = [_Start(sent.tokens, 0, ttl, sent.at)], 1
        return
    made = [*sent.marks] if rules.serves == "marks" else [Mark(tokens=sent.tokens)]
    if rules.serves == "units" and shelf.is_cut:
        made.append(Mark(tokens=shelf.line))
    for one in made:
        if one.tokens >= max(1, rules.min_prefix_tokens):
            shelf.add(_Start(one.tokens, one.blocks, ttl, sent.at))
    if rules.serves == "ends" and rules.breakpoints:
        gone = max(0, len(shelf.starts) - rules.breakpoints)
        shelf.starts, shelf.fresh = shelf.starts[gone:], max(0, shelf.fresh - gone)
    shelf.line, shelf.is_cut = sent.tokens, False
