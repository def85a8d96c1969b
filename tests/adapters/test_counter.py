"""Counting: exact where it says so, an honest estimate where not, and never an exception."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import random
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.counter import (
    MEMO_CHARS,
    MEMO_TEXTS,
    BpeCounter,
    HeuristicCounter,
    Prefer,
    classify,
    open_counter,
)
from transom.core.block import CONTENTS
from transom.errors import UsageError
from transom.ports import Counter

exact = pytest.mark.skipif(importlib.util.find_spec("quicktok") is None, reason="the extra `exact` is absent")

PROSE = (
    "The window above a door lets light into a room while the door stays shut. A long job works the same way: what "
    "it needs now is in front of it, and everything else waits behind the wall, in order, until somebody asks."
)
CHINESE = "横楣是门上方的窗。长时间运行的代理在干净的小窗口里工作，所有发生过的事都留在后面的持久存储里，随时可以取证。"
CODE = textwrap.dedent(
    """
    def settle(calls: list[Call], results: dict[str, Result]) -> list[Pair]:
        pairs = []
        for call in calls:
            if (result := results.get(call.id)) is None:
                raise KeyError(f"{call.name}({call.id}) has no result")
            pairs.append(Pair(call=call, result=result))
        return pairs
    """
)
JSON = '{"path": "src/app/main.py", "line": 42, "errors": [{"code": "E501", "text": "too long"}], "ok": false}'
DIFF = "@@ -1,4 +1,5 @@\n-    return a + b\n+    total = a + b  # sum\n+    return total\n"
LOG = "\n".join(
    f"2026-03-0{n} 10:1{n}:22,13{n} INFO worker-{n} request finished in {n}.4 ms, retrying" for n in range(9)
)


def _dense(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


BASE64 = base64.b64encode(_dense(1, 900)).decode()
WRAPPED = base64.encodebytes(_dense(2, 900)).decode()
HEX = _dense(3, 400).hex()

# o200k and cl100k counts by tiktoken 0.14.0 with its own rank files, computed once.
KNOWN = {
    "prose": (PROSE, 49, 49),
    "chinese": (CHINESE, 45, 62),
    "code": (CODE, 78, 77),
    "json": (JSON, 38, 38),
    "diff": (DIFF, 34, 33),
    "log": (LOG, 269, 269),
    "base64": (BASE64, 817, 858),
    "hex": (HEX, 456, 454),
    "special": ("<|endoftext|> and <|fim_prefix|>", 14, 14),
    "emoji": ("👩‍👩‍👧‍👦 🇨🇳 é e\u0301 \u202e\x00", 21, 30),
    "blank": (" \t\r\n\n  \n", 3, 3),
    "digits": ("1234567890" * 7, 24, 24),
}


@exact
@pytest.mark.parametrize("name", KNOWN)
def test_an_exact_count_is_the_known_one(name: str) -> None:
    text, o200k, cl100k = KNOWN[name]
    assert (BpeCounter("o200k").measure(text).tokens, BpeCounter("cl100k").measure(text).tokens) == (o200k, cl100k)


@exact
@pytest.mark.parametrize("vocabulary", ["o200k", "cl100k"])
def test_tiktoken_agrees_on_any_text(vocabulary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tiktoken's rank file cannot be downloaded here, so it is written from the vocabulary we count with; tiktoken
    itself refuses a file whose sha256 is not that of its own."""
    import quicktok  # noqa: PLC0415  (an extra)
    import tiktoken  # noqa: PLC0415  (slow to import)

    ours = quicktok.get_encoding(f"{vocabulary}_base")
    special = {text.encode() for text in ours.special_tokens_set}
    tokens = ((rank, ours.decode_single_token_bytes(rank)) for rank in _ranks(ours.n_vocab, ours))
    lines = [b"%s %d\n" % (base64.b64encode(token), rank) for rank, token in tokens if token not in special]
    url = f"https://openaipublic.blob.core.windows.net/encodings/{vocabulary}_base.tiktoken"
    (tmp_path / hashlib.sha1(url.encode()).hexdigest()).write_bytes(b"".join(lines))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    theirs = tiktoken.get_encoding(f"{vocabulary}_base")
    counter = BpeCounter("o200k" if vocabulary == "o200k" else "cl100k")

    dice = random.Random(4)
    texts = [text for text, _, _ in KNOWN.values()]
    texts += [_salad(dice, texts) for _ in range(300)]
    for text in texts:
        assert counter.measure(text).tokens == len(theirs.encode_ordinary(text)), repr(text)


def _ranks(size: int, encoding: object) -> Iterator[int]:
    """Ranks in use: a vocabulary may have holes before its special tokens."""
    decode = getattr(encoding, "decode_single_token_bytes")  # noqa: B009
    for rank in range(size):
        try:
            decode(rank)
        except KeyError:
            continue
        yield rank


