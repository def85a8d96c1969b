from __future__ import annotations

import json

import pytest

from transom.core.blackboard import Blackboard, call_summary, handles, note_call, note_result, snapshot
from transom.core.block import ToolCall
from transom.core.event import Effect, TodoItem


def words(text: str) -> int:
    return len(text.split())


def ran(
    board: Blackboard,
    arguments: str = '{"command":"make"}',
    text: str = "ok",
    *,
    name: str = "bash",
    failed: bool = False,
    effect: Effect = "external",
    seq: int = 5,
) -> None:
    note_result(board, name=name, arguments=arguments, text=text, failed=failed, effect=effect, seq=seq, uuid=f"u{seq}")


def called(board: Blackboard, name: str, arguments: object) -> None:
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    note_call(board, ToolCall(call_id="c", name=name, arguments=raw))


@pytest.mark.parametrize(
    ("arguments", "summary"),
    [
        ('{"command":"pytest  -q\\n tests"}', "t: pytest -q tests"),
        ('{"cmd":["bash","-lc","ls"]}', "t: bash -lc ls"),
        ('{"file_path":"a.py","content":"x"}', "t: a.py"),
        ('{"filePath":"b.py"}', "t: b.py"),
        ('{"filename":"c.py"}', "t: c.py"),
        ('{"path":{"odd":1}}', "t: {'odd': 1}"),
        ("not json", "t: not json"),
        ("[1, 2]", "t: [1, 2]"),
        ("", "t: "),
        ('{"cut": "of', 't: {"cut": "of'),
        ('{"command":"\ud800"}', 't: {"command":"\ud800"}'),
        ("[" * 5000, "t: " + "[" * 159 + "…"),
        ('{"command":"' + "x" * 500 + '"}', "t: " + "x" * 159 + "…"),
    ],
)
def test_a_call_is_named_by_its_command_or_path_in_one_line(arguments: str, summary: str) -> None:
    assert call_summary("t", arguments) == summary


def test_a_failure_stands_until_the_very_same_call_succeeds() -> None:
    board = Blackboard()
    ran(board, text="E   AssertionError: 1 != 2", failed=True, seq=3)
    ran(board, '{"command":"make all"}')
    assert [failure.uuid for failure in board.failures.values()] == ["u3"]
    ran(board, effect="read", name="other")
    assert board.failures
    ran(board, effect="read")
    assert not board.failures


def test_a_repeated_failure_is_counted_and_moves_to_the_end() -> None:
    board = Blackboard()
    ran(board, text="ValueError: no", failed=True)
    ran(board, "b", text="no words of failure\n\nlast line\n\n", failed=True)
    ran(board, text="ValueError: no again", failed=True, seq=9)
    assert [(failure.times, failure.error) for failure in board.failures.values()] == [
        (1, "no words of failure\nlast line"),
        (2, "ValueError: no again"),
    ]


def test_a_failure_without_words_is_one() -> None:
    board = Blackboard()
    ran(board, text=" \n ", failed=True)
    assert [failure.error for failure in board.failures.values()] == [""]


def test_long_arguments_are_kept_by_their_digest() -> None:
    board = Blackboard()
    ran(board, "x" * 100_000, failed=True)
    ran(board, "x" * 99_999 + "\ud800", failed=True)
    assert len(board.failures) == 2
    assert max(map(len, board.failures)) < 100
    ran(board, "x" * 100_000)
    assert len(board.failures) == 1


def test_effects_are_kept_once_with_their_newest_outcome() -> None:
    board = Blackboard()
    ran(board, failed=True)
    ran(board, '{"command":"ls"}', effect="read")
    ran(board, "b", effect="write")
    ran(board, seq=8)
    assert [(one.attempt, one.outcome, one.seq) for one in board.commands.values()] == [
        ("bash: b", "ok", 5),
        ("bash: make", "ok", 8),
    ]


def test_files_keep_the_strongest_thing_done_and_the_newest_comes_last() -> None:
    board = Blackboard()
    ran(board, '{"file_path":"a.py"}', effect="write")
    ran(board, '{"path":"b.py"}', effect="read")
    ran(board, '{"notebook_path":"a.py"}', effect="read")
    ran(board, '{"path":7}', effect="read")
    assert list(board.files.items()) == [("b.py", "read"), ("a.py", "write")]


def test_a_patch_names_its_files_raw_or_inside_json() -> None:
    board = Blackboard()
    ran(board, "*** Begin Patch\n*** Update File: src/a.py\n+x\n*** Delete File: b.py", effect="write")
    ran(board, '{"input":"*** Begin Patch\\n*** Add File: c.py\\n+y"}', effect="write")
    assert list(board.files) == ["src/a.py", "b.py", "c.py"]


