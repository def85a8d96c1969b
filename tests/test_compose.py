"""Where a store lies, and what compose hands out for each port."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from transom import compose
from transom.adapters.blobs import DirBlobs
from transom.core.event import Draft, SessionOpened
from transom.core.pricing import find_price
from transom.errors import BadInput


def test_the_store_is_where_the_environment_says_else_where_programs_keep_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSOM_HOME", str(tmp_path / "here"))
    assert compose.default_store_path() == tmp_path / "here"
    monkeypatch.delenv("TRANSOM_HOME")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    usual = compose.default_store_path()
    assert usual.name == "transom"
    assert tmp_path in usual.parents


def test_a_store_keeps_what_was_appended(tmp_path: Path) -> None:
    opened = Draft(fact=SessionOpened(format=1, agent="me"), uuid="a", at=1)
    with compose.store(tmp_path / "s") as kept:
        kept.log.append("one", 0, [opened])
        artifact_id = kept.blobs.put(b"body")
    with compose.store(tmp_path / "s", is_new_allowed=False) as kept:
        assert [row.session_id for row in kept.log.sessions()] == ["one"]
        assert kept.blobs.get(artifact_id) == b"body"


def test_no_store_is_made_where_none_may_be(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no store"):
        compose.store(tmp_path / "none", is_new_allowed=False)
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="a store is a folder"):
        compose.store(tmp_path / "file")


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("anthropic", "anthropic"),
        ("deepseek", "openai_chat"),
        ("openai", "openai_responses"),
        ("local", "local"),
        ("scripted", "anthropic"),
    ],
)
def test_a_stored_sessions_requests_look_as_its_provider_was_shown_them(
    tmp_path: Path, provider: str, name: str
) -> None:
    opened = SessionOpened(format=1, agent="transom", provider=provider, model="m")
    dialect = compose.sent_dialect(opened, DirBlobs(tmp_path))
    assert dialect.name == name
    recorded = msgspec.structs.replace(opened, agent="codex")
    for other in (recorded, None):
        assert compose.sent_dialect(other, DirBlobs(tmp_path)).name == "anthropic"


def test_the_other_ports_are_there() -> None:
    assert compose.counter().measure("a few words").tokens == 3
    assert compose.scratch_log().sessions() == []
    assert find_price(compose.prices(), "claude-opus-4-5").name == "claude-opus-4.5"
    assert compose.dialect_for("anthropic", "claude-opus-4-5").name == "anthropic"
    with compose.sample() as path:
        assert path.read_bytes()[:2] == b"\x1f\x8b"
