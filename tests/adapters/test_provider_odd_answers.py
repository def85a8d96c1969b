"""Answers nobody documents: what is known is read, what is not is kept or passed over, and nothing else is raised."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.provider_anthropic_reply import AnthropicReader
from transom.adapters.provider_api import Reader
from transom.adapters.provider_errors import Failure
from transom.adapters.provider_openai_chat import api as chat_api
from transom.adapters.provider_openai_chat_reply import ChatReader
from transom.adapters.provider_openai_responses_reply import ResponsesReader
from transom.adapters.provider_writing import Reach
from transom.core.block import Opaque, Text, ToolCall
from transom.ports import Delta, Outgoing, Reply
from transom.testing.builders import Story, rules
from transom.testing.strategies import texts

READERS: tuple[Callable[[str], Reader], ...] = (AnthropicReader, ChatReader, ResponsesReader)

_KEYS = st.sampled_from(
    [
        *("type", "index", "delta", "content_block", "message", "usage", "content", "text", "thinking", "signature"),
        *("id", "name", "input", "partial_json", "stop_reason", "choices", "tool_calls", "function", "arguments"),
        *("finish_reason", "reasoning_content", "reasoning_details", "item", "response", "output", "status", "error"),
        *("output_index", "summary", "call_id", "incomplete_details", "code", "new"),
    ]
)
_WORDS = st.sampled_from(
    [
        *("message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop", "message"),
        *("text", "tool_use", "thinking", "text_delta", "input_json_delta", "new_delta", "function_call", "reasoning"),
        *("response.output_item.added", "response.output_item.done", "response.completed", "response.failed", "error"),
        *("completed", "incomplete", "stop", "tool_calls", "network_error"),
    ]
)
_VALUES = st.recursive(
    st.one_of(_WORDS, texts(), st.integers(-3, 3), st.floats(allow_nan=False), st.none(), st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=5)),
    max_leaves=12,
)
_EVENTS = st.fixed_dictionaries({"type": _WORDS}, optional={"index": st.integers(0, 2)}).flatmap(
    lambda start: st.dictionaries(_KEYS, _VALUES, max_size=4).map(lambda more: {**more, **start})
)


@given(st.lists(st.one_of(_EVENTS, _VALUES), max_size=8), st.sampled_from(READERS))
def test_any_events_are_read_or_refused_as_unreadable(events: list[Any], make: Callable[[str], Reader]) -> None:
    reader = make("here/m1")
    for event in events:
        try:
            found = reader.event(json.dumps(event))
        except msgspec.DecodeError:
            continue
        assert found is None or isinstance(found, Delta | Failure)
    try:
        reply = reader.reply()
        whole = make("here/m1").whole(json.dumps(events[-1:]).encode()[1:-1] or b"null")
    except msgspec.DecodeError:
        return
    assert reply is None or isinstance(reply, Reply)
    assert isinstance(whole, Reply | Failure)


def chat(*deltas: str, finish: str = "stop", place: int = 0) -> ChatReader:
    reader = ChatReader("here/m1")
    for delta in deltas:
        reader.event(f'{{"id":"c","choices":[{{"index":{place},"delta":{delta}}}]}}')
    reader.event(f'{{"id":"c","choices":[{{"index":{place},"delta":{{}},"finish_reason":"{finish}"}}]}}')
    return reader


def test_content_in_list_form_is_read_and_what_is_no_text_is_kept() -> None:
    reply = chat('{"content":[{"type":"text","text":"a"},{"type":"audio","data":"x"}]}', '{"content":"b"}').reply()
    assert reply is not None
    assert reply.blocks == (Text(text="ab"), Opaque(kind="audio", raw='{"type":"audio","data":"x"}', origin="here/m1"))


def test_a_second_choice_is_not_mixed_into_the_first() -> None:
    assert chat('{"content":"other"}', place=1).reply() is None


def test_a_call_that_is_no_function_is_kept_and_goes_back_among_the_calls() -> None:
    raw = '{"index":0,"id":"c1","type":"custom","custom":{"name":"sql","input":"x"}}'
    reply = chat(f'{{"tool_calls":[{raw}]}}').reply()
    assert reply is not None
    assert reply.blocks == (Opaque(kind="tool_call", raw=raw, origin="here/m1"),)
    api = chat_api(reach=Reach(origin="here/m1"))
    story = Story(rules=rules("raw", dialect=api.dialect))
    story.user("go")
    story.step()
    story.reply(*reply.blocks)
    story.user("on")
    sent = json.loads(api.body(Outgoing(wire=story.step().wire, model="m1", max_output_tokens=9)))
    assert sent["messages"][1]["tool_calls"] == [json.loads(raw)]


@pytest.mark.parametrize("finish", ["error", "network_error"])
def test_a_finish_reason_that_says_broken_is_no_answer(finish: str) -> None:
    reader = ChatReader("here/m1")
    found = reader.event(f'{{"choices":[{{"delta":{{"content":"x"}},"finish_reason":"{finish}"}}]}}')
    assert isinstance(found, Failure)
    assert found.kind == "unavailable"


def test_a_response_that_was_cancelled_is_no_answer() -> None:
    found = ResponsesReader("here/m1").whole(b'{"id":"r","status":"cancelled","output":[]}')
    assert found == Failure(kind="unavailable", message="the answer ended as cancelled")


def test_an_error_event_of_a_response_is_a_failure() -> None:
    found = ResponsesReader("here/m1").event('{"type":"error","code":"rate_limit_exceeded","message":"slow"}')
    assert found == Failure(kind="rate", message="slow")


def test_a_delta_for_a_block_that_was_never_opened_is_passed_over() -> None:
    reader = AnthropicReader("here/m1")
    delta = '{"type":"content_block_delta","index":4,"delta":{"type":"text_delta","text":"x"}}'
    assert reader.event(delta) is None
    reader.event('{"type":"message_stop"}')
    reply = reader.reply()
    assert reply is not None
    assert reply.blocks == ()


def test_an_anthropic_body_that_is_no_message_is_a_failure() -> None:
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    assert AnthropicReader("here/m1").whole(body) == Failure(kind="unavailable", message="Overloaded")


def test_the_items_of_an_answer_are_what_the_api_takes_back_with_its_citations() -> None:
    reader = AnthropicReader("o")
    for event in (
        '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"","citations":[]}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"url":"u1"}}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"said"}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"url": "u2"}}}',
        '{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"c","name":"n","input":{}}}',
        '{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\\"a\\": 1}"}}',
        '{"type":"message_stop"}',
    ):
        reader.event(event)
    assert reader.items() == (
        b'{"type":"text","text":"said","citations":[{"url":"u1"},{"url": "u2"}]}',
        b'{"type":"tool_use","id":"c","name":"n","input":{"a": 1}}',
    )
    reply = reader.reply()
    assert reply is not None
    assert reply.blocks == (Text(text="said"), ToolCall(call_id="c", name="n", arguments='{"a": 1}'))


def test_calls_of_a_whole_answer_without_ids_get_ids_of_their_own() -> None:
    calls = ",".join('{"type":"function","function":{"name":"ls","arguments":"{}"}}' for _ in range(2))
    body = f'{{"id":"c","choices":[{{"index":0,"message":{{"tool_calls":[{calls}]}},"finish_reason":"tool_calls"}}]}}'
    reply = ChatReader("here/m1").whole(body.encode())
    assert isinstance(reply, Reply)
    assert [block.call_id for block in reply.blocks if isinstance(block, ToolCall)] == ["call_c_1", "call_c_2"]


def piece(name: str, arguments: str) -> str:
    return json.dumps({"tool_calls": [{"index": 0, "id": "", "function": {"name": name, "arguments": arguments}}]})


@pytest.mark.parametrize(
    ("pieces", "read"),
    [
        ([("ls", '{"a":1}'), ("cat", '{"b":1}')], [("ls", '{"a":1}'), ("cat", '{"b":1}')]),
        ([("ls", '{"a":1}'), ("ls", '{"a":2}')], [("ls", '{"a":1}'), ("ls", '{"a":2}')]),
        ([("ls", ""), ("cat", "")], [("ls", ""), ("cat", "")]),
        ([("ls", '{"a":'), ("ls", "1}"), ("ls", "")], [("ls", '{"a":1}')]),
        ([("ls", '{"a":'), ("", "1}")], [("ls", '{"a":1}')]),
    ],
)
def test_streamed_calls_without_ids_at_one_index_are_told_apart(
    pieces: list[tuple[str, str]], read: list[tuple[str, str]]
) -> None:
    reply = chat(*(piece(name, arguments) for name, arguments in pieces)).reply()
    assert reply is not None
    assert [(block.name, block.arguments) for block in reply.blocks if isinstance(block, ToolCall)] == read


@pytest.mark.parametrize(("figure", "counted"), [("7.0", 7), ('"7"', 7), ("7.5", None), ("[]", None), ('"many"', None)])
def test_an_answer_is_not_lost_for_a_figure_in_another_form(figure: str, counted: int | None) -> None:
    told = f'{{"input_tokens":{figure},"prompt_tokens":{figure},"output_tokens":1,"completion_tokens":1}}'
    bodies = (
        f'{{"type":"message","content":[{{"type":"text","text":"hi"}}],"stop_reason":"end_turn","usage":{told}}}',
        f'{{"choices":[{{"message":{{"content":"hi"}},"finish_reason":"stop"}}],"usage":{told}}}',
        f'{{"status":"completed","output":[{{"type":"message","content":[{{"text":"hi"}}]}}],"usage":{told}}}',
    )
    for make, body in zip(READERS, bodies, strict=True):
        reply = make("here/m1").whole(body.encode())
        assert isinstance(reply, Reply)
        assert reply.blocks == (Text(text="hi"),)
        assert (reply.usage.prompt if reply.usage else None) == counted


def test_items_that_only_the_end_of_a_response_tells_are_read_there() -> None:
    calls = [{"type": "function_call", "call_id": name, "name": "ls", "arguments": "{}"} for name in ("a", "b")]
    reader = ResponsesReader("here/m1")
    for item in calls:
        reader.event(json.dumps({"type": "response.output_item.done", "item": item}))  # all at index 0
    ended = {"type": "response.completed", "response": {"status": "completed", "output": calls}}
    reader.event(json.dumps(ended))
    reply = reader.reply()
    assert reply is not None
    assert [block.call_id for block in reply.blocks if isinstance(block, ToolCall)] == ["a", "b"]
