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
    used: float
    ttl: int


@dataclass(slots=True)
class _Shelf:
    """What is remembered for one key, the shortest first."""

    is_prefix: bool
    starts: list[_Start] = field(default_factory=list)
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
            self.starts = [one for one in self.starts if one.tokens <= kept]

    def answer(self, asked: int, through: int) -> None:
        """The answer to the newest prompt, of `asked` tokens, is sent back as it came."""
        newest = self.starts[-1] if self.starts else None
        if newest is not None and newest.tokens == asked < through:
            self.starts.append(_Start(through, newest.blocks, newest.used, newest.ttl))


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
        starts = [one for one in shelf.starts if one.tokens <= sent.tokens and _reaches(rules, sent, one)]
        alive = [one for one in starts if not one.ttl or sent.at - one.used <= one.ttl]
        read, warm = _rounded(rules, alive), _rounded(rules, starts)
        if sent.is_remembered:
            self._remember(shelf, sent, rules, read)
        self._newest = sent.tokens
        return Expected(read=read, warm=warm)

    @staticmethod
    def _remember(shelf: _Shelf, sent: Sent, rules: CacheRules, read: int) -> None:
        ttl = rules.long_ttl_seconds if sent.is_long and rules.long_ttl_seconds else rules.ttl_seconds
        living: list[_Start] = []
        for one in shelf.starts:
            if one.ttl and sent.at - one.used > one.ttl:
                continue
            if one.tokens - one.tokens % rules.granularity_tokens <= read:
                one.used = max(one.used, sent.at)
            living.append(one)
        match rules.serves:
            case "prefix":
                shelf.starts = [_Start(sent.tokens, 0, sent.at, ttl)]
                return
            case "marks":
                made = [_Start(mark.tokens, mark.blocks, sent.at, ttl) for mark in sent.marks]
            case "ends":
                made = [_Start(sent.tokens, 0, sent.at, ttl)]
            case "units":
                made = [_Start(sent.tokens, 0, sent.at, ttl)]
                if shelf.is_cut and shelf.line:
                    made.append(_Start(shelf.line, 0, sent.at, ttl))
        known = {one.tokens for one in living}
        fresh = [one for one in made if one.tokens not in known and one.tokens >= rules.min_prefix_tokens]
        shelf.starts = sorted(living + fresh, key=lambda one: one.tokens)
        if rules.serves == "ends" and rules.breakpoints:
            shelf.starts = shelf.starts[-rules.breakpoints :]
        shelf.line, shelf.is_cut = sent.tokens, False


def _reaches(rules: CacheRules, sent: Sent, start: _Start) -> bool:
    if rules.serves != "marks":
        return True
    near = rules.lookback_blocks
    return any(mark.tokens >= start.tokens and (not near or mark.blocks - start.blocks <= near) for mark in sent.marks)


def _rounded(rules: CacheRules, starts: list[_Start]) -> int:
    longest = max((one.tokens for one in starts), default=0)
    return longest - longest % rules.granularity_tokens if longest >= rules.min_prefix_tokens else 0
