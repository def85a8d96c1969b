"""What the three dialects write: the same bytes for the same state, valid JSON, pairs whole, marks outside the digests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters import provider_anthropic, provider_openai_chat, provider_openai_responses
from transom.adapters.blobs import DirBlobs
from transom.adapters.provider_api import Api
from transom.adapters.provider_writing import Reach
from transom.core.block import Image, Opaque, Thought
from transom.core.event import EpochOpened, Section, Tool
from transom.core.policy import Policy
from transom.core.wire import Rendering, Wire
from transom.errors import ArtifactMissing
from transom.ports import Outgoing
from transom.session import Session
from transom.testing.builders import Story, call, rules, text
from transom.testing.histories import Move, Play, histories, policies

ORIGIN = "here/m1"
MARK = b',"cache_control":{"type":"ephemeral"}'


def apis(reach: Reach) -> dict[str, Api]:
    return {
        "anthropic": provider_anthropic.api(reach=reach),
        "chat": provider_openai_chat.api(reach=reach, is_openai=True),
        "responses": provider_openai_responses.api(reach=reach),
    }


APIS = apis(Reach(origin=ORIGIN))
NAMES = tuple(APIS)


def body(api: Api, wire: Wire, **given_fields: Any) -> bytes:
    return api.body(Outgoing(wire=wire, model="m1", max_output_tokens=100, **given_fields))


def messages(name: str, wire: Wire, api: Api | None = None) -> list[dict[str, Any]]:
    found = json.loads(body(api or APIS[name], wire))["input" if name == "responses" else "messages"]
    assert isinstance(found, list)
    return [one for one in found if one.get("role") != "system"]


def story(name: str, reach: Reach | None = None) -> Story:
    api = apis(reach)[name] if reach else APIS[name]
    return Story(rules=rules("raw", dialect=api.dialect))


def steps(made: Story, count: int) -> Story:
    made.user("specification")
    for number in range(count):
        made.step()
        made.reply(f"step {number}", call(f"call_{number}"))
        made.returned(f"call_{number}", f"out {number}")
    return made


def calls_and_results(name: str, wire: Wire) -> tuple[list[str], list[str]]:
    calls: list[str] = []
    results: list[str] = []
    for one in messages(name, wire):
        match name:
            case "anthropic":
                calls.extend(block["id"] for block in one["content"] if block["type"] == "tool_use")
                results.extend(block["tool_use_id"] for block in one["content"] if block["type"] == "tool_result")
            case "chat":
                calls.extend(made["id"] for made in one.get("tool_calls", ()))
                results.extend([one["tool_call_id"]] if one["role"] == "tool" else [])
            case _:
                calls.extend([one["call_id"]] if one["type"] == "function_call" else [])
                results.extend([one["call_id"]] if one["type"] == "function_call_output" else [])
    return calls, results


@given(histories(longest=12), policies(), st.sampled_from(NAMES))
def test_a_request_is_its_segments_joined_and_the_same_from_nothing(
    moves: list[Move], policy: Policy, name: str
) -> None:
    """L2: rendered step by step or from nothing, the bytes are the same; every segment stands in the body as it is, and
    every call has its result."""
    api = APIS[name]

    def look(session: Session) -> None:
        wire = play.sent[-1].wire
        again = Rendering(api.dialect).wire(session.state, wire.tail_text)
        assert again.segments() == wire.segments()
        sent = body(api, wire)
        assert sent == body(api, again)
        bare = sent.replace(MARK, b"")
        assert b",".join([*wire.body[: wire.messages], *([wire.tail] if wire.tail else [])]) in bare
        assert all(segment in bare for segment in wire.segments())
        calls, results = calls_and_results(name, wire)
        assert sorted(calls) == sorted(results)
        assert sent.count(MARK) <= 4

    play = Play(policy, watch=look)
    play.story.rules = replace(play.story.rules, dialect=api.dialect)
    play.story.reopen()
    play.run([*moves, Move("step")])


@pytest.mark.parametrize("name", NAMES)
def test_the_body_is_json_and_grows_by_what_was_added(name: str) -> None:
    made = steps(story(name), 3)
    first = messages(name, made.step().wire)
    made.reply("more", call("call_x"))
    made.returned("call_x", "out x")
    later = messages(name, made.step().wire)
    assert strip(later)[: len(first)] == strip(first)


def strip(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: strip(one) for name, one in value.items() if name != "cache_control"}
    return [strip(one) for one in value] if isinstance(value, list) else value


def marked(wire: Wire) -> tuple[list[int], bool]:
    """(places of marked messages, whether the head is)."""
    sent = json.loads(body(APIS["anthropic"], wire))
    head = [*sent.get("tools", ()), *sent.get("system", ())]
    places = [place for place, one in enumerate(sent["messages"]) if "cache_control" in one["content"][-1]]
    assert json.dumps(sent).count("cache_control") == len(places) + any("cache_control" in one for one in head)
    return places, bool(head) and "cache_control" in head[-1]


def test_marks_stand_on_the_head_the_first_message_the_last_stable_and_the_moving_end() -> None:
    made = story("anthropic")
    made.say(EpochOpened(sections=(Section(key="a", text="A"), Section(key="b", text="B")), tools=(Tool(name="t"),)))
    steps(made, 4)
    wire = made.step().wire
    assert marked(wire) == ([0, 6, 8], True)
    before = wire.segments()
    body(APIS["anthropic"], wire)
    assert wire.segments() == before
    assert MARK not in b"".join(before)


@pytest.mark.parametrize(("count", "places"), [(0, [0]), (1, [0, 2]), (2, [0, 2, 4])])
def test_a_short_request_has_as_many_marks_as_it_has_places(count: int, places: list[int]) -> None:
    assert marked(steps(story("anthropic"), count).step().wire) == (places, False)


def test_the_tail_stands_behind_the_last_mark() -> None:
    made = Story(rules=rules("gssc", dialect=APIS["anthropic"].dialect))
    made.user("You must never push.")
    made.step()
    made.reply("ok")
    made.user("go on")
    wire = made.step().wire
    assert wire.tail
    assert marked(wire)[0] == [0, 2]
    assert messages("anthropic", wire)[-1]["content"][0]["text"] == wire.tail_text


def test_a_mark_is_not_set_on_a_thought_nor_on_what_has_its_own() -> None:
    made = story("anthropic")
    made.user("specification")
    made.step()
    own = Opaque(
        kind="document", raw='{"type":"document","cache_control":{"type":"ephemeral","ttl":"1h"}}', origin=ORIGIN
    )
    made.reply(Thought(text="hm", opaque='{"type":"thinking","thinking":"hm","signature":"s"}', origin=ORIGIN))
    made.user("see", own)
    made.step()
    made.reply(Thought(text="hm", opaque='{"type":"thinking","thinking":"hm","signature":"t"}', origin=ORIGIN))
    sent = json.loads(body(APIS["anthropic"], made.step().wire))["messages"]
    places = [place for place, one in enumerate(sent) if MARK[1:] in json.dumps(one, separators=(",", ":")).encode()]
    assert places == [0]


def test_a_call_is_forced_and_tools_are_withheld_without_touching_the_rest() -> None:
    for name in NAMES:
        made = story(name)
        made.say(EpochOpened(tools=(Tool(name="a"), Tool(name="b"), Tool(name="c"))))
        wire = steps(made, 1).step().wire
        plain, narrow = body(APIS[name], wire), body(APIS[name], wire, withheld=frozenset({"a", "c"}), forced_tool="b")
        assert plain.count(b'"name":"a"') == 1
        assert narrow.count(b'"name":"a"') == narrow.count(b'"name":"c"') == 0
        assert b'"tool_choice"' in narrow
        assert b'"tool_choice"' not in plain
        assert all(data in narrow.replace(MARK, b"") for data in wire.body)
        everything = body(APIS[name], wire, withheld=frozenset({"a", "b", "c"}))
        assert "tools" not in json.loads(everything)


def test_thinking_is_left_out_where_a_tool_is_forced() -> None:
    api = provider_anthropic.api(reach=Reach(origin=ORIGIN), params='{"thinking":{"type":"adaptive"},"top_k":5}')
    made = steps(Story(rules=rules("raw", dialect=api.dialect)), 1)
    wire = made.step().wire
    assert json.loads(body(api, wire))["thinking"] == {"type": "adaptive"}
    forced = json.loads(body(api, wire, forced_tool="bash"))
    assert "thinking" not in forced
    assert forced["top_k"] == 5


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_is_sent_as_data_where_its_bytes_are_and_by_its_address_elsewhere(name: str, tmp_path: Path) -> None:
    blobs = DirBlobs(tmp_path)
    here = Image(media_type="image/png", artifact_id=blobs.put(b"\x89PNG"), size=4)
    there = Image(media_type="image/*", url="https://example.org/a.png")
    for reach, is_data in ((Reach(origin=ORIGIN, blobs=blobs), True), (Reach(origin=ORIGIN), False)):
        made = story(name, reach)
        made.user("look", here, there)
        made.step()
        made.reply(call("c1"))
        made.returned("c1", here)
        sent = body(apis(reach)[name], made.step().wire).decode()
        assert sent.count("iVBORw==") == (2 if is_data else 0)
        assert sent.count(f"artifact:{here.artifact_id}") == (0 if is_data else 2)
        assert sent.count("https://example.org/a.png") == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_picture_whose_bytes_are_gone_is_an_error_and_not_another_request(name: str, tmp_path: Path) -> None:
    made = story(name, Reach(origin=ORIGIN, blobs=DirBlobs(tmp_path)))
    made.user("look", Image(media_type="image/png", artifact_id="ab" * 32, size=4))
    with pytest.raises(ArtifactMissing):
        made.step()


@pytest.mark.parametrize("name", NAMES)
def test_another_providers_items_are_dropped_from_replies_and_named_elsewhere(name: str) -> None:
    made = story(name)
    foreign = '{"type":"reasoning","id":"r","encrypted_content":"secret","summary":[]}'
    made.user("see", Opaque(kind="document", raw='{"type":"document","data":"secret"}'))
    made.step()
    made.reply(
        Thought(text="secret", opaque=foreign, origin="there/m1"),
        Thought(text="secret", opaque=foreign, origin="here/m2"),
        Thought(text="secret", opaque=foreign),
        Opaque(kind="compaction", raw=foreign, origin="there/m1"),
        "ok",
    )
    made.user("go on")
    sent = body(APIS[name], made.step().wire).decode()
    assert "secret" not in sent
    assert sent.count("[document: held by another provider, not shown here]") == 1


@pytest.mark.parametrize("name", NAMES)
def test_ids_that_an_api_refuses_are_made_to_fit_and_still_pair(name: str) -> None:
    made = story(name)
    odd = ["fc.1|x", "ü" * 3, "c" * 200, "call_ok-1"]
    made.user("go")
    made.step()
    made.reply(*(call(one) for one in odd))
    for one in list(made.calls):
        made.returned(one)
    calls, results = calls_and_results(name, made.step().wire)
    assert calls == results
    assert calls[3] == "call_ok-1"
    assert len(set(calls)) == 4
    assert all(len(one) <= 64 and one.replace("_", "").replace("-", "").isalnum() and one.isascii() for one in calls)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("arguments", ["not json", "[1]", "", '{"a":1e2, "b":"\\u00e9"}', "{" * 2000, '{"a":"\ud83d"}'])
def test_arguments_are_an_object_whatever_the_model_wrote(name: str, arguments: str) -> None:
    made = story(name)
    made.user("go")
    made.step()
    made.reply(call("c1", arguments=arguments))
    made.returned("c1")
    found = _arguments(name, messages(name, made.step().wire))
    assert isinstance(found if isinstance(found, dict) else json.loads(found), dict)
    if "1e2" in arguments:
        assert found in (arguments, {"a": 100.0, "b": "é"})


def _arguments(name: str, sent: Sequence[dict[str, Any]]) -> Any:
    match name:
        case "anthropic":
            return sent[1]["content"][0]["input"]
        case "chat":
            return sent[1]["tool_calls"][0]["function"]["arguments"]
        case _:
            return sent[1]["arguments"]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_tool_or_a_client_says_cannot_look_like_the_host(name: str) -> None:
    made = story(name)
    made.user("my <handoff>")
    made.host("a <handoff> file")
    made.step()
    made.reply("x", call("c1"))
    made.returned("c1", "a </handoff> result")
    sent = json.dumps(messages(name, made.step().wire))
    assert "my <handoff>" in sent
    assert "a &lt;handoff> file" in sent
    assert "a &lt;/handoff> result" in sent


def test_a_head_is_one_system_message_or_the_instructions() -> None:
    sections = (Section(key="a", text='say "a"\n'), Section(key="b", text="b"))
    for name, place in (("chat", "messages"), ("responses", "instructions")):
        made = story(name)
        made.say(EpochOpened(sections=sections))
        sent = json.loads(body(APIS[name], steps(made, 0).step().wire))[place]
        assert (sent[0]["content"] if name == "chat" else sent) == 'say "a"\n\n\nb'


def test_a_session_keeps_its_cache_key_over_windows_of_the_same_first_message() -> None:
    for name in ("chat", "responses"):
        short, long = (json.loads(body(APIS[name], steps(story(name), n).step().wire)) for n in (1, 5))
        assert short["prompt_cache_key"] == long["prompt_cache_key"]
    compatible = provider_openai_chat.api(reach=Reach(origin=ORIGIN))
    sent = json.loads(body(compatible, steps(story("chat"), 1).step().wire))
    assert "prompt_cache_key" not in sent
    assert sent["max_tokens"] == 100


def test_reasoning_that_is_only_an_id_is_left_out() -> None:
    made = story("responses")
    made.user("go")
    made.step()
    kept = '{"type":"reasoning","id":"rs_2","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]}'
    made.reply(
        Thought(
            text="", opaque='{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":null}', origin=ORIGIN
        ),
        Thought(text="", opaque=kept, origin=ORIGIN),
        "ok",
    )
    made.user("on")
    sent = body(APIS["responses"], made.step().wire)
    assert b"rs_1" not in sent
    assert kept.encode() in sent


def test_blank_words_are_not_shown() -> None:
    for name in NAMES:
        made = story(name)
        made.user(text("  \n"), "go")
        made.step()
        made.reply(" ", call("c1"))
        made.returned("c1", "")
        sent = messages(name, made.step().wire)
        assert sum("role" in one and one["role"] == "user" for one in sent) == (2 if name == "anthropic" else 1)
