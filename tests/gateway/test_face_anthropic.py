"""The Messages API's face: requests go upstream as they came, histories as facts come out as they went in."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.blobs import DirBlobs
from transom.core.block import Image, Opaque, Text, Thought, ToolCall, ToolResultRaw, ToolResultRef
from transom.core.event import Event, Fact, HostSaid, ModelReplied, Section, Tool, ToolReturned, UserSaid
from transom.core.projection import project
from transom.core.state import Head, Item
from transom.core.wire import groups
from transom.errors import BadInput
from transom.gateway.content_anthropic import is_same, message_of
from transom.gateway.face_anthropic import AnthropicFace
from transom.gateway.reading import items_of

FACE = AnthropicFace()
OURS = (Tool(name="recall", description='Look "up".', schema='{"type": "object"}'),)
OUR_TOOL = b'{"name":"recall","description":"Look \\"up\\".","input_schema":{"type": "object"}}'


def raw(value: object) -> bytes:
    return json.dumps(value).encode()


def user(*content: object, **own: object) -> bytes:
    return raw({"role": "user", "content": content[0] if len(content) == 1 else list(content), **own})


def assistant(*content: object, **own: object) -> bytes:
    return raw({**own, "content": list(content), "role": "assistant"})


def said(text: str, **own: object) -> dict[str, object]:
    return {"type": "text", "text": text, **own}


def called(call_id: str, **own: object) -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": "read", "input": {"b": 1, "a": 2}, **own}


def returned(call_id: str, content: object, **own: object) -> dict[str, object]:
    return {"tool_use_id": call_id, "type": "tool_result", "content": content, **own}


def request(*elements: bytes, **fields: object) -> bytes:
    rest = raw({"model": "claude", "max_tokens": 64, "stream": True, **fields})
    return b'{"messages":[' + b", ".join(elements) + b"]," + rest[1:]


@pytest.fixture
def blobs(tmp_path: Path) -> DirBlobs:
    return DirBlobs(tmp_path, is_synced=False)


def shown(face: AnthropicFace, facts: Sequence[Fact]) -> list[bytes]:
    """The messages that the kernel shows for facts."""
    events = [Event(session_id="s", seq=n, uuid=f"u{n}", at=0, fact=fact) for n, fact in enumerate(facts, 1)]
    items = project(events).window.items
    made = [face.dialect.message(items[start:end]) for start, end in groups(items)]
    return [message for data in made if data for message in items_of(b"[" + data + b"]")]


def merged(elements: Iterable[bytes]) -> list[tuple[str, list[bytes]]]:
    """Messages with neighbours of one role as one, in which results come first."""
    found: list[tuple[str, list[bytes]]] = []
    for element in elements:
        message = message_of(element)
        message = replace(message, pieces=tuple(piece for piece in message.pieces if not is_same([piece], [])))
        if found and found[-1][0] == message.role != "system":
            found[-1][1].extend(message.pieces)
        elif message.pieces:
            found.append((message.role, list(message.pieces)))
    return [(role, sorted(pieces, key=lambda piece: b'"tool_result"' not in piece)) for role, pieces in found]


def assert_same(elements: Sequence[bytes], rendered: Sequence[bytes]) -> None:
    expected, found = merged(elements), merged(rendered)
    assert [role for role, _ in found] == [role for role, _ in expected]
    for (_, theirs), (_, ours) in zip(expected, found, strict=True):
        assert is_same(theirs, ours), (theirs, ours)


# -- reading


def test_a_request_is_read_by_its_outline() -> None:
    elements = (user("hi"), assistant(said("yes")))
    body = request(*elements, tools=[{"name": "read"}])
    call = FACE.call(body)
    assert FACE.name == FACE.dialect.name == "anthropic"
    assert call.body == body
    assert call.elements == elements
    assert list(call.fields) == ["messages", "model", "max_tokens", "stream", "tools"]
    assert (call.model, call.is_streamed, call.max_output_tokens) == ("claude", True, 64)
    assert (call.has_tools, call.lead, call.previous) == (True, 0, "")


def test_a_request_without_what_may_be_left_out_is_one_too() -> None:
    call = FACE.call(b'{"messages":[{"role":"system","content":"be"},{"role":"user","content":"hi"}],"tools":[]}')
    assert (call.model, call.is_streamed, call.max_output_tokens, call.has_tools, call.lead) == ("", False, 0, False, 1)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"messages":{}}', b'{"messages":[}', b"\x00"])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(BadInput):
        FACE.call(body)


ODD = [
    b'{"messages":[{"role":"user","content":"half \\ud83d"}],"n":NaN}',
    b'{"messages":[{"role":"user","content":"x"}],"n":' + b"9" * 6000 + b',"n":1}',
    b'{"messages":[{"role":"user","content":"\xff\x01","content":"twice"}]}',
    b' {\n"messages" : [ {"role":"user","content":' + b"[" * 3000 + b"]" * 3000 + b"} ] }\n",
    b'{"messages":["words",7,null,[],{"role":7},{"role":"user","content":{"a":1}},{"content":"x"}]}',
]


@pytest.mark.parametrize("body", ODD)
def test_an_odd_request_goes_on_as_it_came_and_is_understood_as_far_as_it_can_be(body: bytes, blobs: DirBlobs) -> None:
    call = FACE.call(body)
    assert FACE.body(call, tools=()) == body
    spliced = FACE.body(call, tools=OURS)
    assert spliced.replace(b',"tools":[' + OUR_TOOL + b"]", b"") == body
    for element in call.elements:
        assert FACE.canonical(element)
        FACE.speaker(element)
        FACE.calls(element)
        FACE.text(element)
    facts = FACE.facts(call.elements, blobs)
    assert facts
    assert shown(FACE, facts)


@given(st.recursive(st.none() | st.integers() | st.text(max_size=4), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.sampled_from(["role", "content", "type", "text", "id", "name", "input", "tool_use_id", "source", "is_error", "x"]),
    inner | st.sampled_from(["user", "assistant", "system", "text", "tool_use", "tool_result", "thinking", "image"]),
    max_size=5), max_leaves=20))  # fmt: skip
def test_any_element_is_read_or_refused_by_name(value: object) -> None:
    element = raw(value)
    assert FACE.canonical(element) == FACE.canonical(element)
    FACE.text(element)
    with_blobs: Any = _NoBlobs()
    facts = FACE.facts([element], with_blobs)
    for message in shown(FACE, facts):
        assert isinstance(json.loads(message), dict)


class _NoBlobs:
    """Pictures are let go of: only what is read matters."""

    def put(self, data: bytes) -> str:
        return f"{len(data):064x}"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (user("hi"), user([said("hi")])),
        (user("hi"), user([said("hi", cache_control={"type": "ephemeral"})])),
        (user([]), user("")),
        (user([said(""), said("a"), said(" \n")]), user("a")),
        (user([returned("c", "x")]), user([returned("c", [said("x")], is_error=False)])),
        (user([returned("c", [said("x", cache_control={"type": "ephemeral"})])]), user([returned("c", "x")])),
        (user([returned("c", "")]), user([{"type": "tool_result", "tool_use_id": "c"}])),
        (assistant(called("c")), assistant(called("c", input={"other": 1}, caller={"type": "direct"}))),
        (b'{"role":"user","content":"\\u00fc"}', '{"content":"ü","role":"user"}'.encode()),
    ],
)
def test_elements_are_the_same_however_a_client_writes_them(one: bytes, other: bytes) -> None:
    assert FACE.canonical(one) == FACE.canonical(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (user("hi"), user("ho")),
        (user("hi"), assistant("hi")),
        (user("hi"), user("hi", output_config={"effort": "low"})),
        (user([returned("c", "x")]), user([returned("c", "x", is_error=True)])),
        (user([returned("c", "x")]), user([returned("d", "x")])),
        (assistant(called("c")), assistant(called("c", name="edit"))),
        (assistant(called("c", caller={"type": "code"})), assistant(called("c"))),
        (b'{"role":"user","content":"\\ud83d"}', b'{"role":"user","content":"\\ud83e"}'),
    ],
)
def test_elements_that_say_something_else_differ(one: bytes, other: bytes) -> None:
    assert FACE.canonical(one) != FACE.canonical(other)


def test_who_an_element_is_of_and_what_it_says() -> None:
    reminder = "<system-reminder>be quick</system-reminder>"
    elements = {
        "user": user(said("do it"), said(reminder)),
        "host": user([said(reminder)]),
        "tool": user(returned("c", "out"), said("and do it")),
        "assistant": assistant(
            said("I"), called("c1"), {"type": "server_tool_use", "id": "s", "name": "w"}, called("c2")
        ),
    }
    assert {speaker: FACE.speaker(element) for speaker, element in elements.items()} == {one: one for one in elements}
    assert FACE.speaker(raw({"role": "system", "content": "x"})) == "host"
    assert FACE.calls(elements["assistant"]) == ("c1", "c2")
    assert FACE.calls(elements["tool"]) == ()
    assert FACE.text(elements["assistant"]) == "I"
    assert FACE.text(elements["user"]) == f"do it\n{reminder}"
    assert FACE.text(user("plain")) == "plain"


def test_the_head_is_the_clients_system_text_and_tools_without_marks_and_deferred_ones() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    plain_tool = {"name": "read", "description": "Read.", "input_schema": {"type": "object"}}
    call = FACE.call(
        request(
            raw({"role": "system", "content": "lead"}),
            user("hi"),
            system=[said("one", **mark), {"type": "text", "text": "two", "new": 1}, "three"],
            tools=[
                {**plain_tool, **mark},
                {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
                {**plain_tool, "name": "later", "defer_loading": True},
                "odd",
            ],
        )
    )
    sections, tools = FACE.head(call)
    assert sections == (
        Section(key="client.0", text="one"),
        Section(key="client.1", text='{"type":"text","text":"two","new":1}'),
        Section(key="client.2", text='"three"'),
        Section(key="lead.0", text='{"role":"system","content":"lead"}'),
    )
    assert tools == (
        Tool(name="read", description="Read.", schema='{"type": "object"}'),
        Tool(name="web_search", schema='{"type":"web_search_20250305","name":"web_search","max_uses":3}'),
        Tool(name="", schema='"odd"'),
    )
    segments = FACE.dialect.head(Head(sections=sections[:1], tools=(*tools[:2], *OURS)))
    assert [(one.name, one.data) for one in segments] == [
        ("tools:read", b'{"name":"read","description":"Read.","input_schema":{"type": "object"}}'),
        ("tools:web_search", tools[1].schema.encode()),
        ("tools:recall", OUR_TOOL),
        ("system:client.0", b'{"type":"text","text":"one"}'),
    ]
    as_text = FACE.head(FACE.call(request(user("hi"), system="one")))
    assert as_text == ((Section(key="client.0", text="one"),), ())


# -- histories as facts


def test_a_users_element_is_results_then_words_each_by_whose_they_are(blobs: DirBlobs) -> None:
    reminder = "<system-reminder>\nbe quick\n</system-reminder>\n"
    facts = FACE.facts(
        [
            assistant(called("a"), called("b")),
            user(
                returned("a", "out", is_error=False),
                returned("b", [said("Exit code 2\nno")], is_error=True),
                said(reminder),
                said(reminder),
                said("<system-reminder>x</system-reminder> and this is mine"),
            ),
        ],
        blobs,
    )
    assert facts[1:] == (
        ToolReturned(call_id="a", blocks=(ToolResultRaw(text="out"),)),
        ToolReturned(call_id="b", blocks=(ToolResultRaw(text="Exit code 2\nno"),), is_error=True, exit_code=2),
        HostSaid(kind="injected", blocks=(Text(text=reminder), Text(text=reminder))),
        UserSaid(blocks=(Text(text="<system-reminder>x</system-reminder> and this is mine"),)),
    )


def test_neighbouring_elements_of_the_assistant_are_one_reply(blobs: DirBlobs) -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
    facts = FACE.facts([assistant(thinking, said("I")), assistant(called("a")), user("no")], blobs)
    assert facts == (
        ModelReplied(
            blocks=(
                Thought(text="hm", opaque=json.dumps(thinking)),
                Text(text="I"),
                ToolCall(call_id="a", name="read", arguments='{"b": 1, "a": 2}'),
            )
        ),
        UserSaid(blocks=(Text(text="no"),)),
    )


def test_what_blocks_do_not_say_goes_along_without_its_cache_mark(blobs: DirBlobs) -> None:
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    cited = {"type": "text", "text": "said", "citations": [{"url": "u"}]}
    (fact,) = FACE.facts([user([{**cited, **mark}])], blobs)
    assert isinstance(fact, UserSaid)
    assert json.loads(fact.wire) == cited
    (marked,) = FACE.facts([user([said("x", **mark)])], blobs)
    assert marked == UserSaid(blocks=(Text(text="x"),))
    (escaped,) = FACE.facts([user([returned("a", "a <handoff> of a tool")])], blobs)
    assert isinstance(escaped, ToolReturned)
    assert json.loads(escaped.wire)["content"] == "a <handoff> of a tool"


def test_a_systems_message_stays_where_it_stood(blobs: DirBlobs) -> None:
    system = {"content": "mode: plan", "output_config": {"effort": "low"}, "role": "system"}
    elements = [user("one"), raw(system), user("two")]
    facts = FACE.facts(elements, blobs)
    assert facts[1] == HostSaid(
        kind="injected",
        blocks=(Text(text="mode: plan"),),
        wire='{"role":"system","output_config":{"effort": "low"},"content":"mode: plan"}',
        stands="system",
    )
    assert [json.loads(message) for message in shown(FACE, facts)] == [
        {"role": "user", "content": [said("one")]},
        system,
        {"role": "user", "content": [said("two")]},
    ]


def test_a_messages_own_fields_go_with_it_when_its_pieces_join_their_neighbours(blobs: DirBlobs) -> None:
    own = {"output_config": {"effort": "low"}}
    elements = [
        assistant(said("I"), called("a"), output_config={"effort": "high"}),
        user(returned("a", "out"), said("next"), **own),
        user("more"),
    ]
    facts = FACE.facts(elements, blobs)
    assert [json.loads(message) for message in shown(FACE, facts)] == [
        {"role": "assistant", "output_config": {"effort": "high"}, "content": [said("I"), called("a")]},
        {"role": "user", **own, "content": [returned("a", "out"), said("next"), said("more")]},
    ]


def test_a_picture_is_shown_from_the_store_and_goes_along_where_there_is_none(blobs: DirBlobs) -> None:
    data = base64.b64encode(b"\x89PNG").decode()
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    element = user([picture, {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}])
    for face, is_carried in ((AnthropicFace(blobs), False), (FACE, True)):
        (fact,) = face.facts([element], blobs)
        assert isinstance(fact, UserSaid)
        assert isinstance(fact.blocks[0], Image)
        assert blobs.get(fact.blocks[0].artifact_id) == b"\x89PNG"
        assert bool(fact.wire) == is_carried
        assert_same([element], shown(face, [fact]))


def test_a_result_that_was_replaced_is_shown_as_its_blocks_and_answers_the_same_call(blobs: DirBlobs) -> None:
    odd_id = "call:1|" * 20
    elements = [assistant(called(odd_id)), user([returned(odd_id, [{"type": "tool_reference", "tool_name": "x"}])])]
    facts = list(FACE.facts(elements, blobs))
    assert_same(elements, shown(FACE, facts))
    result = facts[1]
    assert isinstance(result, ToolReturned)
    stub = msgspec.structs.replace(result, blocks=(ToolResultRef(text="[stub]"),), wire="")
    call, answer = (json.loads(message)["content"][0] for message in shown(FACE, [facts[0], stub]))
    assert call["id"] == answer["tool_use_id"] == odd_id
    assert answer["content"] == [said("[stub]")]


def test_a_result_answers_its_call_under_the_id_the_window_gives_it(blobs: DirBlobs) -> None:
    call = called("a", new=1)
    elements = [assistant(call, call), user(returned("a", "1", new=1), returned("a", "2", new=1))]
    reply, results = (json.loads(message)["content"] for message in shown(FACE, FACE.facts(elements, blobs)))
    ids = [block["id"] for block in reply]
    assert len(set(ids)) == 2
    assert [block["tool_use_id"] for block in results] == ids


def test_a_thought_that_was_cut_off_is_not_shown() -> None:
    item = Item(
        seq=1,
        uuid="u",
        role="assistant",
        blocks=(Thought(text="half"), Text(text="I")),
        turn=0,
        step=0,
        counts=(0, 0, 0, 0, 0),
    )
    assert FACE.dialect.message([item]) == b'{"role":"assistant","content":[{"type":"text","text":"I"}]}'


_MARK = st.sampled_from([{}, {}, {"cache_control": {"type": "ephemeral"}}])
_WORDS = st.sampled_from(
    ["do it", "", " \n", "<system-reminder>x</system-reminder>", "a <handoff> b", "half \ud83d", "Grüße", "\u2028\x7f"]
)
_OWN = st.sampled_from([{}, {}, {}, {"new": {"b": 1, "a": [None, 1.5, 10**20]}}])


@st.composite
def _text(draw: st.DrawFn) -> object:
    return said(draw(_WORDS), **draw(_MARK), **draw(_OWN))


_OTHER: st.SearchStrategy[object] = st.sampled_from(
    [
        {"type": "document", "source": {"type": "text", "data": "x", "media_type": "text/plain"}, "title": "t"},
        {"type": "tool_reference", "tool_name": "later"},
        {"type": "search_result", "content": [{"type": "text", "text": "x"}], "source": "s", "title": "t"},
        {"type": "new_block", "at": [1, {"b": 1, "a": 2}]},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "no base64"}},
        {"type": "image", "source": {"type": "file", "file_id": "f"}},
    ]
)
_REPLIED: st.SearchStrategy[object] = st.sampled_from(
    [
        {"type": "thinking", "thinking": "", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "aGk="},
        {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "q"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srv",
            "content": [{"type": "web_search_result", "url": "u"}],
        },
        {"type": "new_block", "text": "x"},
    ]
)
_INPUT = st.sampled_from([{}, {"b": 1, "a": [1, 2]}, {"text": "half \ud83d"}, "no object", None, {"n": 10**25}])


@st.composite
def histories(draw: st.DrawFn) -> list[bytes]:
    """What a client may send: every call answered, results first, and every oddity there is."""
    found: list[bytes] = []
    calls: list[str] = []
    for turn in range(draw(st.integers(1, 4))):
        results = []
        for call_id in calls:
            inner = draw(st.one_of(_WORDS, st.lists(_text() | _OTHER, max_size=3)))
            flag = draw(st.sampled_from([{}, {"is_error": True}, {"is_error": False}]))
            results.append(returned(call_id, inner, **flag, **draw(_MARK), **draw(_OWN)))
        words = draw(st.lists(_text() | _OTHER, max_size=3))
        content: object = [*results, *words]
        if not results and draw(st.booleans()):
            content = draw(_WORDS)
        found.append(raw({"role": "user", "content": content, **draw(_OWN)}))
        if draw(st.booleans()):
            found.append(raw({"content": draw(st.one_of(_WORDS, st.lists(_text()))), "role": "system", **draw(_OWN)}))
        found += [user(draw(st.lists(_text(), max_size=2))) for _ in range(draw(st.integers(0, 2)))]
        calls = [f"c{turn}.{number}" for number in range(draw(st.integers(0, 2)))]
        replied: list[object] = draw(st.lists(_text() | _REPLIED, max_size=3))
        replied += [called(call_id, **draw(_MARK), **draw(_OWN), input=draw(_INPUT)) for call_id in calls]
        cut = draw(st.integers(0, len(replied)))
        found += [assistant(*piece, **draw(_OWN)) for piece in (replied[:cut], replied[cut:]) if piece or not cut]
    return found if not calls else [*found, user([returned(call_id, "end") for call_id in calls])]


@given(histories())
def test_a_history_comes_out_as_it_went_in(elements: list[bytes]) -> None:
    with_blobs: Any = _NoBlobs()
    assert_same(elements, shown(FACE, FACE.facts(elements, with_blobs)))


@given(histories())
def test_what_carries_nothing_along_follows_from_its_blocks(elements: list[bytes]) -> None:
    """`wire` stands only where it has to: a fact whose own is taken away is not shown as it came."""
    with_blobs: Any = _NoBlobs()
    facts = FACE.facts(elements, with_blobs)
    for place, fact in enumerate(facts):
        if isinstance(fact, ToolReturned | UserSaid | ModelReplied) and fact.wire and '"new"' not in fact.wire[:12]:
            bare = [*facts[:place], msgspec.structs.replace(fact, wire=""), *facts[place + 1 :]]
            own = fact.wire.startswith('{"role":')
            assert own or shown(FACE, bare) != shown(FACE, facts)


def claude_history(path: Path) -> list[bytes]:
    """The messages of a recorded session as its client would send them, as if it had never compacted."""
    found: list[dict[str, Any]] = []
    replies: dict[str, dict[str, Any]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            entry = json.loads(line)
            message = entry.get("message")
            if (
                entry.get("type") not in ("user", "assistant")
                or entry.get("isSidechain")
                or not isinstance(message, dict)
            ):
                continue
            content = message["content"]
            blocks = [said(content)] if isinstance(content, str) else list(content)
            key = str(message.get("id", ""))
            if key in replies:
                replies[key]["content"].extend(blocks)
            elif found and found[-1]["role"] == message["role"] == "user":
                found[-1]["content"].extend(blocks)
            else:
                found.append({"role": message["role"], "content": blocks})
                if key:
                    replies[key] = found[-1]
    return [raw(message) for message in found]


RECORDED = ("penagents--06305fbb61", "cli--289c6477ae", "git-sync--f8a5f671af")


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_history_comes_out_as_it_went_in_and_carries_nothing_along(
    name: str, shared: Path, blobs: DirBlobs
) -> None:
    (path,) = (shared / "claude-code").glob(f"*{name}.jsonl.gz")
    elements = claude_history(path)
    facts = AnthropicFace(blobs).facts(elements, blobs)
    assert len(facts) > 300
    assert not [fact for fact in facts if isinstance(fact, UserSaid | ToolReturned | ModelReplied) and fact.wire]
    assert_same(elements, shown(AnthropicFace(blobs), facts))


# -- writing


def test_a_request_that_is_passed_on_has_our_tools_and_is_else_the_clients() -> None:
    body = b'{ "messages":[ {"role":"user","content":"\\u00e4"} ],\n"tools":[{"name": "read"} ], "x":1e400}'
    call = FACE.call(body)
    assert FACE.body(call, tools=()) is body
    assert FACE.body(call, tools=OURS) == body.replace(b" ], ", b" ," + OUR_TOOL + b"], ")


def message(role: str, *texts: str) -> bytes:
    return raw({"role": role, "content": [said(text) for text in texts]}).replace(b'", "', b'","').replace(b": ", b":")


def test_a_projected_request_has_the_clients_fields_and_other_messages() -> None:
    lead = raw({"role": "system", "content": "lead"})
    body = (
        b'{"model":"m","messages":['
        + lead
        + b","
        + user("old")
        + b'],"new": {"b":1, "a":2},"tools":[{"name": "read"}]}'
    )
    made = FACE.body(
        FACE.call(body),
        tools=OURS,
        messages=[message("user", "seed"), message("assistant", "I")],
        tail=b'{"role":"user"}',
    )
    mark = b',"cache_control":{"type":"ephemeral"}'
    seed, reply = (one[:-3] + mark + b"}]}" for one in (message("user", "seed"), message("assistant", "I")))
    assert made == (
        b'{"model":"m","messages":[' + lead + b"," + seed + b"," + reply + b',{"role":"user"}],"new":{"b":1, "a":2},'
        b'"tools":[{"name": "read"},' + OUR_TOOL + b"]}"
    ).replace(b'"new":', b'"new":')


def marks(body: bytes) -> list[int]:
    """Places of the messages that have a mark."""
    return [place for place, one in enumerate(json.loads(body)["messages"]) if "cache_control" in json.dumps(one)]


HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


@pytest.mark.parametrize(
    ("in_head", "places", "expected"),
    [
        (0, (0, 1, 4, 6), [0, 3, 5]),
        (2, (0, 1, 4, 6), [3, 5]),
        (3, (0, 1, 4, 6), [5]),
        (4, (0, 1, 4, 6), []),
        (0, None, [0, 5]),
        (0, (1, 3), [0]),
        (0, (), []),
    ],
)
def test_our_marks_are_as_many_as_the_clients_head_leaves_and_of_the_clients_form(
    in_head: int, places: tuple[int, ...] | None, expected: list[int]
) -> None:
    system = [said("s", **HOUR)] * min(in_head, 2) + [said("t")]
    tools = [{"name": f"t{place}", **HOUR} for place in range(in_head - 2)]
    call = FACE.call(request(user([said("old", **HOUR)]), user([said("x")]), system=system, tools=tools))
    messages = [
        message("user", "1"),
        message("assistant", "2"),
        b'{"role":"system","content":"no mark"}',
        message("user", "4"),
        raw({"role": "assistant", "content": [{"type": "thinking", "thinking": "", "signature": "s"}]}),
        message("user", "6") + b',{"role":"system","content":[{"type":"text","text":"s"}]}',
    ]
    if in_head == 0 and places == (1, 3):
        messages[1] = raw({"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]})
    body = FACE.body(call, tools=(), messages=messages, marks=places)
    found = json.loads(body)
    shifted = [place if place < 6 else 5 for place in marks(body)]
    assert shifted == expected
    assert json.dumps(found).count("cache_control") == in_head + len(expected)
    assert json.dumps(found["messages"]).count(json.dumps(HOUR)[1:-1]) == len(expected)


def test_a_mark_the_api_places_itself_counts() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    call = FACE.call(request(user("x"), system=[said("s", **mark)] * 2, **mark))
    body = FACE.body(call, tools=(), messages=[message("user", "1"), message("user", "2")])
    assert marks(body) == [1]


def test_a_forced_tool_stands_without_thinking_and_withheld_tools_are_gone() -> None:
    edits = [{"type": "clear_thinking_20251015", "keep": "all"}, {"type": "clear_tool_uses_20250919"}]
    fields: dict[str, Any] = {
        "thinking": {"type": "adaptive"},
        "tool_choice": {"type": "auto"},
        "tools": [{"name": "read"}, {"name": "edit"}],
        "context_management": {"edits": edits},
    }
    call = FACE.call(request(user("x"), **fields))
    found = json.loads(FACE.body(call, tools=OURS, forced="recall", withheld=frozenset({"edit"})))
    assert found["tool_choice"] == {"type": "tool", "name": "recall"}
    assert [tool["name"] for tool in found["tools"]] == ["read", "recall"]
    assert "thinking" not in found
    assert found["context_management"] == {"edits": edits[1:]}
    assert found["messages"] == [{"role": "user", "content": "x"}]
    alone = FACE.call(request(user("x"), context_management={"edits": edits[:1]}))
    assert "context_management" not in json.loads(FACE.body(alone, tools=(), forced="recall"))


def test_a_refusal_is_in_the_apis_shape() -> None:
    for status, kind in (
        (400, "invalid_request_error"),
        (418, "invalid_request_error"),
        (429, "rate_limit_error"),
        (502, "api_error"),
    ):
        assert json.loads(FACE.error(status, 'no "way"')) == {
            "type": "error",
            "error": {"type": kind, "message": 'no "way"'},
        }


def test_a_piece_of_an_odd_shape_is_kept_as_it_came(blobs: DirBlobs) -> None:
    deep = '{"type":"new","x":' + "[" * 3000 + "]" * 3000 + "}"
    pieces = (json.dumps(returned("a", "x", is_error="yes")), '"cache_control"', deep)
    element = b'{"role":"user","content":[%b]}' % ",".join(pieces).encode()
    facts = FACE.facts([element], blobs)
    assert facts[0] == UserSaid(blocks=(Opaque(kind="malformed", raw=pieces[0]),), wire=pieces[0])
    assert facts[1] == UserSaid(
        blocks=(Opaque(kind="malformed", raw=pieces[1]), Opaque(kind="malformed", raw=deep)), wire=",".join(pieces[1:])
    )
    assert shown(FACE, facts) == [element]
    assert FACE.canonical(element) == element


def test_an_item_nobody_knows_is_kept_as_it_came(blobs: DirBlobs) -> None:
    facts = FACE.facts([user([{"type": "new_block", "x": [1]}])], blobs)
    assert facts == (UserSaid(blocks=(Opaque(kind="new_block", raw='{"type": "new_block", "x": [1]}'),)),)
