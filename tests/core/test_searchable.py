from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.core.block import Image, Opaque, Text, Thought, ToolCall, ToolResultRef
from transom.core.event import (
    BlockReplaced,
    EpochOpened,
    Fact,
    Handoff,
    HostSaid,
    Inference,
    ModelReplied,
    RelatedFile,
    Replacement,
    Requirement,
    RolloverDeclared,
    Section,
    Seed,
    TodoChanged,
    TodoItem,
    Tool,
    ToolReturned,
    WindowOpened,
)
from transom.core.searchable import EXCERPT, excerpt, find, fold_case, phrases, prepare, text_of
from transom.testing.strategies import FACT_TYPES, of, texts


def proposes(text: str, query: str) -> bool:
    """Whether an index of the prepared text proposes it for the query."""
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE words USING fts5 (said, content='', tokenize='unicode61')")
    db.execute("INSERT INTO words (rowid, said) VALUES (1, ?)", (prepare(text),))
    found = any(
        db.execute("SELECT rowid FROM words WHERE words MATCH ?", (each,)).fetchall() for each in phrases(query)
    )
    db.close()
    return found


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("请压缩上下文窗口", "压缩"),
        ("请压缩上下文窗口", "下文窗"),
        ("调用API接口2次", "API接口2"),
        ("カタカナと한국어", "한국"),
        ("class HTTPServerError(Exception):", "ServerError(Exc"),
        ("class HTTPServerError(Exception):", "httpservererror"),
        ("class HTTPServerError(Exception):", "HTTPServ"),
        ("parseConfig2Value", "Config2"),
        ("the tool_call_id of", "call_id"),
        ("src/core/budget.py:120", "budget.py:12"),
        ("sha 3f9ac02be77d", "3f9ac02"),
        ('say "quoted" words', '"quoted" wo'),
        ("nul\0inside", "nul\0in"),
        ("ERROR: E4711", "E4711"),
    ],
)
def test_the_index_proposes_what_starts_at_a_word(text: str, query: str) -> None:
    assert proposes(text, query)
    assert find(text, fold_case(query)) >= 0


@given(texts(), st.text(alphabet='"*+-^:(){} \0ab的', max_size=6))
def test_no_text_and_no_query_breaks_the_index(text: str, query: str) -> None:
    proposes(text, query)
    assert (
        proposes(text, text)
        or not any(char.isalnum() for char in text)
        or text != fold_case(text)
        or not text.isascii()
    )


@given(texts())
def test_folding_keeps_every_character_in_its_place(text: str) -> None:
    folded = fold_case(text)
    assert len(folded) == len(text)
    assert fold_case(folded) == folded
    for start in range(len(text)):
        assert find(text, fold_case(text[start:])) >= 0


def test_case_is_folded_one_character_for_one() -> None:
    assert fold_case("İSTANBUL") == "istanbul"
    assert fold_case("ΟΔΟΣ") == "οδοσ"
    assert find("xİABC", "abc") == 2


@given(st.text(max_size=900), st.integers(0, 900), st.integers(0, 400))
def test_an_excerpt_is_a_piece_of_the_text_with_the_literal_in_it(text: str, offset: int, length: int) -> None:
    offset = min(offset, len(text))
    literal = text[offset : offset + length]
    shown = excerpt(text, offset, len(literal))
    assert len(shown) == min(EXCERPT, len(text))
    assert shown in text
    assert literal[:EXCERPT] in shown


def test_texts_are_found_where_a_reader_would_look() -> None:
    call = ToolCall(call_id="c", name="grep", arguments='{"q": "x"}')
    reply = ModelReplied(blocks=(Thought(text="hm"), Text(text="said"), call, Opaque(kind="k", raw="hidden")))
    assert text_of(reply) == 'hm\nsaid\ngrep\n{"q": "x"}'
    ref = ToolResultRef(text="stub", artifact_id="ab")
    result = ToolReturned(call_id="c", blocks=(ref, Image(media_type="image/png", url="https://e.x/i.png")))
    assert text_of(result) == "stub\nhttps://e.x/i.png"
    assert text_of(result, lambda artifact_id: f"body {artifact_id}") == "stub\nbody ab\nhttps://e.x/i.png"
    assert text_of(ToolReturned(call_id="c", blocks=(ToolResultRef(text="stub"),)), lambda _: "never asked") == "stub"
    head = EpochOpened(sections=(Section(key="s", text="rules"),), tools=(Tool(name="t", description="does"),))
    assert text_of(head) == "rules\nt\ndoes"
    assert text_of(TodoChanged(items=(TodoItem(text="fix", status="pending"),))) == "fix"


def test_what_only_repeats_an_earlier_event_is_outside() -> None:
    words = (Text(text="words"),)
    opened = WindowOpened(
        cause="recorded",
        generation=1,
        seed=(Seed(role="user", blocks=words, of=3), Seed(role="host", blocks=(Text(text="new"),))),
    )
    assert text_of(opened) == "new"
    stub: Fact = BlockReplaced(how="mask", targets=(Replacement(seq=1, index=0, block=words[0]),))
    assert text_of(stub) == ""
    for kind in ("recall", "reminder", "fallback", "gap", "refusal", "continue"):
        assert text_of(HostSaid(kind=kind, blocks=words)) == ""
    assert text_of(HostSaid(kind="injected", blocks=words)) == "words"


def test_a_handoff_is_searched_in_all_its_sections() -> None:
    declared = RolloverDeclared(
        call_id="c",
        handoff=Handoff(
            requirements=(Requirement(text="r", source="u"),),
            inferences=(Inference(text="i"),),
            conflicts=("c",),
            unverified=("v",),
        ),
        related_files=(RelatedFile(path="a.py", role="test", note="n"),),
    )
    assert text_of(declared) == "r\ni\nc\nv\na.py\nn"


@pytest.mark.parametrize("kind", FACT_TYPES, ids=lambda kind: kind.__name__)
@given(st.data())
def test_no_fact_is_forgotten(kind: type[Fact], data: st.DataObject) -> None:
    assert isinstance(text_of(data.draw(of(kind)), lambda _: "body"), str)
