"""A policy: when x how x where, and a few numbers. The named presets.

    when    never · limit (only at the hard limit) · watermark · step (at every boundary)
            · quota (results, or the rest of the body, have outgrown their share)
            · cost (a new window, when that is cheaper than going on: `costrule`; at the watermark anyway)
    how     none · fifo · mask · offload · project · rollover
    where   flat · sandwich (task and constraints re-anchored in the tail)

`project` is the state projection of GSSC: first stale thoughts are pruned and old observations masked, in one batch;
when that gains too little, a new window opens with the state snapshot and the newest steps that fit their quota.
`offload` is for comparison: large results stay whole until they are old, and the offloading is a miss then.
Where prices are known, old messages are rewritten only if that pays before the session is expected to end.
Whatever the policy, the hard limit has the last word: a window that would not fit is rolled over by code.
`raw` alone is exempt: it shows what happens without any governing.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from transom.core.budget import Quotas

__all__ = ["PRESETS", "How", "Policy", "When", "Where"]

When = Literal["never", "limit", "watermark", "quota", "step", "cost"]
How = Literal["none", "fifo", "mask", "offload", "project", "rollover", "recorded"]
Where = Literal["flat", "sandwich"]


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One strategy. Also the shape of a policy file (TOML): every field may be given, the rest are defaults."""

    name: str
    when: When = "limit"
    how: How = "rollover"
    where: Where = "flat"
    offload_above: int = 0
    """A tool result of more tokens (o200k) is offloaded at admission, before it is ever sent (unless `how` is
    `offload`); 0 = never. Maka's threshold is 2,048 (`> 2,048 est. tokens`); a smaller one hides what the next step
    needs."""
    watermark: float = 0.75
    low_water: float = 0.50
    """A batch stops here: the distance to the watermark is what makes rewrites rare (hysteresis)."""
    keep_steps: int = 10
    """The newest steps whose observations are never masked (the Complexity Trap's M = 10)."""
    thought_turns: int = 2
    """Thoughts of the newest turns are never pruned (source document 004)."""
    min_gain: float = 0.10
    """A rewrite or a new window that frees less of the hard limit is refused (L11)."""
    tools: float = Quotas().tools
    """Share of the hard limit that tool results may fill under `when = "quota"`; the rest of the body has `history`."""
    seed: float = Quotas().seed
    history: float = Quotas().history

    @property
    def admits_below(self) -> int:
        """Results of more tokens are offloaded at admission; 0: none."""
        return 0 if self.how == "offload" else self.offload_above


PRESETS: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(name="raw", when="never", how="none"),
        Policy(name="recorded", when="never", how="recorded"),
        Policy(name="fifo", when="watermark", how="fifo"),
        Policy(name="mask", when="watermark", how="mask"),
        Policy(name="rollover", when="limit", how="rollover", offload_above=2048),
        # What a window must free at least is the rule's to say: a share of the limit would be many times that.
        Policy(name="rollover-cost", when="cost", how="rollover", offload_above=2048, min_gain=0.005),
        Policy(name="gssc", when="watermark", how="project", where="sandwich", offload_above=2048),
    )
}
"""`recorded` replays what the recorded agent itself did to its window; it is no strategy of ours."""
