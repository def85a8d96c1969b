"""Handles, error lines and obligations are slices of the text, and plain words are none of them (L6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.core.literals import constraints, error_lines, literals


def kinds(text: str) -> dict[str, str]:
    return {literal.text: literal.kind for literal in literals(text)}


@pytest.mark.parametrize(
    ("text", "literal", "kind"),
    [
        ("open src/auth/jwt.service.ts now", "src/auth/jwt.service.ts", "path"),
        ('File "/srv/app/models.py", line 12', "/srv/app/models.py", "path"),
        ("//src/lib.rs", "src/lib.rs", "path"),
        ("issue-TS2345 and CVE-2024-12345", "TS2345", "code"),
        ("issue-TS2345 and CVE-2024-12345", "CVE-2024-12345", "code"),
        ("see ./x/y.ts", "x/y.ts", "path"),
        ("cat ~/.bashrc", "~/.bashrc", "path"),
        ("@types/node is missing", "@types/node", "path"),
        ("edit README.md.", "README.md", "path"),
        ("edit .env first", ".env", "path"),
        (r"C:\Users\dev\app.py failed", r"C:\Users\dev\app.py", "path"),
        (r"src\core\x.py failed", r"src\core\x.py", "path"),
        ("请修改config/app.yaml，谢谢", "config/app.yaml", "path"),
        ("FILE=src/a_b.py make", "src/a_b.py", "path"),
        ("src/a.go-42-\tif err", "src/a.go", "path"),
        ("src/a.py:42:7: E501", "src/a.py:42:7", "line"),
        ("src/a.py:42:7: E501", "src/a.py", "path"),
        ("web/y.ts#L10", "web/y.ts#L10", "line"),
        ("at commit 3f2a9b1c", "3f2a9b1c", "sha"),
        ("id 1e0f6b0a-1111-2222-3333-444455556666.", "1e0f6b0a-1111-2222-3333-444455556666", "uuid"),
        ("connect ECONNREFUSED 127.0.0.1", "ECONNREFUSED", "code"),
        ("error[E0308]: mismatched", "E0308", "code"),
        ("error TS2345: no", "TS2345", "code"),
        ("got HTTP 404 back", "HTTP 404", "code"),
        ("request failed with status code 503", "status code 503", "code"),
        ("call parse_header here", "parse_header", "name"),
        ("call getUserName here", "getUserName", "name"),
        ("set MAX_TOKENS", "MAX_TOKENS", "name"),
        ("2.parse_header", "parse_header", "name"),
        ("os.path.join(a)", "os.path.join", "name"),
        ("obj.parse_header(x)", "parse_header", "name"),
        ("tests/test_x.py::TestA::test_b", "tests/test_x.py::TestA::test_b", "name"),
        ("see https://x.example/a?b=1#c.", "https://x.example/a?b=1#c", "url"),
        (r'{"text": "one\nsrc/two.py\tthree"}', "src/two.py", "path"),
        ("\x1b[31msrc/red.py\x1b[0m", "src/red.py", "path"),
        ("ValueError: bad width", "ValueError: bad width", "error"),
    ],
)
def test_a_handle_is_found_with_its_kind(text: str, literal: str, kind: str) -> None:
    assert kinds(text).get(literal) == kind


@pytest.mark.parametrize(
    "text",
    [
        "and/or read the input carefully, e.g. twice; i.e. Always.",
        "on 2024-01-02T10:00:00Z or 2024/01/02, 1/2/3, version 1.2.3, 127.0.0.1, exit code",
        "text/plain </div> UTF-8 ISO-8859 GPT-4 SHA256 2>/dev/null",
        "1234567890 deadbeef abcdefabcdef",
        "iVBORw0KGgo0AAAANSUhEUgAAAAUA/hQ9XkLmNoPqRsTuVwXyZ123456789",
    ],
)
def test_plain_words_numbers_dates_and_base64_are_no_handles(text: str) -> None:
    assert literals(text) == ()


def test_handles_come_once_each_in_order_of_appearance() -> None:
    found = [literal.text for literal in literals("b_second a/first.py b_second zz_third a/first.py")]
    assert found == ["b_second", "a/first.py", "zz_third"]


@given(st.text() | st.text(alphabet="ab/._:-\\#A1E\n =?&@$~+%'\"x`*", max_size=120))
def test_l6_every_literal_error_line_and_constraint_is_a_slice_of_the_text(text: str) -> None:
    assert all(literal.text in text for literal in literals(text))
    assert all(line in text for line in error_lines(text, 4))
    assert all(sentence in text for sentence in constraints(text))
    assert literals(text) == literals(text)


TRACEBACK = """collected 1 item
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    boom()
acme.Kaput: it broke
"""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (TRACEBACK, ("acme.Kaput: it broke",)),
        ("ok\nE       assert 1 == 2\n", ("E       assert 1 == 2",)),
        ("E   assert 0", ("E   assert 0",)),
        ("FAILED tests/a.py::t - boom\nPASSED b", ("FAILED tests/a.py::t - boom",)),
        ("a.c:3:5: error: expected ';'", ("a.c:3:5: error: expected ';'",)),
        ("error[E0308]: mismatched types", ("error[E0308]: mismatched types",)),
        ("npm ERR! code ELIFECYCLE", ("npm ERR! code ELIFECYCLE",)),
        ("panic: runtime error", ("panic: runtime error",)),
        ("Process exited with code 2", ("Process exited with code 2",)),
        ("bash: foo: command not found", ("bash: foo: command not found",)),
        ("\x1b[31m  FAILED x\x1b[0m", ("FAILED x",)),
        ("Traceback (most recent call last):\n  File", ()),
        ('12\tlogger.error("error: x")\nexcept ValueError as error:\n0 errors, exit code 0', ()),
        ("setState({ error: null });", ()),
    ],
)
def test_an_error_line_says_what_failed_and_source_code_does_not(text: str, lines: tuple[str, ...]) -> None:
    assert error_lines(text, 8) == lines


def test_too_many_error_lines_keep_the_first_and_the_last() -> None:
    text = "\n".join(f"error: number {n}" for n in range(100))
    assert error_lines(text, 3) == ("error: number 0", "error: number 1", "error: number 99")
    assert error_lines(text, 0) == ()


def test_an_error_line_is_cut_at_four_hundred_characters() -> None:
    assert error_lines("error: " + "x" * 1_000, 1) == ("error: " + "x" * 393,)


WORDS = """Please refactor src/a.py. You must not touch the global config. Never run npm install!
Why don't you use X? Can you make sure the tests pass?
The file is here. Thanks.

