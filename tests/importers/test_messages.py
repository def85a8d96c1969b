"""The chat APIs' shapes: what every importer of such messages relies on."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from transom.adapters.blobs import DirBlobs
from transom.core.block import Image, Opaque, Text, Thought, ToolCall, ToolResultRaw
from transom.core.event import Observed, Tool, Usage
from transom.importers.fields import read
from transom.importers.messages import (
    Message,
    Scribe,
    call_blocks,
    catalogue,
    content_blocks,
    micro_dollars,
    reply_blocks,
    result_blocks,
    seconds_ms,
    session_key,
    text_or_raw,
    usage_of,
)

_MESSAGE = msgspec.json.Decoder(Message)


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def _message(text: str) -> Message:
    message = read(_raw(text), _MESSAGE)
    assert message is not None
    return message


@pytest.mark.parametrize(
    ("reported", "split"),
    [
        ('{"prompt_tokens": 10, "completion_tokens": 3}', Usage(uncached=10, output=3)),
        ('{"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 6}}', Usage(uncached=4, cached=6)),
        ('{"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": null}}', Usage(uncached=10)),
        ('{"prompt_tokens": 10, "prompt_cache_hit_tokens": 7}', Usage(uncached=3, cached=7)),
        ('{"prompt_tokens": 5, "cache_read_input_tokens": 9}', Usage(cached=9)),
        ('{"prompt_tokens": -5, "completion_tokens": -1}', Usage()),
        (
            '{"prompt_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 4}}',
            Usage(uncached=2, reasoning=4),
        ),
        (
            '{"input_tokens": 4, "output_tokens": 2, "cache_creation_input_tokens": 8, "cache_read_input_tokens": 1}',
            Usage(uncached=4, cached=1, written=8, output=2),
        ),
        (
            '{"input_tokens": 0, "cache_creation_input_tokens": 8, "cache_creation": {"ephemeral_1h_input_tokens": 99}}',
            Usage(written=8, written_1h=8),
        ),
        ('{"total_tokens": 5}', None),
        ('{"prompt_tokens": "many"}', None),
        ("[]", None),
    ],
)
def test_usage_is_split_whatever_its_provider_calls_input(reported: str, split: Usage | None) -> None:
    assert usage_of(_raw(reported)) == split


def test_no_usage_is_none_and_a_cost_is_in_micro_dollars() -> None:
    assert usage_of(_raw("null"), 1.0) is None
    assert usage_of(_raw('{"prompt_tokens": 1}'), 0.25) == Usage(uncached=1, cost_microusd=250_000)
    assert [micro_dollars(cost) for cost in (None, -1.0, math.nan, math.inf, 0.0)] == [-1, -1, -1, -1, 0]


def test_seconds_that_are_no_time_are_none() -> None:
    assert [seconds_ms(seconds) for seconds in (None, -1.0, math.nan, 1e300, 1.5)] == [0, 0, 0, 0, 1500]


def test_a_uuid_that_is_taken_gets_a_suffix_that_is_not() -> None:
    scribe = Scribe("s")
    names = [scribe.say(Observed(kind="k", raw=""), uuid).uuid for uuid in ("a", "a", "a.1", "a", "b")]
    assert names == ["a", "a.1", "a.1.1", "a.2", "b"]


def test_a_key_covers_the_opening_through_the_first_reply() -> None:
    asked, reply, later = b'{"role":"user"}', b'{"role": "assistant", "content":"x"}', b'{"role":"user","content":"z"}'
    assert session_key("run", [asked, reply]) == session_key("run", [asked, reply, later])
    assert session_key("run", [asked, reply]) != session_key("run", [asked, b'{"role": "assistant"}', later])


def test_pictures_are_stored_or_kept_by_their_address(tmp_path: Path) -> None:
    blocks = content_blocks(
        [
            _raw('{"type": "image_url", "image_url": "https://example.org/a.png"}'),
            _raw('{"type": "image", "source": {"type": "url", "url": "https://example.org/b.png"}}'),
            _raw('{"type": "image", "image": "data:image/gif;base64,R0lG"}'),
            _raw('{"type": "image"}'),
        ],
        DirBlobs(tmp_path, is_synced=False),
    )
    assert blocks[0] == Image(media_type="image/*", url="https://example.org/a.png")
    assert blocks[1] == Image(media_type="image/*", url="https://example.org/b.png")
    assert isinstance(blocks[2], Image)
    assert (blocks[2].media_type, blocks[2].size) == ("image/gif", 3)
    assert blocks[3] == Opaque(kind="image", raw='{"type": "image"}')


def test_content_that_is_not_understood_is_carried_whole(tmp_path: Path) -> None:
    odd = '{"type": "text", "text": {"nested": 1.0}}'
    blobs = DirBlobs(tmp_path, is_synced=False)
    assert content_blocks([_raw(odd)], blobs) == (Opaque(kind="content", raw=odd),)
    assert content_blocks([_raw('{"type": "text", "text": ""}')], blobs) == ()
    assert result_blocks(None, blobs) == (ToolResultRaw(text=""),)


def test_a_reply_has_thoughts_words_and_calls_in_this_order(tmp_path: Path) -> None:
    message = _message(
        '{"role": "assistant", "content": "w", "reasoning_content": "t", "tool_calls": '
        '[{"function": {"name": "f", "arguments": {"a": 1.50}}}, {"id": "i", "name": "g", "arguments": "x"}, 7]}'
    )
    assert reply_blocks(message, DirBlobs(tmp_path, is_synced=False), "u") == (
        Thought(text="t"),
        Text(text="w"),
        ToolCall(call_id="u.call1", name="f", arguments='{"a": 1.50}'),
        ToolCall(call_id="i", name="g", arguments="x"),
        Opaque(kind="tool_call", raw="7"),
    )


def test_the_first_apis_single_call_counts_only_where_it_names_a_function(tmp_path: Path) -> None:
    blobs = DirBlobs(tmp_path, is_synced=False)
    assert reply_blocks(_message('{"role": "assistant", "function_call": {"arguments": "{}"}}'), blobs, "u") == ()
    assert reply_blocks(_message('{"role": "assistant", "function_call": null}'), blobs, "u") == ()


def test_arguments_are_the_text_the_model_wrote() -> None:
    assert [text_or_raw(_raw(text)) for text in ('"{\\"a\\":1}"', '{"a": 1.0}', "null", '"\\ud800"')] == [
        '{"a":1}',
        '{"a": 1.0}',
        "",
        "\ud800",
    ]
    assert call_blocks([], "u") == ()


def test_a_catalogue_reads_the_tools_of_every_api() -> None:
    tools = catalogue(
        [
            _raw('{"type": "function", "function": {"name": "a", "description": null, "parameters": {"x": 1.0}}}'),
            _raw('{"name": "b", "description": "B", "input_schema": {}}'),
            _raw('{"type": "computer"}'),
            _raw("3"),
        ]
    )
    assert tools == (
        Tool(name="a", schema='{"x": 1.0}'),
        Tool(name="b", description="B", schema="{}"),
        Tool(name="", schema='{"type": "computer"}'),
        Tool(name="", schema="3"),
    )
