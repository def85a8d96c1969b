"""`transom cache`: what was read from the provider's cache, what was not and why, and where two requests part."""

from __future__ import annotations

import json as stdlib_json
from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter
from rich.console import Console
from rich.text import Text

from transom import compose
from transom.cli.intake import choose
from transom.cli.naming import LATEST, find_session, short_ids
from transom.cli.options import AsJson, StoreFolder, whole_number
from transom.cli.parting import Parted, parted, show_parted
from transom.cli.terminal import bar, out, printable, say
from transom.core.event import SessionOpened
from transom.core.losses import MISS, Settled
from transom.core.pricing import PriceTable, find_price
from transom.core.wire import Dialect
from transom.errors import UsageError
from transom.lab.bills import Account, account, accuracy, bill_of
from transom.lab.tables import Column, counted, show_table

__all__ = ["cache"]

_STATS = (
    "read: the share of prompt tokens that the provider reported as read from its cache; expected: by its rules. "
    "drift: in episodes. billed again: prompt tokens that were sent before and not read; cost: what reading had saved."
)
_MISSES = (
    f"misses: requests in which {MISS:,} tokens or more, and a tenth of what could be read, were billed again, each "
    "under the reason of its largest part; what is less than that counts in tokens alone."
)
_NO_MISS = (
    f"no miss: no request was billed again for {MISS:,} tokens and a tenth of what could be read; `transom cache "
    "stats` counts what is less"
)
_CONTRACT = (
    "contract: whether the bytes of a request began as those before (hit), did not for a named reason (miss), or for "
    "none (drift), whatever was billed."
)
_ACCURACY = (
    "errors: between expected and reported cached tokens, as shares of the prompt; read less, more: requests in which "
    "the provider did so by more than 1 %."
)
_REASONS = (
    "event: the reply's, which `inspect --at` takes; prompt, read: tokens as the provider reported them; expected: by "
    "its rules; lost: sent before, billed again."
)

_What = Annotated[
    Literal["stats", "reasons", "inspect"] | None,
    Parameter(
        help="stats: what was read, what should have been, what was billed again and why. reasons: each miss and its "
        "cost. inspect: the first segment and byte that differ from the request before."
    ),
]
_Names = Annotated[
    str,
    Parameter(
        help="Sessions (an id, the start of it, or `latest`), or transcripts, folders and archives, which are imported."
    ),
]
_At = Annotated[
    int | None,
    Parameter(
        converter=whole_number,
        help="inspect: the request that this event answers (an `event` of reasons), else the first at or after it. "
        "Without it the newest miss.",
    ),
]
_Last = Annotated[
    int, Parameter(converter=whole_number, show_default=True, help="reasons: so many of the newest misses; 0: all.")
]
_Every = Annotated[bool, Parameter(name="--all", help="Sub-agents, and forks without a reply of their own, as well.")]


def cache(
    what: _What = None,
    /,
    *names: _Names,
    at: _At = None,
    last: _Last = 10,
    every: _Every = False,
    json: AsJson = False,
    store: StoreFolder = None,
) -> int:
    """Show how a session used its provider's prompt cache: what was read, what was billed again, why, at what cost."""
    if what is None:
        raise UsageError(
            "say which: `transom cache stats` (ratio, what was billed again), `transom cache reasons` (each miss), or "
            "`transom cache inspect` (the first byte that differs)"
        )
    if at is not None and what != "inspect":
        raise UsageError("--at goes with `transom cache inspect`")
    files = [Path(name) for name in names if Path(name).exists()]
    table = compose.prices()
    with compose.store(store, is_new_allowed=bool(files)) as kept:
        chosen = _sessions(kept, files, [name for name in names if not Path(name).exists()], every=every)
        if what == "inspect":
            found = [_parted(kept, one, table, at) for one in chosen]
            _print([one.plain() for one in found]) if json else show_parted(found)
            return 0
        accounts = [_account(kept, one, table) for one in chosen]
        rows = kept.log.sessions()
        shown = dict(zip((row.session_id for row in rows), short_ids(rows), strict=True))
    if what == "reasons":
        _reasons(accounts, last, is_json=json)
    elif json:
        _print(_plain_stats(accounts, table))
    else:
        _show_stats(accounts, shown)
    return 0


def _sessions(kept: compose.Store, files: Sequence[Path], names: Sequence[str], *, every: bool) -> list[str]:
    if not files:
        return [find_session(kept.log, name, is_replied=True).session_id for name in names or [LATEST]]
    with bar() as shown:
        return choose(
            kept, compose.counter(), files=files, names=names, latest=False, every=every, shown=shown, is_quiet=True
        ).sessions


def _dialect(kept: compose.Store, session_id: str) -> Dialect:
    first = next(iter(kept.log.read(session_id, 0, 1)), None)
    opened = first.fact if first is not None and isinstance(first.fact, SessionOpened) else None
    return compose.sent_dialect(opened, kept.blobs)


