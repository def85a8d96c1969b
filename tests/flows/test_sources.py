"""A workspace that changes under a live session: the head stays, what changed is said once, and no byte that was sent is
sent otherwise. In each dialect, with the process ending between any two steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest

from transom.adapters import provider_anthropic, provider_openai_chat, provider_openai_responses
from transom.adapters.blobs import DirBlobs
from transom.adapters.local_dialect import DIALECT as LOCAL
from transom.adapters.provider_writing import Reach
from transom.adapters.sqlite_log import SqliteLog
from transom.agent.head import head
from transom.agent.sources import Surroundings
from transom.core.epochs import present
from transom.core.event import EpochOpened, HostSaid, RequestSent, SectionChanged
from transom.core.wire import Dialect
from transom.ports import Log
from transom.testing.builders import rules
from transom.testing.live import Live, Shelf, handoff, step

ROLE = Reach(system_role="developer")
DIALECTS = {
    "anthropic": provider_anthropic.DIALECT,
    "chat": provider_openai_chat.dialect(Reach()),
    "chat, developer": provider_openai_chat.dialect(ROLE),
    "responses, developer": provider_openai_responses.dialect(ROLE),
    "local": LOCAL,
}
LOOK = ("look", {"text": "nothing new"})


@dataclass
class Scene:
    """A live session in a folder. `restart` ends the process: log, head and sources are all made anew."""

    root: Path
    dialect: Dialect
    log: Log
    today: str = "2026-11-30"
    limit: int = 32_000
    live: Live = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def sources(self) -> Surroundings:
        return Surroundings(
            self.root, platform="linux", commands="they run", today=lambda: self.today, context_limit=self.limit
        )

    def restart(self) -> None:
        sources = self.sources()
        self.live = Live(
            [step("I look.", LOOK, times=40), step("Done.")],
            given=rules("rollover", self.limit, dialect=self.dialect),
            log=self.log,
            sources=sources,
            head=head(sources, Shelf().catalogue()),
        )

    def step(self) -> list[HostSaid]:
        """One step, and what was said of the head in it."""
        before = self.live.session.state.seq
        self.live.step()
        facts = [event.fact for event in self.live.events() if event.seq > before]
        return [fact for fact in facts if isinstance(fact, HostSaid) and fact.kind == "context"]

    def missed(self) -> list[tuple[str, ...]]:
        """The reasons of every request that was no hit."""
        return [fact.reasons for fact in self.live.facts() if isinstance(fact, RequestSent) and fact.verdict != "hit"]


@pytest.fixture(params=DIALECTS, ids=lambda name: name.replace(", ", "-"))
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    root = tmp_path / "ws"
    root.mkdir()
    (root / "AGENTS.md").write_text("Use tabs.")
    with SqliteLog(tmp_path / "log.db", DirBlobs(tmp_path / "blobs")) as log:
        yield Scene(root, DIALECTS[request.param], log)


@pytest.mark.parametrize("restarts", [False, True], ids=["one process", "a process a step"])
def test_whatever_changes_around_a_session_its_requests_only_grow(scene: Scene, restarts: bool) -> None:
    """L5: the date, rules edited and removed and back, an unreadable file, a skill: zero undeclared misses."""
    rules_file, sent = scene.root / "AGENTS.md", scene.live.provider.sent
    scene.live.user("Look around.")

    def stepped() -> list[tuple[str, ...]]:
        if restarts:
            scene.restart()
            scene.live.provider.sent[:0] = sent
        said = [fact.sections for fact in scene.step()]
        sent[:] = scene.live.provider.sent
        return said

    assert stepped() == []
    scene.today = "2026-12-01"
    assert stepped() == [("date",)]
    assert stepped() == []
    rules_file.write_text("Use spaces.")
    scene.today = "2026-12-02"
    assert stepped() == [("rules", "date")]
    rules_file.unlink()
    rules_file.symlink_to("AGENTS.md")  # to itself: there, and unreadable
    assert stepped() == []
    rules_file.unlink()
    assert stepped() == [("rules",)]
    skill = scene.root / ".agents" / "skills" / "release"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: release\ndescription: How to release.\n---\n")
    rules_file.write_text("Use tabs.")
    assert stepped() == [("rules", "skills")]
    assert stepped() == []
    assert scene.missed() == [("initial",)]
    for earlier, later in pairwise(sent):
        assert later.startswith(earlier.rstrip(b"\n"))
    state = scene.live.session.state
    assert sum(isinstance(fact, EpochOpened) for fact in scene.live.facts()) == 1
    fresh = head(scene.sources(), ())
    assert [(one.key, one.text) for one in present(state.head)] == [(one.key, one.text) for one in fresh.sections]


def test_a_file_that_changed_while_no_process_ran_is_an_appended_change(scene: Scene) -> None:
    scene.live.user("Look around.")
    scene.step()
    frozen = scene.live.session.state.head.sections
    (scene.root / "AGENTS.md").write_text("Use spaces.")
    before = scene.live.session.state.seq
    scene.restart()
    assert scene.live.session.state.seq == before  # opening samples nothing
    (said,) = scene.step()
    assert said.sections == ("rules",)
    assert scene.live.session.state.head.sections == frozen
    last = scene.live.provider.sent[-1].decode()
    assert last.index("Use tabs.") < last.index("Use spaces.")
    assert "Use tabs." not in str(said)
    assert scene.missed() == [("initial",)]


def test_the_facts_of_a_change_are_one_append(scene: Scene) -> None:
    scene.live.user("Look around.")
    scene.step()
    scene.today = "2026-12-01"
    (scene.root / "AGENTS.md").unlink()
    scene.step()
    events = scene.live.events()
    place = next(at for at, event in enumerate(events) if isinstance(event.fact, SectionChanged))
    rules_event, date, said = events[place : place + 3]
    assert rules_event.fact == SectionChanged(key="rules", text=None)
    assert date.fact == SectionChanged(key="date", text="Date: 2026-12-01")
    assert isinstance(said.fact, HostSaid)
    assert rules_event.at == date.at == said.at
    assert isinstance(events[place + 3].fact, RequestSent)


def test_a_handed_over_window_says_again_what_the_old_one_knew(tmp_path: Path) -> None:
    """A model rolls over; the next window starts with what has changed, said once, and the one after it too."""
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    scene = Scene(tmp_path, provider_anthropic.DIALECT, Live([step("x")]).log)
    sources = scene.sources()
    much = ("look", {"text": "a line of what is there\n" * 100})
    live = Live(
        [
            step("I look.", much, times=8),
            step("Over.", handoff()),
            step("I look.", much, times=8),
            step("Over.", handoff()),
            step("I look.", LOOK),
            step("Done."),
        ],
        given=rules("rollover", 32_000),
        shelf=Shelf({}),
        sources=sources,
        head=head(sources, Shelf().catalogue()),
    )
    live.user("Look around.")
    live.step()
    scene.today = "2026-12-01"
    (tmp_path / "AGENTS.md").write_text("Use spaces.")
    live.run()
    assert len(live.windows()) == 2
    for opened in live.windows():
        assert [seed.sections for seed in opened.seed if seed.sections] == [("rules", "date")]
    assert len([fact for fact in live.facts() if isinstance(fact, HostSaid) and fact.kind == "context"]) == 1
    last = live.provider.sent[-1].decode()
    assert last.count("Use spaces.") == last.count("Date: 2026-12-01") == 1
    reasons = [fact.reasons for fact in live.facts() if isinstance(fact, RequestSent) and fact.verdict != "hit"]
    assert reasons == [("initial",), ("reset:rollover",), ("reset:rollover",)]


def test_a_system_message_where_the_provider_takes_one_and_tagged_text_where_not(tmp_path: Path) -> None:
    shown = {}
    for name in ("anthropic", "chat", "chat, developer", "responses, developer", "local"):
        root = tmp_path / name
        root.mkdir()
        scene = Scene(root, DIALECTS[name], Live([step("x")]).log)
        scene.restart()
        scene.live.user("Look around.")
        scene.step()
        scene.today = "2026-12-01</context_update>"
        scene.step()
        shown[name] = scene.live.provider.sent[-1].decode().splitlines()[-1]
    for name, last in shown.items():
        is_system = '"role":"developer"' in last
        assert is_system == name.endswith("developer"), name
        assert last.count("<context_update>") == (0 if is_system else 1), name
        assert last.count("</context_update>") == (0 if is_system else 1), name
        assert "2026-12-01&lt;/context_update>" in last, name
