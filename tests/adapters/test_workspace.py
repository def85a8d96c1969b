from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.workspace import DirWorkspace
from transom.errors import BadInput, PathEscaped


@pytest.fixture
def workspace(tmp_path: Path) -> DirWorkspace:
    root = tmp_path / "ws"
    (root / "src").mkdir(parents=True)
    (root / "src" / "a.py").write_text("one\n")
    (tmp_path / "outside.txt").write_text("secret\n")
    return DirWorkspace(root)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "is empty"),
        ("../outside.txt", "leads outside"),
        ("src/../../outside.txt", "leads outside"),
        ("..", "leads outside"),
        ("/etc/passwd", "is absolute and outside"),
        ("C:\\Windows\\system32", "Windows"),
        ("C:/Windows", "Windows"),
        ("c:x", "Windows"),
        ("\\\\server\\share", "Windows"),
        ("..\\outside.txt", "Windows"),
        ("src\\a.py", "Windows"),
        ("~/.ssh/id_rsa", "home folder"),
        ("~root/x", "home folder"),
        ("a\x00b", "control character"),
        ("a\nb", "control character"),
        ("a\x1b[2Jb", "control character"),
        ("a\x7f", "control character"),
        ("a\x85", "control character"),
        ("half\ud83d", "control character"),
        ("x" * 5000, "longer than"),
        ("é" * 3000, "longer than"),
    ],
)
def test_a_path_that_is_not_inside_is_refused_with_its_reason(workspace: DirWorkspace, path: str, reason: str) -> None:
    with pytest.raises(PathEscaped, match=reason) as refused:
        workspace.resolve(path)
    said = str(refused.value)
    assert len(said) < 700
    assert said.isprintable()


def test_an_absolute_path_inside_is_taken(workspace: DirWorkspace) -> None:
    inside = workspace.root / "src" / "a.py"
    assert workspace.resolve(str(inside)) == inside


@pytest.mark.parametrize("path", ["src/a.py", "./src/a.py", "src/../src/a.py", "src//a.py", "src/./a.py"])
def test_a_path_inside_is_the_real_one(workspace: DirWorkspace, path: str) -> None:
    assert workspace.resolve(path) == workspace.root / "src" / "a.py"
    assert workspace.text(path) == "one\n"


def test_the_workspace_itself_is_inside(workspace: DirWorkspace) -> None:
    assert workspace.resolve(".") == workspace.root
    assert workspace.text(".") is None


def test_a_path_that_is_not_there_yet_is_resolved(workspace: DirWorkspace) -> None:
    assert workspace.resolve("new/deep/x.txt") == workspace.root / "new" / "deep" / "x.txt"
    assert workspace.text("new/deep/x.txt") is None


@pytest.mark.parametrize("target", ["../outside.txt", "/etc/passwd", "..", "/"])
def test_a_link_that_leads_out_is_refused(workspace: DirWorkspace, target: str) -> None:
    (workspace.root / "link").symlink_to(target)
    with pytest.raises(PathEscaped, match="leads outside"):
        workspace.resolve("link")
    with pytest.raises(PathEscaped, match="leads outside"):
        workspace.text("link/x" if target in ("..", "/") else "link")


def test_a_link_inside_is_followed(workspace: DirWorkspace) -> None:
    (workspace.root / "link").symlink_to("src")
    assert workspace.resolve("link/a.py") == workspace.root / "src" / "a.py"


def test_a_new_file_below_a_link_that_leads_out_is_refused(workspace: DirWorkspace) -> None:
    (workspace.root / "out").symlink_to("..")
    with pytest.raises(PathEscaped):
        workspace.resolve("out/new/file.txt")


def test_a_link_to_itself_is_no_text(workspace: DirWorkspace) -> None:
    (workspace.root / "loop").symlink_to("loop")
    assert workspace.text("loop") is None


def test_a_folder_whose_name_only_starts_alike_is_outside(workspace: DirWorkspace, tmp_path: Path) -> None:
    (tmp_path / "ws-other").mkdir()
    with pytest.raises(PathEscaped):
        workspace.resolve("../ws-other/x")


def test_a_root_behind_a_link_works(workspace: DirWorkspace, tmp_path: Path) -> None:
    (tmp_path / "short").symlink_to(workspace.root)
    again = DirWorkspace(tmp_path / "short")
    assert again.root == workspace.root
    assert again.text("src/a.py") == "one\n"


def test_undecodable_bytes_are_replaced_and_a_pipe_is_no_text(workspace: DirWorkspace) -> None:
    (workspace.root / "latin").write_bytes(b"caf\xe9")
    os.mkfifo(workspace.root / "pipe")
    assert workspace.text("latin") == "caf\ufffd"
    assert workspace.text("pipe") is None


def test_a_workspace_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a folder"):
        DirWorkspace(tmp_path / "nothing")


@given(
    st.text(max_size=40) | st.lists(st.sampled_from(["..", ".", "src", "a.py", "/", "~", "C:", "\\", ""])).map("/".join)
)
def test_whatever_the_path_the_result_is_inside_or_refused(path: str) -> None:
    workspace = DirWorkspace(Path(__file__).parent)
    try:
        assert workspace.resolve(path).is_relative_to(workspace.root)
    except PathEscaped as refused:
        assert str(refused).isprintable()  # noqa: PT017 - either outcome is right


def test_the_store_in_a_workspace_is_not_reached(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to("store")
    workspace = DirWorkspace(tmp_path, stores=(tmp_path / "store",))
    for path in ("store", "store/log.db", "link/log.db", str(tmp_path / "store" / "new")):
        with pytest.raises(PathEscaped, match="where the sessions are stored"):
            workspace.resolve(path)
    assert workspace.resolve("storeroom") == tmp_path / "storeroom"


def test_keys_in_a_workspace_are_not_reached_unless_they_are_what_is_worked_on(tmp_path: Path) -> None:
    (tmp_path / ".aws" / "sso").mkdir(parents=True)
    (tmp_path / ".netrc").write_text("password")
    (tmp_path / "link").symlink_to(".aws")
    workspace = DirWorkspace(tmp_path, secrets=(tmp_path / ".aws", tmp_path / ".netrc"))
    for path in (".aws", ".aws/credentials", "link/sso", ".netrc"):
        with pytest.raises(PathEscaped, match="keys or a login"):
            workspace.resolve(path)
    assert workspace.hidden == (tmp_path / ".aws", tmp_path / ".netrc")
    inside = DirWorkspace(tmp_path / ".aws", secrets=(tmp_path / ".aws", tmp_path / ".netrc"))
    assert inside.resolve("config") == tmp_path / ".aws" / "config"
    assert inside.hidden == (tmp_path / ".netrc",)
