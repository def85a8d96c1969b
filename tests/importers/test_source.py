from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from transom.errors import BadInput
from transom.importers import container
from transom.importers import source as source_module
from transom.importers.draft import Note, Quarantined
from transom.importers.mending import decode, values
from transom.importers.source import RECORD_BYTES, Record, Source, open_source

__all__: list[str] = []


class Row(msgspec.Struct):
    name: str = ""
    number: int = 0
    rest: msgspec.Raw = msgspec.Raw(b"")
    inner: list[str] = []
    table: dict[str, tuple[str, ...]] = {}


ROW = msgspec.json.Decoder(Row)
LINES = b'{"name":"a"}\n{"name":"b"}\n'


def written(path: Path, data: bytes) -> Source:
    path.write_bytes(data)
    return open_source(path)


def read(source: Source) -> list[str]:
    """Names of the records, and `?line` or `!text` for what is none."""
    found: list[str] = []
    for item in source.lines(ROW):
        match item:
            case Record():
                found.append(item.value.name)
            case Quarantined():
                found.append(f"?{item.line}")
            case Note():
                found.append(f"!{item.text.split(',')[0]}")
    return found


def tarred(**members: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def zipped(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/"), data)
    return out.getvalue()


@pytest.mark.parametrize("name", ["plain.jsonl", "lies.zip", "bare"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_packing_is_told_by_the_first_bytes_not_the_name(tmp_path: Path, name: str, pack: type[bytes]) -> None:
    source = written(tmp_path / name, pack(LINES))
    assert read(source) == ["a", "b"]
    assert source.head() == LINES
    assert source.read() == LINES
    assert not source.is_container
    assert source.members() == {}
    assert source.fingerprint() == written(tmp_path / "other", LINES).fingerprint()


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstandard.compress])
def test_a_tar_has_members_packed_or_not(tmp_path: Path, pack: type[bytes]) -> None:
    source = written(tmp_path / "x", pack(tarred(run__b=LINES, run__a=gzip.compress(LINES), top=b"{}")))
    assert list(source.members()) == ["run/a", "run/b", "top"]
    assert read(source.members()["run/a"]) == ["a", "b"]
    assert source.members()["run/b"].name == f"{tmp_path}/x!run/b"
    assert source.head() == b""


def test_a_zip_has_members_and_an_archive_in_it_is_opened_too(tmp_path: Path) -> None:
    source = written(tmp_path / "x", zipped(run__in=zipped(deep=LINES), top=LINES))
    inner = source.members()["run/in"]
    assert inner.is_container
    assert read(inner.members()["deep"]) == ["a", "b"]


def test_a_folder_has_members_children_and_files_beside(tmp_path: Path) -> None:
    (tmp_path / "run" / "deep").mkdir(parents=True)
    (tmp_path / "run" / "b.jsonl").write_bytes(LINES)
    (tmp_path / "run" / "deep" / "c.jsonl.gz").write_bytes(gzip.compress(LINES))
    (tmp_path / "a.jsonl").write_bytes(LINES)
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    source = open_source(tmp_path)
    assert source.is_folder
    assert list(source.members()) == ["a.jsonl", "run/b.jsonl", "run/deep/c.jsonl.gz"]
    first, run = source.children()
    assert (first.name, run.name) == (f"{tmp_path}/a.jsonl", f"{tmp_path}/run")
    assert [child.name for child in run.children()] == [f"{tmp_path}/run/b.jsonl", f"{tmp_path}/run/deep"]
    assert run.children()[1].is_folder
    beside = source.members()["run/deep/c.jsonl.gz"].beside("c.jsonl")
    assert beside is not None
    assert read(beside) == ["a", "b"]
    assert first.beside("nothing") is None
    assert source.beside("a.jsonl") is None


def test_a_folder_in_an_archive_has_its_own_files_beside(tmp_path: Path) -> None:
    source = written(tmp_path / "x", tarred(run__a=LINES, run__b=b"{}", b=b"[]"))
    run = source.children()[1]
    assert run.name == f"{tmp_path}/x!run"
    beside = run.members()["a"].beside("b")
    assert beside is not None
    assert beside.read() == b"{}"


def test_a_fingerprint_can_be_of_the_first_bytes(tmp_path: Path) -> None:
    short, long = written(tmp_path / "a", LINES), written(tmp_path / "b", LINES + LINES)
    assert long.fingerprint(len(LINES)) == short.fingerprint()
    assert long.fingerprint() != short.fingerprint()


def test_a_folders_fingerprint_is_over_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    written(tmp_path / "f" / "a", LINES)
    before = open_source(tmp_path / "f").fingerprint()
    assert before == open_source(tmp_path / "f").fingerprint()
    (tmp_path / "f" / "a").rename(tmp_path / "f" / "b")
    assert open_source(tmp_path / "f").fingerprint() != before


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n\r\n \n", []),
        (b'\xef\xbb\xbf{"name":"a"}\r\n{"name":"b"}', ["a", "b"]),
        (b'\0\0{"name":"a"}\0\n', ["a", "!1 lines were mended: bytes that are no UTF-8"]),
        (b'{"name":"a"}{"name":"b"}\n', ["!line 1 holds 2 values", "a", "b"]),
        (b'{"name":"a"} {"name":\n{"name":"b"}\n', ["a", "?1", "b"]),
        (
            b'{"name":"a"}\n{"na',
            ["a", "!the last line (2) is torn: the file was copied while it was being written", "?2"],
        ),
        (b'{"name":3}\nnonsense\n{"name":"b"}\n', ["?1", "?2", "b"]),
        (b'{"rest":' + b"[" * 10_000 + b"]" * 10_000 + b'}\n{"name":"b"}\n', ["?1", "b"]),
        (b'{"name":"a\xff"}\n', ["a\ufffd", "!1 lines were mended: bytes that are no UTF-8"]),
        (b'{"name":"a\x00b","rest":NaN}\n', ["a\0b", "!1 lines were mended: bytes that are no UTF-8"]),
    ],
)
def test_odd_lines_are_read_or_named(tmp_path: Path, data: bytes, expected: list[str]) -> None:
    assert read(written(tmp_path / "x", data)) == expected


