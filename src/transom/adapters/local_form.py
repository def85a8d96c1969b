"""The form a local model fills in: one JSON schema over the tools it may call now, and words.

A string without a bound may run until the output limit and leave half an object. So each string gets a share of the
output that is left, and each list a number of members: the longest answer that fits the form fits the limit, as long
as its text is no denser than `CHARS_A_TOKEN`. What a schema says beyond the few words samplers understand is left to
the tool, which checks its arguments anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from transom.adapters.local_dialect import Schema, Shown

__all__ = ["CHARS_A_TOKEN", "Answer", "form", "read_answer"]

MOST_ITEMS = 3
"""Members of a list: a handoff of the four sections and its files then has 21 strings, which share the output."""
CHARS_A_TOKEN = 3
"""Fewer than the 4 of English prose: paths, quotes and escapes are denser."""
FRAME_TOKENS = 10
"""Of the key, the quotes and the separators around one string."""
SHORTEST = 16

_KEPT = ("const", "enum", "maximum", "minimum", "minItems", "minLength", "type")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a model filled in; `arguments` keeps the text it wrote."""

    tool: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    say: str = ""


_ANSWER = msgspec.json.Decoder(Answer)


def form(tools: Sequence[Shown], *, forced: str, room_tokens: int) -> Schema:
    """The schema of an answer of at most `room_tokens`: one of `tools`, or words; the `forced` one alone."""
    one_of: list[Schema] = [
        _object({"tool": {"const": tool.name}, "arguments": _bounded(tool.parameters, room_tokens)})
        for tool in tools
        if not forced or tool.name == forced
    ]
    if not forced or not one_of:
        one_of.append(_object({"say": _bounded({"type": "string"}, room_tokens)}))
    return {"anyOf": one_of}


def read_answer(text: str) -> Answer | None:
    """The filled form, None if it is cut or none."""
    try:
        return _ANSWER.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None


def _object(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _bounded(schema: Schema, room_tokens: int) -> Schema:
    strings = max(1, _strings(schema))
    room = CHARS_A_TOKEN * (room_tokens - FRAME_TOKENS * (strings + 1))
    return _plain(schema, max(SHORTEST, room // strings))


def _kinds(schema: Schema) -> list[object]:
    kinds = schema.get("anyOf", schema.get("oneOf"))
    return kinds if isinstance(kinds, list) else []


def _named(schema: Schema) -> dict[str, object]:
    named = schema.get("properties")
    return named if isinstance(named, dict) else {}


def _is_free(schema: Schema) -> bool:
    return schema.get("type") == "string" and "enum" not in schema and "const" not in schema


def _strings(schema: object) -> int:
    """Free strings of the longest value."""
    if not isinstance(schema, dict):
        return 0
    if kinds := _kinds(schema):
        return max(map(_strings, kinds))
    if schema.get("type") == "array":
        return _most(schema) * _strings(schema.get("items"))
    return sum(map(_strings, _named(schema).values())) + _is_free(schema)


def _most(schema: Schema) -> int:
    most = schema.get("maxItems")
    return min(most, MOST_ITEMS) if isinstance(most, int) else MOST_ITEMS


def _plain(schema: object, longest: int) -> Schema:
    """What samplers understand of a schema; anything else, such as a `$ref`, is any JSON value."""
    if not isinstance(schema, dict):
        return {}
    if kinds := _kinds(schema):
        return {"anyOf": [_plain(kind, longest) for kind in kinds]}
    made: Schema = {key: schema[key] for key in _KEPT if key in schema}
    if _is_free(schema):
        own = schema.get("maxLength")
        made["maxLength"] = min(own, longest) if isinstance(own, int) else longest
    if schema.get("type") == "array":
        made["items"], made["maxItems"] = _plain(schema.get("items"), longest), _most(schema)
    if named := _named(schema):
        made["properties"] = {key: _plain(one, longest) for key, one in named.items()}
        made["required"] = schema.get("required", [])
        made["additionalProperties"] = False
    return made
