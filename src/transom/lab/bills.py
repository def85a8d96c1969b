"""A session's cache bill: what was read, what should have been, what was billed again and why, what that cost.

The figures are `core.ledger`'s and `core.losses`'s, summed. Their names in JSON are a promise to whoever reads that
file. A hit is a ratio of tokens, never a yes or no; what nobody reported is null. Money is US dollars.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from transom.core.cache import episodes
from transom.core.event import RequestSent, SessionOpened
from transom.core.ledger import Prices, ledger
from transom.core.losses import Settled, by_reason, is_reported, settle
from transom.core.pricing import usage_cost
from transom.core.wire import Dialect
from transom.ports import Log

__all__ = ["Account", "Accuracy", "Bill", "account", "accuracy", "bill_of"]

_CLOSE = 0.01
"""Share of the prompt within which an expectation counts as met."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """One session's requests, settled. `verdicts` are the contract's, one a request."""

    session_id: str
    agent: str
    verdicts: tuple[str, ...]
    is_assumed: bool
    """A recording: its requests were assumed before its replies."""
    settled: tuple[Settled, ...]

    @property
    def is_reported(self) -> bool:
        return is_reported(one.entry for one in self.settled)

    @property
    def misses(self) -> list[Settled]:
        """Where the provider reported its cache at all."""
        return [one for one in self.settled if one.is_miss] if self.is_reported else []

    @property
    def errors(self) -> list[float]:
        """Expected less reported tokens, of the prompt, where both are known."""
        if not self.is_reported:
            return []
        entries = (one.entry for one in self.settled)
        return [(one.expected - one.usage.cached) / one.usage.prompt for one in entries if one.expected is not None]


class Accuracy(msgspec.Struct, frozen=True, kw_only=True):
    """Expected against reported cached tokens, as shares of the prompt."""

    compared: int
    median: float
    worst: float
    """The largest, either way."""
    within_1_percent: float
    """Share of the compared requests; of the rest,"""
    short: int
    """read less than expected, and"""
    beyond: int
    """more: another request had sent it, or the provider kept it longer than it promises."""


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """One session."""

    session: str
    agent: str
    model: str
    provider: str
    price: str
    requests: int
    """Answered, with usage reported."""
    prompt_tokens: int
    cached_tokens: int | None
    written_tokens: int | None
    hit_ratio: float | None
    """Cached tokens of prompt tokens."""
    expected_tokens: int
    expected_ratio: float
    is_assumed: bool
    verdicts: dict[str, int]
    drift_episodes: int
    billed_again: dict[str, int]
    """Tokens per reason."""
    misses: dict[str, int]
    """Requests per reason of their largest loss."""
    misses_usd: float
    paid_usd: float
    accuracy: Accuracy | None


def account(log: Log, session_id: str, dialect: Dialect, prices: Prices, *, since: int = 0) -> Account:
    """Settle a session; entries through event `since` (a fork's parent has them) are left out."""
    events = list(log.read(session_id))
    opened = next((event.fact for event in events if isinstance(event.fact, SessionOpened)), None)
    entries = list(ledger(events, dialect, prices))
    sent = [event.fact.verdict for event in events if isinstance(event.fact, RequestSent) and event.seq > since]
    return Account(
        session_id=session_id,
        agent=opened.agent if opened else "",
        verdicts=tuple(sent) or tuple(one.verdict for one in entries if one.seq > since),
        is_assumed=not sent,
        settled=tuple(one for one in settle(entries) if one.entry.seq > since),
    )


def bill_of(one: Account) -> Bill:
    """The sums of an account."""
    entries = [settled.entry for settled in one.settled]
    usages = [entry.usage for entry in entries]
    prompt = sum(usage.prompt for usage in usages)
    cached = sum(usage.cached for usage in usages) if one.is_reported else None
    expected = sum(entry.expected if entry.expected is not None else entry.usage.cached for entry in entries)
    models = Tally(entry.key for entry in entries)
    last = entries[-1].price if entries else None
    return Bill(
        session=one.session_id,
        agent=one.agent,
        model=models.most_common(1)[0][0] if models else "",
        provider=last.provider if last else "",
        price=last.name if last else "",
        requests=len(entries),
        prompt_tokens=prompt,
        cached_tokens=cached,
        written_tokens=sum(usage.written for usage in usages) if one.is_reported else None,
        hit_ratio=cached / prompt if cached is not None and prompt else None,
        expected_tokens=expected,
        expected_ratio=expected / prompt if prompt else 0.0,
        is_assumed=one.is_assumed,
        verdicts=dict(sorted(Tally(one.verdicts).items())),
        drift_episodes=episodes(one.verdicts),
        billed_again=by_reason(one.settled) if one.is_reported else {},
        misses=dict(Tally(miss.reason for miss in one.misses).most_common()),
        misses_usd=sum(miss.dollars for miss in one.misses),
        paid_usd=sum(usage_cost(entry.price, entry.usage) for entry in entries),
        accuracy=accuracy(one.errors),
    )


def accuracy(errors: Sequence[float]) -> Accuracy | None:
    """Over one session or many; None if nothing can be compared."""
    sizes = [abs(error) for error in errors]
    if not sizes:
        return None
    return Accuracy(
        compared=len(sizes),
        median=median(sizes),
        worst=max(sizes),
        within_1_percent=sum(size <= _CLOSE for size in sizes) / len(sizes),
        short=sum(error > _CLOSE for error in errors),
        beyond=sum(error < -_CLOSE for error in errors),
    )