@pytest.mark.parametrize(
    ("name", "arguments", "texts"),
    [
        ("TodoWrite", {"todos": [{"content": "one", "status": "completed"}]}, ["one completed"]),
        ("update_plan", {"plan": [{"step": "two", "status": "in_progress"}]}, ["two in_progress"]),
        ("todo", {"todos": [{"text": "three", "status": "wip"}, {"text": 5}]}, ["three pending"]),
        ("todo", {"todos": [{"content": "four", "status": ["x"]}]}, ["four pending"]),
        ("todo", {"todos": []}, []),
        ("todo", {"todos": ["plain"]}, ["before pending"]),
        ("ExitPlanMode", {"plan": "a text"}, ["before pending"]),
        ("todo_read", {}, ["before pending"]),
        ("todo", "no json", ["before pending"]),
        ("bash", {"todos": []}, ["before pending"]),
    ],
)
def test_a_todo_list_is_taken_from_the_call_that_sets_it(name: str, arguments: object, texts: list[str]) -> None:
    board = Blackboard(todo=(TodoItem(text="before", status="pending"),))
    called(board, name, arguments)
    assert [f"{item.text} {item.status}" for item in board.todo] == texts


def test_handles_in_use_come_from_the_newest_calls_most_recent_first() -> None:
    board = Blackboard()
    for number in range(500):
        called(board, "bash", {"command": f"cat src/file_{number}.py"})
    found = handles(board)
    assert found[0] == "src/file_499.py"
    assert "src/file_0.py" not in found
    assert len(board.recent) <= 200


def test_an_empty_board_says_nothing() -> None:
    assert snapshot(Blackboard(), 1000, words) == ""


def test_a_snapshot_shows_what_fits_and_counts_the_rest() -> None:
    board = Blackboard(
        todo=(TodoItem(text="done thing", status="completed"), TodoItem(text="open thing", status="pending"))
    )
    for number in range(40):
        ran(board, f'{{"command":"try {number}"}}', text=f"ValueError: {number}\nTypeError: {number}", failed=True)
    whole = snapshot(board, 10_000, words)
    assert whole.index("[pending] open thing") < whole.index("[completed] done thing")
    assert "2 items, 1 closed" in whole
    assert whole.count("    ValueError: ") == 40
    assert "more, not shown" not in whole
    small = snapshot(board, 120, words)
    shown = small.count("    ValueError: ")
    assert 0 < shown < 40
    assert "    ValueError: 39\n    TypeError: 39" in small
    assert f"({40 - shown} more, not shown here: recall finds them" in small
    none = snapshot(board, 0, words)
    assert "(40 more, not shown here" in none
    assert "ValueError" not in none


def test_a_failure_says_how_often_it_failed() -> None:
    board = Blackboard()
    for _ in range(3):
        ran(board, failed=True, text="exit code 2")
    assert "- bash: make (3 times)\n    exit code 2" in snapshot(board, 1000, words)
    assert "- bash: make -> failed" in snapshot(board, 1000, words)


@pytest.mark.parametrize(
    ("command", "is_kept"),
    [
        ("ls -la | head", False),
        ("cd src && rg -n 'foo' . 2>/dev/null || true", False),
        ("git -C repo status --short", False),
        ("sed -n '1,20p' a.py; nl -ba b.py", False),
        ("sed -i s/a/b/ a.py", True),
        ("cat a.py > b.py", True),
        ("find . -name '*.pyc' -delete", True),
        ("git commit -m x", True),
        ("make test", True),
    ],
)
def test_a_shell_line_that_only_looks_is_not_listed_among_what_was_run(command: str, is_kept: bool) -> None:
    board = Blackboard()
    arguments = json.dumps({"command": command})
    note_result(board, name="bash", arguments=arguments, text="", failed=False, effect="external", seq=1, uuid="u")
    assert bool(board.commands) == is_kept


def test_no_line_of_an_item_or_a_path_stands_as_a_title_or_as_another_one() -> None:
    board = Blackboard(todo=(TodoItem(text="one\nfiles:\n- [completed] two", status="pending"),))
    assert snapshot(board, 500, len) == "todo:\n1 items, 0 closed\n- [pending] one\n    files:\n    - [completed] two"
    assert snapshot(Blackboard(files={"a\ntodo:": "read"}), 500, len) == "files:\n- a\n    todo: (read)"
