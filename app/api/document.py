"""The OpenAPI document, made whole: models of hand-read bodies stand where their references lead."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI


def install(app: FastAPI) -> None:
    """Moves the `$defs` of request bodies to the document's components, where their references look for them."""
    make = app.openapi

    def whole() -> dict[str, Any]:
        document = make()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        for methods in document["paths"].values():
            for operation in methods.values():
                for content in operation.get("requestBody", {}).get("content", {}).values():
                    schemas.update(content["schema"].pop("$defs", {}))
        return document

    app.openapi = whole  # type: ignore[method-assign]
