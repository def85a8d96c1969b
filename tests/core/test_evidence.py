from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.workspace import DirWorkspace
from transom.core.event import Demotion, Handoff, Inference, RelatedFile, Requirement, RolloverDeclared, WindowOpened
from transom.core.evidence import MAX_FILES, MAX_ITEMS, Claim, Files, check, parse, path_problem
from transom.core.state import State, folded
from transom.errors import HandoffRefused, PathEscaped
from transom.testing.builders import Story, call, image, rules

SAID = "Build the importer. You must never\ndelete the database. Retry three times, e.g. on 503.\n请不要修改公共接口。"


def told(handoff: object, related_files: object = ()) -> str:
    return json.dumps({"handoff": handoff, "related_files": related_files})


def claim(handoff: object, related_files: object = (), *, max_chars: int = 10_000) -> Claim:
    return parse(told(handoff, related_files), max_chars=max_chars)


def files(texts: Mapping[str, str] | None = None, *, escaping: tuple[str, ...] = ()) -> Files:
    def refuse(path: str) -> None:
        if path in escaping:
            raise PathEscaped(f"path {path!r}: leads outside the workspace")

    def text(path: str) -> str | None:
        refuse(path)
        return (texts or {}).get(path)

    return Files(resolve=refuse, text=text)


def story_of(*words: str) -> tuple[Story, str]:
    story = Story(rules())
    event = story.user(*(words or (SAID,)))
    return story, event.uuid


def judged(text: str, source: str, state: State, within: Files) -> tuple[Handoff, tuple[Demotion, ...]]:
    return check(claim({"requirements": [{"text": text, "source": source}]}), state, within)


def kept(text: str, *, said: str = SAID) -> list[str]:
    story, uuid = story_of(said)
    return [item.text for item in judged(text, uuid, story.session.state, files())[0].requirements]


def reason(text: str, source: str, within: Files | None = None) -> str:
    story, uuid = story_of()
    handoff, demoted = judged(text, source.replace("UUID", uuid), story.session.state, within or files())
    assert handoff.requirements == ()
    assert [one.text for one in handoff.inferences] == [text]
    return demoted[0].reason


# -- parse: data


def test_a_handoff_is_data_in_four_sections_with_files() -> None:
    made = claim(
        {
            "requirements": [{"text": " a ", "source": " u1 "}, "b [u2]", "c (source: spec.md:3)", "f (x"],
            "inferences": [" d ", " "],
            "conflicts": ["e", ""],
            "unverified": ["f", "\n"],
        },
        [{"path": "src/a.py", "role": "implementation", "note": " n "}, {"path": "b"}],
    )
    assert made.handoff == Handoff(
        requirements=(
            Requirement(text="a", source="u1"),
            Requirement(text="b", source="u2"),
            Requirement(text="c", source="spec.md:3"),
            Requirement(text="f (x", source=""),
        ),
        inferences=(Inference(text="d"),),
        conflicts=("e",),
        unverified=("f",),
    )
    assert made.related_files == (
        RelatedFile(path="src/a.py", role="implementation", note="n"),
        RelatedFile(path="b", role="other", note=""),
    )
    assert made.size == sum(map(len, ["a", "u1", "b", "u2", "c", "spec.md:3", "f (x", "d", "e", "f", "src/a.pyn", "b"]))


def test_brackets_that_belong_to_the_words_are_no_source() -> None:
    made = claim({"requirements": ["f(x) returns f(x)", "[u1]", {"text": "  "}, " "]})
    assert made.handoff.requirements == (
        Requirement(text="f(x) returns f(x)", source=""),
        Requirement(text="[u1]", source=""),
    )


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "{",
        "[]",
        "null",
        "\x00",
        '"\ud800"',
        '{"handoff":"\ud800"}',
        '{"handoff":7}',
        '{"handoff":{"requirements":[7]}}',
        '{"handoff":{"inferences":"one"}}',
        '{"handoff":{},"related_files":{}}',
        '{"related_files":[]}',
        '{"handoff":' + "[" * 100_000,
    ],
)
def test_arguments_that_are_no_handoff_are_refused_with_what_it_takes(arguments: str) -> None:
    with pytest.raises(HandoffRefused, match=r"^new_context: .*it takes handoff"):
        parse(arguments, max_chars=1000)


