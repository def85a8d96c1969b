"""A gateway that dies after any one append, and a client that asks the same again: one answer, as if nothing had been."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from transom import compose
from transom.core.event import Draft, Event, Observed, WindowOpened
from transom.gateway.serving import Plan
from transom.testing.client import Client
from transom.testing.model_server import APIS, Call, ModelServer, Said

PAGE = "a line of the file that was asked for, with some words in it\n" * 60
HANDOFF = {
    "handoff": {"requirements": [], "inferences": ["It goes well."], "conflicts": [], "unverified": []},
    "related_files": [],
}
STEPS = 12


class Reader:
    """Reads pages and hands over when it is told to, or never, whatever is forced on it."""

    def __init__(self, done: int, *, hands_over: bool) -> None:
        self.done, self.hands_over = done, hands_over

    def __call__(self, asked: dict[str, Any]) -> Said:
        history = json.dumps(listed(asked)[-2:])
        tools = json.dumps(asked["tools"])
        if "new_context" in tools and ("call new_context" in history or "window is full" in history):
            if self.hands_over:
                return [Call(name="new_context", arguments=HANDOFF)]
            return ["I would rather go on."]
        return [f"Page {self.done}.", Call(name="read", arguments={"path": f"f{self.done}"})]

    def run(self, name: str, arguments: dict[str, Any]) -> str:
        assert (name, arguments) == ("read", {"path": f"f{self.done}"})
        self.done += 1
        return f"page {self.done} of it\n{PAGE}"


def listed(body: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body["messages"] if "messages" in body else body["input"]
    return found


def worked(api: str, url: str, reader: Reader) -> list[list[dict[str, Any]]]:
    """A client at work; its history as it was at each request."""
    client = Client(api, url, reader.run)
    client.say("Read it all.")
    histories = []
    for _ in range(STEPS):
        histories.append(copy.deepcopy(client.history))
        assert client.step()
    return histories


def events(store: Path | None) -> list[Event]:
    with compose.store(store) as kept:
        assert all(not one.problem for one in kept.log.verify())
        newest = max(kept.log.sessions(), key=lambda one: one.head.seq)
        return list(kept.log.read(newest.session_id))


def copied(store: Path, written: Sequence[Event]) -> None:
    with compose.store(store) as kept:
        drafts = [Draft(fact=one.fact, uuid=one.uuid, at=one.at) for one in written]
        kept.log.append(written[0].session_id, 0, drafts)


def brought(written: Sequence[Event]) -> Iterator[tuple[int, bool, int]]:
    """What keeps a part of a request: its place, whether it is the first of it, the seq behind it."""
    for place, one in enumerate(written):
        if isinstance(one.fact, Observed) and one.fact.kind == "client_request":
            part = json.loads(one.fact.raw)
            yield place, not part.get("is_more"), max(part["ends"])


def requests(written: Sequence[Event]) -> int:
    return sum(is_first for _, is_first, _ in brought(written))


def cuts(written: Sequence[Event]) -> list[int]:
    """Every place of a log from the request before its first rollover to the one behind it."""
    (opened, *_) = (place for place, one in enumerate(written) if isinstance(one.fact, WindowOpened))
    parts = list(brought(written))
    asked = [place for place, is_first, _ in parts if is_first]
    before = [place for place in asked if place < opened][-2]
    behind = next(place for place in asked if place > opened)
    # What came with a request is one append.
    inside = {cut for place, is_first, end in parts for cut in range(place + is_first, end)}
    return [cut for cut in range(before + 1, behind + 1) if cut not in inside]


@pytest.mark.parametrize("hands_over", [True, False], ids=["handed-over", "by-code"])
@pytest.mark.parametrize("api", list(APIS))
def test_a_request_is_answered_once_wherever_the_gateway_died_in_it(
    api: str, hands_over: bool, plan: Plan, serve: Callable[..., str], tmp_path: Path
) -> None:
    first = Reader(0, hands_over=hands_over)
    with ModelServer(first) as model:
        histories = worked(api, serve(model), first)
    written = events(plan.store)
    for cut in cuts(written):
        store = tmp_path / f"cut-{cut}"
        copied(store, written[:cut])
        again = requests(written[:cut]) - 1
        reader = Reader(again, hands_over=hands_over)
        with ModelServer(reader) as model:
            client = Client(api, serve(model, store=store), reader.run)
            client.history = copy.deepcopy(histories[again])
            for _ in range(3):
                assert client.step(), cut
        assert reader.done == again + 3
        for body in model.bodies:
            history = listed(body)
            assert "[no result" not in json.dumps(history), cut
            assert history[-1].get("role") != "assistant", cut
            said = json.dumps(history)
            assert "Previous context" not in said or "of this window" not in said, "a notice of the window before"
        generations = [one.fact.generation for one in events(store) if isinstance(one.fact, WindowOpened)]
        assert all(one + 1 == other for one, other in pairwise(generations)), generations


@pytest.mark.parametrize("api", list(APIS))
def test_a_client_that_goes_from_one_gateway_to_another_on_the_same_store_has_one_history(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    reader = Reader(0, hands_over=True)
    with ModelServer(reader) as model:
        gateways = serve(model), serve(model)
        client = Client(api, gateways[0], reader.run, headers={"session-id": "one"})
        client.say("Read it all.")
        for number in range(12):
            client.base_url = gateways[number % 2]
            assert client.step()
    assert set(client.status) <= {"plain", "governed"}
    with compose.store(plan.store) as kept:
        assert [row.kind for row in kept.log.sessions()] == ["root"]
        assert not [one.problem for one in kept.log.verify() if one.problem]
