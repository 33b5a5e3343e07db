"""The pages: home, the inbox and the notebook. Registered once; a page function builds its page and starts no work."""

from __future__ import annotations

from fastapi import HTTPException, Request, Response
from fastapi.exception_handlers import http_exception_handler
from nicegui import app

from engine.feed import Feed
from ui import theme
from ui.pages import home, inbox, notebook, settings


def register(feed: Feed) -> None:
    """Registers the pages with NiceGUI. The member who asks is `request.scope["nightbook.member"]`."""
    theme.install()
    app.config.quasar_config["loadingBar"] = {"skipHijack": True}  # requests are asked again offline: no bar for each
    app.add_exception_handler(404, _unknown)
    home.register(feed)
    inbox.register(feed)
    notebook.register(feed)
    settings.register()


async def _unknown(request: Request, problem: Exception) -> Response:
    """The answer to an address that is none: ours for people, the plain one for what pages load."""
    if request.url.path.startswith("/_nicegui/") and isinstance(problem, HTTPException):
        return await http_exception_handler(request, problem)
    return theme.message_page(404, "There is no such page", "The address may be wrong, or it is of another Nightbook.")
