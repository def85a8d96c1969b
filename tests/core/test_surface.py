from __future__ import annotations

import json

import pytest

from transom.core.event import EpochOpened, HostSaid, Tool, WindowOpened
from transom.core.surface import FALLBACK_CHANCES, HOST_TOOLS, is_spent, spent_refusal, surface, withheld_refusal
from transom.testing.builders import Story, rules

NOTICE = HostSaid(kind="fallback", blocks=())


def story_of() -> Story:
    story = Story(rules())
    story.say(EpochOpened(tools=(Tool(name="bash"), *HOST_TOOLS)))
    return story


def test_everything_offered_may_be_called_until_the_fallback_stage() -> None:
    now = surface(story_of().session.state)
    assert now.allowed is None
    assert (now.forced, now.withheld) == ("", frozenset())
    assert now.accepts("bash")
    assert now.accepts("anything")


def test_the_surface_narrows_from_guard_to_forced_choice_to_removal_and_opens_with_the_next_window() -> None:
    """L9: each notice is one step, the cheapest for the cache first."""
    story = story_of()
    story.step()
    found = []
    for _ in range(FALLBACK_CHANCES):
        story.say(NOTICE)
        now = surface(story.session.state)
        assert now.accepts("new_context")
        assert not now.accepts("bash")
        assert not now.accepts("recall")
        found.append((now.forced, now.withheld, story.session.request().verdict.reasons))
    others = frozenset({"bash", "recall", "read_artifact", "todo", "note_failure"})
    assert found == [
        ("", frozenset(), ()),
        ("new_context", frozenset(), ("change:params",)),
        ("new_context", others, ("change:tools",)),
    ]
    story.say(WindowOpened(cause="hard-limit", generation=1))
    assert surface(story.session.state).allowed is None


@pytest.mark.parametrize(
    ("missed", "query", "is_so"),
    [
        ([], "x", False),
        (["retry"], "retry", True),
        (["retry"], " RETRY ", True),
        (["retry"], "the retry count", True),
        (["the retry count"], "retry", False),
        (["重试"], "重试次数", True),
        (["..."], "retry", False),
        (["..."], "...", True),
        (["."], "a.b", True),
    ],
)
def test_a_query_is_spent_when_it_or_a_wider_one_missed(missed: list[str], query: str, *, is_so: bool) -> None:
    assert is_spent(missed, query) is is_so


def test_refusals_name_the_call_and_the_next_step() -> None:
    assert withheld_refusal("bash").startswith("bash was not run")
    assert "new_context" in withheld_refusal("bash")
    assert "Look in the workspace" in spent_refusal("x")


def test_the_hosts_tools_have_schemas_that_name_what_they_require() -> None:
    for tool in HOST_TOOLS:
        schema = json.loads(tool.schema)
        assert set(schema.get("required", ())) <= set(schema["properties"])
