"""The cache contract (L5): each request's head and body extend the last one's, or a fact since says why not.

The pin is the last request that was a hit or a named miss. A request whose bytes moved without a declaration is
*drift*: it is reported on every request until undone, and the pin does not move; one run of them is one episode.
Declarations name components: a declared tool change does not excuse a system change, a rewritten body does not excuse
a new head.

    component    excused by
    tools        change:tools change:model change:provider change:mode resume      (reasons of a new epoch)
    params       change:params change:model change:provider change:mode resume     (forced calls)
    system       change:system change:model change:provider change:mode resume
    body         reset:*

Who is asked and with which request fields are settings, which the request's own fact states. A change of them names
itself: `change:provider`, `change:model`, `change:params`; it excuses what a provider is shown in another form (head
and body), or a model (the body: thoughts of another one are not shown), and no head that is other words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from transom.core.event import RequestSent
from transom.core.wire import Keyed, Wire, common_prefix

__all__ = [
    "COMPONENTS",
    "REASONS",
    "Pin",
    "Reason",
    "Verdict",
    "check",
    "episodes",
    "head_digest",
    "pin_of",
    "restored",
    "sent",
    "starts_with",
]

Reason: TypeAlias = Literal[
    "initial",
    "change:model",
    "change:provider",
    "change:tools",
    "change:system",
    "change:params",
    "change:mode",
    "reset:rollover",
    "reset:checkpoint",
    "reset:offload",
    "reset:mask",
    "reset:prune",
    "reset:redact",
    "reset:rewind",
    "reset:overflow",
    "reset:fifo",
    "resume",
    "ttl",
    "evicted",
]
"""The closed list of named reasons; anything else is `drift:<segment>`."""
REASONS: tuple[Reason, ...] = get_args(Reason)

COMPONENTS = ("tools", "system", "params")
"""Of the head, in the order in which `RequestSent.head` holds their digests."""
_WHOLE = frozenset({"change:model", "change:provider", "change:mode", "resume"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What the next request must extend. `rolling` is a view: only the first `messages` + 1 digests belong to it."""

    head: dict[str, str]
    rolling: Sequence[bytes]
    messages: int
    keyed: Keyed = field(default_factory=Keyed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`kept` messages of the body, and whether the head, are the pinned bytes; `reasons` name the miss or the drift."""

    kind: Literal["hit", "miss", "drift"]
    reasons: tuple[str, ...]
    head_kept: bool
    kept: int


def pin_of(wire: Wire) -> Pin:
    return Pin(head=wire.head_digests, rolling=wire.rolling, messages=wire.messages, keyed=wire.keyed)


def check(pin: Pin | None, wire: Wire, declared: Sequence[str]) -> Verdict:
    """Compare a request with the pin. Pure; O(log messages) when the body was rewritten, O(1) when it was extended."""
    if pin is None:
        return Verdict(kind="miss", reasons=("initial",), head_kept=False, kept=0)
    settings = list(_settings(pin.keyed, wire.keyed))
    named, drifted = list(settings), list[str]()
    for component in COMPONENTS:
        if pin.head[component] != wire.head_digests[component] and "change:provider" not in settings:
            why = _excuse(declared, _WHOLE | {f"change:{component}"})
            (named.extend(why) if why else drifted.append(_first_change(pin, wire, component)))
    head_kept = all(pin.head[component] == wire.head_digests[component] for component in ("tools", "system"))
    kept = common_prefix(pin.rolling, pin.messages, wire.rolling, wire.messages)
    if kept < pin.messages:
        why = [reason for reason in declared if reason.startswith("reset:")]
        why = why or _excuse(settings, frozenset({"change:model", "change:provider"}))
        (named.extend(why) if why else drifted.append(f"drift:message[{kept}]"))
    if pin.head["params"] != wire.head_digests["params"] or "change:params" in settings:
        kept = 0  # tools and system may still be read, the messages behind them are keyed on it
    if drifted:
        return Verdict(kind="drift", reasons=tuple(drifted), head_kept=head_kept, kept=kept)
    if named:
        return Verdict(kind="miss", reasons=tuple(dict.fromkeys(named)), head_kept=head_kept, kept=kept)
    return Verdict(kind="hit", reasons=(), head_kept=True, kept=kept)


def _settings(pinned: Keyed, now: Keyed) -> Iterator[str]:
    """What a setting that is known of both requests has changed."""
    if pinned.provider and now.provider and pinned.provider != now.provider:
        yield "change:provider"
    if pinned.model and now.model:
        if pinned.model != now.model:
            yield "change:model"
        if pinned.fields != now.fields:
            yield "change:params"


def _excuse(declared: Sequence[str], accepted: frozenset[str]) -> list[str]:
    return [reason for reason in declared if reason in accepted]


def _first_change(pin: Pin, wire: Wire, component: str) -> str:
    """The first segment that is new, gone or other bytes; the component if only the order changed."""
    names = [segment.name for segment in wire.head if segment.name.startswith(component)]
    for name in names:
        if pin.head.get(name) != wire.head_digests[name]:
            return f"drift:{name}"
    gone = (name for name in pin.head if name.startswith(f"{component}:") and name not in names)
    return f"drift:{next(gone, component)}"


def starts_with(wire: Wire, pinned: RequestSent) -> bool:
    """Whether a request begins with the pinned bytes."""
    end = pinned.body_messages
    return head_digest(wire) == pinned.head and end <= wire.messages and wire.rolling[end].hex() == pinned.body


def head_digest(wire: Wire) -> str:
    """What `RequestSent.head` holds."""
    return "".join(wire.head_digests[component] for component in COMPONENTS)


def restored(pinned: RequestSent, wire: Wire) -> Pin:
    """The pin as the log has it. Bytes that render otherwise now (another kernel, another dialect) are seen: what the
    log stored does not follow from them, so none of them count as kept."""
    size = len(pinned.head) // len(COMPONENTS)
    head = {name: pinned.head[place * size :][:size] for place, name in enumerate(COMPONENTS)}
    end = pinned.body_messages
    if head_digest(wire) == pinned.head:
        head = wire.head_digests
    rolling = wire.rolling
    if end > wire.messages or rolling[end].hex() != pinned.body:
        rolling = [*(b"" for _ in range(end)), bytes.fromhex(pinned.body)]
    keyed = Keyed(provider=pinned.provider, model=pinned.model, fields=pinned.fields)
    return Pin(head=head, rolling=rolling, messages=end, keyed=keyed)


def sent(wire: Wire, verdict: Verdict, tokens: int, tail_tokens: int = 0) -> RequestSent:
    """The fact on a request of so many tokens, its tail's among them; appended before it is sent."""
    return RequestSent(
        head=head_digest(wire),
        body=wire.rolling[wire.messages].hex(),
        body_messages=wire.messages,
        verdict=verdict.kind,
        reasons=verdict.reasons,
        tokens=tokens,
        tail_tokens=tail_tokens,
        provider=wire.keyed.provider,
        model=wire.keyed.model,
        fields=wire.keyed.fields,
    )


def episodes(verdicts: Iterable[str]) -> int:
    """Runs of drift: the alarm is one episode, however many requests it lasts."""
    found, before = 0, ""
    for verdict in verdicts:
        found += verdict == "drift" != before
        before = verdict
    return found
