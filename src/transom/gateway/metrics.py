"""What the gateway counts: totals since it started, in Prometheus' text form and as plain values."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from transom.core.cache import Verdict
from transom.core.event import Usage

__all__ = ["Metrics"]

_HELP = {
    "requests": "Requests of clients, by what was done with them",
    "upstream_errors": "Answers of upstream that are none, by class",
    "recovered": "Refused requests that a new window made good",
    "broken": "Answers that could not be ended",
    "left": "Requests whose client left before it had its answer",
    "exhausted": "Answers ended because the model went on calling nobody but the host",
    "unkept": "Facts that could not be stored",
    "prompt_tokens": "Prompt tokens as upstream reported them, by how they were billed",
    "output_tokens": "Output tokens as upstream reported them",
    "verdicts": "Governed requests, by what became of their cached prefix",
}
_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A metric, with its labels."""
_BARE: dict[_Key, int] = dict.fromkeys(
    [(name, ()) for name in ("broken", "exhausted", "left", "output_tokens", "unkept")], 0
)
"""Those without labels: they are said to be 0, too."""


class Metrics:
    """Totals by name and labels."""

    MEDIA = "text/plain; version=0.0.4; charset=utf-8"
    """What `text` is."""

    def __init__(self) -> None:
        self._totals: Counter[_Key] = Counter()

    def count(self, name: str, amount: int = 1, /, **labels: str) -> None:
        self._totals[name, tuple(sorted(labels.items()))] += amount

    def sent(self, verdict: Verdict) -> None:
        self.count("verdicts", kind=verdict.kind, reason=" ".join(verdict.reasons))

    def used(self, usage: Usage | None) -> None:
        if usage is not None:
            self.count("prompt_tokens", usage.uncached, kind="uncached")
            self.count("prompt_tokens", usage.cached, kind="cached")
            self.count("prompt_tokens", usage.written, kind="written")
            self.count("output_tokens", usage.output)

    def values(self) -> dict[str, int]:
        return {_name(name, labels): total for (name, labels), total in sorted(self._totals.items())}

    def text(self) -> str:
        """The exposition format, version 0.0.4."""
        lines = []
        totals = _BARE | self._totals
        for name in sorted({name for name, _ in totals}):
            lines.append(f"# HELP transom_{name}_total {_HELP.get(name, name)}")
            lines.append(f"# TYPE transom_{name}_total counter")
            lines.extend(
                f"transom_{_name(f'{name}_total', labels)} {total}"
                for (one, labels), total in sorted(totals.items())
                if one == name
            )
        return "\n".join((*lines, ""))


def _name(name: str, labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return name
    inner = ",".join(f'{key}="{value}"' for key, value in labels)
    return f"{name}{{{inner}}}"
