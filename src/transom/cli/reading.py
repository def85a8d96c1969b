"""Events in words: who, how much, one line of it, all of it. Text is as it was logged; printing makes it harmless."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from transom.core.block import Block, Image, Opaque, Text, Thought, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.canon import canonical
from transom.core.event import (
    BlockReplaced,
    EpochOpened,
    Fact,
    HostSaid,
    ModelReplied,
    Observed,
    RecallMissed,
    RequestSent,
    SectionChanged,
    SessionOpened,
    SourceRead,
    ToolDispatched,
    ToolReturned,
    UserDisposed,
    UserSaid,
    WindowOpened,
    WindowRefused,
    provenance,
)
from transom.core.searchable import text_of
from transom.errors import Damaged
from transom.lab.tables import counted

__all__ = ["as_far_as_sound", "block_kind", "block_words", "headline", "plain_json", "speaker", "tokens_of", "whole"]

_ONE_LINE = 400
"""Characters of a line that are looked at for a headline: more than any terminal shows."""


T = TypeVar("T")


def as_far_as_sound(read: Iterable[T]) -> tuple[list[T], str]:
    """What can be read of a log, and what is wrong with the place at which it ends; empty if nothing is."""
    good: list[T] = []
    try:
        good.extend(read)
    except Damaged as problem:
        return good, str(problem)
    return good, ""


def speaker(fact: Fact) -> str:
    """Who a fact comes from; what was never shown to the model is said to be so."""
    return "unseen" if isinstance(fact, Observed) else provenance(fact)


def tokens_of(fact: Fact) -> int:
    """Counted tokens of what it put before the model."""
    if isinstance(fact, UserSaid | HostSaid | ModelReplied | ToolReturned):
        return sum(block.tokens for block in fact.blocks)
    if isinstance(fact, WindowOpened):
        return sum(block.tokens for seed in fact.seed for block in seed.blocks)
    if isinstance(fact, EpochOpened):
        shown = sum(section.tokens for section in fact.sections) + sum(tool.tokens for tool in fact.tools)
        return shown + fact.unseen_tokens
    return 0


def headline(fact: Fact) -> str:
    """One line of it."""
    match fact:
        case ModelReplied():
            calls = [f"→ {block.name} {block.arguments}" for block in fact.blocks if isinstance(block, ToolCall)]
            said = [block.text for block in fact.blocks if isinstance(block, Text) and block.text.strip()]
            thought = ["(thinking)" for block in fact.blocks if isinstance(block, Thought)]
            return " ".join(_first_line(part) for part in said + calls or thought or ["(nothing)"])
        case HostSaid() if fact.sections:
            return f"says anew: {', '.join(fact.sections)}"
        case UserSaid() | HostSaid() | ToolReturned():
            words = [block for block in fact.blocks if not isinstance(block, Opaque)] or fact.blocks
            shown = next((line for block in words if (line := _first_line(block_words(block)))), "(nothing)")
            return f"error: {shown}" if isinstance(fact, ToolReturned) and fact.is_error else shown
        case SessionOpened():
            return f"session opened: {fact.agent} {fact.agent_version} {fact.model} {fact.workspace}"
        case SourceRead():
            return f"read {fact.path}: {counted(fact.size, 'byte')} of {fact.format}"
        case Observed():
            return f"{fact.kind}: {_first_line(fact.raw)}"
        case EpochOpened():
            return (
                f"head: {counted(len(fact.sections), 'section')}, {counted(len(fact.tools), 'tool')}, "
                f"{counted(fact.unseen_tokens, 'token')} unseen"
            )
        case WindowOpened():
            return f"a new window opened: {fact.cause}, generation {fact.generation}"
        case WindowRefused():
            return f"no new window: {fact.reason}"
        case BlockReplaced():
            return f"{counted(len(fact.targets), 'block')} replaced: {fact.how}"
        case SectionChanged():
            return f"{fact.key} changed: {_one_line(fact.text)}" if fact.text else f"{fact.key}: no longer there"
        case ToolDispatched():
            return f"runs {' '.join(fact.call_ids)}"
        case RecallMissed():
            return f"nothing found: {_one_line(fact.query)}"
        case UserDisposed():
            return f"the user's message in event {fact.seq} is {fact.disposition}"
        case RequestSent():
            return f"request: {fact.verdict} {' '.join(fact.reasons)}"
        case _:
            return _first_line(text_of(fact)) or plain_json(fact)


def whole(fact: Fact) -> Iterator[tuple[str, str]]:
    """(what it is, its text) of every block; a fact without blocks is its JSON."""
    if isinstance(fact, UserSaid | HostSaid | ModelReplied | ToolReturned):
        for block in fact.blocks:
            yield f"{block_kind(block)}, {block.tokens:,} tokens", block_words(block)
    elif isinstance(fact, Observed):
        yield fact.kind, fact.raw
    elif isinstance(fact, SectionChanged):
        yield fact.key, fact.text if fact.text is not None else "no longer there"
    else:
        yield "fact", msgspec.json.format(canonical(fact), indent=2).decode("utf-8", "replace")


def block_kind(block: Block) -> str:
    """The block's word of the glossary."""
    tag = type(block).__struct_config__.tag
    return str(tag).replace("_", " ")


def block_words(block: Block) -> str:
    """What a reader sees of it."""
    match block:
        case Text() | Thought() | ToolResultRaw() | ToolResultRef():
            return block.text
        case ToolCall():
            return f"{block.name} {block.arguments}"
        case Image():
            return f"[image {block.media_type}, {block.size:,} bytes{' ' + block.url if block.url else ''}]"
        case Opaque():
            return f"[{block.kind}, {len(block.raw):,} bytes of the provider's own]"


def plain_json(fact: Fact) -> str:
    """Canonical JSON as text."""
    return canonical(fact).decode("utf-8", "replace")


def _one_line(text: str) -> str:
    return " ".join(text[:_ONE_LINE].split())


def _first_line(text: str) -> str:
    start = text.lstrip()[:_ONE_LINE]
    return start.splitlines()[0].strip() if start else ""
