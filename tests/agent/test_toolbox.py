from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from transom.adapters.sandbox import Unsandboxed
from transom.adapters.workspace import DirWorkspace
from transom.agent.toolbox import Toolbox
from transom.core.block import ToolCall
from transom.core.event import Effect

from .conftest import Call


def test_the_catalogue_is_a_fixed_list_of_plain_schemas(toolbox: Toolbox) -> None:
    tools = toolbox.catalogue()
    assert [tool.name for tool in tools] == ["read", "write", "edit", "run", "find", "grep"]
    assert tools == toolbox.catalogue()
    for tool in tools:
        schema = json.loads(tool.schema)
        assert tool.description
        assert schema["type"] == "object"
        assert "$ref" not in tool.schema
        assert set(schema["required"]) <= set(schema["properties"])


@pytest.mark.parametrize(
    ("name", "raw", "words"),
    [
        ("read", "not json", "JSON is malformed"),
        ("read", "", "missing required field `path`"),
        ("read", "[]", "Expected `object`, got `array`"),
        ("read", '{"path": 1}', "Expected `str`, got `int` - at `$.path`"),
        ("read", '{"path": "a", "offset": 0}', "Expected `int` >= 1 - at `$.offset`"),
        ("read", '{"path": "a", "offset": "ten"}', "Expected `int`, got `str` - at `$.offset`"),
        ("read", '{"path": "a", "lines": 3}', "unknown field `lines`"),
        ("read", '{"path": "%s"}' % ("x" * 1_000_000), "length <= 4096 - at `$.path`"),
        ("read", '{"path": "cut', "do not fit"),
        ("read", "[" * 200_000, "do not fit"),
        ("read", '{"path": "a\\u0000b"}', "control character"),
        ("read", '{"path": "\\ud83d"}', "half of a surrogate pair"),
        ("read", '{"path": "\ud83d"}', "do not fit"),
        ("write", '{"path": "a"}', "missing required field `content`"),
        ("run", '{"command": "true", "timeout": 99999}', "`int` <= 3600 - at `$.timeout`"),
        ("run", '{"command": "%s"}' % ("x" * 1_000_000), "length <= 100000 - at `$.command`"),
        ("run", '{"command": "echo \\u0000"}', "NUL character"),
        ("grep", '{"pattern": "\\u0000"}', "NUL character"),
        ("reed", "{}", "There is no tool 'reed'. There are: read,"),
        ("x" * 1_000_000, "{}", "There is no tool"),
    ],
)
def test_arguments_that_do_not_fit_are_told_field_and_rule(call: Call, name: str, raw: str, words: str) -> None:
    given = call(name, raw)
    assert given.is_error
    assert words in given.text
    assert len(given.text) < 1500
    assert given.text.encode()


def test_what_models_write_for_numbers_booleans_and_nothing_is_taken(root: Path, call: Call) -> None:
    (root / "a.txt").write_text("x\nx\n")
    assert call("read", path="a.txt", offset="2", limit=None).text == "2\tx\n[lines 2-2 of 2]"
    assert not call("edit", path="a.txt", old_string="x", new_string="y", replace_all="true").is_error


def test_a_name_that_is_too_long_is_told_as_that(call: Call) -> None:
    assert call("write", path="x" * 256, content="").text.endswith(
        "Nothing was changed. Write a shorter name or command; a long script goes into a file first, by write."
    )


def test_a_megabyte_of_content_is_written(root: Path, call: Call) -> None:
    assert not call("write", path="a.txt", content="x" * 1_000_000).is_error
    assert (root / "a.txt").stat().st_size == 1_000_000


@pytest.mark.parametrize(
    ("name", "arguments", "effect"),
    [
        ("read", {"path": "a"}, "read"),
        ("find", {}, "read"),
        ("grep", {"pattern": "x"}, "read"),
        ("write", {"path": "a", "content": ""}, "write"),
        ("edit", {"path": "a", "old_string": "x", "new_string": "y"}, "write"),
        ("run", {"command": "make"}, "external"),
        ("run", {"command": "git status --short"}, "read"),
        ("run", {}, "none"),
        ("nothing", {}, "none"),
    ],
)
def test_the_effect_is_declared_before_running(
    toolbox: Toolbox, name: str, arguments: dict[str, str], effect: Effect
) -> None:
    assert toolbox.effect(ToolCall(call_id="1", name=name, arguments=json.dumps(arguments))) == effect


def test_a_refused_call_does_nothing_and_is_told(root: Path) -> None:
    asked: list[tuple[str, Effect]] = []

    def approve(call: ToolCall, effect: Effect) -> bool:
        asked.append((call.name, effect))
        return effect == "read"

    toolbox = Toolbox(DirWorkspace(root), Unsandboxed(), approve)
    refused = toolbox.run(ToolCall(call_id="1", name="write", arguments='{"path": "a", "content": "x"}'))
    assert refused.is_error
    assert "The user refused" in repr(refused.blocks)
    assert not (root / "a").exists()
    assert not toolbox.run(ToolCall(call_id="2", name="find", arguments="{}")).is_error
    toolbox.run(ToolCall(call_id="3", name="write", arguments="{}"))
    assert asked == [("write", "write"), ("find", "read")]


@drawn(
    name=st.sampled_from(["read", "write", "edit", "find", "grep", "x"]),
    raw=st.text(max_size=60)
    | st.dictionaries(
        st.sampled_from(["path", "offset", "limit", "content", "old_string", "new_string", "pattern", "glob", "y"]),
        st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.lists(st.integers(), max_size=2),
    ).map(json.dumps),
)
def test_no_arguments_make_a_tool_raise(name: str, raw: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    toolbox = Toolbox(DirWorkspace(tmp_path_factory.mktemp("ws")), Unsandboxed())
    call = ToolCall(call_id="1", name=name, arguments=raw)
    toolbox.effect(call)
    assert toolbox.run(call).blocks


def test_what_a_killed_process_left_beside_a_file_is_removed_and_nothing_else(toolbox: Toolbox, root: Path) -> None:
    (root / "src").mkdir()
    for name in (".transom-0123456789abcdef", ".transom-notes", "kept.py"):
        (root / "src" / name).touch()
    (root / ".transom-0123456789abcdef").touch()
    calls = (
        ("write", '{"path":"src/a.py","content":"x"}'),
        ("edit", '{"path":"../out.py","old_string":"a","new_string":"b"}'),
        ("write", '{"path":"none/a.py","content":"x"}'),
        ("write", "{"),
        ("read", '{"path":"b.py"}'),
    )
    toolbox.tidy(ToolCall(call_id="c", name=name, arguments=arguments) for name, arguments in calls)
    assert {path.name for path in (root / "src").iterdir()} == {".transom-notes", "kept.py"}
    assert (root / ".transom-0123456789abcdef").exists()
