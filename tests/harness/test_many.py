"""Many runs of every kind in flight, and the server is killed: all end well, and each began once."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from e2e.scale import SOAK
from e2e.waiting import until
from tests.harness.house import House
from tests.harness.people import Hand
from tests.harness.promises import runs_of

RUNS, SECONDS = (50, 20.0) if SOAK else (6, 4.0)
SOURCES = {
    "python": "import time\nopen('starts', 'a').write('x\\n')\nfor n in range({n}):\n    print(n)\n    time.sleep(0.1)",
    "shell": "echo x >> starts; for n in $(seq 1 {n}); do echo $n; sleep 0.1; done",
    "agent": "```sh\necho x >> starts; for n in $(seq 1 {n}); do echo $n; sleep 0.1; done\n```",
}


@pytest.mark.skipif(not SOAK, reason="only with NIGHTBOOK_SOAK=1: it fills a machine")
@pytest.mark.timeout(900)
def test_all_runs_in_flight_outlive_the_server() -> None:
    with tempfile.TemporaryDirectory(prefix="nightbook-many-") as folder:
        house = House(Path(folder) / "data", apart=False)
        try:
            fly(house)
        finally:
            left = house.close()
    assert left == []


def fly(house: House) -> None:
    hand = Hand(house.web.url)
    ids = []
    for number in range(RUNS):
        kind = list(SOURCES)[number % len(SOURCES)]
        cell = {"kind": kind, "source": SOURCES[kind].format(n=int(SECONDS * 10))}
        made = hand.ask("POST", "notebooks", {"title": kind, "cells": [cell]}).json()
        ids.append(made["id"])
        hand.command(made["id"], "policy", "set_policy", policy="all")
        hand.command(made["id"], "run", "run_cell", cell_id=made["cells"][0]["id"])
    hand.close()

    def speaking() -> int:
        [row] = house.sql("SELECT count(DISTINCT notebook_id) AS n FROM frame WHERE kind = 'output'")
        return int(row["n"])

    until(lambda: speaking() == RUNS, "all print", 300, every=0.1)
    house.web.kill()
    [row] = house.sql("SELECT sum(head)::bigint AS heads, count(*) FILTER (WHERE state = 'running') AS n FROM notebook")
    flying = row["n"]
    house.web.start()
    began = time.monotonic()
    until(lambda: house.sql("SELECT sum(head)::bigint AS h FROM notebook")[0]["h"] > row["heads"], "a new frame", 120)
    print(f"{flying} of {RUNS} in flight; ready in {house.web.ready_seconds:.1f} s, "
          f"first new frame {time.monotonic() - began:.2f} s after")  # fmt: skip

    def open_runs() -> list[dict[str, Any]]:
        return house.sql(
            "SELECT run_id FROM frame WHERE kind = 'run' GROUP BY run_id HAVING bool_and(body->>'event' <> 'ended')"
        )

    until(lambda: not open_runs(), "all end", 300, every=0.2)
    for notebook_id in ids:
        frames = house.journal(notebook_id)
        assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
        assert {(run.ends, run.status) for run in runs_of(frames)} == {(1, "done")}
        assert (house.data / "workspaces" / notebook_id / "starts").read_text() == "x\n"
