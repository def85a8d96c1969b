"""Messages of the Chat Completions API: whose they are, by what they are known again, and what facts they say.

A reasoning model's words come back in fields of the message (`reasoning_content`, `reasoning_details`, …); all of them
are one thought, whose opaque part is the object of these fields. A call of a custom tool is a call like any other; its
own form stands in the reply's `wire`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

import msgspec

from transom.adapters.provider_writing import written_object
from transom.core.block import Block, Opaque, Thought, ToolCall
from transom.core.event import Fact, HostSaid, ModelReplied, ToolReturned, UserSaid
from transom.core.state import Role
from transom.core.wire import Dialect
from transom.gateway.face import Speaker, standing
from transom.gateway.face_openai import asides, is_set, object_of, sorted_or_raw, unmarked, voice, wire_of, words
from transom.importers.fields import raw_text, read
from transom.importers.messages import Message, call_blocks, content_blocks, result_blocks, text_or_raw
from transom.ports import Blobs

__all__ = ["HEAD_ROLES", "call_ids", "canonical_of", "facts_of", "role_of", "speaker_of", "text_of"]

HEAD_ROLES = frozenset({"system", "developer"})
_RESULT_ROLES = frozenset({"tool", "function"})
_REASONED = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")
"""Fields in which servers show a model's reasoning and want it back; the first two are its words."""
_PARTS = frozenset({"type", "text"})


class _Role(msgspec.Struct):
    role: str = ""


class _Spoken(msgspec.Struct):
    role: str = ""
    content: str | list[msgspec.Raw] | None = None
    refusal: str | None = None


class _Custom(msgspec.Struct):
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b'""')


class _Call(msgspec.Struct):
    id: str = ""
    custom: _Custom | None = None


class _Named(msgspec.Struct):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b'""')


class _Calling(msgspec.Struct):
    tool_calls: list[_Call] | None = None
    function_call: _Named | None = None


_ROLE = msgspec.json.Decoder(_Role)
_SPOKEN = msgspec.json.Decoder(_Spoken)
_MESSAGE = msgspec.json.Decoder(Message)
_CALL = msgspec.json.Decoder(_Call)
_CALLING = msgspec.json.Decoder(_Calling)
_NAMED = msgspec.json.Decoder(_Named)


def role_of(element: bytes) -> str:
    found = read(element, _ROLE)
    return found.role if found is not None else ""


def speaker_of(element: bytes) -> Speaker:
    role = role_of(element)
    if role == "assistant":
        return "assistant"
    if role in _RESULT_ROLES:
        return "tool"
    spoken = read(element, _SPOKEN) if role == "user" else None
    return _whose(spoken.content) if spoken is not None else "host"


def call_ids(element: bytes) -> tuple[str, ...]:
    found = read(element, _CALLING)
    if found is None:
        return ()
    old = (found.function_call.name,) if found.function_call is not None else ()
    return (*(call.id for call in found.tool_calls or ()), *old)


def text_of(element: bytes) -> str:
    spoken = read(element, _SPOKEN)
    if spoken is None or spoken.role in _RESULT_ROLES:
        return ""
    return "\n\n".join((*words(spoken.content), *([spoken.refusal] if spoken.refusal else [])))


# -- known again


def canonical_of(element: bytes, *, keeps_arguments: bool = False) -> bytes:
    """As `Face.canonical`; `keeps_arguments` for comparing what we write with what a client wrote."""
    return sorted_or_raw(element, lambda value: _canonical(value, keeps_arguments=keeps_arguments))


def _canonical(value: object, *, keeps_arguments: bool) -> object:
    if not isinstance(value, dict):
        return value
    found = unmarked(value)
    content, calls = found.get("content"), found.get("tool_calls")
    if isinstance(content, list):
        found["content"] = _content(content)
    if isinstance(calls, list):
        found["tool_calls"] = [_call(call, keeps_arguments=keeps_arguments) for call in calls]
    return found


def _content(parts: Sequence[object]) -> object:
    shown = [_part(part) if isinstance(part, dict) else part for part in parts]
    only = shown[0] if len(shown) == 1 else None
    if isinstance(only, dict) and set(only) == _PARTS and only["type"] == "text" and isinstance(only["text"], str):
        return only["text"]
    return shown


