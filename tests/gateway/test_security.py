"""What the gateway lets in, where it sends it, and what it keeps."""

from __future__ import annotations

import json
import os
import re
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.peers import Asked, Peer, connected, message, received, sent
from yarl import URL

from transom import compose
from transom.core.event import Observed
from transom.errors import BadInput, UsageError
from transom.gateway.entrance import TurnedAway, entered
from transom.gateway.redaction import read_rules
from transom.gateway.serving import Plan, gateway
from transom.gateway.upstream import Upstream
from transom.testing.client import Client, Refused
from transom.testing.model_server import APIS, Call, ModelServer, Said

TOKEN = "a-token.of_27~letters-12345"
ASKED: dict[str, Any] = {"model": "m1", "max_tokens": 99, "messages": [{"role": "user", "content": "Go."}]}
ANSWER = {"id": "m", "type": "message", "role": "assistant", "model": "m1", "stop_reason": "end_turn"}
DONE = message(json.dumps({**ANSWER, "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}).encode())


def answers(one: socket.socket, _: Asked) -> None:
    one.sendall(DONE)


# -- who may come in


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org", ""])
def test_an_address_that_others_reach_needs_a_token(host: str, plan: Plan) -> None:
    with pytest.raises(UsageError, match="give --token"):
        gateway(Plan(store=plan.store, host=host))
    assert gateway(Plan(store=plan.store, host=host, token=TOKEN))


@pytest.mark.parametrize("token", ["a b", "a/b", "a%2Fb", "ä", "a?b", "a#"])
def test_a_token_that_cannot_stand_in_a_path_is_refused(token: str, plan: Plan) -> None:
    with pytest.raises(UsageError, match="--token takes letters"):
        gateway(Plan(store=plan.store, token=token))


def test_nothing_is_answered_without_the_token_but_whether_it_lives(serve: Callable[..., str]) -> None:
    with Peer(answers) as peer:
        url = serve(peer, token=TOKEN)
        pages = ("/v1/messages", "/v1/models", "/api/hello", "/transom/status", "/transom/metrics", "/transom/x", "/")
        for path in pages:
            for target in (path, f"/t{path}", f"/t/{TOKEN}x{path}", f"/t/{TOKEN[:-1]}{path}", f"//t/{TOKEN}{path}"):
                for shown in ({}, {"x_transom_token": TOKEN[:-1]}, {"x_transom_token": "\udcff\udcfe"}):
                    with connected(url) as client:
                        sent(client, target, ASKED if path.endswith("messages") else b"", **shown)
                        got = received(client)
                        assert got.status == 401, target
                        if path.endswith("messages"):
                            assert json.loads(got.body)["error"]["type"] == "authentication_error"
        assert not peer.asked
        assert httpx2.get(f"{url}/transom/health").status_code == 200
        assert httpx2.get(f"{url}/transom/ready").status_code == 200


def test_the_token_is_shown_in_a_header_or_the_path_and_goes_no_further(plan: Plan, serve: Callable[..., str]) -> None:
    with Peer(answers) as peer:
        url = serve(peer, token=TOKEN)
        for target, shown in ((f"/t/{TOKEN}/v1/messages", {}), ("/v1/messages", {"x_transom_token": TOKEN})):
            with connected(url) as client:
                sent(client, target, ASKED, **shown)
                assert received(client).status == 200
        assert httpx2.get(f"{url}/transom/status", headers={"x-transom-token": TOKEN}).status_code == 200
        assert httpx2.get(f"{url}/t/{TOKEN}/transom/metrics").status_code == 200
        assert [asked.target for asked in peer.asked] == ["/v1/messages"] * 2
        assert all(TOKEN.encode() not in asked.head + asked.body for asked in peer.asked)
    assert not holds(plan, TOKEN)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("127.0.0.1:4141", 200), ("localhost", 200), ("LOCALHOST:1", 200), ("[::1]:4141", 200), ("127.8.9.1", 200)),
        *(("evil.example", 403), ("evil.example:4141", 403), ("127.0.0.1.evil.example", 403), ("127.0.0.1@evil", 403)),
        *(("localhost.evil.example", 403), ("10.0.0.7", 403), ("0.0.0.0", 403), ("[::2]", 403)),
    ],
)
def test_without_a_token_only_this_machine_s_own_names_are_served(
    host: str, status: int, serve: Callable[..., str]
) -> None:
    """A page in a browser whose name was made to point here asks in that name."""
    with Peer(answers) as peer, connected(serve(peer)) as client:
        sent(client, "/v1/messages", ASKED, host=host)
        assert received(client).status == status
        assert len(peer.asked) == (status == 200)


