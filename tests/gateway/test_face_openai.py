"""OpenAI's two APIs as a client's history: what is read as facts is shown again as what the client sent."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.blobs import DirBlobs
from transom.core.block import Block, Opaque, Text, Thought, ToolCall, ToolResultRef
from transom.core.canon import FORMAT
from transom.core.event import (
    BlockReplaced,
    Event,
    Fact,
    HostSaid,
    ModelReplied,
    Replacement,
    SessionOpened,
    Tool,
    ToolReturned,
    UserSaid,
)
from transom.core.projection import project
from transom.core.state import Head, Item
from transom.core.wire import groups
from transom.errors import BadInput
from transom.gateway.face import Call, Face
from transom.gateway.face_openai_chat import OpenAIChatFace
from transom.gateway.face_openai_responses import OpenAIResponsesFace
from transom.gateway.reading import items_of
from transom.testing.strategies import texts

CHAT, RESPONSES = OpenAIChatFace(), OpenAIResponsesFace()
FACES: tuple[Face, ...] = (CHAT, RESPONSES)
PNG = "iVBORw0KGgo="
URL = f"data:image/png;base64,{PNG}"
OURS = (Tool(name="new_context", description="Hand over.", schema='{"type":"object"}'),)


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> DirBlobs:
    return DirBlobs(tmp_path_factory.mktemp("blobs"))


def body_of(face: Face, elements: Sequence[object], **fields: object) -> bytes:
    name = "messages" if face is CHAT else "input"
    return json.dumps({"model": "m1", name: elements, **fields}).encode()


def call_of(face: Face, elements: Sequence[object], **fields: object) -> Call:
    return face.call(body_of(face, elements, **fields))


def folded(facts: Sequence[Fact]) -> list[Item]:
    opened = SessionOpened(format=FORMAT)
    said = [
        Event(session_id="s", seq=seq, uuid=f"u{seq}", at=0, fact=fact) for seq, fact in enumerate([opened, *facts], 1)
    ]
    return project(said).window.items


def shown(face: Face, facts: Sequence[Fact]) -> tuple[bytes, ...]:
    """The elements that upstream would see, were the client's own not sent."""
    items = folded(facts)
    made = (face.dialect.message(items[first:end]) for first, end in groups(items))
    return items_of(b"[%b]" % b",".join(filter(None, made)))


def assert_shown(face: Face, elements: Sequence[bytes], facts: Sequence[Fact]) -> None:
    assert [face.canonical(one) for one in shown(face, facts)] == [face.canonical(one) for one in elements]


def assistant(*calls: dict[str, Any], **fields: object) -> dict[str, object]:
    return {"role": "assistant", "content": None, **({"tool_calls": list(calls)} if calls else {}), **fields}


def called(call_id: str, arguments: str = "{}", name: str = "read") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(call_id: str, content: object = "ok", **fields: object) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **fields}


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


