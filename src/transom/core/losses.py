"""What was billed again, and why: each entry of a ledger beside what the provider reported.

The most a request could read is the prompt before it. What it did not read falls into parts, in tokens:

    a reason of the contract    those bytes are other bytes now: `reset:mask`, `change:model`, `drift:system:rules`, …
    unrecorded                  they are, by the reported prompts; the recording does not say what was rewritten
    unmarked                    they stood behind the last cache mark
    ttl                         by the rules they had expired
    form                        the first request that a gateway wrote itself says the same in other JSON
    routing, evicted, unknown   the rules say they should have been read, and the provider reports less

The last line is told apart by what else was read, for no provider says it:

    routing   a machine without the newest prompt served this request: what was read ends where an older request of the
              session ended; or the next one finds the lost prompt again, not this one's; or one that nothing is cached
              at served this or the one before: neither read nor written, by a provider that reports writes
    evicted   else, if nothing was read, or no more than the head (which other sessions keep warm)
    unknown   else; and where the recording has no times there, so that expiry cannot be told from eviction

What is within a step of the granularity and some framing is rounding, not a loss. What was read beyond the expectation
(another session or an unrecorded request had sent it, or the provider kept it longer than it promises) is no loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transom.core.ledger import UNRECORDED, Entry

__all__ = ["MISS", "OURS", "Settled", "by_reason", "is_reported", "settle"]

MISS = 1024
"""Tokens billed again from which a request counts as a miss (as pi does), if they are a tenth of what could be read."""
_SHARE = 0.1
_FRAMING = 128
"""Tokens that providers add at a prompt's end and do not cache: up to 70 in recordings of OpenAI's."""
OURS = ("ttl", "routing", "evicted", "unknown")
"""The reasons that no byte of a request explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """An entry and its losses, the largest first."""

    entry: Entry
    lost: tuple[tuple[str, int], ...]

    @property
    def tokens(self) -> int:
        """Billed again, all told."""
        return sum(tokens for _, tokens in self.lost)

    @property
    def is_miss(self) -> bool:
        return self.tokens >= MISS and self.tokens >= _SHARE * self.entry.could

    @property
    def reason(self) -> str:
        """Of the largest part; empty if nothing was lost."""
        return self.lost[0][0] if self.lost else ""

    @property
    def dollars(self) -> float:
        """What reading the lost tokens would have saved."""
        return self.tokens * self.price_again / 1_000_000

    @property
    def price_again(self) -> float:
        """Dollars a million tokens cost more when they are not read."""
        price, usage = self.entry.price, self.entry.usage
        if not usage.written:
            return price.input - price.cached
        return (price.write_1h if self.entry.is_long else price.write) - price.cached


def is_reported(entries: Iterable[Entry]) -> bool:
    """Whether the provider said anything about its cache."""
    return any(one.usage.cached or one.usage.written for one in entries)


def settle(entries: Sequence[Entry]) -> list[Settled]:
    """The losses of each request of one session."""
    writes = any(one.usage.written for one in entries)
    found = []
    for place, one in enumerate(entries):
        lost = _losses(entries, place, writes=writes)
        ordered = sorted(((why, tokens) for why, tokens in lost.items() if tokens), key=lambda part: -part[1])
        found.append(Settled(entry=one, lost=tuple(ordered)))
    return found


def by_reason(settled: Iterable[Settled]) -> dict[str, int]:
    """Tokens billed again per reason, the most first."""
    sums: dict[str, int] = {}
    for one in settled:
        for why, tokens in one.lost:
            sums[why] = sums.get(why, 0) + tokens
    return dict(sorted(sums.items(), key=lambda part: -part[1]))


def _losses(entries: Sequence[Entry], place: int, *, writes: bool) -> dict[str, int]:
    one = entries[place]
    slack = _slack(one)
    total = one.could - one.usage.cached
    if total <= slack or one.could < one.price.rules.min_prefix_tokens:
        return {}
    lost: dict[str, int] = {}
    theirs = one.expected - one.usage.cached if one.expected is not None else 0
    if theirs <= slack or (one.is_counted and one.usage.cached):
        theirs = 0  # of a length that only we counted, the difference is the rewrite's
    expired = 0
    if one.expected is not None and one.warm - max(one.expected, one.usage.cached) > slack:
        expired = min(total - theirs, one.warm - max(one.expected, one.usage.cached))
    rest = total - theirs - expired
    is_kept = one.price.rules.serves == "marks" and entries[place - 1].is_remembered
    if not one.reasons and not is_kept:
        theirs, rest = theirs + rest, 0  # no byte explains it, and it does not stand behind a mark
    if theirs > slack:
        lost[_theirs(entries, place, writes=writes)] = theirs
    if expired:
        lost["ttl"] = expired
    if rest > slack:
        lost[_named(one)] = rest
    return lost


def _slack(one: Entry) -> int:
    return one.price.rules.granularity_tokens + _FRAMING


def _named(one: Entry) -> str:
    """The reasons that the bytes give, joined; what was rewritten in one step is not told apart."""
    why = [reason for reason in one.reasons if reason != "initial"]
    if UNRECORDED in why:
        return UNRECORDED
    return "+".join(why) if why else "unmarked"


def _theirs(entries: Sequence[Entry], place: int, *, writes: bool) -> str:
    one, slack = entries[place], _slack(entries[place])
    read, expected = one.usage.cached, one.expected or 0
    if one.is_new_form:
        return "form"
    if writes and not (one.is_remembered and entries[place - 1].is_remembered):
        return "routing"
    if read > one.head + slack and any(abs(end - read) <= slack for end in _ends(entries[:place], one.key)):
        return "routing"
    after = next((other for other in entries[place + 1 :] if other.key == one.key), None)
    if after is not None and after.expected is not None:
        again = after.usage.cached
        if read + slack < again <= expected + slack and again + slack < min(one.end, after.expected):
            return "routing"
    if place and one.asked <= entries[place - 1].asked:
        return "unknown"
    return "evicted" if read <= one.head + slack else "unknown"


def _ends(before: Sequence[Entry], key: str) -> set[int]:
    """Where earlier requests of this key, and the answers to them, ended."""
    found: set[int] = set()
    for one in before:
        if one.key == key:
            found |= {one.end, one.usage.prompt, one.usage.prompt + max(0, one.usage.output)}
    return found
