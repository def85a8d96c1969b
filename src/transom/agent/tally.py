"""What a session has used so far, folded from its events: the same after a restart as in one go."""

from __future__ import annotations

from collections.abc import Iterable

from transom.core.event import Event, ModelReplied, ToolReturned, Usage, UserSaid, WindowOpened
from transom.core.pricing import Price, usage_cost

__all__ = ["Tally"]


class Tally:
    """Steps, windows, tokens, spend. Without a `price` a reply costs what its provider says, or nothing."""

    def __init__(self, price: Price | None = None, events: Iterable[Event] = ()) -> None:
        self._price = price
        self.steps = 0
        self.windows = 1
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.output_tokens = 0
        self.microusd = 0
        self.unreported = 0
        """Replies whose usage the provider did not report: their cost is not in `microusd`."""
        self.idle_windows = 0
        """Windows opened since somebody was answered, somebody spoke, or something was changed."""
        self.response_id = ""
        """Of the newest reply."""
        for event in events:
            self.see(event)

    @property
    def spent(self) -> str:
        """For a person: US dollars, marked where another model's price stands in; empty if nothing is known to cost."""
        mark = "about " if self._price is not None and self._price.assumed else ""
        return f"{mark}${self.microusd / 1e6:.4f}" if self.microusd else ""

    @property
    def cached_share(self) -> float:
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def see(self, event: Event) -> None:
        match event.fact:
            case ModelReplied() as reply:
                self.steps += 1
                self.response_id = reply.response_id
                self._use(reply.usage)
            case WindowOpened():
                self.windows += 1
                self.idle_windows += 1
            case UserSaid():
                self.idle_windows = 0
            case ToolReturned() as result:
                acted = result.effect in ("write", "external") and not result.is_error
                if acted and result.exit_code in (None, 0):
                    self.idle_windows = 0
            case _:
                pass

    def _use(self, usage: Usage | None) -> None:
        if usage is None:
            self.unreported += 1
            return
        self.prompt_tokens += usage.prompt
        self.cached_tokens += usage.cached
        self.output_tokens += usage.output
        if usage.cost_microusd >= 0:
            self.microusd += usage.cost_microusd
        elif self._price is not None:
            self.microusd += round(usage_cost(self._price, usage) * 1_000_000)
