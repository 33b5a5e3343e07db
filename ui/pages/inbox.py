"""The inbox: everything that waits for a person, answered in place."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui
from nicegui.client import Client

from engine.feed import Feed
from ui.asks import AsksWatcher
from ui.components.inbox import InboxView
from ui.pages.sockets import only_newest


def register(feed: Feed) -> None:
    """Registers `/inbox`."""

    @ui.page("/inbox", title="Inbox · Nightbook", language="en-US")
    def inbox_page(request: Request, client: Client) -> None:
        view = InboxView()
        member = request.scope.get("nightbook.member", "owner")
        watcher = AsksWatcher(feed, view.run_method, member=member, inbox=True)
        view.on("hello", lambda _: watcher.hello())
        client.on_connect(only_newest)
        client.on_disconnect(lambda: None if client.has_socket_connection else watcher.park())
        client.on_delete(watcher.park)
