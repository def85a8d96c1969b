"""A live agent put together: which model, which window, which price, and what the head says of its rights."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from transom import compose, live
from transom.adapters.provider_anthropic import DIALECT
from transom.agent.tally import Tally
from transom.core.event import SessionOpened, ToolReturned
from transom.core.searchable import text_of
from transom.errors import BadInput, OverBudget, ProviderError, UsageError
from transom.testing.tiny_gguf import tiny_gguf

SCRIPT = 'window_tokens = 9000\n[[step]]\nsay = "Done."\n'


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.toml"
    path.write_text(SCRIPT)
    return path


def test_the_window_is_the_configured_one_else_what_is_known_of_exactly_this_model(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    known = live.model("anthropic", "claude-opus-4-5")
    assert (known.context_limit, known.source) == (200_000, "catalogue")
    assert known.price is not None
    assert not known.price.assumed
    said = live.model("anthropic", "claude-opus-4-5", context_limit=50_000)
    assert (said.context_limit, said.source) == (50_000, "configured")
    with pytest.raises(UsageError, match="the window of nobody-knows is not known: say --context-limit"):
        live.model("anthropic", "nobody-knows")
    played = live.model("scripted", script=script)
    assert (played.context_limit, played.source, played.price) == (9000, "provider-reported", None)
    for one in (known, said, played):
        one.close()


def test_a_server_of_ones_own_costs_nothing_unless_its_model_has_a_price() -> None:
    own = live.model("ollama", "nobody-knows", context_limit=8000)
    priced = live.model("compatible", "gpt-5-mini", base_url="http://127.0.0.1:1/v1")
    assert own.price is None
    assert priced.price is not None
    own.close()
    priced.close()


def test_a_key_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    with pytest.raises(ProviderError, match="OPENROUTER_API_KEY"):
        live.model("openrouter", "x", context_limit=8000)


@pytest.mark.skipif(not importlib.util.find_spec("xllamacpp"), reason="xllamacpp absent: pip install 'transom[local]'")
def test_a_file_is_a_model_of_its_own_counted_by_its_own_vocabulary(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "tiny.gguf")
    made = live.model("local", str(path), context_limit=512)
    assert made.counter.measure("a b c").tokens > 0
    assert made.counter.name == "tiny"
    made.close()
    with pytest.raises(UsageError, match="--context-limit"):
        live.model("local", str(path))


def test_a_session_says_what_it_runs_under_and_opens_again(script: Path, tmp_path: Path) -> None:
    manner = live.Manner(is_unsandboxed=True)
    with compose.store(tmp_path / "store") as kept:
        first = live.agent(kept, live.model("scripted", script=script), tmp_path, manner)
        first.say("Hello.")
        assert first.run().reason == "answered"
        name = first.session.session_id
        opened = next(kept.log.read(name)).fact
        assert isinstance(opened, SessionOpened)
        assert (opened.agent, opened.provider, opened.policy, opened.context_limit) == (
            *("transom", "scripted", "rollover", 9000),
        )
        gone = Tally(None, kept.log.read(name))
        again = live.agent(
            *(kept, live.model("scripted", script=script, gone=gone), tmp_path, manner), session_id=name, is_new=False
        )
        assert again.is_answered
        with pytest.raises(UsageError, match=f"session {name}: is there already; is_new=False goes on with it"):
            live.agent(kept, live.model("scripted", script=script), tmp_path, manner, session_id=name)
        assert again.session.state.seq == first.session.state.seq
        assert again.session.rules.dialect is DIALECT


def test_the_head_says_what_commands_may_do(script: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    said = []
    with compose.store(tmp_path / "store") as kept:
        for manner in (live.Manner(), live.Manner(is_network_allowed=True), live.Manner(is_unsandboxed=True)):
            try:
                agent = live.agent(kept, live.model("scripted", script=script), work, replace(manner))
            except UsageError as problem:
                pytest.skip(str(problem))
            said.append(next(one.text for one in agent.session.state.head.sections if one.key == "environment"))
    assert ["without network" in one for one in said] == [True, False, False]
    assert ["with the network" in one for one in said] == [False, True, False]
    assert "all the rights of the user" in said[2]


def test_no_store_in_the_workspace_is_reached_neither_this_one_nor_the_usual(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = '[[step]]\n[[step.call]]\ntool = "find"\narguments = {}\n[[step]]\nsay = "Done."\n'
    script.write_text(f"window_tokens = 9000\n{look}")
    for name in ("usual", "this", "work"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.txt").write_text("other sessions\n")
    monkeypatch.setenv("TRANSOM_HOME", str(tmp_path / "usual"))
    found = []
    with compose.store(tmp_path / "this") as kept:
        for workspace in (tmp_path, tmp_path / "usual"):
            made = live.agent(kept, live.model("scripted", script=script), workspace, live.Manner(is_unsandboxed=True))
            made.say("Look.")
            made.run()
            facts = [event.fact for event in kept.log.read(made.session.session_id)]
            (result,) = (fact for fact in facts if isinstance(fact, ToolReturned))
            found.append(text_of(result))
    assert found == ["script.toml\nwork/log.txt", "log.txt"]


def test_a_workspace_in_its_own_store_is_refused(script: Path, tmp_path: Path) -> None:
    with compose.store(tmp_path / "store") as kept:
        (tmp_path / "link").symlink_to("store")
        for workspace in ("store", "store/running", "link"):
            with pytest.raises(UsageError, match="lies in the store"):
                live.agent(
                    kept, live.model("scripted", script=script), tmp_path / workspace, live.Manner(is_unsandboxed=True)
                )
        assert kept.log.sessions() == []


def test_a_workspace_that_is_none_leaves_no_session(script: Path, tmp_path: Path) -> None:
    with compose.store(tmp_path / "store") as kept:
        with pytest.raises(BadInput, match="is not a folder"):
            live.agent(kept, live.model("scripted", script=script), tmp_path / "none")
        assert kept.log.sessions() == []


def test_a_window_that_cannot_be_governed_is_refused_with_the_numbers(script: Path, tmp_path: Path) -> None:
    with compose.store(tmp_path / "store") as kept:
        agent = live.agent(
            *(
                kept,
                live.model("scripted", script=script, context_limit=100),
                tmp_path,
                live.Manner(is_unsandboxed=True),
            )
        )
        agent.say("Hello.")
        with pytest.raises(OverBudget, match="raise --context-limit to at least"):
            agent.run()