def _account(kept: compose.Store, session_id: str, table: PriceTable) -> Account:
    row = next(row for row in kept.log.sessions(session_id) if row.session_id == session_id)
    since = row.head.seq - row.events
    dialect = _dialect(kept, session_id)
    return account(kept.log, session_id, dialect, lambda model: find_price(table, model), since=since)


def _parted(kept: compose.Store, session_id: str, table: PriceTable, at: int | None) -> Parted:
    events = list(kept.log.read(session_id))
    return parted(session_id, events, _dialect(kept, session_id), lambda model: find_price(table, model), at)


def _print(value: object) -> None:
    out().print(Text(stdlib_json.dumps(value, indent=1)), soft_wrap=True)


# -- stats


def _plain_stats(accounts: Sequence[Account], table: PriceTable) -> dict[str, object]:
    return {
        "prices_dated": table.dated,
        "sessions": [msgspec.to_builtins(bill_of(one)) for one in accounts],
        "providers": {name: msgspec.to_builtins(accuracy(errors)) for name, errors in _by_provider(accounts).items()},
        "misses": _miss_counts(accounts),
    }


def _by_provider(accounts: Iterable[Account]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for one in accounts:
        if one.errors:
            found.setdefault(one.settled[-1].entry.price.provider, []).extend(one.errors)
    return found


def _miss_counts(accounts: Iterable[Account]) -> dict[str, dict[str, int]]:
    """Per provider and reason."""
    found: dict[str, Tally[str]] = {}
    for one in accounts:
        for miss in one.misses:
            found.setdefault(miss.entry.price.provider, Tally())[miss.reason] += 1
    return {name: dict(tally.most_common()) for name, tally in found.items()}


def _show_stats(accounts: Sequence[Account], names: Mapping[str, str]) -> None:
    """`names`: what a session is called in a table, by its id."""
    console = out()
    if len(accounts) == 1:
        _show_one(console, accounts[0])
        return
    columns = _columns("session", "model", ("requests", "read", "expected", "drift", "misses", "billed again", "cost"))
    rows = []
    shown = [one for one in accounts if one.settled]
    for one in shown:
        bill = bill_of(one)
        again = sum(bill.billed_again.values())
        cells = (
            printable(names[one.session_id]),
            printable(bill.model),
            f"{bill.requests:,}",
            _share(bill.hit_ratio),
            _share(bill.expected_ratio if bill.requests else None),
            f"{bill.drift_episodes}",
            f"{sum(bill.misses.values())}" if one.is_reported else "-",
            f"{again:,}" if one.is_reported else "-",
            _dollars(bill.misses_usd) + _mark(one.settled) if one.is_reported else "-",
        )
        rows.append(cells)
    if rows:
        show_table(console, columns, rows)
        _note(console, f"{_STATS} {_MISSES}", [miss for one in shown for miss in one.settled])
    if len(shown) < len(accounts):
        left = len(accounts) - len(shown)
        console.print(
            Text(
                f"Without usage, so that nothing can be said of its cache: {counted(left, 'more session')}.",
                style="dim",
            )
        )
    console.print()
    _show_accuracy(console, accounts)
    _show_counts(console, accounts)


def _show_one(console: Console, one: Account) -> None:
    bill = bill_of(one)
    about = f"{one.session_id} · {bill.model or 'no model'} · {counted(bill.requests, 'answered request')}"
    console.print(Text(printable(about), style="bold"))
    if bill.is_assumed and bill.requests:
        console.print(Text("A recording: a request is assumed before each of its replies.", style="dim"))
    if not bill.requests:
        console.print(Text("No reply reports its usage, so nothing can be said of the cache."))
        return
    if bill.cached_tokens is None:
        console.print(Text("The provider reported no cache reads or writes at all."))
    else:
        written = f", {bill.written_tokens:,} written" if bill.written_tokens else ""
        read = f"{_share(bill.hit_ratio)} of {bill.prompt_tokens:,} prompt tokens{written}"
        console.print(Text(f"read      {read}"))
    price = one.settled[-1].entry.price
    rules = f"{price.name}{' (assumed)' if price.assumed else ''}"
    off = f"; median error {bill.accuracy.median:.2%} of a prompt" if bill.accuracy else ""
    console.print(Text(f"expected  {_share(bill.expected_ratio)} by the cache rules of {rules}{off}"))
    verdicts = ", ".join(f"{count} {name}" for name, count in bill.verdicts.items())
    count = bill.drift_episodes
    drift = f"; {counted(count, 'episode')} of drift" if count else ""
    console.print(Text(f"contract  {verdicts}{drift}"))
    if bill.billed_again:
        console.print()
        costs = _costs(one.settled)
        rows = [
            (printable(why), f"{tokens:,}", f"{bill.misses.get(why, 0)}", _dollars(costs[why]))
            for why, tokens in bill.billed_again.items()
        ]
        show_table(console, _columns("billed again, by reason", "", ("tokens", "misses", "cost")), rows)
        dollars, paid = _dollars(sum(costs.values())), _dollars(bill.paid_usd)
        console.print(
            Text(f"Reading it instead would have saved {dollars} of the {paid} that prompts and replies cost.")
        )
    console.print(Text(f"{_CONTRACT}{f' {_MISSES}' if bill.billed_again else ''}", style="dim"))


def _costs(settled: Iterable[Settled]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in settled:
        for why, tokens in one.lost:
            found[why] = found.get(why, 0.0) + tokens * one.price_again / 1_000_000
    return found


def _show_accuracy(console: Console, accounts: Sequence[Account]) -> None:
    numbers = ("requests", "median error", "worst", "within 1 %", "read less", "more")
    rows = []
    for name, errors in sorted(_by_provider(accounts).items()):
        found = accuracy(errors)
        if found is not None:
            cells = (
                name,
                f"{found.compared:,}",
                f"{found.median:.2%}",
                f"{found.worst:.0%}",
                f"{found.within_1_percent:.1%}",
                f"{found.short:,}",
                f"{found.beyond:,}",
            )
            rows.append(cells)
    if rows:
        show_table(console, _columns("expected against reported", "", numbers), rows)
        console.print(Text(_ACCURACY, style="dim"))
        console.print()


def _show_counts(console: Console, accounts: Sequence[Account]) -> None:
    counts = _miss_counts(accounts).items()
    rows = [(name, printable(why), f"{count}") for name, reasons in counts for why, count in reasons.items()]
    if rows:
        show_table(console, _columns("misses", "reason", ("count",)), rows)


def _columns(first: str, second: str, numbers: Sequence[str]) -> tuple[Column, ...]:
    words = [Column(name=name, is_number=False, folds=True) for name in (first, second) if name]
    return (*words, *(Column(name=name) for name in numbers))


def _share(ratio: float | None) -> str:
    return f"{ratio:.1%}" if ratio is not None else "-"


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}"


# -- reasons


def _reasons(accounts: Sequence[Account], last: int, *, is_json: bool) -> None:
    if is_json:
        _print({one.session_id: [_plain_miss(miss) for miss in _newest(one, last)] for one in accounts})
        return
    for one in accounts:
        found = _newest(one, last)
        if not found:
            said = _NO_MISS if one.is_reported else "the provider reported nothing of its cache"
            say(f"{one.session_id}: {said}")
            continue
        _show_reasons(out(), one, found)


def _newest(one: Account, last: int) -> list[Settled]:
    return one.misses[-last:] if last else one.misses


def _plain_miss(miss: Settled) -> dict[str, object]:
    entry = miss.entry
    return {
        "step": entry.step,
        "seq": entry.seq,
        "model": entry.key,
        "prompt_tokens": entry.usage.prompt,
        "cached_tokens": entry.usage.cached,
        "expected_tokens": entry.expected,
        "could_tokens": entry.could,
        "lost": dict(miss.lost),
        "verdict": entry.verdict,
        "reasons": entry.reasons,
        "usd": miss.dollars,
    }


def _show_reasons(console: Console, one: Account, found: Sequence[Settled]) -> None:
    title = f"{one.session_id} · the newest {len(found)} of {len(one.misses)} of its misses"
    console.print(Text(printable(title), style="bold"))
    rows = []
    for miss in found:
        entry = miss.entry
        expected = f"{entry.expected:,}" if entry.expected is not None else "?"
        why = ", ".join(reason for reason, _ in miss.lost)
        numbers = (f"{entry.seq}", f"{entry.usage.prompt:,}", f"{entry.usage.cached:,}", expected, f"{miss.tokens:,}")
        rows.append((f"{entry.step}", printable(why), *numbers, _dollars(miss.dollars) + _mark([miss])))
    show_table(
        console,
        _columns("step", "billed again because of", ("event", "prompt", "read", "expected", "lost", "cost")),
        rows,
    )
    dollars = _dollars(sum(miss.dollars for miss in found))
    console.print(Text(f"Together they cost {dollars}{_mark(found)} more than reading would have."))
    _note(console, f"{_REASONS} {_MISSES}", found)


def _mark(settled: Sequence[Settled]) -> str:
    """Behind an amount that is no published price of the model's own."""
    return " *" * any(one.entry.price.assumed for one in settled)


def _note(console: Console, words: str, settled: Sequence[Settled]) -> None:
    console.print(Text(words, style="dim"))
    assumed = sorted({f"{one.entry.key} by {one.entry.price.name}" for one in settled if one.entry.price.assumed})
    if assumed:
        console.print(Text(f"* No price of its own is known: {printable(', '.join(assumed))}.", style="dim"))
