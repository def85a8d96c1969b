"""What a request says to a model, whatever way it is written: for comparing histories, and prefixes upstream.

The server counts a prefix by the bytes of each element. A client and the gateway spell some of them differently where
no prompt differs: a text alone or in a list of one, `is_error: false` or nothing, ids of messages, cache marks.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from typing import Any

__all__ = ["breaks", "history", "meaning", "said"]

_BOOKKEEPING = {"cache_control", "status", "internal_chat_message_metadata_passthrough", "annotations", "logprobs"}
_EMPTY: tuple[object, ...] = (None, "", [], False)
_VARYING = (
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "UUID"),
    (r"\b(msg|rs|fc|ctc|resp|ses|prt|req|chatcmpl)[-_][A-Za-z0-9_]+", r"\1_ID"),
    (r"\d\d\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", "TIME"),
    (r"Chunk ID: [0-9a-f]+", "Chunk ID: ID"),  # of Codex
    (r"TIME ERROR codex_api::\S+: failed to connect to Responses WebSocket[^\n]*\n", ""),  # told or not, by chance
    (r"(Background PIDs|Process Group PGID): [^\\\"]*", r"\1"),  # of qwen-code
    (r"(?i)\b\d+(\.\d+)? ?(seconds|ms|s)\b", "SPAN"),
    (r"tokens used\n[\d,]+", "tokens used N"),  # what upstream counted is what is reported
    (r"\$\d+\.\d+", "COST"),
    (r"127\.0\.0\.1:\d+", "HOST"),
)


def said(text: str) -> str:
    """Without what differs from run to run: ids, times, and what the usage comes to."""
    for pattern, word in _VARYING:
        text = re.sub(pattern, word, text)
    return text


def history(body: dict[str, Any], *, unthought: str = "") -> list[str]:
    """A request's elements, one a line, without thoughts that match `unthought`."""
    found = [meaning(one) for one in _listed(body)]
    if unthought:
        found = [_unthought(one, re.compile(unthought)) for one in found]
    return [said(json.dumps(one, sort_keys=True)) for one in found if one]


def _unthought(element: dict[str, Any], pattern: re.Pattern[str]) -> dict[str, Any]:
    """The element without such thoughts; nothing if it was one."""
    if element.get("type") == "reasoning" and pattern.search(json.dumps(element)):
        return {}
    made = dict(element)
    if isinstance(made.get("content"), list):
        kept = [one for one in made["content"] if one.get("type") != "thinking" or not pattern.search(one["thinking"])]
        made["content"] = kept
    if "reasoning_content" in made:
        made["reasoning_content"] = pattern.sub("", made["reasoning_content"]).strip()
    return made


def breaks(bodies: Sequence[dict[str, Any]]) -> int:
    """Requests that do not begin with the whole of the one before."""
    asked = [_prompt(body) for body in bodies]
    return sum(1 for old, new in itertools.pairwise(asked) if new[: len(old)] != old)


def _listed(body: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body["messages"] if "messages" in body else body["input"]
    return found


def _prompt(body: dict[str, Any]) -> list[str]:
    found = [json.dumps(meaning(body.get(name)), sort_keys=True) for name in ("tools", "system", "instructions")]
    for element in _listed(body):
        content = element.get("content")
        if isinstance(content, list) and element.get("role") == "user" and len(content) > 1:
            # Neighbours of one role may stand in one message or in two.
            found.extend(json.dumps(meaning({**element, "content": [one]}), sort_keys=True) for one in content)
        else:
            found.append(json.dumps(meaning(element), sort_keys=True))
    return found


def meaning(value: Any) -> Any:
    """What of a request's value enters a prompt, in one form."""
    if isinstance(value, list):
        return [meaning(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {name: meaning(one) for name, one in value.items() if name not in _BOOKKEEPING}
    found = {name: one for name, one in found.items() if one not in _EMPTY}
    if found.keys() & {"role", "call_id", "encrypted_content"}:
        found.pop("id", None)
    if "role" in found:
        found.pop("type", None)
    content = found.get("content")
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict) and "text" in content[0]:
        found["content"] = content[0]["text"]
    return found
