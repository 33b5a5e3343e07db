"""Notebooks over HTTP: list, create, read, ask, and follow their frames as server-sent events."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from app.api.problems import RESPONSES
from app.api.stream import Streams
from engine import commands, decide
from engine.feed import Feed
from engine.frames import CellKind, FrameOut, clean
from engine.ids import new_id
from engine.snapshot import view
from engine.store import asking, reading
from ui import export

PAGE_FRAMES = 1000
BODY_LIMIT = 4 * 1024 * 1024
CREATE_CELLS = 1000
MAX_SEQ = 2**63 - 1


class NewCell(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: CellKind = "python"
    source: str = ""


class NewNotebook(BaseModel):
    model_config = ConfigDict(extra="forbid")
    title: commands.Title = "Untitled notebook"
    cells: list[NewCell] = Field(default_factory=list, max_length=CREATE_CELLS)


class CellMade(BaseModel):
    id: str
    kind: CellKind


class NotebookMade(BaseModel):
    id: str
    seq: int
    cells: list[CellMade]


class NotebookLine(BaseModel):
    """A notebook in the list. `state`: idle, queued, running, waiting or error."""

    id: str
    title: str
    state: str
    waiting: int
    cells: int
    archived: bool
    changed_at: str


class CommandTaken(BaseModel):
    id: str


class Asked(BaseModel):
    """A place in a Python source: `at` counts code points."""

    model_config = ConfigDict(extra="forbid")
    source: str = Field(max_length=commands.SOURCE_LIMIT)
    at: int = Field(ge=0)


class Name(BaseModel):
    text: str
    type: str = Field(description="function, class, module, variable, attribute, keyword, magic … or empty")


class KnownBy(BaseModel):
    """Who answered: the kernel, or the words of the notebook while the kernel is `busy` or `asleep`."""

    known_by: Literal["kernel", "notebook"]
    why: Literal["busy", "asleep"] | None


class Completions(KnownBy):
    """Names that may stand in place of the code points from `start` to `end`."""

    start: int
    end: int
    items: list[Name]


class Docs(KnownBy):
    text: str = Field(description="Plain text, empty when nothing is known")


class FramePage(BaseModel):
    frames: list[FrameOut]
    head: int


async def body_of(request: Request) -> Any:
    """The request's JSON, without what a database cannot keep. Raises `commands.Invalid` or `commands.TooLarge`."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_LIMIT:
            raise commands.TooLarge(f"a request holds at most {BODY_LIMIT // 2**20} MiB")
        parts.append(part)
    try:
        return clean(json.loads(b"".join(parts)))
    except (ValueError, RecursionError) as error:
        raise commands.Invalid(f"body: not JSON ({error})") from None


def member(request: Request) -> str:
    """Who asks, as the door found out."""
    name: str = request.scope["nightbook.member"]
    return name


