"""From a choice like `anthropic:claude-sonnet-5` to the model that replies. SDKs are imported at the first reply."""

from __future__ import annotations

from typing import Protocol

from engine.agent.calls import Model
from engine.agent.models.places import RUNBOOK, ModelsConfig
from engine.agent.models.runbook import RunbookModel


class Models(Protocol):
    """Whoever can say which model a choice means."""

    @property
    def config(self) -> ModelsConfig: ...

    def choose(self, name: str) -> Model:
        """The model of that name. Raises `ModelFailed` when there is none, or its key is missing."""


class Chosen:
    """The models that the settings give."""

    def __init__(self, config: ModelsConfig | None = None) -> None:
        self.config = config or ModelsConfig()
        self._made: dict[str, Model] = {}

    def choose(self, name: str) -> Model:
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def _make(self, name: str) -> Model:
        if name == RUNBOOK:
            return RunbookModel()
        place, model = self.config.find(name)
        if not place.ready:
            raise place.keyless()
        if place.protocol == "anthropic":
            from engine.agent.models.anthropic import AnthropicModel

            return AnthropicModel(place, model, self.config)
        from engine.agent.models.openai import OpenAIModel

        return OpenAIModel(place, model, self.config)
