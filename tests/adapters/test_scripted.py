from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters import local_dialect, provider_openai_chat, provider_openai_responses
from transom.adapters.provider_anthropic import DIALECT
from transom.adapters.provider_writing import Reach
from transom.adapters.scripted import ScriptedProvider
from transom.adapters.scripted_format import read_script, script_of
from transom.core.block import Text, Thought, ToolCall
from transom.core.event import EpochOpened, HostSaid, Section, Seed, Tool, ToolReturned, Usage, WindowOpened
from transom.core.evidence import parse
from transom.core.wire import Dialect
from transom.errors import BadInput, HandoffRefused, Overflow, ProviderError, Unavailable, UsageError
from transom.ports import Delta
from transom.testing.conformance_provider import PROVIDER_CASES, ProviderCase, Talk, answer

DIALECTS = (
    DIALECT,
    provider_openai_chat.dialect(Reach()),
    provider_openai_responses.dialect(Reach()),
    local_dialect.DIALECT,
)
HANDOFF = {"requirements": [{"text": "keep the API", "source": "{user}"}], "inferences": ["done {i}"]}
NEW_CONTEXT = Tool(name="new_context", schema='{"type":"object","properties":{"handoff":{},"related_files":{}}}')
READ = Tool(name="read", schema='{"type":"object","properties":{"file_path":{"type":"string"}}}')


def play(*steps: Mapping[str, object], after: str = "", **more: object) -> ScriptedProvider:
    return ScriptedProvider(script_of({"step": list(steps), **more}), DIALECT, after=after)


def talk(*tools: Tool) -> Talk:
    made = Talk(DIALECT, tools=tools or (READ, NEW_CONTEXT))
    made.user("Fix the retry. Never push.")
    return made


def calls(provider: ScriptedProvider, said: Talk, **more: object) -> list[ToolCall]:
    reply = answer(provider, said.outgoing(**more))  # type: ignore[arg-type]
    return [block for block in reply.blocks if isinstance(block, ToolCall)]


def reads(path: str = "a.py") -> dict[str, list[dict[str, object]]]:
    return {"call": [{"tool": "read", "arguments": {"path|file_path": path}}]}


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("case", PROVIDER_CASES, ids=lambda case: case.__name__)
def test_a_scripted_model_keeps_its_port(case: ProviderCase, dialect: Dialect) -> None:
    script = script_of({"step": [{"thought": "hm\nhm", "say": "one\ntwo", "times": 0, **reads()}]})
    case(lambda: ScriptedProvider(script, dialect))


def script_sees(said: Talk, dialect: Dialect, words: str) -> bool:
    said.say(EpochOpened(sections=(Section(key="a", text="brief and exact"), Section(key="b", text='{"a": "b"}'))))
    script = script_of({"reaction": [{"when": {"shown": words}, "say": "seen"}], "step": [{"say": "not seen"}]})
    return answer(ScriptedProvider(script, dialect), said.outgoing()).blocks == (Text(text="seen"),)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_script_plays_the_same_in_every_dialect(dialect: Dialect) -> None:
    """Parallel results, a reminder, a new window: seen once each, whatever the wire form."""
    script = script_of({
        "take": {"user": r"message_uuid: (u\d+)"},
        "step": [{"say": "I look.", "call": [*reads()["call"], {"tool": "/^new_/"}]}, {"say": "work", "times": 0}],
        "reaction": [
            {"when": {"text": "E17.*\nE18|E18"}, "say": "Both failed for {user}."},
            {"when": {"text": "hand over", "offered": "^new_context$"}, "say": "I hand over."},
            {"when": {"opened": True}, "say": "A new window."},
        ],
    })  # fmt: skip
    provider, said = ScriptedProvider(script, dialect), Talk(dialect, tools=(READ, NEW_CONTEXT))
    heard = []
    said.user("[message_uuid: u2] Fix it.")
    for number in range(8):
        reply = answer(provider, said.outgoing())
        heard.append(next(block.text for block in reply.blocks if isinstance(block, Text)))
        said.take(reply, f"E1{7 + number}\nE18")
        said.say(HostSaid(kind="reminder", blocks=(Text(text="hand over" if number == 2 else "go"),)))
        if number == 5:
            seed = Seed(role="host", blocks=(Text(text="Previous context is available in durable storage."),))
            said.say(WindowOpened(cause="model", generation=1, seed=(seed,)))
        if not number:
            (call, _) = (block for block in reply.blocks if isinstance(block, ToolCall))
            assert call.arguments == '{"file_path": "a.py"}'
    assert script_sees(said, dialect, "brief and exact")
    assert script_sees(said, dialect, r'\{"a": "b"\}')
    assert heard == ["I look.", "Both failed for u2.", "work", "I hand over.", "work", "work", "A new window.", "work"]


