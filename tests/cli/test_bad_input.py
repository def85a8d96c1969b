"""Input that cannot be used ends in one sentence and exit code 2; what is usable of it is kept."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

import pytest

from .conftest import Run, claude_lines

GOOD = "\n".join(claude_lines(3)) + "\n"


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("empty.jsonl", b"", "is empty"),
        ("blank.jsonl", b"\n\n  \n", "is empty"),
        ("words.txt", b"Dear diary, today I wrote no transcript.", "is no transcript of a known format"),
        ("other.json", b'{"name": "package", "version": "1.0"}', "is no transcript of a known format"),
        ("binary.bin", random.Random(1).randbytes(4000), "is binary"),
        ("nul.jsonl", b"\0" * 500, "is binary"),
        ("bad.gz", b"\x1f\x8b" + random.Random(1).randbytes(100), "truncated or damaged archive"),
        ("bad.zst", b"\x28\xb5\x2f\xfd" + random.Random(1).randbytes(100), "truncated or damaged archive"),
        ("deep.json", b"[" * 10_000, "is no transcript"),
        ("deep.jsonl", b'{"type":"user","message":' + b"[" * 10_000 + b"]" * 10_000 + b"}\n", ""),
        ("cut.json", b'{"info": {"id": "ses_1", "projectID": "p"}, "messages": [{"info": {"ro', "truncated"),
        ("surrogate.json", b'{"info": {"id": "ses_1", "title": "\\ud83d"}, "messages": 3}', "messages"),
    ],
)
def test_a_file_that_is_no_transcript_is_named_with_what_to_do(
    run: Run, tmp_path: Path, name: str, data: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(data)
    done = run("replay", name)
    assert done.code == 2
    assert name in done.err
    assert said in done.err
    assert done.out == ""
    assert run("verify").code == 0


def test_a_missing_file_is_named(run: Run) -> None:
    done = run("replay", "absent.jsonl")
    assert done.code == 2
    assert "absent.jsonl" in done.err


def test_an_empty_folder_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    done = run("replay", "nothing")
    assert done.code == 2
    assert "nothing" in done.err


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("torn.jsonl", GOOD.encode()[:-150]),
        ("joined.jsonl", GOOD.replace("}\n{", "}{", 1).encode()),
        ("nul.jsonl", GOOD.encode().replace(b"Retry-After", b"Retry\\u0000After")),
        ("raw-nul.jsonl", GOOD.encode() + b"\0\0\0\0"),
        ("latin.jsonl", GOOD.encode().replace(b"handler", b"h\xe9ndler")),
        ("utf16.jsonl", GOOD.encode("utf-16")),
        ("crlf.jsonl", GOOD.replace("\n", "\r\n").encode()),
        ("bad-line.jsonl", GOOD.encode() + b"this is no JSON\n" + b"[" * 10_000 + b"\n"),
        ("surrogate.jsonl", GOOD.encode().replace(b"handler", b"\\ud83d")),
        ("twice.jsonl", (GOOD + GOOD).encode()),
        ("no-calls.jsonl", "\n".join(line for line in GOOD.splitlines() if '"toolu_1", "name"' not in line).encode()),
        ("no-results.jsonl", "\n".join(line for line in GOOD.splitlines() if '"tool_result"' not in line).encode()),
        ("negative.jsonl", GOOD.replace('"input_tokens": 10', '"input_tokens": -10').encode()),
        ("unused.jsonl", GOOD.replace('"usage"', '"usages"').encode()),
        ("backwards.jsonl", GOOD.replace("T08:00:04", "T01:00:04").encode()),
        ("packed.gz", gzip.compress(GOOD.encode())),
        ("cut.gz", gzip.compress(GOOD.encode())[:-40]),
    ],
)
def test_what_is_usable_of_an_odd_file_is_replayed(run: Run, tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    done = run("replay", name, "--json", "-", "--context-limit", "32k")
    assert done.code == 0, done.err
    for one in json.loads(done.out):
        assert one["steps"] >= 2
        assert (one["unpaired_calls"], one["undeclared_misses"]) == (0, 0)
    assert run("verify").code == 0


def test_what_could_not_be_read_is_said_by_line(run: Run, tmp_path: Path) -> None:
    (tmp_path / "odd.jsonl").write_text(
        GOOD + "this is no JSON\n" + '{"type": "hologram", "uuid": "h", "sessionId": "s"}\n'
    )
    done = run("replay", "odd.jsonl", "--arms", "raw")
    assert done.code == 0
    assert "line 8" in done.err
    assert "hologram" in done.err


def test_an_unwritable_place_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(GOOD)
    done = run("replay", "a.jsonl", "--store", "/proc/transom-cannot-be-here")
    assert done.code == 1
    assert "/proc/transom-cannot-be-here" in done.err


@pytest.mark.parametrize("call", [(), ("--help",), ("replay", "--help"), ("--version",)])
def test_help_is_no_error(run: Run, call: tuple[str, ...]) -> None:
    done = run(*call)
    assert done.code == 0
    assert "transom" in done.out


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("run", "--help"), "1 when a bound ended it"),
        (("replay", "--help"), "a sample that ships with Transom"),
        (("export", "--help"), "it exits 1"),
        (("gateway", "--help"), "[default: 4141]"),
    ],
)
def test_help_on_a_command_says_all_that_is_written_of_it(run: Run, call: tuple[str, ...], said: str) -> None:
    assert said in " ".join(run(*call).out.split())


@pytest.mark.parametrize(
    "call",
    [
        ("run", "hi", "--max-steps", "1.5"),
        ("gateway", "--port", "0.7"),
        ("gateway", "--max-mb", "1.5"),
        ("search", "x", "--limit", "1.5"),
        ("show", "--at", "2.5"),
        ("cache", "reasons", "--last", "1.5"),
    ],
)
def test_a_fraction_is_no_whole_number_and_is_not_rounded_to_one(run: Run, call: tuple[str, ...]) -> None:
    done = run(*call)
    assert done.code == 2
    assert f"{call[-1]!r} is no whole number" in done.err


@pytest.mark.parametrize(
    "call", [("reply",), ("show", "a", "b"), ("search",), ("export", "a", "b"), ("verify", "--fast")]
)
def test_a_call_that_cannot_be_understood_exits_2(run: Run, call: tuple[str, ...]) -> None:
    done = run(*call)
    assert done.code == 2
    assert "transom --help" in done.err
