from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest

from .conftest import Call


def test_a_file_is_read_with_its_line_numbers(root: Path, call: Call) -> None:
    (root / "a.txt").write_bytes(b"one\r\ntwo\n\nfour")
    assert call("read", path="a.txt").text == "1\tone\n2\ttwo\n3\t\n4\tfour"


def test_a_range_says_where_it_stands_and_how_to_read_on(root: Path, call: Call) -> None:
    (root / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 101)))
    given = call("read", path="a.txt", offset=10, limit=2)
    assert given.text == "10\tline 10\n11\tline 11\n[lines 10-11 of 100; read on with offset=12]"
    assert call("read", path="a.txt", offset=100).text == "100\tline 100\n[lines 100-100 of 100]"


def test_pages_put_together_are_the_file(root: Path, call: Call) -> None:
    lines = [f"{'x' * (n % 90)} {n}" for n in range(1, 1001)]
    (root / "a.txt").write_text("\n".join(lines))
    seen: list[str] = []
    while len(seen) < len(lines):
        page = call("read", path="a.txt", offset=len(seen) + 1).text.splitlines()
        assert sum(map(len, page)) < 5100
        seen.extend(line.split("\t", 1)[1] for line in page if "\t" in line)
    assert seen == lines


def test_an_offset_behind_the_end_names_the_last_line(root: Path, call: Call) -> None:
    (root / "a.txt").write_text("one\ntwo\n")
    given = call("read", path="a.txt", offset=3)
    assert given.is_error
    assert given.text.startswith("a.txt has 2 lines; offset is 3.")


def test_a_line_of_a_megabyte_is_cut_and_counted(root: Path, call: Call) -> None:
    (root / "a.js").write_bytes(b"x" * 1_000_000 + b"\nshort\n")
    first, second = call("read", path="a.js").text.splitlines()
    assert first == f"1\t{'x' * 2000}…[998000 bytes more in this line]"
    assert second == "2\tshort"


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_line_one_byte_too_long_is_counted_too(root: Path, call: Call, end: bytes) -> None:
    (root / "a.txt").write_bytes(b"x" * 2001 + end)
    assert call("read", path="a.txt").text == f"1\t{'x' * 2000}…[1 bytes more in this line]"
    (root / "a.txt").write_bytes(b"x" * 2000 + end)
    assert call("read", path="a.txt").text == f"1\t{'x' * 2000}"


def test_an_empty_file_is_said_to_be_empty(root: Path, call: Call) -> None:
    (root / "a.txt").touch()
    assert call("read", path="a.txt").text == "[an empty file]"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", "is an image"),
        (b"\xff\xd8\xff\xe0", "is an image"),
        (b"GIF89a", "is an image"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "is an image"),
        (b"BM\x00\x00", "is an image"),
        (b"\x7fELF\x00\x00", "is binary (6 bytes)"),
        ("naïve".encode("utf-16"), "is UTF-16"),
    ],
)
def test_what_is_no_text_is_refused_in_a_sentence(root: Path, call: Call, data: bytes, words: str) -> None:
    (root / "x").write_bytes(data)
    for given in (call("read", path="x"), call("edit", path="x", old_string="a", new_string="b")):
        assert given.is_error
        assert words in given.text
    assert (root / "x").read_bytes() == data


def test_a_text_that_starts_like_a_bitmap_is_read(root: Path, call: Call) -> None:
    (root / "x").write_text("BMW\n")
    assert call("read", path="x").text == "1\tBMW"


def test_a_path_that_is_almost_right_is_told_the_right_one(root: Path, call: Call) -> None:
    (root / "src").mkdir()
    (root / "src" / "handler.py").touch()
    given = call("read", path="src/handlers.py")
    assert given.text == "src/handlers.py: there is no such file. Did you mean src/handler.py?"
    assert "Use find" in call("read", path="nowhere/at/all").text


def test_a_folder_and_a_pipe_are_not_opened(root: Path, call: Call) -> None:
    (root / "src").mkdir()
    os.mkfifo(root / "pipe")
    assert "is a folder; use find" in call("read", path="src").text
    assert "a pipe" in call("read", path="pipe").text
    assert "is not a file" in call("write", path="pipe", content="x").text
    assert "is not a file" in call("write", path="src", content="x").text
    assert "workspace itself" in call("write", path=".", content="x").text