def test_steps_are_played_in_order_one_a_request() -> None:
    provider, said = play({"thought": "t", "say": "I look.", **reads()}, {"say": "Done."}), talk()
    reply = answer(provider, said.outgoing())
    assert reply.blocks == (
        Thought(text="t"),
        Text(text="I look."),
        ToolCall(call_id="call_1_1", name="read", arguments='{"file_path": "a.py"}'),
    )
    assert (reply.stop_reason, reply.model, provider.is_played_out) == ("tool_use", "scripted", False)
    said.take(reply)
    reply = answer(provider, said.outgoing())
    assert (reply.blocks, reply.stop_reason, provider.is_played_out) == ((Text(text="Done."),), "end_turn", True)


def test_a_request_past_the_last_step_is_named() -> None:
    provider, said = play({"say": "Done."}), talk()
    answer(provider, said.outgoing())
    with pytest.raises(BadInput, match=r"all its steps \(1\) are played"):
        answer(provider, said.outgoing())


def test_groups_repeat_and_count() -> None:
    step = {"times": 2, "do": [{"say": "a{i}"}, {"say": "b{i}", "times": 2}]}
    provider, said = play(step, {"say": "c{i}", "times": 0}), talk()
    spoken = [answer(provider, said.outgoing()).blocks[0] for _ in range(9)]
    words = [block.text for block in spoken if isinstance(block, Text)]
    assert words == ["a1", "b1", "b1", "a2", "b2", "b2", "c1", "c2", "c3"]
    assert not provider.is_played_out


def test_a_step_names_alternatives_and_expressions() -> None:
    step = {"call": [{"tool": ["read_file", "/^no/", "/^re/"]}, {"tool": "new_context"}]}
    assert [call.name for call in calls(play(step), talk())] == ["read", "new_context"]


def test_what_is_not_offered_is_called_only_on_demand() -> None:
    hidden = {"call": [{"tool": "rm_all", "arguments": {"path": "/"}}]}
    with pytest.raises(
        BadInput, match=r"step 1, call 1, tool: none of rm_all is offered \(offered: read, new_context\)"
    ):
        calls(play(hidden), talk())
    with pytest.raises(BadInput, match=r"offered: new_context; withheld: read"):
        calls(play(reads()), talk(), withheld=frozenset({"read"}))
    assert calls(play({**hidden, "anyway": True}), talk())[0].name == "rm_all"
    assert calls(play(reads(), anyway=True), talk(), withheld=frozenset({"read"}))[0].name == "read"


def test_a_forced_tool_is_called_or_refused_on_demand() -> None:
    with pytest.raises(BadInput, match="the host forces new_context"):
        calls(play(reads()), talk(), forced_tool="new_context")
    assert calls(play({**reads(), "anyway": True}), talk(), forced_tool="new_context")[0].name == "read"
    reaction = {"when": {"forced": "new_context"}, "call": [{"tool": "new_context"}]}
    provider = play(reads(), reaction=[reaction])
    assert calls(provider, talk(), forced_tool="new_context")[0].name == "new_context"
    assert calls(provider, talk())[0].name == "read"