@pytest.mark.parametrize(
    "handoff", [{}, "", "(none)", {"requirements": [" "], "inferences": [""]}, "### Requirements\n- none"]
)
def test_an_empty_handoff_is_refused(handoff: object) -> None:
    with pytest.raises(HandoffRefused, match="the handoff is empty"):
        claim(handoff)


def test_what_is_too_large_is_refused_with_the_numbers_and_never_cut() -> None:
    with pytest.raises(HandoffRefused, match=r"the handoff is 1,001 characters, of at most 1,000; nothing was cut"):
        claim({"inferences": ["x" * 1001]}, max_chars=1000)
    assert claim({"inferences": ["x" * 1000]}, max_chars=1000).size == 1000
    with pytest.raises(
        HandoffRefused, match=f"{MAX_ITEMS + 1} items and 0 files, of at most {MAX_ITEMS} and {MAX_FILES}"
    ):
        claim({"inferences": ["x"] * (MAX_ITEMS + 1)})
    with pytest.raises(HandoffRefused, match=f"1 items and {MAX_FILES + 1} files"):
        claim({"inferences": ["x"]}, [{"path": "a"}] * (MAX_FILES + 1))


@pytest.mark.parametrize("prose", [" " * 1_000_000, "(" * 1_000_000, "- " * 500_000, "a\n b" * 300_000, '"' * 999_999])
def test_a_megabyte_of_anything_is_refused_at_once(prose: str) -> None:
    """No expression here takes more than a walk over the text: a second of a loaded machine is plenty."""
    for handoff in (prose, {"requirements": [prose, {"text": prose, "source": prose}]}):
        with pytest.raises(HandoffRefused):
            claim(handoff)


# -- parse: files


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ("a\nb", "holds a control character"),
        ("a\x7fb", "holds a control character"),
        ("/etc/passwd", "must be relative to the workspace"),
        ("\\\\server\\share", "must be relative to the workspace"),
        ("~/x", "must be relative to the workspace"),
        ("C:\\x", "must be relative to the workspace"),
        ("c:x", "must be relative to the workspace"),
        ("../x", "leaves the workspace"),
        ("a\\..\\..\\x", "leaves the workspace"),
        ("a//b", "must be normalised"),
        ("./a", "must be normalised"),
        ("a/.", "must be normalised"),
    ],
)
def test_a_path_is_relative_inside_and_normalised(path: str, problem: str) -> None:
    assert path_problem(path) == problem
    with pytest.raises(HandoffRefused, match=problem):
        claim({"inferences": ["x"]}, [{"path": path}])


def test_a_usual_path_has_no_problem() -> None:
    for path in ("a", "src/a b/ü.py", "a/", ".github/x", "a..b"):
        assert path_problem(path) == ""


def test_a_role_is_one_of_six() -> None:
    with pytest.raises(HandoffRefused, match="role 'boss' is none of decision, handoff"):
        claim({"inferences": ["x"]}, [{"path": "a", "role": "boss"}])


def test_a_related_file_behind_a_link_that_leads_outside_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "work"
    root.mkdir()
    (tmp_path / "secret").write_text("x")
    (root / "link").symlink_to(tmp_path / "secret")
    workspace = DirWorkspace(root)
    within = Files(resolve=workspace.resolve, text=workspace.text)
    story, _ = story_of()
    with pytest.raises(HandoffRefused, match="leads outside the workspace"):
        check(claim({"inferences": ["x"]}, [{"path": "link"}]), story.session.state, within)
    _, demoted = judged("x", "link:1", story.session.state, within)
    assert "leads outside the workspace" in demoted[0].reason


# -- parse: prose


def test_prose_under_the_four_headings_is_parsed() -> None:
    made = claim(
        "It went well.\n\n### 1. SPEC-CONFIRMED REQUIREMENTS\n- never delete [u1]\n  nor rename\n\n"
        "**2. Agent inferences:**\n* the cache is at fault\n  (probably)\n"
        "UNRESOLVED CONFLICTS\n1. a test fails\n2) so does another\n"
        "Unverified acceptance criteria:\nruns on Windows\nand on a Mac\n(none)\n"
    ).handoff
    assert [(item.text, item.source) for item in made.requirements] == [("never delete [u1] nor rename", "")]
    assert [one.text for one in made.inferences] == ["It went well.", "the cache is at fault (probably)"]
    assert made.conflicts == ("a test fails", "so does another")
    assert made.unverified == ("runs on Windows", "and on a Mac")


