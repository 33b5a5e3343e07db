"""A machine is told by its data folder, whatever it is called."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.machine import this_machine


def test_workers_that_share_a_folder_are_on_one_machine_though_its_name_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ThreadPoolExecutor(8) as pool:  # all at once, the first time
        [known] = {machine.id for machine in pool.map(this_machine, [tmp_path / "workers"] * 8)}
    monkeypatch.setattr(socket, "gethostname", lambda: "made-anew")
    again = this_machine(tmp_path / "workers")
    assert (again.id, again.name) == (known, "made-anew")
    assert this_machine(tmp_path / "other").id != known
    assert [path.name for path in (tmp_path / "workers").iterdir()] == ["machine"], "nothing else is left there"
