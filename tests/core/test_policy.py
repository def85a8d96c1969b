from __future__ import annotations

import msgspec
import pytest

from transom.core.policy import PRESETS, Policy


def test_a_policy_is_read_from_its_name_alone() -> None:
    assert msgspec.convert({"name": "mine"}, Policy) == Policy(name="mine")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("when", "sometimes"),
        ("how", "magic"),
        ("where", "nowhere"),
        ("watermark", "high"),
        ("keep_steps", 1.5),
        ("keep", 3),
    ],
)
def test_a_bad_field_of_a_policy_is_named(field: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=rf"`\$\.{field}`|`{field}`"):
        msgspec.convert({"name": "mine", field: value}, Policy)


def test_presets_are_called_by_their_own_names_and_leave_room_between_their_marks() -> None:
    assert list(PRESETS) == ["raw", "recorded", "fifo", "mask", "rollover", "rollover-cost", "gssc"]
    for name, policy in PRESETS.items():
        assert policy.name == name
        assert policy.low_water + policy.min_gain <= policy.watermark