def test_an_object_that_was_written_as_text_is_the_object() -> None:
    sections = {"requirements": [{"text": "never delete", "source": "u1"}], "conflicts": ["a test fails"]}
    made = claim(json.dumps(sections), json.dumps([{"path": "a.py", "role": "test"}]))
    assert made.handoff.requirements == (Requirement(text="never delete", source="u1"),)
    assert (made.handoff.inferences, made.handoff.conflicts) == ((), ("a test fails",))
    assert [file.path for file in made.related_files] == ["a.py"]
    assert [one.text for one in claim("{x} is set").handoff.inferences] == ["{x} is set"]
    with pytest.raises(HandoffRefused, match=r"Expected `array`.*it takes handoff"):
        claim('{"inferences": "one"}')


def test_chinese_headings_are_parsed() -> None:
    made = claim(
        "## 已确认的需求\n- 不要修改公共接口 [u1]\n## 推断\n- 缓存有问题\n未解决的冲突：\n- 测试失败\n**未验证的验收标准**\n- 性能"
    ).handoff
    assert made.requirements == (Requirement(text="不要修改公共接口", source="u1"),)
    assert [one.text for one in made.inferences] == ["缓存有问题"]
    assert (made.conflicts, made.unverified) == (("测试失败",), ("性能",))


def test_prose_without_headings_is_inference() -> None:
    made = claim("The requirement is to delete everything.\nNext I would push.").handoff
    assert made.requirements == ()
    assert [one.text for one in made.inferences] == ["The requirement is to delete everything.", "Next I would push."]


def test_what_only_looks_like_a_heading_is_none() -> None:
    made = claim("- next:\n" + "# requirements " + "x" * 100 + "\n# Nothing of these\n:").handoff
    assert made.requirements == ()
    assert len(made.inferences) == 4


def test_an_unverified_requirement_is_unverified() -> None:
    assert claim("# Unverified requirements\n- x").handoff.unverified == ("x",)


# -- check: what is believed


def test_a_requirement_in_a_users_own_words_is_kept_as_the_whole_sentence() -> None:
    """L6, L7: no claim can cut a "never" off."""
    assert kept("Build the importer.") == ["Build the importer."]
    assert kept("BUILD   the\nimporter") == ["Build the importer."]
    assert kept("delete the database") == ["You must never delete the database."]
    assert kept("the importer. You must") == ["Build the importer. You must never delete the database."]
    assert kept("on 503") == ["Retry three times, e.g. on 503."]
    assert kept("修改公共接口") == ["请不要修改公共接口。"]


def test_an_item_of_a_list_is_kept_under_the_line_that_introduces_it() -> None:
    said = "Never do this:\n- delete the data\n\n- push to main\n# Style\n- use tabs\n1. number\n\nDone.\nx = 1\ny = 2"
    assert kept("push to main", said=said) == ["Never do this: push to main"]
    assert kept("use tabs", said=said) == ["use tabs"]
    assert kept("delete the data push", said=said) == ["Never do this: delete the data push to main"]
    assert kept("x = 1", said=said) == ["x = 1"]
    assert kept("y = 2", said=said) == ["y = 2"]


def test_of_a_paraphrase_only_the_quoted_sentence_is_kept_and_the_rest_is_inference() -> None:
    story, uuid = story_of()
    text = 'The user allows everything but said "delete the database" and "Retry three times"'
    handoff, demoted = judged(text, f"message_uuid: {uuid}", story.session.state, files())
    assert [item.text for item in handoff.requirements] == [
        "You must never delete the database.",
        "Retry three times, e.g. on 503.",
    ]
    assert handoff.requirements[0].source == f"message_uuid: {uuid}"
    assert [one.text for one in handoff.inferences] == [text]
    assert demoted[0].reason == "only the words it quotes stand there; they are kept, its own are not"


@pytest.mark.parametrize(
    "text",
    ["Drop the tables.", "the user said “drop every table”", 'he said "Retry three times" and "drop all tables"'],
)
def test_words_that_do_not_stand_in_the_message_are_demoted(text: str) -> None:
    assert reason(text, "UUID") == "that message does not say so"