def test_a_quarantined_line_says_the_field_and_keeps_its_text(tmp_path: Path) -> None:
    source = written(tmp_path / "x", b'{"name":"a"}\n{"name":3}\n')
    (item,) = (item for item in source.lines(ROW) if isinstance(item, Quarantined))
    assert item == Quarantined(
        line=2, why="not of the expected shape: Expected `str`, got `int` - at `$.name`", raw='{"name":3}'
    )


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_utf_16_is_read_with_and_without_its_mark(tmp_path: Path, encoding: str) -> None:
    source = written(tmp_path / "x", '{"name":"zwölf"}\r\n{"name":"两"}\n'.encode(encoding))
    assert read(source) == ["zwölf", "两"]
    assert source.head().lstrip(b"\xef\xbb\xbf").startswith(b'{"name":"zw')
    document = written(tmp_path / "y", '{"name":"两"}'.encode(encoding))
    assert document.document(ROW).name == "两"


def test_a_line_over_the_limit_is_quarantined_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "RECORD_BYTES", 1 << 20)
    bomb = gzip.compress(b'{"name":"' + b"x" * (5 << 20) + b'"}\n{"name":"b"}\n' + b" " * (3 << 20))
    items = list(written(tmp_path / "x", bomb).lines(ROW))
    assert [item.value.name for item in items if isinstance(item, Record)] == ["b"]
    (first, last) = (item for item in items if isinstance(item, Quarantined))
    assert (first.line, last.line) == (1, 3)
    assert first.why == "larger than 1 MiB: not read; the first 65536 bytes are kept"
    assert len(first.raw) == 65536
    assert RECORD_BYTES == 64 << 20