def _salad(dice: random.Random, texts: list[str]) -> str:
    """Slices of known texts between runs of arbitrary characters."""
    out = []
    for _ in range(dice.randrange(1, 8)):
        text = dice.choice(texts)
        start = dice.randrange(len(text))
        out.append(text[start : start + dice.randrange(60)])
        top = dice.choice([0x80, 0x250, 0x3100, 0xD800])
        out.append("".join(chr(dice.randrange(top)) for _ in range(dice.randrange(12))))
    return "".join(out)


@pytest.mark.parametrize("prefer", ["auto", "o200k", "cl100k", "heuristic"])
@given(text=st.text(alphabet=st.characters()) | st.text(alphabet="\ud800\udfff a中👩", min_size=1))
def test_no_text_is_refused(prefer: Prefer, text: str) -> None:
    measure = _counter(prefer).measure(text)
    assert measure.tokens >= 0
    assert (measure.tokens == 0) == (text == "")
    assert measure.content in CONTENTS[:-1]
    assert _counter(prefer).measure(text) == measure


_OPEN: dict[str, Counter] = {}


def _counter(prefer: Prefer) -> Counter:
    """One counter a word: a vocabulary takes half a second to load."""
    return _OPEN.setdefault(prefer, open_counter(prefer))


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (PROSE, "prose"),
        (LOG, "prose"),
        ("", "prose"),
        ("ok", "prose"),
        ("Der Bär läuft über die Straße – naïve café.", "prose"),
        ("ls: cannot access the file: No such file or directory", "prose"),
        (CODE, "code"),
        (JSON, "code"),
        (DIFF, "code"),
        ("if (a[i] == b) { return f(a, b); }", "code"),
        (CHINESE, "cjk"),
        ("窓を開ける", "cjk"),
        ("창문을 여는 법을 설명합니다", "cjk"),
        (CHINESE + CODE[:200], "cjk"),
        (BASE64, "data"),
        (WRAPPED, "data"),
        (HEX, "data"),
        ("\n".join(HEX[n : n + 40] for n in range(0, 800, 40)), "data"),
        ("3.14159 2.71828 1.41421 1.61803 0.57721 2.50290 4.66920", "data"),
        ("averyveryverylongwordwithoutanyblankthatisnotdatabutletters", "prose"),
    ],
)
def test_a_text_falls_into_its_class(text: str, content: str) -> None:
    assert classify(text) == content


def test_a_long_text_is_classified_by_its_start_middle_and_end() -> None:
    assert classify(CODE * 200) == "code"
    assert classify(PROSE * 200) == "prose"
    assert classify(BASE64 * 100) == "data"
    assert classify(CODE * 3 + CHINESE * 100) == "cjk"


@exact
@pytest.mark.parametrize(
    ("text", "bound"),
    [(PROSE * 5, 0.20), (CODE * 5, 0.25), (CHINESE * 5, 0.40), (BASE64 * 3, 0.06), (HEX * 3, 0.06), (LOG, 0.20)],
    ids=["prose", "code", "chinese", "base64", "hex", "log"],
)
def test_the_heuristic_stays_within_its_stated_error(text: str, bound: float) -> None:
    truth = _counter("o200k").measure(text).tokens
    assert abs(_counter("heuristic").measure(text).tokens - truth) <= bound * truth


@exact
@pytest.mark.parametrize("text", ["a", " ", "\n", "=", "\0", "中", "👩"])
def test_five_million_characters_of_one_kind_cost_linear_time(text: str) -> None:
    counter = _counter("auto")
    counter.measure("load the vocabulary")
    spent = []
    for size in (250_000, 1_000_000):
        start = time.process_time()
        counter.measure(text * size)
        spent.append(time.process_time() - start)
    # Quadratic would be 16; the rest is room for a busy machine.
    assert spent[1] <= 9 * max(spent[0], 0.01)


@exact
def test_five_megabytes_of_base64_are_counted_in_seconds() -> None:
    text = base64.b64encode(_dense(6, 3_750_000)).decode()
    start = time.process_time()
    assert _counter("auto").measure(text).content == "data"
    assert time.process_time() - start < 5


def test_the_memo_is_bounded() -> None:
    counter = HeuristicCounter()
    for number in range(MEMO_TEXTS + 10):
        counter.measure(f"text {number}")
    counter.measure("x" * (MEMO_CHARS + 1))
    assert counter._remembered.cache_info().currsize == MEMO_TEXTS  # type: ignore[attr-defined]


def test_opening_a_counter_falls_back_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    assert open_counter("auto").name == "heuristic"
    assert open_counter("cl100k").name == "heuristic"
    assert open_counter("heuristic").name == "heuristic"
    with pytest.raises(ImportError, match="exact"):
        BpeCounter()


@exact
def test_a_counter_says_its_vocabulary() -> None:
    assert [open_counter(p).name for p in ("auto", "o200k", "cl100k")] == ["o200k", "o200k", "cl100k"]


def test_an_unknown_counter_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"'gpt'.*o200k"):
        open_counter("gpt")  # type: ignore[arg-type]


def test_importing_the_room_loads_no_vocabulary() -> None:
    code = "import sys, transom.adapters.counter; sys.exit('quicktok' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
