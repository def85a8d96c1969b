"""The official SDKs as the other side: our requests are of their types, and they read the streams we read to the same.

Streams are of our own making, in the order and shape the APIs document.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from transom import compose
from transom.adapters.blobs import DirBlobs
from transom.core.block import Block, Image, Opaque, Text, Thought, ToolCall
from transom.core.event import EpochOpened, Section, Tool, Usage
from transom.errors import Overflow
from transom.ports import Blobs, Outgoing, Reply
from transom.testing.builders import Story, call, rules
from transom.testing.loopback import Canned, Loopback, sse

anthropic = pytest.importorskip("anthropic", reason="the extra dev brings the anthropic SDK: pip install -e '.[dev]'")
openai = pytest.importorskip("openai", reason="the extra dev brings the openai SDK: pip install -e '.[dev]'")
pydantic = pytest.importorskip("pydantic", reason="it comes with the SDKs")

SCHEMA = '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}'
TOOLS = tuple(Tool(name=name, description=f"Do {name}.", schema=SCHEMA) for name in ("read", "edit", "new_context"))
SECTIONS = (Section(key="role", text='You "work".\n'), Section(key="rules", text="Bäume."))
THOUGHTS = {
    "compatible-anthropic": '{"type":"thinking","thinking":"hm","signature":"c2ln"}',
    "compatible": '{"reasoning_content":"hm"}',
    "compatible-responses": '{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"Z2g="}',
}


def provider(
    name: str, *, blobs: Blobs | None = None, base_url: str = "http://127.0.0.1:1", is_streamed: bool = True
) -> Any:
    return compose.provider(name, "m1", base_url=base_url, blobs=blobs, is_streamed=is_streamed, env={})


def rich(name: str, blobs: Blobs) -> tuple[Story, Any]:
    """A session with everything a request can hold."""
    made = provider(name, blobs=blobs)
    story = Story(rules=rules("gssc", dialect=made.dialect))
    story.say(EpochOpened(sections=SECTIONS, tools=TOOLS))
    picture = Image(media_type="image/png", artifact_id=blobs.put(b"\x89PNG"), size=4)
    story.user("Fix <handoff> it.", picture, Image(media_type="image/*", url="https://example.org/a.png"))
    story.step()
    thought = Thought(text="hm", opaque=THOUGHTS[name], origin=f"{name}/m1")
    story.reply(
        thought, "I look.", call("toolu_1", "read", '{"path": "a.py"}'), call("odd|id" * 20, "edit", "not json")
    )
    story.returned(story.calls[0], "text <handoff>")
    story.returned(story.calls[0], picture, is_error=True)
    story.host("the clock says <handoff>")
    story.step()
    story.reply("Done.")
    story.user("And now?")
    return story, made


def body_of(made: Any, story: Story, **given: Any) -> dict[str, Any]:
    wire = story.step().wire
    data = made._api.body(Outgoing(wire=wire, model="m1", max_output_tokens=1000, **given))
    found = json.loads(data)
    assert isinstance(found, dict)
    return found


def exhausted(value: Any) -> None:
    """Walk into what pydantic validates lazily, so that it is validated at all."""
    if isinstance(value, Mapping):
        for one in value.values():
            exhausted(one)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for one in value:
            exhausted(one)


_DEV = "the extra dev brings the SDKs: pip install -e '.[dev]'"
_MESSAGES = pytest.importorskip("anthropic.types.message_create_params", reason=_DEV)
_CHAT = pytest.importorskip("openai.types.chat.completion_create_params", reason=_DEV)
_RESPONSES = pytest.importorskip("openai.types.responses.response_create_params", reason=_DEV)
TYPES = {
    "compatible-anthropic": _MESSAGES.MessageCreateParamsStreaming,
    "compatible": _CHAT.CompletionCreateParamsStreaming,
    "compatible-responses": _RESPONSES.ResponseCreateParamsStreaming,
}


def validate(name: str, body: Mapping[str, Any]) -> None:
    adapter = pydantic.TypeAdapter(TYPES[name])  # must outlive what it validates lazily
    exhausted(adapter.validate_python(body))


NAMES = tuple(THOUGHTS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given", [{}, {"forced_tool": "new_context", "withheld": frozenset({"read"})}])
def test_a_request_is_of_the_sdks_own_type(name: str, given: dict[str, Any], tmp_path: Any) -> None:
    story, made = rich(name, DirBlobs(tmp_path))
    body = body_of(made, story, **given)
    kind = TYPES[name]
    validate(name, body)
    known = {field for base in kind.__mro__ for field in getattr(base, "__annotations__", {})}
    assert set(body) <= known
    tools = [tool.get("name") or tool["function"]["name"] for tool in body["tools"]]
    assert tools == [tool.name for tool in TOOLS if tool.name not in given.get("withheld", ())]
    assert ("new_context" in json.dumps(body.get("tool_choice", ""))) == bool(given)


@pytest.mark.parametrize("name", NAMES)
def test_a_request_that_is_wrong_is_not_of_that_type(name: str, tmp_path: Any) -> None:
    story, made = rich(name, DirBlobs(tmp_path))
    body = body_of(made, story)
    body["input" if name == "compatible-responses" else "messages"][0]["content"] = [{"type": "text", "text": 3}]
    with pytest.raises(pydantic.ValidationError):
        validate(name, body)


ANTHROPIC = sse(
    '{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m1","content":[],'
    '"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":7,"cache_creation_input_tokens":20,'
    '"cache_read_input_tokens":100,"cache_creation":{"ephemeral_5m_input_tokens":5,"ephemeral_1h_input_tokens":15},"output_tokens":1}}}',
    '{"type":"ping"}',
    '{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}',
    '{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"first "}}',
    '{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"thought"}}',
    '{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2lnbmVk"}}',
    '{"type":"content_block_stop","index":0}',
    '{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"aGlkZGVu"}}',
    '{"type":"content_block_stop","index":1}',
    '{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}',
    '{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"Grüße "}}',
    '{"type":"content_block_delta","index":2,"delta":{"type":"text_delta","text":"\\ud83d\\ude00"}}',
    '{"type":"content_block_stop","index":2}',
    '{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_1","name":"read","input":{}}}',
    '{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}',
    '{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\\"path\\": \\"a"}}',
    '{"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":".py\\"}"}}',
    '{"type":"content_block_stop","index":3}',
    '{"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"toolu_2","name":"ls","input":{}}}',
    '{"type":"content_block_stop","index":4}',
    '{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":42,'
    '"output_tokens_details":{"thinking_tokens":30}}}',
    '{"type":"message_stop"}',
)

_CHUNK = '{"id":"c1","object":"chat.completion.chunk","created":1,"model":"m1",'


def chunk(delta: str, finish: str = "null") -> str:
    return f'{_CHUNK}"choices":[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}]}}'


CHAT = sse(
    chunk('{"role":"assistant","content":""}'),
    chunk('{"content":"Grüße "}'),
    chunk('{"content":"\\ud83d\\ude00"}'),
    chunk('{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"read","arguments":""}}]}'),
    chunk('{"tool_calls":[{"index":0,"function":{"arguments":"{\\"path\\": \\"a"}}]}'),
    chunk('{"tool_calls":[{"index":0,"function":{"arguments":".py\\"}"}}]}'),
    chunk('{"tool_calls":[{"index":1,"id":"call_2","type":"function","function":{"name":"ls","arguments":"{}"}}]}'),
    chunk("{}", '"tool_calls"'),
    _CHUNK + '"choices":[],"usage":{"prompt_tokens":127,"completion_tokens":42,"total_tokens":169,'
    '"prompt_tokens_details":{"cached_tokens":100,"cache_write_tokens":20},"completion_tokens_details":{"reasoning_tokens":30}}}',
    "[DONE]",
)

_ITEMS = (
    '{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"first thought"}],"encrypted_content":"Z2g="}',
    (
        '{"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text",'
        '"annotations":[],"logprobs":[],"text":"Grüße \\ud83d\\ude00"}]}'
    ),
    '{"id":"fc_1","type":"function_call","status":"completed","arguments":"{\\"path\\": \\"a.py\\"}","call_id":"call_1","name":"read"}',
    '{"id":"fc_2","type":"function_call","status":"completed","arguments":"{}","call_id":"call_2","name":"ls"}',
)
_RESPONSE = (
    '{"id":"resp_1","object":"response","created_at":1,"model":"m1","parallel_tool_calls":true,"tool_choice":"auto",'
    '"tools":[],"instructions":null,"metadata":{},"temperature":1.0,"top_p":1.0,"error":null,"incomplete_details":null,'
)
RESPONSES = sse(
    f'{{"type":"response.created","sequence_number":0,"response":{_RESPONSE}"status":"in_progress","output":[]}}}}',
    *(
        event
        for place, item in enumerate(_ITEMS)
        for event in (
            f'{{"type":"response.output_item.added","sequence_number":1,"output_index":{place},"item":{item}}}',
            f'{{"type":"response.output_item.done","sequence_number":2,"output_index":{place},"item":{item}}}',
        )
    ),
    f'{{"type":"response.completed","sequence_number":9,"response":{_RESPONSE}"status":"completed","output":[{",".join(_ITEMS)}],'
    '"usage":{"input_tokens":127,"input_tokens_details":{"cached_tokens":100,"cache_write_tokens":20},"output_tokens":42,'
    '"output_tokens_details":{"reasoning_tokens":30},"total_tokens":169}}}',
)


def named(stream: bytes) -> bytes:
    """With the `event:` lines the SDKs go by."""
    lines = stream.decode().split("\n")
    return "\n".join(
        f"event: {json.loads(line[6:])['type']}\n{line}" if line.startswith('data: {"type"') else line for line in lines
    ).encode()


STREAMS = {
    "compatible-anthropic": named(ANTHROPIC),
    "compatible": CHAT,
    "compatible-responses": named(RESPONSES),
}
CALLS = (
    ToolCall(call_id="call_1", name="read", arguments='{"path": "a.py"}'),
    ToolCall(call_id="call_2", name="ls", arguments="{}"),
)
ANTHROPIC_CALLS = tuple(
    ToolCall(call_id=one.call_id.replace("call", "toolu"), name=one.name, arguments=one.arguments) for one in CALLS
)
EXPECTED: dict[str, tuple[tuple[Block, ...], str, Usage]] = {
    "compatible-anthropic": (
        (
            Thought(
                text="first thought",
                opaque='{"type":"thinking","thinking":"first thought","signature":"c2lnbmVk"}',
                origin="compatible-anthropic/m1",
            ),
            Thought(text="", opaque='{"type":"redacted_thinking","data":"aGlkZGVu"}', origin="compatible-anthropic/m1"),
            Text(text="Grüße \U0001f600"),
            *ANTHROPIC_CALLS,
        ),
        "tool_use",
        Usage(uncached=7, cached=100, written=20, written_1h=15, output=42, reasoning=30),
    ),
    "compatible": (
        (Text(text="Grüße \U0001f600"), *CALLS),
        "tool_calls",
        Usage(uncached=7, cached=100, written=20, output=42, reasoning=30),
    ),
    "compatible-responses": (
        (
            Thought(text="first thought", opaque=_ITEMS[0], origin="compatible-responses/m1"),
            Text(text="Grüße \U0001f600"),
            *CALLS,
        ),
        "completed",
        Usage(uncached=7, cached=100, written=20, output=42, reasoning=30),
    ),
}


def ours(name: str, answer: Canned) -> Reply:
    with Loopback(answer) as server:
        made = provider(name, base_url=server.base_url)
        story = Story(rules=rules("raw", dialect=made.dialect))
        story.user("hi")
        *_, last = made.send(Outgoing(wire=story.step().wire, model="m1", max_output_tokens=10))
    assert isinstance(last, Reply)
    return last


def theirs(name: str, stream: bytes) -> Any:
    """The SDK's whole answer of the same stream."""
    hello: Any = [{"role": "user", "content": "hi"}]
    with Loopback(Canned(body=stream)) as server, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if name == "compatible-anthropic":
            client = anthropic.Anthropic(api_key="k", base_url=server.base_url, max_retries=0)
            with client.messages.stream(model="m1", max_tokens=10, messages=hello) as answer:
                return answer.get_final_message()
        client = openai.OpenAI(api_key="k", base_url=server.base_url, max_retries=0)
        if name == "compatible":
            with client.chat.completions.stream(model="m1", messages=hello) as answer:
                return answer.get_final_completion()
        with client.responses.stream(model="m1", input="hi") as answer:
            return answer.get_final_response()


