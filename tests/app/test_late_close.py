"""A page whose link was cut without a word gets a new socket; the old one ends later, and that is nobody's end."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import httpx
import pytest

from e2e.api import Api
from e2e.proxy import Proxy
from e2e.server import Server
from e2e.waiting import until
from tests.app.conftest import TOKEN
from tests.bench.tabs import Tab

pytestmark = pytest.mark.asyncio


async def test_the_late_close_of_an_old_socket_ends_nothing_of_the_new_one(served: Server, api: Api) -> None:
    notebook = api.notebook(("python", "1"))
    parts = urlsplit(served.url)
    with Proxy(parts.hostname or "", parts.port or 0) as between:
        tab = Tab(between.url, TOKEN, notebook.id)
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http, asyncio.timeout(60):
            await tab.load(http)
            await tab.live.wait()
        old, reading = tab._socket, tab._task
        assert old is not None
        assert reading is not None
        await asyncio.to_thread(between.cut)
        reading.cancel()
        tab.url = served.url
        async with asyncio.timeout(60):
            await tab.connect()
            await tab.live.wait()
    # With the proxy its connections end: only now the server hears that the old socket is gone.
    old.transport.abort()
    async with asyncio.timeout(60):
        for number in range(5):
            await asyncio.to_thread(notebook.ask, "rename", title=f"Title {number}")
            await asyncio.to_thread(until, lambda title=f"Title {number}": notebook.view()["title"] == title, "renamed")
            head = await asyncio.to_thread(notebook.head)
            while (tab.seq or 0) < head:
                tab.moved.clear()
                await tab.moved.wait()
    assert tab.wrong == []
    await tab.cut()