def test_a_reaction_sees_only_what_is_new() -> None:
    reaction = {"when": {"text": "hand over"}, "say": "I hand over {i}.", "times": 0}
    provider, said = play({"say": "work", "times": 0}, reaction=[reaction]), talk()
    heard = []
    for words in ("go", "please hand over", "go", "go"):
        said.say(HostSaid(kind="reminder", blocks=(Text(text=words),)))
        reply = answer(provider, said.outgoing())
        said.take(reply)
        heard.append(reply.blocks[0])
    assert heard == [Text(text="work"), Text(text="I hand over 1."), Text(text="work"), Text(text="work")]


def test_a_reaction_knows_tools_windows_sizes_and_what_is_shown() -> None:
    cases: list[tuple[dict[str, object], bool]] = [
        ({"offered": "^read$"}, True),
        ({"offered": "write"}, False),
        ({"withheld": "new_context"}, True),
        ({"withheld": "^read$"}, False),
        ({"forced": "."}, False),
        ({"opened": True}, False),
        ({"opened": False}, True),
        ({"min_tokens": 50}, True),
        ({"min_tokens": 5000}, False),
        ({"shown": "brief and exact"}, True),
        ({"shown": "no such words"}, False),
        ({"text": "Never push", "offered": "no_tool"}, False),
    ]
    for when, holds in cases:
        provider = play({"say": "step"}, reaction=[{"when": when, "say": "reaction"}])
        reply = answer(provider, talk().outgoing(withheld=frozenset({"new_context"})))
        assert reply.blocks == (Text(text="reaction" if holds else "step"),), when


def test_a_step_whose_condition_fails_is_skipped() -> None:
    steps = ({"when": {"offered": "write"}, "say": "never", "times": 0}, {"say": "this"})
    assert answer(play(*steps), talk().outgoing()).blocks == (Text(text="this"),)


def test_a_new_window_is_seen_once() -> None:
    reaction = {"when": {"opened": True}, "say": "A new window for {who}."}
    provider = play(
        {"say": "work", "times": 0}, reaction=[{**reaction, "times": 0}], take={"who": r"session_id: (\S+)"}
    )
    said = talk()
    said.take(answer(provider, said.outgoing()))
    text = "Previous context is available in durable storage.\nsession_id: s7\nmessage_uuid: u9"
    said.say(WindowOpened(cause="model", generation=1, seed=(Seed(role="host", blocks=(Text(text=text),)),)))
    reply = answer(provider, said.outgoing())
    assert reply.blocks == (Text(text="A new window for s7."),)
    said.take(reply)
    said.user("go on")
    assert answer(provider, said.outgoing()).blocks == (Text(text="work"),)


def test_what_the_request_shows_can_be_cited() -> None:
    said = talk()
    said.user("[message_uuid: u1] first")
    said.user("[message_uuid: u8] second")
    step = {"call": [{"tool": "new_context", "arguments": {"handoff": HANDOFF}}]}
    (call,) = calls(play(step, take={"user": r"message_uuid: (u\d+)"}), said)
    assert parse(call.arguments, max_chars=1000).handoff.requirements[0].source == "u8"
    with pytest.raises(BadInput, match=r"step 1: take.user: nothing in the request matches 'no such'"):
        calls(play(step, take={"user": "no such"}), said)


def test_templates_leave_code_alone() -> None:
    step = {"say": "{i} {{i}} {x} {{x}} {uuid} {} {pad:5} {{pad:5}} {pad} {i:3}"}
    reply = answer(play(step, take={"uuid": "retry"}), talk().outgoing())
    assert reply.blocks == (Text(text="1 {i} {x} {{x}} retry {} All w {pad:5} {pad} {i:3}"),)


# -- misbehaviour


def test_handoffs_can_be_empty_prose_oversized_and_twice_in_a_batch() -> None:
    def hands(handoff: object) -> dict[str, object]:
        return {"tool": "new_context", "arguments": {"handoff": handoff}}

    prose = "### Requirements\n- keep the API [u1]\n### Inferences\n- the bug is in retry.py"
    batch = [hands({}), hands(prose), hands({"inferences": ["{pad:90000}"]}), {"tool": "read", "raw": "{"}]
    empty, said, big, torn = calls(play({"call": batch}), talk())
    with pytest.raises(HandoffRefused, match="empty"):
        parse(empty.arguments, max_chars=4000)
    assert len(parse(said.arguments, max_chars=4000).handoff.requirements) == 1
    with pytest.raises(HandoffRefused, match="90,000"):
        parse(big.arguments, max_chars=4000)
    assert torn.arguments == "{"
    assert len({call.call_id for call in (empty, said, big, torn)}) == 4