def seen_by_them(name: str, answer: Any) -> list[tuple[str, ...]]:
    """Their answer in the terms of `seen_by_us`."""
    found: list[tuple[str, ...]] = []
    if name == "compatible-anthropic":
        for one in answer.content:
            match one.type:
                case "thinking":
                    found.append(("thought", one.thinking, one.signature))
                case "redacted_thinking":
                    found.append(("thought", "", one.data))
                case "text":
                    found.append(("text", one.text))
                case _:
                    found.append(("call", one.id, one.name, json.dumps(one.input)))
        return found
    if name == "compatible":
        message = answer.choices[0].message
        calls = message.tool_calls or ()
        return [("text", message.content), *(("call", c.id, c.function.name, c.function.arguments) for c in calls)]
    for one in answer.output:
        match one.type:
            case "reasoning":
                found.append(("thought", one.summary[0].text, one.encrypted_content))
            case "message":
                found.append(("text", one.content[0].text))
            case _:
                found.append(("call", one.call_id, one.name, one.arguments))
    return found


def seen_by_us(reply: Reply) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for block in reply.blocks:
        match block:
            case Thought():
                item = json.loads(block.opaque)
                secret = item.get("signature") or item.get("data") or item.get("encrypted_content")
                found.append(("thought", block.text, secret))
            case Text():
                found.append(("text", block.text))
            case ToolCall():
                found.append(("call", block.call_id, block.name, block.arguments))
            case _:
                raise AssertionError(block)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_sdk_and_we_read_a_stream_to_the_same_blocks(name: str) -> None:
    reply = ours(name, Canned(body=STREAMS[name]))
    assert (reply.blocks, reply.stop_reason, reply.usage) == EXPECTED[name]
    assert seen_by_us(reply) == seen_by_them(name, theirs(name, STREAMS[name]))


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_in_one_piece_is_read_to_the_same_blocks_as_its_stream(name: str) -> None:
    whole = theirs(name, STREAMS[name]).model_dump_json(exclude_none=True, exclude={"parsed_output"})
    reply = ours(name, Canned(body=whole.encode(), media_type="application/json"))
    assert seen_by_us(reply)[:-2] == seen_by_us(ours(name, Canned(body=STREAMS[name])))[:-2]
    assert (reply.stop_reason, reply.usage) == EXPECTED[name][1:]


