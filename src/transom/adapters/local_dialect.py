"""How a small model on this machine is spoken to: its wire form, and the one schema each of its answers must satisfy.

Small models do not call tools freely, but they fill in a form: every answer is one JSON object, `{"tool": …,
"arguments": {…}}` or `{"say": …}`, and the sampler lets nothing else through. The history shows their earlier answers
in exactly that form, spaces included, so that what they generated is a prefix of what they are asked next and the
cache holds. Tools are shown as signatures, shorter than their schemas; the schema rules the answer (`local_form`).
What a tool gave ends with a word that asks for the next answer.

A window's text may hold the markers of a chat template (`<|im_end|>`), which a template would obey. In what tools and
clients gave they are broken by a zero-width space, as the host's own tags are escaped; a user's words never are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from transom.core.block import Block, Image, Text, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.canon import plain_text
from transom.core.epochs import tagged
from transom.core.event import Tool
from transom.core.handoff import escape_tags
from transom.core.state import Head, Item
from transom.core.wire import Dialect, Segment, Wire

__all__ = ["DIALECT", "Schema", "Shown", "messages", "shown_tools", "tool_line"]

_MARKER = re.compile(r"<(?=[|｜]|/?(?:s|bos|eos|start_of_turn|end_of_turn)>)|\[(?=/?INST\])")
_ORDER = (
    'Answer with one JSON object: {"tool": NAME, "arguments": {...}} to use a tool, '
    '{"say": TEXT} when the task is done. Tools:'
)
_NEXT = "Next:"
"""Without it a small model repeats itself. Qwen2.5-Coder 0.5B, which is told to edit 24 numbered files and has edited
the first: 0.26 for the second file and 0.73 for the first again; with it 0.65 and 0.34."""
Schema = dict[str, object]


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as it stands in the head."""

    name: str
    description: str
    parameters: Schema


_ENCODER = msgspec.json.Encoder()
_OBJECT = msgspec.json.Decoder(Schema)
_SHOWN = msgspec.json.Decoder(Shown)
_MESSAGE = msgspec.json.Decoder(dict[str, str])


# -- rendering


def _head(head: Head) -> tuple[Segment, ...]:
    found = [Segment(name=f"tools:{tool.name}", data=_ENCODER.encode(_shown(tool))) for tool in head.tools]
    for section in head.sections:
        data = _ENCODER.encode({"text": plain_text(section.text)})
        found.append(Segment(name=f"system:{section.key}", data=data))
    return tuple(found)


def _shown(tool: Tool) -> Shown:
    return Shown(name=plain_text(tool.name), description=plain_text(tool.description), parameters=_schema(tool.schema))


def _schema(raw: str) -> Schema:
    try:
        return _OBJECT.decode(plain_text(raw))
    except (msgspec.DecodeError, RecursionError):
        return {"type": "object"}


def _message(group: Sequence[Item]) -> bytes:
    role = "assistant" if group[0].role == "assistant" else "user"
    results = [_result(item) for item in group if item.role == "tool"]
    words = [_words(item) for item in group if item.role != "tool"]
    asked = (_NEXT,) if results else ()
    text = "\n".join(word for word in (*results, *words, *asked) if word.strip())
    return _said(role, text) if text else b""


def _said(role: str, text: str) -> bytes:
    return _ENCODER.encode({"role": role, "content": plain_text(text)})


def _result(item: Item) -> str:
    text = "\n".join(_harmless(_text(block)) for block in item.blocks)
    return f"{'Error' if item.is_error else 'Result'}:\n{text}"


def _words(item: Item) -> str:
    """A seed is the host's own text; what an event of the host holds may be a file or a command's output, and what is
    said of the head is one."""
    is_foreign = item.states or (item.role == "host" and item.seq)
    texts = (_text(block, is_answer=item.role == "assistant") for block in item.blocks)
    said = "\n".join(_harmless(text) if is_foreign else text for text in texts if text)
    return tagged(said) if item.states else said


def _text(block: Block, *, is_answer: bool = False) -> str:
    """What a model sees of a block; thoughts and other providers' items it does not."""
    match block:
        case Text():
            return f'{{"say": {_string(block.text)}}}' if is_answer and block.text.strip() else block.text
        case ToolCall():
            return f'{{"tool": {_string(block.name)}, "arguments": {block.arguments.strip() or "{}"}}}'
        case ToolResultRaw() | ToolResultRef():
            return block.text
        case Image():
            return "[an image]"
        case _:
            return ""


def _string(text: str) -> str:
    return _ENCODER.encode(plain_text(text)).decode()


def _harmless(text: str) -> str:
    return _MARKER.sub(lambda found: f"{found[0]}\u200b", escape_tags(text))


def _tail(text: str) -> bytes:
    return _said("user", text)


DIALECT = Dialect(name="local", head=_head, message=_message, tail=_tail)


# -- sending


def shown_tools(wire: Wire) -> list[Shown]:
    """The tools of the head, in its order."""
    return [_SHOWN.decode(segment.data) for segment in wire.head if segment.name.startswith("tools:")]


def messages(wire: Wire) -> bytes:
    """The JSON list of chat messages. The tail joins the last message: some templates refuse two of one role in a row.
    All tools of the head are shown; what may not be called now is not in the form, which costs no cache."""
    tools = [_line(tool) for tool in shown_tools(wire)]
    sections = [_MESSAGE.decode(segment.data)["text"] for segment in wire.head if segment.name.startswith("system:")]
    system = "\n".join((*sections, *((_ORDER, *tools) if tools else ())))
    body = list(wire.body[: wire.messages])
    if wire.tail:
        last = _MESSAGE.decode(body[-1]) if body else {"role": "assistant"}
        if last["role"] == "user":
            body[-1] = _said("user", f"{last['content']}\n{wire.tail_text}")
        else:
            body.append(wire.tail)
    if system:
        body.insert(0, _said("system", system))
    return b"[%b]" % b",".join(body)


def tool_line(tool: Tool) -> str:
    """What a window shows of a tool, with its line end."""
    return f"{_line(_shown(tool))}\n"


def _line(tool: Shown) -> str:
    shape = _shape(tool.parameters)
    return f"- {tool.name}({shape[1:-1] if shape.startswith('{') else shape}): {tool.description}".removesuffix(": ")


def _shape(schema: object) -> str:
    if not isinstance(schema, dict):
        return "any"
    if isinstance(choices := schema.get("enum"), list):
        return "|".join(str(choice) for choice in choices)
    if isinstance(kinds := schema.get("anyOf", schema.get("oneOf")), list):
        return " or ".join(_shape(kind) for kind in kinds)
    if schema.get("type") == "array":
        return f"[{_shape(schema.get('items'))}]"
    if isinstance(named := schema.get("properties"), dict):
        needed = schema.get("required")
        must = needed if isinstance(needed, list) else []
        return "{" + ", ".join(f"{key}{'' if key in must else '?'}: {_shape(one)}" for key, one in named.items()) + "}"
    return str(schema.get("type", "any"))
