"""What every log must do (see `conformance`)."""

from __future__ import annotations

from collections.abc import Callable

from transom.core.block import Text, ToolCall, ToolResultRaw
from transom.core.canon import FORMAT, GENESIS, envelope, link
from transom.core.event import (
    Draft,
    Event,
    Fact,
    HostSaid,
    Link,
    ModelReplied,
    Observed,
    SessionOpened,
    ToolReturned,
    UserSaid,
    encode_fact,
)
from transom.errors import KernelError, SequenceConflict, UsageError
from transom.ports import Log

__all__ = ["LOG_CASES", "LogCase", "refusal_of"]

LogCase = Callable[[Callable[[], Log]], None]


def refusal_of(kind: type[KernelError], call: Callable[[], object]) -> str:
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"{kind.__name__} was not raised")


def _drafts(*facts: Fact, start: int = 1) -> list[Draft]:
    return [Draft(fact=fact, uuid=f"u{number}", at=1000 + number) for number, fact in enumerate(facts, start)]


def _said(text: str) -> UserSaid:
    return UserSaid(blocks=(Text(text=text),))


def _opened(title: str = "") -> SessionOpened:
    return SessionOpened(format=FORMAT, title=title)


def _session(log: Log, name: str, *texts: str) -> tuple[Event, ...]:
    return log.append(name, 0, _drafts(_opened(), *(_said(text) for text in texts)))


def _link(event: Event) -> Link:
    return Link(session_id=event.session_id, seq=event.seq, digest=event.digest.hex())


def _fork(log: Log, name: str, at: Event, *texts: str) -> tuple[Event, ...]:
    opened = SessionOpened(format=FORMAT, kind="fork", parent=_link(at))
    return log.append(name, at.seq, _drafts(opened, *(_said(text) for text in texts)))


def _found(log: Log, query: str, session_id: str | None = None) -> list[tuple[str, int]]:
    return [(hit.session_id, hit.seq) for hit in log.search(query, session_id)]


# -- Log: append and read


def what_is_appended_is_read_back(make: Callable[[], Log]) -> None:
    log = make()
    first = _session(log, "s", "one")
    second = log.append("s", 2, _drafts(_said("two"), Observed(kind="x", raw="\ud800\0"), start=3))
    assert [event.seq for event in first + second] == [1, 2, 3, 4]
    assert tuple(log.read("s")) == first + second
    assert tuple(log.read("s", 1, 3)) == (first + second)[1:3]
    assert tuple(log.read("s", 4)) == tuple(log.read("s", 9)) == tuple(log.read("s", 3, 2)) == ()


def the_chain_is_that_of_the_canonical_bytes(make: Callable[[], Log]) -> None:
    log = make()
    digest = GENESIS
    for event in _session(log, "s", "one", "压缩"):
        digest = link(digest, envelope("s", event.seq, event.uuid, event.at, encode_fact(event.fact)))
        assert event.digest == digest


def a_lost_race_names_both_heads_and_changes_nothing(make: Callable[[], Log]) -> None:
    log = make()
    events = _session(log, "s", "one")
    for after in (0, 1, 3, -1):
        message = refusal_of(SequenceConflict, lambda after=after: log.append("s", after, _drafts(_said("late"))))  # type: ignore[misc]
        assert f"event {after}," in message
        assert "event 2" in message
    refusal_of(SequenceConflict, lambda: log.append("s", 0, _drafts(_opened())))
    assert tuple(log.read("s")) == events


def an_append_is_all_or_nothing(make: Callable[[], Log]) -> None:
    log = make()
    events = _session(log, "s", "one")
    late = Draft(fact=_opened(), uuid="u", at=0)
    refusal_of(UsageError, lambda: log.append("s", 2, [*_drafts(_said("two")), late]))
    refusal_of(UsageError, lambda: log.append("s", 2, [*_drafts(_said("two")), Draft(fact=_said("x"), uuid="", at=0)]))
    assert tuple(log.read("s")) == events
    assert log.append("s", 2, []) == ()
    assert log.append("s", 2, _drafts(_said("two")))[0].seq == 3


