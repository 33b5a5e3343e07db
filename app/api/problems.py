"""Errors as `application/problem+json`: what is wrong, named, and the way out; never a stack trace, never a value."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

import asyncpg
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import Match

from engine.commands import Invalid, TooLarge
from engine.feed import UnknownNotebook
from engine.store.asking import IdReused, UnknownCell
from engine.store.steps import UNREACHABLE

log = logging.getLogger(__name__)

RETRY_SECONDS = 2  # told to who asks while the database is away
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class Problem(BaseModel):
    """The body of every error (RFC 9457)."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {"application/problem+json": {"schema": Problem.model_json_schema()}}}
    for status, text in (
        (401, "Not logged in"),
        (404, "There is no such thing"),
        (409, "The id was used before for something else, or somebody was faster"),
        (413, "Too large"),
        (422, "Malformed; the fields are named"),
    )
}


def problem(status: int, detail: str, errors: list[dict[str, Any]] | None = None, **members: Any) -> JSONResponse:
    """An error response. `members` say more about this kind of problem."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if errors:
        body["errors"] = errors
    body |= members
    return JSONResponse(body, status, media_type="application/problem+json")


def install(app: FastAPI) -> None:
    """Teaches `app` to tell the errors that a caller can do something about."""

    @app.exception_handler(UnknownNotebook)
    async def _unknown(_: Request, error: Exception) -> JSONResponse:
        return problem(404, str(error))

    @app.exception_handler(UnknownCell)
    async def _unknown_cell(_: Request, error: Exception) -> JSONResponse:
        return problem(404, str(error))

    @app.exception_handler(IdReused)
    async def _reused(_: Request, error: Exception) -> JSONResponse:
        return problem(409, str(error))

    @app.exception_handler(TooLarge)
    async def _large(_: Request, error: Exception) -> JSONResponse:
        return problem(413, str(error))

    @app.exception_handler(Invalid)
    async def _invalid(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, Invalid)
        return problem(422, str(error), error.errors)

    @app.exception_handler(RequestValidationError)
    async def _request(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        errors = [
            {"field": ".".join(str(part) for part in item["loc"][1:]) or "body", "message": item["msg"]}
            for item in error.errors()
        ]
        return problem(422, "; ".join(f"{item['field']}: {item['message']}" for item in errors[:5]), errors)

    @app.exception_handler(HTTPException)
    async def _http(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return problem(error.status_code, str(error.detail))

    async def _away(_: Request, error: Exception) -> JSONResponse:
        log.warning("database away: %s", error)
        told = "The database cannot be reached right now"
        if isinstance(error, asyncpg.DiskFullError):
            told = "The database has no room left on its disk"
        answer = problem(503, f"{told}; the same request can be sent again.")
        answer.headers["Retry-After"] = str(RETRY_SECONDS)
        return answer

    for kind in UNREACHABLE:
        app.add_exception_handler(kind, _away)


def refuse_the_rest(app: FastAPI) -> None:
    """Answers what no route of `app` takes below /api. To be called after them: else the pages would answer it."""
    known = list(app.router.routes)

    @app.api_route("/api/{rest:path}", methods=METHODS, include_in_schema=False)
    async def nothing(request: Request) -> JSONResponse:
        if any(route.matches(request.scope)[0] is Match.PARTIAL for route in known):
            return problem(405, f"{request.url.path} is there, but not for {request.method}")
        return problem(404, f"the API has no {request.url.path}")
