"""The run loop: what ends it, what it continues, and where a dead process left off."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import pytest

from transom import compose
from transom.adapters.memory_log import MemoryLog
from transom.adapters.provider_anthropic import DIALECT
from transom.adapters.scripted import ScriptedProvider
from transom.adapters.scripted_format import Script, script_of
from transom.adapters.workspace import DirWorkspace
from transom.agent.head import head
from transom.agent.run import Agent, Bounds, Stop
from transom.agent.sources import Surroundings
from transom.agent.tally import Tally
from transom.agent.toolbox import Toolbox
from transom.core.event import (
    Draft,
    EpochOpened,
    Event,
    HostSaid,
    ModelReplied,
    RequestSent,
    SessionOpened,
    Tool,
    Usage,
    UserSaid,
)
from transom.core.evidence import Files
from transom.core.pricing import Price, find_price
from transom.errors import Unavailable
from transom.ports import Delta, Provider
from transom.session import Session, World
from transom.testing.builders import rules
from transom.testing.loopback import Canned, Loopback

LOOK: Mapping[str, object] = {"tool": "read", "arguments": {"path": "a.txt"}}
READ: Mapping[str, object] = {"call": [LOOK]}
DONE: Mapping[str, object] = {"say": "Done."}
HANDOFF: Mapping[str, object] = {
    "tool": "new_context",
    "arguments": {"handoff": {"inferences": ["I look around."]}, "related_files": []},
}


def script(*steps: Mapping[str, object], **more: object) -> Script:
    return script_of({"step": list(steps), **more})


@dataclass
class Scene:
    """An agent over a folder, its log in memory, and all it told."""

    root: Path
    toolbox: Toolbox
    log: MemoryLog = field(default_factory=MemoryLog)
    told: list[Event] = field(default_factory=list)
    limit: int = 32_000
    seconds: Callable[[], float] = field(default_factory=lambda: lambda: 0.0)
    stop: Stop = field(default_factory=Stop)
    provider: Provider | None = None
    show: Callable[[Delta], None] = lambda _: None

    today: str = "2026-11-30"

    def sources(self) -> Surroundings:
        return Surroundings(
            self.root,
            platform="linux",
            commands="they run",
            today=lambda: self.today,
            context_limit=self.limit,
        )

    def head(self) -> EpochOpened:
        return head(self.sources(), self.toolbox.catalogue())

    def agent(self, played: Script, bounds: Bounds | None = None, *, is_new: bool = True) -> Agent:
        made = rules("rollover", self.limit)
        ticks = count(1 + 1000 * len(self.told))
        made = replace(made, ids=lambda: f"u{next(ticks)}")
        if is_new:
            opened = SessionOpened(format=1, agent="transom", model="scripted")
            session = Session.start(self.log, "s", opened, made)
        else:
            session = Session.open(self.log, "s", made)
        tally = Tally(None, self.log.read("s"))
        workspace = DirWorkspace(self.root)
        world = World(
            provider=self.provider or ScriptedProvider(played, DIALECT, after=tally.response_id),
            show=self.show,
            tools=self.toolbox,
            files=Files(resolve=workspace.resolve, text=workspace.text, root=str(workspace.root)),
            model="scripted",
            max_output_tokens=1000,
            sources=self.sources(),
            told=self.told.append,
        )
        agent = Agent(session, world, tally, bounds=bounds, stop=self.stop, now=self.seconds)
        agent.open(self.head())
        return agent

    def notices(self) -> list[HostSaid]:
        return [event.fact for event in self.log.read("s") if isinstance(event.fact, HostSaid)]


@pytest.fixture
def scene(root: Path, toolbox: Toolbox) -> Scene:
    (root / "a.txt").write_text("one\n")
    return Scene(root=root, toolbox=toolbox)


def test_a_run_ends_when_the_user_is_answered(scene: Scene) -> None:
    agent = scene.agent(script(READ, DONE))
    agent.say("Look.")
    assert not agent.is_answered
    ended = agent.run()
    assert (ended.reason, ended.steps) == ("answered", 2)
    assert agent.tally.steps == 2
    # But for the verdicts, which the session appends before it sends, everything is told as it is appended.
    assert {event.seq for event in scene.told} <= {event.seq for event in scene.log.read("s")}
    assert any(isinstance(event.fact, ModelReplied) for event in scene.told)


def test_a_user_message_stands_beside_the_name_it_is_cited_by(scene: Scene) -> None:
    agent = scene.agent(script(DONE))
    agent.say("Look.")
    said = next(event for event in scene.log.read("s") if isinstance(event.fact, UserSaid))
    assert f"[message_uuid of the user message above: {said.uuid}]" in "".join(
        getattr(block, "text", "") for item in agent.session.state.first for block in item.blocks
    )
    agent.run()


def test_a_handoff_can_cite_that_name(scene: Scene) -> None:
    claim = {"requirements": [{"text": "Never touch b.txt.", "source": "{name}"}]}
    cites = {"call": [{"tool": "new_context", "arguments": {"handoff": claim, "related_files": []}}]}
    agent = scene.agent(script(cites, DONE, take={"name": r"user message above: (\S+?)\]"}))
    agent.say("Look. Never touch b.txt.")
    agent.run()
    assert not any(getattr(event.fact, "demoted", ()) for event in scene.told)


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [(Bounds(steps=3), "steps"), (Bounds(microusd=500), "spend"), (Bounds(seconds=2.5), "time")],
)
def test_a_bound_ends_a_run_by_name(scene: Scene, bounds: Bounds, reason: str) -> None:
    clock = count()
    scene.seconds = lambda: float(next(clock))
    agent = scene.agent(script({**READ, "times": 0}), bounds)
    agent.tally = Tally(find_price_of("claude-opus-4-5"))
    agent.say("Look for ever.")
    ended = agent.run()
    assert ended.reason == reason
    assert ended.sentence
    assert 1 <= ended.steps <= 3
    assert not agent.session.state.window.calls


def find_price_of(model: str) -> Price:
    return find_price(compose.prices(), model)


def _draft(event: Event) -> Draft:
    return Draft(fact=event.fact, uuid=event.uuid, at=event.at)


def test_windows_in_which_nothing_is_done_end_the_run(scene: Scene) -> None:
    (scene.root / "a.txt").write_text(("word " * 20 + "\n") * 45)
    scene.limit = 8_000
    looks = {"times": 9, "do": [READ, {"call": [HANDOFF]}]}
    agent = scene.agent(script(looks), Bounds(idle_windows=3))
    agent.say("Look.")
    ended = agent.run()
    assert ended.reason == "idle-windows"
    assert agent.tally.windows == 4
    assert "3 windows in a row" in ended.sentence


def test_a_change_between_windows_is_no_idleness(scene: Scene) -> None:
    (scene.root / "a.txt").write_text(("word " * 20 + "\n") * 45)
    scene.limit = 8_000
    writes = {"tool": "write", "arguments": {"path": "b.txt", "content": "{i}"}}
    works = {"times": 6, "do": [READ, {"call": [writes, HANDOFF]}]}
    agent = scene.agent(script(works, DONE), Bounds(idle_windows=3))
    agent.say("Work.")
    assert agent.run().reason == "answered"
    assert agent.tally.windows == 7


def test_a_reply_that_was_cut_off_or_empty_is_continued_and_not_for_ever(scene: Scene) -> None:
    cut = {"say": "I was about to", "stop": "max_tokens"}
    agent = scene.agent(script(cut, {"stop": "end_turn"}, DONE))
    agent.say("Look.")
    assert agent.run().reason == "answered"
    assert sum(said.kind == "continue" for said in scene.notices()) == 2

    again = Scene(root=scene.root, toolbox=scene.toolbox)
    agent = again.agent(script({**cut, "times": 0}))
    agent.say("Look.")
    ended = agent.run()
    assert (ended.reason, ended.steps) == ("cut-off", 4)


@pytest.mark.parametrize("stop", ["refusal", "content_filter"])
def test_a_model_that_refuses_is_not_asked_again(scene: Scene, stop: str) -> None:
    agent = scene.agent(script({"say": "I will not.", "stop": stop}, DONE))
    agent.say("Look.")
    ended = agent.run()
    assert (ended.reason, ended.sentence) == ("refused", f"the model refused (stop reason {stop})")
    assert not agent.is_answered
    assert agent.run().reason == "answered"


def test_asking_to_stop_lets_the_step_end(scene: Scene) -> None:
    agent = scene.agent(script(READ, DONE))
    agent.say("Look.")
    scene.stop.ask()
    assert agent.run().reason == "interrupted"
    scene.stop.is_asked = False
    assert agent.run().reason == "answered"


def test_the_first_interrupt_asks_and_the_second_raises() -> None:
    stop = Stop()
    before = signal.getsignal(signal.SIGINT)
    with stop.listening():
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_asked
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_an_interrupt_while_a_provider_is_waited_for_ends_the_run_at_once(scene: Scene, seconds: float) -> None:
    def interrupt(piece: Delta) -> None:
        if piece.kind == "notice" and seconds:
            threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
        elif piece.kind == "notice":
            os.kill(os.getpid(), signal.SIGINT)

    busy = Canned(status=529, media_type="application/json", headers={"retry-after": "20"}, body=b"{}")
    with Loopback(busy) as server, compose.provider("compatible", "m", base_url=server.base_url, env={}) as provider:
        scene.provider, scene.show = provider, interrupt
        agent = scene.agent(script(DONE))
        agent.say("Look.")
        began = time.monotonic()
        with scene.stop.listening():
            ended = agent.run()
        assert ended.reason == "interrupted"
        assert time.monotonic() - began < 5
        assert len(server.asked) == 1
    scene.provider, scene.stop = None, Stop()
    assert scene.agent(script(DONE), is_new=False).run().reason == "answered"


def test_trouble_of_the_provider_is_raised_and_the_run_goes_on_after_it(scene: Scene) -> None:
    played = script({"fail": "529"}, DONE)
    agent = scene.agent(played)
    agent.say("Look.")
    with pytest.raises(Unavailable, match="529"):
        agent.run()
    assert agent.run().reason == "answered"


def test_what_was_used_is_the_same_after_a_restart(scene: Scene) -> None:
    agent = scene.agent(script(READ, READ, DONE), Bounds(steps=2))
    agent.say("Look.")
    assert agent.run().reason == "steps"
    resumed = scene.agent(script(READ, READ, DONE), is_new=False)
    for name in ("steps", "windows", "prompt_tokens", "cached_tokens", "output_tokens", "microusd", "response_id"):
        assert getattr(resumed.tally, name) == getattr(agent.tally, name)
    assert resumed.run().reason == "answered"
    assert resumed.tally.cached_share > 0


def test_opening_again_adds_nothing_to_a_session_that_is_whole(scene: Scene) -> None:
    agent = scene.agent(script(READ, DONE), Bounds(steps=1))
    agent.say("Look.")
    agent.run()
    events = len(list(scene.log.read("s")))
    scene.agent(script(READ, DONE), is_new=False)
    assert len(list(scene.log.read("s"))) == events


@pytest.mark.parametrize("left", range(1, 4))
def test_a_start_that_was_cut_short_is_completed(scene: Scene, left: int) -> None:
    """After the session, after its head, after the user's words: wherever the process ended."""
    scene.agent(script(DONE)).say("Look.")
    events = list(scene.log.read("s"))[:left]
    cut = Scene(root=scene.root, toolbox=scene.toolbox)
    for event in events:
        cut.log.append("s", event.seq - 1, [_draft(event)])
    agent = cut.agent(script(DONE), is_new=False)
    if left < 3:
        assert agent.is_answered
        agent.say("Look.")
    assert agent.run().reason == "answered"
    kinds = [type(event.fact).__name__ for event in cut.log.read("s")][:4]
    assert kinds == ["SessionOpened", "EpochOpened", "UserSaid", "HostSaid"]


