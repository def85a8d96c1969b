"""Where two requests part: the first segment in the provider's order, and the first byte of it, that differ."""

from __future__ import annotations

from dataclasses import dataclass

from transom.core.cache import Verdict
from transom.core.wire import Wire, common_prefix

__all__ = ["Difference", "drifted_at", "first_difference", "head_changes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """`segment` is `tools:<name>`, `system:<key>`, `params` or `message[<place>]`; `byte` counts from its start. A side
    is empty where its request has no such segment."""

    segment: str
    byte: int
    before: bytes
    after: bytes


def first_difference(before: Wire, after: Wire) -> Difference | None:
    """None if the second begins with the first, byte for byte."""
    for place, one in enumerate(before.head):
        other = after.head[place] if place < len(after.head) else None
        if other is None or other.name != one.name:
            if other is not None and other.name not in {segment.name for segment in before.head}:
                return _parted(other.name, b"", other.data)
            return _parted(one.name, one.data, _named(after, one.name) if other is None else other.data)
        if other.data != one.data:
            return _parted(one.name, one.data, other.data)
    if len(after.head) > len(before.head):
        grown = after.head[len(before.head)]
        return _parted(grown.name, b"", grown.data)
    if before.head_digests["params"] != after.head_digests["params"]:
        return Difference(segment="params", byte=0, before=b"", after=b"")
    same = common_prefix(before.rolling, before.messages, after.rolling, after.messages)
    if same == before.messages:
        return None
    return _parted(f"message[{same}]", before.body[same], after.body[same] if same < after.messages else b"")


def head_changes(before: Wire, after: Wire) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the head's segments that are new, and of those that are gone."""
    old, new = [one.name for one in before.head], [one.name for one in after.head]
    return tuple(name for name in new if name not in old), tuple(name for name in old if name not in new)


def drifted_at(verdict: Verdict, before: Wire | None, after: Wire) -> Difference | None:
    """Where a request that drifted leaves the one it had to extend, if that one is at hand."""
    return first_difference(before, after) if verdict.kind == "drift" and before is not None else None


def _named(wire: Wire, name: str) -> bytes:
    return next((one.data for one in wire.head if one.name == name), b"")


def _parted(segment: str, before: bytes, after: bytes) -> Difference:
    pairs = zip(before, after, strict=False)
    byte = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(before), len(after)))
    return Difference(segment=segment, byte=byte, before=before, after=after)
