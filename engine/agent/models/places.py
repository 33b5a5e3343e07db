"""Where models are: providers and servers, by the name that a choice of a model begins with. Nothing is asked here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from engine.agent.calls import ModelFailed, Usage

ANTHROPIC_URL = "https://api.anthropic.com"
OPENAI_URL = "https://api.openai.com/v1"
OLLAMA_URL = "http://127.0.0.1:11434/v1"
RUNBOOK = "runbook"

Protocol = Literal["anthropic", "openai"]


@dataclass(frozen=True, slots=True)
class Place:
    """One provider or server. `key` is shown nowhere; `variable` names where it comes from. `needs_key`: without one
    nothing is even tried."""

    id: str
    title: str
    protocol: Protocol
    url: str
    url_variable: str
    variable: str
    key: str | None = field(default=None, repr=False)
    needs_key: bool = False

    @property
    def ready(self) -> bool:
        return self.key is not None or not self.needs_key

    def keyless(self) -> ModelFailed:
        """The error of a place whose key is missing."""
        return ModelFailed(
            f"{self.title} needs a key: set {self.variable} in the environment of Nightbook and start it again, "
            "or choose another model in Settings",
            settings=True,
        )


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars for a million tokens: read, written by the model, read from its cache, written into it."""

    input: float
    output: float
    cached: float
    written: float

    def of(self, usage: Usage) -> float:
        plain = max(0, usage.input - usage.cached - usage.written)
        return (
            plain * self.input + usage.output * self.output + usage.cached * self.cached + usage.written * self.written
        ) / 1_000_000


@dataclass(frozen=True, slots=True)
class ModelsConfig:
    """What an operator decided about models. `reply_tokens`: of one reply at most. `context_tokens`: what may be read
    in one round before older rounds are put together. A bound that is null stops nothing; `day_cost` in dollars."""

    default: str = RUNBOOK
    anthropic: Place = Place(
        "anthropic", "Anthropic", "anthropic", ANTHROPIC_URL, "NIGHTBOOK_ANTHROPIC_URL", "ANTHROPIC_API_KEY",
        needs_key=True,
    )  # fmt: skip
    openai: Place = Place(
        "openai", "OpenAI", "openai", OPENAI_URL, "NIGHTBOOK_OPENAI_URL", "OPENAI_API_KEY", needs_key=True
    )
    ollama: Place = Place("ollama", "Ollama", "openai", OLLAMA_URL, "NIGHTBOOK_OLLAMA_URL", "")
    reply_tokens: int = 16_384
    context_tokens: int = 150_000
    turn_tokens: int | None = 3_000_000
    day_tokens: int | None = None
    day_cost: float | None = None
    prices: tuple[tuple[str, Price], ...] = ()
    web_search: bool = False

    @property
    def places(self) -> tuple[Place, ...]:
        return self.anthropic, self.openai, self.ollama

    def find(self, name: str) -> tuple[Place, str]:
        """The place and the model of a choice like `anthropic:claude-sonnet-5`. Raises `ModelFailed`."""
        place_id, _, model = name.partition(":")
        place = next((place for place in self.places if place.id == place_id), None)
        if place is None or not model.strip():
            known = ", ".join(f"{place.id}:MODEL" for place in self.places)
            raise ModelFailed(
                f"there is no model {name!r}; a choice is `runbook` or {known}. Choose one in Settings", settings=True
            )
        return place, model.strip()

    def price(self, name: str) -> Price | None:
        """The price of the choice `name`: the longest beginning that the settings name."""
        found = [(len(start), price) for start, price in self.prices if name.startswith(start)]
        return max(found, key=lambda item: item[0])[1] if found else None
