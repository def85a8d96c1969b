"""Histories that come with answers in them: from before the gateway, and of a client that moves what it has said; and
those that were given up for want of room; and answers that the log could not take."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable
from itertools import count
from typing import Any

import httpx2
import pytest

from transom import compose
from transom.core.event import ModelReplied, WindowOpened
from transom.gateway import held
from transom.gateway.serving import Plan
from transom.testing.client import Client
from transom.testing.model_server import APIS, Call, ModelServer, Said, words_of

PAGE = "a line of the file that was asked for, with some words in it\n" * 60


@pytest.mark.parametrize("api", list(APIS))
def test_a_long_history_that_comes_whole_gets_a_window_of_what_is_new_in_it(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    done = [0]

    def decide(asked: dict[str, Any]) -> Said:
        return [f"Page {done[0]}.", Call(name="read", arguments={"path": f"f{done[0]}"})]

    def run(name: str, arguments: dict[str, Any]) -> str:
        done[0] += 1
        return f"page {done[0]} of it\n{PAGE}"

    with ModelServer(decide) as alone:
        client = Client(api, alone.base_url, run)
        client.say("Read it all. You must never touch README.")
        for _ in range(60):
            assert client.step()
    with ModelServer(decide, window=8_000) as model:
        client.base_url, client.status = serve(model), []
        for _ in range(3):
            assert client.step()
        bodies = model.bodies
    assert set(client.status) == {"governed"}
    assert "page 60 of it" in words_of(bodies[0])
    assert "You must never touch README." in words_of(bodies[0])
    assert "page 3 of it" not in words_of(bodies[0])
    with compose.store(plan.store) as kept:
        (session,) = kept.log.sessions()
        causes = [one.fact.cause for one in kept.log.read(session.session_id) if isinstance(one.fact, WindowOpened)]
    assert causes == ["hard-limit"]


@pytest.mark.parametrize("api", list(APIS))
def test_a_client_that_shows_its_files_anew_in_each_request_has_them_in_each_window(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    """As aider does: behind what was said stand the files as they are now, then the user's words."""
    words = "a word and another one " * 40
    done: list[dict[str, str]] = []
    with ModelServer(lambda _: [f"Done. {words}"], window=8_000) as model:
        client = Client(api, serve(model), lambda *_: "", has_tools=False)
        for number in range(40):
            asked = {"role": "user", "content": f"Close item {number}. {words}"}
            files = {"role": "user", "content": f"The files are: version {number} of list.txt"}
            client.history = [*done, files, {"role": "assistant", "content": "I see them."}, asked]
            assert not client.step()
            done += [asked, {"role": "assistant", "content": f"Done. {words}"}]
        bodies = model.bodies
    assert set(client.status) == {"plain", "governed"}
    assert len(bodies) == 40
    for number, body in enumerate(bodies):
        assert f"version {number} of list.txt" in words_of(body)
        assert f"Close item {number}." in words_of(body)
    with compose.store(plan.store) as kept:
        assert all(not one.problem for one in kept.log.verify())
        facts = [event.fact for row in kept.log.sessions() for event in kept.log.read(row.session_id)]
    assert sum(isinstance(fact, WindowOpened) for fact in facts) >= 3


@pytest.mark.parametrize("api", list(APIS))
def test_the_longest_idle_history_makes_room_and_is_known_again_when_it_goes_on(
    api: str, plan: Plan, serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "_HELD_BYTES", 100_000)
    with ModelServer(lambda _: [Call(name="read", arguments={"path": "f"})]) as model:
        url = serve(model, context_limit=400_000)
        clients = [Client(api, url, lambda *_: PAGE * 20, headers={"session-id": str(number)}) for number in range(3)]
        for client in clients:
            client.say("Read it all.")
            assert client.step()
            assert client.step()  # with a result of 73 kB
        sessions = httpx2.get(f"{url}/transom/status").json()["sessions"]
        assert len(sessions) < len(clients)
        assert all(client.step() for client in clients)
    with compose.store(plan.store) as kept:
        assert len(kept.log.sessions()) == len(clients)


