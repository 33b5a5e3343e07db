"""Formulas for pages: TeX in, MathML out."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Response

from app.api.problems import RESPONSES
from engine.commands import Invalid
from ui.math import LONGEST, NotTex, mathml


def router() -> APIRouter:
    """The route /api/v1/math."""
    routes = APIRouter(prefix="/api/v1/math", tags=["math"], responses=RESPONSES)

    @routes.get(
        "",
        summary="Turn TeX into MathML",
        response_class=Response,
        responses={200: {"content": {"application/xml": {"schema": {"type": "string"}}}}},
    )
    async def math(
        tex: Annotated[str, Query(max_length=LONGEST, description="The formula, without dollar signs")],
        display: Annotated[bool, Query(description="As a line of its own")] = False,
    ) -> Response:
        try:
            text = await asyncio.to_thread(mathml, tex, display)
        except NotTex as problem:
            raise Invalid(str(problem)) from problem
        return Response(text, media_type="application/xml", headers={"Cache-Control": "private, max-age=86400"})

    return routes