@pytest.mark.parametrize("raw", ["", "not JSON", "[1]", '{"path": 7}', '{"path": "a\\u0000b"}', "\0", '"\ud83d'])
def test_arguments_can_be_anything(raw: str) -> None:
    (call,) = calls(play({"call": [{"tool": "read", "raw": raw}]}), talk())
    assert call.arguments == raw


def test_arguments_keep_their_form_and_order() -> None:
    given = {"z": [1, "{i}", {"deep": ["{i}", None]}], "a": 2.5, "when": date(2026, 12, 1), "压": True}
    (call,) = calls(play({"call": [{"tool": "read", "arguments": given}]}), talk())
    assert call.arguments == '{"z": [1, "1", {"deep": ["1", null]}], "a": 2.5, "when": "2026-12-01", "压": true}'


def test_a_megabyte_of_arguments_is_one_step() -> None:
    (call,) = calls(play({"call": [{"tool": "read", "arguments": {"path": "{pad:1000000}"}}]}), talk())
    assert len(json.loads(call.arguments)["path"]) == 1_000_000


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("overflow", Overflow, "prompt is too long"),
        ("429", Unavailable, "rate_limit"),
        ("529", Unavailable, "overloaded"),
        ("400", ProviderError, "invalid_request"),
        ("401", ProviderError, "authentication"),
    ],
)
def test_a_step_can_fail_a_number_of_times(kind: str, error: type[ProviderError], words: str) -> None:
    provider, said = play({"fail": kind, "times": 2}, {"say": "ok"}), talk()
    for _ in range(2):
        with pytest.raises(error, match=words):
            answer(provider, said.outgoing())
    assert answer(provider, said.outgoing()).blocks == (Text(text="ok"),)


def test_a_broken_stream_shows_some_pieces_and_no_reply() -> None:
    provider, said = play({"fail": "broken", "say": "one\ntwo\nthree\nfour\n"}, {"say": "ok"}), talk()
    heard: list[object] = []
    with pytest.raises(Unavailable, match="after 2 of 4"):
        heard.extend(provider.send(said.outgoing()))
    stream = play({"fail": "broken", "say": "one\ntwo\nthree\nfour\n"}).send(said.outgoing())
    assert [next(stream), next(stream)] == [Delta(kind="text", text="one\n"), Delta(kind="text", text="two\n")]
    assert answer(provider, said.outgoing()).response_id == "scripted-1-2-0-"


def test_a_window_in_tokens_overflows_without_playing_a_step() -> None:
    provider, said = play({"say": "ok"}, window_tokens=200), talk()
    said.user("x" * 1000)
    with pytest.raises(Overflow, match="> 200 maximum"):
        answer(provider, said.outgoing())
    assert answer(provider, talk().outgoing()).blocks == (Text(text="ok"),)


