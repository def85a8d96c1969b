"""Several answers of OpenAI's APIs as one: what they cost, and words a paragraph apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from transom.adapters.provider_writing import written_object
from transom.gateway.face_openai import digits_of, is_set, object_of
from transom.importers.fields import read

__all__ = ["CHAT_USAGE", "GAP", "RESPONSES_USAGE", "finish_reason", "joined_usage", "joined_words", "takes_none"]

GAP = b"\\n\\n"
"""Between the words of two answers, in raw JSON."""
CHAT_USAGE = ("prompt_tokens", "completion_tokens")
RESPONSES_USAGE = ("input_tokens", "output_tokens")
_COST = msgspec.json.Decoder(float)


def joined_words(texts: Iterable[bytes]) -> bytes:
    """JSON strings as one; what is none is left out."""
    found = [raw[1:-1] for raw in texts if raw.startswith(b'"') and len(raw) > 2]
    return b'"%b"' % GAP.join(found)


def joined_usage(before: Sequence[bytes], last: bytes, names: tuple[str, str]) -> bytes:
    """The prompt of the last answer, with the output (and what a router says it cost) of all of them. `names`: what the
    API calls the tokens of the two."""
    if not before or not is_set(last):
        return last
    prompt, output = names
    fields, others = object_of(last), [object_of(one) for one in before]
    details = f"{output}_details"
    made = [object_of(one.get(details, b"")) for one in (*others, fields)]
    if made[-1]:
        fields[details] = written_object({name: _sum(made, name) for name in made[-1]})
    if output in fields:
        fields[output] = _sum((*others, fields), output)
    if "total_tokens" in fields:
        fields["total_tokens"] = _sum(({"": fields.get(prompt, b"")}, {"": fields.get(output, b"")}), "")
    if "cost" in fields:
        costs = [read(one.get("cost", b"0"), _COST) or 0.0 for one in (*others, fields)]
        fields["cost"] = msgspec.json.encode(sum(costs))
    return written_object(fields)


def _sum(usages: Iterable[Mapping[str, bytes]], name: str) -> bytes:
    return b"%d" % sum(digits_of(usage.get(name, b"")) for usage in usages)


def finish_reason(reason: bytes, *, has_calls: bool) -> bytes:
    """Why the client's answer ended: calls are a reason only if it got any."""
    if has_calls:
        return b'"tool_calls"' if reason == b'"stop"' else reason
    return b'"stop"' if reason == b'"tool_calls"' else reason


def takes_none(_: str) -> bool:
    """Before an answer began, no call is the host's."""
    return False
