"""What the wire dialects share: how text, raw JSON, ids and pictures stand in a request.

Rule 1. Raw JSON (arguments, schemas, opaque items) is checked before it stands in a request and then stands there byte
        for byte; what is no JSON object is carried as a string.
Rule 2. An opaque item goes back to the provider and model it came from and to nobody else (`Reach.origin`). In what a
        user, a tool or the host said, a notice stands for it; in a reply nothing does.
Rule 3. Text that imitates the host's own tags inside tool output, or inside what a client injected, is escaped (design
        6.4); a user's words never are. The APIs refuse blocks of white space only; they are not shown. What the host
        says of the head stands in tags of its own, or in a message of the role a provider has for that (`Reach`).
Rule 4. A picture stands as data if its bytes are at hand, else by its address. An artifact's bytes follow from its id,
        so the same state still gives the same request (L2).
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from transom.core.block import Block, Image, Opaque, Text, Thought, ToolResultRaw, ToolResultRef
from transom.core.canon import plain_text
from transom.core.epochs import tagged
from transom.core.handoff import escape_tags
from transom.core.state import Item
from transom.core.wire import Keyed
from transom.errors import BadInput
from transom.ports import Blobs, Outgoing

__all__ = [
    "Reach",
    "extra_fields",
    "input_object",
    "keyed",
    "offered_tools",
    "raw_object",
    "string",
    "system_text",
    "wire_call_id",
    "word_text",
    "written_array",
    "written_object",
]

_ENCODER = msgspec.json.Encoder()
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
"""Reads an object's keys and only walks over its values."""
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every API takes as the id of a call: Anthropic names the alphabet, OpenAI the length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Whose opaque items a dialect may show, and where pictures lie. No `origin`: a replay, which shows all of them."""

    origin: str = ""
    """`provider/model`, as `Thought.origin`."""
    blobs: Blobs | None = None
    system_role: str = ""
    """The role of a system message in the middle of a conversation; none: the provider takes none there."""
    keeps_ids: bool = False
    """Calls keep their ids whatever they look like: they came from the provider they go back to."""

    def call_id(self, call_id: str) -> str:
        """The id as a request shows it: else one that every API takes."""
        return call_id if self.keeps_ids else wire_call_id(call_id)

    def carries(self, block: Thought | Opaque) -> bool:
        return not self.origin or block.origin == self.origin

    def is_system(self, item: Item) -> bool:
        """Whether it stands in a system message of its own."""
        return bool(self.system_role and item.states)

    def picture(self, image: Image) -> tuple[bytes, str]:
        """(base64 data, "") if the bytes are at hand, else (b"", address). Raises `ArtifactMissing`."""
        if self.blobs is not None and image.artifact_id:
            return b64encode(self.blobs.get(image.artifact_id)), ""
        return b"", image.url or f"artifact:{image.artifact_id}"

    def picture_url(self, image: Image) -> bytes:
        """The picture as one JSON string: a data URL, or its address."""
        data, url = self.picture(image)
        return b'"data:%b;base64,%b"' % (string(image.media_type)[1:-1], data) if data else string(url)


def string(text: str) -> bytes:
    """A JSON string."""
    try:
        return _ENCODER.encode(text)
    except UnicodeEncodeError:
        return _ENCODER.encode(plain_text(text))  # no API accepts a lone surrogate


def raw_object(raw: str) -> bytes:
    """Raw text that is a JSON object, as it came; nothing if it is something else."""
    data = raw.strip().encode("utf-8", "replace")
    try:
        _OBJECT.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return b""
    return data


def input_object(arguments: str) -> bytes:
    """A call's arguments as an object; what a model wrote that is none is carried as one string."""
    return raw_object(arguments) or (b'{"input":%b}' % string(arguments) if arguments.strip() else b"{}")


def written_object(fields: Mapping[str, bytes]) -> bytes:
    """A JSON object of values that are JSON already, in the given order."""
    pieces = [b"{"]
    for name, value in fields.items():
        pieces += (string(name), b":", value, b",")
    # Joined once: a value may be all of a window, and each copy of megabytes costs as much as the step that made it.
    return b"".join((*pieces[:-1], b"}")) if fields else b"{}"


def written_array(values: Sequence[bytes]) -> bytes:
    """A JSON array of values that are JSON already; copied once, as in `written_object`."""
    if len(values) < 2:
        return b"[%b]" % b"".join(values)
    return b",".join((b"[" + values[0], *values[1:-1], values[-1] + b"]"))


def extra_fields(raw: str, owned: frozenset[str]) -> dict[str, bytes]:
    """Fields a user adds to every request, from a JSON object. Raises `BadInput` for anything else, and for a field
    that is the request's own."""
    if not raw.strip():
        return {}
    data = raw_object(raw)
    if not data:
        raise BadInput(f'request parameters: {raw[:80]!r} is no JSON object; give one, such as {{"temperature": 0}}')
    fields = {name: bytes(value) for name, value in _OBJECT.decode(data).items()}
    if clash := sorted(owned & set(fields)):
        raise BadInput(f"request parameters: {', '.join(clash)} is decided by the session; leave it out")
    return fields


def keyed(reach: Reach, extra: Mapping[str, bytes], names: frozenset[str]) -> Keyed:
    """What a provider keys its cache on beside the bytes: itself, the model, and those of the user's own request fields
    that `names` holds."""
    provider, _, model = reach.origin.partition("/")
    chosen = written_object({name: extra[name] for name in sorted(names & set(extra))})
    fields = hashlib.sha256(chosen).hexdigest()[:16] if len(chosen) > len(b"{}") else ""
    return Keyed(provider=provider, model=model, fields=fields)


def wire_call_id(call_id: str) -> str:
    """The id if every API takes it, else one derived from it: calls and results of an import stay paired (L10)."""
    if _CALL_ID.fullmatch(call_id):
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def word_text(item: Item, block: Block, reach: Reach) -> str:
    """The words of a block as `item` shows them; nothing for a blank, a thought, a call or a picture."""
    match block:
        case Text():
            # A seed is the host's own text; what an event of the host holds may be a file or a command's output.
            is_foreign = item.role == "tool" or (item.role == "host" and item.seq)
            text = escape_tags(block.text) if is_foreign else block.text
            if item.states and not reach.system_role:
                text = tagged(text)
        case ToolResultRaw() | ToolResultRef():
            text = escape_tags(block.text)
        case Opaque() if item.role != "assistant" and not reach.carries(block):
            text = f"[{block.kind or 'an item'}: held by another provider, not shown here]"
        case _:
            return ""
    return "" if not text or text.isspace() else text


def offered_tools(request: Outgoing) -> list[bytes]:
    """The catalogue's segments without what is withheld."""
    withheld = {f"tools:{name}" for name in request.withheld}
    return [one.data for one in request.wire.head if one.name.startswith("tools:") and one.name not in withheld]


def system_text(request: Outgoing) -> bytes:
    """All system sections as one JSON string; the segments hold the inside of strings."""
    sections = [one.data for one in request.wire.head if one.name.startswith("system:")]
    return b'"%b"' % b"\\n\\n".join(sections) if sections else b""