def test_marks_alone_are_no_words() -> None:
    assert reason("...", "UUID") == "that message does not say so"


def test_a_few_words_out_of_a_page_are_no_requirement() -> None:
    page = "word " * 300 + "delete it " + "word " * 300
    assert kept("delete it", said=page) == []
    assert kept(page, said=page) == [" ".join(page.split())]


def test_a_source_is_a_user_message_or_a_file_with_the_words_near_the_line() -> None:
    lines = [f"rule {number} stands here." for number in range(1, 101)]
    within = files({"spec.md": "\n".join(lines), "a:b": "odd name"})
    story, _ = story_of()

    def found(text: str, source: str) -> list[str]:
        return [item.text for item in judged(text, source, story.session.state, within)[0].requirements]

    assert found("rule 50 stands", "spec.md") == ["rule 50 stands here."]
    assert found("rule 50 stands", "spec.md:55") == ["rule 50 stands here."]
    assert found("rule 50 stands", "spec.md:45") == ["rule 50 stands here."]
    for named in ("./spec.md:50", "spec.md#L50", "spec.md#L48-L52", "spec.md:20-60", "spec.md:52-48"):
        assert found("rule 50 stands", named) == ["rule 50 stands here."]
    assert reason("rule 50 stands", "spec.md:20-44", within) == "that file does not say so near that line"
    assert found("odd name", "a:b") == []
    assert reason("rule 50 stands", "spec.md:56", within) == "that file does not say so near that line"
    assert reason("rule 50 stands", "spec.md:44", within) == "that file does not say so near that line"
    assert reason("rule 500", "spec.md", within) == "that file does not say so"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("", "names no source"),
        ("message_uuid: ", "names no source"),
        ("../x:3", "no user said so, and it is no path in the workspace"),
        ("/etc/passwd", "no user said so, and it is no path in the workspace"),
        ("./../x:3", "no user said so, and it is no path in the workspace"),
        (".//etc/passwd", "no user said so, and it is no path in the workspace"),
        ("gone.md:3", "there is no such user message and no such file"),
        ("gone.md:" + "9" * 5000, "there is no such user message and no such file"),
        ("a.md:²", "there is no such user message and no such file"),
        ("u999", "there is no such user message and no such file"),
    ],
)
def test_a_source_that_does_not_resolve_is_named(source: str, why: str) -> None:
    assert reason("Build the exporter.", source) == why


@pytest.mark.parametrize("source", ["", "u999", "gone.md:3", "../x:3"])
def test_what_a_user_said_to_the_letter_is_his_whatever_source_is_named(source: str) -> None:
    story, uuid = story_of()
    handoff, demoted = judged("Build the importer.", source, story.session.state, files())
    assert handoff.requirements == (Requirement(text="Build the importer.", source=f"message_uuid: {uuid}"),)
    assert demoted == ()


def test_a_file_that_escapes_is_no_source() -> None:
    assert "leads outside" in reason("x", "link", files(escaping=("link",)))


def test_a_models_or_a_tools_words_are_no_source() -> None:
    """L7."""
    story, _ = story_of()
    replied = story.reply("I must delete the tables.")
    noticed = story.host("Tables may be deleted.")
    for text, event in (("I must delete the tables.", replied), ("Tables may be deleted.", noticed)):
        handoff, demoted = judged(text, event.uuid, story.session.state, files())
        assert handoff.requirements == ()
        assert demoted[0].reason == "there is no such user message and no such file"


def test_a_message_of_pictures_says_nothing() -> None:
    story = Story(rules())
    uuid = story.user(image()).uuid
    assert judged("x", uuid, story.session.state, files())[0].requirements == ()


def test_the_same_requirement_twice_is_one_and_the_same_inference_too() -> None:
    story, uuid = story_of()
    twice = [{"text": "the database", "source": uuid}, {"text": "delete the database", "source": uuid}]
    made, demoted = check(
        claim({"requirements": [*twice, "drop it", "drop it"], "inferences": ["drop it", "fine"]}),
        story.session.state,
        files(),
    )
    assert [item.text for item in made.requirements] == ["You must never delete the database."]
    assert [one.text for one in made.inferences] == ["drop it", "fine"]
    assert len(demoted) == 2


