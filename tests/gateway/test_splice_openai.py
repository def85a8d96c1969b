"""The host's calls are taken out of OpenAI's streams: of one answer nothing else changes, and several are one."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.provider_errors import Failure
from transom.adapters.provider_openai_chat_reply import ChatReader
from transom.adapters.provider_openai_responses_reply import ResponsesReader
from transom.core.block import Opaque, Text, Thought, ToolCall
from transom.core.event import Usage
from transom.errors import UsageError
from transom.gateway.events import Cutter, data_of
from transom.gateway.face import Face, Splice
from transom.gateway.face_openai_chat import OpenAIChatFace
from transom.gateway.face_openai_responses import OpenAIResponsesFace
from transom.ports import Reply
from transom.testing.loopback import Canned, Loopback

openai = pytest.importorskip("openai", reason="the extra dev brings the openai SDK: pip install -e '.[dev]'")

CHAT, RESPONSES = OpenAIChatFace(), OpenAIResponsesFace()
Part = tuple[str, ...]
"""("text", words), ("thought", words), ("call", id, name, arguments) or ("custom", id, name, input)."""
OURS = frozenset({"recall", "new_context"})


def takes(name: str) -> bool:
    return name in OURS


# -- an upstream's answers


def pieces(text: str, size: int = 4) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def chat_usage(number: int) -> dict[str, Any]:
    made = {"prompt_tokens": 100 * number, "completion_tokens": number, "total_tokens": 101 * number}
    details = {"cached_tokens": 10 * number}
    return made | {"prompt_tokens_details": details, "completion_tokens_details": {"reasoning_tokens": 1, "x": None}}


def chat(number: int, parts: Sequence[Part], finish: str = "") -> bytes:
    """A stream as OpenAI sends it."""
    base = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": "m1"}

    def chunk(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return base | {
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}],
            "usage": None,
        }

    made = [chunk({"role": "assistant", "content": "", "refusal": None})]
    place = 0
    for kind, *rest in parts:
        if kind == "text":
            made.extend(chunk({"content": piece}) for piece in pieces(rest[0]))
        elif kind == "thought":
            made.extend(chunk({"reasoning_content": piece}) for piece in pieces(rest[0]))
        else:
            call_id, name, arguments = rest
            opening = {"index": place, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
            made.append(chunk({"tool_calls": [opening]}))
            made.extend(
                chunk({"tool_calls": [{"index": place, "function": {"arguments": one}}]}) for one in pieces(arguments)
            )
            place += 1
    made.append(chunk({}, finish or ("tool_calls" if place else "stop")))
    made.append(base | {"choices": [], "usage": chat_usage(number)})
    return (
        b"".join(b"data: %b\n\n" % json.dumps(one, separators=(",", ":")).encode() for one in made)
        + b"data: [DONE]\n\n"
    )


def chat_whole(number: int, parts: Sequence[Part], finish: str = "") -> bytes:
    calls = [
        {"id": one[1], "type": "function", "function": {"name": one[2], "arguments": one[3]}}
        for one in parts
        if one[0] == "call"
    ]
    message = {
        "role": "assistant",
        "content": "".join(one[1] for one in parts if one[0] == "text") or None,
        "refusal": None,
    }
    if thought := "".join(one[1] for one in parts if one[0] == "thought"):
        message["reasoning_content"] = thought
    choice = {
        "index": 0,
        "message": message | ({"tool_calls": calls} if calls else {}),
        "finish_reason": finish or ("tool_calls" if calls else "stop"),
    }
    return json.dumps(
        {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "model": "m1",
            "choices": [choice],
            "usage": chat_usage(number),
        }
    ).encode()


def responses_items(number: int, parts: Sequence[Part]) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for place, (kind, *rest) in enumerate(parts):
        if kind == "text":
            content = [{"type": "output_text", "text": rest[0], "annotations": []}]
            made.append(
                {
                    "type": "message",
                    "id": f"msg_{number}_{place}",
                    "status": "completed",
                    "role": "assistant",
                    "content": content,
                }
            )
        elif kind == "thought":
            summary = [{"type": "summary_text", "text": rest[0]}]
            made.append(
                {"type": "reasoning", "id": f"rs_{number}_{place}", "summary": summary, "encrypted_content": "Z2g="}
            )
        else:
            form, field = ("function_call", "arguments") if kind == "call" else ("custom_tool_call", "input")
            made.append(
                {
                    "type": form,
                    "id": f"fc_{number}_{place}",
                    "status": "completed",
                    "call_id": rest[0],
                    "name": rest[1],
                    field: rest[2],
                }
            )
    return made


def response(number: int, status: str, items: Sequence[object] = (), **fields: object) -> dict[str, Any]:
    made = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": "m1",
        "error": None,
    }
    usage = {
        "input_tokens": 100 * number,
        "input_tokens_details": {"cached_tokens": 10 * number},
        "output_tokens": number,
    }
    usage |= {"output_tokens_details": {"reasoning_tokens": 1}, "total_tokens": 101 * number}
    return (
        made
        | {
            "incomplete_details": None,
            "output": list(items),
            "tools": [],
            "usage": usage if items or status != "in_progress" else None,
        }
        | fields
    )


def responses(number: int, parts: Sequence[Part], finish: str = "") -> bytes:
    events: list[dict[str, Any]] = []

    def say(kind: str, **fields: object) -> None:
        events.append({"type": kind, "sequence_number": len(events), **fields})

    say("response.created", response=response(number, "in_progress"))
    say("response.in_progress", response=response(number, "in_progress"))
    items = responses_items(number, parts)
    for place, item in enumerate(items):
        at = {"item_id": item["id"], "output_index": place}
        if item["type"] == "message":
            say("response.output_item.added", output_index=place, item=item | {"content": [], "status": "in_progress"})
            say(
                "response.content_part.added",
                **at,
                content_index=0,
                part={"type": "output_text", "text": "", "annotations": []},
            )
            for piece in pieces(item["content"][0]["text"]):
                say("response.output_text.delta", **at, content_index=0, delta=piece, logprobs=[])
            say("response.output_text.done", **at, content_index=0, text=item["content"][0]["text"], logprobs=[])
            say("response.content_part.done", **at, content_index=0, part=item["content"][0])
        elif item["type"] == "reasoning":
            say("response.output_item.added", output_index=place, item=item | {"summary": [], "encrypted_content": ""})
            say(
                "response.reasoning_summary_part.added",
                **at,
                summary_index=0,
                part={"type": "summary_text", "text": ""},
            )
            say("response.reasoning_summary_text.delta", **at, summary_index=0, delta=item["summary"][0]["text"])
            say("response.reasoning_summary_part.done", **at, summary_index=0, part=item["summary"][0])
        else:
            field, name = (
                ("arguments", "function_call_arguments") if "arguments" in item else ("input", "custom_tool_call_input")
            )
            say("response.output_item.added", output_index=place, item=item | {field: "", "status": "in_progress"})
            for piece in pieces(item[field]):
                say(f"response.{name}.delta", **at, delta=piece)
            say(
                f"response.{name}.done",
                **at,
                **{field: item[field]},
                **({"name": item["name"]} if field == "arguments" else {}),
            )
        say("response.output_item.done", output_index=place, item=item)
    status = finish or "completed"
    more = {"incomplete_details": {"reason": "max_output_tokens"}} if status == "incomplete" else {}
    say(f"response.{status}", response=response(number, status, items, **more))
    return b"".join(
        b"event: %b\ndata: %b\n\n" % (one["type"].encode(), json.dumps(one, separators=(",", ":")).encode())
        for one in events
    )


def responses_whole(number: int, parts: Sequence[Part], finish: str = "") -> bytes:
    return json.dumps(response(number, finish or "completed", responses_items(number, parts))).encode()


Stream = Callable[..., bytes]
STREAMS: list[tuple[Face, Stream]] = [(CHAT, chat), (RESPONSES, responses)]
WHOLES: list[tuple[Face, Stream]] = [(CHAT, chat_whole), (RESPONSES, responses_whole)]

RICH: list[Part] = [
    ("thought", "first I think"),
    ("text", "Grüße \U0001f600"),
    ("call", "c1", "read", '{"path": "a.py"}'),
    ("call", "c2", "recall", '{"query": "x"}'),
    ("call", "c3", "ls", "{}"),
]


# -- a client


def frames_of(stream: bytes) -> list[bytes]:
    cutter = Cutter()
    found = cutter.feed(stream)
    assert cutter.rest() == b""
    return found


def events_of(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(data) for frame in frames_of(stream) if (data := data_of(frame)) not in {b"", b"[DONE]"}]


def read(face: Face, stream: bytes) -> Reply:
    """As our own reader of the API reads it."""
    reader: ChatReader | ResponsesReader = ChatReader("") if face is CHAT else ResponsesReader("")
    for frame in frames_of(stream):
        if data := data_of(frame):
            assert not isinstance(reader.event(data.decode()), Failure)
    reply = reader.reply()
    assert reply is not None
    assert reader.is_done
    return reply


def check_chat(stream: bytes) -> None:
    """The order the API documents: one opening, one id, calls in their order, one ending."""
    assert frames_of(stream)[-1] == b"data: [DONE]\n\n"
    events = events_of(stream)
    assert len({one["id"] for one in events}) == 1
    deltas = [choice["delta"] for one in events for choice in one["choices"]]
    assert [at for at, delta in enumerate(deltas) if "role" in delta] == [0]
    opened = [call["index"] for delta in deltas for call in delta.get("tool_calls", ()) if "id" in call]
    assert opened == list(range(len(opened)))
    known: set[int] = set()
    for delta in deltas:
        assert delta.get("tool_calls") != []
        for call in delta.get("tool_calls", ()):
            assert ("id" in call) == (call["index"] not in known)
            known.add(call["index"])
    reasons = [choice["finish_reason"] for one in events for choice in one["choices"]]
    assert [reason is None for reason in reasons] == [True] * (len(reasons) - 1) + [False]
    assert [one["usage"] is None for one in events] == [True] * (len(events) - 1) + [False]


def check_responses(stream: bytes) -> None:
    events = events_of(stream)
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    assert [one["type"] for one in events[:2]] == ["response.created", "response.in_progress"]
    closing = {"response.completed", "response.incomplete"}
    assert [at for at, one in enumerate(events) if one["type"] in closing] == [len(events) - 1]
    assert not any(one["type"] == "response.created" for one in events[1:])
    assert len({one["response"]["id"] for one in events if "response" in one}) == 1
    opened = [one["output_index"] for one in events if one["type"] == "response.output_item.added"]
    assert opened == list(range(len(opened)))
    ids = {one["output_index"]: one["item"]["id"] for one in events if one["type"] == "response.output_item.added"}
    assert all(
        ids[one["output_index"]] == one.get("item_id", ids[one["output_index"]])
        for one in events
        if "output_index" in one
    )
    done = {one["output_index"]: one["item"] for one in events if one["type"] == "response.output_item.done"}
    assert events[-1]["response"]["output"] == [done[place] for place in sorted(done)]
    assert all(
        frame.startswith(b"event: " + event["type"].encode())
        for frame, event in zip(frames_of(stream), events, strict=True)
    )


def check(face: Face, stream: bytes) -> None:
    (check_chat if face is CHAT else check_responses)(stream)


def spliced(
    face: Face, answers: Sequence[bytes], cuts: Sequence[Sequence[int]] = ()
) -> tuple[bytes, list[Reply | Failure | None], Splice]:
    splice = face.splice(is_streamed=True)
    out: list[bytes] = []
    replies: list[Reply | Failure | None] = []
    for at, answer in enumerate(answers):
        splice.start(takes)
        places = sorted({place % (len(answer) + 1) for place in (cuts[at] if cuts else ())})
        for first, end in zip([0, *places], [*places, len(answer)], strict=True):
            if first < end:
                out.append(splice.feed(answer[first:end]))
        out.append(splice.feed(b""))
        replies.append(splice.answer)
    out.append(splice.end())
    return b"".join(out), replies, splice


def kept(parts: Sequence[Part]) -> list[Part]:
    return [one for one in parts if one[0] not in {"call", "custom"} or one[2] not in OURS]


# -- one answer


@pytest.mark.parametrize(("face", "stream"), STREAMS)
def test_an_answer_of_the_clients_own_is_the_same_bytes_however_it_is_cut(face: Face, stream: Stream) -> None:
    data = stream(1, kept(RICH))
    assert spliced(face, [data])[0] == data
    for place in range(0, len(data), 7):
        assert spliced(face, [data], [[place, place + 1, place + 3]])[0] == data


@pytest.mark.parametrize(("face", "stream"), STREAMS)
def test_a_frame_is_shown_when_it_came_and_only_the_ending_is_held(face: Face, stream: Stream) -> None:
    frames = frames_of(stream(1, kept(RICH)))
    splice = face.splice(is_streamed=True)
    splice.start(takes)
    held = 3 if face is CHAT else 1
    for at, frame in enumerate(frames):
        assert splice.answer is None or at > len(frames) - held
        assert splice.feed(frame[:-1]) == b""
        assert splice.feed(frame[-1:]) == (frame if at < len(frames) - held else b"")
    assert isinstance(splice.answer, Reply)
    assert splice.end() == b"".join(frames[-held:])


@pytest.mark.parametrize(("face", "stream"), STREAMS)
@pytest.mark.parametrize("change", ["crlf", "comments", "unknown", "no names", "spaced", "torn", "no end"])
def test_what_servers_do_differently_stays_as_it_is(face: Face, stream: Stream, change: str) -> None:
    data = stream(1, kept(RICH))
    frames = frames_of(data)
    match change:
        case "crlf":
            data = data.replace(b"\n", b"\r\n")
        case "comments":
            data = b"".join(b": ping\n\n" + frame for frame in frames)
        case "unknown":
            data = b'event: odd\ndata: {"type":"odd","x":NaN}\n\ndata: half \xff\n\n' + data
        case "no names":
            data = re.sub(rb"event: .*\n", b"", data)
        case "spaced":
            data = data.replace(b'":', b'" : ')
        case "torn":
            data = data[:-2]
        case _:
            data = b"".join(frames[:-1] if face is CHAT else frames)
    out, (reply,), _ = spliced(face, [data], [range(0, len(data), 11)])
    assert out == data
    assert isinstance(reply, Reply)
    assert [type(block) for block in reply.blocks] == [Thought, Text, ToolCall, ToolCall]


@pytest.mark.parametrize(("face", "stream"), STREAMS)
def test_the_hosts_call_is_taken_out_and_the_reply_has_it(face: Face, stream: Stream) -> None:
    out, (reply,), splice = spliced(face, [stream(1, RICH)])
    check(face, out)
    assert b"recall" not in out
    assert b"c2" not in out
    assert isinstance(reply, Reply)
    assert [block.name for block in reply.blocks if isinstance(block, ToolCall)] == ["read", "recall", "ls"]
    assert reply.usage == Usage(uncached=90, cached=10, output=1, reasoning=1)
    found = read(face, out)
    assert found.blocks == read(face, stream(1, kept(RICH))).blocks
    assert (found.stop_reason, found.usage) == (reply.stop_reason, reply.usage)
    assert splice.wire == ""


@pytest.mark.parametrize(("face", "stream"), STREAMS)
def test_an_answer_that_called_only_the_host_ends_as_one_without_calls(face: Face, stream: Stream) -> None:
    out, _, _ = spliced(face, [stream(1, [("call", "c", "recall", "{}")])])
    check(face, out)
    found = read(face, out)
    assert (found.blocks, found.stop_reason) == ((), "stop" if face is CHAT else "completed")


# -- several answers


@pytest.mark.parametrize(("face", "stream"), STREAMS)
def test_several_answers_are_one_to_the_client(face: Face, stream: Stream) -> None:
    answers: list[list[Part]] = [
        [("thought", "I look"), ("text", "Wait."), ("call", "h1", "recall", "{}")],
        [("call", "h2", "new_context", '{"handoff": {}}')],
        [
            ("thought", "so"),
            ("text", "Found it."),
            ("call", "h3", "recall", "{}"),
            ("call", "c1", "read", '{"path": "a"}'),
            ("call", "c2", "ls", "{}"),
        ],
    ]
    streams = [stream(number, parts) for number, parts in enumerate(answers, 1)]
    out, replies, _ = spliced(face, streams)
    check(face, out)
    assert replies == [spliced(face, [one])[1][0] for one in streams]
    found = read(face, out)
    assert [block.call_id for block in found.blocks if isinstance(block, ToolCall)] == ["c1", "c2"]
    words = [block.text for block in found.blocks if isinstance(block, Text)]
    assert words == (["Wait.\n\nFound it."] if face is CHAT else ["Wait.", "Found it."])
    assert found.usage == Usage(uncached=270, cached=30, output=6, reasoning=3)
    assert found.response_id == ("chatcmpl-1" if face is CHAT else "resp_1")
    total = events_of(out)[-1]
    assert (total if face is CHAT else total["response"])["usage"]["total_tokens"] == 306
    assert found.stop_reason == ("tool_calls" if face is CHAT else "completed")


NAMES = st.sampled_from(["read", "recall", "ls", "new_context"])
LETTERS = st.text(alphabet='aé\U0001f600"\\\n{}:', min_size=1, max_size=9)
PARTS = st.lists(
    st.tuples(st.just("text"), LETTERS)
    | st.tuples(st.just("thought"), LETTERS)
    | st.tuples(st.just("call"), NAMES, LETTERS),
    max_size=5,
)
ANSWERS = st.lists(
    st.tuples(PARTS, st.lists(st.integers(0, 9999), max_size=6), st.sampled_from(["", "", "length"])),
    min_size=1,
    max_size=3,
)


@given(which=st.integers(0, 1), drawn=ANSWERS)
def test_any_answers_cut_anywhere_are_one_well_formed_answer(
    which: int, drawn: list[tuple[list[Any], list[int], str]]
) -> None:
    face, stream = STREAMS[which]
    answers: list[list[Part]] = []
    for number, (parts, _, _) in enumerate(drawn):
        named = [(one[0], f"id{number}-{at}", *one[1:]) if one[0] == "call" else one for at, one in enumerate(parts)]
        answers.append(named)
    finish = ["incomplete" if face is RESPONSES and end else end for _, _, end in drawn]
    streams = [stream(number, parts, end) for number, (parts, end) in enumerate(zip(answers, finish, strict=True), 1)]
    out, replies, _ = spliced(face, streams, [cuts for _, cuts, _ in drawn])
    assert out == spliced(face, streams)[0]
    check(face, out)
    calls = [
        block for reply in replies if isinstance(reply, Reply) for block in reply.blocks if isinstance(block, ToolCall)
    ]
    wanted = [
        ToolCall(call_id=one[1], name=one[2], arguments=one[3])
        for parts in answers
        for one in parts
        if one[0] == "call"
    ]
    assert calls == wanted
    found = read(face, out)
    assert [block for block in found.blocks if isinstance(block, ToolCall)] == [
        call for call in wanted if call.name not in OURS
    ]
    texts = ["".join(one[1] for one in parts if one[0] == "text") for parts in answers]
    said = "".join(block.text for block in found.blocks if isinstance(block, Text))
    assert said == ("\n\n" if face is CHAT else "").join(filter(None, texts))
    if len(answers) == 1 and not OURS & {call.name for call in wanted}:
        assert out == streams[0]
    assert found.usage is not None
    assert found.usage.output == sum(range(1, len(answers) + 1))
    assert found.usage.prompt == 100 * len(answers)


@given(which=st.integers(0, 1), drawn=st.lists(PARTS, min_size=1, max_size=3))
def test_answers_in_one_piece_say_what_their_streams_say(which: int, drawn: list[list[Any]]) -> None:
    (face, whole), (_, stream) = WHOLES[which], STREAMS[which]
    answers = [
        [(one[0], f"id{number}-{at}", *one[1:]) if one[0] == "call" else one for at, one in enumerate(parts)]
        for number, parts in enumerate(drawn)
    ]
    splice = face.splice(is_streamed=False)
    bodies = [whole(number, parts) for number, parts in enumerate(answers, 1)]
    for body in bodies:
        splice.start(takes)
        splice.whole(body)
        assert isinstance(splice.answer, Reply)
    out = splice.end()
    reader: ChatReader | ResponsesReader = ChatReader("") if face is CHAT else ResponsesReader("")
    found, streamed = (
        reader.whole(out),
        read(face, spliced(face, [stream(n, parts) for n, parts in enumerate(answers, 1)])[0]),
    )
    assert isinstance(found, Reply)
    without = [[block for block in one.blocks if not isinstance(block, Thought)] for one in (found, streamed)]
    assert without[0] == without[1]
    assert (found.stop_reason, found.usage, found.response_id) == (
        streamed.stop_reason,
        streamed.usage,
        streamed.response_id,
    )
    if len(bodies) == 1 and not any(one[0] == "call" and one[2] in OURS for one in answers[0]):
        assert out == bodies[0]


# -- what else servers and models do


def chunk_of(delta: str, more: str = "", finish: str = "null") -> bytes:
    return b'data: {"id":"x","choices":[{"index":0,"delta":%b,"finish_reason":%b}]%b}\n\n' % (
        delta.encode(),
        finish.encode(),
        more.encode(),
    )


def call_piece(**fields: object) -> dict[str, object]:
    return {key: value for key, value in fields.items() if value is not None}


def calls_of(out: bytes) -> list[Any]:
    return [
        call for one in events_of(out) for choice in one["choices"] for call in choice["delta"].get("tool_calls", ())
    ]


def test_a_call_whose_name_comes_late_is_held_until_then() -> None:
    frames = [
        chunk_of('{"tool_calls":[{"index":0,"id":"a"}]}'),
        chunk_of('{"content":"meanwhile"}'),
        chunk_of('{"tool_calls":[{"index":1,"id":"b","function":{"name":"ls"}}]}'),
        chunk_of('{"tool_calls":[{"index":0,"function":{"name":"recall","arguments":"{}"}}]}'),
        chunk_of("{}", finish='"tool_calls"'),
    ]
    splice = CHAT.splice(is_streamed=True)
    splice.start(takes)
    assert [splice.feed(frame) for frame in frames[:3]] == [b"", b"", b""]
    shown = splice.feed(frames[3])
    assert b"meanwhile" in shown
    assert calls_of(shown) == [{"index": 0, "id": "b", "function": {"name": "ls"}}]
    never = spliced(CHAT, [b"".join(frames[:2]) + frames[4]])[0]
    assert never == b"".join(frames[:2]) + frames[4]


def test_calls_are_told_apart_where_a_server_gives_no_index_or_always_the_same() -> None:
    for at in ("", '"index":0,'):
        pieces_in = [
            f'{{"tool_calls":[{{{at}"id":"a","function":{{"name":"read","arguments":"{{"}}}}]}}',
            f'{{"tool_calls":[{{{at}"function":{{"arguments":"}}"}}}}]}}',
            f'{{"tool_calls":[{{{at}"id":"b","function":{{"name":"recall","arguments":"{{}}"}}}}]}}',
            f'{{"tool_calls":[{{{at}"id":"c","function":{{"name":"ls","arguments":"{{}}"}}}}]}}',
        ]
        data = b"".join(map(chunk_of, pieces_in)) + chunk_of("{}", finish='"tool_calls"')
        out, (reply,), _ = spliced(CHAT, [data])
        assert isinstance(reply, Reply)
        assert [block.call_id for block in reply.blocks if isinstance(block, ToolCall)] == ["a", "b", "c"]
        found = read_loose(out)
        assert [(block.call_id, block.arguments) for block in found.blocks if isinstance(block, ToolCall)] == [
            ("a", "{}"),
            ("c", "{}"),
        ]
        assert calls_of(out)[-1]["index"] == 1


def read_loose(out: bytes) -> Reply:
    return read(CHAT, out + b"data: [DONE]\n\n")


def test_what_stands_beside_a_taken_call_in_one_chunk_is_shown() -> None:
    both = '{"role":"assistant","content":"hi","tool_calls":[{"index":0,"id":"a","function":{"name":"recall","arguments":"{}"}},{"index":1,"id":"b","function":{"name":"ls","arguments":"{}"}}]}'
    out, _, _ = spliced(CHAT, [chunk_of(both, finish='"tool_calls"')])
    (event,) = events_of(out)
    delta = event["choices"][0]["delta"]
    assert (delta["role"], delta["content"], delta["tool_calls"][0]["id"], delta["tool_calls"][0]["index"]) == (
        "assistant",
        "hi",
        "b",
        0,
    )
    assert event["choices"][0]["finish_reason"] == "tool_calls"


def test_words_in_an_ending_that_is_not_the_last_are_not_lost() -> None:
    first = chunk_of('{"content":"a"}') + chunk_of(
        '{"content":"b","tool_calls":[{"index":0,"id":"h","function":{"name":"recall","arguments":"{}"}}]}',
        ',"usage":{"prompt_tokens":3,"completion_tokens":4}',
        '"tool_calls"',
    )
    second = chunk_of('{"role" : "assistant", "content":"c"}').replace(b'"id":"x"', b'"id" : "y"') + chunk_of(
        '{"role":"assistant","content":"d"}'
    ).replace(b'"x"', b'"y"')
    second += chunk_of(
        "{}", ',"usage":{"prompt_tokens":5,"completion_tokens":6,"total_tokens":11,"cost":0.5}', '"length"'
    ).replace(b'"x"', b'"y"')
    out, _, _ = spliced(CHAT, [first, second])
    events = events_of(out)
    assert [one["choices"][0]["delta"] for one in events] == [
        {"content": "a"},
        {"content": "b"},
        {"content": "\n\nc"},
        {"content": "d"},
        {},
    ]
    assert [one["choices"][0]["finish_reason"] for one in events] == [None] * 4 + ["length"]
    assert [one.get("usage") for one in events] == [None] * 4 + [
        {"prompt_tokens": 5, "completion_tokens": 10, "total_tokens": 15, "cost": 0.5}
    ]
    assert {one["id"] for one in events} == {"x"}


def test_nothing_is_taken_from_an_answer_with_several_choices() -> None:
    call = '{"tool_calls":[{"index":0,"id":"a","function":{"name":"ls","arguments":"{}"}}]}'
    frames = [
        chunk_of("{}"),
        chunk_of(call),
        chunk_of("{}", finish='"stop"'),
        chunk_of(call.replace("ls", "recall")).replace(b'"index":0,"delta"', b'"index":1,"delta"'),
        chunk_of("{}", finish='"stop"').replace(b'"index":0', b'"index":1'),
        b"data: [DONE]\n\n",
    ]
    assert spliced(CHAT, [b"".join(frames)])[0] == b"".join(frames)
    body = b'{"choices":[{"message":{"tool_calls":[{"id":"a","function":{"name":"recall"}}]},"finish_reason":"tool_calls"},{"message":{}}]}'
    whole = CHAT.splice(is_streamed=False)
    whole.start(takes)
    whole.whole(body)
    assert whole.end() == body


@pytest.mark.parametrize("face", [CHAT, RESPONSES])
def test_a_call_that_is_no_function_is_the_clients(face: Face) -> None:
    if face is CHAT:
        data = chunk_of(
            '{"tool_calls":[{"index":0,"id":"a","type":"custom","custom":{"name":"recall","input":"x"}}]}'
        ) + chunk_of("{}", finish='"tool_calls"')
        (reply,) = spliced(face, [data])[1]
        assert isinstance(reply, Reply)
        assert isinstance(reply.blocks[0], Opaque)
    else:
        data = responses(1, [("custom", "a", "exec", "run()")])
        (reply,) = spliced(face, [data])[1]
        assert isinstance(reply, Reply)
        assert reply.blocks == (ToolCall(call_id="custom_tool_call:a", name="exec", arguments="run()"),)
    assert spliced(face, [data])[0] == data


@pytest.mark.parametrize(("face", "stream"), STREAMS)
def test_an_answer_that_broke_off_has_no_end_and_is_said_to_have_failed(face: Face, stream: Stream) -> None:
    frames = frames_of(stream(1, RICH))
    splice = face.splice(is_streamed=True)
    splice.start(takes)
    out = splice.feed(b"".join(frames[:-3]) + frames[-3][:20]) + splice.feed(b"")
    assert splice.answer is None
    event = json.loads(data_of(splice.failed('the "other" side left')))
    told = event["error"] if face is CHAT else event["response"]["error"]
    assert told["message"] == 'the "other" side left'
    if face is RESPONSES:
        assert (event["type"], event["response"]["id"], event["response"]["status"]) == (
            "response.failed",
            "resp_1",
            "failed",
        )
        assert event["sequence_number"] == len(frames_of(out))
        bare = json.loads(data_of(face.splice(is_streamed=True).failed("x")))
        assert bare["response"]["output"] == []


@pytest.mark.parametrize(("face", "stream"), STREAMS)
def test_an_error_in_a_stream_is_held_and_shown_at_the_end(face: Face, stream: Stream) -> None:
    error = b'data: {"error":{"message":"slow","code":"rate_limit_exceeded"}}\n\n'
    if face is RESPONSES:
        error = b'event: error\ndata: {"type":"error","sequence_number":9,"code":"rate_limit_exceeded","message":"slow"}\n\n'
    frames = frames_of(stream(1, RICH))[:3]
    splice = face.splice(is_streamed=True)
    splice.start(takes)
    assert splice.feed(b"".join(frames) + error) == b"".join(frames)
    assert splice.answer == Failure(kind="rate", message="slow")
    assert splice.end() == error
    out, replies, _ = spliced(face, [error, stream(2, kept(RICH))])  # of the first the client has nothing
    assert out == stream(2, kept(RICH))
    assert isinstance(replies[1], Reply)
    later, replies, _ = spliced(face, [stream(1, [("call", "h", "recall", "{}")]), error])
    assert replies[1] == Failure(kind="rate", message="slow")
    assert b"slow" in later
    assert b"recall" not in later


@pytest.mark.parametrize(("face", "whole"), WHOLES)
def test_an_error_in_one_piece_is_shown_as_it_is(face: Face, whole: Stream) -> None:
    error = b'{"error":{"message":"slow","code":"rate_limit_exceeded"}}'
    splice = face.splice(is_streamed=False)
    for body in (whole(1, [("call", "h", "recall", "{}")]), error):
        splice.start(takes)
        splice.whole(body)
    assert splice.answer == Failure(kind="rate", message="slow")
    assert splice.end() == error
    assert json.loads(splice.failed("x"))["error"]["message"] == "x"
    with pytest.raises(msgspec.DecodeError):
        splice.whole(b"<html>")


def test_thoughts_and_costs_of_a_router_are_joined_too() -> None:
    def body(number: int, calls: str) -> bytes:
        details = f'"reasoning":"r{number}","reasoning_details":[{{"n":{number}.0}}]'
        usage = f'"usage":{{"prompt_tokens":7,"completion_tokens":{number},"cost":0.25}}'
        return f'{{"choices":[{{"message":{{"content":null,{details},"tool_calls":[{calls}]}},"finish_reason":"tool_calls"}}],{usage}}}'.encode()

    splice = CHAT.splice(is_streamed=False)
    for number, calls in enumerate(
        ['{"id":"h","function":{"name":"recall"}}', '{"id":"c","function":{"name":"ls"}}', ""], 1
    ):
        splice.start(takes)
        splice.whole(body(number, calls))
        assert splice.wire == ""
    found = json.loads(splice.end())
    assert found["choices"][0]["message"] == {
        "content": None,
        "reasoning": "r1\n\nr2\n\nr3",
        "reasoning_details": [{"n": 1.0}, {"n": 2.0}, {"n": 3.0}],
        "tool_calls": [{"id": "c", "function": {"name": "ls"}}],
    }
    assert found["usage"] == {"prompt_tokens": 7, "completion_tokens": 6, "cost": 0.75}
    bare = CHAT.splice(is_streamed=False)
    for _ in range(2):
        bare.start(takes)
        bare.whole(b'{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}]}')
    assert json.loads(bare.end()) == {"choices": [{"message": {"content": "a\n\na"}, "finish_reason": "stop"}]}


def test_a_splice_is_fed_in_the_way_it_was_made_for() -> None:
    for face in (CHAT, RESPONSES):
        with pytest.raises(UsageError):
            face.splice(is_streamed=True).whole(b"{}")
        with pytest.raises(UsageError):
            face.splice(is_streamed=False).feed(b"x")
        assert face.splice(is_streamed=True).answer is None
        assert face.splice(is_streamed=False).answer is None
        assert face.splice(is_streamed=True).wire == ""


# -- the Responses API alone


def test_what_blocks_do_not_say_is_in_the_replys_wire() -> None:
    data = responses(1, RICH).replace(b'"role":"assistant"', b'"role":"assistant","phase":"commentary"')
    _, (reply,), splice = spliced(RESPONSES, [data])
    items = [one["item"] for one in events_of(data) if one["type"] == "response.output_item.done"]
    assert json.loads(f"[{splice.wire}]") == items
    assert isinstance(reply, Reply)
    whole = RESPONSES.splice(is_streamed=False)
    whole.start(takes)
    whole.whole(json.dumps(response(1, "completed", items)).encode())
    assert whole.wire.replace(" ", "") == splice.wire.replace(" ", "")


def test_reasoning_is_kept_to_the_byte() -> None:
    data = responses(1, RICH)
    _, (reply,), _ = spliced(RESPONSES, [data])
    assert isinstance(reply, Reply)
    thought = reply.blocks[0]
    assert isinstance(thought, Thought)
    assert thought.opaque.encode() in data
    assert json.loads(thought.opaque)["encrypted_content"] == "Z2g="


def only(data: bytes, *kinds: str) -> bytes:
    return b"".join(
        frame for frame, event in zip(frames_of(data), events_of(data), strict=True) if event["type"] in kinds
    )


def test_servers_that_send_only_whole_items_or_only_the_whole_response_are_spliced_too() -> None:
    data = responses(1, RICH)
    for kinds in (("response.output_item.done", "response.completed"), ("response.completed",)):
        out, (reply,), _ = spliced(RESPONSES, [only(data, *kinds)])
        assert isinstance(reply, Reply)
        assert [block.name for block in reply.blocks if isinstance(block, ToolCall)] == ["read", "recall", "ls"]
        assert b"recall" not in out or kinds == ("response.completed",)
        events = events_of(out)
        if len(kinds) == 2:
            assert [one["output_index"] for one in events[:-1]] == [0, 1, 2, 3]
            assert [item.get("call_id") for item in events[-1]["response"]["output"]] == [None, None, "c1", "c3"]


def test_an_item_whose_name_comes_with_its_end_is_held_until_then() -> None:
    data = responses(1, [("call", "c2", "recall", "{}"), ("text", "ho")])
    frames = frames_of(data)
    added = next(at for at, frame in enumerate(frames) if b"output_item.added" in frame)
    done = next(at for at, frame in enumerate(frames) if b"output_item.done" in frame)
    frames[added] = frames[added].replace(b'"name":"recall"', b'"name":""')
    splice = RESPONSES.splice(is_streamed=True)
    splice.start(takes)
    shown = [splice.feed(frame) for frame in frames]
    assert shown[added : done + 1] == [b""] * (done + 1 - added)
    check_responses(b"".join([*shown, splice.end()]))
    cut = b"".join(frames[:done])
    assert spliced(RESPONSES, [cut])[0] == cut


def test_tools_of_a_namespace_are_not_the_hosts() -> None:
    data = responses(1, [("call", "c", "recall", "{}")])
    inside = data.replace(b'"name":"recall"', b'"name":"recall","namespace":"mine"')
    assert spliced(RESPONSES, [inside])[0] == inside
    out = spliced(RESPONSES, [data.replace(b'"name":"recall"', b'"name":"recall","namespace":"functions"')])[0]
    assert b"recall" not in out


def test_what_follows_the_finished_response_stays_behind_it() -> None:
    for parts in (kept(RICH), RICH):
        out = spliced(RESPONSES, [responses(1, parts) + b": bye\n\ndata: [DONE]\n\n"])[0]
        assert out.endswith(b": bye\n\ndata: [DONE]\n\n")
        check_responses(out.removesuffix(b": bye\n\ndata: [DONE]\n\n"))


def test_half_of_an_emoji_in_a_stream_is_passed_on() -> None:
    for face, stream in STREAMS:
        data = stream(1, [("text", "ab\ud83d"), ("call", "h", "recall", "{}")])
        out, (reply,), _ = spliced(face, [data])
        assert b"\\ud83d" in out
        assert isinstance(reply, Reply)
        assert len(reply.blocks) == 2


# -- the official SDK as the client


@pytest.mark.parametrize(("face", "stream"), STREAMS)
@pytest.mark.parametrize(
    "answers", [[RICH], [[("text", "a"), ("call", "h", "recall", "{}")], RICH], [[("call", "h", "recall", "{}")]]]
)
def test_the_sdk_reads_what_the_client_gets(face: Face, stream: Stream, answers: list[list[Part]]) -> None:
    out, _, _ = spliced(face, [stream(number, parts) for number, parts in enumerate(answers, 1)])
    with Loopback(Canned(body=out)) as server, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client = openai.OpenAI(api_key="k", base_url=server.base_url, max_retries=0)
        wanted = [one for parts in answers for one in kept(parts)]
        calls = [(one[1], one[2], one[3]) for one in wanted if one[0] == "call"]
        texts = [one[1] for one in wanted if one[0] == "text"]
        if face is CHAT:
            with client.chat.completions.stream(model="m1", messages=[{"role": "user", "content": "hi"}]) as answer:
                found = answer.get_final_completion()
            message = found.choices[0].message
            assert (message.role, message.content or "") == ("assistant", "\n\n".join(texts))
            assert [(one.id, one.function.name, one.function.arguments) for one in message.tool_calls or ()] == calls
            assert found.choices[0].finish_reason == ("tool_calls" if calls else "stop")
            return
        with client.responses.stream(model="m1", input="hi") as answer:
            done = answer.get_final_response()
        assert [(one.call_id, one.name, one.arguments) for one in done.output if one.type == "function_call"] == calls
        assert [one.content[0].text for one in done.output if one.type == "message"] == texts
        assert done.usage.output_tokens == sum(range(1, len(answers) + 1))
