"""Measured figures, printed at the end of a run beside their targets; the list says which targets were missed.

A target is what an idle machine must reach. The short form shares its machine with other tests, where a time says
nothing, so only sizes are held to their targets there; the long form runs by itself, and times fail past `SLACK`.
"""

from dataclasses import dataclass, field

from e2e.scale import SOAK

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
        """Keeps a figure, and fails the test when it is far off its target and means something."""
        figure = Figure(name, value, target, unit)
        self.taken.append(figure)
        if SOAK or unit == "MiB":
            assert value <= target * SLACK, str(figure)
