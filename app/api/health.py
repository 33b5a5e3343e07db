"""Two questions a machine may ask without logging in: is the process alive, and could it serve?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from engine.feed import Feed
from engine.store.steps import UNREACHABLE

READY_SECONDS = 3.0


def router(feed: Feed, worker_ready: Callable[[], bool] | None) -> APIRouter:
    """`worker_ready` tells of the worker half of this process, null when it runs elsewhere."""
    routes = APIRouter(tags=["health"])

    @routes.get("/healthz", summary="The process is alive")
    async def alive() -> dict[str, str]:
        return {"status": "alive"}

    @routes.get("/readyz", summary="Database and supervisor answer", responses={503: {"description": "Not ready"}})
    async def ready() -> Response:
        said = {"database": "answers"}
        good = True
        try:
            async with asyncio.timeout(READY_SECONDS):
                living = await feed.pool.fetchval("SELECT count(*) FROM worker WHERE until > now()")
        except UNREACHABLE:
            said["database"], good = "cannot be reached", False
        else:
            supervisor = living > 0 if worker_ready is None else worker_ready()
            said["supervisor"] = "answers" if supervisor else "no worker is alive"
            good = supervisor
        return JSONResponse(said, 200 if good else 503)

    return routes
