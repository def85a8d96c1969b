from __future__ import annotations

import hashlib
import json

import msgspec
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from transom.core.canon import FORMAT, GENESIS, canonical, envelope, link, parse, plain_text
from transom.core.event import Event, Fact, decode_fact, encode_fact
from transom.testing.strategies import drafts, facts, integers, texts

_EXACT = 2**53


def is_plain(value: object) -> bool:
    """Whether RFC 8785 can say it: no lone surrogates, no integers beyond a double's exact range."""
    match value:
        case bool() | None:
            return True
        case int():
            return -_EXACT < value < _EXACT
        case str():
            return not any("\ud800" <= char <= "\udfff" for char in value)
        case list():
            return all(map(is_plain, value))
        case dict():
            return all(map(is_plain, value.values()))
        case _:
            return False


@given(facts())
def test_canonical_bytes_are_those_of_rfc_8785(fact: Fact) -> None:
    plain = json.loads(canonical(fact))
    if is_plain(plain):
        assert canonical(fact) == rfc8785.dumps(plain)


@given(texts())
def test_text_survives_whatever_it_holds(text: str) -> None:
    data = canonical(text)
    assert parse(data, msgspec.json.Decoder(str)) == text
    assert json.loads(data) == text
    assert data.isascii() or data.decode()


@given(facts())
def test_a_fact_has_one_canonical_form_however_often_it_is_read(fact: Fact) -> None:
    data = encode_fact(fact)
    again = decode_fact(data)
    assert again == fact
    assert type(again) is type(fact)
    assert encode_fact(again) == data


@given(drafts(), texts(), integers().filter(lambda seq: seq >= 0))
def test_an_envelope_is_the_canonical_form_of_the_whole_event(draft: object, name: str, seq: int) -> None:
    assert isinstance(draft, msgspec.Struct)
    fact, uuid, at = (getattr(draft, field) for field in ("fact", "uuid", "at"))
    event = {"session_id": name, "seq": seq, "uuid": uuid, "at": at, "fact": msgspec.to_builtins(fact)}
    assert envelope(name, seq, uuid, at, encode_fact(fact)) == canonical(event)


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=99), st.binary(max_size=99))
def test_the_chain_tells_what_came_before_and_what_came(previous: bytes, one: bytes, other: bytes) -> None:
    tag = b"transom-log-%d\0" % FORMAT
    assert link(previous, one) == hashlib.sha256(tag + previous + one).digest()
    assert (link(previous, one) == link(previous, other)) == (one == other)
    assert (link(previous, one) == link(GENESIS, one)) == (previous == GENESIS)


@given(texts())
def test_plain_text_can_be_encoded_and_keeps_what_could_be_before(text: str) -> None:
    plain = plain_text(text)
    assert len(plain) == len(text)
    plain.encode()
    if is_plain(text):
        assert plain == text


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b'"',
        b'{"fact":"nobody"}',
        b'{"fact":"user_said"}',
        b'{"fact":"user_said","blocks":7}',
        b"[]",
        b"\xff",
    ],
)
def test_what_is_no_fact_is_refused_by_the_decoder(data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_fact(data)


@pytest.mark.parametrize("half", [b'{"fact":"observed","kind":"\\ud83d","raw":7}', b'{"fact":"\\ud83d"}'])
def test_a_wrong_shape_with_half_an_emoji_is_refused_as_any_other(half: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_fact(half)


def test_nesting_beyond_reason_is_a_decode_error() -> None:
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        decode_fact(b"[" * 200_000)


def test_an_event_is_compared_by_all_its_parts() -> None:
    fact = decode_fact(b'{"fact":"mode_changed","mode":"plan"}')
    event = Event(session_id="s", seq=1, uuid="u", at=0, fact=fact)
    assert event == Event(session_id="s", seq=1, uuid="u", at=0, fact=fact)
    assert event != Event(session_id="s", seq=1, uuid="u", at=0, fact=fact, digest=GENESIS)
