"""One answer to the client of one or several from upstream: nothing of the host's is in it, and nothing else is missing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.provider_errors import Failure
from transom.core.block import Opaque, Text, Thought, ToolCall
from transom.core.event import Usage
from transom.gateway.events import data_of
from transom.gateway.face import Face, Splice
from transom.gateway.face_anthropic import AnthropicFace
from transom.ports import Reply
from transom.testing.loopback import Canned, Loopback

anthropic = pytest.importorskip("anthropic", reason="the extra dev brings the anthropic SDK: pip install -e '.[dev]'")

FACE: Face = AnthropicFace()
HOSTED = frozenset({"recall", "new_context"})
Event = dict[str, Any]


def takes(name: str) -> bool:
    return name in HOSTED


def nobody(_: str) -> bool:
    return False


def frame(event: Event) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def stream(events: Iterable[Event]) -> bytes:
    return b"".join(frame(event) for event in events)


def block_events(index: int, block: Event) -> list[Event]:
    """A block as the API streams it."""
    deltas: list[Event] = []
    opened = dict(block)
    match block["type"]:
        case "text":
            opened["text"] = ""
            deltas = [
                {"type": "text_delta", "text": block["text"][place : place + 4]}
                for place in range(0, len(block["text"]), 4)
            ]
        case "thinking":
            opened |= {"thinking": "", "signature": ""}
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        case "tool_use" | "server_tool_use":
            opened["input"] = {}
            written = json.dumps(block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", written[:5], written[5:])]
        case _:
            pass
    return [
        {"type": "content_block_start", "index": index, "content_block": opened},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def answer_events(*blocks: Event, stop: str = "", prompt: int = 100, output: int = 10) -> list[Event]:
    calls = any(block["type"] == "tool_use" for block in blocks)
    figures = {"input_tokens": prompt, "cache_read_input_tokens": prompt * 2, "cache_creation_input_tokens": 5}
    message: Event = {
        "id": f"msg_{prompt}",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**figures, "output_tokens": 1},
    }
    return [
        {"type": "message_start", "message": message},
        {"type": "ping"},
        *(event for index, block in enumerate(blocks) for event in block_events(index, block)),
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop or ("tool_use" if calls else "end_turn"), "stop_sequence": None},
            "usage": {"output_tokens": output},
        },
        {"type": "message_stop"},
    ]


def said(text: str) -> Event:
    return {"type": "text", "text": text}


def called(name: str, call_id: str = "toolu_1") -> Event:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"path": "a.py"}}


THINKING = {"type": "thinking", "thinking": "first", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "aGk="}
SEARCHED = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
FOUND = {
    "type": "web_search_tool_result",
    "tool_use_id": "srvtoolu_1",
    "content": [{"type": "web_search_result", "url": "u"}],
}


def run(answers: Sequence[bytes], by: Callable[[str], bool] = takes, cut: int = 0) -> tuple[bytes, Splice]:
    """What the client gets of streams that come after each other, each in pieces of `cut` bytes (0: whole)."""
    splice = FACE.splice(is_streamed=True)
    out = b""
    for answer in answers:
        splice.start(by)
        size = cut or max(len(answer), 1)
        for place in range(0, len(answer), size):
            out += splice.feed(answer[place : place + size])
        out += splice.feed(b"")
    return out + splice.end(), splice


def events_of(out: bytes) -> list[Event]:
    frames = out.replace(b"\r\n", b"\n").split(b"\n\n")
    assert frames.pop() == b""
    found = []
    for one in frames:
        data = data_of(one)
        if data:
            event = json.loads(data)
            assert one.startswith(b"event: " + event["type"].encode())
            found.append(event)
    return found


def message_of(out: bytes) -> Any:
    """The message that the official SDK makes of a stream."""
    hello: Any = [{"role": "user", "content": "hi"}]
    with Loopback(Canned(body=out)) as server:
        client = anthropic.Anthropic(api_key="k", base_url=server.base_url, max_retries=0)
        with client.messages.stream(model="m1", max_tokens=10, messages=hello) as answer:
            return answer.get_final_message()


def assert_in_order(events: Sequence[Event]) -> None:
    """One start, blocks one after the other and numbered so, one end."""
    kinds = [event["type"] for event in events if event["type"] != "ping"]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("message_start") == kinds.count("message_delta") == kinds.count("message_stop") == 1
    opened = -1
    is_open = False
    for event in events:
        match event["type"]:
            case "content_block_start":
                opened += 1
                assert not is_open
                assert event["index"] == opened
                is_open = True
            case "content_block_delta":
                assert is_open
                assert event["index"] == opened
            case "content_block_stop":
                assert event["index"] == opened
                is_open = False
            case _:
                assert not is_open


WHOLE = answer_events(
    THINKING, REDACTED, said("Grüße \U0001f600, ja"), SEARCHED, FOUND, called("read"), called("ls", "toolu_2")
)


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_an_answer_that_nothing_is_taken_from_is_the_same_stream_at_every_cut(end: bytes) -> None:
    given_stream = (
        b": hello\n\n" + stream(WHOLE[:9]) + b"event: new\ndata: {not json\n\n" + stream(WHOLE[9:]) + b": bye\n\n"
    )
    given_stream = given_stream.replace(b"\n", end)
    for cut in (1, 2, 3, 7, 64, 0):
        out, splice = run([given_stream], cut=cut)
        assert out == given_stream
        assert isinstance(splice.answer, Reply)
    splice = FACE.splice(is_streamed=True)
    splice.start(takes)
    before, half, rest = given_stream[:700], given_stream[700:703], given_stream[703:]
    out = splice.feed(before) + splice.feed(half) + splice.feed(rest)
    assert out + splice.end() == given_stream


def test_frames_come_out_one_by_one_as_they_came_in() -> None:
    splice = FACE.splice(is_streamed=True)
    splice.start(takes)
    for event in WHOLE[:-2]:
        assert splice.feed(frame(event)) == frame(event)
    for event in WHOLE[-2:]:
        assert splice.feed(frame(event)) == b""
    assert splice.end() == stream(WHOLE[-2:])


@pytest.mark.parametrize("ending", [b"", b"\n", b"\n\n"])
def test_a_stream_without_its_last_blank_line_is_the_same_and_an_answer(ending: bytes) -> None:
    given_stream = stream(WHOLE).rstrip(b"\n") + ending
    out, splice = run([given_stream])
    assert out == given_stream
    assert isinstance(splice.answer, Reply)
    taken, splice = run([stream(answer_events(called("recall"))).rstrip(b"\n"), given_stream])
    assert isinstance(splice.answer, Reply)
    assert_in_order(events_of(taken.rstrip(b"\n") + b"\n\n"))


def test_there_is_no_answer_before_its_own_end_was_seen() -> None:
    splice = FACE.splice(is_streamed=True)
    splice.start(takes)
    for event in WHOLE[:-1]:
        splice.feed(frame(event))
        assert splice.answer is None
    splice.feed(frame(WHOLE[-1]))
    assert isinstance(splice.answer, Reply)


def test_a_broken_stream_has_no_answer_and_ends_as_an_error() -> None:
    for broken in (
        stream(WHOLE[:6]),
        stream(WHOLE[:6]) + b'event: content_block_delta\ndata: {"type":"conte',
        stream(WHOLE)[:-40],
    ):
        splice = FACE.splice(is_streamed=True)
        splice.start(takes)
        out = splice.feed(broken) + splice.feed(b"")
        if b"message_delta" not in broken:
            assert splice.answer is None
        ended = events_of(out + splice.failed('it "broke"'))
        assert ended[-1] == {"type": "error", "error": {"type": "api_error", "message": 'it "broke"'}}
        assert [event["type"] for event in ended[:-1]] == [event["type"] for event in WHOLE[: len(ended) - 1]]


def test_an_answer_without_a_message_stop_counts_when_the_stream_is_over() -> None:
    given_stream = stream(WHOLE[:-1])
    splice = FACE.splice(is_streamed=True)
    splice.start(takes)
    out = splice.feed(given_stream)
    assert splice.answer is None
    assert out + splice.feed(b"") + splice.end() == given_stream
    assert isinstance(splice.answer, Reply)


def test_the_answer_holds_all_blocks_the_hosts_calls_too() -> None:
    _, splice = run(
        [stream(answer_events(THINKING, said("I look."), called("recall"), SEARCHED, called("read", "toolu_2")))]
    )
    assert splice.answer == Reply(
        blocks=(
            Thought(text="first", opaque='{"type":"thinking","thinking":"first","signature":"c2ln"}'),
            Text(text="I look."),
            ToolCall(call_id="toolu_1", name="recall", arguments='{"path": "a.py"}'),
            Opaque(
                kind="server_tool_use",
                raw='{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query": "q"}}',
            ),
            ToolCall(call_id="toolu_2", name="read", arguments='{"path": "a.py"}'),
        ),
        stop_reason="tool_use",
        usage=Usage(uncached=100, cached=200, written=5, output=10),
        model="claude",
        response_id="msg_100",
    )
    assert splice.wire == ""


def test_what_the_blocks_of_an_answer_do_not_say_goes_along() -> None:
    cited = answer_events(said("yes"), {**called("read"), "caller": {"type": "code"}})
    cited.insert(
        3, {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": {"url": "u"}}}
    )
    _, splice = run([stream(cited)])
    assert json.loads(f"[{splice.wire}]") == [
        {"type": "text", "text": "yes", "citations": [{"url": "u"}]},
        {**called("read"), "caller": {"type": "code"}},
    ]
    _, cut_off = run([stream(answer_events({**THINKING, "signature": ""}, said("x"), stop="max_tokens"))])
    assert cut_off.wire == ""


def test_a_call_that_the_output_limit_cut_off_goes_back_as_an_object() -> None:
    events = answer_events({**called("new_context"), "caller": {"type": "code"}}, stop="max_tokens")
    del events[-4]  # the call's last delta
    _, splice = run([stream(events)])
    assert isinstance(splice.answer, Reply)
    assert splice.answer.blocks == (ToolCall(call_id="toolu_1", name="new_context", arguments='{"pat'),)
    (item,) = json.loads(f"[{splice.wire}]")
    assert item["input"] == {"input": '{"pat'}


def test_a_host_call_beside_a_clients_is_cut_out() -> None:
    given_stream = stream(answer_events(said("I"), called("recall"), called("read", "toolu_2"), said("on")))
    for cut in (0, 1, 13):
        out, _ = run([given_stream], cut=cut)
        events = events_of(out)
        assert_in_order(events)
        message = message_of(out)
        assert [block.type for block in message.content] == ["text", "tool_use", "text"]
        assert (message.content[1].id, message.content[1].input) == ("toolu_2", {"path": "a.py"})
        assert (message.stop_reason, message.usage.output_tokens) == ("tool_use", 10)
        assert b"recall" not in out
        assert b"toolu_1" not in out


def test_answers_follow_each_other_in_one_message() -> None:
    first = answer_events(THINKING, called("recall"), prompt=100, output=10)
    second = answer_events(said("Now."), called("new_context"), prompt=200, output=20)
    third = answer_events(REDACTED, said("Then."), called("read", "toolu_3"), prompt=30, output=7)
    out, splice = run([stream(first), stream(second), stream(third)])
    assert_in_order(events_of(out))
    message = message_of(out)
    assert [block.type for block in message.content] == ["thinking", "text", "redacted_thinking", "text", "tool_use"]
    assert message.content[0].signature == "c2ln"
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (30, 60, 5)
    assert usage.output_tokens == 37
    assert (message.id, message.stop_reason) == ("msg_100", "tool_use")
    assert isinstance(splice.answer, Reply)
    assert splice.answer.response_id == "msg_30"


@pytest.mark.parametrize(
    ("answers", "stop"),
    [
        ([answer_events(called("recall"))], "end_turn"),
        ([answer_events(called("recall"), called("read"))], "tool_use"),
        ([answer_events(called("recall")), answer_events(said("done"))], "end_turn"),
        ([answer_events(called("recall"), called("read")), answer_events(said("done"))], "tool_use"),
        ([answer_events(called("recall")), answer_events(said("cut"), stop="max_tokens")], "max_tokens"),
        ([answer_events(called("recall")), answer_events(called("recall"))], "end_turn"),
        ([answer_events(said("odd"), stop="tool_use")], "tool_use"),
        ([answer_events(called("read"), stop="end_turn")], "end_turn"),
        ([answer_events(called("recall")), answer_events(said("no"), stop="refusal")], "refusal"),
    ],
)
def test_the_client_hears_of_calls_if_it_has_some(answers: list[list[Event]], stop: str) -> None:
    out, _ = run([stream(answer) for answer in answers])
    events = events_of(out)
    assert_in_order(events)
    assert events[-2]["delta"]["stop_reason"] == stop
    whole, _ = run_whole([whole_of(answer) for answer in answers])
    assert json.loads(whole)["stop_reason"] == stop


def test_what_stands_behind_the_end_of_an_answer_is_kept() -> None:
    first = stream(answer_events(said("a"), called("recall"))) + b": note\n\n" + frame({"type": "new_event", "x": 1})
    second = answer_events(said("b"))
    splice = FACE.splice(is_streamed=True)
    splice.start(takes)
    out = splice.feed(first)
    splice.start(takes)
    more = splice.feed(frame(second[0]))
    assert more == b": note\n\n" + frame({"type": "new_event", "x": 1})
    out += more + splice.feed(stream(second[1:])) + splice.end()
    assert message_of(out).content[1].text == "b"


def test_several_closing_deltas_are_one_when_something_changed_and_none_is_touched_else() -> None:
    events = answer_events(said("a"), called("recall"))
    early = {"type": "message_delta", "delta": {"stop_reason": None}, "usage": {"output_tokens": 3}}
    events.insert(-2, early)
    out, _ = run([stream(events)])
    assert_in_order(events_of(out))
    untouched, _ = run([stream(events)], by=nobody)
    assert untouched == stream(events)


OVERLOADED: Event = {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}


def test_an_error_is_a_failure_and_goes_on_as_it_came_if_nothing_follows() -> None:
    given_stream = stream([*answer_events(said("a"))[:4], OVERLOADED])
    out, splice = run([given_stream])
    assert out == given_stream
    assert splice.answer == Failure(kind="unavailable", message="busy")
    assert splice.wire == ""


def test_an_error_that_another_answer_follows_is_not_seen() -> None:
    out, splice = run([stream([*answer_events()[:2], OVERLOADED]), stream(answer_events(said("b"), prompt=7))])
    assert_in_order(events_of(out))
    message = message_of(out)
    assert (message.content[0].text, message.usage.input_tokens) == ("b", 7)
    assert isinstance(splice.answer, Reply)
    first, _ = run([stream([OVERLOADED]), stream(answer_events(said("b")))])
    assert_in_order(events_of(first))


@pytest.mark.parametrize(
    "odd",
    [
        b"event: x\ndata: 7\n\n",
        b"event: message_delta\ndata: null\n\n",
        b'data: {"type":"content_block_start","index":"no","content_block":7}\n\n',
        b'data: {"type":"content_block_stop","index":99}\n\n',
        b'data: {"type":"ping","x":"\\ud83d","n":NaN}\n\n',
        b'data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\\ud83d"}}\n\n',
        b'data: {"type":"message_start","message":"none"}\n\n',
        b"data: \xff\xfe\n\n",
        b"id: 7\nretry: 10\n\n",
    ],
)
def test_an_odd_event_goes_on_as_it_came(odd: bytes) -> None:
    events = answer_events(said("abcdefgh"))
    given_stream = stream(events[:4]) + odd + stream(events[4:])
    out, splice = run([given_stream])
    assert out == given_stream
    assert splice.answer is not None
    given_usage = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": None}
    out, _ = run([stream(answer_events(called("recall"))), stream([*events[:-2], given_usage, events[-1]])])
    assert events_of(out)[-2]["usage"]["output_tokens"] == 11


# -- in one piece


def whole_of(events: Sequence[Event]) -> bytes:
    """The same answer as if it had not been streamed."""
    message = dict(events[0]["message"])
    content = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    for block in content:
        if "input" in block:
            block["input"] = {"path": "a.py"}
    usage = {**message["usage"], **events[-2]["usage"]}
    return json.dumps({**message, "content": content, **events[-2]["delta"], "usage": usage, "new": {"b": 1}}).encode()


def run_whole(answers: Sequence[bytes]) -> tuple[bytes, Splice]:
    splice = FACE.splice(is_streamed=False)
    for answer in answers:
        splice.start(takes)
        splice.whole(answer)
    return splice.end(), splice


def test_an_answer_in_one_piece_is_the_same_if_nothing_is_taken() -> None:
    body = whole_of(WHOLE)
    out, splice = run_whole([body])
    assert out == body
    assert isinstance(splice.answer, Reply)
    assert len(splice.answer.blocks) == 7
    assert splice.wire == ""


def test_answers_in_one_piece_are_one() -> None:
    first = answer_events(THINKING, called("recall"), prompt=100, output=10)
    second = answer_events(said(""), FOUND, called("read", "toolu_2"), prompt=30, output=7)
    out, splice = run_whole([whole_of(first), whole_of(second)])
    made = json.loads(out)
    assert [block["type"] for block in made["content"]] == ["thinking", "text", "web_search_tool_result", "tool_use"]
    assert made["content"][2] == FOUND
    assert made["usage"] == {
        "input_tokens": 30,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 5,
        "output_tokens": 17,
    }
    assert (made["stop_reason"], made["new"]) == ("tool_use", {"b": 1})
    assert isinstance(splice.answer, Reply)
    assert splice.answer.response_id == "msg_30"


def test_an_error_in_one_piece_is_a_failure_as_it_came() -> None:
    body = json.dumps(OVERLOADED).encode()
    out, splice = run_whole([whole_of(answer_events(called("recall"))), body])
    assert out == body
    assert isinstance(splice.answer, Failure)
    with pytest.raises(msgspec.DecodeError):
        run_whole([b"<html>"])
    assert json.loads(FACE.splice(is_streamed=False).failed("no"))["error"]["message"] == "no"


# -- any answers, any cuts

_BLOCKS = st.sampled_from(
    [
        THINKING,
        REDACTED,
        said("Grüße"),
        said(""),
        SEARCHED,
        FOUND,
        *(called(name) for name in ("recall", "new_context", "read", "ls")),
    ]
)


@given(
    st.lists(st.lists(_BLOCKS, max_size=5), min_size=1, max_size=4),
    st.frozensets(st.sampled_from(["recall", "new_context", "read"])),
    st.integers(0, 90),
)
def test_the_client_gets_all_but_what_is_taken(answers: list[list[Event]], taken: frozenset[str], cut: int) -> None:
    numbered = [
        [
            {**block, "id": f"toolu_{turn}_{place}"} if block["type"] == "tool_use" else block
            for place, block in enumerate(blocks)
        ]
        for turn, blocks in enumerate(answers)
    ]
    streams = [stream(answer_events(*blocks, prompt=turn + 1, output=turn + 1)) for turn, blocks in enumerate(numbered)]
    out, splice = run(streams, by=taken.__contains__, cut=cut)
    kept = [
        block for blocks in numbered for block in blocks if block["type"] != "tool_use" or block["name"] not in taken
    ]
    if len(answers) == 1 and kept == numbered[0]:
        assert out == streams[0]
    events = events_of(out)
    assert_in_order(events)
    opened = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [(one["type"], one.get("id")) for one in opened] == [(one["type"], one.get("id")) for one in kept]
    usage = events[-2]["usage"]
    assert usage["output_tokens"] == sum(range(1, len(answers) + 1))
    assert usage.get("input_tokens", 1) == len(answers)
    has_calls = any(block["type"] == "tool_use" for block in kept)
    was_called = any(block["type"] == "tool_use" for block in numbered[-1])
    assert events[-2]["delta"]["stop_reason"] == ("tool_use" if has_calls else "end_turn") or (
        was_called and not has_calls
    )
    assert isinstance(splice.answer, Reply)
    assert len(splice.answer.blocks) == len(numbered[-1])


def test_the_sdk_reads_every_kind_of_block_from_a_spliced_stream() -> None:
    given_blocks = [THINKING, REDACTED, said("Grüße \U0001f600"), SEARCHED, FOUND, called("read", "toolu_2")]
    out, _ = run([stream(answer_events(said("before"), called("recall"))), stream(answer_events(*given_blocks))])
    message = message_of(out)
    assert [block.type for block in message.content] == ["text", *(block["type"] for block in given_blocks)]
    assert message.content[3].text == "Grüße \U0001f600"
    assert message.content[4].input == {"query": "q"}