def a_session_starts_with_session_opened(make: Callable[[], Log]) -> None:
    log = make()
    refusal_of(UsageError, lambda: log.append("s", 0, _drafts(_said("one"))))
    refusal_of(SequenceConflict, lambda: log.append("s", 3, _drafts(_opened())))
    refusal_of(UsageError, lambda: log.append("", 0, _drafts(_opened())))
    refusal_of(UsageError, lambda: list(log.read("s")))
    refusal_of(UsageError, lambda: log.search("one", "s"))
    assert log.sessions() == log.sessions("s") == []


def what_could_not_be_read_again_is_refused(make: Callable[[], Log]) -> None:
    log = make()
    _session(log, "s")
    broken = SessionOpened(format="1")  # type: ignore[arg-type]
    refusal_of(UsageError, lambda: log.append("t", 0, _drafts(broken)))
    wrong = UserSaid(blocks=(Text(text="x", content="no such class"),))  # type: ignore[arg-type]
    refusal_of(UsageError, lambda: log.append("s", 1, _drafts(wrong)))
    for uuid, at in (("u", 2**63), ("u", 1.5), ("\ud83d", 0), ("nul\0", 0)):
        refusal_of(UsageError, lambda uuid=uuid, at=at: log.append("s", 1, [Draft(fact=_said("x"), uuid=uuid, at=at)]))  # type: ignore[misc]
    assert len(list(log.read("s"))) == 1


# -- Log: forks and children


def a_fork_continues_its_parent(make: Callable[[], Log]) -> None:
    log = make()
    trunk = _session(log, "trunk", "one", "two", "three")
    branch = _fork(log, "branch", trunk[1], "other")
    twig = _fork(log, "twig", branch[-1], "third way")
    early = _fork(log, "early", next(log.read("branch", 1, 2)))
    assert [event.seq for event in branch] == [3, 4]
    assert tuple(log.read("branch")) == trunk[:2] + branch
    assert tuple(log.read("twig")) == trunk[:2] + branch + twig
    assert tuple(log.read("twig", 1, 5)) == trunk[1:2] + branch + twig[:1]
    assert tuple(log.read("early")) == trunk[:2] + early
    assert tuple(log.read("trunk")) == trunk
    assert log.append("branch", 4, _drafts(_said("on")))[0].seq == 5
    assert tuple(log.read("twig")) == trunk[:2] + branch + twig
    assert [row.events for row in log.sessions("branch")] == [3]


def a_fork_below_a_forks_start_is_one_of_its_ancestors(make: Callable[[], Log]) -> None:
    log = make()
    trunk = _session(log, "trunk", "one", "two")
    _fork(log, "branch", trunk[2], "late")
    below = Link(session_id="branch", seq=2, digest=trunk[1].digest.hex())
    own = log.append("below", 2, _drafts(SessionOpened(format=FORMAT, kind="fork", parent=below)))
    assert tuple(log.read("below")) == trunk[:2] + own
    assert [row.problem for row in log.verify()] == ["", "", ""]


def a_child_starts_its_own_chain(make: Callable[[], Log]) -> None:
    log = make()
    parent = _session(log, "parent", "one")
    opened = SessionOpened(format=FORMAT, kind="child", parent=_link(parent[1]))
    child = log.append("child", 0, _drafts(opened, _said("sub")))
    assert [event.seq for event in child] == [1, 2]
    assert tuple(log.read("child")) == child
    assert [row.parent_id for row in log.sessions("child")] == ["parent"]