# -- where it goes


@pytest.mark.parametrize(
    "target",
    [
        *("http://EVIL/v1/messages", "https://EVIL/", "http://127.0.0.1/v1/messages", "ftp://EVIL/x", "EVIL/x"),
        *("/../EVIL", "/v1/../../EVIL", "/v1/%2e%2e/%2E%2E/EVIL", "/v1/..%2fEVIL", "/v1/..%5cEVIL", "/.%2e/x"),
        *("/v1/messages/..", "/t/x/../y", "/t/x/..", "*", "@EVIL/", ":80/", "?x", "/v1/\xff"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "CONNECT", "OPTIONS"])
def test_a_target_that_is_no_path_or_climbs_out_of_one_goes_nowhere(
    target: str, method: str, serve: Callable[..., str]
) -> None:
    with Peer(answers) as evil, Peer(answers) as peer, connected(serve(peer)) as client:
        sent(client, target.replace("EVIL", evil.base_url.removeprefix("http://")), b"{}", method=method)
        assert 400 <= received(client).status < 500
        assert not peer.asked
        assert not evil.asked


@pytest.mark.parametrize("target", ["//EVIL/v1/models", "///EVIL", "/http://EVIL/", "/@EVIL/", "/x:y@EVIL/", "/;@EVIL"])
def test_a_path_that_looks_like_an_address_is_a_path_of_the_fixed_upstream(
    target: str, serve: Callable[..., str]
) -> None:
    with Peer(answers) as evil, Peer(answers) as peer, connected(serve(peer)) as client:
        path = target.replace("EVIL", evil.base_url.removeprefix("http://"))
        sent(client, path)
        assert received(client).status == 200
        assert [asked.target for asked in peer.asked] == ["/" + path.lstrip("/")]
        assert peer.asked[0].header("host") == peer.base_url.removeprefix("http://")
        assert not evil.asked


@given(st.text(st.characters(codec="utf-8", exclude_characters=" "), min_size=1))
def test_whatever_comes_in_stays_below_the_upstream(target: str) -> None:
    try:
        path = entered(target, {}, "")
    except TurnedAway:
        return
    assert path.startswith("/")
    assert ".." not in re.split(r"[/\\]", path.partition("?")[0])


def test_a_query_goes_up_as_it_came(serve: Callable[..., str]) -> None:
    with Peer(answers) as peer, connected(serve(peer)) as client:
        target = "/v1/models?a=%2F..%2F&b=%zz&c=a+b%20c&&d"
        sent(client, target)
        received(client)
        assert peer.asked[0].target == target


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("policy", ["rollover", "raw"])
def test_a_redirect_is_the_client_s_to_follow(status: int, policy: str, serve: Callable[..., str]) -> None:
    with Peer(answers) as evil:
        where = f"{evil.base_url}/v1/messages"
        with Peer(lambda one, _: one.sendall(message(b"", status, location=where))) as peer:
            with connected(serve(peer, policy)) as client:
                sent(client, "/v1/messages", ASKED, authorization="Bearer sk-hush")
                got = received(client)
            assert (got.status, got.header("location")) == (status, where)
        assert not evil.asked


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://user:pass@127.0.0.1", "holds a login"),
        ("http://token@127.0.0.1", "holds a login"),
        ("file:///etc/passwd", "no http or https URL"),
        ("127.0.0.1:80", "no http or https URL"),
        ("http://", "no http or https URL"),
        ("http://[", "no http or https URL"),
        ("http://127.0.0.1/?key=1", "a path may follow"),
        ("http://127.0.0.1/#x", "a path may follow"),
    ],
)
def test_an_upstream_is_an_address_and_a_path_alone(url: str, problem: str, plan: Plan) -> None:
    with pytest.raises(BadInput, match=problem) as told:
        gateway(Plan(store=plan.store, upstreams={"openai": url}))
    assert "pass@" not in str(told.value)