- Do not change public names,
  even if they look odd
- nice item
1) only use the stdlib
```
never say never in code
```
2024-01-02 10:00:00 ERROR it must not be null
ValueError: value must be positive
if must: return;
业务硬红线：严禁修改环境，必须用原生 API。这个别的没关系。请不要动它！
1. 特别好看
2. 只能用标准库"""


def test_constraints_are_whole_sentences_and_list_items_of_the_users_own_words() -> None:
    assert constraints(WORDS) == (
        "You must not touch the global config.",
        "Never run npm install!",
        "Can you make sure the tests pass?",
        "Do not change public names,\n  even if they look odd",
        "only use the stdlib",
        "业务硬红线：严禁修改环境，必须用原生 API。",
        "请不要动它！",
        "只能用标准库",
    )


@pytest.mark.parametrize("text", ["I don't like it.", "Why don't we?", "The file does not exist.", "No problem.", ""])
def test_a_remark_or_a_question_is_no_constraint(text: str) -> None:
    assert constraints(text) == ()


def test_a_wish_not_to_have_something_is_a_constraint() -> None:
    assert constraints("I don't want to commit it.") == ("I don't want to commit it.",)


@pytest.mark.parametrize(
    "text",
    [
        "Forget that: you may push to origin now.",
        "Correction: the path is src/http/client.py.",
        "Withdraw the rule about signatures.",
        "It’s okay to push.",
        "现在可以推送了。",
    ],
)
def test_what_takes_a_rule_back_is_as_much_a_constraint(text: str) -> None:
    assert constraints(text) == (text,)


def test_a_wrapped_sentence_is_one_constraint() -> None:
    text = "The report has to be written without any pictures because the\nprinter has no colour left. Fine."
    assert constraints(text) == (text.removesuffix(" Fine."),)


def test_an_open_fence_runs_to_the_end_of_the_text() -> None:
    assert constraints("must one.\n~~~\nmust two.") == ("must one.",)


def test_constraints_are_bounded_in_number_and_length() -> None:
    assert len(constraints("\n\n".join(f"Rule {n}: never." for n in range(1_000)))) == 64
    assert constraints("never " + "a" * 2_000 + ".") == ()
