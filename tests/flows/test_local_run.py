"""An agent on a local model. Slow: a whole run of one of half a billion parameters, many small edits and no script."""

from __future__ import annotations

import importlib.util
from contextlib import closing
from pathlib import Path

import pytest
from bench.local_model import FILES, LITERALS, work

from transom import compose, live
from transom.adapters.local import LocalProvider
from transom.agent.run import Bounds
from transom.ports import Outgoing
from transom.testing.tiny_gguf import tiny_gguf


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_a_small_model_hands_over_by_itself_and_no_prompt_passes_the_limit(real_model: Path) -> None:
    """Form is the host's to guarantee, and asserted; what the model writes and gets done is told by the benchmark."""
    worked = work(real_model, bounds=Bounds(steps=60, seconds=1800))
    handed = [one for one in worked.handoffs if one.cause == "model"]
    assert len(handed) >= 3
    assert all(one.words.startswith('{"handoff": {"requirements": [') for one in handed)
    assert worked.problem == ""
    assert max(one.prompt for one in worked.sent) <= worked.hard
    assert not [one for one in worked.sent if one.verdict.startswith("drift")]
    # The user's literals stand in every window, whatever the model handed over; what a file said is one recall away.
    by_user = {"SHA", "error code", "path", "prohibition"}
    assert all(by_user <= set(one.shown) for one in worked.handoffs)
    assert worked.recallable == tuple(LITERALS)
    # The runtime reuses what the bytes promise; an answer generated in other tokens than its text has costs itself.
    assert all(one.cached <= one.expected + 1 for one in worked.sent)
    assert sum(one.cached for one in worked.sent) > 0.98 * sum(one.expected for one in worked.sent)
    assert worked.is_kept
    assert len(worked.left) < FILES // 2


def test_the_first_prompt_of_a_local_agent_is_hardly_smaller_than_the_host_thinks(tmp_path: Path) -> None:
    """Tools stand in it as signatures; counted as schemas they would be a fifth of a small window too many."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp absent: pip install 'transom[local]'")
    chosen = live.model("local", str(tiny_gguf(tmp_path / "tiny.gguf", context=32_768)), context_limit=32_768)
    with closing(chosen), compose.store(tmp_path / "store") as kept:
        made = live.agent(kept, chosen, tmp_path, live.Manner(is_unsandboxed=True))
        made.say("hi")
        prepared = made.session.request()
        request = Outgoing(wire=prepared.wire, model=chosen.name, max_output_tokens=100)
        assert isinstance(chosen.provider, LocalProvider)
        count = chosen.provider.count(request)
    assert count < prepared.tokens < 1.3 * count