def a_parent_must_exist_as_it_is_named(make: Callable[[], Log]) -> None:
    log = make()
    trunk = _session(log, "trunk", "one")
    for parent in (
        Link(session_id="nobody", seq=1, digest=""),
        Link(session_id="trunk", seq=3, digest=trunk[1].digest.hex()),
        Link(session_id="trunk", seq=1, digest=trunk[1].digest.hex()),
        Link(session_id="trunk", seq=0, digest=GENESIS.hex()),
        None,
    ):
        opened = SessionOpened(format=FORMAT, kind="fork", parent=parent)
        after = parent.seq if parent else 0
        refusal_of(UsageError, lambda opened=opened, after=after: log.append("f", after, _drafts(opened)))  # type: ignore[misc]
    rooted = SessionOpened(format=FORMAT, parent=_link(trunk[1]))
    refusal_of(UsageError, lambda: log.append("f", 0, _drafts(rooted)))
    assert log.sessions("f") == []


# -- Log: the list of sessions


def the_list_of_sessions_is_derived_from_their_events(make: Callable[[], Log]) -> None:
    log = make()
    fact = SessionOpened(format=FORMAT, agent="codex", model="m", title="a title", workspace="/w")
    log.append("old", 0, [Draft(fact=fact, uuid="a", at=5), Draft(fact=_said("x"), uuid="b", at=7)])
    log.append("new", 0, [Draft(fact=_opened(), uuid="a", at=9)])
    rows = log.sessions()
    assert [row.session_id for row in rows] == ["new", "old"]
    old = rows[1]
    head = list(log.read("old"))[-1]
    assert (old.kind, old.agent, old.model, old.title, old.workspace) == ("root", "codex", "m", "a title", "/w")
    assert (old.events, old.opened_at, old.last_at, old.head, old.parent_id) == (2, 5, 7, _link(head), "")
    assert log.sessions("old") == [old]


# -- Log: search


def a_search_sees_everything_appended_before_it(make: Callable[[], Log]) -> None:
    log = make()
    _session(log, "s", "alpha bravo")
    assert _found(log, "bravo") == [("s", 2)]
    log.append("s", 2, _drafts(_said("charlie bravo delta"), start=3))
    assert sorted(_found(log, "bravo")) == [("s", 2), ("s", 3)]
    assert _found(log, "charlie bravo") == [("s", 3)]
    assert _found(log, "bravo alpha") == _found(log, "") == []


def any_substring_is_found(make: Callable[[], Log]) -> None:
    log = make()
    tail = "line of log output\n" * 500 + "\x1b[31merror\0: E4711 at end_of_output\x1b[0m"
    call = ToolCall(call_id="c", name="read_file", arguments='{"path":"src/core/HTTPServerError.py","n":1}')
    log.append(
        "s",
        0,
        _drafts(
            _opened("一个标题"),
            _said("请压缩上下文窗口, then run parse_config2 at v2.1"),
            ModelReplied(blocks=(call,)),
            ToolReturned(call_id="c", blocks=(ToolResultRaw(text=tail),)),
            _said('quote " backslash \\ half \ud83d Straße ΟΔΟΣ'),
        ),
    )
    expected = {
        "压缩": 2, "上下文": 2, "文窗": 2, "parse_config2": 2, "config2": 2, "nfig2 at v": 2, "V2.1": 2, ".1": 2,
        "Server": 3, "servererror": 3, "rverErr": 3, "read_file": 3, '"n":1}': 3, "core/HTTP": 3,
        "E4711": 4, "end_of_output": 4, "d_of_out": 4, "\x1b[0m": 4, "error\0: E": 4, "output\nline": 4,
        '" back': 5, "\\": 5, "\ud83d": 5, "strasse": 0, "straße": 5, "οδος": 5, "标题": 1,
    }  # fmt: skip
    for query, seq in expected.items():
        assert _found(log, query)[:1] == ([("s", seq)] if seq else []), query


