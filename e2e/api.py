"""Notebooks by HTTP, so that a test can set its stage and read back the truth without a page."""

import itertools
import secrets
from collections.abc import Iterator
from typing import Any

import httpx

from e2e.waiting import until

Cell = tuple[str, str]  # kind, source
Frame = dict[str, Any]

_READER = "import pathlib\np = pathlib.Path({name!r})\nprint(p.read_text() if p.exists() else '(no such file)', end='')"
OVER = {"done", "error", "cancelled"}


class Api:
    """The HTTP API of the server under test."""

    def __init__(self, url: str, token: str) -> None:
        self.client = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False, timeout=30
        )

    def notebook(self, *cells: Cell, title: str = "Under test") -> "Notebook":
        """Makes a notebook with `cells`."""
        wanted = {"title": title, "cells": [{"kind": kind, "source": source} for kind, source in cells]}
        answer = self.client.post("/api/v1/notebooks", json=wanted)
        assert answer.status_code == 201, answer.text
        made = answer.json()
        return Notebook(self.client, made["id"], [cell["id"] for cell in made["cells"]])

    def close(self) -> None:
        self.client.close()


class Notebook:
    """One notebook as the API shows it. `cells` holds the ids of the cells it was made with."""

    def __init__(self, client: httpx.Client, notebook_id: str, cells: list[str]) -> None:
        self.id = notebook_id
        self.cells = cells
        self._client = client

    def __repr__(self) -> str:
        return f"<notebook {self.id}>"

    @property
    def path(self) -> str:
        return f"/n/{self.id}"

    def view(self) -> dict[str, Any]:
        """The folded notebook."""
        answer = self._client.get(f"/api/v1/notebooks/{self.id}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def cell(self, cell_id: str) -> dict[str, Any]:
        """One cell of the folded notebook; one that was only just asked for is waited for."""
        return until(
            lambda: next((cell for cell in self.view()["cells"] if cell["id"] == cell_id), None),
            f"{self} has a cell {cell_id}",
        )

    def head(self) -> int:
        answer = self._client.get(f"/api/v1/notebooks/{self.id}/frames", params={"after": 2**40, "follow": False})
        return int(answer.json()["head"])

    def frames(self, after: int = 0) -> list[Frame]:
        """All frames after `after`, page by page."""
        return list(itertools.chain.from_iterable(self._pages(after)))

    def _pages(self, after: int) -> Iterator[list[Frame]]:
        while True:
            answer = self._client.get(f"/api/v1/notebooks/{self.id}/frames", params={"after": after, "follow": False})
            assert answer.status_code == 200, answer.text
            found = answer.json()["frames"]
            if not found:
                return
            yield found
            after = found[-1]["seq"]

    def ask(self, kind: str, **fields: Any) -> str:
        """Sends a command; returns its id."""
        body = {"id": secrets.token_hex(8), "kind": kind} | fields
        answer = self._client.post(f"/api/v1/notebooks/{self.id}/commands", json=body)
        assert answer.status_code == 202, answer.text
        return str(body["id"])

    def run(self, cell_id: str) -> None:
        self.ask("run_cell", cell_id=cell_id)

    def wait(self, cell_id: str, *states: str, seconds: float = 30.0) -> dict[str, Any]:
        """Waits until the cell is in one of `states` (any final one when none is given); returns the cell."""
        wanted = set(states) or OVER

        def settled() -> dict[str, Any] | None:
            cell = self.cell(cell_id)
            return cell if cell["state"] in wanted else None

        return until(settled, f"{self}, cell {cell_id} is {' or '.join(sorted(wanted))}", seconds)

    def text(self, cell_id: str) -> str:
        """The text a cell shows, as the API has it."""
        return "".join(item.get("text", "") for item in self.cell(cell_id)["output"])

    def file(self, name: str, seconds: float = 60.0) -> str:
        """What a file of the notebook holds, read by a cell of its own: this works on any server."""
        cell_id = f"reader-{secrets.token_hex(4)}"
        self.ask("add_cell", cell_kind="python", source=_READER.format(name=name), cell_id=cell_id)
        self.run(cell_id)
        cell = self.wait(cell_id, seconds=seconds)
        assert cell["state"] == "done", cell
        return self.text(cell_id)

    def runs(self) -> list[Frame]:
        """The frames that tell of runs."""
        return [frame for frame in self.frames() if frame["kind"] == "run"]
