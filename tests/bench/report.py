"""How a figure is told: what was measured, what is wanted, and what the machine could do at best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One line of the report. `raw` is the same work done by the bare parts; `unit` goes for all three numbers."""

    name: str
    value: float
    unit: str
    wanted: str = ""
    raw: float | None = None
    raw_name: str = ""

    def line(self) -> str:
        text = f"{self.name:<66} {self.value:>9.1f} {self.unit:<9} {self.wanted:<12}"
        if self.raw is not None:
            ratio = self.value / self.raw if self.raw else float("inf")
            text += f" raw {self.raw:.1f} {self.unit} ({self.raw_name}), ratio {ratio:.2f}"
        return text


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
