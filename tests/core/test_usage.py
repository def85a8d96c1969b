from __future__ import annotations

import pytest

from transom.core.event import EpochOpened, Usage, WindowOpened
from transom.testing.builders import Story, rules, text, thought


@pytest.fixture
def story() -> Story:
    made = Story(rules("raw"))
    made.user("do it")
    return made


def ask(story: Story, prompt: int, *words: str) -> None:
    """A request whose reply reports this prompt."""
    story.step()
    story.reply(*words, usage=Usage(uncached=prompt))


def test_the_growth_between_two_reports_teaches_the_ratios(story: Story) -> None:
    ask(story, 1000, "a word " * 200)
    assert story.session.state.calibration.samples == 0
    story.host("more " * 200)
    ask(story, 1000 + 800, "ok")
    assert story.session.state.calibration.samples == 1


@pytest.mark.parametrize("fact", [WindowOpened(cause="operator", generation=1), EpochOpened(reason="change:tools")])
def test_nothing_is_learnt_over_a_new_window_or_a_new_head(story: Story, fact: WindowOpened | EpochOpened) -> None:
    ask(story, 1000, "a word " * 200)
    story.say(fact)
    ask(story, 5000, "ok")
    assert story.session.state.calibration.samples == 0
    assert story.session.state.known_prompt == 5000


def test_a_report_of_nothing_is_no_report(story: Story) -> None:
    ask(story, 1000, "a word " * 200)
    ask(story, 0, "ok")
    ask(story, 2000, "ok")
    assert story.session.state.calibration.samples == 0


@pytest.mark.parametrize(("thinks", "votes"), [("word " * 400, True), ("hm", False), ("", False)])
def test_a_prompt_after_a_user_message_tells_whether_thoughts_were_kept(
    story: Story, thinks: str, *, votes: bool
) -> None:
    deep = thought(thinks)
    ask(story, 1000)
    story.step()
    story.reply(deep, "done", usage=Usage(uncached=1010))
    story.user("and now?")
    state = story.session.state
    kept = state.calibration.estimate((deep.tokens + 8, 0, 0, 0, 0), 2)
    ask(story, 1010 + kept)
    assert state.drop_votes == (-1 if votes else 0)
    story.step()
    story.reply(deep, "done", usage=Usage(uncached=1020 + kept))
    story.user("and now?", text("again"))
    ask(story, 1020 + kept + 30)
    assert state.drop_votes == 0


def test_thoughts_of_a_session_no_user_began_are_voted_on_too() -> None:
    story = Story(rules("raw"))
    deep = thought("word " * 400)
    story.step()
    story.reply(deep, "done", usage=Usage(uncached=1010))
    story.user("and now?")
    kept = story.session.state.calibration.estimate((deep.tokens + 8, 0, 0, 0, 0), 2)
    ask(story, 1010 + kept - story.session.state.calibration.estimate((deep.tokens, 0, 0, 0, 0)))
    assert story.session.state.drop_votes == 1
