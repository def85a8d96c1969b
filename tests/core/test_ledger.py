"""The ledger: what each request should have read, beside what its provider reported, and why the two differ."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from transom import compose
from transom.adapters.memory_log import MemoryLog
from transom.adapters.provider_anthropic import DIALECT
from transom.core.calibration import calibration_for
from transom.core.canon import FORMAT
from transom.core.event import (
    BlockReplaced,
    Draft,
    EpochOpened,
    Fact,
    HostSaid,
    ModelReplied,
    Observed,
    Replacement,
    Section,
    Seed,
    SessionOpened,
    ToolReturned,
    Usage,
    UserSaid,
    WindowOpened,
)
from transom.core.ledger import UNRECORDED, Entry, ledger, requests
from transom.core.losses import Settled, by_reason, is_reported, settle
from transom.core.pricing import find_price
from transom.core.state import counts_of
from transom.core.wire import Keyed
from transom.testing.builders import Story, call, result, rules, text, thought

TABLE = compose.prices()
SONNET, GPT, DEEPSEEK = "claude-sonnet-4-5", "gpt-5.4", "deepseek-chat"


@dataclass
class Tape:
    """A recorded session: a reply a call, ten seconds apart unless it says otherwise."""

    model: str = SONNET
    log: MemoryLog = field(default_factory=MemoryLog)
    now: float = 0.0
    replies: int = 0
    seq: int = 0

    def __post_init__(self) -> None:
        self.say(SessionOpened(format=FORMAT, agent="claude-code", model=self.model))
        self.say(UserSaid(blocks=(text("Fix the parser."),)))

    def say(self, *facts: Fact) -> None:
        at = int(1_000_000 + self.now * 1000)
        drafts = [Draft(fact=fact, uuid=f"u{self.seq + n}", at=at) for n, fact in enumerate(facts)]
        self.seq = self.log.append("s", self.seq, drafts)[-1].seq

    def reply(self, usage: Usage, *, gap: float = 10, model: str = "", words: str = "ok") -> None:
        """What was said last waits for `gap` seconds before it is sent; the reply calls, and its call returns at once."""
        self.now += gap
        self.say(HostSaid(kind="injected", blocks=(text("go"),)))
        self.replies += 1
        name = f"c{self.replies}"
        self.say(ModelReplied(blocks=(call(name),), model=model or self.model, usage=usage, response_id=name))
        self.say(ToolReturned(call_id=name, blocks=(result(words),)))

    def entries(self) -> list[Entry]:
        return list(ledger(self.log.read("s"), DIALECT, lambda model: find_price(TABLE, model)))

    def settled(self) -> list[Settled]:
        return settle(self.entries())


def claude(prompt: int, cached: int, *, is_long: bool = False) -> Usage:
    """All but three tokens of the prompt are behind no mark."""
    written = prompt - cached - 3
    return Usage(uncached=3, cached=cached, written=written, written_1h=written if is_long else 0, output=50)


def openai(prompt: int, cached: int, output: int = 50, reasoning: int = 0) -> Usage:
    return Usage(uncached=prompt - cached, cached=cached, output=output, reasoning=reasoning)


def grown(tape: Tape, *, steps: int = 3, start: int = 20_000) -> int:
    """Steps that each read all of the one before; the size of the last prompt."""
    size, cached = start, 0
    for _ in range(steps):
        tape.reply(claude(size, cached))
        size, cached = size + 2000, size - 3
    return size - 2000


def test_what_extends_is_expected_up_to_the_last_mark_and_nothing_is_lost() -> None:
    tape = Tape()
    grown(tape, steps=5)
    entries = tape.entries()
    assert [one.expected for one in entries] == [0, 19_997, 21_997, 23_997, 25_997]
    assert [one.usage.cached for one in entries] == [one.expected for one in entries]
    assert all(not one.lost and not one.is_miss for one in tape.settled())
    assert [one.verdict for one in entries] == ["miss", "hit", "hit", "hit", "hit"]
    assert entries[0].reasons == ("initial",)


def test_a_cache_that_idled_too_long_is_named_and_not_blamed_on_the_provider() -> None:
    tape = Tape()
    size = grown(tape)
    tape.reply(claude(size + 100, 0), gap=301)
    late = tape.settled()[-1]
    assert (late.entry.expected, late.entry.warm, late.lost) == (0, size - 3, (("ttl", size - 3),))
    tape.reply(claude(size + 200, size + 97), gap=300)
    assert not tape.settled()[-1].lost


def test_the_hour_long_cache_lives_for_an_hour() -> None:
    tape = Tape()
    tape.reply(claude(20_000, 0, is_long=True))
    tape.reply(claude(20_100, 19_997, is_long=True), gap=3600)
    tape.reply(claude(20_200, 0, is_long=True), gap=3601)
    assert [one.expected for one in tape.entries()] == [0, 19_997, 0]
    assert by_reason(tape.settled()) == {"ttl": 20_097}


def test_what_is_read_from_an_older_end_was_served_by_another_machine() -> None:
    tape = Tape(model=GPT)
    for prompt, cached in ((20_000, 0), (24_000, 20_000 - 20_000 % 128), (28_000, 24_000 - 24_000 % 128)):
        tape.reply(openai(prompt, cached))
    tape.reply(openai(30_000, 23_936))
    lost = tape.settled()[-1]
    assert lost.lost == (("routing", 28_000 - 23_936),)
    assert lost.is_miss
    assert lost.reason == "routing"


def test_a_prompt_that_the_next_request_finds_again_was_not_evicted() -> None:
    tape = Tape()
    size = grown(tape)
    tape.reply(claude(size + 1000, 0))
    tape.reply(claude(size + 1100, size - 3))
    assert [reason for reason, _ in tape.settled()[-2].lost] == ["routing"]


def test_a_request_that_neither_reads_nor_writes_met_a_server_without_a_cache() -> None:
    tape = Tape()
    size = grown(tape)
    tape.reply(Usage(uncached=size + 500, output=9))
    tape.reply(claude(size + 900, size - 3))
    one, after = tape.settled()[-2:]
    assert one.lost == (("routing", size - 3),)
    assert not one.entry.is_remembered
    assert (after.entry.expected, after.lost) == (size - 3, (("routing", 503),))


def test_nothing_read_within_its_time_is_an_eviction() -> None:
    tape = Tape()
    size = grown(tape)
    tape.reply(claude(size + 1000, 0))
    tape.reply(claude(size + 1100, size + 997))
    one = tape.settled()[-2]
    assert one.lost == (("evicted", size - 3),)
    assert one.dollars == pytest.approx((size - 3) * (3.75 - 0.3) / 1e6)


def test_without_times_an_eviction_cannot_be_told_from_an_expiry() -> None:
    tape = Tape()
    for prompt, cached in ((20_000, 0), (22_000, 19_997), (24_000, 0), (26_000, 23_997)):
        tape.reply(claude(prompt, cached), gap=0)
    assert tape.settled()[2].reason == "unknown"


def test_a_prompt_that_shrank_though_nothing_on_record_was_rewritten_is_not_guessed_at() -> None:
    tape = Tape()
    size = grown(tape)
    tape.reply(claude(size - 5000, 9000))
    one = tape.settled()[-1]
    assert one.entry.expected is None
    assert one.entry.reasons == (UNRECORDED,)
    assert one.lost == ((UNRECORDED, size - 5000 - 9000),)
    tape.reply(claude(size - 4000, size - 5003))
    assert not tape.settled()[-1].lost


def test_each_model_has_its_own_cache_and_a_change_is_named() -> None:
    tape = Tape()
    size = grown(tape)
    tape.reply(claude(size + 1000, 0), model="claude-opus-4-5")
    tape.reply(claude(size + 1200, size - 3))
    away, back = tape.settled()[-2:]
    assert away.lost == (("change:model", size),)
    assert away.entry.reasons == ("change:model",)
    assert back.entry.expected == size - 3
    assert back.entry.reasons == ("change:model",)


def test_a_rewrite_is_named_and_what_stands_before_it_is_expected_to_the_token() -> None:
    tape = Tape()
    grown(tape, steps=4)
    third = next(event for event in tape.log.read("s") if isinstance(event.fact, ToolReturned))
    hidden = Replacement(seq=third.seq, index=0, block=result("gone"))
    tape.say(BlockReplaced(how="mask", targets=(hidden,)))
    tape.reply(claude(26_500, 19_997))
    one = tape.settled()[-1]
    assert one.entry.reasons == ("reset:mask",)
    assert one.entry.expected == 19_997
    assert one.lost[0][0] == "reset:mask"
    assert sum(tokens for _, tokens in one.lost) == 26_000 - 19_997


def test_a_new_window_reads_no_more_than_the_head_and_is_named_by_its_cause() -> None:
    tape = Tape()
    tape.reply(claude(20_000, 9000))
    tape.reply(claude(25_000, 19_997))
    tape.say(WindowOpened(cause="recorded", generation=1, seed=(Seed(role="user", blocks=(text("Summary."),)),)))
    tape.reply(claude(14_000, 9000))
    one = tape.settled()[-1]
    assert one.entry.reasons == ("reset:checkpoint",)
    assert one.entry.expected == 9000
    assert one.lost == (("reset:checkpoint", 5000),)


def test_an_answer_that_comes_back_is_expected_where_the_provider_keeps_it() -> None:
    tape = Tape(model=DEEPSEEK)
    tape.reply(openai(20_000, 0, output=1300))
    tape.reply(openai(22_000, 21_248))
    assert tape.entries()[-1].expected == 21_248
    assert not tape.settled()[-1].lost


def test_thoughts_that_the_provider_dropped_when_the_user_spoke_are_a_named_prune() -> None:
    """The growth tells: with them the prompt would have grown, and it shrank by about their size."""
    tape = Tape()
    tape.reply(claude(20_000, 0))
    long = thought(" ".join(f"word{n}" for n in range(4000)))
    size = calibration_for(SONNET).estimate(counts_of((long,)))
    tape.now += 10
    tape.say(
        ModelReplied(blocks=(long, call("t")), model=SONNET, usage=claude(20_100, 19_997), response_id="t"),
        ToolReturned(call_id="t", blocks=(result("ok"),)),
    )
    tape.now += 10
    done = claude(20_200 + size, 20_097)
    tape.say(ModelReplied(blocks=(text("Done."),), model=SONNET, usage=done, response_id="d"))
    tape.say(UserSaid(blocks=(text("And the lexer?"),)))
    tape.reply(claude(20_300, 20_097))
    one = tape.settled()[-1]
    assert one.entry.reasons == ("reset:prune",)
    assert one.entry.expected == 20_097
    assert one.lost == (("reset:prune", 203),)


def test_a_prefix_below_the_minimum_is_no_loss() -> None:
    tape = Tape()
    tape.reply(Usage(uncached=900, output=5))
    tape.reply(Usage(uncached=1000, output=5))
    assert [one.entry.expected for one in tape.settled()] == [0, 0]
    assert not tape.settled()[-1].lost
    assert not is_reported(tape.entries())


def test_a_reply_that_a_client_wrote_beside_the_last_usage_is_no_request() -> None:
    tape = Tape()
    grown(tape)
    usage = tape.entries()[-1].usage
    tape.say(ModelReplied(blocks=(text("(interrupted)"),), model=SONNET, usage=usage))
    assert len(tape.entries()) == 3


def test_a_recording_without_usage_has_requests_but_no_entries() -> None:
    tape = Tape()
    tape.say(ModelReplied(blocks=(text("Hello."),), model=SONNET))
    assert tape.entries() == []
    found = list(requests(tape.log.read("s"), DIALECT, lambda model: find_price(TABLE, model)))
    assert [(one.verdict, one.is_as_sent) for one in found] == [("miss", False)]


def test_the_last_request_of_a_session_is_settled_without_a_look_ahead() -> None:
    tape = Tape(model=GPT)
    tape.reply(openai(20_000, 0))
    tape.reply(openai(24_000, 19_968))
    tape.reply(openai(28_000, 0))
    one = tape.settled()[-1]
    assert one.lost == (("evicted", 24_000),)
    assert one.dollars == pytest.approx(24_000 * (2.5 - 0.25) / 1e6)


def test_an_older_end_is_one_of_the_same_model() -> None:
    tape = Tape(model=GPT)
    tape.reply(openai(20_000, 0))
    tape.reply(openai(24_000, 0), model="gpt-5.3-codex")
    tape.reply(openai(28_000, 19_968))
    tape.reply(openai(40_000, 28_032))
    tape.reply(openai(44_000, 23_936))
    assert tape.settled()[-1].reason == "unknown"
    tape.reply(openai(48_000, 28_032))
    assert tape.settled()[-1].reason == "routing"


def test_a_prompt_that_shrank_after_a_loss_tells_nothing_of_the_loss() -> None:
    tape = Tape()
    size = grown(tape)
    tape.reply(claude(size + 1000, 0))
    tape.reply(claude(size - 4000, 9000))
    assert [one.reason for one in tape.settled()[-2:]] == ["evicted", UNRECORDED]


def test_a_head_of_other_words_is_read_from_its_start_no_more() -> None:
    tape = Tape()
    tape.say(EpochOpened(sections=(Section(key="system", text="Careful.", tokens=90),)))
    size = grown(tape)
    tape.say(EpochOpened(sections=(Section(key="system", text="Careless.", tokens=90),), reason="change:system"))
    tape.reply(claude(size + 100, 0))
    one = tape.settled()[-1]
    assert (one.entry.reasons, one.entry.expected) == (("change:system",), 0)
    assert one.lost == (("change:system", size),)
    assert one.entry.head > 19_000  # what the recording lacks of a head, it lacks of the next one too


def test_a_forced_call_keeps_the_head_alone() -> None:
    story = live()
    story.user("Fix the parser.")
    story.say(EpochOpened(sections=(Section(key="system", text="Careful.", tokens=2900),)))
    for number, prompt in enumerate((4000, 5000)):
        story.step()
        story.reply(call(f"c{number}"), usage=claude(prompt, 0))
        story.returned(f"c{number}", "some output")
    story.say(HostSaid(kind="fallback", blocks=(text("full"),)))
    story.say(HostSaid(kind="fallback", blocks=(text("full"),)))
    story.step()
    story.reply(call("c9"), usage=claude(6000, 3000))
    *_, one = settle(list(ledger(story.events(), DIALECT, lambda model: find_price(TABLE, model))))
    assert one.entry.reasons == ("change:params",)
    assert one.entry.expected is not None
    assert 2800 < one.entry.expected < 4000
    assert one.reason == "change:params"


def test_other_request_fields_keep_the_head_alone_and_another_model_has_its_own_key() -> None:
    story = live()
    story.user("Fix the parser.")
    prompt = 4000
    for provider, model, fields in (("p", "m", ""), ("p", "m", "f"), ("p", "n", "f"), ("p", "m", "f")):
        story.rules = replace(
            story.rules, dialect=replace(DIALECT, keyed=Keyed(provider=provider, model=model, fields=fields))
        )
        story.reopen()
        story.step()
        story.reply(call(f"c{prompt}"), usage=claude(prompt, 0))
        story.returned(f"c{prompt}", "some output")
        prompt += 500
    found = list(ledger(story.events(), DIALECT, lambda _: find_price(TABLE, SONNET)))
    assert [one.key for one in found] == ["p/m", "p/m", "p/n", "p/m"]
    assert [one.reasons for one in found] == [("initial",), ("change:params",), ("change:model",), ("change:model",)]
    head = found[0].head
    assert [one.expected for one in found] == [0, head, 0, 4497]


def live(policy: str = "rollover") -> Story:
    return Story(rules=rules(policy, 200_000), model=SONNET)


def test_a_live_session_s_own_requests_are_what_is_entered_and_rendered_as_they_were_sent() -> None:
    story = live()
    story.user("Fix the parser.")
    for number, prompt in enumerate((3000, 4000, 5000)):
        story.step()
        usage = claude(prompt, prompt - 1003 if number else 0)
        story.reply(call(f"c{number}"), usage=usage)
        story.returned(f"c{number}", "some output")
    found = list(requests(story.events(), DIALECT, lambda model: find_price(TABLE, model)))
    assert [one.is_as_sent for one in found] == [True, True, True]
    assert [one.verdict for one in found] == ["miss", "hit", "hit"]
    entries = list(ledger(story.events(), DIALECT, lambda model: find_price(TABLE, model)))
    assert [one.expected for one in entries] == [0, 2997, 3997]


def test_the_tail_of_a_live_request_is_never_expected_to_be_read() -> None:
    story = live("gssc")
    story.user("You must never push. " * 200)
    sizes = []
    for number in range(3):
        prepared = story.step()
        assert prepared.tail_tokens > 0
        sizes.append(prepared.tokens)
        story.reply(call(f"c{number}"), usage=openai(prepared.tokens, 0))
        story.returned(f"c{number}", "words " * 3000)
        tails = prepared.tail_tokens
    entries = list(ledger(story.events(), DIALECT, lambda _: find_price(TABLE, GPT)))
    assert entries[1].could == sizes[0] - tails
    assert all(one.expected is not None and one.expected <= one.could for one in entries)


def test_a_request_that_failed_has_no_entry_and_does_not_warm_the_cache() -> None:
    story = live()
    story.user("Fix the parser.")
    story.step()
    story.step()
    story.reply(text("Done."), usage=claude(3000, 0))
    found = list(requests(story.events(), DIALECT, lambda model: find_price(TABLE, model)))
    entries = list(ledger(story.events(), DIALECT, lambda model: find_price(TABLE, model)))
    assert (len(found), len(entries), entries[0].expected) == (2, 1, 0)


def test_the_first_request_that_a_gateway_writes_itself_is_not_blamed_on_the_provider() -> None:
    story = live()
    story.say(Observed(kind="client_request", raw="{}"))
    story.user("Fix the parser.")
    prompt = 6000
    for number in range(4):
        if number == 2:
            story.say(HostSaid(kind="reminder", blocks=(text("The window is nearly full."),)))
        story.step()
        story.reply(call(f"c{number}"), usage=claude(prompt, prompt - 1003 if number in (1, 3) else 0))
        story.returned(f"c{number}", "some output")
        prompt += 1000
    settled = settle(list(ledger(story.events(), DIALECT, lambda _: find_price(TABLE, SONNET))))
    assert [one.reason for one in settled] == ["", "", "form", ""]