def test_a_file_is_made_with_its_folders(root: Path, call: Call) -> None:
    assert call("write", path="a/b/c.txt", content="é\nx").text == "[made a/b/c.txt: 2 lines, 4 bytes]"
    assert (root / "a/b/c.txt").read_text() == "é\nx"
    assert call("write", path="a/b/c.txt", content="").text == "[replaced a/b/c.txt: 0 lines, 0 bytes]"


def test_a_replaced_file_keeps_its_mode_and_a_link_stays_a_link(root: Path, call: Call) -> None:
    (root / "tool.sh").write_text("#!/bin/sh\n")
    (root / "tool.sh").chmod(0o750)
    (root / "link").symlink_to("tool.sh")
    call("write", path="link", content="#!/bin/sh\nexit 1\n")
    assert (root / "link").is_symlink()
    assert (root / "tool.sh").read_text() == "#!/bin/sh\nexit 1\n"
    assert stat.S_IMODE((root / "tool.sh").stat().st_mode) == 0o750
    assert sorted(path.name for path in root.iterdir()) == ["link", "tool.sh"]


def test_an_edit_replaces_the_one_place_and_shows_it(root: Path, call: Call) -> None:
    (root / "a.py").write_text("def f():\n    return 1\n\n\ndef g():\n    return 2\n")
    given = call("edit", path="a.py", old_string="    return 2", new_string="    x = 2\n    return x")
    assert given.text == "[1 place changed in a.py]\n4\t\n5\tdef g():\n6\t    x = 2\n7\t    return x"
    assert (root / "a.py").read_text() == "def f():\n    return 1\n\n\ndef g():\n    x = 2\n    return x\n"


def test_an_ambiguous_edit_counts_the_places_and_changes_nothing(root: Path, call: Call) -> None:
    (root / "a.py").write_text("x = 1\ny = 1\nz = 1\n")
    given = call("edit", path="a.py", old_string="= 1", new_string="= 2")
    assert given.is_error
    assert "3 times, at lines 1, 2, 3; nothing was changed" in given.text
    assert call("edit", path="a.py", old_string="= 1", new_string="= 2", replace_all=True).text.startswith("[3 places")
    assert (root / "a.py").read_text() == "x = 2\ny = 2\nz = 2\n"


def test_places_are_counted_as_they_would_be_replaced(root: Path, call: Call) -> None:
    (root / "a.txt").write_text("aaaa\n")
    assert "2 times, at lines 1, 1;" in call("edit", path="a.txt", old_string="aa", new_string="b").text


def test_a_missed_edit_shows_the_nearest_lines(root: Path, call: Call) -> None:
    lines = [f"def f{n}(a, b):\n    return a * {n} + b\n\n" for n in range(1, 200)]
    (root / "a.py").write_text("".join(lines))
    given = call("edit", path="a.py", old_string="def f77(a,b):\n    return a*77 + b", new_string="x")
    assert given.is_error
    assert "\nlines 229-230 (" in given.text
    assert "229\tdef f77(a, b):\n230\t    return a * 77 + b\n" in given.text
    assert given.text.endswith("Copy old_string from these lines and edit again.")


def test_a_miss_in_white_space_only_is_called_that(root: Path, call: Call) -> None:
    (root / "a.py").write_text("if x:\n\treturn  1\n")
    given = call("edit", path="a.py", old_string="if x:\n    return 1", new_string="y")
    assert "lines 1-2 (differs in white space only):\n1\tif x:\n2\t\treturn  1" in given.text


def test_a_miss_with_nothing_like_it_says_to_read(root: Path, call: Call) -> None:
    (root / "a.py").write_text("alpha\n")
    given = call("edit", path="a.py", old_string="completely(different, thing)", new_string="y")
    assert given.text.endswith("Nothing there is like it: read the file and edit again.")
    (root / "a.py").write_text("")
    assert call("edit", path="a.py", old_string="x", new_string="y").is_error


def test_line_numbers_in_an_edit_are_named(root: Path, call: Call) -> None:
    (root / "a.py").write_text("one\ntwo\n")
    given = call("edit", path="a.py", old_string="1\tone\n2\ttwo", new_string="y")
    assert "carries the line numbers" in given.text


def test_an_edit_keeps_line_ends_and_bytes_it_does_not_touch(root: Path, call: Call) -> None:
    (root / "a.txt").write_bytes(b"\xef\xbb\xbfcaf\xe9\r\none\r\ntwo\r\n")
    given = call("edit", path="a.txt", old_string="one\ntwo", new_string="1\n2\n3")
    assert not given.is_error
    assert (root / "a.txt").read_bytes() == b"\xef\xbb\xbfcaf\xe9\r\n1\r\n2\r\n3\r\n"


