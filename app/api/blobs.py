"""Bytes too large for a frame, by their digest. They never change, so browsers may keep them."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from starlette.exceptions import HTTPException

from app.api.problems import RESPONSES
from engine.feed import Feed
from engine.store import reading

Digest = Annotated[str, Path(pattern=r"^[0-9a-f]{64}$", description="SHA-256 in hexadecimal digits")]
_HARMLESS = re.compile(r"(?:image/(?:png|jpeg|gif|webp)|text/plain|application/json)(?:;|\Z)")


def router(feed: Feed) -> APIRouter:
    """The route /api/v1/blobs/{sha256}."""
    routes = APIRouter(prefix="/api/v1/blobs", tags=["blobs"], responses=RESPONSES)

    @routes.get("/{sha256}", summary="Read a blob", response_class=Response)
    async def blob(sha256: Digest, request: Request) -> Response:
        found = await reading.blob(feed.pool, sha256)
        if found is None:
            raise HTTPException(404, f"there is no blob {sha256}")
        headers = {"Cache-Control": "private, max-age=31536000, immutable", "ETag": f'"{sha256}"'}
        if not _HARMLESS.match(
            found.mime
        ):  # opened by itself it is saved, not shown (the door's policy would not let it act)
            headers["Content-Disposition"] = "attachment"
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        if found.encoding is not None:
            headers["Content-Encoding"] = found.encoding
        return Response(found.data, media_type=found.mime, headers=headers)

    return routes
