"""Calibration: counts become a model's own tokens, better with each reply, and no bad report spoils it."""

from __future__ import annotations

import base64
import importlib.util
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transom.adapters.counter import open_counter
from transom.core.block import CONTENTS
from transom.core.calibration import FAMILIES, Calibration, Counts, calibration_for, family_of

exact = pytest.mark.skipif(importlib.util.find_spec("quicktok") is None, reason="the extra `exact` is absent")

ENGLISH = [
    "the",
    "window",
    "is",
    "small",
    "and",
    "clean",
    "because",
    "everything",
    "that",
    "happened",
    "stays",
    "behind",
]
CHINESE = "横楣是门上方的窗代理在干净的小窗口里工作所有发生过的事都留在后面的持久存储里随时可以取证"
LINES = [
    "    for call in pending.values():",
    "        if call.is_settled and call.effect != 'write':",
    "            results[call.id] = await run(call, timeout=30.0)",
    "    return {k: v for k, v in results.items() if v is not None}",
    'assert json.loads(text)["items"][0]["id"] == 17',
    "def settle(self, call: Call, *, force: bool = False) -> Result:",
]


def _english(dice: random.Random) -> str:
    return " ".join(dice.choices(ENGLISH, k=dice.randrange(60, 400))).capitalize() + "."


def _chinese(dice: random.Random) -> str:
    return "".join(dice.choices(CHINESE, k=dice.randrange(60, 400)))


def _code(dice: random.Random) -> str:
    return "\n".join(dice.choices(LINES, k=dice.randrange(5, 60)))


def _base64(dice: random.Random) -> str:
    return base64.b64encode(dice.randbytes(dice.randrange(100, 900))).decode()


KINDS: dict[str, Callable[[random.Random], str]] = {
    "english": _english,
    "chinese": _chinese,
    "code": _code,
    "base64": _base64,
}

counts_ = st.tuples(*[st.integers(0, 50_000)] * 5)
grown_ = st.integers(-200_000, 400_000)


def _one(content: str, tokens: int) -> Counts:
    a, b, c, d, e = (tokens if name == content else 0 for name in CONTENTS)
    return (a, b, c, d, e)


def _vector(dice: random.Random, top: int = 3000) -> Counts:
    """What a step appends: one or two big classes, the others small or absent."""
    a, b, c, d, e = (dice.choice([0, dice.randrange(30), dice.randrange(top)]) for _ in CONTENTS)
    return (a, b, c, d, e) if a + b + c + d else (a + 50, b, c, d, e)


def _true(ratios: tuple[float, ...], counts: Counts, messages: int) -> float:
    return sum(r * x for r, x in zip(ratios, (*counts, messages), strict=True))


@exact
@pytest.mark.parametrize("vocabulary", ["cl100k_base", "qwen3"])
@pytest.mark.parametrize("kind", KINDS)
def test_eight_replies_teach_the_ratio_of_a_real_vocabulary_to_eight_percent(kind: str, vocabulary: str) -> None:
    """The model counts with another vocabulary and five tokens a message; from an unknown model's seed."""
    import quicktok  # noqa: PLC0415  (an extra)

    model, counter, dice = quicktok.get_encoding(vocabulary), open_counter("o200k"), random.Random(8)
    calibration = Calibration()
    for _ in range(8):
        text = KINDS[kind](dice)
        measure = counter.measure(text)
        calibration = calibration.observe(_one(measure.content, measure.tokens), 2, model.count(text) + 10)
    assert calibration.outliers == 0
    off = total = 0
    for _ in range(20):
        text = KINDS[kind](dice)
        measure = counter.measure(text)
        real = model.count(text) + 10
        error = calibration.estimate(_one(measure.content, measure.tokens), 2) - real
        assert abs(error) <= 0.08 * real
        off, total = off + error, total + real
    assert abs(off) <= 0.05 * total


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("truth", [(1.3, 1.1, 1.4, 1.0, 0.7, 12.0), (1.0, 1.4, 1.0, 1.4, 0.2, 3.0)])
def test_mixed_steps_teach_every_ratio_at_once(truth: tuple[float, ...], seed: int) -> None:
    dice = random.Random(seed)
    calibration = Calibration()
    for _ in range(60):
        counts, messages = _vector(dice), dice.randrange(1, 5)
        noise = dice.gauss(1.0, 0.03)
        calibration = calibration.observe(counts, messages, round(_true(truth, counts, messages) * noise))
    errors = []
    for _ in range(50):
        counts, messages = _vector(dice), dice.randrange(1, 5)
        real = _true(truth, counts, messages)
        errors.append(abs(calibration.estimate(counts, messages) - real) / real)
    assert sorted(errors)[25] <= 0.04
    assert calibration.error <= 0.15


def test_the_hidden_share_is_learnt() -> None:
    for share in (0.0, 0.5, 1.0):
        dice = random.Random(3)
        calibration = calibration_for("gpt-5.4")
        for _ in range(40):
            counts: Counts = (dice.randrange(500), dice.randrange(500), 0, 0, dice.randrange(200, 3000))
            calibration = calibration.observe(counts, 2, round(counts[0] + counts[1] + share * counts[4] + 6))
        assert abs(calibration.ratios[4] - share) <= 0.12


def test_a_report_that_is_no_growth_teaches_nothing() -> None:
    calibration = calibration_for("claude-opus-4-5")
    for grown in (0, -1, -90_000):
        assert calibration.observe((100, 200, 0, 0, 0), 2, grown) is calibration
    assert calibration.observe((0, 0, 0, 0, 0), 0, 500) is calibration
    assert calibration.observe((100, -5, 0, 0, 0), 1, 500) is calibration
    assert calibration.observe((100, 5, 0, 0, 0), -1, 500) is calibration


