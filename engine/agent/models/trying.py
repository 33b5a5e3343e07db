"""Asking a place which models it has: what the button "Try it" does. By plain HTTP: no SDK is imported for it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Any

import httpx

from engine.agent.calls import ModelFailed
from engine.agent.models.places import Place
from engine.agent.models.trouble import by_status, no_event_stream, unreachable

SECONDS = 10.0
MODELS = 500
VERSION = "2023-06-01"  # of the Messages protocol, as its documentation asks for


@dataclass(frozen=True, slots=True)
class Tried:
    """What the other side answered: models by name, or why there are none."""

    models: tuple[str, ...] = ()
    error: str | None = None


async def try_place(place: Place, seconds: float = SECONDS) -> Tried:
    """Asks `place` for its list of models. Never raises for what the other side does."""
    try:
        if not place.ready:
            raise place.keyless()
        return Tried(models=await _models(place, seconds))
    except ModelFailed as failed:
        return Tried(error=failed.reason)


async def _models(place: Place, seconds: float) -> tuple[str, ...]:
    if place.protocol == "anthropic":
        url, headers = f"{place.url}/v1/models?limit={MODELS}", {"anthropic-version": VERSION}
        if place.key:
            headers["x-api-key"] = place.key
    else:
        url, headers = f"{place.url}/models", {}
        if place.key:
            headers["authorization"] = f"Bearer {place.key}"
    try:
        async with httpx.AsyncClient(timeout=seconds) as http:
            answer = await http.get(url, headers=headers)
    except httpx.TimeoutException:
        raise ModelFailed(f"{place.title} at {place.url} did not answer within {seconds:g} s") from None
    except (httpx.HTTPError, ssl.SSLError, OSError) as error:
        raise unreachable(place, error) from None
    body: Any
    try:
        body = answer.json()
    except ValueError:
        body = answer.text[:2000]
    if answer.status_code >= 400:
        raise by_status(place, "its list of models", answer.status_code, answer.headers, body, str(body))
    listed = body.get("data") if isinstance(body, dict) else None
    if not isinstance(listed, list):
        kind = answer.headers.get("content-type", "").partition(";")[0]
        raise no_event_stream(place, kind, answer.text[:2000])
    names = [item["id"] for item in listed if isinstance(item, dict) and isinstance(item.get("id"), str)]
    return tuple(names[:MODELS])
