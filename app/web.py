"""The web half: NiceGUI pages and the HTTP API on one uvicorn, in a thread with a loop of its own.

It shares nothing with the worker half but the database: what it reads comes through the feed, what it wants goes up as
command rows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import uvicorn
import uvloop
from fastapi import FastAPI

from app.api import asks, blobs, document, files, health, math, models, notebooks, problems
from app.auth import AuthMiddleware
from app.departed import DepartedMiddleware
from app.settings import Settings, models_config
from engine.feed import Feed, FeedConfig

log = logging.getLogger(__name__)

RECONNECT_SECONDS = 30.0


def build(settings: Settings, feed: Feed, token: str, port: int, worker_ready: Callable[[], bool] | None) -> Any:
    """The ASGI app: door, API, pages."""
    from nicegui import ui

    import ui.pages as pages
    from ui import theme

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await feed.start()
        try:
            yield
        finally:
            await feed.stop()

    api = FastAPI(
        title="Nightbook",
        version="1",
        lifespan=lifespan,
        docs_url=None,  # its page would fetch scripts from elsewhere
        redoc_url=None,
        openapi_url="/api/v1/openapi.json",
    )
    problems.install(api)
    api.include_router(health.router(feed, worker_ready))
    api.include_router(notebooks.router(feed))
    api.include_router(asks.router(feed))
    api.include_router(blobs.router(feed))
    api.include_router(files.router(feed))
    api.include_router(math.router())
    api.include_router(models.router(feed, models_config(settings)))
    problems.refuse_the_rest(api)
    document.install(api)
    pages.register(feed)
    ui.run_with(
        api,
        title="Nightbook",
        favicon=theme.FAVICON,
        dark=None,
        reconnect_timeout=RECONNECT_SECONDS,
        message_history_length=0,
        binding_refresh_interval=None,
        tailwind=False,
        show_welcome_message=False,
    )
    door = AuthMiddleware(
        api,
        token=token,
        public_url=settings.public_url,
        trusted_proxies=settings.trusted_proxies,
        host=settings.host,
        port=port,
    )
    return DepartedMiddleware(door)


class WebThread:
    """Runs the web half. `ended` is called, from its thread, with an error or None when it is over."""

    def __init__(self, app: Any, listener: socket.socket, ended: Callable[[BaseException | None], None]) -> None:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=3,
            ws_max_size=4 * 1024 * 1024,
        )
        self._server = uvicorn.Server(config)
        self._listener = listener
        self._ended = ended
        self._thread = threading.Thread(target=self._run, name="web", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._thread.start()

    @property
    def started(self) -> bool:
        """Whether it answers requests."""
        return self._server.started

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as caught:
            error = caught
        self._ended(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._server.serve(sockets=[self._listener])
        if not self._server.started:
            raise RuntimeError("the web half did not start; the lines above say why")

    def stop(self, seconds: float = 6.0) -> None:
        """Ends it and waits, at most `seconds`."""
        self._server.should_exit = True
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(2)


def feed_config(settings: Settings) -> FeedConfig:
    """The feed's bounds from the settings."""
    return FeedConfig(
        frames=settings.buffer_frames,
        bytes=settings.buffer_bytes,
        total_bytes=settings.buffer_total_bytes,
        replay_seconds=settings.replay_seconds,
        poll_seconds=settings.poll_seconds,
    )
