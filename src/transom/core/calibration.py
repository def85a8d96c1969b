"""From o200k counts to a model's own tokens: a ratio per content class, seeded by family, learnt from real usage.

    tokens of the model  =  sum over classes of ratio x count   +   message x messages

The count of "hidden" is in the model's own tokens: output the provider reported beyond what the visible blocks of
the reply account for. Its ratio is the share that is sent again with the next request (reasoning is kept by some
providers, dropped by others), hence 0 to 1.2.

Between two requests that extend each other the provider reports by how much the prompt grew, and we know what was
appended: one equation in six unknowns. `observe` is a Kalman filter with a diagonal covariance: each unknown has a
doubt (variance); the error of the prediction is shared out by doubt x amount, and doubt shrinks as evidence comes.
A floor under the doubts keeps it able to follow a change. What cannot be growth (nothing or less, or usage that is
missing) teaches nothing. Growth far outside what the doubts allow (a compaction, an edited history, an image that
nobody counted) is an outlier and is set aside; `_PATIENCE` of them in a row are no accident, and then the
doubts are opened again.

Only + - x / and sqrt of doubles are used, so the same log gives the same numbers on every machine (L2).
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from math import sqrt

import msgspec

__all__ = ["FAMILIES", "Calibration", "Counts", "calibration_for", "family_of"]

Counts = tuple[int, int, int, int, int]
"""Tokens per content class, in the order of `block.CONTENTS`; the last is in the model's own tokens."""

_NOISE = 0.06
"""Spread of one growth around the best ratios, relative: two texts of a class do not have the same ratio."""
_NOISE_TOKENS = 8.0
"""The same, absolute: framing of calls and results that nobody counts."""
_GATE = 4.0
"""Standard deviations beyond which a growth is an outlier."""
_PATIENCE = 4
_BOUNDS = (
    (0.5, 2.5, 0.0004),
    (0.5, 2.5, 0.0004),
    (0.5, 2.5, 0.0004),
    (0.5, 3.0, 0.0004),
    (0.0, 1.2, 0.0025),
    (0.0, 60.0, 0.25),
)
"""Per unknown: least and greatest value, and least doubt (2 % of a ratio, 5 % of the hidden share, half a token a
message)."""
_WIDE = (0.04, 0.04, 0.04, 0.09, 0.09, 25.0)
"""Doubts at the start: 20 % of a ratio, 30 % of dense data and of the hidden share, five tokens a message."""
_OPEN = tuple(4 * doubt for doubt in _WIDE)
_KNOWN = (0.0004, 0.0004, 0.0004, 0.0004, 0.09, 25.0)
_FORGET = 1 / 16
"""Weight of the newest error in the running one."""


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """What is believed about one model, and how well it has been doing."""

    ratios: tuple[float, ...] = (1.15, 1.25, 1.2, 1.15, 0.8, 6.0)
    """Model tokens per counted token, in the order of `block.CONTENTS`; last, tokens per message."""
    doubts: tuple[float, ...] = _WIDE
    """Variance of each."""
    samples: int = 0
    """Growths learnt from."""
    error: float = 0.0
    """Running mean of |predicted - reported| / reported growth, each taken before it was learnt from."""
    outliers: int = 0
    """Growths set aside, all told."""
    streak: int = 0
    """Outliers since the last growth that was learnt from."""

    @property
    def blended(self) -> float:
        """Model tokens per counted token of common agent text: half prose, half code."""
        return (self.ratios[0] + self.ratios[1]) / 2

    def estimate(self, counts: Counts, messages: int = 0) -> int:
        """Tokens of the model for what was counted, in `messages` messages."""
        r0, r1, r2, r3, r4, r5 = self.ratios
        x0, x1, x2, x3, x4 = counts
        return round(r0 * x0 + r1 * x1 + r2 * x2 + r3 * x3 + r4 * x4 + r5 * messages)

    def visible(self, counts: Counts) -> int:
        """Tokens of the model for what can be seen, framing and "hidden" left out: what is to be taken off a reported
        output to find its hidden part."""
        r0, r1, r2, r3, _, _ = self.ratios
        return round(r0 * counts[0] + r1 * counts[1] + r2 * counts[2] + r3 * counts[3])

    def observe(self, counts: Counts, messages: int, grown: int) -> Calibration:
        """Learn from one step: `counts` in `messages` messages were appended, and the reported prompt grew by `grown`
        tokens. Call it only between requests of which the second extends the first."""
        if grown <= 0:
            return self
        ratios, doubts = list(self.ratios), list(self.doubts)
        predicted = variance = 0.0
        pulls = []
        for row, amount in enumerate((*counts, messages)):
            if amount < 0:
                return self
            if amount:
                # Doubt x amount: how far this growth depends on this unknown.
                pull = doubts[row] * amount
                predicted += ratios[row] * amount
                variance += pull * amount
                pulls.append((row, pull))
        if not pulls:
            return self
        noise = _NOISE * predicted + _NOISE_TOKENS
        variance += noise * noise
        gap = grown - predicted
        if gap * gap > _GATE * _GATE * variance:
            return self._set_aside()
        for row, pull in pulls:
            low, high, floor = _BOUNDS[row]
            gain = pull / variance
            ratio = ratios[row] + gain * gap
            if ratio < low:
                ratio = low
            elif ratio > high:
                ratio = high
            ratios[row] = ratio
            doubt = doubts[row] - gain * pull
            if doubt > floor:
                doubts[row] = doubt
            else:
                doubts[row] = floor
        return Calibration(
            ratios=tuple(ratios),
            doubts=tuple(doubts),
            samples=self.samples + 1,
            error=self._error(abs(gap) / grown),
            outliers=self.outliers,
        )

    def spread(self, counts: Counts, messages: int = 0) -> int:
        """One standard deviation of `estimate`, in tokens."""
        doubt = sum(d * x * x for d, x in zip(self.doubts, (*counts, messages), strict=True))
        noise = _NOISE * self.estimate(counts, messages)
        return round(sqrt(doubt + noise * noise))

    def _error(self, newest: float) -> float:
        weight = max(_FORGET, 1 / (self.samples + 1))
        return self.error + weight * (min(newest, 1.0) - self.error)

    def _set_aside(self) -> Calibration:
        streak = self.streak + 1
        if streak < _PATIENCE:
            return msgspec.structs.replace(self, outliers=self.outliers + 1, streak=streak)
        return msgspec.structs.replace(self, doubts=_OPEN, outliers=self.outliers + 1, streak=0)