CHAT_ODDITIES: dict[str, list[object]] = {
    "a lone block": [user([{"type": "text", "text": "hi"}])],
    "blocks with marks": [user([{"type": "text", "text": t, "cache_control": {"type": "ephemeral"}} for t in "ab"])],
    "a mark on the message": [{**user("hi"), "cache_control": {"type": "ephemeral"}}],
    "pictures": [user([{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": URL}}])],
    "a picture far away": [user([{"type": "image_url", "image_url": {"url": "https://x.org/a.png", "detail": "low"}}])],
    "a file and sound": [user([{"type": "file", "file": {"file_id": "f"}}, {"type": "input_audio", "input_audio": {}}])],
    "nothing said": [user(""), user([]), user(None), user(" \n")],
    "a system message in the middle": [user("a"), {"role": "system", "content": "b"}, {"role": "developer", "content": "c"}],
    "text that imitates the host": [{"role": "system", "content": "x"}, user("<handoff>"), assistant(called("c")), result("c", "</handoff>")],
    "arguments of every kind": [
        assistant(*(called(f"c{n}", text) for n, text in enumerate(['{"a": 1.0}', "", " {}", "not json", "[1]", '"x"']))),
        *(result(f"c{n}") for n in range(6)),
    ],
    "thoughts": [assistant(called("c"), reasoning_content="hm", content=""), result("c")],
    "a router's thoughts": [assistant(reasoning="hm", reasoning_details=[{"type": "reasoning.text", "text": "hm", "n": 1e2}], content="x")],
    "signed thoughts": [assistant(called("c"), thinking_blocks=[{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]), result("c")],
    "only thoughts": [assistant(reasoning_content="hm", content="")],
    "a refusal": [assistant(refusal="no")],
    "fields nobody knows": [assistant(called("c"), provider_specific_fields={"x": [1]}, annotations=[]), result("c", name="read")],
    "a call as it was streamed": [assistant({"index": 0, **called("c")}, function_call=None), result("c")],
    "a custom tool": [assistant({"id": "c", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}), result("c")],
    "the old way": [assistant(function_call={"name": "read", "arguments": "{}"}), {"role": "function", "name": "read", "content": "ok"}],
    "ids that not every API takes": [assistant(called("functions.read:0"), called("x" * 80)), result("functions.read:0"), result("x" * 80)],
    "answers in a row": [assistant(content="a"), assistant(content="b"), assistant(called("c")), result("c")],
    "results in blocks": [assistant(called("c")), result("c", [{"type": "text", "text": t} for t in "ab"])],
    "a result with a picture": [assistant(called("c")), result("c", [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": URL}}])],
    "an empty result": [assistant(called("c"), called("d")), result("c", ""), result("d", None)],
    "half of an emoji": [user("\ud83d"), assistant(called("c", '{"a":"\ud83d"}'), content="\udc00"), result("c", "\ud83d")],
    "a role nobody knows": [{"role": "critic", "content": "x"}, {"content": "x"}, "no message", 3, None, [], {}],
    "content of another shape": [user(3), assistant(content=3), assistant(called("c")), result("c", {"a": 1})],
}  # fmt: skip


def spoken(role: str, *content: Mapping[str, object], **fields: object) -> dict[str, object]:
    return {"type": "message", "role": role, "content": list(content), **fields}


def put_out(text: str, **fields: object) -> dict[str, object]:
    return spoken("assistant", {"type": "output_text", "text": text, "annotations": [], "logprobs": []}, **fields)


def item(kind: str, call_id: str = "c", **fields: object) -> dict[str, object]:
    return {"type": kind, "call_id": call_id, **fields}


def function(call_id: str = "c", **fields: object) -> dict[str, object]:
    return item("function_call", call_id, **{"name": "read", "arguments": "{}", **fields})


def output(call_id: str = "c", text: object = "ok", **fields: object) -> dict[str, object]:
    return item("function_call_output", call_id, output=text, **fields)


REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "Z2g=",
}
RESPONSES_ODDITIES: dict[str, list[object]] = {
    "easy messages": [user("hi"), {"role": "assistant", "content": "ho"}, user([{"type": "input_text", "text": "a"}] * 2)],
    "an answer as it came": [REASONING, put_out("ho", id="msg_1", status="completed"), function(id="fc_1", status="completed"), output()],
    "an answer in a phase": [put_out("ho", phase="commentary"), function(), output(id="x", status="completed")],
    "sources": [spoken("assistant", {"type": "output_text", "text": "a", "annotations": [{"type": "url_citation"}]})],
    "several texts": [spoken("assistant", *({"type": "output_text", "text": t} for t in "ab"))],
    "a refusal": [spoken("assistant", {"type": "refusal", "refusal": "no"})],
    "an answer without words": [spoken("assistant"), put_out("")],
    "an answer of another kind": [spoken("assistant", {"type": "sound", "data": "x"}), function(), output()],
    "reasoning that says nothing": [{"type": "reasoning", "summary": []}, {"type": "reasoning", "id": "rs", "content": None}, function(), output()],
    "reasoning between": [REASONING, function("c"), REASONING, function("d"), output("c"), output("d")],
    "a reference": [{"type": "item_reference", "id": "msg_7"}],
    "a custom tool": [item("custom_tool_call", name="apply_patch", input="*** {", id="ctc"), item("custom_tool_call_output", output="ok")],
    "namespaces": [
        function("c", namespace="fs"), item("custom_tool_call", "d", name="exec", input='{"type": "x"}', namespace="js"), function("e", namespace="functions"),
        output("c"), item("custom_tool_call_output", "d", output=[{"type": "input_text", "text": "a"}]), output("e"),
    ],
    "a shell": [item("local_shell_call", action={"type": "exec", "command": ["ls"]}), item("local_shell_call_output", output="ok")],
    "a search for tools": [item("tool_search_call", execution="client", arguments={"q": "x"}), item("tool_search_output", tools=[{"type": "function", "name": "f"}])],
    "the provider's tools": [{"type": "web_search_call", "id": "ws", "status": "completed"}, {"type": "tool_search_call", "call_id": None}, {"type": "mcp_list_tools", "tools": []}],
    "an encrypted summary": [user("a"), {"type": "compaction", "encrypted_content": "eA=="}, user("b"), {"type": "compaction_trigger"}],
    "another agent": [{"type": "agent_message", "content": [{"type": "input_text", "encrypted_content": "eA=="}]}],
    "tools that come later": [user("a"), {"type": "additional_tools", "role": "developer", "tools": []}, {"type": "configuration_update", "x": 1}],
    "developers in the middle": [user("a"), spoken("developer", {"type": "input_text", "text": "b"})],
    "pictures": [user([{"type": "input_image", "image_url": URL}]), function(), output(text=[{"type": "input_image", "image_url": URL, "detail": "high"}])],
    "files": [user([{"type": "input_file", "file_id": "f"}, {"type": "input_text", "text": "see"}])],
    "an output of another shape": [function(), output(text={"a": 1}), item("computer_call", "d", action={}), item("computer_call_output", "d", output={"type": "computer_screenshot"})],
    "arguments of every kind": [*(function(f"c{n}", arguments=a) for n, a in enumerate(["", " {}", "x", '{"a":1e2}'])), *(output(f"c{n}") for n in range(4))],
    "passthrough": [put_out("a", internal_chat_message_metadata_passthrough={"t": 1})],
    "half of an emoji": [user("\ud83d"), put_out("\udc00"), function(arguments='{"a":"\ud83d"}'), output(text="\ud83d")],
    "a kind nobody knows": [{"type": "dream", "text": "x"}, {"type": "dream_output", "call_id": "z"}, {"type": "dream_response"}, "x", 3, None, {}],
    "nothing said": [user(""), user([]), {"role": "user"}],
}  # fmt: skip
ODDITIES: list[tuple[Face, str, list[object]]] = [(CHAT, name, elements) for name, elements in CHAT_ODDITIES.items()]
ODDITIES += [(RESPONSES, name, elements) for name, elements in RESPONSES_ODDITIES.items()]


@pytest.mark.parametrize(
    ("face", "name", "elements"), ODDITIES, ids=[f"{face.name}-{name}" for face, name, _ in ODDITIES]
)
def test_what_a_client_sent_is_shown_again(face: Face, name: str, elements: list[object], blobs: DirBlobs) -> None:
    call = call_of(face, elements)
    own = call.elements[call.lead :]
    facts = face.facts(own, blobs)
    if name == "a kind nobody knows":  # a result of no call is host text; it alone is not what it was
        facts, own = tuple(one for one in facts if not isinstance(one, ToolReturned)), (own[0], *own[2:])
    assert_shown(face, own, facts)
    assert not any(isinstance(fact, ToolReturned) and not fact.blocks for fact in facts)
    for at in range(len(own)):  # read one by one, nothing of it raises
        assert face.facts(own[at : at + 1], blobs)
        assert face.speaker(own[at]) in {"user", "assistant", "tool", "host"}
        assert isinstance(face.text(own[at]), str)
        assert isinstance(face.calls(own[at]), tuple)


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    "odd",
    [b'"half \\ud83d of it"', b"NaN", b"9" * 9000, b"1e999", b"[" * 3000 + b"]" * 3000, b'"\xff"', b'"\x01"', b'{"a":1,"a":2}'],
    ids=["surrogate", "nan", "huge", "exponent", "deep", "bytes", "control", "twice"],
)  # fmt: skip
def test_what_strict_readers_refuse_goes_on_as_it_came(face: Face, odd: bytes, blobs: DirBlobs) -> None:
    name = b"messages" if face is CHAT else b"input"
    element = b'{"role":"user", "content":"a", "odd": %b}' % odd
    body = b'{ "model":"m1","%b" : [ %b , {"role":"user","content":"b"}], "odd":%b,"odd":%b }' % (
        name,
        element,
        odd,
        odd,
    )
    call = face.call(body)
    assert call.elements[0] == element
    assert (call.model, call.lead) == ("m1", 0)
    assert face.body(call, tools=()) == body
    more = face.body(call, tools=OURS)
    assert more.startswith(body[:-1])
    assert face.canonical(element) == face.canonical(element)
    assert face.canonical(element) != face.canonical(call.elements[1])
    facts = face.facts(call.elements, blobs)
    assert isinstance(facts[1], UserSaid)
    assert facts[0].wire == element.decode("utf-8", "replace")  # type: ignore[union-attr]


# -- whose words


INJECTED = (
    "<system-reminder>x</system-reminder>",
    "<environment_context>x",
    "# AGENTS.md instructions for /x",
    "<user_instructions>x",
)


@pytest.mark.parametrize("face", FACES)
def test_what_a_client_injects_is_no_word_of_a_person(face: Face, blobs: DirBlobs) -> None:
    kind = "text" if face is CHAT else "input_text"
    alone = [user(text) for text in INJECTED] + [user([{"type": kind, "text": text} for text in INJECTED])]
    beside = [user([{"type": kind, "text": INJECTED[0]}, {"type": kind, "text": "do it"}])]
    behind = [user(f"{INJECTED[0]}\ndo it")]
    call = call_of(face, alone + beside + behind)
    facts = face.facts(call.elements, blobs)
    assert [type(fact) for fact in facts] == [HostSaid] * 5 + [UserSaid] * 2
    assert [face.speaker(one) for one in call.elements] == ["host"] * 5 + ["user"] * 2
    assert all(fact.kind == "injected" for fact in facts if isinstance(fact, HostSaid))
    assert [type(block) for block in facts[5].blocks] == [Opaque, Text]  # type: ignore[union-attr]
    assert facts[5].wire.encode() == call.elements[5]  # type: ignore[union-attr]


def test_an_answer_is_one_reply_whatever_it_is_made_of(blobs: DirBlobs) -> None:
    odd = {"type": "dream", "text": "x"}
    custom = item("custom_tool_call", "d", name="exec", input="run()", namespace="js")
    elements = [
        REASONING,
        put_out("ho"),
        function("c"),
        custom,
        odd,
        output("c"),
        item("custom_tool_call_output", "d", output="ok"),
    ]
    call = call_of(RESPONSES, [user("hi"), *elements])
    said, reply, *results = RESPONSES.facts(call.elements, blobs)
    assert isinstance(said, UserSaid)
    assert isinstance(reply, ModelReplied)
    raw = [json.dumps(one) for one in elements]
    assert reply.blocks == (
        Thought(text="hm", opaque=raw[0]),
        Text(text="ho"),
        ToolCall(call_id="c", name="read", arguments="{}"),
        ToolCall(call_id="custom_tool_call:d", name="js::exec", arguments="run()"),
        Opaque(kind="dream", raw=raw[4]),
    )
    assert [one.call_id for one in results if isinstance(one, ToolReturned)] == ["c", "custom_tool_call:d"]
    assert [RESPONSES.calls(one) for one in call.elements[3:5]] == [("c",), ("custom_tool_call:d",)]
    assert not any(one.wire for one in (said, reply, *results))  # type: ignore[union-attr]


def test_thoughts_of_a_chat_are_one_block_with_the_fields_they_came_in(blobs: DirBlobs) -> None:
    call = call_of(CHAT, [assistant(called("c"), reasoning_content="hm", thinking_blocks=[{"x": 1}], content="ho")])
    (reply,) = CHAT.facts(call.elements, blobs)
    assert isinstance(reply, ModelReplied)
    opaque = '{"reasoning_content":"hm","thinking_blocks":[{"x": 1}]}'
    assert reply.blocks[:2] == (Thought(text="hm", opaque=opaque), Text(text="ho"))
    assert (reply.wire, CHAT.calls(call.elements[0]), CHAT.text(call.elements[0])) == ("", ("c",), "ho")


# -- known again


@pytest.mark.parametrize("face", FACES)
def test_an_element_is_known_again_however_it_is_written(face: Face) -> None:
    kind = "text" if face is CHAT else "input_text"
    same = [
        b'{"role":"user","content":"hi"}',
        b'{ "content": [{"text":"hi","type":"%b","cache_control":{"type":"ephemeral"}}], "role":"user" }'
        % kind.encode(),
        b'{"role":"user","content":"hi","cache_control":{"type":"ephemeral"},"name":null}',
    ]
    assert len({face.canonical(one) for one in same}) == 1
    for other in (
        b'{"role":"user","content":"ho"}',
        b'{"role":"system","content":"hi"}',
        b'{"role":"user","content":"hi","name":"x"}',
    ):
        assert face.canonical(other) != face.canonical(same[0])


def test_arguments_that_a_client_writes_anew_do_not_count_but_names_and_ids_do() -> None:
    def chat(**changed: str) -> bytes:
        told = {"call_id": "c", "arguments": "{}", "name": "read", **changed}
        return CHAT.canonical(json.dumps(assistant(called(**told))).encode())

    def responses(**changed: str) -> bytes:
        return RESPONSES.canonical(json.dumps(function(**changed)).encode())

    for form in (chat, responses):
        assert form(arguments='{"a":1}') == form(arguments='{ "a": 1 }')
        assert len({form(), form(name="x"), form(call_id="d")}) == 3
    bare = {"type": "custom_tool_call", "call_id": "c", "name": "x"}
    assert RESPONSES.canonical(json.dumps(bare | {"input": "a"}).encode()) != RESPONSES.canonical(
        json.dumps(bare | {"input": "b"}).encode()
    )


# -- what is replaced


def replaced(
    face: Face, elements: Sequence[object], blobs: DirBlobs, targets: dict[int, tuple[int, Block | None]]
) -> list[Any]:
    """The elements shown when of the facts at these places a block is replaced."""
    call = call_of(face, elements)
    facts = face.facts(call.elements[call.lead :], blobs)
    changes = tuple(Replacement(seq=at + 2, index=index, block=block) for at, (index, block) in targets.items())
    return [json.loads(one) for one in shown(face, [*facts, BlockReplaced(how="offload", targets=changes)])]


STUB = ToolResultRef(text="stub", artifact_id="", size=9)


def test_a_result_that_is_replaced_still_answers_its_call_in_its_own_way(blobs: DirBlobs) -> None:
    calls = [
        function("a", namespace="fs"),
        item("custom_tool_call", "b", name="exec", input="run()", namespace="js"),
        item("local_shell_call", "c", action={"command": ["ls"]}),
        item("tool_search_call", "d", arguments={}),
        function("e" * 70),
    ]
    kinds = [
        "function_call_output",
        "custom_tool_call_output",
        "local_shell_call_output",
        "tool_search_output",
        "function_call_output",
    ]
    results = [item(kind, call["call_id"], output="long", tools=[{}]) for kind, call in zip(kinds, calls, strict=True)]  # type: ignore[arg-type]
    elements = [REASONING, *calls, *results]
    found = replaced(
        RESPONSES, elements, blobs, {0: (0, None), 1: (0, STUB), 2: (0, STUB), 3: (0, STUB), 4: (0, STUB), 5: (0, STUB)}
    )
    assert found[:5] == calls  # the thought is gone, the calls are what they were
    assert [(one["type"], one["call_id"]) for one in found[5:]] == [
        (kind, call["call_id"]) for kind, call in zip(kinds, calls, strict=True)
    ]
    assert [one.get("output", one.get("tools")) for one in found[5:]] == ["stub", "stub", "stub", [], "stub"]


def test_a_chat_result_that_is_replaced_keeps_its_picture_behind_all_results(tmp_path: Path) -> None:
    blobs = DirBlobs(tmp_path)
    face = OpenAIChatFace(blobs)
    picture = {"type": "image_url", "image_url": {"url": URL}}
    elements = [
        assistant(called("functions.read:0"), called("d")),
        result("functions.read:0", [{"type": "text", "text": "long"}, picture]),
        result("d"),
    ]
    call = face.call(json.dumps({"messages": elements}).encode())
    facts = face.facts(call.elements, blobs)
    stub = BlockReplaced(how="offload", targets=(Replacement(seq=3, index=0, block=STUB),))
    found = [json.loads(one) for one in shown(face, [*facts, stub])]
    assert found[1:] == [result("functions.read:0", "stub"), elements[2], user([picture])]


def test_an_id_used_twice_in_a_reply_is_two_calls_with_a_result_each(blobs: DirBlobs) -> None:
    for face, elements in (
        (CHAT, [assistant(called("c"), called("c")), result("c", "a", name="x"), result("c", "b", name="x")]),
        (RESPONSES, [function("c"), function("c"), output("c", "a", x=1), output("c", "b", x=1)]),
    ):
        call = call_of(face, elements)
        found = [json.loads(one) for one in shown(face, face.facts(call.elements, blobs))]
        ids = [one["id"] for one in found[0]["tool_calls"]] if face is CHAT else [one["call_id"] for one in found[:2]]
        assert len(set(ids)) == 2
        assert [one.get("tool_call_id") or one.get("call_id") for one in found[-2:]] == ids


def test_a_call_that_never_came_back_is_closed_in_its_own_way(blobs: DirBlobs) -> None:
    elements = [item("custom_tool_call", "c", name="exec", input="x"), user("stop")]
    call = call_of(RESPONSES, elements)
    facts = RESPONSES.facts((*call.elements, json.dumps(put_out("ok")).encode()), blobs)
    kinds = [json.loads(one)["type"] for one in shown(RESPONSES, facts)]
    assert kinds == ["custom_tool_call", "message", "custom_tool_call_output", "message"]


# -- requests


CODEX_TOOLS = [{"type": "namespace", "name": "js", "tools": []}, {"type": "custom", "name": "exec"}]
CODEX = [
    {"type": "additional_tools", "role": "developer", "tools": CODEX_TOOLS},
    {"type": "configuration_update", "effort": "high"},
    spoken("developer", {"type": "input_text", "text": "Be good."}),
    user("<environment_context>x"),
    user("do it"),
]


def test_the_head_is_what_stands_before_the_first_words(blobs: DirBlobs) -> None:
    call = call_of(RESPONSES, CODEX, stream=True, max_output_tokens=9, store=False)
    assert (call.lead, call.is_streamed, call.max_output_tokens, call.has_tools, call.previous) == (
        3,
        True,
        9,
        True,
        "",
    )
    sections, tools = RESPONSES.head(call)
    assert [tool.name for tool in tools] == ["js", "exec"]
    assert [json.loads(tool.schema) for tool in tools] == CODEX_TOOLS
    assert [(one.key, one.text) for one in sections] == [
        ("additional_tools", '{"role":"developer","tools":[],"type":"additional_tools"}'),
        ("configuration_update.2", '{"effort":"high","type":"configuration_update"}'),
        ("developer.3", "Be good."),
    ]
    plain = call_of(
        RESPONSES,
        [user("hi")],
        instructions="Be good.",
        tools=[{"type": "function", "name": "f"}, {"type": "function", "name": "g", "defer_loading": True}],
    )
    sections, tools = RESPONSES.head(plain)
    assert [(one.key, one.text) for one in sections] == [("instructions", "Be good.")]
    assert [tool.name for tool in tools] == ["f"]
    chat = call_of(
        CHAT,
        [
            {"role": "system", "content": "a"},
            {"role": "developer", "content": [{"type": "text", "text": "b"}], "name": "x"},
            user("c"),
        ],
        tools=[called_tool("f")],
    )
    sections, tools = CHAT.head(chat)
    assert (chat.lead, chat.has_tools, chat.max_output_tokens, chat.is_streamed) == (2, True, 0, False)
    assert [(one.key, one.text) for one in sections] == [
        ("system", "a"),
        ("developer.2", '{"content":"b","name":"x","role":"developer"}'),
    ]
    assert [(tool.name, json.loads(tool.schema)) for tool in tools] == [("f", called_tool("f"))]


def called_tool(name: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def flat_tool(name: str) -> dict[str, object]:
    return {"type": "function", "name": name, "parameters": {"type": "object"}}


def test_tools_of_both_sides_are_told_apart_in_the_head_that_is_digested() -> None:
    for face, tool in ((CHAT, called_tool("f")), (RESPONSES, flat_tool("f"))):
        _, tools = face.head(call_of(face, [user("hi")], tools=[tool]))
        from_head = face.dialect.head(Head(tools=(*tools, *OURS)))
        assert [one.name for one in from_head] == ["tools:f", "tools:new_context"]
        assert json.loads(from_head[0].data) == tool
        assert json.loads(from_head[1].data).get("name", "new_context") == "new_context"


@pytest.mark.parametrize("face", FACES)
def test_the_hosts_tools_are_put_behind_the_clients_and_no_other_byte_is_touched(face: Face) -> None:
    tool = json.dumps(called_tool("f") if face is CHAT else flat_tool("f"), indent=1).encode()
    name = b"messages" if face is CHAT else b"input"
    head, tail = (
        b'{ "x":1.50,\n"%b": [{"role":"user","content":"\\u00e9 \\"tools\\":[]"}],"tools": ' % name,
        b' , "nested":{"tools":[]}\n}\n',
    )
    for inside in (b"[%b]" % tool, b"[ ]", b"[]", b"null"):
        body = head + inside + tail
        sent = face.body(face.call(body), tools=OURS)
        assert sent.startswith(head)
        assert sent.endswith(tail)
        found = json.loads(sent)
        assert len(found["tools"]) == (2 if tool in inside else 1)
        assert tool in sent or tool not in inside
    bare = b'{"model":"m","%b":[]}' % name
    if face is CHAT:
        assert json.loads(face.body(face.call(bare), tools=OURS))["tools"][0]["function"]["name"] == "new_context"
    codex = body_of(RESPONSES, CODEX)
    sent = RESPONSES.body(RESPONSES.call(codex), tools=OURS)
    assert sent.startswith(codex[:-1])
    assert [one["name"] for one in json.loads(sent)["tools"]] == ["new_context"]


@pytest.mark.parametrize("face", FACES)
def test_a_request_written_anew_keeps_its_fields_in_their_order(face: Face) -> None:
    tools = [called_tool(name) if face is CHAT else flat_tool(name) for name in ("f", "g")]
    system = {"role": "system", "content": "s"}
    name = "messages" if face is CHAT else "input"
    fields = {"previous_response_id": "r"} if face is RESPONSES else {}
    body = json.dumps(
        {"a": 1, name: [system, user("old")], "tools": tools, **fields, "stream": True, "z": [2]}
    ).encode()
    call = face.call(body)
    assert call.previous == fields.get("previous_response_id", "")
    made = [b'{"role":"user","content":"new"}', b'{"role":"assistant","content":"a"},{"role":"user","content":"b"}']
    sent = face.body(
        call, tools=OURS, messages=made, tail=face.dialect.tail("left"), forced="new_context", withheld=frozenset({"f"})
    )
    found = json.loads(sent)
    assert list(found) == ["a", name, "tools", "stream", "z", "tool_choice"]
    assert found[name][:4] == [system, *json.loads(b"[%b]" % b",".join(made))]
    assert "left" in json.dumps(found[name][4])
    assert [one.get("name") or one["function"]["name"] for one in found["tools"]] == ["g", "new_context"]
    choice = (
        {"type": "function", "function": {"name": "new_context"}}
        if face is CHAT
        else {"type": "function", "name": "new_context"}
    )
    assert found["tool_choice"] == choice
    narrowed = json.loads(face.body(call, tools=(), forced="f"))
    assert narrowed["tool_choice"] in (
        {"type": "function", "function": {"name": "f"}},
        {"type": "function", "name": "f"},
    )
    assert narrowed == json.loads(body) | {"tool_choice": narrowed["tool_choice"]}
    assert "tools" not in json.loads(face.body(call, tools=(), withheld=frozenset({"f", "g"})))
    tailed = json.loads(face.body(call, tools=(), tail=face.dialect.tail("left")))
    assert tailed[name][:2] == [system, user("old")]
    assert len(tailed[name]) == 3


def test_tools_that_stand_in_the_list_are_withheld_there() -> None:
    call = call_of(RESPONSES, CODEX)
    found = json.loads(
        RESPONSES.body(call, tools=OURS, messages=[b'{"role":"user","content":"new"}'], withheld=frozenset({"js"}))
    )
    assert found["input"][0]["tools"] == CODEX_TOOLS[1:]
    assert found["input"][1:3] == CODEX[1:3]
    assert found["input"][3:] == [user("new")]


def test_a_string_is_one_message_and_an_input_may_be_at_the_server() -> None:
    call = RESPONSES.call(b'{"model":"m","input":"h\\u00e9","conversation":{"id":"conv_1"}}')
    assert call.elements == (b'{"type":"message","role":"user","content":"h\\u00e9"}',)
    assert call.previous == "conv_1"
    sent = json.loads(RESPONSES.body(call, tools=(), tail=RESPONSES.dialect.tail("left")))
    assert [one["content"] for one in sent["input"]] == ["hé", [{"type": "input_text", "text": "left"}]]
    anew = json.loads(RESPONSES.body(call, tools=(), messages=list(call.elements)))
    assert set(anew) == {"model", "input"}
    assert RESPONSES.call(b'{"prompt":{"id":"p"}}').elements == ()


@pytest.mark.parametrize(
    ("face", "body"),
    [
        *((face, body) for face in FACES for body in (b"", b"[]", b"no", b"{", b"{}", b'{"model":"m"}')),
        (CHAT, b'{"messages":null}'),
        (CHAT, b'{"messages":"hi"}'),
        (RESPONSES, b'{"input":{}}'),
    ],
)
def test_what_is_no_request_is_refused(face: Face, body: bytes) -> None:
    with pytest.raises(BadInput):
        face.call(body)


def test_a_client_whose_answers_cannot_be_spliced_is_offered_nothing() -> None:
    for face, fields in ((CHAT, {"n": 2}), (CHAT, {"functions": [{"name": "f"}]}), (RESPONSES, {"background": True})):
        body = body_of(face, [user("hi")], **fields)
        assert face.body(face.call(body), tools=OURS) == body


def test_a_refusal_of_our_own_is_an_error_of_the_api() -> None:
    for face in FACES:
        error = json.loads(face.error(429, 'slow "down"'))["error"]
        assert error == {
            "message": 'slow "down"',
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }
        assert [json.loads(face.error(status, "x"))["error"]["type"] for status in (400, 401, 413, 502)] == [
            "invalid_request_error",
            "authentication_error",
            "invalid_request_error",
            "server_error",
        ]


# -- cache marks


MARK = {"cache_control": {"type": "ephemeral"}}
MADE = [
    b'{"role":"user","content":"a"}',
    b'{"role":"assistant","content":null},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"b"}]}',
    b'{"role":"user","content":"c","x":{"cache_control":{"type":"ephemeral"},"y":1}}',
]


def marks_in(sent: bytes) -> list[object]:
    return [place for place, one in enumerate(json.loads(sent)["messages"]) if "cache_control" in json.dumps(one)]


def test_a_client_that_sets_no_marks_gets_none() -> None:
    call = call_of(CHAT, [user("a")])
    assert b"cache_control" not in CHAT.body(call, tools=(), messages=MADE, marks=(0, 1, 3))


def test_marks_stand_where_the_kernel_says_in_the_clients_own_way() -> None:
    inner = [
        {"role": "system", "content": [{"type": "text", "text": "s", **MARK}]},
        user([{"type": "text", "text": "a", **MARK}]),
    ]
    sent = CHAT.body(call_of(CHAT, inner), tools=(), messages=MADE, marks=(0, 1, 2, 3))
    assert marks_in(sent) == [0, 1, 3, 4]
    found = json.loads(sent)["messages"]
    assert found[1]["content"] == [{"type": "text", "text": "a", **MARK}]
    assert found[3]["content"] == [{"type": "text", "text": "b", **MARK}]
    assert found[4] == {"role": "user", "content": [{"type": "text", "text": "c", **MARK}], "x": {"y": 1}}
    outer = [user("s") | MARK, user("a") | MARK]
    found = json.loads(CHAT.body(call_of(CHAT, outer), tools=(), messages=MADE))["messages"]
    assert [one.get("cache_control") for one in found] == [MARK["cache_control"], None, None, MARK["cache_control"]]


def test_there_are_never_more_marks_than_the_api_takes() -> None:
    head = [
        {"role": "system", "content": [{"type": "text", "text": "s", **MARK}] * 3},
        user([{"type": "text", "text": "a", **MARK}]),
    ]
    assert marks_in(CHAT.body(call_of(CHAT, head), tools=(), messages=MADE, marks=(1, 2, 3))) == [0, 4]
    tools = [called_tool("f") | MARK]
    assert marks_in(CHAT.body(call_of(CHAT, head, tools=tools), tools=(), messages=MADE, marks=(1, 2, 3))) == [0]
    unmarkable = [b'{"role":"user","content":"a"}', b'{"role":"assistant","content":""}']
    assert marks_in(CHAT.body(call_of(CHAT, head[1:]), tools=(), messages=unmarkable, marks=(2,))) == [0]


# -- any history


WORDS = texts()


@st.composite
def chats(draw: st.DrawFn) -> list[object]:
    """A history as a client may send it, every call with its result."""
    content = WORDS | st.lists(WORDS.map(lambda text: {"type": "text", "text": text}), max_size=3) | st.none()
    more = st.dictionaries(
        st.sampled_from(["name", "x", "reasoning_content", "refusal", "index"]), WORDS | st.none(), max_size=2
    )
    found: list[object] = []
    for turn in range(draw(st.integers(1, 5))):
        role = draw(st.sampled_from(["user", "system", "assistant", "assistant"]))
        message = {"role": role, "content": draw(content), **draw(more)}
        ids = [f"c{turn}.{number}" for number in range(draw(st.integers(0, 3)))] if role == "assistant" else []
        if ids:
            message["tool_calls"] = [called(call_id, draw(WORDS), draw(WORDS)) for call_id in ids]
        found.append(message)
        found.extend(result(call_id, draw(content), **draw(more)) for call_id in ids)
    return found


@st.composite
def inputs(draw: st.DrawFn) -> list[object]:
    more = st.dictionaries(st.sampled_from(["id", "status", "phase", "x"]), WORDS | st.none(), max_size=2)
    found: list[object] = []
    for turn in range(draw(st.integers(1, 5))):
        role = draw(st.sampled_from(["user", "developer", "assistant", "assistant"]))
        kind = "output_text" if role == "assistant" else "input_text"
        listed = st.lists(WORDS.map(lambda text, kind=kind: {"type": kind, "text": text}), max_size=3)  # type: ignore[misc]
        if draw(st.booleans()):
            found.append(REASONING | draw(more) if role == "assistant" else {"type": "agent_message", **draw(more)})
        found.append({"role": role, "content": draw(WORDS | listed), **draw(more)})
        ids = [f"c{turn}.{number}" for number in range(draw(st.integers(0, 3)))] if role == "assistant" else []
        customs = [draw(st.booleans()) for _ in ids]
        for call_id, is_custom in zip(ids, customs, strict=True):
            made = {"name": draw(WORDS), **draw(more)}
            found.append(
                item("custom_tool_call", call_id, input=draw(WORDS), **made)
                if is_custom
                else item("function_call", call_id, arguments=draw(WORDS), **made)
            )
        for call_id, is_custom in zip(ids, customs, strict=True):
            found.append(
                item(
                    "custom_tool_call_output" if is_custom else "function_call_output",
                    call_id,
                    output=draw(WORDS),
                    **draw(more),
                )
            )
    return found


@given(case=st.one_of(chats().map(lambda one: (CHAT, one)), inputs().map(lambda one: (RESPONSES, one))))
def test_any_history_is_shown_again_as_it_was_sent(case: tuple[Face, list[object]], blobs: DirBlobs) -> None:
    face, elements = case
    call = call_of(face, elements)
    own = call.elements[call.lead :]
    assert_shown(face, own, face.facts(own, blobs))
    assert list(items_of(b"[%b]" % b",".join(call.elements))) == list(call.elements)
    anew = face.body(call, tools=(), messages=shown(face, face.facts(own, blobs)))
    again = face.call(anew)
    assert [face.canonical(one) for one in again.elements] == [face.canonical(one) for one in call.elements]


# -- recorded ones


def recorded(shared: Path) -> Iterator[tuple[str, Face, list[object]]]:
    for path in sorted((shared / "openai-chat").glob("*.completion.json.gz"))[:2]:
        yield path.name, CHAT, json.loads(gzip.decompress(path.read_bytes()))["messages"]
    for path in sorted((shared / "mini-swe-agent").glob("*.traj.json.gz")):
        document = json.loads(gzip.decompress(path.read_bytes()))
        messages = document["messages"] if isinstance(document, dict) else document
        roles = {"system", "user", "assistant", "tool"}
        yield (
            path.name,
            CHAT,
            [{k: v for k, v in one.items() if k != "extra"} for one in messages if one.get("role") in roles],
        )
    for path in sorted((shared / "codex").glob("*.jsonl.gz"), key=lambda one: one.stat().st_size)[:5]:
        lines = (json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines())
        items = [line["payload"] for line in lines if line.get("type") == "response_item"]
        yield path.name, RESPONSES, [one for one in items if one["type"] != "ghost_snapshot"]


def test_recorded_histories_are_shown_again_as_they_were_sent(shared: Path, blobs: DirBlobs) -> None:
    seen = 0
    for name, face, elements in recorded(shared):
        call = call_of(face, elements)
        own = call.elements[call.lead :]
        facts = face.facts(own, blobs)
        assert_shown(face, own, facts)
        calls = {call_id for one in own for call_id in face.calls(one)}
        results = {fact.call_id for fact in facts if isinstance(fact, ToolReturned)}
        assert results <= calls, name
        seen += len(own)
    assert seen > 2_000