def test_one_wild_report_is_set_aside() -> None:
    calibration = calibration_for("gpt-5.4")
    for _ in range(10):
        calibration = calibration.observe((500, 500, 0, 0, 0), 2, 1006)
    before = calibration.ratios
    calibration = calibration.observe((500, 500, 0, 0, 0), 2, 40_000)
    assert calibration.ratios == before
    assert (calibration.outliers, calibration.streak) == (1, 1)
    calibration = calibration.observe((500, 500, 0, 0, 0), 2, 1006)
    assert (calibration.outliers, calibration.streak) == (1, 0)


def test_wild_reports_in_a_row_are_believed_in_the_end() -> None:
    """A model was exchanged under the same name: the doubts open and the new ratio is found."""
    calibration = calibration_for("gpt-5.4")
    for _ in range(20):
        calibration = calibration.observe((500, 500, 0, 0, 0), 2, 1006)
    for _ in range(20):
        calibration = calibration.observe((500, 500, 0, 0, 0), 2, 1700)
    assert abs(calibration.estimate((500, 500, 0, 0, 0), 2) - 1700) <= 0.05 * 1700


@pytest.mark.parametrize(("grown", "bound"), [(2_700, 2.5), (100, 0.5)])
def test_a_ratio_stops_at_its_bound(grown: int, bound: float) -> None:
    """No vocabulary is that far from another, however often it is reported."""
    calibration = Calibration()
    for _ in range(60):
        calibration = calibration.observe((0, 1000, 0, 0, 0), 0, grown)
    assert calibration.ratios[1] == bound


def test_the_error_of_the_estimates_is_tracked() -> None:
    good = bad = calibration_for("gpt-5.4")
    dice = random.Random(2)
    for _ in range(40):
        counts = _vector(dice)
        real = _true(good.ratios, counts, 2)
        good = good.observe(counts, 2, max(1, round(real)))
        bad = bad.observe(counts, 2, max(1, round(real * dice.choice([0.9, 1.1]))))
    assert good.error <= 0.02
    assert 0.05 <= bad.error <= 0.2


def test_spread_is_wide_before_usage_and_narrow_after() -> None:
    fresh = calibration_for("some-new-model")
    learnt = fresh
    for _ in range(20):
        learnt = learnt.observe((0, 1000, 0, 0, 0), 1, 1400)
    assert learnt.spread((0, 1000, 0, 0, 0), 1) < 0.6 * fresh.spread((0, 1000, 0, 0, 0), 1)


@given(reports=st.lists(st.tuples(counts_, st.integers(0, 50), grown_), max_size=30))
def test_whatever_is_reported_the_ratios_stay_in_bounds(reports: list[tuple[Counts, int, int]]) -> None:
    calibration = Calibration()
    for counts, messages, grown in reports:
        calibration = calibration.observe(counts, messages, grown)
    for row, ratio in enumerate(calibration.ratios):
        assert (0.0 if row > 3 else 0.5) <= ratio <= (60.0 if row == 5 else 3.0)
    assert all(doubt > 0 for doubt in calibration.doubts)
    assert 0.0 <= calibration.error <= 1.0
    assert calibration.estimate((10, 10, 10, 10, 10), 2) > 0


@given(counts=counts_, more=counts_, messages=st.integers(0, 50))
def test_more_counted_never_means_fewer_tokens(counts: Counts, more: Counts, messages: int) -> None:
    calibration = calibration_for("claude-opus-4-7")
    a, b, c, d, e = (x + y for x, y in zip(counts, more, strict=True))
    assert calibration.estimate((a, b, c, d, e), messages) >= calibration.estimate(counts, messages)
    assert calibration.visible(counts) <= calibration.estimate(counts, messages)


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("claude-3-5-sonnet-20240620", "claude-3-4.6"),
        ("litellm_proxy/anthropic.claude-3-5-sonnet-20241022-v2:0", "claude-3-4.6"),
        ("claude-opus-4-20250514", "claude-3-4.6"),
        ("claude-sonnet-4-5-20250929", "claude-3-4.6"),
        ("claude-sonnet-4.6", "claude-3-4.6"),
        ("us.anthropic.claude-opus-4-6-v1:0", "claude-3-4.6"),
        ("claude-opus-4-7", "claude-4.7"),
        ("claude-opus-5", "claude-4.7"),
        ("claude-fable-5", "claude-4.7"),
        ("gpt-5.3-codex-spark", "gpt"),
        ("openai/gpt-4o-mini", "gpt"),
        ("o3-mini", "gpt"),
        ("openai/o4-mini", "gpt"),
        ("openai/Qwen3-Coder-Next-GGUF", "qwen"),
        ("deepseek/deepseek-reasoner", "deepseek"),
        ("gemini-3-flash-preview", "gemini"),
        ("openai/openrouter-llama-4-maverick", "llama"),
        ("QuantTrio/GLM-4.6-AWQ", "unknown"),
        ("", "unknown"),
    ],
)
def test_a_model_belongs_to_a_family(model: str, family: str) -> None:
    assert family_of(model) == family
    assert calibration_for(model).ratios == next(ratios for name, _, ratios in FAMILIES if name == family)


def test_common_text_has_one_blended_ratio() -> None:
    assert calibration_for("gpt-4o").blended == 1.0
    assert 1.1 < calibration_for("claude-opus-4-5").blended < 1.4
