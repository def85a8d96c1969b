"""Where a request parts from the one before: both are rendered again from the log and compared segment by segment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from transom.cli.terminal import out, printable, printable_lines
from transom.core.difference import Difference, first_difference, head_changes
from transom.core.event import Event
from transom.core.ledger import Prices, Request, ledger, requests
from transom.core.losses import Settled, settle
from transom.core.wire import Dialect
from transom.errors import UsageError
from transom.lab.tables import counted

__all__ = ["Parted", "excerpt", "parted", "show_parted"]

_BEFORE, _BEHIND = 60, 100
"""Bytes shown before the first one that differs, and from it on."""
_NAMED = 20
"""Tools and sections that are named; `--json` has them all."""
_HERE = "▶"
_ENDS, _ABSENT = "(ends here)", "(not there)"
"""Of the one that is the start of the other, and of one that its request does not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """One request beside the one before. `money` is what was read of it, if its reply reported usage."""

    session_id: str
    before: Request | None
    request: Request
    difference: Difference | None
    money: Settled | None

    @property
    def head_changes(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Tools and sections that are new, and those that are gone."""
        return head_changes(self.before.wire, self.request.wire) if self.before else ((), ())

    def plain(self) -> dict[str, object]:
        """For JSON."""
        found = self.difference
        entry = self.money.entry if self.money else None
        return {
            "session": self.session_id,
            "seq": self.request.seq,
            "before_seq": self.before.seq if self.before else None,
            "verdict": self.request.verdict,
            "reasons": self.request.reasons,
            "is_as_sent": self.request.is_as_sent,
            "segment": found.segment if found else None,
            "byte": found.byte if found else None,
            "before": excerpt(found.before, found.byte) if found else None,
            "after": excerpt(found.after, found.byte) if found else None,
            "head_added": self.head_changes[0],
            "head_gone": self.head_changes[1],
            "messages": self.request.wire.messages,
            "messages_before": self.before.wire.messages if self.before else 0,
            "cached_tokens": entry.usage.cached if entry else None,
            "expected_tokens": entry.expected if entry else None,
            "could_tokens": entry.could if entry else None,
            "lost": dict(self.money.lost) if self.money else {},
        }


def parted(session_id: str, events: Sequence[Event], dialect: Dialect, prices: Prices, at: int | None) -> Parted:
    """The request that event `at` answers, else the first at or after it; without it the newest whose bytes do not
    extend the one before, else the newest that was billed again, else the newest. Raises `UsageError` if there is
    none."""
    sent = list(requests(events, dialect, prices))
    if not sent:
        raise UsageError(f"{session_id}: no request of a model in it")
    settled = settle(list(ledger(events, dialect, prices)))
    pairs = [(sent[place - 1] if place else None, one) for place, one in enumerate(sent)]
    answers = {one.entry.seq for one in settled}
    chosen = _at(session_id, pairs, at, is_answer=at in answers) if at is not None else _newest(pairs, settled)
    before, request = pairs[chosen]
    later = sent[chosen + 1].seq if chosen + 1 < len(sent) else events[-1].seq + 1
    return Parted(
        session_id=session_id,
        before=before,
        request=request,
        difference=first_difference(before.wire, request.wire) if before else None,
        money=next((one for one in settled if request.seq <= one.entry.seq < later), None),
    )


def _at(session_id: str, pairs: Sequence[tuple[Request | None, Request]], at: int, *, is_answer: bool) -> int:
    if is_answer:
        return max(place for place, (_, one) in enumerate(pairs) if one.seq <= at)
    found = next((place for place, (_, one) in enumerate(pairs) if one.seq >= at), None)
    if found is None:
        raise UsageError(f"--at {at}: no request of {session_id} stands there or after it")
    return found


def _newest(pairs: Sequence[tuple[Request | None, Request]], settled: Sequence[Settled]) -> int:
    places = range(len(pairs) - 1, 0, -1)
    for place in places:
        before, one = pairs[place]
        if before is not None and first_difference(before.wire, one.wire) is not None:
            return place
    missed = {one.entry.seq for one in settled if one.is_miss}
    for place in places:
        later = pairs[place + 1][1].seq if place + 1 < len(pairs) else None
        if any(seq >= pairs[place][1].seq and (later is None or seq < later) for seq in missed):
            return place
    return len(pairs) - 1


def excerpt(data: bytes, byte: int) -> str:
    """The bytes around the first one that differs, as text with a mark before it; empty for no bytes."""
    if not data:
        return ""
    start, end = max(0, byte - _BEFORE), byte + _BEHIND
    same, other = data[start:byte].decode("utf-8", "replace"), data[byte:end].decode("utf-8", "replace")
    return f"{'…' if start else ''}{same}{_HERE}{other}{'…' if end < len(data) else ''}"


def show_parted(found: Sequence[Parted]) -> None:
    """For a person."""
    for one in found:
        _show(one)


def _line(text: str, style: str = "") -> None:
    indent = len(text) - len(text.lstrip())
    out().print(Text(" " * indent + printable(text), style=style), soft_wrap=True)


def _show(one: Parted) -> None:
    request, before = one.request, one.before
    named = f": {', '.join(request.reasons)}" if request.reasons else ""
    reply = one.money.entry.seq if one.money else request.seq
    answered = f", answered at event {reply}" if reply != request.seq else ""
    _line(f"{one.session_id} · the request at event {request.seq}{answered} · {request.verdict}{named}", "bold")
    if before is None:
        _line("It is the first: there is nothing to compare it with.")
    elif one.difference is None:
        more = request.wire.messages - before.wire.messages
        shared = counted(before.wire.messages, "message")
        _line(f"It begins with the one before, all of its {shared}; behind them: {more}.")
    else:
        _show_difference(one.difference)
        for names, what in zip(one.head_changes, ("new in the head", "gone from the head"), strict=True):
            if names:
                others = f", and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
                _line(f"  {what}, {len(names)}: {', '.join(names[:_NAMED])}{others}")
    if one.money is not None:
        entry = one.money.entry
        expected = f"{entry.expected:,}" if entry.expected is not None else "not known"
        sizes = f"{entry.usage.cached:,} of {entry.usage.prompt:,} tokens; by the rules {expected}"
        _line(f"read: {sizes}; at most {entry.could:,}, the prompt before")
        for why, tokens in one.money.lost:
            _line(f"  {tokens:,} billed again: {why}")
    if not request.is_as_sent:
        _line("Rendered as a replay does: the log does not say, or not in this form, which bytes were sent.", "dim")


def _show_difference(found: Difference) -> None:
    if not found.before and not found.after:
        _line(f"first difference: {found.segment}, which no text shows (a forced call, or request fields)")
        return
    sizes = f"{counted(len(found.before), 'byte')} before, {len(found.after):,} after"
    _line(f"first difference: {found.segment}, byte {found.byte:,} ({sizes})", "cyan")
    for name, data in (("before", found.before), ("after ", found.after)):
        shown = excerpt(data, found.byte)
        said = f"{shown}{_ENDS * (found.byte == len(data))}" if shown else _ABSENT
        exact = (
            printable_lines(said).replace("\n", "⏎").replace("\t", "⇥")
        )  # two spaces for one may be all that differs
        out().print(Text(f"  {name} {exact}"), soft_wrap=True)
