"""A history is known again by what the log keeps of it, however much came at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from transom import compose
from transom.core.event import Observed
from transom.gateway import known
from transom.gateway.known import parts
from transom.gateway.serving import Plan
from transom.testing.client import Client
from transom.testing.model_server import Call, ModelServer, words_of

_LARGE = 300_000


def test_parts_hold_every_element_once_and_are_small_unless_one_is_large() -> None:
    elements = [b"x" * size for size in (10, known._PART, 10, 10, 3 * known._PART, known._PART - 1, 1, 1)]
    found = parts(elements)
    assert [place for first, end in found for place in range(first, end)] == list(range(len(elements)))
    assert all(end == first + 1 or sum(map(len, elements[first:end])) <= known._PART for first, end in found)
    assert parts([b"x"]) == [(0, 1)]


@pytest.mark.parametrize("api", ["anthropic", "openai_chat", "openai_responses"])
def test_a_history_that_came_large_is_gone_on_with_after_a_restart(
    api: str, plan: Plan, serve: Callable[..., str]
) -> None:
    with ModelServer(
        lambda asked: ["Read it.", Call(name="read")] if len(words_of(asked)) < 900 else ["Done."]
    ) as model:
        url = serve(model, context_limit=2_000_000)
        client = Client(api, url, lambda *_: "")
        for number in range(6):
            client.say(f"{number} " + "word " * (_LARGE // 5))
        client.step()
        client.base_url = serve(model, context_limit=2_000_000)
        client.say("Go on.")
        client.step()
        sent = model.asked[-1][2]
    assert client.status == ["plain", "plain"]
    assert sent.count(b"word word") >= 6
    with compose.store(plan.store) as kept:
        (row,) = kept.log.sessions()
        facts = [event.fact for event in kept.log.read(row.session_id)]
    assert sum(isinstance(fact, Observed) and fact.kind == "client_request" for fact in facts) > 2
