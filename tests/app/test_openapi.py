"""The OpenAPI document is complete: whoever reads it needs to guess nothing."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute

from app.api import asks, blobs, files, health, math, models, notebooks
from e2e.api import Api
from engine.agent.models.places import ModelsConfig
from engine.commands import CommandModel

CONTRACT = {
    ("get", "/api/v1/notebooks"): "200",
    ("post", "/api/v1/notebooks"): "201",
    ("get", "/api/v1/notebooks/{notebook_id}"): "200",
    ("post", "/api/v1/notebooks/{notebook_id}/commands"): "202",
    ("get", "/api/v1/notebooks/{notebook_id}/frames"): "200",
    ("get", "/api/v1/notebooks/{notebook_id}/export"): "200",
    ("get", "/api/v1/blobs/{sha256}"): "200",
    ("get", "/api/v1/notebooks/{notebook_id}/files"): "200",
    ("get", "/api/v1/notebooks/{notebook_id}/files/{path}"): "200",
    ("put", "/api/v1/notebooks/{notebook_id}/files/{path}"): "202",
    ("get", "/api/v1/math"): "200",
    ("get", "/api/v1/asks"): "200",
    ("post", "/api/v1/asks/{ask_id}"): "200",
    ("post", "/api/v1/asks/{ask_id}/park"): "200",
    ("post", "/api/v1/asks/{ask_id}/reconsider"): "202",
    ("get", "/healthz"): "200",
    ("get", "/readyz"): "200",
}


@pytest.fixture
def document(api: Api) -> dict[str, Any]:
    answer = api.client.get("/api/v1/openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(method, path): item for path, methods in document["paths"].items() for method, item in methods.items()}


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def test_every_call_of_the_contract_is_listed_with_its_answer(document: dict[str, Any]) -> None:
    listed = operations(document)
    for (method, path), status in CONTRACT.items():
        assert status in listed[method, path]["responses"], (method, path)
        assert listed[method, path]["summary"]


def test_every_route_is_listed_and_nothing_else(document: dict[str, Any]) -> None:
    feed: Any = None
    routers = (
        health.router(feed, None),
        notebooks.router(feed),
        asks.router(feed),
        blobs.router(feed),
        files.router(feed),
        math.router(),
        models.router(feed, ModelsConfig()),
    )
    routes = {
        (method.lower(), route.path_format)
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in route.methods
    }
    # NiceGUI's own routes are no part of the API.
    assert {key for key in operations(document) if not key[1].startswith("/_nicegui")} == routes


def test_every_error_of_the_api_is_a_problem(document: dict[str, Any]) -> None:
    for (_, path), operation in operations(document).items():
        if not path.startswith("/api/v1/"):
            continue
        for status in ("401", "404", "422"):
            content = operation["responses"][status]["content"]
            assert list(content) == ["application/problem+json"], (path, status)
            assert {"title", "status", "detail"} <= content["application/problem+json"]["schema"]["properties"].keys()
        if operation.get("requestBody"):
            assert "413" in operation["responses"]
            assert operation["requestBody"]["required"] is True


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for reference in set(references(document)):
        assert reference.startswith("#/")
        place: Any = document
        for part in reference.removeprefix("#/").split("/"):
            assert part in place, reference
            place = place[part]


def test_every_command_is_described(document: dict[str, Any]) -> None:
    body = operations(document)["post", "/api/v1/notebooks/{notebook_id}/commands"]["requestBody"]
    mapping = body["content"]["application/json"]["schema"]["discriminator"]["mapping"]
    assert mapping.keys() == CommandModel.model_json_schema()["discriminator"]["mapping"].keys()
    assert {"add_cell", "edit_cell", "run_cell", "run_all", "stop", "input", "restart_kernel"} <= mapping.keys()
    for reference in mapping.values():
        assert reference.startswith("#/components/schemas/")


def test_every_successful_answer_says_what_is_in_it(document: dict[str, Any]) -> None:
    for (method, path), operation in operations(document).items():
        if path.startswith("/api/v1/"):
            good = next(answer for status, answer in operation["responses"].items() if status.startswith("2"))
            assert good["description"]
            assert path.startswith("/api/v1/blobs/") or good["content"], (method, path)
    frames = operations(document)["get", "/api/v1/notebooks/{notebook_id}/frames"]["responses"]["200"]["content"]
    assert frames.keys() == {"application/json", "text/event-stream"}


def test_every_parameter_is_described(document: dict[str, Any]) -> None:
    frames = operations(document)["get", "/api/v1/notebooks/{notebook_id}/frames"]
    named = {item["name"]: item for item in frames["parameters"]}
    assert named.keys() == {"notebook_id", "after", "follow", "operator", "last-event-id"}
    assert all(item.get("description") for name, item in named.items() if name != "notebook_id")