def test_usage_counts_bytes_and_the_shared_prefix() -> None:
    provider, said = play({"say": "okay", "times": 0}), talk()
    sizes, usages = [], []
    for _ in range(3):
        request = said.outgoing()
        sizes.append(sum(map(len, request.wire.segments())))
        reply = answer(provider, request)
        assert reply.usage is not None
        usages.append(reply.usage)
        said.take(reply)
        said.user("go on")
    assert [usage.prompt for usage in usages] == [-(-size // 4) for size in sizes]
    assert usages[0].cached == 0
    assert [usage.cached for usage in usages[1:]] == [size // 4 for size in sizes[:2]]
    assert (usages[0].output, usages[0].written, usages[0].reasoning) == (1, 0, 0)


def test_taking_a_tool_away_costs_the_cache() -> None:
    provider, said = play({"say": "okay", "times": 0}), talk()
    answer(provider, said.outgoing())
    usage = answer(provider, said.outgoing(withheld=frozenset({"read"}))).usage
    assert usage is not None
    assert usage.cached == 0


def test_usage_can_be_wrong_or_missing() -> None:
    provider = play({"say": "a", "usage": {"cached": 9, "uncached": 0, "output": 7}}, {"say": "b", "usage": "none"})
    assert answer(provider, talk().outgoing()).usage == Usage(cached=9, output=7, reasoning=0)
    assert answer(provider, talk().outgoing()).usage is None


def test_a_stop_reason_can_be_any() -> None:
    provider = play({"stop": "refusal"}, {"say": "cut", "stop": "max_tokens"})
    assert [answer(provider, talk().outgoing()).stop_reason for _ in range(2)] == ["refusal", "max_tokens"]


# -- restarts and determinism


def test_a_restarted_player_goes_on_behind_the_last_reply() -> None:
    steps: tuple[dict[str, object], ...] = (
        {"times": 3, "do": [{"say": "a{i}", **reads()}, {"say": "b{i}"}]},
        {"say": "z{i}", "times": 0},
    )
    reaction = [{"when": {"text": "ok"}, "say": "once"}]

    def run(restart: bool) -> list[object]:
        provider, said = play(*steps, reaction=reaction), talk()
        replies = []
        for _ in range(12):
            reply = answer(provider, said.outgoing())
            said.take(reply)
            said.user("go on")
            replies.append((reply.blocks, reply.response_id))
            if restart:
                provider = play(*steps, reaction=reaction, after=reply.response_id)
        return list(replies)

    whole = run(restart=False)
    assert whole == run(restart=True)
    assert all(left != right for left, right in pairwise(whole))


def test_a_reply_of_another_script_is_refused() -> None:
    for after in ("msg_1", "scripted-1-9-0-", "scripted-1-1-0-3"):
        with pytest.raises(UsageError, match="is no reply of the script"):
            play({"say": "a"}, after=after)


def test_a_closed_answer_leaves_the_script_where_it_was() -> None:
    provider, said = play({"say": "one\ntwo"}, {"say": "next"}), talk()
    stream = provider.send(said.outgoing())
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert answer(provider, said.outgoing()).blocks == (Text(text="one\ntwo"),)


def test_results_of_a_batch_are_new_text_for_a_reaction() -> None:
    provider = play(reads(), {"say": "fine"}, reaction=[{"when": {"text": "E1234"}, "say": "That failed."}])
    said = talk()
    reply = answer(provider, said.outgoing())
    said.take(reply, "error E1234")
    assert answer(provider, said.outgoing()).blocks == (Text(text="That failed."),)


# -- files and errors


def test_toml_and_json_give_the_same_script(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('model = "m"\n[[step]]\nsay = "hi"\n[[step.call]]\ntool = "read"\n')
    (tmp_path / "a.json").write_text('{"model": "m", "step": [{"say": "hi", "call": [{"tool": "read"}]}]}')
    toml, plain = read_script(tmp_path / "a.toml"), read_script(tmp_path / "a.json")
    assert (toml.model, [one.step for one in toml.steps]) == (plain.model, [one.step for one in plain.steps])


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"step": []}, "s: step: there is none"),
        ([], "s: Expected `object`"),
        ({"stp": []}, "s: .*unknown field `stp`"),
        ({"step": 3}, "s: step: Expected `array`"),
        ({"step": ["hi"]}, "s: step 1: is no table"),
        ({"step": [{"say": "a"}, {"say": 7}]}, "s: step 2, say: Expected `str`, got `int`"),
        ({"step": [{"say": "a", "call": {"tool": "x"}}]}, r"s: step 1, call: is no list; write \[\[step.call\]\]"),
        ({"step": [{"call": [{"tool": "a"}, {"tol": "x"}]}]}, "s: step 1, call 2, .*unknown field `tol`"),
        ({"step": [{"call": [{"arguments": {}}]}]}, "s: step 1, call 1, .*missing required field `tool`"),
        ({"step": [{"call": [{"tool": []}]}]}, "s: step 1, call 1, tool: names no tool"),
        ({"step": [{"call": [{"tool": "/(/"}]}]}, "s: step 1, call 1, tool: .* no regular expression"),
        (
            {"step": [{"call": [{"tool": "a", "arguments": {"x": 1}, "raw": ""}]}]},
            "s: step 1, call 1, raw: stands instead",
        ),
        ({"step": [{}]}, "s: step 1: does nothing"),
        ({"step": [{"fail": "boom"}]}, "s: step 1, fail: Invalid enum value 'boom'; docs/scripted.md has all"),
        ({"step": [{"fail": "429", "say": "x"}]}, "s: step 1, fail: 429 comes before the first word"),
        ({"step": [{"say": "x", "times": -1}]}, "s: step 1, times: -1 is negative"),
        ({"step": [{"say": "x", "times": 10**9}]}, "s: step: 1,000,000,000 steps"),
        ({"step": [{"say": "x", "do": [{"say": "y"}]}]}, "s: step 1, do: a group has only"),
        ({"step": [{"times": 0, "do": [{"say": "y"}]}]}, "s: step 1, times: only a single step repeats for ever"),
        ({"step": [{"do": [{"say": "y", "times": 0}]}]}, "s: step 1, do: a group has only"),
        ({"step": [{"do": [{"sai": "y"}]}]}, "s: step 1, do 1, .*unknown field `sai`"),
        ({"step": [{"say": "x", "when": {}}]}, "s: step 1, when: is empty"),
        ({"step": [{"say": "x", "when": {"text": "["}}]}, "s: step 1, when.text: .* no regular expression"),
        ({"step": [{"say": "x", "usage": {"cashed": 1}}]}, "s: step 1, usage: .*unknown field `cashed`"),
        ({"reaction": [{"say": "x"}]}, "s: reaction 1, when: a reaction needs a condition"),
        ({"step": [{"say": "x"}], "take": {"i": "x"}}, "s: take.i: is no name"),
        ({"step": [{"say": "x"}], "take": {"u": "("}}, "s: take.u: .* no regular expression"),
    ],
)
def test_a_wrong_script_names_file_step_and_field(found: object, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        script_of(found, name="s")


_KEYS = st.sampled_from(
    ["step", "call", "do", "times", "when", "text", "tool", "say", "raw", "fail", "usage", "take", "x"]
)
_LEAVES = st.one_of(st.none(), st.booleans(), st.integers(-2, 3), st.sampled_from(["", "(", "a", "/(/", "429", "none"]))
_JSON = st.recursive(
    _LEAVES, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=4))
)


