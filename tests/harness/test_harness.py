"""Random deaths by seed: five at once in the short form, two hundred in the long one."""

from __future__ import annotations

import pytest

from e2e.scale import SOAK
from tests.harness.__main__ import KILLS, SIZE, TOGETHER, campaign

SEEDS = 200 if SOAK else TOGETHER


@pytest.mark.timeout(1200)  # most of it waits: a busy machine is no violation
@pytest.mark.parametrize("first", range(0, SEEDS, TOGETHER))
def test_every_promise_holds_whoever_dies_and_nothing_is_left(first: int) -> None:
    """What the processes said is printed beside; `python -m tests.harness FIRST-LAST` runs the same seeds again."""
    seeds = list(range(first, first + TOGETHER))
    assert campaign(seeds, kills=KILLS if SOAK else 3, size=SIZE if SOAK else 20, calm=not SOAK) == [], f"seeds {seeds}"
