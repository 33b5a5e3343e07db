"""Tool servers behind an address: real HTTP, and whatever such a server does fails its call in words."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from engine.agent.mcp.servers import ServersConfig
from engine.agent.mcp.spec import ServerSpec
from tests.engine.agent.mcp.test_servers import looked_at, results, steps
from tests.engine.engine_run import worker
from tests.engine.test_turns import free, run, statuses, whole

pytestmark = pytest.mark.trio

ECHO = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}
KEY = "Bearer sk-very-secret-0002"


class Odd(BaseHTTPRequestHandler):
    """Behaves as its path says."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def say(self, body: bytes, mime: str = "application/json", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", mime)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.say(b"", status=405)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        behaviour = self.path.strip("/")
        if behaviour == "locked" and self.headers.get("Authorization") != KEY:
            self.say(b"{}", status=401)
        elif "id" not in request:
            self.say(b"", status=202)
        elif request["method"] == "initialize":
            me = {"protocolVersion": request["params"]["protocolVersion"], "capabilities": {"tools": {}}}
            self.answer(request, {**me, "serverInfo": {"name": "odd", "version": "1"}})
        elif request["method"] == "tools/list":
            self.answer(request, {"tools": [ECHO]})
        else:
            self.call(request, behaviour)

    def answer(self, request: dict[str, Any], result: Any, stream: bool = False) -> None:
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})
        if stream:
            self.say(f"event: message\ndata: {body}\n\n".encode(), "text/event-stream")
        else:
            self.say(body.encode())

    def call(self, request: dict[str, Any], behaviour: str) -> None:
        text = {"content": [{"type": "text", "text": f"hello {self.headers.get('Authorization')}"}]}
        if behaviour == "hangs":
            time.sleep(20)
        elif behaviour == "dies":
            self.close_connection = True
            self.connection.close()
        elif behaviour == "breaks":
            self.say(b"<html>a proxy</html>", "text/html", 502)
        elif behaviour == "floods":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.close_connection = True
            try:
                while True:
                    self.wfile.write(b"x" * 65536)
            except OSError:
                pass
        else:
            self.answer(request, text, stream=behaviour == "stream")


@pytest.fixture
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Odd)
    server.daemon_threads = True
    server.block_on_close = False
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


ODDITIES = {
    "good": "done",
    "stream": "done",
    "hangs": "unknown",
    "dies": None,
    "breaks": None,
    "floods": "unknown",
}


async def test_whatever_a_server_does_only_its_call_fails(address: str, database: str, tmp_path: Path) -> None:
    wanted = [(f"{name}__echo", {"text": "hello"}) for name in ODDITIES]
    model = steps(*wanted, ("locked__echo", {"text": "x"}), ("shell", {"command": "echo the turn goes on"}))
    locked = ServerSpec("locked", url=f"{address}/locked", headers={"Authorization": KEY}, team=True)
    config = ServersConfig((locked,), call=20.0)
    async with worker(database, tmp_path, model=model, servers=config, fetch_allow=["127.0.0.1"]) as hand:
        notebook_id, [cell] = await free(hand, ("agent", "Go."))
        for name in ODDITIES:
            await hand.ask(notebook_id, "add_server", server=name, url=f"{address}/{name}")
        for name in ODDITIES:
            assert (await looked_at(hand, notebook_id, name))["state"] == "listed", name
        notebook = await run(hand, notebook_id, cell, "done", 120)
        told = dict(zip([*ODDITIES, "locked", "shell"], statuses(notebook, cell), strict=True))
        for name, status in ODDITIES.items():
            assert told[name] == status or (status is None and told[name] in ("error", "unknown")), (name, told)
        assert (told["locked"], told["shell"]) == ("done", "done")
        assert results(notebook, cell)[-2] == "hello [secret]"
        assert not any("very-secret" in frame.text for frame in await hand.frames(notebook_id))
        await whole(hand, notebook_id)


async def test_what_is_not_public_and_what_wants_a_key_is_told(address: str, database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, _ = await hand.create(("agent", "Go."))
        await hand.ask(notebook_id, "add_server", server="inside", url=f"{address}/good")
        server = await looked_at(hand, notebook_id, "inside")
        assert server["state"] == "failed"
        assert "is no public address" in server["reason"]
    async with worker(database, tmp_path, fetch_allow=["127.0.0.1"]) as hand:
        await hand.ask(notebook_id, "add_server", server="locked", url=f"{address}/locked")
        assert "it wants a key" in (await looked_at(hand, notebook_id, "locked"))["reason"]