# Seeds by family, first match wins. Claude: characters counted by a reproduction of its tokenizer against o200k on
# 100,000 characters each of Python, TypeScript, English, Chinese and logs; dense data and framing from the growth of
# recorded Claude Code sessions. GPT: o200k is its vocabulary. Qwen: its own vocabulary against o200k
# (`python -m bench.counting --families`). The rest have no published vocabulary here: assumed, and learnt from usage.
FAMILIES: tuple[tuple[str, tuple[str, ...], tuple[float, ...]], ...] = (
    ("claude-3-4.6", ("*claude-[123][-.]*", "*claude-instant*"), (1.18, 1.28, 1.42, 1.15, 0.5, 27.0)),
    (
        "claude-3-4.6",
        ("*claude-*-4", "*claude-*-4-20*", "*claude-*-4[-.][0-6]", "*claude-*-4[-.][0-6][-.:@]*"),
        (1.18, 1.28, 1.42, 1.15, 0.5, 27.0),
    ),
    ("claude-4.7", ("*claude*",), (1.59, 1.70, 1.60, 1.30, 1.0, 7.0)),
    (
        "gpt",
        ("*gpt-[345]*", "*codex*", "*gpt-oss*", "o[134]*", "*/o[134]*", "*chatgpt*"),
        (1.0, 1.0, 1.0, 1.0, 1.0, 3.0),
    ),
    ("qwen", ("*qwen*",), (1.1, 1.08, 0.9, 1.3, 0.5, 6.0)),
    ("deepseek", ("*deepseek*",), (1.05, 1.1, 0.95, 1.2, 0.5, 6.0)),
    ("gemini", ("*gemini*", "*gemma*"), (1.1, 1.15, 1.0, 1.4, 0.5, 6.0)),
    ("llama", ("*llama*",), (1.0, 1.0, 1.05, 1.05, 0.5, 6.0)),
    ("unknown", ("*",), Calibration().ratios),
)
"""Name, globs over the lower-case model name, ratios."""


def family_of(model: str) -> str:
    """The name of the family whose seed a model starts from."""
    return _row(model)[0]


def calibration_for(model: str) -> Calibration:
    """What is believed of a model before it reported anything."""
    name, _, ratios = _row(model)
    # Where the vocabulary itself is known, only framing is in doubt.
    return Calibration(ratios=ratios, doubts=_KNOWN if name == "gpt" else _WIDE)


def _row(model: str) -> tuple[str, tuple[str, ...], tuple[float, ...]]:
    name = model.lower()
    return next(row for row in FAMILIES if any(fnmatchcase(name, glob) for glob in row[1]))