@pytest.mark.parametrize("name", NAMES)
def test_what_was_read_is_sent_back_byte_for_byte_to_the_same_model_only(name: str) -> None:
    reply = ours(name, Canned(body=STREAMS[name]))
    hidden = [block.opaque for block in reply.blocks if isinstance(block, Thought)]
    for other in NAMES:
        made = provider(other)
        story = Story(rules=rules("raw", dialect=made.dialect))
        story.user("hi")
        story.step()
        story.reply(*reply.blocks)
        for call_id in story.calls:
            story.returned(call_id)
        sent = b"".join(story.step().wire.segments()).decode()
        assert [opaque in sent for opaque in hidden] == [other == name] * len(hidden)
        assert "first thought" not in sent or other == name
        assert sent.count("Grüße \U0001f600") == 1


def test_a_block_of_a_kind_we_do_not_know_is_kept_whole_and_goes_back() -> None:
    stream = sse(
        '{"type":"message_start","message":{"id":"m","type":"message","model":"m1","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}',
        '{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"s1","name":"web","input":{}}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\\"q\\": 1.0}"}}',
        '{"type":"content_block_start","index":1,"content_block":{"type":"compaction","content":null}}',
        '{"type":"content_block_delta","index":1,"delta":{"type":"compaction_delta","content":"short "}}',
        '{"type":"content_block_delta","index":1,"delta":{"type":"compaction_delta","content":"words"}}',
        '{"type":"content_block_start","index":2,"content_block":{"type":"future","text":[1e2]}}',
        '{"type":"content_block_delta","index":2,"delta":{"type":"future_delta","state":{"a": 1}}}',
        '{"type":"message_delta","delta":{"stop_reason":"compaction"},"usage":{"output_tokens":2}}',
        '{"type":"message_stop"}',
    )
    reply = ours("compatible-anthropic", Canned(body=stream))
    raws = [block.raw for block in reply.blocks if isinstance(block, Opaque)]
    assert raws == [
        '{"type":"server_tool_use","id":"s1","name":"web","input":{"q": 1.0}}',
        '{"type":"compaction","content":"short words"}',
        '{"type":"future","text":[1e2],"state":{"a": 1}}',
    ]
    assert reply.stop_reason == "compaction"