def test_the_path_of_an_upstream_stands_before_the_client_s(serve: Callable[..., str]) -> None:
    with Peer(answers) as peer:
        peer.base_url += "/proxy/anthropic/v1/"
        with connected(serve(peer)) as client:
            sent(client, "/v1/messages?beta=true", ASKED)
            assert received(client).status == 200
        assert peer.asked[0].target == "/proxy/anthropic/v1/messages?beta=true"


@pytest.mark.parametrize(
    ("path", "headers", "provider"),
    [
        ("/v1/messages/count_tokens", {}, "anthropic"),
        ("/v1/models", {"x-api-key": "k"}, "anthropic"),
        ("/v1/models", {"authorization": "Bearer k", "anthropic-version": "2023-06-01"}, "anthropic"),
        ("/api/oauth/profile", {"authorization": "Bearer k", "Anthropic-Beta": "oauth-2025-04-20"}, "anthropic"),
        ("/api/claude_cli/bootstrap", {"authorization": "Bearer sk-ant-oat01-k"}, "anthropic"),
        ("/v1/models", {"authorization": "Bearer sk-proj-k"}, "openai"),
        ("/v1/models", {"authorization": "k"}, "openai"),
        ("/v1/responses", {}, "openai"),
    ],
)
def test_a_login_at_one_provider_never_reaches_the_other(path: str, headers: dict[str, str], provider: str) -> None:
    upstream = Upstream({"anthropic": "https://anthropic.test", "openai": "https://openai.test"}, 1.0)
    assert upstream.url(path, headers) == URL(f"https://{provider}.test{path}")


# -- what a request may smuggle


