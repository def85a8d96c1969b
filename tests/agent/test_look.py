from __future__ import annotations

import fnmatch
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.workspace import DirWorkspace
from transom.agent import look, scan
from transom.core.block import ToolResultRaw
from transom.errors import PathEscaped
from transom.ports import Outcome

from .conftest import Call


@pytest.fixture(params=["ripgrep", "python"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both must answer alike; without ripgrep its half is skipped."""
    if request.param == "ripgrep" and not shutil.which("rg"):
        pytest.skip("ripgrep (rg) is not installed")
    if request.param == "python":
        found = shutil.which
        monkeypatch.setattr(shutil, "which", lambda name, **more: None if name == "rg" else found(name, **more))
    return str(request.param)


@pytest.fixture
def tree(root: Path) -> Path:
    """A repository that ignores some of itself."""
    subprocess.run(["git", "init", "-q", root], check=True)
    for name, text in {
        ".gitignore": "build/\n*.log\n",
        "README.md": "Read me: call fetch(url)\n",
        "src/app.py": "import os\n\ndef fetch(url):\n    return url\n",
        "src/deep/er/test_app.py": "from app import fetch\nFETCH = 1\n",
        ".github/ci.yml": "run: fetch\n",
        "build/out.py": "fetch\n",
        "noise.log": "fetch\n",
        "a name with spaces.txt": "fetch\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "data.bin").write_bytes(b"fetch\x00fetch\n")
    (root / "out").symlink_to("/etc")
    return root


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"pattern": "*.py"}, ["src/app.py", "src/deep/er/test_app.py"]),
        ({"pattern": "src/*.py"}, ["src/app.py"]),
        ({"pattern": "src/**/*.py"}, ["src/app.py", "src/deep/er/test_app.py"]),
        ({"pattern": "**/test_*.py"}, ["src/deep/er/test_app.py"]),
        ({"pattern": "*.py", "path": "src/deep"}, ["src/deep/er/test_app.py"]),
        ({"pattern": "er/*.py", "path": "src/deep"}, ["src/deep/er/test_app.py"]),
        ({"pattern": "*.{md,yml}"}, [".github/ci.yml", "README.md"]),
        ({"pattern": "[Rr]eadme*"}, []),
        ({"pattern": "./README.md"}, ["README.md"]),
        ({"pattern": "* with *"}, ["a name with spaces.txt"]),
        ({"path": "src/app.py"}, ["src/app.py"]),
    ],
)
def test_files_are_found_by_name(
    tree: Path, engine: str, call: Call, arguments: dict[str, str], names: list[str]
) -> None:
    given = call("find", **arguments)
    assert not given.is_error
    assert [line for line in given.text.splitlines() if not line.startswith("[")] == names


def test_nothing_of_git_and_nothing_ignored_is_found(tree: Path, engine: str, call: Call) -> None:
    lines = call("find").text.splitlines()
    assert ".github/ci.yml" in lines
    assert not [line for line in lines if line.startswith((".git/", "build", "out/")) or line.endswith(".log")]


def test_lines_are_found_by_a_pattern_in_the_order_of_paths(tree: Path, engine: str, call: Call) -> None:
    assert call("grep", pattern=r"fetch\(?").text.splitlines() == [
        ".github/ci.yml:1:run: fetch",
        "README.md:1:Read me: call fetch(url)",
        "a name with spaces.txt:1:fetch",
        "src/app.py:3:def fetch(url):",
        "src/deep/er/test_app.py:1:from app import fetch",
    ]


def test_a_search_is_narrowed_by_path_name_and_case(tree: Path, engine: str, call: Call) -> None:
    assert call("grep", pattern="^FETCH").text == "src/deep/er/test_app.py:2:FETCH = 1"
    assert len(call("grep", pattern="FETCH", ignore_case=True, path="src").text.splitlines()) == 3
    assert call("grep", pattern="fetch", glob="*.md").text == "README.md:1:Read me: call fetch(url)"
    assert call("grep", pattern="fetch", path="README.md").text == "README.md:1:Read me: call fetch(url)"
    assert call("grep", pattern="nowhere").text == "[no line below . matches]"


def test_what_is_no_regular_expression_is_looked_for_to_the_letter(tree: Path, engine: str, call: Call) -> None:
    given = call("grep", pattern="fetch(")
    assert given.text.splitlines() == [
        "[not a regular expression: looked for to the letter]",
        "README.md:1:Read me: call fetch(url)",
        "src/app.py:3:def fetch(url):",
    ]


@pytest.mark.parametrize("pattern", ["--files", "-e", "--pre=touch x"])
def test_a_pattern_is_never_an_option(tree: Path, engine: str, call: Call, pattern: str) -> None:
    assert call("grep", pattern=pattern).text == "[no line below . matches]"
    assert "no file below" in call("find", pattern=pattern).text
    assert not (tree / "x").exists()


def test_a_page_of_matches_counts_the_rest(root: Path, engine: str, call: Call) -> None:
    for n in range(30):
        (root / f"f{n:02}.txt").write_text("".join(f"needle {i}\n" for i in range(50)))
    given = call("grep", pattern="needle")
    assert len(given.text) < 5200
    assert given.text.startswith("f00.txt:1:needle 0\n")
    shown = len(given.text.splitlines()) - 1
    assert given.text.endswith(f"[1500 lines in 30 files match, {shown} are shown; narrow pattern, path or glob]")
    for n in range(1000):
        (root / f"many{n:04}").touch()
    given = call("find", pattern="many*")
    assert len(given.text) < 5200
    assert "[1000 files match, " in given.text


def test_a_line_of_a_megabyte_is_cut(root: Path, engine: str, call: Call) -> None:
    (root / "a.js").write_text("needle" + "x" * 1_000_000 + "\n")
    given = call("grep", pattern="needle")
    assert given.text.startswith("a.js:1:needlexxx")
    assert len(given.text) < 400


def test_a_path_that_is_not_there_or_leads_out_is_told(tree: Path, engine: str, call: Call) -> None:
    for name in ("find", "grep"):
        assert "there is no such folder" in call(name, pattern="x", path="nowhere").text
        assert "leads outside" in call(name, pattern="x", path="out").text
        assert "leads outside" in call(name, pattern="x", path="..").text


def test_files_outside_a_repository_are_found_but_not_what_tools_fill(
    root: Path, engine: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(root.parent))
    for name in ("a.py", "node_modules/b.py", "src/c.py"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x = 1\n")
    lines = call("find", pattern="*.py").text.splitlines()
    assert {"a.py", "src/c.py"} <= set(lines)
    assert ("node_modules/b.py" in lines) == (engine == "ripgrep")


def test_a_pattern_that_never_ends_is_ended(root: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    found = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **more: None if name == "rg" else found(name, **more))
    monkeypatch.setattr(look, "_SECONDS", 1)
    (root / "a.txt").write_text("a" * 60 + "\n")
    began = time.monotonic()
    given = call("grep", pattern="(a+)+b")
    assert time.monotonic() - began < 10
    assert "[only what was seen in 1 s: name a folder in path]" in given.text


def test_a_program_that_the_repository_names_is_not_run(tree: Path, engine: str, call: Call) -> None:
    monitor = tree / "monitor.sh"
    monitor.write_text(f"#!/bin/sh\ntouch {tree}/ran\n")
    monitor.chmod(0o755)
    subprocess.run(["git", "-C", tree, "config", "core.fsmonitor", str(monitor)], check=True)
    assert not call("find").is_error
    assert not (tree / "ran").exists()


def test_a_program_that_stands_in_the_workspace_is_not_run(
    tree: Path, engine: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a person has it who works in an environment of the workspace."""
    folder = tree / ".venv" / "bin"
    folder.mkdir(parents=True)
    for name in ("rg", "git"):
        (folder / name).write_text(f"#!/bin/sh\ntouch {tree}/ran\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}.venv/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tree)
    assert "src/app.py" in call("find").text
    assert "src/app.py" in call("grep", pattern="fetch").text
    assert not (tree / "ran").exists()
    monkeypatch.setenv("PATH", str(folder))
    assert scan.outside(tree) == os.defpath


def test_a_program_that_would_fetch_what_a_repository_lacks_is_not_run(tree: Path, engine: str, call: Call) -> None:
    """Git reads the patterns of a `.gitignore` that is not in the working tree from its objects, and those of a partial
    clone from elsewhere."""
    git = ("git", "-C", tree)
    entry = ("--add", "--cacheinfo", f"100644,{'12' * 20},sub/.gitignore")
    settings = {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": "ssh://nowhere/x",
        "core.sshCommand": f"touch {tree}/ran;",
    }
    (tree / "sub").mkdir()
    (tree / "sub" / "new.py").write_text("")
    subprocess.run([*git, "update-index", *entry], check=True)
    subprocess.run([*git, "update-index", "--skip-worktree", "sub/.gitignore"], check=True)
    for name, value in settings.items():
        subprocess.run([*git, "config", name, value], check=True)
    assert "sub/new.py" in call("find").text
    assert not (tree / "ran").exists()


def test_the_scanner_alone_lists_and_matches(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(tree)
    assert scan.main(["files", "src"]) == 0
    sys.stdout.flush()
    assert sorted(capfdbinary.readouterr().out.split(b"\x00")) == [b"", b"src/app.py", b"src/deep/er/test_app.py"]
    assert scan.main(["lines", "src", "*.py", "i", "IMPORT OS"]) == 0
    assert scan.main(["lines", "src", "", "F", "("]) == 0
    assert scan.main(["lines", "src", "", "", "nowhere"]) == 1
    assert scan.main(["lines", "src", "", "", "("]) == 2
    sys.stdout.flush()
    out = capfdbinary.readouterr().out
    assert out.startswith(b"src/app.py\x001:import os\nsrc/app.py\x003:def fetch(url):\n")
    assert b"regex parse error" in out


def test_the_scanner_alone_walks_where_there_is_no_git(
    root: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    for name in ("a.py", "node_modules/b.py", "src/c.py"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x = 1\n")
    monkeypatch.chdir(root)
    monkeypatch.setenv("PATH", str(root))
    assert scan.main(["files", "."]) == 0
    assert scan.main(["files", "src/c.py"]) == 0
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b"a.py\x00src/c.py\x00src/c.py\x00"


@given(
    st.text(alphabet="ab*?.[]!-", max_size=8),
    st.text(alphabet="ab.-]!", min_size=1, max_size=6),
)
def test_a_glob_without_folders_is_the_standard_librarys(glob: str, name: str) -> None:
    assert bool(scan.glob_pattern(glob or "*").fullmatch(name)) == fnmatch.fnmatchcase(name, glob or "*")


@given(st.text(alphabet="abz[]!^-{},*/&|~\\\\", max_size=12) | st.text(max_size=20), st.text(max_size=20))
def test_no_glob_raises(glob: str, name: str) -> None:
    scan.glob_pattern(glob).fullmatch(name)


def test_a_glob_of_many_stars_is_answered_at_once() -> None:
    began = time.process_time()
    assert scan.glob_pattern("*a" * 400).fullmatch("x/" + "a" * 250 + "b") is None
    assert scan.glob_pattern("*a*b*c.*").fullmatch("x/aabbcc.py")
    assert time.process_time() - began < 1


@pytest.mark.slow
def test_two_hundred_thousand_files_are_searched_in_seconds(root: Path, engine: str, call: Call) -> None:
    for folder in range(400):
        (root / f"d{folder}").mkdir()
        for n in range(500):
            (root / f"d{folder}" / f"f{n}.txt").touch()
    (root / "d399" / "needle.py").write_text("needle\n")
    began = time.monotonic()
    assert call("find", pattern="needle*").text == "d399/needle.py"
    assert call("grep", pattern="needle").text == "d399/needle.py:1:needle"
    assert "[200001 files match" in call("find").text
    assert time.monotonic() - began < 60


def test_what_the_workspace_hides_is_neither_listed_nor_searched(root: Path, engine: str) -> None:
    for name in (".ssh/id", "st/log.db", "st2/a", ".sshd"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("needle\n")
    (root / "st" / "blob").write_bytes(b"needle\x00needle\n")
    workspace = DirWorkspace(
        root, stores=(root / "st",), secrets=(root / ".ssh", root / ".netrc", root.parent / "away")
    )
    assert said(look.find(workspace, look.Find(), 5000)) == ".sshd\nst2/a"
    assert said(look.grep(workspace, look.Grep(pattern="needle"), 5000)) == ".sshd:1:needle\nst2/a:1:needle"
    with pytest.raises(PathEscaped, match="kept from the model"):
        look.grep(workspace, look.Grep(pattern="needle", path=".ssh/id"), 5000)


def said(outcome: Outcome) -> str:
    (block,) = outcome.blocks
    assert isinstance(block, ToolResultRaw)
    return block.text


def test_the_end_of_a_line_is_found_before_a_carriage_return(root: Path, engine: str, call: Call) -> None:
    (root / "dos.txt").write_bytes(b"one;\r\ntwo\r\n")
    assert call("grep", pattern=";$").text == "dos.txt:1:one;"


def test_a_match_in_a_binary_file_that_was_named_is_told(root: Path, engine: str, call: Call) -> None:
    (root / "tool.bin").write_bytes(b"\x7fELF\x00 needle\n")
    (root / "t.txt").write_text("needle\n")
    note = "\n[matches in binary files: tool.bin; look at them by run: grep -a]"
    assert call("grep", pattern="needle").text == "t.txt:1:needle"
    assert call("grep", pattern="needle", path="tool.bin").text == "[no line below tool.bin matches]" + note


@pytest.mark.parametrize(
    "arguments", [{"pattern": "a\nb"}, {"pattern": "x{99999999}"}, {"pattern": "x", "glob": "[a-"}]
)
def test_what_cannot_be_looked_for_is_no_absence(root: Path, arguments: dict[str, str], call: Call) -> None:
    if not shutil.which("rg"):
        pytest.skip("ripgrep (rg) is not installed")
    (root / "a").write_text("a\nb\n")
    given = call("grep", **arguments)
    assert given.is_error
    assert given.text.startswith("Nothing was looked for: ")


def test_a_pipe_is_not_waited_for(root: Path, engine: str, call: Call) -> None:
    os.mkfifo(root / "pipe")
    began = time.monotonic()
    assert "there is no such folder or file" in call("grep", pattern="x", path="pipe").text
    assert time.monotonic() - began < 5
