"""What a reply tells: whether it ends its turn, and what the prompt it reports teaches: the ratios of our counts, and
whether a provider drops the thoughts of earlier turns.

Only growth teaches: what a prompt is larger by than the last one reported, beside what was appended in between. After
a rewrite, a new window or a new head there is nothing to compare with.
"""

from __future__ import annotations

from transom.core.block import Text
from transom.core.event import ModelReplied
from transom.core.state import NOTHING, State, add_counts, thoughts_of

__all__ = ["answers", "learn", "vote"]

_TELLING = 150
"""Tokens of thoughts from which a prompt's growth tells whether they were kept."""


def learn(state: State, prompt: int) -> None:
    """The reported prompt grew by what was appended since the last one: calibrate."""
    window = state.window
    prompt = max(0, prompt - state.tail_tokens)
    if state.known_prompt and prompt:
        grown = prompt - state.known_prompt
        added = add_counts(window.counts, state.known_counts, -1)
        messages = len(window.items) - state.known_items
        state.drop_votes += vote(state, prompt)
        state.calibration = state.calibration.observe(added, messages, grown)
    state.known_prompt, state.known_counts, state.known_items = prompt, window.counts, len(window.items)


def vote(state: State, prompt: int) -> int:
    """Where the user spoke since the last reported prompt: did it grow as if the thoughts of the turn before were kept
    (-1), or as if they were dropped (1)? 0: it does not tell."""
    window = state.window
    new = window.items[state.known_items :]
    if not state.known_prompt or not any(item.role == "user" for item in new):
        return 0
    added = add_counts(window.counts, state.known_counts, -1)
    kept, grown = state.calibration.estimate(added, len(new)), prompt - state.known_prompt
    thoughts = NOTHING
    for item in reversed(state.window.items[: state.known_items + 1]):
        if item.role == "user":
            break
        thoughts = add_counts(thoughts, thoughts_of(item))
    size = state.calibration.estimate(thoughts)
    if size < _TELLING:
        return 0
    return 1 if abs(grown - kept + size) < abs(grown - kept) else -1


_BROKEN = frozenset(
    {
        *("error", "aborted", "pause_turn"),
        *("max_tokens", "length", "max_output_tokens", "model_context_window_exceeded"),
        *("refusal", "content_filter"),
    }
)
"""Stop reasons of replies that answer nothing yet, in the words of all providers."""


def answers(fact: ModelReplied) -> bool:
    """Whether a reply without calls ends its turn: it has words, and was not broken off."""
    has_words = any(isinstance(block, Text) and block.text.strip() for block in fact.blocks)
    return has_words and fact.stop_reason not in _BROKEN