@pytest.mark.parametrize(
    "headers",
    [
        b"content-length: 5\r\ncontent-length: 6\r\n",
        b"content-length: 5\r\ntransfer-encoding: chunked\r\n",
        b"transfer-encoding: chunked\r\ncontent-length: 5\r\n",
        b"transfer-encoding: chunked, identity\r\n",
        b"transfer-encoding: xchunked\r\n",
        b"transfer-encoding : chunked\r\n",
        b"content-length: -1\r\n",
        b"content-length: +5\r\n",
        b"content-length: 0x5\r\n",
        b"content-length: 5, 5\r\n",
        b"x: a\r\n b: folded\r\n",
        b"x\x00y: a\r\n",
        b"x: a\x00b\r\n",
        b": nameless\r\n",
        b"host: localhost\r\nhost: evil.example\r\n",
    ],
)
def test_a_request_of_two_meanings_is_refused(headers: bytes, serve: Callable[..., str]) -> None:
    with Peer(answers) as peer, connected(serve(peer)) as client:
        begun = b"POST /v1/models HTTP/1.1\r\n" + (b"" if b"host" in headers else b"host: localhost\r\n")
        client.sendall(begun + headers + b"\r\n0\r\n\r\nGET /v1/smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert received(client).status == 400
        assert not any("smuggled" in asked.target for asked in peer.asked)


def test_no_line_of_a_header_becomes_two(serve: Callable[..., str]) -> None:
    """What an error quotes of a request stands in `x-transom-status`."""
    model = 'm1"\r\nx-evil: 1\r\n\r\n<script>\x00\x7f字'
    with Peer(answers) as peer, connected(serve(peer, context_limit=0)) as client:
        sent(client, "/v1/messages", {**ASKED, "model": model})
        got = received(client)
        assert got.status == 200
        assert got.header("x-evil") is None
        assert got.header("x-transom-status").startswith("failed-open; UsageError")  # type: ignore[union-attr]
        assert got.head.isascii()
        sent(client, "/v1/messages", b'{"\r\nx-evil: 1\x00\xff' + model.encode())
        got = received(client)
        assert got.header("x-evil") is None
        assert got.header("x-transom-status").startswith("unread; BadInput")  # type: ignore[union-attr]


def test_headers_that_are_no_text_do_not_stop_a_request(serve: Callable[..., str]) -> None:
    odd = DONE.replace(b"\r\n\r\n", b"\r\nx-odd: \xff\xfe\r\n\r\n", 1)
    with Peer(lambda one, _: one.sendall(odd)) as peer, connected(serve(peer)) as client:
        for name in ("x_odd", "x_session_id", "user_agent"):
            sent(client, "/v1/messages", ASKED, **{name: "\udcff\udcfe字"})
            got = received(client)
            assert got.status == 200
            assert got.header("x-odd") is not None
        assert peer.asked[0].header("x-odd") is not None


def test_what_belongs_to_one_connection_is_not_passed_on(serve: Callable[..., str]) -> None:
    answer = DONE.replace(b"\r\n\r\n", b"\r\nconnection: x-mine\r\nx-mine: 1\r\nx-transom-status: forged\r\n\r\n", 1)
    with Peer(lambda one, _: one.sendall(answer)) as peer, connected(serve(peer)) as client:
        hop = {"connection": "keep-alive, X-Own", "x_own": "1", "te": "trailers", "proxy_authorization": "Basic x"}
        sent(client, "/v1/messages", ASKED, **hop, x_transom_session="forged", x_other="2")
        got = received(client)
        assert got.header("x-mine") is None
        assert got.header("x-transom-status") == "plain"
        for name in ("x-own", "te", "proxy-authorization", "x-transom-session"):
            assert peer.asked[0].header(name) is None
        assert peer.asked[0].header("x-other") == "2"


def test_nothing_is_added_to_what_a_client_sends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, serve: Callable[..., str]
) -> None:
    """No login of this machine, no cookie of another client, no header that the client left out."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password hush\nmachine 127.0.0.1 login me password hush\n", "utf-8")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    answer = DONE.replace(b"\r\n\r\n", b"\r\nset-cookie: of=one; Path=/\r\n\r\n", 1)
    for policy in ("rollover", "raw"):
        with Peer(lambda one, _: one.sendall(answer)) as peer:
            url = serve(peer, policy)
            for headers in ({}, {"authorization": "Bearer sk-1"}, {"x_api_key": "sk-2"}):
                with connected(url) as client:
                    sent(client, "/v1/messages", ASKED, **headers)
                    got = received(client)
                    assert got.status == 200
                    assert got.header("set-cookie") == "of=one; Path=/"
            for asked in peer.asked:
                names = re.findall(r"\r\n([^:]+):", asked.head.decode().lower())
                assert set(names) <= {"host", "content-length", "accept-encoding", "authorization", "x-api-key"}
            assert [one.header("authorization") for one in peer.asked] == [None, "Bearer sk-1", None]
            if policy == "raw":
                assert all(one.header("accept-encoding") is None for one in peer.asked)


# -- what is kept


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def holds(plan: Plan, text: str) -> bool:
    assert plan.store is not None
    return any(text.encode() in file.read_bytes() for file in files(plan.store))


@pytest.mark.parametrize("mask", [0o022, 0o000])
def test_what_is_stored_is_its_owner_s_alone_whenever_it_is_made(
    mask: int, plan: Plan, serve: Callable[..., str]
) -> None:
    """The log with its -wal and -shm, the search index in it, bodies, snapshots."""
    assert plan.store is not None
    turns: list[Said] = [[Call(name="read")], [Call(name="recall", arguments={"query": "word"})], ["Done."]]
    before = os.umask(mask)
    try:
        with ModelServer(lambda _: turns.pop(0)) as model:
            client = Client("anthropic", serve(model, context_limit=60_000), lambda *_: "words and more words " * 9_000)
            client.say("Go.")
            while client.step():
                pass
            found = files(plan.store)
            assert {"log.db", "log.db-wal", "log.db-shm"} <= {file.name for file in found}
            assert any("blobs" in file.parts for file in found)
            for file in found:
                assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
            assert stat.S_IMODE(plan.store.stat().st_mode) == 0o700
            assert stat.S_IMODE((plan.store / "blobs").stat().st_mode) == 0o700
    finally:
        assert os.umask(before) == mask, "the gateway changes how nobody else's files are made"


def test_a_log_that_others_could_read_is_closed_to_them(plan: Plan, serve: Callable[..., str]) -> None:
    assert plan.store is not None
    compose.store(plan.store).close()
    (plan.store / "log.db").chmod(0o644)
    with Peer(answers) as peer:
        serve(peer)
        assert stat.S_IMODE((plan.store / "log.db").stat().st_mode) == 0o600


@pytest.mark.parametrize("api", list(APIS))
def test_no_credential_is_stored_whatever_header_it_came_in(
    api: str, plan: Plan, serve: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    names = ("authorization", "x-api-key", "api-key", "cookie", "x-goog-api-key", "proxy-authorization", "x-session-id")
    secrets = {name: f"hush-{number}" for number, name in enumerate(names)}
    with ModelServer(lambda _: ["Done."]) as model:
        url = serve(model)
        for has_tools in (True, False):  # the second is kept beside
            client = Client(api, url, lambda *_: "", headers=secrets, has_tools=has_tools)
            client.say("Go.")
            client.step()
            model.faults.append((401, b'{"error": "no"}'))
            client.say("On.")
            with pytest.raises(Refused):
                client.step()
    for secret in secrets.values():
        assert not holds(plan, secret)
        assert secret not in caplog.text
        assert all(secret not in str(vars(record)) for record in caplog.records)


@pytest.mark.parametrize("how", ["governed", "side", "unread", "failed open", "raw"])
def test_a_named_secret_goes_nowhere_on_any_way_through(how: str, plan: Plan, serve: Callable[..., str]) -> None:
    secret = "AKIAABCDEFGHIJKLMNOP"
    changes: dict[str, Any] = {"redactor": read_rules("known")}
    if how == "failed open":
        changes["context_limit"] = 0
    with ModelServer(lambda _: ["Done."]) as model:
        url = serve(model, "raw" if how == "raw" else "rollover", **changes)
        headers = {"x-session-id": "s1"}
        client = Client("anthropic", url, lambda *_: "", headers=headers, has_tools=how != "side")
        client.say(f"My key is {secret}.")
        body = client.body()
        if how == "unread":
            body = body[:-1]
            model.faults.append((400, b'{"error": {"message": "no JSON"}}'))
        try:
            client.ask(body)
        except Refused:
            assert how == "unread"
        assert client.status[0].partition(";")[0] == {"raw": "relayed"}.get(how, how.replace(" ", "-"))
        assert b"[redacted aws-access-key]" in model.asked[0][2]
        assert secret.encode() not in model.asked[0][2]
    assert not holds(plan, secret)


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens?beta=true", "/v1/responses/compact", "/v1/embeddings"])
def test_a_named_secret_goes_nowhere_by_a_path_that_is_only_relayed(path: str, serve: Callable[..., str]) -> None:
    with Peer(answers) as peer, connected(serve(peer, redactor=read_rules("known"))) as client:
        sent(client, path, {**ASKED, "input": "My key is AKIAABCDEFGHIJKLMNOP."})
        assert received(client).status == 200
        sent(client, "/v1/files", b"\x89PNG \\u AKIAABCDEFGHIJKLMNOP")
        assert received(client).status == 200
        assert json.loads(peer.asked[0].body)["input"] == "My key is [redacted aws-access-key]."
        assert peer.asked[1].body == b"\x89PNG \\u AKIAABCDEFGHIJKLMNOP"


def test_a_key_that_upstream_quotes_is_not_stored(plan: Plan, serve: Callable[..., str]) -> None:
    key, secret = "sk-local-0123456789", "AKIAABCDEFGHIJKLMNOP"
    with ModelServer(lambda _: ["Done."]) as model:
        model.faults.append((401, json.dumps({"error": {"message": f"no such key: {key}; {secret}"}}).encode()))
        url = serve(model, redactor=read_rules("known"))
        client = Client("openai_chat", url, lambda *_: "", headers={"authorization": f"Bearer {key}"})
        client.say("Go.")
        with pytest.raises(Refused, match=key):
            client.step()
    assert not holds(plan, key)
    assert not holds(plan, secret)


def test_a_secret_in_a_tool_is_not_stored(plan: Plan, serve: Callable[..., str]) -> None:
    secret = "AKIAABCDEFGHIJKLMNOP"
    tool = {"name": "read", "description": f"With {secret}.", "input_schema": {"type": "object", "title": secret}}
    with Peer(answers) as peer, connected(serve(peer, redactor=read_rules("known"))) as client:
        sent(client, "/v1/messages", {**ASKED, "tools": [tool, {**tool, "name": "other", "strict": True}]})
        assert received(client).status == 200
    assert not holds(plan, secret)


# -- who sees whose


@pytest.mark.parametrize("api", list(APIS))
def test_a_client_that_begins_as_another_did_cannot_recall_what_the_other_did(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    """Both send no id and the same first words, so the second one's history is a fork of the first one's."""
    turns: list[Said] = [["What is it?"], ["Noted."]]
    with ModelServer(lambda _: turns.pop(0)) as model:
        url = serve(model)
        one = Client(api, url, lambda *_: "")
        for words in ("Go.", "The secret word is E4711."):
            one.say(words)
            one.step()
        with compose.store(plan.store) as kept:
            (first,) = (row.session_id for row in kept.log.sessions())
        turns += [
            [Call(name="recall", arguments={"query": "secret word"})],
            [Call(name="recall", arguments={"query": "the secret", "session_id": first})],
            ["I found nothing."],
        ]
        two = Client(api, url, lambda *_: "")
        two.say("Go.")
        two.step()
        assert len(model.asked) == 5
        assert all(b"E4711" not in body for _, _, body in model.asked[2:])
        assert "E4711" not in json.dumps(two.history)
    with compose.store(plan.store) as kept:
        assert sorted(row.kind for row in kept.log.sessions()) == ["fork", "root"]


@pytest.mark.parametrize("api", list(APIS))
def test_who_begins_as_another_did_begins_without_what_the_model_noted_then(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    noted = Call(name="note_failure", arguments={"attempt": "make", "outcome": "error 4711"})
    turns: list[Said] = [[noted], ["Done."], ["Done as well."]]
    with ModelServer(lambda _: turns.pop(0)) as model:
        url = serve(model)
        for _ in range(2):
            client = Client(api, url, lambda *_: "")
            client.say("Go.")
            client.step()
        assert b"4711" in model.asked[1][2]
        assert b"4711" not in model.asked[2][2]
    with compose.store(plan.store) as kept:
        assert sorted(row.kind for row in kept.log.sessions()) == ["fork", "root"]


def test_an_answer_without_words_belongs_to_nobody_who_only_began_alike(plan: Plan, serve: Callable[..., str]) -> None:
    def talk(one: socket.socket, asked: Asked) -> None:
        whose = "the one" if b"thought" not in asked.body else "the other"
        content = [{"type": "thinking", "thinking": f"a thought of {whose}", "signature": "s"}]
        usage = {"input_tokens": 1, "output_tokens": 1}
        one.sendall(message(json.dumps({**ANSWER, "content": content, "usage": usage}).encode()))

    go = {"role": "user", "content": "Go."}
    mine = {"role": "assistant", "content": [{"type": "thinking", "thinking": "a thought of my own", "signature": "t"}]}
    with Peer(talk) as peer:
        url = serve(peer)
        for messages in ([go], [go, mine, {"role": "user", "content": "Go on."}]):
            with connected(url) as client:
                sent(client, "/v1/messages", {**ASKED, "messages": messages})
                assert received(client).status == 200
        assert json.loads(peer.asked[1].body)["messages"] == [go, mine, {"role": "user", "content": "Go on."}]
    with compose.store(plan.store) as kept:
        rows = kept.log.sessions()
        said = {row.session_id: str(list(kept.log.read(row.session_id))) for row in rows}
    assert len(rows) == 2
    assert not any("the one" in text and "my own" in text for text in said.values())


def test_an_answer_that_another_was_given_is_not_continued_under_a_guess(plan: Plan, serve: Callable[..., str]) -> None:
    with ModelServer(lambda _: ["Done."]) as model:
        url = serve(model)
        client = Client("openai_responses", url, lambda *_: "")
        client.say("Go.")
        body = json.loads(client.body()) | {"previous_response_id": "resp_guessed"}
        client.ask(json.dumps(body).encode())
        assert client.status[0].startswith("failed-open; UsageError")
        assert json.loads(model.asked[0][2]) == body
    with compose.store(plan.store) as kept:
        events = [event.fact for row in kept.log.sessions() for event in kept.log.read(row.session_id)]
    assert not [fact for fact in events if isinstance(fact, Observed) and fact.kind == "client_request"]
