"""What a flood of displays is bounded to, on a clock of its own."""

from __future__ import annotations

from typing import Any

from engine.sandbox import displays
from engine.sandbox.displays import Displays


def bundle(size: int, **fields: Any) -> dict[str, Any]:
    return {
        "data": {"image/png": "x" * size},
        "metadata": {},
        "result": False,
        "display": None,
        "update": False,
        **fields,
    }


class Flood:
    """A run that displays, on a clock of its own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.out: list[dict[str, Any]] = []
        self.displays = Displays(self.out.append, lambda: self.now)

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while self.displays.due is not None and self.displays.due <= until:
            self.now = self.displays.due
            self.displays.pump()
        self.now = until


def test_of_10_000_plots_the_first_some_between_and_the_last_are_kept_and_the_others_counted() -> None:
    flood = Flood()
    for number in range(10_000):
        flood.displays.show(bundle(20_000, number=number))
        flood.pass_time(0.005)
    flood.displays.finish()
    numbers = [fields["number"] for fields in flood.out]
    assert numbers[: displays.FIRST] == list(range(displays.FIRST))
    assert numbers[-1] == 9_999
    assert numbers == sorted(numbers)
    assert len(numbers) < displays.FIRST + displays.LAST + 110
    assert sum(fields.get("left_out", 0) for fields in flood.out) == 10_000 - len(numbers)


def test_a_day_of_plots_stays_within_its_bytes() -> None:
    flood = Flood()
    for _ in range(3_000):
        flood.displays.show(bundle(200_000))
        flood.pass_time(30)
    flood.displays.finish()
    weight = sum(map(displays.weight, flood.out))
    assert weight < displays.TOTAL_BYTES + displays.LAST_BYTES + 10**6


def test_of_many_updates_the_newest_comes_now_and_then_and_the_last_at_the_end() -> None:
    flood = Flood()
    flood.displays.show(bundle(10, display="bar"))
    for number in range(20_000):
        flood.displays.show(bundle(10, display="bar", update=True, number=number))
        flood.pass_time(0.001)
    flood.displays.finish()
    assert flood.out[-1]["number"] == 19_999
    assert len(flood.out) < displays.FIRST_UPDATES + 50