@given(_JSON, _JSON)
def test_whatever_is_given_as_a_script_is_one_or_is_refused(step: object, rest: object) -> None:
    for found in (
        step,
        {"step": [step]},
        {"step": [step], "reaction": [rest]},
        {"step": [{"say": "a", "call": [rest]}]},
    ):
        try:
            made = script_of(found, name="s")
        except BadInput as error:
            refused = str(error)
        else:
            refused = "" if made.steps or made.reactions else "neither a step nor a reaction"
        assert refused == "" or refused.startswith("s: ")


def test_a_file_that_is_no_script_is_named(tmp_path: Path) -> None:
    for name, text, words in (
        ("a.toml", "step = [", "no TOML"),
        ("a.json", "{", "no JSON"),
        ("b.json", "[" * 99999, "no"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(BadInput, match=f"{name}: {words}"):
            read_script(tmp_path / name)
    with pytest.raises(BadInput, match="cannot be read"):
        read_script(tmp_path / "absent.toml")
    (tmp_path / "c.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match="no TOML"):
        read_script(tmp_path / "c.toml")


def test_a_lone_result_in_any_form_is_read() -> None:
    """A group of results may be several messages in one segment, each with text in its own place."""
    said = talk()
    reply = answer(play(reads()), said.outgoing())
    said.take(reply)
    said.say(ToolReturned(call_id="stray", blocks=(Text(text="late"),)))
    provider = play({"say": "x"}, reaction=[{"when": {"text": "late"}, "say": "seen"}])
    assert answer(provider, said.outgoing()).blocks == (Text(text="seen"),)