@pytest.mark.parametrize("api", list(APIS))
def test_an_answer_that_could_not_be_kept_is_read_from_the_request_behind_it(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    asked = count(1)

    def decide(_: dict[str, Any]) -> Said:
        number = next(asked)
        if number == 2:  # from here on no file of this process grows
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
        return [f"This is step {number}.", Call(name="read", arguments={"path": f"f{number}"})]

    with ModelServer(decide) as model:
        client = Client(api, serve(model), lambda *_: "a page")
        client.say("Go.")
        client.step()
        try:
            client.step()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        client.step()
    with compose.store(plan.store) as kept:
        (row,) = kept.log.sessions()
        facts = [event.fact for event in kept.log.read(row.session_id)]
    said = [repr(fact.blocks) for fact in facts if isinstance(fact, ModelReplied)]
    assert [re.findall(r"step \d", one) for one in said] == [["step 1"], ["step 2"], ["step 3"]]


LEFT: dict[str, Any] = {"type": "compaction", "id": "cmp_1", "encrypted_content": "what was before"}
FIRST: dict[str, Any] = {"role": "user", "content": "Read it all."}


@pytest.mark.parametrize("left", [[LEFT], [FIRST, LEFT], [LEFT, FIRST], [FIRST, LEFT, FIRST]])
def test_what_the_provider_left_of_a_history_that_it_compacted_stands_in_every_window(
    left: list[dict[str, Any]], plan: Plan, serve: Callable[..., str]
) -> None:
    with ModelServer(lambda _: [Call(name="read", arguments={"path": "f"})], window=8_000) as model:
        client = Client("openai_responses", serve(model), lambda *_: PAGE)
        client.history = list(left)
        for _ in range(16):
            assert client.step()
        bodies = model.bodies
    begun = left[: left.index(LEFT) + 1]
    assert all(body["input"][: len(begun)] == begun for body in bodies)
    with compose.store(plan.store) as kept:
        assert all(not one.problem for one in kept.log.verify())
        facts = [event.fact for row in kept.log.sessions() for event in kept.log.read(row.session_id)]
    assert any(isinstance(fact, WindowOpened) for fact in facts)


STANDING: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "another permission": (
        "openai_responses",
        [
            {"type": "message", "role": "developer", "content": f"<permissions>{word}</permissions>"}
            for word in ("ask", "never ask")
        ],
    ),
    "a setting": ("openai_responses", [{"type": "configuration_update", "effort": one} for one in ("low", "high")]),
    "a chat's mode": ("openai_chat", [{"role": "developer", "content": f"mode: {one}"} for one in ("plan", "act")]),
    "a system message": (
        "anthropic",
        [{"role": "system", "content": [{"type": "text", "text": f"mode: {one}"}]} for one in ("plan", "act")],
    ),
}


@pytest.mark.parametrize("what", list(STANDING))
def test_what_a_client_says_in_the_systems_name_holds_in_every_window_until_it_says_otherwise(
    what: str, plan: Plan, serve: Callable[..., str]
) -> None:
    api, (old, new) = STANDING[what]
    with ModelServer(lambda _: [Call(name="read", arguments={"path": "f"})], window=8_000) as model:
        client = Client(api, serve(model), lambda *_: PAGE)
        client.say("Read it all.")
        for step in range(24):
            if step in (2, 4):
                client.history.append(old if step == 2 else new)
            assert client.step()
        last = model.bodies[-1]["input" if api == "openai_responses" else "messages"]
    with compose.store(plan.store) as kept:
        assert all(not one.problem for one in kept.log.verify())
        facts = [event.fact for row in kept.log.sessions() for event in kept.log.read(row.session_id)]
    assert sum(isinstance(fact, WindowOpened) for fact in facts) > 1
    assert (new in last, old in last) == (True, False)


def test_tools_that_come_later_stay(serve: Callable[..., str]) -> None:
    later = [
        {"type": "additional_tools", "tools": [{"type": "function", "name": name, "parameters": {"type": "object"}}]}
        for name in ("first", "second")
    ]
    with ModelServer(lambda _: [Call(name="read", arguments={"path": "f"})], window=8_000) as model:
        client = Client("openai_responses", serve(model), lambda *_: PAGE)
        client.say("Read it all.")
        for step in range(24):
            client.history.extend(later if step == 2 else ())
            assert client.step()
        last = model.bodies[-1]["input"]
    assert [one for one in last if one.get("type") == "additional_tools"] == later


class Clocked(Client):
    """Its system text says what time it is."""

    def body(self) -> bytes:
        return Client.body(self).replace(b"You work.", b"You work. It is %d o'clock." % len(self.history))


@pytest.mark.parametrize("api", list(APIS))
def test_a_client_that_begins_otherwise_each_time_goes_on_with_its_history(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    asked = count(1)

    def decide(_: dict[str, Any]) -> Said:
        return [f"This is step {next(asked)}.", Call(name="read", arguments={"path": "f"})]

    with ModelServer(decide, window=8_000) as model:
        url = serve(model)
        clients = [Clocked(api, url, lambda *_: PAGE) for _ in range(2)]
        for client in clients:
            client.say("Read it all.")
        for _ in range(24):
            assert all(client.step() for client in clients)
    with compose.store(plan.store) as kept:
        assert all(not one.problem for one in kept.log.verify())
        sessions = kept.log.sessions()
        facts = [event.fact for row in sessions for event in kept.log.read(row.session_id)]
    assert len(sessions) == len(clients)
    opened = sum(isinstance(fact, WindowOpened) for fact in facts) / len(clients)
    assert 1 < opened < 24 // 4, "each window has room for several pages"
