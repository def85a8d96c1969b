"""The docs are true: generated pages are fresh, code blocks run, commands and public names are there, links lead on."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

import make_docs
import make_sample
import transom
import transom.cli

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "AGENTS.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(language: str) -> list[tuple[str, str]]:
    """(where, text) of every fenced block of a language."""
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        matches = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        found += [(f"{named(page)}:{text[: match.start()].count(chr(10)) + 1}", match[1]) for match in matches]
    return found


@lru_cache
def all_text() -> str:
    return "\n".join(page.read_text("utf-8") for page in PAGES)


def environment(tmp_path: Path) -> dict[str, str]:
    """A person who has just installed Transom: nothing in the home directory, nothing in the store."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "TRANSOM_"))}
    return kept | {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def test_the_log_format_page_is_fresh() -> None:
    assert (ROOT / "docs" / "log-format.md").read_text("utf-8") == make_docs.log_format(), "run `make docs`"


def test_the_sample_session_is_what_its_script_makes() -> None:
    packed = (make_sample.FOLDER / make_sample.NAME).read_bytes()
    assert len(packed) < 400_000
    assert gzip.decompress(packed) == make_sample.build(), "run `python tools/make_sample.py`"


@pytest.mark.parametrize(("where", "text"), blocks("python"), ids=[where for where, _ in blocks("python")])
def test_python_in_the_docs_runs_and_runs_again(where: str, text: str, tmp_path: Path) -> None:
    for which in ("first", "second"):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", text],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{where}, {which} run: {done.stderr}"


@pytest.mark.parametrize(("where", "text"), blocks("console"), ids=[where for where, _ in blocks("console")])
def test_commands_in_the_docs_run(where: str, text: str, tmp_path: Path) -> None:
    """Lines that begin with `$ transom`, one after the other, in an empty folder and with an empty store."""
    for line in text.splitlines():
        if line.startswith("$ transom "):
            done = subprocess.run(
                line.removeprefix("$ "),
                shell=True,
                cwd=tmp_path,
                env=environment(tmp_path),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            assert done.returncode == 0, f"{where}: {line}: {done.stdout}{done.stderr}"


@pytest.mark.parametrize("command", sorted(transom.cli.COMMANDS))
def test_every_command_is_documented(command: str) -> None:
    assert f"transom {command}" in all_text(), f"README.md or docs/ say what `transom {command}` does"


@pytest.mark.parametrize("name", getattr(transom, "__all__", []))
def test_every_public_name_is_documented(name: str) -> None:
    assert re.search(rf"`[^`\n]*\b{name}\b[^`\n]*`|^(?:from|import) .*\b{name}\b", all_text(), re.MULTILINE), name


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_and_paths_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{named(page)}: {target} is not there"


def test_pages_keep_their_length() -> None:
    """One screen, one page: what is longer is not read."""
    limits = {"README.md": 70, "AGENTS.md": 60, "docs/architecture.md": 90}
    limits |= {named(page): 40 for page in (ROOT / "docs" / "decisions").glob("*.md")}
    for name, limit in limits.items():
        assert len((ROOT / name).read_text("utf-8").splitlines()) <= limit, f"{name} is longer than {limit} lines"
