"""The edges of a request: who leaves in the middle, who reads slowly, what breaks, what is too large, and the end."""

from __future__ import annotations

import gzip
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.gateway.peers import Asked, Peer, connected, is_closed, message, received, sent, until

from transom import compose
from transom.core.event import Fact, ModelReplied, Observed, RequestFailed, ToolReturned, WindowOpened
from transom.gateway.face_anthropic import AnthropicFace
from transom.gateway.known import Known
from transom.gateway.redaction import read_rules
from transom.gateway.serving import Plan
from transom.testing.client import Client, Refused
from transom.testing.model_server import APIS, Call, ModelServer

PATH = "/v1/messages"
ASKED: dict[str, Any] = {"model": "m1", "max_tokens": 99, "messages": [{"role": "user", "content": "Go."}]}
USAGE = {"input_tokens": 9, "output_tokens": 1}
EVENTS: tuple[dict[str, Any], ...] = (
    {"type": "message_start", "message": {"id": "m", "role": "assistant", "content": [], "usage": USAGE}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Done."}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
    {"type": "message_stop"},
)
WHOLE = {"id": "m", "type": "message", "role": "assistant", "model": "m1", "stop_reason": "end_turn", "usage": USAGE}
OPENING = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def frame(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def streamed(one: socket.socket, *frames: bytes) -> None:
    one.sendall(OPENING + b"".join(map(chunk, frames)))


def answers(one: socket.socket, asked: Asked) -> None:
    """A model that is done."""
    if json.loads(asked.body).get("stream"):
        streamed(one, *map(frame, EVENTS), b"")
    else:
        one.sendall(message(json.dumps({**WHOLE, "content": [{"type": "text", "text": "Done."}]}).encode()))


def facts(plan: Plan, kind: type[Any]) -> list[Any]:
    with compose.store(plan.store) as kept:
        assert all(not one.problem for one in kept.log.verify())
        events = [event for row in kept.log.sessions() for event in kept.log.read(row.session_id)]
    found: list[Fact] = [event.fact for event in events if isinstance(event.fact, kind)]
    return found


def totals(url: str) -> dict[str, int]:
    found: dict[str, int] = httpx2.get(f"{url}/transom/status").json()["metrics"]
    return found


# -- how often it is asked, and where


@pytest.mark.parametrize(("stop", "asked"), [("max_tokens", 6), ("tool_use", 24)])
def test_a_model_that_calls_only_the_host_is_asked_so_often(
    stop: str, asked: int, plan: Plan, serve: Callable[..., str]
) -> None:
    def calls(one: socket.socket, _: Asked) -> None:
        call = {"type": "tool_use", "id": f"t{len(peer.asked)}", "name": "recall", "input": {"query": "words"}}
        one.sendall(message(json.dumps({**WHOLE, "content": [call], "stop_reason": stop}).encode()))

    tool = {"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}
    with Peer(calls) as peer, connected(url := serve(peer)) as client:
        sent(client, PATH, {**ASKED, "tools": [tool]})
        got = json.loads(received(client).body)
        assert len(peer.asked) == asked
    assert (got["content"], got["stop_reason"]) == ([], "max_tokens" if stop == "max_tokens" else got["stop_reason"])
    assert totals(url)["exhausted"] == 1
    assert len(facts(plan, ToolReturned)) == asked


def test_a_head_that_leaves_little_room_is_told_of_once(
    serve: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    tool = {"name": "read", "description": "Reads.", "input_schema": {"type": "object"}}
    with Peer(answers) as peer, connected(serve(peer)) as client:
        for words in (100, 4000, 4000):
            asked = {**ASKED, "system": "word " * words, "tools": [tool]}
            sent(client, PATH, asked, session_id=f"of-{words}")
            assert received(client).header("x-transom-status") == "plain"
    assert [one.getMessage() for one in caplog.records] == ["tight-limit"]


def test_a_line_of_the_log_says_what_to_do_and_is_bounded_whatever_a_model_is_called(
    serve: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    with Peer(answers) as peer, connected(serve(peer, context_limit=0)) as client:
        for name in ("nobody's", "x\n" * 50_000):
            sent(client, PATH, {**ASKED, "model": name})
            assert (received(client).header("x-transom-status") or "").startswith("failed-open")
    short, long = (one.fields["what"] for one in caplog.records)  # type: ignore[attr-defined]
    assert "is not known: start the gateway with --context-limit" in short
    assert len(long) < 1000
    assert "\n" not in long


@pytest.mark.parametrize(
    ("base", "path"),
    [
        ("", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/api/v1", "/api/v1/chat/completions"),
        ("/api/paas/v4", "/api/paas/v4/chat/completions"),
        ("/v1beta/openai/", "/v1beta/openai/chat/completions"),
    ],
)
def test_what_stands_for_the_version_in_an_upstream_takes_its_place(
    base: str, path: str, serve: Callable[..., str]
) -> None:
    with Peer(answers) as peer, connected(serve(peer, base=base)) as client:
        sent(client, "/v1/chat/completions", ASKED)
        assert received(client).status == 200
        sent(client, "//v1/chat/completions", ASKED)  # a base URL that ends with a slash
        assert received(client).header("x-transom-status") == "plain"
        assert [one.target for one in peer.asked] == [path, path]


# -- who leaves


@pytest.mark.parametrize("policy", ["rollover", "raw"])
@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_client_that_leaves_ends_the_request_upstream_at_once(
    policy: str, begun: bool, is_streamed: bool, plan: Plan, serve: Callable[..., str]
) -> None:
    left: list[float] = []

    def talk(one: socket.socket, _: Asked) -> None:
        if begun and is_streamed:
            streamed(one, *map(frame, EVENTS[:3]))
        elif begun:
            one.sendall(message(b'{"id"', length=1000))
        if is_closed(one, 10):
            left.append(time.monotonic())

    with Peer(talk) as peer:
        url = serve(peer, policy)
        with connected(url) as client:
            sent(client, PATH, {**ASKED, "stream": is_streamed})
            assert until(lambda: bool(peer.asked))
            if begun and (is_streamed or policy == "raw"):
                assert client.recv(1)
            time.sleep(0.1)
            gone = time.monotonic()
        assert until(lambda: bool(left))
        assert left[0] - gone < 2
        assert until(lambda: totals(url).get("left") == 1)
    failed = facts(plan, RequestFailed)
    assert [one.message for one in failed] == (["the client left"] if policy == "rollover" else [])


def test_a_request_that_was_left_and_is_made_again_is_the_same_step(plan: Plan, serve: Callable[..., str]) -> None:
    def talk(one: socket.socket, asked: Asked) -> None:
        if len(peer.asked) == 1:
            streamed(one, *map(frame, EVENTS[:3]))
            is_closed(one, 10)
        else:
            answers(one, asked)

    with Peer(talk) as peer:
        url = serve(peer)
        for _ in range(2):
            with connected(url) as client:
                sent(client, PATH, {**ASKED, "stream": True})
                if len(peer.asked) == 0:
                    client.recv(1)
                else:
                    assert received(client).is_whole
        first, second = peer.asked
        assert first.body == second.body
    with compose.store(plan.store) as kept:
        assert len(kept.log.sessions()) == 1


# -- who reads slowly


@pytest.mark.parametrize("policy", ["rollover", "raw"])
def test_a_client_that_does_not_read_holds_upstream_back_and_nobody_else(
    policy: str, serve: Callable[..., str]
) -> None:
    """What lies between the two ends is the sockets' own room; the kernel's is a few MB on each side."""
    delta = frame({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x" * 60_000}})
    written = [0]

    def talk(one: socket.socket, asked: Asked) -> None:
        if b"slowly" not in asked.body:
            return answers(one, asked)
        streamed(one, *map(frame, EVENTS[:2]))
        while written[0] < 200_000_000:
            one.sendall(chunk(delta))
            written[0] += len(delta)
        return None

    with Peer(talk) as peer:
        url = serve(peer, policy)
        with connected(url) as slow:
            said = [{"role": "user", "content": "Answer slowly."}]
            sent(slow, PATH, {**ASKED, "messages": said, "stream": True})
            assert until(lambda: written[0] > 0)
            before = -1
            while before != written[0]:  # until nothing moves any more
                before = written[0]
                time.sleep(1)
            assert before < 50_000_000
            with connected(url) as quick:
                started = time.monotonic()
                sent(quick, PATH, {**ASKED, "stream": True})
                assert received(quick).is_whole
                assert time.monotonic() - started < 3
            assert written[0] == before


def test_a_client_that_does_not_read_holds_up_no_other_with_the_same_words(serve: Callable[..., str]) -> None:
    def talk(one: socket.socket, asked: Asked) -> None:
        if len(peer.asked) == 1:
            streamed(one, *map(frame, EVENTS[:2]))
            is_closed(one, 20)
        else:
            answers(one, asked)

    with Peer(talk) as peer:
        url = serve(peer)
        with connected(url) as slow:
            sent(slow, PATH, {**ASKED, "stream": True})
            assert until(lambda: bool(peer.asked))
            with connected(url) as quick:
                sent(quick, PATH, {**ASKED, "stream": True})
                got = received(quick)
            assert got.is_whole
            assert got.header("x-transom-status") == "plain"


# -- what breaks


def breaks(how: str) -> Callable[[socket.socket, Asked], None]:
    def talk(one: socket.socket, asked: Asked) -> None:
        is_streamed = json.loads(asked.body).get("stream")
        match how:
            case "closed":
                pass
            case "no http":
                one.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            case "headers cut":
                one.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/ev")
            case "before the first event":
                one.sendall(OPENING if is_streamed else message(b"", length=100))
            case "in the middle":
                one.sendall(OPENING + b"".join(chunk(frame(one)) for one in EVENTS[:4]))
                if not is_streamed:
                    one.sendall(b"")
            case "before the end":
                one.sendall(OPENING + b"".join(chunk(frame(one)) for one in EVENTS[:4]) + chunk(b""))
        one.shutdown(socket.SHUT_RDWR)

    return talk


BROKEN = ["closed", "no http", "headers cut", "before the first event", "in the middle", "before the end"]


@pytest.mark.parametrize("policy", ["rollover", "raw"])
@pytest.mark.parametrize("how", BROKEN)
def test_a_stream_that_upstream_breaks_off_does_not_end_well(
    how: str, policy: str, plan: Plan, serve: Callable[..., str]
) -> None:
    with Peer(breaks(how)) as peer:
        url = serve(peer, policy)
        with connected(url) as client:
            sent(client, PATH, {**ASKED, "stream": True})
            got = received(client)
        if how in BROKEN[:3]:
            assert got.status == 502
            assert got.is_whole
            assert json.loads(got.body)["error"]["message"]
        elif policy == "raw" and how == "before the end":
            assert got.is_whole  # it is not ours to read
        else:
            assert got.status == 200
            assert not got.is_whole
            assert b"HTTP/1.1" not in got.body
            assert (b"event: error" in got.body) == (policy == "rollover")
        assert httpx2.get(f"{url}/transom/health").json() == {"status": "ok"}
    if policy == "rollover":
        assert [one.kind for one in facts(plan, RequestFailed)] == ["unavailable"]


@pytest.mark.parametrize("how", BROKEN[:5])
def test_a_whole_answer_that_upstream_breaks_off_is_an_error(how: str, serve: Callable[..., str]) -> None:
    with Peer(breaks(how)) as peer, connected(serve(peer)) as client:
        sent(client, PATH, ASKED)
        got = received(client)
        assert got.status == 502
        assert json.loads(got.body)["error"]["message"]


@pytest.mark.parametrize(
    ("data", "media"),
    [
        (b"<html>Log in to the network</html>", "text/html"),
        (b'{"error": {"type": "overloaded_error", "message": "busy"}}', "application/json"),
        (b"[1, 2]", "application/json"),
        (b"", "application/json"),
    ],
)
@pytest.mark.parametrize("is_streamed", [True, False])
def test_an_answer_that_is_none_passes_as_it_is(
    data: bytes, media: str, is_streamed: bool, serve: Callable[..., str]
) -> None:
    """A router of a hotel, a proxy that says 200 to everything: the client is told what upstream said."""
    with Peer(lambda one, _: one.sendall(message(data, content_type=media))) as peer, connected(serve(peer)) as client:
        sent(client, PATH, {**ASKED, "stream": is_streamed})
        got = received(client)
        assert (got.status, got.body, got.header("content-type")) == (200, data, media)


def test_a_stream_that_is_answered_in_one_piece_is_governed_all_the_same(plan: Plan, serve: Callable[..., str]) -> None:
    """Some proxies do not stream whatever is asked of them; the host's calls are not for the client there either."""
    call = {"type": "tool_use", "id": "call_1", "name": "todo", "input": {"todos": []}}
    hosted = {**WHOLE, "stop_reason": "tool_use", "content": [call]}
    said = {**WHOLE, "content": [{"type": "text", "text": "Done."}]}

    def answer(one: socket.socket, _: Asked) -> None:
        one.sendall(message(json.dumps(hosted if len(peer.asked) == 1 else said).encode()))

    with Peer(answer) as peer, connected(serve(peer)) as client:
        sent(client, PATH, {**ASKED, "tools": [{"name": "read", "input_schema": {}}], "stream": True})
        got = received(client)
    assert len(peer.asked) == 2
    assert got.header("content-type") == "application/json"
    assert json.loads(got.body)["content"] == said["content"]
    assert b"tool_use" not in got.body
    assert len(facts(plan, ModelReplied)) == 2


@pytest.mark.parametrize("policy", ["rollover", "raw"])
def test_an_upstream_that_falls_silent_is_given_up(policy: str, plan: Plan, serve: Callable[..., str]) -> None:
    def talk(one: socket.socket, _: Asked) -> None:
        streamed(one, *map(frame, EVENTS[:3]))
        is_closed(one, 20)

    with Peer(talk) as peer, connected(serve(peer, policy, silence=0.5)) as client:
        started = time.monotonic()
        sent(client, PATH, {**ASKED, "stream": True})
        assert not received(client).is_whole
        assert time.monotonic() - started < 5


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 422, 429, 500, 502, 503, 504, 529])
@pytest.mark.parametrize("is_streamed", [True, False])
def test_an_error_of_upstream_passes_with_its_headers(
    status: int, is_streamed: bool, serve: Callable[..., str]
) -> None:
    body = b'{"type":"error","error":{"type":"x","message":"told"}}'
    answer = message(body, status, request_id="req_1", x_should_retry="true", retry_after="7")
    with Peer(lambda one, _: one.sendall(answer)) as peer:
        with connected(serve(peer)) as client:
            sent(client, PATH, {**ASKED, "stream": is_streamed})
            got = received(client)
        assert (got.status, got.body) == (status, body)
        assert [got.header(name) for name in ("request-id", "x-should-retry", "retry-after")] == ["req_1", "true", "7"]
        assert len(peer.asked) == 1


@pytest.mark.parametrize("api", list(APIS))
def test_an_overflow_is_asked_again_once_and_then_told(api: str, plan: Plan, serve: Callable[..., str]) -> None:
    with ModelServer(lambda _: ["Done."], window=1) as model:
        client = Client(api, serve(model, context_limit=100_000), lambda *_: "")
        for number in range(6):
            client.history.append({"role": "user" if number % 2 == 0 else "assistant", "content": f"Word {number}."})
        client.say("Go.")
        with pytest.raises(Refused) as refused:
            client.step()
        assert refused.value.status == 400
        assert "1" in refused.value.body
        assert len(model.asked) == 2
    assert [one.kind for one in facts(plan, RequestFailed)] == ["overflow", "overflow"]
    assert [one.cause for one in facts(plan, WindowOpened)] == ["overflow"]


def test_a_log_that_is_damaged_does_not_stop_a_client(plan: Plan, serve: Callable[..., str]) -> None:
    with ModelServer(lambda _: ["Done."]) as model:
        url = serve(model)
        assert plan.store is not None
        client = Client("anthropic", url, lambda *_: "")
        client.say("Go.")
        for file in plan.store.glob("log.db*"):
            file.write_bytes(b"no log any more" * 1000)
        assert not client.step()
        assert client.status[0].startswith(("failed-open; ", "plain"))
        assert httpx2.get(f"{url}/transom/health").status_code == 200


def test_a_full_disk_stops_no_client_and_harms_no_log(plan: Plan, command: Callable[..., Command]) -> None:
    with ModelServer(lambda _: [Call(name="read")]) as model:
        running = command(model.base_url, "--context-limit", "900k")
        resource.prlimit(running.process.pid, resource.RLIMIT_FSIZE, (400_000, 400_000))
        client = Client("anthropic", running.url, lambda *_: "words " * 5_000)
        client.say("Go.")
        for _ in range(9):
            body = client.body()
            assert client.step()
        assert client.status[0] == "plain"
        assert client.status[-1].startswith("failed-open; Unwritable")
        assert model.asked[-1][2] == body
        running.process.send_signal(signal.SIGTERM)
        assert running.ended() == 0
    assert facts(plan, Observed)


# -- odd requests


def test_a_body_over_the_limit_is_refused_in_the_api_s_own_shape(serve: Callable[..., str]) -> None:
    with ModelServer(lambda _: ["Done."]) as model:
        url = serve(model, max_body=100_000)
        for path in APIS.values():
            with connected(url) as client:
                sent(client, path, b"x" * 100_001)
                got = received(client)
                assert got.status == 413
                assert "100,000 bytes" in json.loads(got.body)["error"]["message"]
        with connected(url) as client:  # one that does not say how long it is
            client.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
            client.sendall(chunk(b"x" * 60_000) * 2)
            assert received(client).status == 413
        with connected(url) as client:  # one that asks first
            sent(client, PATH, b"", method="POST", content_length="100001", expect="100-continue")
            assert received(client, has_body=False).status in (100, 413)
        assert not model.asked


@pytest.mark.parametrize("api", ["anthropic", *(pytest.param(api, marks=pytest.mark.slow) for api in list(APIS)[1:])])
def test_twenty_megabytes_are_governed_and_hold_up_nobody_for_long(api: str, serve: Callable[..., str]) -> None:
    with ModelServer(lambda _: ["Done."]) as model:
        url = serve(model, context_limit=50_000_000)
        large, small = Client(api, url, lambda *_: ""), Client(api, url, lambda *_: "")
        large.say("Read this: " + "words and words and 字 " * 900_000)
        small.say("Go.")
        slow = threading.Thread(target=large.step)
        slow.start()
        started = time.monotonic()
        small.step()
        assert time.monotonic() - started < 20
        slow.join(60)
        assert large.status == small.status == ["plain"]
        assert max(len(body) for _, _, body in model.asked) > 20_000_000


@pytest.mark.parametrize("api", list(APIS))
def test_lone_surrogates_and_odd_numbers_go_up_as_they_came(api: str, plan: Plan, serve: Callable[..., str]) -> None:
    odd = (r"half an emoji \ud83d", r"\u0000", "1e400", "123456789012345678901234567890", "-0.0", "1.0")
    with ModelServer(lambda _: ["Done."]) as model:
        client = Client(api, serve(model), lambda *_: "")
        client.say("WORDS")
        client.history[0]["extra"] = "ODD"
        body = client.body().replace(b"WORDS", odd[0].encode() + odd[1].encode())
        body = body.replace(b'"ODD"', ("[" + ",".join(odd[2:]) + "]").encode())
        client.ask(body)
        got = model.asked[0][2]
    assert odd[0].encode() in got
    assert all(one.encode() in got for one in odd[2:])
    known = Known(AnthropicFace())
    with compose.store(plan.store) as kept:
        (session,) = kept.log.sessions()
        for event in kept.log.read(session.session_id):
            known.remember(event)
    assert all(one.encode() in known.raws[0] for one in odd)


def test_a_compressed_body_goes_up_as_it_came(serve: Callable[..., str]) -> None:
    packed = gzip.compress(json.dumps(ASKED).encode(), mtime=0)
    with Peer(lambda one, _: one.sendall(message(b"{}"))) as peer, connected(serve(peer)) as client:
        sent(client, PATH, packed, content_encoding="gzip")
        got = received(client)
        assert got.header(
            "x-transom-status",
        ).startswith("unread; ")  # type: ignore[union-attr]
        assert peer.asked[0].body == packed
        assert peer.asked[0].header("content-encoding") == "gzip"


@pytest.mark.parametrize("is_streamed", [True, False])
def test_an_answer_that_comes_compressed_unasked_is_read_and_passed_on(
    is_streamed: bool, serve: Callable[..., str]
) -> None:
    said = b"".join(map(frame, EVENTS)) if is_streamed else json.dumps({**WHOLE, "content": []}).encode()
    packed = gzip.compress(said)
    media = b"text/event-stream" if is_streamed else b"application/json"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n"
    packed = head % (media, len(packed)) + packed
    with Peer(lambda one, _: one.sendall(packed)) as peer, connected(serve(peer)) as client:
        sent(client, PATH, {**ASKED, "stream": is_streamed})
        got = received(client)
    assert got.header("content-encoding") in (None, "")
    assert got.body == said


@pytest.mark.parametrize("policy", ["rollover", "raw"])
def test_a_compressed_body_in_which_no_secret_can_be_found_goes_nowhere(policy: str, serve: Callable[..., str]) -> None:
    packed = gzip.compress(json.dumps(ASKED).encode())
    with Peer(lambda one, _: one.sendall(message(b"{}"))) as peer:
        with connected(serve(peer, policy, redactor=read_rules("known"))) as client:
            sent(client, PATH, packed, content_encoding="gzip")
            got = received(client)
        assert got.status == 415
        assert json.loads(got.body)["type"] == "error"
        assert not peer.asked


@pytest.mark.parametrize(
    ("method", "target", "answer", "status"),
    [
        ("HEAD", "/v1/models", b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", 200),
        ("DELETE", "/v1/responses/r1", b"HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("GET", "/v1/models?limit=1&after=%2F", b"HTTP/1.1 304 Not Modified\r\netag: x\r\n\r\n", 304),
        ("OPTIONS", "/v1/messages", b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200),
        ("PUT", "/v1/files/f1", b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n", 201),
        ("GET", "/v1/messages", b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n", 405),
    ],
)
def test_other_methods_pass_untouched(
    method: str, target: str, answer: bytes, status: int, serve: Callable[..., str]
) -> None:
    with Peer(lambda one, _: one.sendall(answer)) as peer, connected(serve(peer)) as client:
        for _ in range(2):  # the connection is still good after it
            sent(client, target, b"", method=method)
            assert received(client, has_body=method != "HEAD").status == status
        assert peer.asked[0].head.startswith(f"{method} {target} ".encode())


def test_a_probe_is_answered_here_and_a_websocket_is_sent_away(serve: Callable[..., str]) -> None:
    with Peer(answers) as peer:
        url = serve(peer)
        with connected(url) as client:
            sent(client, "/api/hello", b"", method="HEAD")
            assert received(client, has_body=False).status == 200
        with connected(url) as client:
            key = {"sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==", "sec_websocket_version": "13"}
            sent(client, "/v1/responses", b"", connection="Upgrade", upgrade="websocket", **key)
            assert received(client).status == 426
        assert not peer.asked


def test_a_history_that_was_long_idle_goes_on_from_the_log(plan: Plan, serve: Callable[..., str]) -> None:
    """There is room for 64 of them in memory."""
    with ModelServer(lambda _: ["Done."]) as model:
        url = serve(model)
        everyone = [
            Client(api, url, lambda *_: "", headers={"session-id": f"s{number}"})
            for number, api in enumerate([*APIS] * 23)
        ]
        for client in [*everyone, *everyone[:3]]:
            client.say("Go.")
            client.step()
        assert len(httpx2.get(f"{url}/transom/status").json()["sessions"]) == 64
    with compose.store(plan.store) as kept:
        assert [row.kind for row in kept.log.sessions()] == ["root"] * 69


# -- what it says of itself


SAMPLE = re.compile(r'[a-z_]+(\{[a-z_]+="[^"\\\n]*"(,[a-z_]+="[^"\\\n]*")*\})? \d+')


def test_what_it_counts_is_what_prometheus_reads(serve: Callable[..., str]) -> None:
    with ModelServer(lambda _: ["Done."]) as model:
        url = serve(model)
        fresh = [line for line in httpx2.get(f"{url}/transom/metrics").text.splitlines() if not line.startswith("#")]
        assert "transom_unkept_total 0" in fresh
        assert all(line.endswith(" 0") for line in fresh)
        client = Client("anthropic", url, lambda *_: "")
        client.say("Go.")
        client.step()
        model.faults.append((529, b"{}"))
        client.say("Go on.")
        with pytest.raises(Refused):
            client.step()
        got = httpx2.get(f"{url}/transom/metrics")
        assert got.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert got.text.endswith("\n")
        seen: list[str] = []
        for line in got.text.splitlines():
            if line.startswith("#"):
                kind, name = line.split(" ")[1:3]
                assert name.startswith("transom_")
                assert name.endswith("_total")
                if kind == "HELP":
                    assert name not in seen
                    seen.append(name)
                else:
                    assert line == f"# TYPE {name} counter"
            else:
                assert SAMPLE.fullmatch(line), line
                assert line.startswith(seen[-1])
        assert 'transom_requests_total{status="plain"} 2' in got.text
        assert 'transom_upstream_errors_total{kind="unavailable"} 1' in got.text


def test_it_is_ready_when_its_store_is_open(serve: Callable[..., str]) -> None:
    with ModelServer(lambda _: ["Done."]) as model:
        url = serve(model)
        assert httpx2.get(f"{url}/transom/ready").json() == {"ready": True}
        assert httpx2.get(f"{url}/transom/health").json() == {"status": "ok"}
        assert httpx2.get(f"{url}/transom/nothing").status_code == 404
        assert not model.asked


# -- the end


class Command:
    """`transom gateway` as a process."""

    def __init__(self, upstream: str, store: Path, *more: str, **env: str) -> None:
        command = [sys.executable, "-m", "transom", "gateway", "--port", "0", "--store", str(store)]
        command += ["--upstream", f"anthropic={upstream}", "--upstream", f"openai={upstream}", *more]
        limit = () if "--context-limit" in more else ("--context-limit", "8000")
        self.process = subprocess.Popen(
            [*command, *limit], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **env}
        )
        assert self.process.stderr is not None
        self.lines: list[str] = []
        self._reads = threading.Thread(target=self._read, daemon=True)
        self._reads.start()
        assert until(lambda: any(" -> " in line for line in self.lines), 60), self.lines
        self.url = next(line for line in self.lines if " -> " in line).split(" ")[1]

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.lines.extend(iter(self.process.stderr.readline, ""))

    def ended(self) -> int:
        code = self.process.wait(90)
        self._reads.join(10)
        return code


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def start(upstream: str, *more: str, **env: str) -> Command:
        started.append(Command(upstream, tmp_path / "store", *more, **env))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.ended()
        for pipe in (one.process.stderr, one.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_the_requests_under_way_have(number: int, plan: Plan, command: Callable[..., Command]) -> None:
    told = threading.Event()

    def talk(one: socket.socket, _: Asked) -> None:
        streamed(one, *map(frame, EVENTS[:3]))
        told.wait(20)
        one.sendall(b"".join(chunk(frame(event)) for event in EVENTS[3:]) + chunk(b""))

    with Peer(talk) as peer:
        running = command(peer.base_url)
        with connected(running.url) as client, connected(running.url) as idle:
            sent(idle, "/transom/health")
            assert received(idle).status == 200
            sent(client, PATH, {**ASKED, "stream": True})
            assert until(lambda: bool(peer.asked))
            running.process.send_signal(number)
            assert is_closed(idle, 10)
            with pytest.raises(OSError), connected(running.url):
                pass
            assert not select.select([], [], [], 0.3)[0]
            assert running.process.poll() is None
            told.set()
            got = received(client)
        assert got.is_whole
        assert b"message_stop" in got.body
        assert running.ended() == 0
    answered = [one for one in facts(plan, Observed) if one.kind == "client_answer"]
    assert len(answered) == 1


def test_a_second_signal_ends_it_now_and_the_log_is_whole(plan: Plan, command: Callable[..., Command]) -> None:
    def talk(one: socket.socket, _: Asked) -> None:
        streamed(one, *map(frame, EVENTS[:3]))
        is_closed(one, 30)

    with Peer(talk) as peer:
        running = command(peer.base_url)
        with connected(running.url) as client:
            sent(client, PATH, {**ASKED, "stream": True})
            assert until(lambda: bool(peer.asked))
            running.process.send_signal(signal.SIGTERM)
            assert until(lambda: any("once more" in line for line in running.lines))
            running.process.send_signal(signal.SIGTERM)
            assert running.ended() == -signal.SIGTERM
    assert len(facts(plan, Observed)) == 1


def test_its_lines_are_json_and_hold_nothing_that_was_said(command: Callable[..., Command]) -> None:
    secret = "CANARY-4711"

    def talk(one: socket.socket, asked: Asked) -> None:
        match len(peer.asked):
            case 1:
                answers(one, asked)
            case 2:
                one.sendall(message(json.dumps({"error": {"message": secret}}).encode(), 400))
            case 3:
                one.sendall(message(f"<html>{secret}".encode()))
            case _:
                streamed(one, *map(frame, EVENTS[:3]))
                one.shutdown(socket.SHUT_RDWR)

    with Peer(talk) as peer:
        running = command(peer.base_url, "--log", "json")
        bodies: list[bytes] = [json.dumps({**ASKED, "metadata": {"x": secret}, "model": secret}).encode()] * 3
        bodies += [f'{{"model": "{secret}", broken'.encode(), json.dumps({**ASKED, "stream": True}).encode()]
        for body in bodies:
            with connected(running.url) as client:
                sent(client, f"{PATH}?key={secret}", body, authorization=f"Bearer {secret}", x_api_key=secret)
                received(client)
        with connected(running.url) as client:
            sent(client, f"http://{secret}.example/", b"")
            received(client)
        running.process.send_signal(signal.SIGTERM)
        running.ended()
    lines = [json.loads(line) for line in running.lines if not line.startswith("gateway: ")]
    assert secret not in "".join(running.lines)
    requests = [line for line in lines if line["event"] == "request"]
    assert [line["status"] for line in requests] == [200, 400, 200, 200, 200, 400]
    assert all(line.keys() >= {"at", "level", "method", "path", "outcome", "ms", "session"} for line in requests)
    assert {line["path"] for line in requests} == {PATH, ""}


@pytest.mark.parametrize("style", ["text", "json"])
def test_an_upstream_that_cannot_be_reached_is_a_line_of_the_log(command: Callable[..., Command], style: str) -> None:
    running = command("http://127.0.0.1:9", "--log", style)
    for path in (PATH, "/v1/models"):
        with connected(running.url) as client:
            sent(client, path, json.dumps(ASKED).encode())
            assert received(client).status == 502
    running.process.send_signal(signal.SIGTERM)
    running.ended()
    said = "\n".join(running.lines)
    assert said.count("upstream-unreachable") == 2
    if style == "json":
        lines = [json.loads(line) for line in running.lines if not line.startswith("gateway: ")]
        assert [line["status"] for line in lines if line["event"] == "request"] == [502, 502]


def test_a_token_may_stand_where_no_list_of_processes_shows_it(command: Callable[..., Command]) -> None:
    with Peer(answers) as peer:
        running = command(peer.base_url, "--host", "0.0.0.0", TRANSOM_GATEWAY_TOKEN="hush-27")
        port = running.url.rpartition(":")[2]
        url = f"http://127.0.0.1:{port}"
        assert httpx2.get(f"{url}/transom/status").status_code == 401
        assert httpx2.get(f"{url}/t/hush-27/transom/status").status_code == 200
        with connected(url) as client:
            sent(client, f"/t/hush-27{PATH}", ASKED, host="a-name-of-this-machine")
            assert received(client).status == 200
        running.process.send_signal(signal.SIGTERM)
        assert running.ended() == 0
        assert "hush-27" not in "".join(running.lines)


def test_a_client_behind_a_gateway_of_its_own_makes_its_files_as_ever(tmp_path: Path) -> None:
    client = tmp_path / "claude"
    client.write_text(f'#!/bin/sh\necho "$ANTHROPIC_BASE_URL" > {tmp_path}/told\nexit 3\n', "utf-8")
    client.chmod(0o755)
    command = [sys.executable, "-m", "transom", "gateway", "run", "--store", str(tmp_path / "store"), "--"]
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [*command, "claude"],
        env={**os.environ, "PATH": path},
        umask=0o022,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3
    told = tmp_path / "told"
    assert told.read_text("utf-8").startswith("http://127.0.0.1:")
    assert told.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [("#!/bin/sh\nkill -9 $$\n", 137, ""), ("\x7fELF is none", 2, "claude: cannot be started: Exec format error")],
)
def test_a_client_that_is_killed_or_never_starts_ends_as_in_a_shell(
    program: str, code: int, said: str, tmp_path: Path
) -> None:
    client = tmp_path / "claude"
    client.write_text(program, "utf-8")
    client.chmod(0o755)
    command = [sys.executable, "-m", "transom", "gateway", "run", "--store", str(tmp_path / "store"), "--", str(client)]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False, text=True)
    assert done.returncode == code
    assert said in done.stderr
    assert "should not happen" not in done.stderr
