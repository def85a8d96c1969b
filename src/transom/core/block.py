"""Blocks: what a message is made of, and the only place their shapes are defined.

Each block carries its exact token count by the o200k vocabulary (`tokens`) and its content class (`content`), both
set once, at admission, by the counter. The count of another model is these numbers times that model's learnt
ratios (`calibration`), so a stored count never goes stale. Protection is a flag (L6): a protected block is never
paraphrased, hidden or dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec

__all__ = [
    "CONTENTS",
    "Block",
    "Content",
    "Image",
    "Measure",
    "Opaque",
    "Text",
    "Thought",
    "ToolCall",
    "ToolResultRaw",
    "ToolResultRef",
]

Content = Literal["prose", "code", "cjk", "data", "hidden"]
CONTENTS: tuple[Content, ...] = ("prose", "code", "cjk", "data", "hidden")
"""Content classes, the rows of a calibration: prose and logs; code, diffs and JSON; Chinese, Japanese and Korean;
base64, hex and other dense data; and what the provider counts but does not show (reasoning, framing)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A text's exact count by the counter's vocabulary, and its content class."""

    tokens: int
    content: Content


class Text(msgspec.Struct, frozen=True, kw_only=True, tag="text", omit_defaults=True):
    """Words of a user, a model or the host."""

    text: str
    tokens: int = 0
    content: Content = "prose"
    is_protected: bool = False


class Thought(msgspec.Struct, frozen=True, kw_only=True, tag="thought", omit_defaults=True):
    """A model's visible reasoning. `opaque` is the provider's own item as raw JSON text (signature, encrypted
    content): carried byte-exact to the same provider and model, dropped elsewhere."""

    text: str
    opaque: str = ""
    origin: str = ""
    """`provider/model` that `opaque` belongs to; empty for imports, which go back to nobody."""
    tokens: int = 0
    content: Content = "prose"
    is_protected: bool = False


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, tag="tool_call", omit_defaults=True):
    """A call. `arguments` is the raw text the model wrote: usually JSON, but kept whatever it is."""

    call_id: str
    name: str
    arguments: str
    tokens: int = 0
    content: Content = "code"
    is_protected: bool = False


class ToolResultRaw(msgspec.Struct, frozen=True, kw_only=True, tag="tool_result_raw", omit_defaults=True):
    """A result as the tool gave it."""

    text: str
    tokens: int = 0
    content: Content = "code"
    is_protected: bool = False


class ToolResultRef(msgspec.Struct, frozen=True, kw_only=True, tag="tool_result_ref", omit_defaults=True):
    """A result that stands elsewhere: `text` is the stub the model sees, `artifact_id` the stored body's sha256 (empty
    when the body is still the event itself and recall by `message_uuid` brings it), `size` its bytes."""

    text: str
    artifact_id: str = ""
    size: int = 0
    tokens: int = 0
    content: Content = "prose"
    is_protected: bool = False


class Image(msgspec.Struct, frozen=True, kw_only=True, tag="image", omit_defaults=True):
    """A picture. `artifact_id` is the sha256 of the decoded bytes in the blob store (empty if only a URL is known)."""

    media_type: str
    artifact_id: str = ""
    size: int = 0
    url: str = ""
    tokens: int = 0
    content: Content = "hidden"
    is_protected: bool = False


class Opaque(msgspec.Struct, frozen=True, kw_only=True, tag="opaque", omit_defaults=True):
    """A provider's item we do not interpret, as the raw JSON text it came in."""

    kind: str
    raw: str
    origin: str = ""
    """As `Thought.origin`."""
    tokens: int = 0
    content: Content = "hidden"
    is_protected: bool = False


Block: TypeAlias = Text | Thought | ToolCall | ToolResultRaw | ToolResultRef | Image | Opaque
