"""Sending: retries, waits, broken streams, cancelling, and what the errors say. Answers are prepared to the byte."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from email.utils import formatdate

import pytest

from transom import compose
from transom.adapters.provider_http import HttpProvider, Patience
from transom.core.block import Text, ToolCall
from transom.core.wire import Wire
from transom.errors import BadInput, Overflow, ProviderError, Unavailable
from transom.ports import Delta, Outgoing, Reply
from transom.testing.builders import Story, rules
from transom.testing.loopback import Canned, Loopback, sse

NAMES = ("compatible-anthropic", "compatible", "compatible-responses")

ANTHROPIC = sse(
    '{"type":"message_start","message":{"id":"m1","model":"m","usage":{"input_tokens":5,"output_tokens":1}}}',
    '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
    '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hello"}}',
    '{"type":"content_block_stop","index":0}',
    '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}',
    '{"type":"message_stop"}',
)
CHAT = sse(
    '{"id":"m1","model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"hel"}}]}',
    '{"id":"m1","model":"m","choices":[{"index":0,"delta":{"content":"lo"}}]}',
    '{"id":"m1","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}',
    '{"id":"m1","model":"m","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}',
    "[DONE]",
)
_ITEM = (
    '{"type":"message","id":"i1","role":"assistant","content":[{"type":"output_text","text":"hello","annotations":[]}]}'
)
RESPONSES = sse(
    '{"type":"response.created","response":{"id":"m1","model":"m","status":"in_progress","output":[]}}',
    '{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"i1","content":[]}}',
    '{"type":"response.output_text.delta","output_index":0,"delta":"hello"}',
    f'{{"type":"response.output_item.done","output_index":0,"item":{_ITEM}}}',
    f'{{"type":"response.completed","response":{{"id":"m1","model":"m","status":"completed","output":[{_ITEM}],'
    '"usage":{"input_tokens":5,"output_tokens":3}}}',
)
STREAMS = dict(zip(NAMES, (ANTHROPIC, CHAT, RESPONSES), strict=True))
OVERLOADED = Canned(status=529, media_type="application/json", body=b'{"error":{"message":"Overloaded"}}')


def wire(words: str = "hi") -> Wire:
    story = Story(rules=rules("raw"))
    story.user(words)
    return story.session.request().wire


def ask(model: str = "m") -> Outgoing:
    return Outgoing(wire=wire(), model=model, max_output_tokens=100)


def provider(
    server: Loopback, name: str = "compatible", *, waits: list[float] | None = None, env: dict[str, str] | None = None
) -> HttpProvider:
    kept = [] if waits is None else waits
    patience = Patience(sleep=kept.append, share=lambda: 1.0, now=lambda: 1000.0)
    return compose.provider(name, "m", base_url=server.base_url, env=env or {}, patience=patience)


def reply_of(answer: Iterator[Delta | Reply]) -> Reply:
    *_, last = answer
    assert isinstance(last, Reply)
    return last


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_becomes_deltas_and_one_reply(name: str) -> None:
    with Loopback(Canned(body=STREAMS[name])) as server:
        *deltas, last = provider(server, name).send(ask())
    assert "".join(one.text for one in deltas if isinstance(one, Delta)) == "hello"
    assert isinstance(last, Reply)
    assert last.blocks == (Text(text="hello"),)
    assert (last.response_id, last.model, last.usage and (last.usage.prompt, last.usage.output)) == ("m1", "m", (5, 3))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("end", [0.0, 0.4, 0.6, 0.8])
def test_half_a_stream_is_asked_for_again_and_never_handed_out(name: str, end: float) -> None:
    whole = STREAMS[name]
    waits: list[float] = []
    with Loopback(
        Canned(body=whole[: int(len(whole) * end)], is_cut=True),
        Canned(body=whole[: int(len(whole) * end)]),
        Canned(body=whole),
    ) as server:
        found = list(provider(server, name, waits=waits).send(ask()))
    replies = [one for one in found if isinstance(one, Reply)]
    assert [one.blocks for one in replies] == [(Text(text="hello"),)]
    assert found[-1] is replies[0]
    if len(waits) == 2:  # a chat answer is whole once its finish reason came
        assert {asked.body for asked in server.asked} == {server.asked[0].body}
    else:
        assert name == "compatible"
        assert end == 0.8


def test_what_was_shown_of_a_broken_answer_is_called_void() -> None:
    with Loopback(Canned(body=CHAT[:120], is_cut=True), Canned(body=CHAT)) as server:
        shown = [one for one in provider(server).send(ask()) if isinstance(one, Delta)]
    said = [one.text.strip() for one in shown if one.kind != "notice"]
    assert said == ["hel", "[the answer broke off; asking again]", "hel", "lo"]


def test_nothing_is_asked_again_after_the_last_try() -> None:
    shown: list[Delta] = []
    with Loopback(Canned(body=CHAT[:120], is_cut=True)) as server, pytest.raises(Unavailable):
        shown.extend(one for one in provider(server).send(ask()) if isinstance(one, Delta))
    assert len(server.asked) == 6
    for kind in ("notice", "text"):
        assert sum(one.kind == kind and "asking again" in one.text for one in shown) == 5


def test_each_new_try_is_told_with_its_reason_and_its_moment() -> None:
    shown: list[Delta] = []
    with Loopback(OVERLOADED) as server, pytest.raises(Unavailable):
        shown.extend(one for one in provider(server).send(ask()) if isinstance(one, Delta))
    assert {one.kind for one in shown} == {"notice"}
    assert len(shown) == 5
    assert shown[0].text.endswith("Overloaded; asking again in 0.5 s (try 2 of 6)")
    assert server.base_url in shown[0].text
    assert shown[4].text.endswith("asking again in 8.0 s (try 6 of 6)")


def test_a_server_on_this_machine_is_not_asked_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    with Loopback(Canned(body=CHAT)) as server:
        assert reply_of(provider(server).send(ask())).stop_reason == "stop"


@pytest.mark.parametrize("name", NAMES)
def test_a_stream_that_always_breaks_ends_in_unavailable_after_the_last_try(name: str) -> None:
    with Loopback(Canned(body=STREAMS[name][:150], is_cut=True)) as server, pytest.raises(Unavailable) as caught:
        list(provider(server, name).send(ask()))
    assert len(server.asked) == 6
    assert "no answer in 6 tries" in str(caught.value)


def test_waits_double_up_to_a_limit_and_are_shared_out_by_chance() -> None:
    waits: list[float] = []
    with Loopback(OVERLOADED) as server, pytest.raises(Unavailable):
        list(provider(server, waits=waits).send(ask()))
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0]
    half = Patience(tries=12, sleep=waits.append, share=lambda: 0.5)
    with Loopback(OVERLOADED) as server, pytest.raises(Unavailable):
        list(compose.provider("compatible", "m", base_url=server.base_url, env={}, patience=half).send(ask()))
    assert waits[-3:] == [15.0, 15.0, 15.0]


@pytest.mark.parametrize(
    ("header", "value", "wait"),
    [
        ("retry-after", "7", 7.0),
        ("retry-after-ms", "250", 0.25),
        ("retry-after", formatdate(1012, usegmt=True), 12.0),
        ("retry-after", formatdate(1, usegmt=True), 0.0),
        ("retry-after", "soon", 0.5),
        ("retry-after", "nan", 0.5),
    ],
)
def test_the_wait_is_what_the_provider_asks_for(header: str, value: str, wait: float) -> None:
    waits: list[float] = []
    busy = Canned(status=429, headers={header: value}, body=b"{}", media_type="application/json")
    with Loopback(busy, Canned(body=CHAT)) as server:
        reply_of(provider(server, waits=waits).send(ask()))
    assert waits == [wait]


@pytest.mark.parametrize("headers", [{"retry-after": "3600"}, {"x-should-retry": "false"}])
def test_a_provider_that_asks_for_no_retry_gets_none(headers: dict[str, str]) -> None:
    with Loopback(Canned(status=429, headers=headers, body=b"{}")) as server, pytest.raises(Unavailable):
        list(provider(server).send(ask()))
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 422])
def test_what_will_not_pass_is_asked_once(status: int) -> None:
    with Loopback(Canned(status=status, body=b'{"error":{"message":"no"}}')) as server:
        with pytest.raises(ProviderError, match="no") as caught:
            list(provider(server).send(ask()))
        assert not isinstance(caught.value, Unavailable | Overflow)
    assert len(server.asked) == 1


def test_an_overflow_carries_the_providers_words() -> None:
    said = b'{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8 maximum"}}'
    with (
        Loopback(Canned(status=400, body=said)) as server,
        pytest.raises(Overflow, match="prompt is too long: 9 tokens > 8 maximum"),
    ):
        list(provider(server, "compatible-anthropic").send(ask()))


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("compatible-anthropic", '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'),
        ("compatible", '{"error":{"message":"The server had an error","type":"server_error","code":500}}'),
        (
            "compatible-responses",
            '{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"x"}}}',
        ),
    ],
)
def test_an_error_inside_a_stream_is_tried_again_if_it_may_pass(name: str, event: str) -> None:
    with Loopback(Canned(body=sse(event)), Canned(body=STREAMS[name])) as server:
        assert reply_of(provider(server, name).send(ask())).blocks == (Text(text="hello"),)
    assert len(server.asked) == 2


def test_an_overflow_inside_a_stream_is_one() -> None:
    event = '{"type":"response.failed","response":{"error":{"code":"context_length_exceeded","message":"too long"}}}'
    with Loopback(Canned(body=sse(event))) as server, pytest.raises(Overflow):
        list(provider(server, "compatible-responses").send(ask()))


def test_an_error_with_status_200_is_an_error() -> None:
    said = Canned(media_type="application/json", body=b'{"error":{"message":"no such model","code":404}}')
    with Loopback(said) as server, pytest.raises(ProviderError, match="no such model"):
        list(provider(server).send(ask()))
    assert len(server.asked) == 1


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"choices":[]}', b"[" * 100_000])
def test_a_whole_answer_that_is_none_is_tried_again(body: bytes) -> None:
    with Loopback(Canned(media_type="application/json", body=body), Canned(body=CHAT)) as server:
        assert reply_of(provider(server).send(ask())).blocks == (Text(text="hello"),)


@pytest.mark.parametrize("name", NAMES)
def test_comments_pings_crlf_and_unknown_events_are_passed_over(name: str) -> None:
    noisy = STREAMS[name].replace(b"data: ", b": keep-alive\r\n\r\ndata: ").replace(b"\n\n", b"\r\n\r\n")
    noise = b'event: ping\r\ndata: {"type": "ping"}\r\n\r\ndata: {"type":"from.the.future","x":[1]}\r\n\r\n'
    with Loopback(Canned(body=noise + noisy)) as server:
        assert reply_of(provider(server, name).send(ask())).blocks == (Text(text="hello"),)


def test_half_a_character_in_a_stream_does_not_end_it() -> None:
    with Loopback(Canned(body=CHAT.replace(b'"lo"', b'"lo\\ud83d"'))) as server:
        assert reply_of(provider(server).send(ask())).blocks == (Text(text="hello?"),)


def test_closing_the_iterator_closes_the_connection() -> None:
    with Loopback(Canned(body=CHAT[:120], is_held=True)) as server:
        answer = provider(server).send(ask())
        assert isinstance(next(answer), Delta)
        answer.close()  # type: ignore[attr-defined]  # the port says Iterator; a generator is one
        assert server.left.wait(5)


def test_an_abandoned_answer_is_cancelled_too() -> None:
    with Loopback(Canned(body=CHAT[:120], is_held=True)) as server:
        answer = provider(server).send(ask())
        next(answer)
        del answer
        gc.collect()
        assert server.left.wait(5)


def test_a_server_that_is_not_there_is_named_with_its_address() -> None:
    with Loopback() as server:
        address = server.base_url
    absent = compose.provider("ollama", "m", base_url=address, env={}, patience=Patience(sleep=lambda _: None, tries=2))
    with pytest.raises(
        Unavailable, match=r"ollama at http://127\.0\.0\.1:\d+: no answer in 2 tries: ConnectError: Connection refused"
    ):
        list(absent.send(ask()))


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("anthropic", "ANTHROPIC_API_KEY"),
        ("openai", "OPENAI_API_KEY"),
        ("openai-chat", "OPENAI_API_KEY"),
        ("deepseek", "DEEPSEEK_API_KEY"),
        ("openrouter", "OPENROUTER_API_KEY"),
    ],
)
def test_a_missing_or_wrong_key_names_provider_and_variable_and_never_the_key(name: str, variable: str) -> None:
    with pytest.raises(ProviderError, match=f"{name}: no key; set the variable {variable}"):
        compose.provider(name, "m", env={})
    wrong = Canned(status=401, body=b'{"error":{"message":"Incorrect API key provided: sk-secret"}}')
    with Loopback(wrong) as server, pytest.raises(ProviderError) as caught:
        list(provider(server, name, env={variable: " sk-secret\n"}).send(ask()))
    assert str(caught.value).startswith(f"{name}: refused the key in {variable}")
    assert "sk-secret" not in str(caught.value)
    sent = {key.lower(): value for key, value in server.asked[0].headers.items()}
    assert sent.get("x-api-key", sent.get("authorization")) in {"sk-secret", "Bearer sk-secret"}


def test_a_key_that_cannot_be_one_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ProviderError, match="OPENAI_API_KEY"):
        compose.provider("openai", "m", env={"OPENAI_API_KEY": "sk-\u2026"})


def test_servers_of_ones_own_need_no_key() -> None:
    for name in ("ollama", "vllm", "llama.cpp"):
        compose.provider(name, "m", env={})


def test_a_wrong_name_or_address_is_said_with_what_there_is() -> None:
    with pytest.raises(BadInput, match="'claude' is no provider; name one of anthropic, openai"):
        compose.provider("claude", "m", env={})
    with pytest.raises(BadInput, match="compatible: give the server's base URL"):
        compose.provider("compatible", "m", env={})
    with pytest.raises(BadInput, match="starts with neither"):
        compose.provider("compatible", "m", base_url="localhost:8000", env={})


def test_the_base_url_is_what_was_given_else_the_variables_else_the_providers() -> None:
    with Loopback(Canned(body=ANTHROPIC)) as server:
        env = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.base_url + "/v1/"}
        reply_of(compose.provider("anthropic", "m", env=env).send(ask()))
        reply_of(
            compose.provider(
                "anthropic", "m", base_url=server.base_url, env=env | {"ANTHROPIC_BASE_URL": "http://x"}
            ).send(ask())
        )
    assert [asked.path for asked in server.asked] == ["/v1/messages", "/v1/messages"]


def test_request_parameters_are_added_to_every_request_and_never_replace_its_own() -> None:
    with Loopback(Canned(body=CHAT)) as server:
        given = compose.provider("compatible", "m", base_url=server.base_url, env={}, params='{"temperature": 1e-1}')
        reply_of(given.send(ask()))
    assert b'"temperature":1e-1' in server.asked[0].body
    for params, message in (("[1]", "no JSON object"), ('{"model":"x"}', "model is decided by the session")):
        with pytest.raises(BadInput, match=message):
            compose.provider("compatible", "m", base_url="http://x", env={}, params=params)


def test_a_call_streamed_in_the_ways_servers_have_is_read_as_one_call_each() -> None:
    def delta(call: str, finish: str = "null") -> str:
        return f'{{"id":"m","choices":[{{"index":0,"delta":{{"tool_calls":[{call}]}},"finish_reason":{finish}}}]}}'

    stream = sse(
        delta('{"index":0,"id":"a","type":"function","function":{"name":"read","arguments":""}}'),
        delta('{"index":0,"function":{"arguments":"{\\"p\\":"}}'),
        delta('{"index":0,"id":"a","function":{"name":"read","arguments":"1}"}}'),
        delta('{"index":0,"id":"b","type":"function","function":{"name":"ls","arguments":"{}"}}'),
        delta('{"id":"c","function":{"name":"cat","arguments":{"q": 1.0}}}'),
        delta('{"id":"","function":{"name":"pwd","arguments":null}}', '"tool_calls"'),
    )
    with Loopback(Canned(body=stream)) as server:
        found = reply_of(provider(server).send(ask()))
    calls = [(one.call_id, one.name, one.arguments) for one in found.blocks if isinstance(one, ToolCall)]
    assert calls == [
        ("a", "read", '{"p":1}'),
        ("b", "ls", "{}"),
        ("c", "cat", '{"q": 1.0}'),
        ("call_m_4", "pwd", ""),
    ]


def test_what_is_sent_is_one_json_object() -> None:
    with Loopback(Canned(body=CHAT)) as server:
        reply_of(provider(server).send(ask()))
    asked = json.loads(server.asked[0].body)
    assert asked["stream"] is True
