"""Measured figures: printed at the end of a run beside their targets, and held to a bound that a busy machine keeps.

A target is what an idle machine must reach. A test run shares its machine, so a figure fails only past `SLACK` times
its target; the printed list says which targets were missed.
"""

from dataclasses import dataclass, field

SLACK = 3.0


@dataclass(frozen=True)
class Figure:
    """`value` should be at most `target`."""

    name: str
    value: float
    target: float
    unit: str

    def __str__(self) -> str:
        missed = "" if self.value <= self.target else "  MISSED"
        return f"{self.name}: {self.value:.3g} {self.unit} (target {self.target:g} {self.unit}){missed}"


@dataclass
class Figures:
    """The figures of one run."""

    taken: list[Figure] = field(default_factory=list)

    def at_most(self, name: str, value: float, target: float, unit: str = "s") -> None:
        """Keeps a figure, and fails the test when it is far off its target."""
        figure = Figure(name, value, target, unit)
        self.taken.append(figure)
        assert value <= target * SLACK, str(figure)
