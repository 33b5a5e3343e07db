"""The real pages on a real server over a scripted feed, as a process of its own: `python -m tests.ui.site`.

Prints its port. A test writes frames by POST to `/script`; commands that pages send are kept and, where it is simple,
answered with their frame, so that the components can be tried without an engine.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import mimetypes
import os
import socket
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from nicegui import ui
from nicegui.client import Client

from app.api import math, models, problems
from engine.agent.models.places import ModelsConfig
from engine.commands import parse
from engine.decide import decide as plan_of
from engine.feed import Feed, Left
from engine.ids import new_id
from tests.ui.scripted import ScriptedFeed
from ui import pages, theme
from ui.viewer import Viewer


def build() -> FastAPI:
    """The pages, and the few calls that tests and pages make."""
    feed = ScriptedFeed(lambda: datetime.now(UTC))
    app = FastAPI()
    commands: list[dict[str, Any]] = []
    refusing: dict[str, int] = {}
    deleted: dict[str, str | None] = {}  # cell -> the one it stood behind

    @app.post("/script")
    async def script(request: Request) -> dict[str, int]:
        entries = (await request.json())["frames"]
        for notebook_id, kind, fields in entries:
            feed.write(notebook_id, kind, **fields)
        return {"frames": len(entries)}

    @app.get("/head/{notebook_id}")
    async def head(notebook_id: str) -> int:
        return len(feed.journals[notebook_id])

    @app.post("/forget")
    async def forget() -> None:
        """No notebooks, no commands, nobody here."""
        feed.journals.clear()
        commands.clear()
        feed.people.clear()

    @app.post("/world")
    async def world(request: Request) -> None:
        """Who is here, which server this is, how it and its database do, how long who comes back was away."""
        said = await request.json()
        feed.state = said.get("store", "live")
        for one in feed.subscriptions:
            one.engine = said.get("engine", "here")
        feed.people[:] = said.get("people", [])
        feed.web_id = said.get("server", feed.web_id)
        feed.away = None if said.get("away") is None else Left(*said["away"])

    @app.post("/refuse/{status}/{times}")
    async def refuse(status: int, times: int) -> None:
        refusing.clear()
        if times:
            refusing[str(status)] = times

    @app.get("/commands")
    async def sent() -> list[dict[str, Any]]:
        return commands

    @app.get("/statistics")
    async def statistics() -> dict[str, int]:
        gc.collect()
        names = [task.get_name() for task in asyncio.all_tasks()]
        return {
            "clients": len(Client.instances),
            "subscriptions": len(feed.subscriptions),
            "viewers": sum(name.startswith(("viewer of", "home watcher", "asks watcher")) for name in names),
            "tasks": len(names),
            "unacknowledged": sum(one.unacknowledged for one in gc.get_objects() if isinstance(one, Viewer)),
        }

    @app.post("/prune")
    async def prune() -> None:
        Client.prune_instances(client_age_threshold=0)

    @app.post("/api/v1/notebooks/{notebook_id}/commands", status_code=202)
    async def command(notebook_id: str, request: Request) -> Any:
        body = await request.json()
        for status, times in list(refusing.items()):
            refusing[status] = times - 1
            if times <= 1:
                del refusing[status]
            return JSONResponse({"detail": "not now"}, int(status))
        if any(known["id"] == body["id"] for known in commands):
            return {"id": body["id"]}
        commands.append(body)
        mark = {"by": "owner", "command_id": body["id"]}
        if body["kind"] == "edit_cell" and body.get("at") is not None:
            cell = feed.notebook(notebook_id).cells[body["cell_id"]]
            removed = cell.source[body["at"] : body["at"] + body.get("remove", 0)]
            feed.write(
                notebook_id,
                "cell",
                event="edited",
                cell_id=cell.id,
                at=body["at"],
                remove=removed,
                insert=body.get("insert", ""),
                **mark,
            )
        elif body["kind"] == "add_cell":
            order = feed.notebook(notebook_id).order
            after = body.get("after", order[-1] if order else None)
            places = {} if after is None else {"after": after}
            kind = body.get("cell_kind", "python")
            source = body.get("source", "")
            feed.write(
                notebook_id, "cell", event="added", cell_id=body["cell_id"], kind=kind, source=source, **places, **mark
            )
        elif body["kind"] == "delete_cell":
            order = feed.notebook(notebook_id).order
            deleted[body["cell_id"]] = [None, *order][order.index(body["cell_id"])]
            feed.write(notebook_id, "cell", event="deleted", cell_id=body["cell_id"], **mark)
        elif body["kind"] == "restore_cell":
            back = {"after": deleted[body["cell_id"]]} if deleted[body["cell_id"]] else {}
            feed.write(notebook_id, "cell", event="restored", cell_id=body["cell_id"], **back, **mark)
        elif body["kind"] in ("split_cell", "merge_cells", "collapse", "move_cell"):
            plan = plan_of(feed.notebook(notebook_id), parse(body), "owner")
            for item in plan.drafts:
                feed.write(notebook_id, item.kind, cell_id=item.cell_id, **item.fields, **mark)
        elif body["kind"] == "edit_cell" and body.get("cell_kind"):
            cell = feed.notebook(notebook_id).cells[body["cell_id"]]
            kinds = {"at": 0, "remove": "", "insert": "", "kind": body["cell_kind"]}
            feed.write(notebook_id, "cell", event="edited", cell_id=cell.id, **kinds, **mark)
        elif body["kind"] == "set_model":
            feed.write(notebook_id, "session", event="model", model=body["model"], **mark)
        elif body["kind"] == "rename":
            feed.write(notebook_id, "session", event="renamed", title=body["title"], **mark)
        return {"id": body["id"]}

    @app.post("/api/v1/asks/{ask_id}")
    async def decide(ask_id: str, request: Request) -> Any:
        body = await request.json()
        commands.append({"id": new_id(), "kind": "verdict", "ask": ask_id, **body})
        for status, times in list(refusing.items()):
            refusing[status] = times - 1
            if times <= 1:
                del refusing[status]
            return JSONResponse({"detail": "not now"}, int(status))
        row = next(row for row in feed.all_asks() if row.ask.id == ask_id)
        if row.ask.verdict is not None:
            return JSONResponse({"detail": f"{row.ask.by} denied it at 22:12"}, 409)
        item = row.ask.body
        place = {"cell_id": row.ask.cell_id, "run_id": item["run"], "by": "owner"}
        told = {name: body[name] for name in ("verdict", "scope", "message") if name in body}
        feed.write(row.ask.notebook_id, "verdict", ask=ask_id, call=item["call"], reason="person", **place, **told)
        return {}

    @app.post("/api/v1/asks/{ask_id}/park")
    async def park(ask_id: str) -> Any:
        row = next(row for row in feed.all_asks() if row.ask.id == ask_id)
        again = {name: row.ask.body[name] for name in ("ask", "call", "tool", "title", "command")}
        place = {"cell_id": row.ask.cell_id, "run_id": row.ask.body["run"]}
        feed.write(row.ask.notebook_id, "ask", parked=True, seconds=86400.0, **place, **again)
        return {}

    @app.post("/silence")
    async def silence() -> None:
        """All open asks are denied, for a test that wants none."""
        for row in await feed.asks():
            place = {"cell_id": row.ask.cell_id, "run_id": row.ask.body["run"], "call": row.ask.body["call"]}
            feed.write(row.ask.notebook_id, "verdict", ask=row.ask.id, verdict="deny", reason="timeout", **place)

    @app.post("/api/v1/asks/{ask_id}/reconsider")
    async def reconsider(ask_id: str) -> Any:
        commands.append({"id": new_id(), "kind": "reconsider", "ask": ask_id})
        return {}

    blobs: dict[str, tuple[str, bytes]] = {}

    @app.post("/blob")
    async def keep(request: Request) -> dict[str, Any]:
        body = await request.body()
        digest = hashlib.sha256(body).hexdigest()
        blobs[digest] = (request.headers["x-mime"], body)
        return {"blob": digest, "bytes": len(body)}

    @app.get("/api/v1/blobs/{digest}")
    async def blob(digest: str) -> Response:
        mime, body = blobs[digest]
        return Response(body, media_type=mime)

    @app.put("/api/v1/notebooks/{notebook_id}/files/{path:path}")
    async def upload(notebook_id: str, path: str, request: Request) -> Any:
        body = await request.body()
        digest = hashlib.sha256(body).hexdigest()
        if body == b"refuse me":
            return JSONResponse({"detail": "the disk of the server is full"}, 507)
        mime = mimetypes.guess_type(path)[0] or "text/plain"
        blobs[digest] = (mime, body)
        files = feed.notebook(notebook_id).files
        version = files[path]["version"] + 1 if path in files else 1
        feed.write(
            notebook_id, "file", path=path, version=version, bytes=len(body), sha256=digest, mime=mime, by="owner"
        )
        return {"id": "put", "path": path, "sha256": digest, "bytes": len(body)}

    @app.get("/api/v1/notebooks/{notebook_id}/files/{path:path}")
    async def file(notebook_id: str, path: str) -> Response:
        mime, body = blobs[feed.notebook(notebook_id).files[path]["sha256"]]
        return Response(body, media_type=mime)

    app.include_router(models.router(cast("Feed", feed), places()))
    app.include_router(math.router())
    problems.install(app)
    pages.register(cast("Feed", feed))
    ui.run_with(
        app,
        title="Nightbook",
        favicon=theme.FAVICON,
        dark=None,
        reconnect_timeout=float(os.environ.get("RECONNECT_SECONDS", "5")),
        message_history_length=0,
        binding_refresh_interval=None,
        tailwind=False,
        show_welcome_message=False,
    )
    return app


def places() -> ModelsConfig:
    """Where models are: what the variable says speaks both protocols; one place lacks its key."""
    config, url = ModelsConfig(), os.environ.get("MODELS_URL", "http://127.0.0.1:9")
    return replace(
        config,
        anthropic=replace(config.anthropic, url=url, key="secret"),
        ollama=replace(config.ollama, url=f"{url}/v1"),
    )


def main() -> None:
    """Serves on a free port of this machine and says which."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    server = uvicorn.Server(uvicorn.Config(build(), log_level="warning", ws_max_size=4 * 1024 * 1024))
    asyncio.run(server.serve(sockets=[listener]))


if __name__ == "__main__":
    main()