def router(feed: Feed) -> APIRouter:
    """The routes below /api/v1/notebooks."""
    routes = APIRouter(prefix="/api/v1/notebooks", tags=["notebooks"], responses=RESPONSES)
    streams = Streams()

    @routes.get("", summary="List notebooks")
    async def notebooks(archived: bool = False) -> list[NotebookLine]:
        return [
            NotebookLine(
                id=row.id,
                title=row.title,
                state=row.state,
                waiting=row.waiting,
                cells=row.cells,
                archived=row.archived,
                changed_at=row.changed_at.isoformat(),
            )
            for row in await feed.notebooks(archived)
        ]

    @routes.post(
        "",
        status_code=201,
        summary="Create a notebook",
        response_model=NotebookMade,
        openapi_extra=body_schema(NewNotebook),
    )
    async def create(request: Request) -> NotebookMade:
        wanted = commands.validate(NewNotebook, await body_of(request))
        for cell in wanted.cells:
            commands.check_source(cell.source)
        notebook_id = new_id()
        cells = [(new_id(), cell.kind, cell.source) for cell in wanted.cells]
        drafts = decide.first_frames(wanted.title, cells, member(request))
        seq = await asking.create(feed.pool, notebook_id, wanted.title, drafts, len(cells))
        return NotebookMade(
            id=notebook_id, seq=seq, cells=[CellMade(id=cell_id, kind=kind) for cell_id, kind, _ in cells]
        )

    @routes.get("/{notebook_id}", summary="Read a notebook, folded at its head")
    async def notebook(notebook_id: str, request: Request) -> dict[str, Any]:
        subscription = await feed.attach(notebook_id, after=None, member=member(request), operator=False)
        try:
            return view(await subscription.snapshot())
        finally:
            subscription.close()

    @routes.post(
        "/{notebook_id}/commands",
        status_code=202,
        summary="Ask for something",
        description="Answered after the command is stored. The same id and body again is the same command.",
        response_model=CommandTaken,
        openapi_extra=body_schema(commands.CommandModel),
    )
    async def command(notebook_id: str, request: Request) -> CommandTaken:
        wanted = await asyncio.to_thread(commands.parse, await body_of(request))
        for cell_id in commands.cells_named(wanted):
            await feed.expect_cell(notebook_id, cell_id)
        body = wanted.model_dump(mode="json", exclude_defaults=True)
        await asking.ask(feed.pool, notebook_id, member(request), wanted.id, body)
        return CommandTaken(id=wanted.id)

    @routes.post(
        "/{notebook_id}/complete",
        summary="Ask what may stand at a place in a Python source",
        description="Answered within 2 s, by the kernel if it is idle. Starts nothing, runs nothing.",
        response_model=Completions,
        openapi_extra=body_schema(Asked),
    )
    async def complete(notebook_id: str, request: Request) -> Completions:
        wanted = commands.validate(Asked, await body_of(request))
        return Completions(**await feed.inquire(notebook_id, "complete", wanted.source, wanted.at))

    @routes.post(
        "/{notebook_id}/inspect",
        summary="Ask what is written about the name at a place in a Python source",
        description="Answered within 2 s, by the kernel if it is idle. Starts nothing, runs nothing.",
        response_model=Docs,
        openapi_extra=body_schema(Asked),
    )
    async def inspect(notebook_id: str, request: Request) -> Docs:
        wanted = commands.validate(Asked, await body_of(request))
        return Docs(**await feed.inquire(notebook_id, "inspect", wanted.source, wanted.at))

    @routes.get(
        "/{notebook_id}/frames",
        summary="Read frames, or follow them as server-sent events",
        response_model=FramePage,
        responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
        description=(
            "Frames after `after`, without gap or repetition. Followed: events `frame` (id = seq), `reset` (data = the "
            "folded notebook, id = its seq; sent when the cursor cannot be continued) and `heartbeat` every 4 s. With "
            "`follow=false`: one page of at most 1,000 frames and the head."
        ),
    )
    async def frames(
        notebook_id: str,
        request: Request,
        after: Annotated[int, Query(ge=0, le=MAX_SEQ, description="The last seq the reader has")] = 0,
        follow: Annotated[bool, Query(description="Keep the connection and send what comes")] = True,
        operator: Annotated[bool, Query(description="Count this reader as somebody who may decide")] = False,
        last_event_id: Annotated[
            str | None,
            Header(pattern=r"^\d{1,18}$", description="As a browser sends it on reconnect; wins over `after`"),
        ] = None,
    ) -> Response:
        if last_event_id is not None:
            after = int(last_event_id)
        if not follow:
            head = await reading.head(feed.pool, notebook_id)
            found = await reading.frames(feed.pool, notebook_id, after, PAGE_FRAMES)
            lines = ",".join(frame.line for frame in found)
            head = max(head, found[-1].seq if found else 0)
            return Response(f'{{"frames": [{lines}], "head": {head}}}', media_type="application/json")
        subscription = await feed.attach(notebook_id, after=after, member=member(request), operator=operator)
        return StreamingResponse(
            streams.events(subscription),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"},
        )

    @routes.get(
        "/{notebook_id}/export",
        summary="Read the notebook as one document",
        description="Cells, sources, and outputs as they end up on a terminal; pictures stand inside.",
        response_class=Response,
        responses={200: {"content": {mime: {"schema": {"type": "string"}} for mime in export.MIME.values()}}},
    )
    async def exported(
        notebook_id: str,
        request: Request,
        form: Annotated[export.Format, Query(alias="format", description="Markdown, HTML or plain text")] = "html",
    ) -> Response:
        subscription = await feed.attach(notebook_id, after=None, member=member(request), operator=False)
        try:
            folded = await subscription.snapshot()
        finally:
            subscription.close()
        blobs: dict[str, bytes] = {}
        for digest in export.blobs_of(folded):
            if sum(map(len, blobs.values())) < export.BLOB_BYTES and (found := await reading.blob(feed.pool, digest)):
                blobs[digest] = found.data
        text = await asyncio.to_thread(export.document, folded, form, blobs)
        words = re.sub(r"[^\w-]+", "-", folded.title)[:60].strip("-") or "notebook"
        name = quote(f"{words}.{form}")
        return Response(
            text,
            media_type=f"{export.MIME[form]}; charset=utf-8",
            headers={"Content-Disposition": f"attachment; filename*=UTF-8''{name}", "Cache-Control": "no-store"},
        )

    @routes.get(
        "/{notebook_id}/runs/{run_id}/output",
        summary="Read all that is stored of what a run printed",
        response_class=PlainTextResponse,
    )
    async def output(notebook_id: str, run_id: str) -> StreamingResponse:
        await reading.head(feed.pool, notebook_id)  # 404 for an unknown one
        text = reading.output_of_run(feed.pool, notebook_id, run_id)
        return StreamingResponse(text, media_type="text/plain; charset=utf-8")

    return routes


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The request body for the OpenAPI document: bodies are read by `body_of`, which says better what is wrong."""
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": model.model_json_schema(ref_template="#/components/schemas/{model}")}
            },
        }
    }