def test_a_responses_item_we_do_not_know_or_that_changed_its_shape_is_kept_whole() -> None:
    odd = ('{"type":"compaction","id":"c1","encrypted_content":"eA=="}', '{"type":"message","content":"a string"}')
    events = [f'{{"type":"response.output_item.done","output_index":{n},"item":{item}}}' for n, item in enumerate(odd)]
    end = '{"type":"response.incomplete","response":{"id":"r","status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}'
    reply = ours("compatible-responses", Canned(body=sse(*events, end)))
    assert [block.raw for block in reply.blocks if isinstance(block, Opaque)] == list(odd)
    assert (reply.stop_reason, reply.usage) == ("max_output_tokens", None)


def test_a_refusal_is_words_and_a_stop_reason() -> None:
    chat = sse(chunk('{"refusal":"I will "}'), chunk('{"refusal":"not."}', '"stop"'))
    reply = ours("compatible", Canned(body=chat))
    assert (reply.blocks, reply.stop_reason) == ((Text(text="I will not."),), "refusal")
    assert (
        ours("compatible", Canned(body=sse(chunk('{"content":"x"}', '"content_filter"')))).stop_reason
        == "content_filter"
    )
    item = '{"type":"message","content":[{"type":"refusal","refusal":"No."}]}'
    done = '{"type":"response.completed","response":{"id":"r","status":"completed","output":[' + item + "]}}"
    reply = ours("compatible-responses", Canned(body=sse(done)))
    assert (reply.blocks, reply.stop_reason) == ((Text(text="No."),), "refusal")