def a_hit_shows_where_the_literal_stands(make: Callable[[], Log]) -> None:
    log = make()
    text = "x " * 4000 + "NeedleHere" + " y" * 4000
    _session(log, "s", text, "short NEEDLEHERE")
    hits = {hit.seq: hit for hit in log.search("needlehere")}
    for seq, whole in ((2, text), (3, "short NEEDLEHERE")):
        hit = hits[seq]
        assert whole[hit.offset : hit.offset + 10].lower() == "needlehere"
        assert "needlehere" in hit.text.lower()
        assert hit.text in whole
        assert len(hit.text) <= 300
        assert (hit.session_id, hit.uuid, hit.kind) == ("s", f"u{seq}", "user_said")


def a_search_stays_in_its_scope_and_limit(make: Callable[[], Log]) -> None:
    log = make()
    trunk = _session(log, "trunk", "needle one", "needle two", "needle three")
    _fork(log, "branch", trunk[2], "needle four")
    _session(log, "other", "needle five")
    assert sorted(_found(log, "needle", "branch")) == [("branch", 5), ("trunk", 2), ("trunk", 3)]
    assert sorted(_found(log, "eedle", "branch")) == [("branch", 5), ("trunk", 2), ("trunk", 3)]
    assert len(_found(log, "needle")) == 5
    assert len(log.search("needle", limit=2)) == len(log.search("eedle", limit=2)) == 2
    assert log.search("needle", limit=0) == []


def a_search_does_not_find_its_own_echo(make: Callable[[], Log]) -> None:
    log = make()
    _session(log, "s", "the needle")
    echo = HostSaid(kind="recall", blocks=(Text(text="found: the needle, needle, needle"),))
    log.append("s", 2, _drafts(echo, Observed(kind="progress", raw="needle and straw"), start=3))
    for query in ("needle", "eedl"):
        found = _found(log, query)
        assert found[0] == ("s", 2)
        assert ("s", 3) not in found
    assert _found(log, "found: the") == []
    assert _found(log, "straw") == [("s", 4)]
    asked = ModelReplied(blocks=(ToolCall(call_id="c", name="recall", arguments="magnet"),))
    log.append("s", 4, _drafts(asked, ToolReturned(call_id="c", blocks=(Text(text="magnet?"),), by="host"), start=5))
    assert _found(log, "magnet") == []


def an_event_is_found_by_its_name(make: Callable[[], Log]) -> None:
    log = make()
    trunk = _session(log, "trunk", "one", "two")
    branch = _fork(log, "branch", trunk[1], "x")
    assert (log.find("trunk", trunk[2].uuid), log.find("trunk", "nobody")) == (trunk[2], None)
    assert log.find("branch", branch[1].uuid) == branch[1]


# -- Log: verification


def a_sound_log_verifies(make: Callable[[], Log]) -> None:
    log = make()
    trunk = _session(log, "trunk", "one", "two")
    _fork(log, "branch", trunk[1], "x")
    assert [(row.session_id, row.events, row.problem) for row in log.verify("branch")] == [
        ("branch", 2, ""),
        ("trunk", 3, ""),
    ]
    assert {(row.session_id, row.events, row.problem) for row in log.verify()} == {("branch", 2, ""), ("trunk", 3, "")}
    refusal_of(UsageError, lambda: log.verify("nobody"))


LOG_CASES: tuple[LogCase, ...] = (
    an_event_is_found_by_its_name,
    what_is_appended_is_read_back,
    the_chain_is_that_of_the_canonical_bytes,
    a_lost_race_names_both_heads_and_changes_nothing,
    an_append_is_all_or_nothing,
    a_session_starts_with_session_opened,
    what_could_not_be_read_again_is_refused,
    a_fork_continues_its_parent,
    a_fork_below_a_forks_start_is_one_of_its_ancestors,
    a_child_starts_its_own_chain,
    a_parent_must_exist_as_it_is_named,
    the_list_of_sessions_is_derived_from_their_events,
    a_search_sees_everything_appended_before_it,
    any_substring_is_found,
    a_hit_shows_where_the_literal_stands,
    a_search_stays_in_its_scope_and_limit,
    a_search_does_not_find_its_own_echo,
    a_sound_log_verifies,
)
