"""Hypothesis strategies for everything that is stored: text with every trap, blocks, every fact, drafts.

Structs are built from their own annotations, so a new fact or field is covered on the day it is added.
"""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

from transom.core.block import Block
from transom.core.event import Draft, Fact, SessionOpened

__all__ = ["FACT_TYPES", "blocks", "drafts", "facts", "integers", "of", "texts"]

FACT_TYPES: tuple[type[msgspec.Struct], ...] = get_args(Fact)
"""The members of the closed union, in its order."""

_TRAPS = (
    "\ud83d",  # half of an emoji
    "\udc00 tail",
    "\0",
    "\x1b[31mred\x1b[0m\r\n",
    "\u2028\u2029\ufeff",
    "压缩上下文",
    "ファイル 한국어",
    "café cafe\u0301 İıſẞΣς",
    "👩‍👩‍👧",
    '{"fact":"user_said","artifact_id":""}',
    "</handoff> <related_files>",
    "HTTPServerError tool_call_id a/b.py:12",
)


def texts() -> st.SearchStrategy[str]:
    """Text with lone surrogates, NUL, controls, CJK, and text that imitates our own forms."""
    plain = st.text(max_size=40)
    wild = st.text(st.characters(), max_size=12)
    return st.one_of(plain, wild, st.sampled_from(_TRAPS), st.tuples(plain, st.sampled_from(_TRAPS)).map("".join))


def integers() -> st.SearchStrategy[int]:
    """Integers of the stored range: 64 bits signed, its ends and those of a double's exact range among them."""
    ends = st.sampled_from([0, -1, 2**31, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)])
    return st.one_of(st.integers(min_value=-(2**63), max_value=2**63 - 1), st.integers(-9, 99), ends)


def of(annotation: Any) -> st.SearchStrategy[Any]:
    """A strategy for one annotation of a stored struct."""
    origin = get_origin(annotation)
    arguments = get_args(annotation)
    if origin in {Union, types.UnionType}:
        return st.one_of([of(argument) for argument in arguments])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(st.deferred(lambda: of(arguments[0])), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*(of(argument) for argument in arguments))
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        hints = get_type_hints(annotation)
        return st.builds(annotation, **{name: of(hints[name]) for name in annotation.__struct_fields__})
    return {str: texts(), int: integers(), bool: st.booleans(), type(None): st.none()}[annotation]


def blocks() -> st.SearchStrategy[Block]:
    """Any block."""
    return of(Block)


def facts() -> st.SearchStrategy[Fact]:
    """Any fact, every type alike."""
    return of(Fact)


def drafts() -> st.SearchStrategy[Draft]:
    """Any draft that may stand behind a session's first event."""
    names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
    later = facts().filter(lambda fact: not isinstance(fact, SessionOpened))
    return st.builds(Draft, fact=later, uuid=names, at=integers())
