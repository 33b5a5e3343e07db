"""The shim's protocol against a plain model: engines come, ask, die, come back and are taken over from.

The model knows which runs were asked for, the highest epoch and the highest acknowledged record. The shim is a real
process, with real shells; the engines speak its protocol on bare sockets.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from e2e.scale import SOAK
from engine.sandbox.client import Sandbox, SandboxConfig
from tests.engine.sandbox.harness import config_of

EXAMPLES, STEPS = (100, 40) if SOAK else (3, 20)


class Engine:
    """One connection of an engine: requests, answers, and the records that came."""

    def __init__(self, folder: Path, epoch: int) -> None:
        self.epoch = epoch
        self.records: list[dict[str, Any]] = []
        self._names = itertools.count()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(20)
        fd = os.open(folder, os.O_PATH)
        self._socket.connect(f"/proc/self/fd/{fd}/shim.sock")
        os.close(fd)
        self._lines = self._socket.makefile("rb")

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """The answer; records that come before it are kept."""
        name = next(self._names)
        body = {"id": name, "op": op, "epoch": fields.pop("epoch", self.epoch)} | fields
        self._socket.sendall(json.dumps(body).encode() + b"\n")
        while (answer := self._next()).get("id") != name:
            pass
        return answer

    def _next(self) -> dict[str, Any]:
        line = self._lines.readline()
        assert line, "the shim closed the connection"
        body: dict[str, Any] = json.loads(line)
        self.records += body.get("records", ())
        return body

    def read(self, after: int, upto: int) -> None:
        """Takes the records behind `after`, to `upto` at least."""
        while (self.records[-1]["n"] if self.records else after) < upto:
            self._next()

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


class ShimMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="nightbook-shim-"))
        self.config: SandboxConfig = config_of(self.place)
        self.folder, self.workspace = self.config.folder("one"), self.config.workspace("one")
        trio.run(self._start)
        self.epoch = 1
        self.asked: dict[str, str] = {}  # the model: code by run
        self.told: dict[int, dict[str, Any]] = {}  # records by number, as they were told first
        self.acked = 0
        self.engine = Engine(self.folder, 1)
        self._hello(0)

    async def _start(self) -> None:
        sandbox = await Sandbox.start(self.config, "one", 1)
        await sandbox.aclose()

    def _hello(self, after: int) -> None:
        answer = self.engine.ask("hello", after=after)
        assert answer["ok"], answer
        assert set(answer["runs"]) == set(self.asked)
        self.after = after

    def _note(self) -> None:
        """What came is what follows, and the same as when it was told before."""
        numbers = [record["n"] for record in self.engine.records]
        assert numbers == list(range(self.after + 1, self.after + 1 + len(numbers)))
        for record in self.engine.records:
            assert self.told.setdefault(record["n"], record) == record

    @rule(lines=st.integers(0, 3), pause=st.sampled_from(["0", "0.01", "0.05"]))
    def execute(self, lines: int, pause: str) -> None:
        run = f"run-{len(self.asked)}"
        loop = "".join(f"echo {run} {number}; sleep {pause}; " for number in range(lines))
        self.asked[run] = f"echo {run} >> starts; {loop}true"
        assert self.engine.ask("execute", run=run, kind="shell", code=self.asked[run])["ok"]

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def execute_a_known_run_again(self, data: st.DataObject) -> None:
        run = data.draw(st.sampled_from(sorted(self.asked)))
        assert self.engine.ask("execute", run=run, kind="shell", code="echo twice >> starts")["ok"]

    @rule()
    def stop_what_does_not_run(self) -> None:
        assert self.engine.ask("stop", run="never")["ok"]

    @rule(key=st.sampled_from("ab"))
    def answer_what_nothing_asked(self, key: str) -> None:
        first = self.engine.ask("answer", run="never", key=key, input=None, text="x")
        assert self.engine.ask("answer", run="never", key=key, input=None, text="y") == first | {"id": first["id"] + 1}
        assert first["delivered"] is False

    @rule()
    def read(self) -> None:
        self.engine.read(self.after, self.engine.ask("status")["last"])
        self._note()

    @precondition(lambda self: self.engine.records)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        self.acked = max(self.acked, data.draw(st.sampled_from([record["n"] for record in self.engine.records])))
        assert self.engine.ask("ack", upto=self.acked)["ok"]

    @rule(data=st.data(), takeover=st.booleans())
    def the_engine_dies_and_another_comes(self, data: st.DataObject, takeover: bool) -> None:
        self._note()
        had = self.engine.records[-1]["n"] if self.engine.records else self.after
        self.engine.close()
        self.epoch += takeover
        self.engine = Engine(self.folder, self.epoch)
        self._hello(data.draw(st.integers(self.acked, max(had, self.acked))))

    @precondition(lambda self: self.epoch > 1)
    @rule(op=st.sampled_from(["execute", "stop", "ack", "hello", "shutdown", "restart_kernel"]))
    def one_that_was_frozen_wakes(self, op: str) -> None:
        late = Engine(self.folder, self.epoch - 1)
        more: dict[str, Any] = {
            "run": "late",
            "kind": "shell",
            "code": "echo late >> starts",
            "upto": 10**6,
            "key": "k",
        }
        assert late.ask(op, **more) == {"id": 0, "ok": False, "error": "fenced"}
        late.close()

    @rule(line=st.sampled_from([b"{}\n", b"nonsense\n", b"[1]\n", b'{"id": 1, "op": "execute", "epoch": 1}\n']))
    def somebody_speaks_nonsense(self, line: bytes) -> None:
        other = Engine(self.folder, self.epoch)
        other._socket.sendall(line)
        assert other._next()["ok"] is False
        other.close()

    def teardown(self) -> None:
        try:
            while self.engine.ask("status")["runs"]:
                pass
            self.read()
            self._check()
        finally:
            self.engine.ask("shutdown")
            self.engine.close()
            shutil.rmtree(self.place, ignore_errors=True)

    def _check(self) -> None:
        """Every run started once, and told one story from its start to its one end."""
        starts = self.workspace / "starts"
        assert sorted(starts.read_text().split() if starts.exists() else []) == sorted(self.asked)
        for run, code in self.asked.items():
            story = [record for _, record in sorted(self.told.items()) if record.get("run") == run]
            kinds = [record["t"] for record in story]
            assert kinds[0] == "started"
            assert kinds[-1] == "ended"
            assert (kinds.count("started"), kinds.count("ended"), story[-1]["status"]) == (1, 1, "done")
            text = "".join(record["text"] for record in story if record["t"] == "out")
            assert text.split() == " ".join(f"{run} {n}" for n in range(code.count(f"echo {run}") - 1)).split()


@pytest.mark.timeout(3600)
def test_the_shim_behaves_as_its_model_whoever_dies() -> None:
    run_state_machine_as_test(
        ShimMachine,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
