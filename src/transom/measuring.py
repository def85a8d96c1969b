"""What a fact weighs: every block gets its count and content class, once, at admission.

A picture is no text; its weight is what Anthropic states, width x height / 750 of the picture scaled to at most 1,568
pixels on the long side (docs.anthropic.com, "Vision", 2026). Where the size cannot be read it is `IMAGE_TOKENS`, which
is that of a full-size screenshot.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TypeVar, assert_never

from msgspec.structs import replace

from transom.core.block import Block, Image, Opaque, Text, Thought, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.event import (
    BlockReplaced,
    EpochOpened,
    Fact,
    HostSaid,
    ModelReplied,
    Section,
    Tool,
    ToolReturned,
    UserSaid,
    WindowOpened,
)
from transom.errors import ArtifactMissing
from transom.ports import Blobs, Counter

__all__ = ["IMAGE_TOKENS", "Scale", "bare", "dimensions"]

IMAGE_TOKENS = 1500

_LONGEST = 1568
_PIXELS_PER_TOKEN = 750
_HEADER = 65536
_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})

B = TypeVar("B", bound=Block)


class Scale:
    """Weighs facts with one counter; pictures by their stored bytes, if there are `blobs`."""

    def __init__(self, counter: Counter, blobs: Blobs | None = None) -> None:
        self._measure = counter.measure
        self._blobs = blobs

    def weigh(self, fact: Fact) -> Fact:
        """The fact with every block, section and tool counted."""
        match fact:
            case UserSaid() | ModelReplied() | ToolReturned() | HostSaid():
                return replace(fact, blocks=self._blocks(fact.blocks))
            case WindowOpened():
                return replace(fact, seed=tuple(replace(seed, blocks=self._blocks(seed.blocks)) for seed in fact.seed))
            case BlockReplaced():
                targets = (replace(t, block=self._block(t.block) if t.block else None) for t in fact.targets)
                return replace(fact, targets=tuple(targets))
            case EpochOpened():
                sections = tuple(self._section(section) for section in fact.sections)
                return replace(fact, sections=sections, tools=tuple(self._tool(tool) for tool in fact.tools))
            case _:
                return fact

    def _blocks(self, blocks: Iterable[Block]) -> tuple[Block, ...]:
        return tuple(self._block(block) for block in blocks)

    def _block(self, block: Block) -> Block:
        if block.tokens:
            return block  # counted already: a count is made once
        match block:
            case Text() | Thought() | ToolResultRaw() | ToolResultRef():
                measure = self._measure(block.text)
                return replace(block, tokens=measure.tokens, content=measure.content)
            case ToolCall():
                measure = self._measure(f"{block.name} {block.arguments}")
                return replace(block, tokens=measure.tokens, content=measure.content)
            case Opaque():
                return replace(block, tokens=self._measure(block.raw).tokens)
            case Image():
                return replace(block, tokens=self._picture(block))
            case _:
                assert_never(block)

    def _section(self, section: Section) -> Section:
        return replace(section, tokens=section.tokens or self._measure(section.text).tokens)

    def _tool(self, tool: Tool) -> Tool:
        text = f"{tool.name}\n{tool.description}\n{tool.schema}"
        return replace(tool, tokens=tool.tokens or self._measure(text).tokens)

    def _picture(self, image: Image) -> int:
        if not image.artifact_id or self._blobs is None:
            return IMAGE_TOKENS
        try:
            size = dimensions(self._blobs.get(image.artifact_id, 0, _HEADER))
        except ArtifactMissing:
            size = None
        if size is None:
            return IMAGE_TOKENS
        shrink = min(1.0, _LONGEST / max(size))
        return max(1, round(size[0] * shrink * size[1] * shrink / _PIXELS_PER_TOKEN))


def bare(fact: Fact) -> Fact:
    """The fact without counts: what two imports of one record must agree on, whichever counter they had."""
    match fact:
        case UserSaid() | ModelReplied() | ToolReturned() | HostSaid():
            return replace(fact, blocks=_bare_blocks(fact.blocks))
        case WindowOpened():
            return replace(fact, seed=tuple(replace(seed, blocks=_bare_blocks(seed.blocks)) for seed in fact.seed))
        case BlockReplaced():
            targets = (replace(t, block=_bare_block(t.block) if t.block else None) for t in fact.targets)
            return replace(fact, targets=tuple(targets))
        case EpochOpened():
            sections = tuple(replace(section, tokens=0) for section in fact.sections)
            return replace(fact, sections=sections, tools=tuple(replace(tool, tokens=0) for tool in fact.tools))
        case _:
            return fact


def _bare_blocks(blocks: Iterable[Block]) -> tuple[Block, ...]:
    return tuple(_bare_block(block) for block in blocks)


def _bare_block(block: Block) -> Block:
    return replace(block, tokens=0, content="prose")


def dimensions(data: bytes) -> tuple[int, int] | None:
    """Width and height from the first bytes of a PNG, GIF, WebP or JPEG; None if they are not there."""
    size: tuple[int, int] | None = None
    if data.startswith(_PNG) and len(data) >= 24:
        size = struct.unpack(">II", data[16:24])
    elif data[:3] == b"GIF" and len(data) >= 10:
        size = struct.unpack("<HH", data[6:10])
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP" and len(data) >= 30:
        size = _webp(data)
    elif data[:2] == b"\xff\xd8":
        size = _jpeg(data)
    return size if size and min(size) > 0 else None


def _webp(data: bytes) -> tuple[int, int] | None:
    match data[12:16]:
        case b"VP8 ":
            width, height = struct.unpack("<HH", data[26:30])
            return width & 0x3FFF, height & 0x3FFF
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case _:
            return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        if data[at + 1] in _JPEG_FRAMES:
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return width, height
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return None
