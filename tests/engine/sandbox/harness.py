"""What the sandbox tests share: a notebook that keeps every record it was handed, and bounded waits."""

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio

from engine.sandbox.client import Sandbox, SandboxConfig
from engine.sandbox.isolation import bubblewrap

PATIENCE = 30.0


def bubblewrap_works() -> bool:
    try:
        command = [bubblewrap(), "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "true"]
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


needs_bubblewrap = pytest.mark.skipif(not bubblewrap_works(), reason="bubblewrap is missing or refused on this machine")
MODES = [pytest.param("bubblewrap", marks=needs_bubblewrap), "process"]


async def wait_for(condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
    """Until the condition holds; fails with `what` when it does not in time."""
    with trio.move_on_after(seconds):
        while True:
            if value := condition():
                return value
            await trio.sleep(0.01)
    raise AssertionError(f"waited {seconds} s in vain: {what}")


class Notebook:
    """A sandbox and every record it handed out, in order."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.records: list[dict[str, Any]] = []
        self._count = 0

    async def take(self, wanted: Callable[[dict[str, Any]], bool], seconds: float = PATIENCE) -> dict[str, Any]:
        """The first record for which `wanted` holds, now or later."""
        for record in self.records:
            if wanted(record):
                return record
        with trio.fail_after(seconds):
            while True:
                fresh = await self.sandbox.records()
                self.records += fresh
                for record in fresh:
                    if wanted(record):
                        return record

    async def seen(self, run: str, kind: str, seconds: float = PATIENCE, **fields: Any) -> dict[str, Any]:
        """The run's first record of this kind (with these fields)."""

        def wanted(record: dict[str, Any]) -> bool:
            return (
                record["t"] == kind
                and record.get("run") == run
                and all(record.get(name) == value for name, value in fields.items())
            )

        return await self.take(wanted, seconds)

    async def printed(self, run: str, text: str, seconds: float = PATIENCE) -> None:
        """Until this text is in the run's output."""
        with trio.fail_after(seconds):
            while text not in self.text(run):
                self.records += await self.sandbox.records()

    async def ended(self, run: str, seconds: float = PATIENCE) -> dict[str, Any]:
        return await self.seen(run, "ended", seconds)

    async def run(self, kind: str, code: str, seconds: float = PATIENCE) -> tuple[dict[str, Any], str]:
        """Execute, wait for the end; the `ended` record and all text."""
        run = await self.begin(kind, code)
        return await self.ended(run, seconds), self.text(run)

    async def begin(self, kind: str, code: str) -> str:
        self._count += 1
        run = f"run-{self._count}"
        assert await self.sandbox.execute(run, kind, code) in ("running", "ended")
        return run

    def of(self, run: str, kind: str | None = None) -> list[dict[str, Any]]:
        return [r for r in self.records if r.get("run") == run and kind in (None, r["t"])]

    def text(self, run: str, stream: str | None = None) -> str:
        return "".join(r["text"] for r in self.of(run, "out") if stream in (None, r["stream"]))


def config_of(tmp_path: Path, mode: str = "process", **settings: Any) -> SandboxConfig:
    settings.setdefault("orphan_seconds", 60.0)
    return SandboxConfig(tmp_path / "sandboxes", tmp_path / "workspaces", isolation=mode, **settings)


def with_argument(word: str) -> list[int]:
    """Processes on this machine that have the whole word in their command line, this one aside."""
    found = []
    whole = re.compile(rf"\b{word}\b")
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        line = process.info["cmdline"] or []
        if (
            process.info["pid"] != os.getpid()
            and any(whole.search(part) for part in line)
            and process.info["status"] != "zombie"
        ):
            found.append(process.info["pid"])
    return found