def test_a_reply_that_was_cut_off_before_the_process_ended_is_continued(scene: Scene) -> None:
    played = script({"say": "I was about to", "stop": "max_tokens"}, DONE)
    agent = scene.agent(played, Bounds(steps=1))
    agent.say("Look.")
    agent.session.step(agent._world)
    resumed = scene.agent(played, is_new=False)
    assert resumed.run().reason == "answered"


def test_other_tools_open_an_epoch_by_name_and_leave_the_sections(scene: Scene) -> None:
    agent = scene.agent(script(READ, DONE), Bounds(steps=1))
    agent.say("Look.")
    agent.run()
    sections = agent.session.state.head.sections
    other = EpochOpened(sections=(), tools=(*scene.head().tools, Tool(name="more")))
    agent.open(other)
    assert agent.session.state.head.sections == sections
    assert agent.session.state.head.tools[-1].name == "more"
    assert "change:tools" in agent.session.state.declared
    assert agent.run().reason == "answered"


def test_what_changed_of_the_head_is_said_once_and_the_head_stays(scene: Scene) -> None:
    """While the process was away: nothing is sampled when an agent opens, only at the boundary of its next step."""
    played = script(READ, READ, READ, READ, DONE)
    agent = scene.agent(played, Bounds(steps=1))
    agent.say("Look.")
    agent.run()
    sections = agent.session.state.head.sections
    (scene.root / "AGENTS.md").write_text("Be brief.")
    for _ in range(2):
        agent = scene.agent(played, Bounds(steps=1), is_new=False)
        assert not [one for one in scene.notices() if one.kind == "context"] or _
        agent.run()
    assert agent.session.state.head.sections == sections
    said = [one for one in scene.notices() if one.kind == "context"]
    assert [one.sections for one in said] == [("rules",)]
    assert "Be brief." in str(agent.session.state.head.changes["rules"])
    (scene.root / "AGENTS.md").unlink()
    scene.today = "2026-12-01"
    agent = scene.agent(played, Bounds(steps=1), is_new=False)
    agent.run()
    said = [one for one in scene.notices() if one.kind == "context"]
    assert [one.sections for one in said] == [("rules",), ("rules", "date")]
    assert agent.session.state.head.changes == {"rules": None, "date": "Date: 2026-12-01"}
    agent = scene.agent(played, is_new=False)
    assert agent.run().reason == "answered"
    assert [one.kind for one in scene.notices()].count("context") == 2
    verdicts = [event.fact for event in scene.log.read("s") if isinstance(event.fact, RequestSent)]
    assert [one.reasons for one in verdicts if one.verdict != "hit"] == [("initial",)]


def test_a_cost_the_provider_reports_goes_before_the_tables(scene: Scene) -> None:
    tally = Tally(find_price_of("claude-opus-4-5"))
    usages = (Usage(uncached=1000), Usage(uncached=1000, cost_microusd=7), None)
    for number, usage in enumerate(usages, 1):
        fact = ModelReplied(blocks=(), usage=usage)
        tally.see(Event(session_id="s", seq=number, uuid="u", at=1, digest=b"", fact=fact))
    assert tally.microusd == 5000 + 7
    assert tally.unreported == 1
    assert Tally().cached_share == 0
