"""The cache contract (L5): each request's head and body extend the last one's, or a fact since says why not.

The pin is the last request that was a hit or a named miss. A request whose bytes moved without a declaration is
*drift*: it is reported on every request until undone, and the pin does not move. Declarations name components: a
declared tool change does not excuse a system change, a rewritten body does not excuse a new head.

    component    excused by
    tools        change:tools change:model change:provider change:mode resume
    params       change:params change:model change:provider change:mode resume
    system       change:system change:model change:provider change:mode resume
    body         reset:*
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from transom.core.event import RequestSent
from transom.core.wire import Wire, common_prefix

__all__ = ["COMPONENTS", "REASONS", "Pin", "Verdict", "check", "head_digest", "pin_of", "restored", "starts_with"]

REASONS = (
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
)
"""The closed list of named reasons; anything else is `drift:<segment>`."""

COMPONENTS = ("tools", "system", "params")
"""Of the head, in the order in which `RequestSent.head` holds their digests."""
_WHOLE = frozenset({"change:model", "change:provider", "change:mode", "resume"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """What the next request must extend. `rolling` is a view: only the first `messages` + 1 digests belong to it."""

    head: dict[str, str]
    rolling: Sequence[bytes]
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`kept` messages of the body, and whether the head, are the pinned bytes; `reasons` name the miss or the drift."""

    kind: Literal["hit", "miss", "drift"]
    reasons: tuple[str, ...]
    head_kept: bool
    kept: int


def pin_of(wire: Wire) -> Pin:
    return Pin(head=wire.head_digests, rolling=wire.rolling, messages=wire.messages)


def check(pin: Pin | None, wire: Wire, declared: Sequence[str]) -> Verdict:
    """Compare a request with the pin. Pure; O(log messages) when the body was rewritten, O(1) when it was extended."""
    if pin is None:
        return Verdict(kind="miss", reasons=("initial",), head_kept=False, kept=0)
    named: list[str] = []
    drifted: list[str] = []
    for component in COMPONENTS:
        if pin.head[component] != wire.head_digests[component]:
            why = _excuse(declared, _WHOLE | {f"change:{component}"})
            (named.extend(why) if why else drifted.append(_first_change(pin, wire, component)))
    head_kept = all(pin.head[component] == wire.head_digests[component] for component in ("tools", "system"))
    kept = common_prefix(pin.rolling, pin.messages, wire.rolling, wire.messages)
    if kept < pin.messages:
        why = [reason for reason in declared if reason.startswith("reset:")]
        (named.extend(why) if why else drifted.append(f"drift:message[{kept}]"))
    if pin.head["params"] != wire.head_digests["params"]:
        kept = 0  # tools and system may still be read, the messages behind them are keyed on it
    if drifted:
        return Verdict(kind="drift", reasons=tuple(drifted), head_kept=head_kept, kept=kept)
    if named:
        return Verdict(kind="miss", reasons=tuple(dict.fromkeys(named)), head_kept=head_kept, kept=kept)
    return Verdict(kind="hit", reasons=(), head_kept=True, kept=kept)


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
    return Pin(head=head, rolling=rolling, messages=end)