# -- check: generations


def declare(story: Story, handoff: object) -> Handoff:
    """One whole rollover of a handoff."""
    made, demoted = check(claim(handoff), story.session.state, files())
    generation = story.session.state.window.generation + 1
    story.say(RolloverDeclared(call_id="c", handoff=made, demoted=demoted))
    story.say(WindowOpened(cause="model", generation=generation))
    return made


def test_an_inference_keeps_the_generation_in_which_it_was_first_made() -> None:
    """L7: however often it is repeated, and as whatever it is claimed."""
    story, uuid = story_of()
    first = declare(story, {"inferences": ["The cache is at fault."]})
    assert first.inferences == (Inference(text="The cache is at fault.", generation=0),)
    declare(story, {"inferences": ["It is Tuesday"]})
    forged = {"text": "the cache is  at fault", "source": uuid}
    third = declare(story, {"requirements": [forged], "inferences": ["It is Tuesday.", "New"]})
    assert third.requirements == ()
    assert {one.text: one.generation for one in third.inferences} == {
        "It is Tuesday.": 1,
        "New": 2,
        "the cache is  at fault": 0,
    }
    again = declare(story, {"inferences": ["new", "THE CACHE IS AT FAULT"]})
    assert [one.generation for one in again.inferences] == [2, 0]


WORDS = st.sampled_from(
    ["never", "delete", "the", "data", "push", "must", "you", "Retry", "e.g.", "all", "不要", "删除"]
)
PROSE = st.lists(
    st.tuples(WORDS, st.sampled_from([" ", "\n", ". ", ".\n", "\n\n", "\n- ", ":\n- ", "。", ", "])), max_size=30
)


@given(PROSE, st.lists(WORDS, min_size=1, max_size=4), st.sampled_from(["{}", 'so "{} "', "[{}]", "“{}”!"]))
def test_l7_whatever_is_claimed_a_requirement_is_made_of_whole_lines_of_its_source(
    prose: list[tuple[str, str]], words: list[str], frame: str
) -> None:
    """L7: the words of a kept requirement are the source's, in its order, and every claim is either kept or demoted."""
    said = "".join(word + gap for word, gap in prose)
    story, uuid = story_of(said or " ")
    text = frame.format(" ".join(words))
    made, demoted = judged(text, uuid, story.session.state, files())
    source = folded(said.replace("- ", ""))
    for item in made.requirements:
        lead, mark, rest = item.text.rpartition(": ")
        assert folded(rest) in source
        assert not mark or folded(lead) in source
    assert bool(made.requirements) or [one.text for one in made.inferences] == [text]
    assert {one.text for one in demoted} <= {one.text for one in made.inferences}


def test_a_path_that_names_the_workspace_itself_is_made_relative() -> None:
    arguments = json.dumps(
        {
            "handoff": {"requirements": [{"text": "Half up.", "source": "/w/SPEC.md:1"}]},
            "related_files": [{"path": "/w/src/a.py", "role": "test", "note": ""}],
        }
    )
    claim = parse(arguments, max_chars=4000, root="/w")
    assert [file.path for file in claim.related_files] == ["src/a.py"]
    inside = Files(resolve=lambda path: path, text={"SPEC.md": "Half up."}.get, root="/w")
    handoff, demoted = check(claim, State(), inside)
    assert [one.text for one in handoff.requirements] == ["Half up."]
    assert demoted == ()
    with pytest.raises(HandoffRefused, match="must be relative"):
        parse(arguments, max_chars=4000, root="/elsewhere")


@pytest.mark.parametrize("path", ["notes.md", "./notes.md", "/w/notes.md", "a/../notes.md"])
def test_a_file_that_the_session_wrote_itself_is_no_source(path: str) -> None:
    """L7: a guess does not become a requirement by way of a file."""
    story, _ = story_of()
    own = Files(resolve=lambda name: name, text={"notes.md": "The port may be changed after all."}.get, root="/w")
    story.reply("I write.", call("c1", "write", f'{{"path":"{path}"}}'))
    story.returned("c1", "wrote it", effect="write")
    handoff, (demoted,) = judged("The port may be changed after all.", "notes.md:1", story.session.state, own)
    assert handoff.requirements == ()
    assert demoted.reason == "no user said so, and this session wrote that file itself"
