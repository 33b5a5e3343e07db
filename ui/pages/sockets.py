"""One live socket a page. A link that is cut without a word leaves its old socket behind for half a minute, and every
message for the page would pile up there, too."""

from __future__ import annotations

import logging

from nicegui import background_tasks, core
from nicegui.client import Client

log = logging.getLogger(__name__)


async def only_newest(client: Client) -> None:
    """To be called when `client` got a socket: those it had before leave the page's room and are closed."""
    sockets = list(client._socket_to_document_id)
    for old in sockets[:-1]:
        await core.sio.leave_room(old, client.id)
        client.handle_disconnect(old)
        background_tasks.create(core.sio.disconnect(old), name=f"close replaced socket of {client.id}")
