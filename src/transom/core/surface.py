"""The surface: which tools may be called now, the host's own tools, and the words in which a call is refused (L9).

In the fallback stage only `new_context` is accepted. The surface narrows in the order that costs least cache: first the
guard at execution, with the tools' bytes unchanged; then a forced choice (a changed parameter); last, the other tools
are taken out (a changed catalogue). Each step is a fact and names its miss.

Recall is one directed look-up. A query that missed is spent: in this window the same, or one that contains it, is
refused with the advice to go back to the workspace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transom.core.event import Tool
from transom.core.state import Item, State, folded

__all__ = [
    "FALLBACK_CHANCES",
    "GUIDANCE",
    "HOST_TOOLS",
    "NEW_CONTEXT",
    "NOTICE_TOKENS",
    "Surface",
    "cost_notice",
    "fallback_notice",
    "hosted",
    "is_notice",
    "is_spent",
    "reminder_notice",
    "spent_refusal",
    "surface",
    "withheld_refusal",
]

NEW_CONTEXT = "new_context"
NOTICE_TOKENS = 64
"""What a reminder or a fallback notice costs at most: it is said only where the window still holds it."""
FALLBACK_CHANCES = 3
"""Requests in the fallback stage before the host rolls over by code: guarded, forced, alone."""

GUIDANCE = """\
Your window is small; everything that happened is kept in durable storage behind it.
- Before the window fills, at the end of a piece of work, call new_context with a handoff for whoever goes on.
- requirements: only what the user or a specification file says, in its own words, each with its source: the
  message_uuid shown beside a user message, or path:line. Words that take an earlier rule back or change it are
  requirements too. What you concluded yourself belongs under inferences.
- conflicts: what contradicts or fails now, with the literal error. unverified: what is still to be checked.
- related_files: the files the next window should open first.
- In a new window, look at the workspace first. Use recall once, for one exact detail; if it finds nothing, it is gone.
- Use note_failure when an attempt failed for a reason worth remembering, so that it is not tried again."""

_SECTION = '{"type":"array","items":{"type":"string"}}'
_HANDOFF = (
    '{"type":"object","properties":{"requirements":{"type":"array","items":{"type":"object","properties":'
    '{"text":{"type":"string"},"source":{"type":"string","description":"a user\'s message_uuid, or path:line"}},'
    '"required":["text","source"]}},'
    f'"inferences":{_SECTION},"conflicts":{_SECTION},"unverified":{_SECTION}}},'
    '"required":["requirements","inferences","conflicts","unverified"]}'
)
_FILES = (
    '{"type":"array","items":{"type":"object","properties":{"path":{"type":"string"},"role":{"type":"string",'
    '"enum":["spec","decision","implementation","test","handoff","other"]},"note":{"type":"string"}},'
    '"required":["path","role","note"]}}'
)

HOST_TOOLS: tuple[Tool, ...] = (
    Tool(
        name=NEW_CONTEXT,
        description="Hand over to a new, clean window. It takes effect after this step. Everything stays in durable "
        "storage.",
        schema=f'{{"type":"object","properties":{{"handoff":{_HANDOFF},"related_files":{_FILES}}},'
        '"required":["handoff","related_files"]}',
    ),
    Tool(
        name="recall",
        description="Look up one exact detail of this session's past: words, an identifier or an error that stood "
        "there, or a message by its message_uuid. If it finds nothing, do not ask again: look in the workspace.",
        schema='{"type":"object","properties":{"query":{"type":"string"},"message_uuid":{"type":"string"}}}',
    ),
    Tool(
        name="read_artifact",
        description="Read on in a result or a user message that was offloaded: a page of it from an offset in "
        "characters.",
        schema='{"type":"object","properties":{"artifact_id":{"type":"string"},"offset":{"type":"integer"}},'
        '"required":["artifact_id"]}',
    ),
    Tool(
        name="todo",
        description="Replace the task list. It stands in every window.",
        schema='{"type":"object","properties":{"todos":{"type":"array","items":{"type":"object","properties":{"content":'
        '{"type":"string"},"status":{"type":"string","enum":["pending","in_progress","completed","cancelled"]}},'
        '"required":["content","status"]}}},"required":["todos"]}',
    ),
    Tool(
        name="note_failure",
        description="Note an attempt that failed and its literal error, so that no later window tries it again.",
        schema='{"type":"object","properties":{"attempt":{"type":"string"},"outcome":{"type":"string"}},'
        '"required":["attempt","outcome"]}',
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """What may be called now. `allowed` is None while everything offered may be."""

    allowed: frozenset[str] | None = None
    forced: str = ""
    withheld: frozenset[str] = frozenset()

    def accepts(self, name: str) -> bool:
        return self.allowed is None or name in self.allowed


_OPEN = Surface()
_FALLBACK = (
    "[host] This window is full. The only call accepted now is new_context: hand over.",
    "[host] The window is full and was not handed over. Your next call is new_context.",
    "[host] Last request of this window: call new_context, or the host opens the next window without your words.",
)
_REMINDED = "[host] About "
_NAMES = frozenset(tool.name for tool in HOST_TOOLS)


def hosted(state: State) -> frozenset[str]:
    """The tools that the host answers itself: all of its own, or none where it offers none (a recorded session)."""
    return _NAMES if any(tool.name == NEW_CONTEXT for tool in state.head.tools) else frozenset()


def surface(state: State) -> Surface:
    """The present surface; it follows from the fallback notices of this window."""
    if not state.fallbacks:
        return _OPEN
    allowed = frozenset({NEW_CONTEXT})
    forced = NEW_CONTEXT if state.fallbacks > 1 else ""
    others = frozenset(tool.name for tool in state.head.tools) - allowed if state.fallbacks > 2 else frozenset[str]()
    return Surface(allowed=allowed, forced=forced, withheld=others)


def reminder_notice(remaining: int) -> str:
    return (
        f"{_REMINDED}{remaining:,} tokens are left in this window. Finish the step at hand, then call {NEW_CONTEXT} "
        "with a handoff."
    )


def cost_notice(gain: int) -> str:
    return (
        f"{_REMINDED}{gain:,} tokens are sent again with every request that a new window would not need. Finish the "
        f"step at hand, then call {NEW_CONTEXT} with a handoff."
    )


def fallback_notice(state: State) -> str:
    """What a model is told at its next chance to hand over, each time more plainly."""
    return _FALLBACK[min(state.fallbacks, len(_FALLBACK) - 1)]


def is_notice(item: Item) -> bool:
    """Whether it speaks of the window it was said in. A new one does not show it, not even if no model has seen it."""
    if item.role != "host" or len(item.blocks) != 1:
        return False
    text = getattr(item.blocks[0], "text", "")
    return text in _FALLBACK or text.startswith(_REMINDED)


def withheld_refusal(name: str) -> str:
    return f"{name} was not run: the window is full and only {NEW_CONTEXT} is accepted now. Call it with a handoff."


def is_spent(missed: Sequence[str], query: str) -> bool:
    """Whether a query, or a wider one, has missed in this window."""
    words = _asked(query)
    return any(_asked(one) in words for one in missed)


def _asked(query: str) -> str:
    return folded(query) or query.strip()  # nothing but marks is a query for marks


def spent_refusal(query: str) -> str:
    return (
        f"recall was not run: {query!r} or a wider query has found nothing in this window, so it is not there. Look in "
        "the workspace, or run the smallest command that shows the present state."
    )
