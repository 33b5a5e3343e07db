"""Files of a notebook: their versions, their bytes, and uploads.

What is read comes from the durable copy. An upload stores its bytes and asks for the rest by a command, like everything
that changes a notebook: its engine makes the version and puts the file into the folder.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException

from app.api.notebooks import member
from app.api.problems import RESPONSES
from engine import commands, workspace
from engine.feed import Feed
from engine.files import FILE_BYTES
from engine.frames import clean
from engine.ids import new_id
from engine.store import asking
from engine.store import files as store
from engine.store.files import FileVersion

LIST_LIMIT = 1000
# What a browser may show by itself, and nothing in it acts. Other text is shown as plain text, the rest is downloaded.
_IMAGES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"))
_TEXT = frozenset(("application/json", "application/xml", "application/javascript", "application/x-sh"))


class AnyPath(Convertor[str]):
    """The rest of an address, whatever is in it: file names may hold line ends."""

    regex = r"[\s\S]+"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("anypath", AnyPath())

FilePath = Annotated[str, Path(description="Path in the notebook's folder, its slashes as they are")]


class FileLine(BaseModel):
    """One version of a file. `deleted`: it was not there any more, `sha256` is null then."""

    path: str
    version: int = Field(description="From 1, for each path")
    sha256: str | None
    bytes: int
    mime: str | None
    deleted: bool
    by: str | None = Field(description="Member who asked for it, or agent")
    run_id: str | None
    call: str | None = Field(description="The call of an agent's turn that made it")
    at: str


class FileList(BaseModel):
    """`after` is where the next page begins; null when this is all."""

    files: list[FileLine]
    after: str | None


class Uploaded(BaseModel):
    """An upload that was stored. `id` names the command that puts it in its place; its `file` frame carries it."""

    id: str
    path: str
    sha256: str
    bytes: int


def router(feed: Feed) -> APIRouter:
    """The routes below /api/v1/notebooks/{notebook_id}/files."""
    routes = APIRouter(prefix="/api/v1/notebooks/{notebook_id}/files", tags=["files"], responses=RESPONSES)

    @routes.get("", summary="List files, or the versions of one")
    async def files(
        notebook_id: str,
        path: Annotated[str | None, Query(description="Only this file: all its versions, newest first")] = None,
        after: Annotated[str, Query(description="Files behind this path, for the next page")] = "",
        deleted: Annotated[bool, Query(description="Also files whose newest version says that they are gone")] = False,
        limit: Annotated[int, Query(ge=1, le=LIST_LIMIT, description="How many at most")] = LIST_LIMIT,
    ) -> FileList:
        """The newest version of each file, by path."""
        await store.expect_notebook(feed.pool, notebook_id)
        if path is not None:
            found = await store.history(feed.pool, notebook_id, inside(path), limit)
            return FileList(files=[_line(item) for item in found], after=None)
        found = await store.newest(feed.pool, notebook_id, clean(after), limit)
        more = found[-1].path if len(found) == limit else None
        return FileList(files=[_line(item) for item in found if deleted or item.sha256 is not None], after=more)

    @routes.get(
        "/{path:anypath}",
        summary="Read a file",
        response_class=Response,
        responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
    )
    async def read(
        notebook_id: str,
        path: FilePath,
        request: Request,
        version: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="Left out: the newest")] = None,
        download: Annotated[bool, Query(description="As something to save, never to show")] = False,
    ) -> Response:
        """The bytes of a file. Pictures and text may be shown by a browser; everything else is sent as a download."""
        await store.expect_notebook(feed.pool, notebook_id)
        path = inside(path)
        found = await store.version(feed.pool, notebook_id, path, version)
        shown = workspace.shown(path)
        if found is None:
            raise HTTPException(404, f"there is no file {shown}" + (f" of version {version}" if version else ""))
        if found.sha256 is None:
            raise HTTPException(404, f"{shown} was deleted as of version {found.version}; ask for one before")
        headers = _headers(found, download)
        headers["Cache-Control"] = "private, no-cache" if version is None else "private, max-age=31536000, immutable"
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        data = (await store.contents(feed.pool, notebook_id, [found.sha256])).get(found.sha256)
        if data is None:
            raise HTTPException(404, f"the bytes of {shown}, version {found.version}, are gone")
        return Response(data, headers=headers)

    @routes.put(
        "/{path:anypath}",
        status_code=202,
        summary="Upload a file",
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
            }
        },
    )
    async def upload(
        notebook_id: str,
        path: FilePath,
        request: Request,
        id: Annotated[
            str | None,
            Query(pattern=r"^[A-Za-z0-9_.:-]{1,64}$", description="Made by the caller: the same id asks for it once"),
        ] = None,
    ) -> Uploaded:
        """Stores the body and asks the notebook's engine to put it in its place, as a new version. At most 64 MiB."""
        path = inside(path)
        await store.expect_notebook(feed.pool, notebook_id)
        data = await _body(request)
        [name] = await store.keep_all(feed.pool, notebook_id, [data])
        command = commands.validate(
            commands.PutFile, {"id": id or new_id(), "kind": "put_file", "path": path, "sha256": name}
        )
        await asking.ask(feed.pool, notebook_id, member(request), command.id, command.model_dump(mode="json"))
        return Uploaded(id=command.id, path=path, sha256=name, bytes=len(data))

    return routes


def inside(path: str) -> str:
    """The path as it is stored. Raises `commands.Invalid`."""
    try:
        return workspace.plain(path)
    except workspace.WorkspaceError as error:
        raise commands.Invalid(f"path: {error}", [{"field": "path", "message": str(error)}]) from None


async def _body(request: Request) -> bytes:
    """The request's body. Raises `commands.TooLarge` as soon as it is, before it was all read."""
    too_large = commands.TooLarge(f"a file has at most {FILE_BYTES // 2**20} MiB")
    if (told := request.headers.get("content-length", "")).isdecimal() and int(told) > FILE_BYTES:
        raise too_large
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > FILE_BYTES:
            raise too_large
    return bytes(data)


def _line(item: FileVersion) -> FileLine:
    return FileLine(
        path=item.path,
        version=item.version,
        sha256=item.sha256,
        bytes=item.bytes,
        mime=item.mime,
        deleted=item.sha256 is None,
        by=item.by,
        run_id=item.run_id,
        call=item.call_id,
        at=item.at.isoformat(),
    )


def _headers(found: FileVersion, download: bool) -> dict[str, str]:
    """How a browser is to take a file that a program, or anybody, may have made."""
    mime = (found.mime or "").partition(";")[0]
    name = quote(found.path.rpartition("/")[2], safe="")
    if mime in _IMAGES and not download:
        kind, place = mime, "inline"
    elif (mime.startswith("text/") or mime in _TEXT or mime.endswith("+json")) and not download:
        kind, place = "text/plain; charset=utf-8", "inline"
    else:
        kind, place = "application/octet-stream", "attachment"
    return {
        "Content-Type": kind,
        "Content-Disposition": f"{place}; filename*=UTF-8''{name}",
        "ETag": f'"{found.sha256}-{"d" if place == "attachment" else "i"}"',
        "X-Content-Type-Options": "nosniff",
    }
