"""Whose request this is: the client, the history it belongs to, and whether it is the main loop at all.

A client's own ids come first. Where none is sent, the start of the history is the key: the API, the system text and
the first message after it. Requests beside the main loop (a title, a probe of the quota, a warm-up) and a client's own
compaction pass as they are: nothing of them enters a governed session. Measured with the clients named in `clients.py`.

Which client it is, is for people to read; nothing is decided by it. A client's own header says so, else the first words
of its system text, else its user agent: two of them come as the library they use, and one as another client.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from transom.gateway.face import Call, Face

__all__ = ["UNKNOWN", "Identity", "Kind", "identify"]

UNKNOWN = "unknown client"
"""What one is called that nothing tells."""

Kind = Literal["main", "agent", "side", "compaction"]
"""`agent`: a sub-agent's own history, governed like a main one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """`key` is the same for all requests of one history; two histories may share it where the client sends no id."""

    kind: Kind
    key: str
    client: str
    """As `clients.py` calls it; empty where nothing tells."""
    version: str
    """Of the client, if it says so."""
    is_named: bool
    """The client itself names the history."""


_IDS = (
    # header of the history, header of the agent in it, client
    ("x-claude-code-session-id", "x-claude-code-agent-id", "claude-code"),
    ("thread-id", "", "codex"),
    ("x-session-id", "", "opencode"),
    ("session-id", "", ""),
)
_AGENTS = ("x-claude-code-agent-id", "x-openai-subagent", "x-parent-session-id", "x-codex-parent-thread-id")
_QWEN = re.compile(r'"(qwen-code:[^"]+)"')
_INTRODUCED = (
    (re.compile(rb'"You are Qwen Code'), "qwen-code"),
    (re.compile(rb'"You are a coding assistant running inside pi\b'), "pi"),
    (re.compile(rb'"Act as an expert (software developer|architect engineer|code analyst)'), "aider"),
    (
        re.compile(rb'"You are a helpful assistant that can interact (multiple times )?with a computer'),
        "mini-swe-agent",
    ),
)
"""How a client's system text begins."""
_FIRST = 512
"""Bytes of system text that are looked at for it."""
_AGENT = re.compile(r"(claude-cli|codex|opencode|pi|qwencode|aider)(?![a-z])", re.IGNORECASE)
_VERSION = re.compile(r"[^/ ]*/(\d[\w.+-]{0,40})")
_CALLED = {"claude-cli": "claude-code", "qwencode": "qwen-code"}
_COMPACTING = re.compile(
    r"your task is to create a detailed summary of (the|our|this)\b|CONTEXT CHECKPOINT COMPACTION"
    r"|detailed prompt for continuing our conversation|structured context checkpoint"
    r"|(produce|generate|provide|emit|update)[^\n]{0,60}<state_snapshot>|briefly summarize this partial conversation",
    re.IGNORECASE,
)
_SUMMARISING = re.compile(
    r"context summari[sz]ation|summari[sz](es?|ation)( agent| assistant)? ?(a|the|our|this)? ?conversation",
    re.IGNORECASE,
)
"""Words by which the clients of `clients.py` ask for a summary of the whole history, in their last message or their
system text."""
_LAST = 6_000
"""Characters of the last message that are looked at from either end."""
_FORMAT = re.compile(rb'"(json_schema|json_object)"')


class _TurnMetadata(msgspec.Struct):
    request_kind: str = ""


def identify(face: Face, call: Call, headers: Mapping[str, str]) -> Identity:
    """`headers` with lower-case names."""
    history, client = _named(call, headers)
    client = client or _recognised(call, headers)
    told = _VERSION.match(headers.get("user-agent", ""))
    who = {"client": client, "version": told[1] if told and client else ""}
    kind = _kind(face, call, headers, is_named=bool(history))
    if history:
        return Identity(kind=kind, key=f"{face.name}\n{history}", is_named=True, **who)
    hasher = hashlib.sha256(face.name.encode())
    for element in call.elements[: call.lead + 1]:
        hasher.update(face.canonical(element))
    for name in ("system", "instructions"):
        hasher.update(_unmarked(call.fields.get(name, b"")))
    return Identity(kind=kind, key=hasher.hexdigest(), is_named=False, **who)


def _named(call: Call, headers: Mapping[str, str]) -> tuple[str, str]:
    """The client's own name of the history, and the client."""
    for header, agent, client in _IDS:
        if headers.get(header):
            own = headers.get(agent, "") if agent else ""
            return "\n".join((header, headers[header], own)), client
    found = _QWEN.fullmatch(call.fields.get("prompt_cache_key", b"").decode("utf-8", "replace"))
    return (found[1], "qwen-code") if found else ("", "")


def _recognised(call: Call, headers: Mapping[str, str]) -> str:
    fields = (call.fields.get(name, b"") for name in ("system", "instructions"))
    for raw in (*fields, *call.elements[: call.lead]):
        found = next((client for words, client in _INTRODUCED if words.search(raw[:_FIRST])), "")
        if found:
            return found
    agent = _AGENT.match(headers.get("user-agent", ""))
    return _CALLED.get(agent[1].lower(), agent[1].lower()) if agent else ""


def _kind(face: Face, call: Call, headers: Mapping[str, str], *, is_named: bool) -> Kind:
    turn = _turn(headers)
    if turn == "compaction" or _is_compaction(face, call):
        return "compaction"
    wants_json = any(
        _FORMAT.search(call.fields.get(name, b"")) for name in ("output_config", "response_format", "text")
    )
    is_bare = not call.has_tools and (is_named or wants_json)
    is_probe = call.max_output_tokens == 1 and not call.has_tools
    if turn == "prewarm" or is_bare or is_probe or call.fields.get("generate") == b"false":
        return "side"
    return "agent" if any(headers.get(name) for name in _AGENTS) else "main"


def _turn(headers: Mapping[str, str]) -> str:
    """What Codex says of its request."""
    try:
        return msgspec.json.decode(headers.get("x-codex-turn-metadata", ""), type=_TurnMetadata).request_kind
    except msgspec.DecodeError:
        return ""


def _is_compaction(face: Face, call: Call) -> bool:
    newest = [element for element in call.elements[-2:] if face.speaker(element) != "assistant"]
    if newest and b'"compaction_trigger"' in newest[-1][:_LAST]:
        return True
    said = [face.text(element) for element in newest]
    if any(_COMPACTING.search(text[:_LAST]) or _COMPACTING.search(text[-_LAST:]) for text in said):
        return True
    # A client that summarises by an agent of its own, without tools, says so in its system text.
    system = [face.text(element) for element in call.elements[: call.lead]]
    system.extend(call.fields.get(name, b"").decode("utf-8", "replace") for name in ("system", "instructions"))
    return not call.has_tools and any(_SUMMARISING.search(text[:_LAST]) for text in system)


def _unmarked(raw: bytes) -> bytes:
    """System text without the marks that move."""
    return re.sub(rb',?"cache_control":\{[^{}]*\}', b"", raw)