@pytest.mark.parametrize(
    ("old", "new", "after"),
    [
        ("two", "two\nthree", b"one\r\ntwo\r\nthree\r\n"),
        ("\ntwo", "\n2\n3", b"one\r\n2\r\n3\r\n"),
        ("\n", "", b"onetwo"),
        ("\r\n", "\n", b"one\ntwo\n"),
    ],
)
def test_lines_that_are_added_end_as_those_of_the_file(
    root: Path, call: Call, old: str, new: str, after: bytes
) -> None:
    (root / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    assert not call("edit", path="dos.txt", old_string=old, new_string=new, replace_all=True).is_error
    assert (root / "dos.txt").read_bytes() == after


def test_a_miss_that_copying_would_repeat_says_why(root: Path, call: Call) -> None:
    (root / "mixed.txt").write_bytes(b"one\r\ntwo\nthree\n")
    assert "in part with CR LF" in call("edit", path="mixed.txt", old_string="one\ntwo\nthree", new_string="x").text
    (root / "latin.txt").write_bytes(b"caf\xe9\n")
    assert "no UTF-8" in call("edit", path="latin.txt", old_string="caf\ufffd", new_string="tea").text


def test_an_edit_of_nothing_into_nothing_is_refused(root: Path, call: Call) -> None:
    (root / "a.txt").write_text("same")
    assert "are the same" in call("edit", path="a.txt", old_string="same", new_string="same").text
    assert "length >= 1" in call("edit", path="a.txt", old_string="", new_string="x").text


@pytest.mark.parametrize("path", [".git/config", ".git/hooks/pre-commit", "sub/.GIT/config"])
def test_what_git_would_run_is_not_written(root: Path, call: Call, path: str) -> None:
    given = call("write", path=path, content="x")
    assert given.is_error
    assert "is git's own" in given.text
    assert not (root / path).exists()


def test_text_that_is_no_text_is_refused(root: Path, call: Call) -> None:
    assert "content holds a NUL" in call("write", path="a", content="a\x00b").text
    assert "half of a surrogate pair" in call("write", path="a", content="a\ud83d").text
    assert not (root / "a").exists()


def test_a_file_too_large_to_edit_is_left_to_run(root: Path, call: Call) -> None:
    (root / "big").write_bytes(b"x" * (16 * 1024 * 1024 + 1))
    assert "larger than" in call("edit", path="big", old_string="x", new_string="y").text


def test_a_full_disk_leaves_the_file_as_it_was(root: Path, call: Call) -> None:
    """A tmpfs of 64 kB stands for the disk; mounting one takes root."""
    disk = root / "disk"
    disk.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        assert not call("write", path="disk/a.txt", content="old\n").is_error
        given = call("write", path="disk/a.txt", content="x" * 200_000)
        assert given.is_error
        assert given.text.startswith("No space left on device")
        assert "Make room" in given.text
        assert [path.name for path in disk.iterdir()] == ["a.txt"]
        assert (disk / "a.txt").read_text() == "old\n"
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        given = call("edit", path="disk/a.txt", old_string="old", new_string="new")
        assert given.is_error
        assert given.text.startswith(("Read-only file system", "Permission denied"))
        assert "Nothing was changed. It may not be" in given.text
        assert call("read", path="disk/a.txt").text == "1\told"
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_file_and_folder_are_left_alone(root: Path, call: Call) -> None:
    (root / "a.txt").write_text("old")
    (root / "a.txt").chmod(0o444)
    assert "Permission denied" in call("write", path="a.txt", content="new").text
    (root / "a.txt").chmod(0o644)
    root.chmod(0o555)
    try:
        assert "Permission denied" in call("write", path="a.txt", content="new").text
        assert "Permission denied" in call("write", path="b/c.txt", content="new").text
    finally:
        root.chmod(0o755)
    assert (root / "a.txt").read_text() == "old"


def test_a_miss_in_a_large_file_is_answered_soon(root: Path, call: Call) -> None:
    text = "".join(f"    value_{n} = compute(value_{n - 1}, {n})  # step {n}\n" for n in range(60_000))
    (root / "a.py").write_text(text)
    began = time.process_time()
    given = call("edit", path="a.py", old_string="    value_59000 = compute(value_58999,59000) # step", new_string="")
    assert "lines 59001-59001 (" in given.text
    assert time.process_time() - began < 5  # 0.6 s where this was written
