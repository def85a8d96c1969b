"""Whole conversations with a server that is strict about each API: pairing, signatures, marks, faults at every step.

The server is a separate program beside the shared transcripts; where it is not there, these tests skip.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from transom import compose
from transom.adapters.provider_http import HttpProvider, Patience
from transom.core.block import Text, Thought, ToolCall
from transom.core.event import EpochOpened, ModelReplied, Section, Tool
from transom.errors import Overflow, ProviderError, Unavailable
from transom.ports import Outgoing, Reply
from transom.testing.builders import Story, rules
from transom.testing.conformance_provider import PROVIDER_CASES, ProviderCase

NAMES = ("compatible-anthropic", "compatible", "compatible-responses")
PARAMS = {
    "compatible-anthropic": '{"thinking":{"type":"adaptive"}}',
    "compatible-responses": '{"reasoning":{"effort":"low"}}',
}
BASH = Tool(
    name="bash",
    description="Run a command.",
    schema='{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}',
)
STEPS = [
    {"say": "First I look.", "shell": "ls"},
    {"parallel": [{"shell": "cat a"}, {"shell": "cat b"}]},
    {"shell": "make"},
    {"text": "Done: é 完成."},
]


class Server:
    """The scripted server as a process of its own; each `play` starts anew."""

    def __init__(self, port: int) -> None:
        self.base_url = f"http://127.0.0.1:{port}"
        self._control = httpx2.Client(base_url=self.base_url)
        self._past = 0

    def play(self, **script: Any) -> None:
        self._control.post("/__script", json=script).raise_for_status()
        self._past = len(self._all())

    def records(self) -> list[dict[str, Any]]:
        return self._all()[self._past :]

    def close(self) -> None:
        self._control.close()

    def kinds(self) -> list[str]:
        return [one["kind"] for one in self.records()]

    def _all(self) -> list[dict[str, Any]]:
        found = self._control.get("/__records").json()
        assert isinstance(found, list)
        return found


@pytest.fixture(scope="module")
def server(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    program = shared.parents[1] / "tools" / "scripted_model.py"
    port_file = tmp_path_factory.mktemp("scripted") / "port"
    process = subprocess.Popen(
        [sys.executable, str(program), "--port-file", str(port_file)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 30
        while not port_file.exists():
            assert process.poll() is None, "the scripted server ended at once"
            assert time.monotonic() < deadline, "the scripted server did not start"
            time.sleep(0.02)
        made = Server(int(port_file.read_text("utf-8")))
        yield made
        made.close()
    finally:
        process.terminate()
        process.wait(10)


class Talk:
    """A conversation until the model calls nothing more."""

    def __init__(self, server: Server, name: str, *, is_streamed: bool) -> None:
        base = server.base_url + ("" if name == "compatible-anthropic" else "/v1")
        self.waits: list[float] = []
        self.provider: HttpProvider = compose.provider(
            name,
            "m1",
            base_url=base,
            params=PARAMS.get(name, ""),
            is_streamed=is_streamed,
            env={},
            patience=Patience(sleep=self.waits.append, share=lambda: 1.0),
        )
        self.story = Story(rules=rules("raw", 200_000, dialect=self.provider.dialect))
        self.story.say(EpochOpened(sections=(Section(key="role", text="You work."),), tools=(BASH,)))
        self.story.user("Do it. " + "It has many words. " * 400)

    def step(self) -> Reply:
        wire = self.story.step().wire
        *_, last = self.provider.send(Outgoing(wire=wire, model="m1", max_output_tokens=1000))
        assert isinstance(last, Reply)
        self.story.say(
            ModelReplied(blocks=last.blocks, model=last.model, stop_reason=last.stop_reason, usage=last.usage)
        )
        return last

    def replies(self) -> Iterator[Reply]:
        for _ in range(20):
            yield self.step()
            if not self.story.calls:
                return
            for call_id in self.story.calls:
                self.story.returned(call_id, f"output of {call_id}")
        raise AssertionError("the script has four steps")


@pytest.fixture
def talk(server: Server) -> Iterator[Callable[..., Talk]]:
    """Starts a conversation; its connection is closed behind the test."""
    with ExitStack() as kept:

        def started(name: str, *, is_streamed: bool = True) -> Talk:
            made = Talk(server, name, is_streamed=is_streamed)
            kept.enter_context(made.provider)
            return made

        yield started


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_conversation_runs_to_its_end_and_each_request_extends_the_last(
    server: Server, talk: Callable[..., Talk], name: str, is_streamed: bool
) -> None:
    server.play(think=True, lanes={"main": STEPS})
    replies = list(talk(name, is_streamed=is_streamed).replies())
    assert [sum(isinstance(block, ToolCall) for block in reply.blocks) for reply in replies] == [1, 2, 1, 0]
    assert [_shown(reply) for reply in replies] == CALM
    assert all(isinstance(reply.blocks[0], Thought) for reply in replies)
    records = server.records()
    assert server.kinds() == ["main"] * 4
    assert all(one["prev_lcp"] == one["prev_bytes"] for one in records[1:])
    for reply, one in zip(replies, records, strict=True):
        assert reply.usage is not None
        assert (reply.usage.prompt, reply.usage.cached) == (one["usage"]["total"], one["usage"]["read"])
        assert (reply.usage.output, reply.usage.written) == (one["usage"]["out"], one["usage"]["write"])
    assert all(one["usage"]["read"] > 1024 for one in records[1:])


def _shown(reply: Reply) -> list[str]:
    """What was said and called; ids and thoughts differ by API."""
    calls = [json.loads(block.arguments)["command"] for block in reply.blocks if isinstance(block, ToolCall)]
    return [*(block.text for block in reply.blocks if isinstance(block, Text)), *calls]


CALM = [["First I look.", "ls"], ["cat a", "cat b"], ["make"], ["Done: é 完成."]]


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", PROVIDER_CASES, ids=lambda case: case.__name__)
def test_the_kit_of_the_port_passes(server: Server, case: ProviderCase, name: str, is_streamed: bool) -> None:
    steps = [{"say": "I look.", "read": "a.py"}, {"read": "b.py"}, {"text": "It adds."}]
    server.play(think=True, lanes={"main": steps})
    with ExitStack() as kept:
        case(lambda: kept.enter_context(Talk(server, name, is_streamed=is_streamed).provider))


FAULTS: dict[str, Mapping[str, Any]] = {
    "429": {"kind": "429", "retry_after": 3, "times": 2},
    "529": {"kind": "529"},
    "500": {"kind": "500"},
    "503": {"kind": "503", "times": 3},
    "break": {"kind": "break", "times": 2},
    "break_early": {"kind": "break_early"},
    "error_event": {"kind": "error_event"},
}


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fault", FAULTS)
def test_trouble_that_passes_leaves_no_trace(
    server: Server, talk: Callable[..., Talk], name: str, fault: str, is_streamed: bool
) -> None:
    server.play(think=True, lanes={"main": STEPS}, faults=[{"step": 1, **FAULTS[fault]}])
    one = talk(name, is_streamed=is_streamed)
    assert [_shown(reply) for reply in one.replies()] == CALM
    times = FAULTS[fault].get("times", 1)
    assert server.kinds() == ["main", *["fault"] * times, "main", "main", "main"]
    assert one.waits == ([3.0] * times if fault == "429" else [0.5, 1.0, 2.0][:times])
    bodies = {one["body_sha"] for one in server.records()[1 : 2 + times]}
    assert len(bodies) == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("kind", "error"), [("too_long", Overflow), ("ctx_exceeded", Overflow), ("413", Overflow), ("401", ProviderError)]
)
def test_what_does_not_pass_is_asked_once(
    server: Server, talk: Callable[..., Talk], name: str, kind: str, error: type[ProviderError]
) -> None:
    server.play(lanes={"main": STEPS}, faults=[{"step": 0, "kind": kind, "times": 9}])
    with pytest.raises(error) as caught:
        talk(name).step()
    assert type(caught.value) is error
    assert server.kinds() == ["fault"]


@pytest.mark.parametrize("name", NAMES)
def test_a_window_that_is_too_small_is_an_overflow_with_the_servers_numbers(
    server: Server, talk: Callable[..., Talk], name: str
) -> None:
    server.play(lanes={"main": STEPS}, limit_tokens=900)
    with pytest.raises(Overflow) as caught:
        talk(name).step()
    assert "900" in str(caught.value) or name == "compatible-responses"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["529", "break", "break_early", "error_event"])
def test_trouble_that_does_not_pass_is_unavailable_and_leaves_the_session_as_it_was(
    server: Server, talk: Callable[..., Talk], name: str, kind: str
) -> None:
    server.play(lanes={"main": STEPS}, faults=[{"step": 0, "kind": kind, "times": 99}])
    one = talk(name)
    with pytest.raises(Unavailable):
        one.step()
    assert not any(isinstance(event.fact, ModelReplied) for event in one.story.events())
    assert len(server.kinds()) == 6


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_endings_that_are_not_the_models_own_keep_their_name(
    server: Server, talk: Callable[..., Talk], name: str, is_streamed: bool
) -> None:
    words = {
        "max_tokens": {"max_tokens", "length", "max_output_tokens"},
        "refusal": {"refusal", "content_filter", "completed"},
        "empty": {"end_turn", "stop", "completed"},
    }
    for kind, stops in words.items():
        server.play(lanes={"main": STEPS}, faults=[{"step": 0, "kind": kind}])
        assert talk(name, is_streamed=is_streamed).step().stop_reason in stops
