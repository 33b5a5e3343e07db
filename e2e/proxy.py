"""A TCP proxy between browser and server that behaves as bad networks do: silent, forgetful, impatient or slow.

| method | the network of | connections |
| --- | --- | --- |
| `cut` | a tunnel, a phone changing cells | swallow both ways without FIN, and stay dead after `restore` |
| `freeze` | a pulled cable, put back | hold what is sent, and go on with it after `restore` |
| `refuse` | a server that restarts | are reset, and new ones refused, until `restore` |
| `idle_seconds` | a proxy or NAT with a time limit | are ended when silent for so long |
| `lose_answers` | a link cut behind the far side's work | are reset instead of passing an answer with these bytes |
| `answer_seconds` | a far side that takes its time | pass each answer so many seconds late |
| `bytes_per_second` | a thin link | pass so much in each direction |

New connections made while it is cut or frozen are accepted, as by a balancer in front of the gap, and hang.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Coroutine
from typing import Any

_CHUNK = 65536


class Proxy:
    """Forwards 127.0.0.1:`port` to `host`:`target`, in a thread with a loop of its own. A context manager."""

    def __init__(self, host: str, target: int) -> None:
        self._host, self._target = host, target
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._state = "open"
        self.port = 0
        self.idle_seconds: float | None = None
        self.bytes_per_second: float | None = None
        self.answer_seconds = 0.0
        self.lost_answers = 0
        self._losing: tuple[bytes, int] = (b"", 0)
        self.ended_idle = 0
        self.accepted = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "Proxy":
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def cut(self) -> None:
        """No byte passes any more, and no FIN: what is sent is lost."""
        self._call(self._set("cut"))

    def freeze(self) -> None:
        """No byte passes for now; what is sent waits."""
        self._call(self._set("frozen"))

    def refuse(self) -> None:
        """Resets all connections and refuses new ones."""
        self._call(self._set("refusing"))

    def lose_answers(self, marker: bytes, times: int) -> None:
        """The next answers that hold `marker`, so many, do not arrive, and their connections are reset."""
        self._losing = marker, times

    def loses(self, data: bytes) -> bool:
        """Whether this piece of an answer is one to be lost."""
        marker, times = self._losing
        if not times or marker not in data:
            return False
        self._losing = marker, times - 1
        self.lost_answers += 1
        return True

    def restore(self) -> None:
        """The network is good again."""
        self._call(self._set("open"))

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _set(self, state: str) -> None:
        was, self._state = self._state, state
        if state == "cut":
            for link in self._links:
                link.dead = True
        if state == "refusing":
            await self._stop_listening()
            for link in list(self._links):
                link.reset()
        if was == "refusing" and state != "refusing":
            await self._listen()
        for link in self._links:
            link.look_again()

    async def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _close(self) -> None:
        await self._stop_listening()
        for link in list(self._links):
            link.reset()
        await asyncio.gather(*(link.task for link in self._links), return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        link = _Link(self, writer, dead=self._state == "cut")
        self._links.add(link)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await link.run(reader)
        finally:
            self._links.discard(link)
            link.reset()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._host.startswith("/"):  # PostgreSQL's own way to name a folder with its socket
            return await asyncio.open_unix_connection(f"{self._host}/.s.PGSQL.{self._target}")
        return await asyncio.open_connection(self._host, self._target)

    @property
    def frozen(self) -> bool:
        return self._state == "frozen"


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, near: asyncio.StreamWriter, *, dead: bool) -> None:
        self.dead = dead
        self._proxy = proxy
        self._writers = [near]
        self._heard = time.monotonic()
        self._changed = asyncio.Event()
        task = asyncio.current_task()
        assert task is not None
        self.task: asyncio.Task[None] = task

    def look_again(self) -> None:
        self._changed.set()

    def reset(self) -> None:
        """Ends both sides without ceremony."""
        for writer in self._writers:
            writer.transport.abort()
        if self.task is not asyncio.current_task():
            self.task.cancel()

    async def run(self, near: asyncio.StreamReader) -> None:
        await self._passable()
        if self.dead:
            await self._swallow(near)
            return
        far, far_writer = await self._proxy.connect()
        self._writers.append(far_writer)
        ways = [
            asyncio.ensure_future(self._pass(near, far_writer)),
            asyncio.ensure_future(self._pass(far, self._writers[0], answers=True)),
        ]
        watch = asyncio.ensure_future(self._watch())
        try:
            await asyncio.wait([*ways, watch], return_when=asyncio.FIRST_COMPLETED)
            if self.dead:  # the end of one side reaches the other as little as anything else does
                await asyncio.wait(ways)
        finally:
            for task in (*ways, watch):
                task.cancel()
            await asyncio.gather(*ways, watch, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False) -> None:
        while data := await reader.read(_CHUNK):
            await self._passable()
            if self.dead:
                await self._swallow(reader)
                return
            self._heard = time.monotonic()
            if answers and self._proxy.loses(data):
                return
            if answers and self._proxy.answer_seconds:
                await asyncio.sleep(self._proxy.answer_seconds)
            if self._proxy.bytes_per_second:
                await asyncio.sleep(len(data) / self._proxy.bytes_per_second)
            writer.write(data)
            await writer.drain()

    async def _passable(self) -> None:
        while self._proxy.frozen and not self.dead:
            self._changed.clear()
            await self._changed.wait()

    async def _swallow(self, reader: asyncio.StreamReader) -> None:
        while await reader.read(_CHUNK):
            pass

    async def _watch(self) -> None:
        """Ends the connection when it was silent for too long."""
        while True:
            await asyncio.sleep(0.1)
            limit = self._proxy.idle_seconds
            if limit is not None and time.monotonic() - self._heard > limit:
                self._proxy.ended_idle += 1
                return
