"""Very many pages of one notebook without browsers, in one process: each loads the page and speaks by its socket.

`python -m tests.bench.tabs URL TOKEN NOTEBOOK TABS` takes commands as lines: `open` (all load the page, eight at a
time), `cut` (all sockets are gone without a word), `back` (all connect again within a second, with what they have),
`reload` (all load the page again within a second, as behind a restart of the server), `check HEAD` (all have drawn so
far). Each is answered by a line of JSON: the seconds each tab took until it was live, and what went wrong.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from typing import Any
from urllib.parse import urlencode

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

ELEMENTS = re.compile(r"parseElements\(String\.raw`(.*?)`\)", re.DOTALL)
CLIENT = re.compile(r"'client_id': '([^']+)'")
CALL = re.compile(r'runMethod\(\d+, "(push|beat)", (\[.*\])\)$', re.DOTALL)


class Tab:
    """One page. `seq` is what it has drawn; `live` is set when that was the newest."""

    def __init__(self, url: str, token: str, notebook: str) -> None:
        self.url, self.notebook = url, notebook
        self.headers = {"Authorization": f"Bearer {token}"}
        self.seq: int | None = None
        self.stream = 0
        self.taken = 0  # messages of this stream
        self.wrong: list[str] = []
        self.live = asyncio.Event()
        self.moved = asyncio.Event()
        self._socket: ClientConnection | None = None
        self._task: asyncio.Task[None] | None = None

    async def load(self, http: httpx.AsyncClient) -> None:
        """Gets the page, and its socket."""
        self.seq = None
        page = (await http.get(f"{self.url}/n/{self.notebook}", headers=self.headers)).raise_for_status().text
        client, elements = CLIENT.search(page), ELEMENTS.search(page)
        assert client is not None
        assert elements is not None
        self.client = client[1]
        for key, element in json.loads(elements[1]).items():
            if element["tag"] == "nicegui-notebook":
                self.element = int(key)
                self.listeners = {event["type"]: event["listener_id"] for event in element["events"]}
        await self.connect()

    async def connect(self) -> None:
        """A socket for the page as it stands; says hello with what it has drawn."""
        self.live.clear()
        query = {"EIO": 4, "transport": "websocket", "client_id": self.client, "tab_id": self.client,
                 "document_id": self.client, "next_message_id": 0, "implicit_handshake": "true"}  # fmt: skip
        address = f"{self.url.replace('http', 'ws', 1)}/_nicegui_ws/socket.io/?{urlencode(query)}"
        self._socket = await connect(
            address, additional_headers=self.headers, max_size=None, compression=None, open_timeout=60
        )
        assert (await self._socket.recv(decode=True)).startswith("0")
        await self._socket.send("40")
        self._task = asyncio.create_task(self._read(self._socket))

    async def cut(self) -> None:
        assert self._socket is not None
        assert self._task is not None
        self._socket.transport.abort()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _emit(self, socket: ClientConnection, name: str, **fields: Any) -> None:
        event = {"id": self.element, "client_id": self.client, "listener_id": self.listeners[name]}
        await socket.send(f'42["event",{json.dumps(event | {"args": [json.dumps(fields)]})}]')

    async def _read(self, socket: ClientConnection) -> None:
        try:
            while True:
                text = await socket.recv()
                assert isinstance(text, str)
                if text == "2":
                    await socket.send("3")
                elif text.startswith("40"):
                    self.stream, self.taken = self.stream + 1, 0
                    await self._emit(socket, "look", looking=True, back=False)
                    await self._emit(socket, "hello", stream=self.stream, seq=self.seq)
                elif text.startswith("44"):
                    self.wrong.append(text)
                elif text.startswith("42"):
                    name, *arguments = json.loads(text[2:])
                    found = CALL.search(arguments[0].get("code", "")) if name == "run_javascript" else None
                    if found is not None and found[1] == "push":
                        await self._drawn(socket, json.loads(json.loads(found[2])[0]))
                    elif found is not None:
                        self._beat(json.loads(found[2])[0])
        except ConnectionClosed:
            return

    def _beat(self, beat: dict[str, Any]) -> None:
        """A heartbeat that counts no more messages than came says that there is nothing new."""
        if (beat["stream"], beat["n"]) == (self.stream, self.taken) and self.seq is not None:
            self.live.set()

    async def _drawn(self, socket: ClientConnection, message: dict[str, Any]) -> None:
        if message["stream"] != self.stream:
            return
        if message["prev"] is not None and message["prev"] != self.seq:
            self.wrong.append(f"had {self.seq}, was given what follows on {message['prev']}")
        self.taken = message["n"] + 1
        if message["seq"] is not None:
            self.seq = message["seq"]
            self.moved.set()
        await self._emit(socket, "drawn", stream=self.stream, n=message["n"])
        if message["live"]:
            self.live.set()


class Tabs:
    """All of them."""

    def __init__(self, url: str, token: str, notebook: str, count: int) -> None:
        self.tabs = [Tab(url, token, notebook) for _ in range(count)]

    async def do(self, http: httpx.AsyncClient, command: str, head: str = "0") -> Any:
        """One of the commands."""
        if command == "open":
            return await self.open(http)
        if command == "check":
            return await self.check(int(head))
        if command == "cut":
            return await asyncio.gather(*(tab.cut() for tab in self.tabs))
        return await self.within_a_second(http, command)

    async def open(self, http: httpx.AsyncClient) -> list[float]:
        gate = asyncio.Semaphore(8)

        async def one(tab: Tab) -> float:
            async with gate:
                began = time.perf_counter()
                await tab.load(http)
                await tab.live.wait()
                return time.perf_counter() - began

        return await asyncio.gather(*(one(tab) for tab in self.tabs))

    async def within_a_second(self, http: httpx.AsyncClient, command: str) -> list[float]:
        began = time.perf_counter()

        async def one(tab: Tab) -> float:
            await asyncio.sleep(random.random())
            await (tab.load(http) if command == "reload" else tab.connect())
            await tab.live.wait()
            return time.perf_counter() - began

        return await asyncio.gather(*(one(tab) for tab in self.tabs))

    async def check(self, head: int) -> int:
        """How many have drawn up to `head` with nothing wrong."""

        async def one(tab: Tab) -> None:
            while tab.seq is None or tab.seq < head:
                tab.moved.clear()
                await tab.moved.wait()

        await asyncio.wait([asyncio.create_task(one(tab)) for tab in self.tabs], timeout=30)
        return sum(not tab.wrong and tab.seq is not None and tab.seq >= head for tab in self.tabs)


async def main() -> None:
    url, token, notebook, count = sys.argv[1:]
    tabs = Tabs(url, token, notebook, int(count))
    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=0)
    async with httpx.AsyncClient(trust_env=False, timeout=60, limits=limits) as http:
        while line := await asyncio.to_thread(sys.stdin.readline):
            async with asyncio.timeout(90):
                answer = await tabs.do(http, *line.split())
            wrong = [word for tab in tabs.tabs for word in tab.wrong][:3]
            print(json.dumps({"answer": answer, "wrong": wrong}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
