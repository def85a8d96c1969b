"""Which value of a setting wins, where it comes from, and what a repository may not decide."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from transom.cli.settings import KEYS, settle, user_file
from transom.core.policy import PRESETS
from transom.errors import BadInput, UsageError

from .conftest import Run


@pytest.fixture(autouse=True)
def mine(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own file, in a home with nothing else."""
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    path = user_file()
    assert home in path.parents
    path.parent.mkdir(parents=True)
    return path


def test_each_source_wins_over_the_ones_behind_it(mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(flag: str | None = None, session: str = "") -> tuple[str, str]:
        said = settle({"model": flag}, tmp_path, {"model": session}).values["model"]
        return said.value, said.origin

    assert found() == ("", "default")
    mine.write_text('model = "mine"\n')
    assert found() == ("mine", str(mine))
    (tmp_path / ".transom.toml").write_text('model = "project"\n')
    assert found() == ("project", str(tmp_path / ".transom.toml"))
    monkeypatch.setenv("TRANSOM_MODEL", "env")
    assert found() == ("env", "TRANSOM_MODEL")
    assert found(session="session") == ("session", "session")
    assert found(flag="flag", session="session") == ("flag", "flag")


@pytest.mark.parametrize("key", sorted(key for key, one in KEYS.items() if not one.is_project))
def test_a_repository_does_not_decide_where_keys_go_or_what_runs_unasked(mine: Path, tmp_path: Path, key: str) -> None:
    (tmp_path / ".transom.toml").write_text(f'{key} = "x"\n')
    with pytest.raises(BadInput, match=rf"\.transom\.toml: {key}: may not stand in a project's file"):
        settle({}, tmp_path)
    (tmp_path / ".transom.toml").unlink()
    mine.write_text(f'{key} = "x"\n')
    assert settle({}, tmp_path).text(key) == "x"


@pytest.mark.parametrize(
    ("theirs", "own", "found"),
    [("0", "2.5", "2.5"), ("100", "2.5", "2.5"), ("1", "2.5", "1"), ("100", "0", "100"), ("x", "2", "x")],
)
def test_a_repository_may_tighten_a_bound_of_the_users_own_and_not_loosen_it(
    mine: Path, tmp_path: Path, theirs: str, own: str, found: str
) -> None:
    (tmp_path / ".transom.toml").write_text(f'max_spend = "{theirs}"\n')
    mine.write_text(f'max_spend = "{own}"\n')
    assert settle({}, tmp_path).text("max_spend") == found
    assert settle({"max_spend": "9"}, tmp_path).text("max_spend") == "9"


def test_a_file_that_begins_with_a_byte_order_mark_is_read(mine: Path, tmp_path: Path) -> None:
    mine.write_bytes(b'\xef\xbb\xbfmodel = "m"\r\n')
    assert settle({}, tmp_path).text("model") == "m"


def test_a_repository_does_not_bring_its_own_model(tmp_path: Path) -> None:
    (tmp_path / ".transom.toml").write_text('model = "./kind.GGUF"\n')
    with pytest.raises(BadInput, match="model: may not stand in a project's file"):
        settle({}, tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour = 1", r"colour: is no setting; there are provider, model"),
        ("model = [1]", r"model: is a list, a table or a date"),
        ("model = ", r"cannot be read as settings"),
        ("model = '\\udcff", r"cannot be read as settings"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_field(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / ".transom.toml").write_text(text)
    with pytest.raises(BadInput, match=rf"\.transom\.toml: {said}"):
        settle({}, tmp_path)


def test_values_are_read_as_what_they_are_or_refused_with_their_origin(mine: Path, tmp_path: Path) -> None:
    mine.write_text('network = true\nmax_steps = 7\nmax_spend = 0.25\ncontext_limit = "64k"\npolicy = "gssc"\n')
    found = settle({}, tmp_path)
    assert found.flag("network")
    assert not found.flag("unsandboxed")
    assert (found.number("max_steps"), found.microusd(), found.tokens()) == (7, 250_000, 64_000)
    assert found.policy() is PRESETS["gssc"]
    wrong = 'network = "perhaps"\nmax_steps = "few"\nmax_spend = -1\npolicy = "recorded"\napprove = "never"\n'
    mine.write_text(wrong + 'context_limit = "12x"\n')
    found = settle({}, tmp_path)
    for read, said in (
        (lambda: found.flag("network"), "network = 'perhaps'"),
        (lambda: found.number("max_steps"), "max_steps = 'few'"),
        (found.microusd, "max_spend = '-1'"),
        (found.policy, "policy = 'recorded'"),
        (found.approval, "approve = 'never'"),
        (found.tokens, "context_limit = '12x'"),
        (settle({"max_steps": "0.5"}, tmp_path).steps, "max_steps = '0.5'"),
    ):
        with pytest.raises(UsageError, match=said) as caught:
            read()
        assert (str(mine) if "0.5" not in said else "(flag)") in str(caught.value)


def test_a_path_in_a_file_is_meant_from_where_the_file_stands(mine: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "own.toml").write_text('name = "own"\nwhen = "watermark"\nhow = "mask"\n')
    (work / ".transom.toml").write_text('policy = "own.toml"\n')
    assert settle({}, work).policy().name == "own"


def test_the_command_shows_values_origins_files_and_keys(
    run: Run, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-value")
    mine.write_text('model = "mi\\u001bne"\nmax_steps = 7\n')
    shown = run("config")
    assert shown.code == 0
    assert "secret-value" not in shown.out
    assert "\x1b" not in shown.out
    assert "OPENAI_API_KEY" in shown.out
    found = json.loads(run("config", "--json", "--workspace", tmp_path).out)
    assert found["settings"]["max_steps"] == {"value": "7", "origin": str(mine)}
    assert found["settings"]["store"]["origin"] == "TRANSOM_HOME"
    assert found["files"] == {str(tmp_path / ".transom.toml"): False, str(mine): True}
    assert found["keys"]["OPENAI_API_KEY"] is True
    assert set(found["settings"]) == {*KEYS, "store"}


@pytest.mark.parametrize("width", ["60", "80", "200"])
def test_no_path_is_broken_where_the_terminal_is_narrow(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    store = tmp_path / "a-folder-with-a-name" / "that-is-longer-than" / "what-a-narrow-terminal-shows-in-one-line"
    monkeypatch.setenv("TRANSOM_HOME", str(store))
    shown = run("config").out
    assert f"{store}  TRANSOM_HOME" in shown
    assert str(tmp_path / ".transom.toml") in shown
