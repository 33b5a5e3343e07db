"""Models: which places there are, what they answer, and which model the team chose. Keys are never told."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from app.api.problems import RESPONSES
from engine.agent.calls import ModelFailed
from engine.agent.models.places import RUNBOOK, ModelsConfig, Place
from engine.agent.models.trying import try_place
from engine.commands import Invalid
from engine.feed import Feed
from engine.store import spending


class PlaceOut(BaseModel):
    """A provider or server. `key`: whether one is there; it is never told."""

    id: str
    title: str
    url: str
    url_variable: str
    variable: str = Field(description="The variable that its key comes from; empty: it takes none")
    key: bool
    ready: bool


class ModelsOut(BaseModel):
    """What may reply to turns, and what was used today (UTC)."""

    chosen: str | None = Field(description="What the team chose; null: the default of the settings")
    default: str
    places: list[PlaceOut]
    web_search: bool
    tokens: int
    cost: float | None = Field(description="Dollars, where prices are known")
    day_tokens: int | None
    day_cost: float | None


class TriedOut(BaseModel):
    """What the other side answered."""

    models: list[str]
    error: str | None


class ChoiceIn(BaseModel):
    """Which model replies where a notebook does not choose; null: the default of the settings."""

    model_config = ConfigDict(extra="forbid")
    model: str | None = Field(max_length=300)


def router(feed: Feed, config: ModelsConfig) -> APIRouter:
    """The routes under /api/v1/models."""
    routes = APIRouter(prefix="/api/v1/models", tags=["models"], responses=RESPONSES)

    @routes.get("", summary="The places of models, the choice, and what was used today")
    async def known() -> ModelsOut:
        day = await spending.today(feed.pool)
        return ModelsOut(
            chosen=await spending.team_model(feed.pool),
            default=config.default,
            places=[_place(place) for place in config.places],
            web_search=config.web_search,
            tokens=day.tokens,
            cost=day.cost,
            day_tokens=config.day_tokens,
            day_cost=config.day_cost,
        )

    @routes.post("/{place_id}/try", summary="Ask a place which models it has")
    async def tried(place_id: Annotated[str, Path(max_length=40)]) -> TriedOut:
        place = next((place for place in config.places if place.id == place_id), None)
        if place is None:
            raise Invalid(f"there is no place {place_id!r}; there are {', '.join(one.id for one in config.places)}")
        answer = await try_place(place)
        return TriedOut(models=list(answer.models), error=answer.error)

    @routes.put("", summary="Choose the model of the team")
    async def choose(choice: ChoiceIn) -> ChoiceIn:
        if choice.model is not None and choice.model != RUNBOOK:
            try:
                config.find(choice.model)
            except ModelFailed as failed:
                raise Invalid(failed.reason) from None
        await spending.choose_model(feed.pool, choice.model)
        return choice

    return routes


def _place(place: Place) -> PlaceOut:
    return PlaceOut(
        id=place.id, title=place.title, url=place.url, url_variable=place.url_variable, variable=place.variable,
        key=place.key is not None, ready=place.ready,
    )  # fmt: skip