def test_a_router_tells_what_it_cost_and_gets_its_reasoning_back() -> None:
    details = '{"type":"reasoning.encrypted","data":"eA==","id":"r1","format":"x","index":0}'
    stream = sse(
        chunk('{"reasoning":"hm ","reasoning_details":[{"type":"reasoning.text","text":"hm ","index":0}]}'),
        chunk('{"reasoning":"yes","reasoning_details":[' + details + "]}"),
        chunk('{"content":"ok"}', '"stop"'),
        _CHUNK + '"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5,"cost":0.00125}}',
    )
    reply = ours("compatible", Canned(body=stream))
    assert reply.usage == Usage(uncached=10, output=5, cost_microusd=1250)
    thought = reply.blocks[0]
    assert isinstance(thought, Thought)
    assert thought.text == "hm yes"
    assert thought.opaque == '{"reasoning_details":[{"type":"reasoning.text","text":"hm ","index":0},' + details + "]}"


def test_deepseeks_cache_figures_are_split_too() -> None:
    usage = (
        '"usage":{"prompt_tokens":10,"completion_tokens":5,"prompt_cache_hit_tokens":8,"prompt_cache_miss_tokens":2}}'
    )
    reply = ours("compatible", Canned(body=sse(chunk('{"content":"x"}', '"stop"'), _CHUNK + '"choices":[],' + usage)))
    assert reply.usage == Usage(uncached=2, cached=8, output=5)


def test_a_thought_cut_before_its_signature_does_not_go_back() -> None:
    stream = sse(
        '{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}',
        '{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"half"}}',
        '{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}',
        '{"type":"message_stop"}',
    )
    assert ours("compatible-anthropic", Canned(body=stream)).blocks == (Thought(text="half"),)


def test_a_full_window_reported_as_an_ending_is_an_overflow_if_no_word_came() -> None:
    stream = sse(chunk("{}", '"model_context_window_exceeded"'))
    with pytest.raises(Overflow):
        ours("compatible", Canned(body=stream))
    spoken = sse(chunk('{"content":"x"}', '"model_context_window_exceeded"'))
    assert ours("compatible", Canned(body=spoken)).stop_reason == "model_context_window_exceeded"