def test_a_cut_gzip_gives_what_it_has_and_says_so(tmp_path: Path) -> None:
    lines = b"".join(b'{"name":"%d"}\n' % number for number in range(20_000))
    source = written(tmp_path / "x", gzip.compress(lines)[:-2000])
    found = read(source)
    assert found[:2] == ["0", "1"]
    assert found[-1].startswith("!the compressed stream is cut or damaged after line")
    with pytest.raises(BadInput, match="truncated or damaged"):
        source.read()
    assert source.fingerprint().size < len(lines)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty; nothing to import"),
        (b'{"name":"a"', "line 1, column 12: the document is truncated"),
        (b'{\n"name": "a', "line 2, column 9: the document is truncated"),
        (b'{"name":3}', r"at `\$.name`; export the session again"),
        (b'{\n"name" 3}', r"line 2, column 8: no JSON"),
        (b"\x00\x01\x02", "no JSON"),
        (b'{"rest":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested too deep"),
        (b'{"name":"a"} x', "line 1, column 14: no JSON"),
    ],
)
def test_an_unusable_document_is_a_sentence_with_its_place(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        written(tmp_path / "x.json", data).document(ROW)
    assert str(caught.value).startswith(f"{tmp_path}/x.json: ")


def test_a_document_over_the_limit_is_refused(tmp_path: Path) -> None:
    source = written(tmp_path / "x", gzip.compress(b"[" + b" " * (3 << 20)))
    with pytest.raises(BadInput, match="larger than 1 MiB when unpacked"):
        source.read(1 << 20)


def test_a_packed_tar_over_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "ARCHIVE_BYTES", 1 << 20)
    source = written(tmp_path / "x", gzip.compress(tarred(a=bytes(3 << 20))))
    with pytest.raises(BadInput, match="when unpacked"):
        source.members()


def test_a_damaged_archive_is_a_sentence(tmp_path: Path) -> None:
    whole = zipped(a=LINES)
    with pytest.raises(BadInput, match="the archive is damaged or cut"):
        written(tmp_path / "x", whole[:-10]).members()
    bad = written(tmp_path / "y", whole.replace(whole[35:40], b"\xff" * 5, 1)).members()["a"]
    with pytest.raises(BadInput, match=r"cannot be read .* check the file"):
        bad.read()


def test_a_damaged_zstd_stream_is_a_sentence(tmp_path: Path) -> None:
    packed = bytearray(zstandard.compress(os.urandom(4096)))
    packed[6:20] = b"\xff" * 14
    with pytest.raises(BadInput, match="truncated or damaged"):
        written(tmp_path / "x", bytes(packed)).read()


def test_zstd_without_its_extra_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = written(tmp_path / "x", zstandard.compress(LINES))
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(BadInput, match=r"install transom\[zst\]"):
        source.head()


def test_what_cannot_be_opened_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file or folder"):
        open_source(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match="is no regular file"):
        open_source(tmp_path / "pipe")
    with pytest.raises(BadInput, match="name a file inside it"):
        open_source(tmp_path).read()


def test_a_lone_surrogate_is_kept_wherever_it_stands() -> None:
    data = b'{"name":"\\ud83d \\ud83d\\ude00 \\\\ud83d","rest":{"q":"\\udead"},"inner":["\\udead"],"table":{"\\ud83d":["x\\ud83d"]}}'
    row, is_mended = decode(data, ROW)
    assert is_mended
    assert row.name == "\ud83d \U0001f600 \\ud83d"
    assert bytes(row.rest) == b'{"q":"\\udead"}'
    assert row.inner == ["\udead"]
    assert row.table == {"\ud83d": ("x\ud83d",)}


@given(st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.none()), max_size=4), st.binary(max_size=8))
def test_values_on_one_line_are_cut_exactly(found: list[dict[str, object]], rest: bytes) -> None:
    parts = [msgspec.json.encode(value) for value in found]
    spans, left = values(b" ".join(parts) + b"?" + rest)
    assert spans == parts
    assert left == b"?" + rest


@given(st.binary(max_size=200))
def test_no_bytes_make_a_reader_fail(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    source = written(tmp_path_factory.mktemp("any") / "x", data)
    source.head()
    if source.is_container:
        with pytest.raises(BadInput):
            source.members()
    else:
        list(source.lines(ROW))
        source.fingerprint()
