"""The page of one notebook."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import Request, Response
from nicegui import ui
from nicegui.client import Client
from nicegui.events import GenericEventArguments

from engine.feed import Feed, UnknownNotebook
from ui import theme, trouble
from ui.asks import AsksWatcher
from ui.components.notebook import NotebookView
from ui.drawing import Drawing
from ui.pages.sockets import only_newest
from ui.viewer import Viewer, page_event

log = logging.getLogger(__name__)


def register(feed: Feed) -> None:
    """Registers `/n/{notebook_id}`."""
    drawing = Drawing()

    @ui.page("/n/{notebook_id}", title="Notebook · Nightbook", language="en-US")
    async def notebook_page(request: Request, client: Client, notebook_id: str) -> Response | None:
        member = request.scope.get("nightbook.member", "owner")
        if not await _known(feed, notebook_id, member):
            client.delete()
            return theme.message_page(
                404, "There is no such notebook", "The address may be wrong, or it is of another Nightbook."
            )
        view = NotebookView(notebook_id, member)
        viewer = Viewer(feed, notebook_id, view.run_method, member=member, drawing=drawing)
        view.on("hello", lambda event: _hello(viewer, event))
        asks = AsksWatcher(feed, view.run_method, member=member)
        view.on("watch", lambda _: asks.hello())
        view.on("drawn", lambda event: _drawn(viewer, event))
        view.on("at", lambda event: _at(viewer, event))
        view.on("look", lambda event: _look(viewer, event))
        client.on_connect(only_newest)
        client.on_disconnect(lambda: None if client.has_socket_connection else viewer.park())
        client.on_disconnect(lambda: None if client.has_socket_connection else asks.park())
        client.on_delete(viewer.close)
        client.on_delete(asks.park)
        return None


async def _known(feed: Feed, notebook_id: str, member: str) -> bool:
    """Whether the notebook exists. Nothing stays behind but the feed's own short memory of it."""
    try:
        (await feed.attach(notebook_id, after=None, member=member, operator=False)).close()
    except UnknownNotebook:
        return False
    except Exception as error:
        trouble.tell(log, "the feed does not answer, the page will ask again", error)
    return True


def _hello(viewer: Viewer, event: GenericEventArguments) -> None:
    said = page_event(event.args)
    seq = said.get("seq")
    viewer.hello(_number(said.get("stream")), None if seq is None else _number(seq))


def _drawn(viewer: Viewer, event: GenericEventArguments) -> None:
    said = page_event(event.args)
    viewer.drawn(_number(said.get("stream")), _number(said.get("n")))


def _look(viewer: Viewer, event: GenericEventArguments) -> None:
    said = page_event(event.args)
    viewer.look(said.get("looking") is True, back=said.get("back") is True)


def _at(viewer: Viewer, event: GenericEventArguments) -> None:
    said = page_event(event.args)
    cell, at = said.get("cell"), said.get("at")
    if cell is None:
        viewer.place(None, None)
    elif isinstance(cell, str) and len(cell) <= 64:
        viewer.place(cell, min(at, 2**31) if isinstance(at, int) and at >= 0 else None)


def _number(value: Any) -> int:
    """A page's number, or -1, which fits nothing."""
    return value if isinstance(value, int) else -1
