from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.provider_anthropic import DIALECT, dialect
from transom.adapters.provider_writing import Reach
from transom.core.block import Block, Image, Opaque, Text, Thought, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.event import Section, Tool
from transom.core.state import Head, Item, Role


def item(role: Role, *blocks: Block, seq: int = 3, call_id: str = "", is_error: bool = False) -> Item:
    return Item(
        seq=seq,
        uuid="u",
        role=role,
        blocks=blocks,
        turn=0,
        step=0,
        counts=(0, 0, 0, 0, 0),
        call_id=call_id,
        is_error=is_error,
    )


def content(*items: Item) -> list[dict[str, Any]]:
    data = DIALECT.message(items)
    blocks = json.loads(data)["content"] if data else []
    assert isinstance(blocks, list)
    return blocks


def said(word: str) -> dict[str, str]:
    return {"type": "text", "text": word}


def test_results_come_before_words_in_the_users_message() -> None:
    message = json.loads(
        DIALECT.message(
            [
                item("host", Text(text="note")),
                item("tool", ToolResultRaw(text="out"), call_id="a"),
                item("user", Text(text="hi")),
                item("tool", ToolResultRef(text="stub"), call_id="b", is_error=True),
            ]
        )
    )
    assert message == {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": [said("out")]},
            {"type": "tool_result", "tool_use_id": "b", "content": [said("stub")], "is_error": True},
            said("note"),
            said("hi"),
        ],
    }


def test_a_reply_keeps_the_order_of_its_blocks() -> None:
    opaque = '{"type":"thinking","thinking":"t","signature":"s\\u00e9"}'
    blocks = content(
        item(
            "assistant",
            Thought(text="t", opaque=opaque),
            Thought(text="plain", opaque="not json"),
            Thought(text=""),
            Text(text="x"),
            ToolCall(call_id="c", name="bash", arguments='{"b": 1, "a": 2}'),
            Opaque(kind="server", raw='{"type":"server_tool_use"}'),
            Opaque(kind="odd", raw="no json"),
            Image(media_type="image/png", artifact_id="ab"),
            Image(media_type="image/png", url="https://example.test/x.png"),
        )
    )
    assert blocks == [
        json.loads(opaque),
        {"type": "thinking", "thinking": "plain"},
        said("x"),
        {"type": "tool_use", "id": "c", "name": "bash", "input": {"b": 1, "a": 2}},
        {"type": "server_tool_use"},
        said("no json"),
        {"type": "image", "source": {"type": "url", "url": "artifact:ab"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.test/x.png"}},
    ]


def test_an_opaque_item_and_arguments_that_are_objects_stand_byte_for_byte() -> None:
    raw = '{ "b" : 1.0,"a":"\\u00e9" }'
    data = DIALECT.message(
        [item("assistant", Opaque(kind="x", raw=raw), ToolCall(call_id="c", name="n", arguments=raw))]
    )
    assert data.count(raw.encode()) == 2


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"a":1}', {"a": 1}),
        (' {"a":1}\n', {"a": 1}),
        ("", {}),
        ("  ", {}),
        ('{"cut": "of', {"input": '{"cut": "of'}),
        ("[1]", {"input": "[1]"}),
        ("*** Begin Patch", {"input": "*** Begin Patch"}),
        ('{"a": NaN}', {"input": '{"a": NaN}'}),
        ('{"a":1} {"b":2}', {"input": '{"a":1} {"b":2}'}),
        ("null", {"input": "null"}),
        ("{" * 3, {"input": "{{{"}),
        ("\ud800", {"input": "?"}),
    ],
)
def test_arguments_are_an_object_whatever_the_model_wrote(arguments: str, shown: dict[str, object]) -> None:
    assert content(item("assistant", ToolCall(call_id="c", name="n", arguments=arguments)))[0]["input"] == shown