def _part(part: Mapping[str, object]) -> object:
    found = unmarked(part)
    picture = found.get("image_url")
    if isinstance(picture, dict) and picture.get("detail") == "auto":  # what it is if nothing is said
        found["image_url"] = unmarked(picture, "detail")
    return found


def _call(call: object, *, keeps_arguments: bool) -> object:
    if not isinstance(call, dict):
        return call
    found = unmarked(call, "index")
    function = found.get("function")
    if isinstance(function, dict) and not keeps_arguments:
        found["function"] = unmarked(function, "arguments")
    return found


# -- facts


def facts_of(elements: Sequence[bytes], blobs: Blobs, dialect: Dialect) -> Iterator[Fact]:
    run: list[bytes] = []
    for element in elements:
        if speaker_of(element) == "assistant":
            run.append(element)
            continue
        if run:
            yield _reply(run, blobs, dialect)
            run = []
        yield _said(element, blobs, dialect)
    if run:
        yield _reply(run, blobs, dialect)


def _reply(elements: Sequence[bytes], blobs: Blobs, dialect: Dialect) -> Fact:
    blocks = tuple(block for element in elements for block in _reply_blocks(element, blobs))
    return ModelReplied(blocks=blocks, wire=_wire(dialect, "assistant", blocks, "", elements))


def _reply_blocks(element: bytes, blobs: Blobs) -> Iterator[Block]:
    message = read(element, _MESSAGE)
    if message is None:
        yield Opaque(kind="message", raw=raw_text(element))
        return
    fields = object_of(element)
    reasoned = {name: fields[name] for name in _REASONED if is_set(fields.get(name))}
    if reasoned:
        shown = (text_or_raw(msgspec.Raw(reasoned[name])) for name in _REASONED[:2] if name in reasoned)
        yield Thought(text=next(shown, ""), opaque=raw_text(written_object(reasoned)))
    yield from content_blocks(message.content, blobs)
    old = read(message.function_call, _NAMED)
    if old is not None and old.name:  # has no id: its result names the function
        yield ToolCall(call_id=old.name, name=old.name, arguments=text_or_raw(old.arguments))
    named = hashlib.sha256(element).hexdigest()[:12]
    for number, raw in enumerate(message.tool_calls or (), 1):
        call = read(raw, _CALL)
        if call is not None and call.custom is not None:
            yield ToolCall(call_id=call.id, name=call.custom.name, arguments=text_or_raw(call.custom.input))
        else:
            yield from call_blocks((raw,), f"{named}.{number}")


def _said(element: bytes, blobs: Blobs, dialect: Dialect) -> Fact:
    message = read(element, _MESSAGE)
    if message is None or message.role not in {*HEAD_ROLES, *_RESULT_ROLES, "user"}:
        kind = message.role if message is not None else ""
        blocks: tuple[Block, ...] = (Opaque(kind=kind or "message", raw=raw_text(element)),)
        return HostSaid(kind="injected", blocks=blocks, wire=_wire(dialect, "host", blocks, "", (element,)))
    if message.role in _RESULT_ROLES:
        call_id, blocks = message.tool_call_id or message.name or "", result_blocks(message.content, blobs)
        wire = _wire(dialect, "tool", blocks, call_id, (element,))
        return ToolReturned(call_id=call_id, blocks=blocks, wire=wire)
    blocks = content_blocks(message.content, blobs)
    if message.role == "user" and _whose(message.content) == "user":
        blocks = asides(blocks)
        return UserSaid(blocks=blocks, wire=_wire(dialect, "user", blocks, "", (element,)))
    stands = standing(message.role, blocks) if message.role in HEAD_ROLES else ""
    return HostSaid(kind="injected", blocks=blocks, wire=_wire(dialect, "host", blocks, "", (element,)), stands=stands)


def _whose(content: str | Sequence[msgspec.Raw] | None) -> Literal["user", "host"]:
    return voice(words(content))


def _wire(dialect: Dialect, role: Role, blocks: tuple[Block, ...], call_id: str, elements: Sequence[bytes]) -> str:
    return wire_of(dialect, (role, blocks, call_id), elements, partial(canonical_of, keeps_arguments=True))
