"""Asking a place which models it has: what the button "Try it" does.

It asks as a turn does: with the same client, so with the same key, headers, proxy and certificates. On the web half's
own loop. A server of this machine that is not there costs no import of an SDK.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from engine.agent.calls import ModelFailed
from engine.agent.models.places import Place
from engine.agent.models.speaking import client, expected, load
from engine.agent.models.trouble import failed, no_event_stream, unreachable

SECONDS = 10.0
MODELS = 500
HERE = ("localhost", "127.0.0.1", "::1")


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
        await _is_there(place)
        return Tried(models=await _models(place, seconds))
    except ModelFailed as problem:
        return Tried(error=problem.reason)


async def _is_there(place: Place) -> None:
    """Raises `ModelFailed` when the place is on this machine and nothing listens there."""
    parts = urlsplit(place.url)
    if parts.hostname not in HERE:
        return
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        _, writer = await asyncio.open_connection(parts.hostname, port)
    except OSError as error:
        raise unreachable(place, error) from None
    writer.close()


async def _models(place: Place, seconds: float) -> tuple[str, ...]:
    sdk = await asyncio.to_thread(load, place)
    options = {"limit": MODELS} if place.protocol == "anthropic" else {}
    try:
        async with client(sdk, place, seconds) as opened:
            answer = (await opened.models.with_raw_response.list(**options)).http_response
    except Exception as error:
        if not expected(sdk, place, error):
            raise
        raise failed(sdk, place, None, error) from None
    try:
        body: Any = answer.json()
    except ValueError:
        body = None
    listed = body.get("data") if isinstance(body, dict) else None
    if not isinstance(listed, list):
        kind = answer.headers.get("content-type", "").partition(";")[0]
        raise no_event_stream(place, kind, answer.text[:2000])
    names = [item["id"] for item in listed if isinstance(item, dict) and isinstance(item.get("id"), str)]
    return tuple(names[:MODELS])