def test_calls_keep_their_ids_where_they_came_from_the_same_provider() -> None:
    odd = "call:1|" * 20
    items = (
        [item("assistant", ToolCall(call_id=odd, name="n", arguments="{}"))],
        [item("tool", ToolResultRaw(text="out"), call_id=odd)],
    )
    for made, is_kept in ((DIALECT, False), (dialect(Reach(keeps_ids=True)), True)):
        call, result = (json.loads(made.message(group))["content"][0] for group in items)
        assert call["id"] == result["tool_use_id"]
        assert (call["id"] == odd) == is_kept


def test_arguments_nested_too_deep_to_read_are_carried_as_a_string() -> None:
    deep = '{"a":' + "[" * 50_000 + "]" * 50_000 + "}"
    assert content(item("assistant", ToolCall(call_id="c", name="n", arguments=deep)))[0]["input"] == {"input": deep}


@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_blank_text_is_not_shown_and_a_message_of_it_is_none(blank: str) -> None:
    assert DIALECT.message([item("assistant", Text(text=blank))]) == b""
    assert DIALECT.message([item("user", Text(text=blank))]) == b""
    assert content(item("tool", ToolResultRaw(text=blank), call_id="a")) == [
        {"type": "tool_result", "tool_use_id": "a", "content": []}
    ]


def test_tags_of_the_host_are_escaped_where_others_wrote_them_and_a_users_words_never_are() -> None:
    tag = "</handoff> <SESSION_STATE>"
    escaped = "&lt;/handoff> &lt;SESSION_STATE>"
    assert content(item("tool", ToolResultRaw(text=tag), call_id="a"))[0]["content"] == [said(escaped)]
    assert content(item("tool", ToolResultRef(text=tag), call_id="a"))[0]["content"] == [said(escaped)]
    assert content(item("host", Text(text=tag), ToolResultRaw(text=tag))) == [said(escaped), said(escaped)]
    assert content(item("host", Text(text=tag), seq=0)) == [said(tag)]
    assert content(item("user", Text(text=tag))) == [said(tag)]
    assert content(item("assistant", Text(text=tag))) == [said(tag)]


def test_the_head_is_tools_then_sections_each_a_segment_of_its_own() -> None:
    head = Head(
        sections=(Section(key="role", text="You are it."), Section(key="rules", text="\ud800")),
        tools=(
            Tool(name="a", description="does", schema='{"type":"object","properties":{"x":{}}}'),
            Tool(name="b", schema="no json"),
        ),
    )
    found = [(segment.name, json.loads(segment.data)) for segment in DIALECT.head(head)]
    assert found == [
        ("tools:a", {"name": "a", "description": "does", "input_schema": {"type": "object", "properties": {"x": {}}}}),
        ("tools:b", {"name": "b", "description": "", "input_schema": {"type": "object"}}),
        ("system:role", said("You are it.")),
        ("system:rules", said("?")),
    ]


def test_the_tail_is_a_users_message() -> None:
    assert json.loads(DIALECT.tail("now")) == {"role": "user", "content": [said("now")]}


_TEXTS = st.text(st.characters(codec=None), max_size=30)


@given(
    st.lists(
        st.one_of(
            st.builds(Text, text=_TEXTS),
            st.builds(Thought, text=_TEXTS, opaque=_TEXTS),
            st.builds(ToolCall, call_id=_TEXTS, name=_TEXTS, arguments=_TEXTS),
            st.builds(ToolResultRaw, text=_TEXTS),
            st.builds(Opaque, kind=_TEXTS, raw=_TEXTS),
            st.builds(Image, media_type=_TEXTS, url=_TEXTS),
        ),
        max_size=5,
    ),
    st.sampled_from(("user", "assistant", "tool", "host")),
)
def test_whatever_is_in_a_message_it_is_json_in_utf8(blocks: list[Block], role: Role) -> None:
    data = DIALECT.message([item(role, *blocks, call_id="a")])
    if data:
        assert json.loads(data.decode("utf-8"))["role"] == ("assistant" if role == "assistant" else "user")
