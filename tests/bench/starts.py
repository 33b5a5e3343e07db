"""How long things take to start, and what they weigh: a kernel's first output, the server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import trio

from engine.sandbox.client import Sandbox, SandboxConfig
from tests.bench.report import Figure, percentile


async def kernel_first_output(folder: Path) -> list[float]:
    """Seconds from asking for a sandbox to the first output of a Python cell in it."""
    took = []
    for number in range(5):
        config = SandboxConfig(root=folder / "sandboxes", workspaces=folder / "workspaces")
        began = time.perf_counter()
        sandbox = await Sandbox.start(config, f"n{number}", 1)
        await sandbox.execute("r", "python", "print('x')")
        with trio.fail_after(30):
            while not any(record["t"] == "out" for record in await sandbox.records()):
                pass
        took.append(time.perf_counter() - began)
        await sandbox.shutdown()
        await sandbox.aclose()
    return took


async def stopped(folder: Path) -> list[float]:
    """Seconds from stop until the run has ended, for code that ends at once and for code that has to be killed."""
    config = SandboxConfig(root=folder / "sandboxes", workspaces=folder / "workspaces")
    sandbox = await Sandbox.start(config, "stop", 1)
    took = []
    for number, code in enumerate(("echo on; sleep 60", "trap '' INT TERM; echo on; while true; do sleep 1; done")):
        await sandbox.execute(f"r{number}", "shell", code)
        with trio.fail_after(30):
            while not any(record["t"] == "out" for record in await sandbox.records()):
                pass
            began = time.perf_counter()
            await sandbox.stop(f"r{number}")
            while not any(record["t"] == "ended" for record in await sandbox.records()):
                pass
        took.append(time.perf_counter() - began)
    await sandbox.shutdown()
    await sandbox.aclose()
    return took


def bare_ipython() -> float:
    """Seconds for a bare interpreter to import IPython's shell and print."""
    took = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", "from IPython.core.interactiveshell import InteractiveShell; print('x')"],
            check=True,
            stdout=subprocess.PIPE,
        )
        took.append(time.perf_counter() - began)
    return percentile(took, 0.5)


def server(folder: str) -> tuple[float, float]:
    """Starts `nightbook serve`: seconds until it says that it is ready, and its resident MiB then."""
    environment = {**os.environ, "NIGHTBOOK_DATA": folder, "NIGHTBOOK_PORT": "0"}
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli", "serve"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "is ready" in line:
                break
        took = time.perf_counter() - began
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
        assert found is not None
        return took, int(found[1]) / 1024
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def figures(folder: Path) -> list[Figure]:
    bare = await trio.to_thread.run_sync(bare_ipython)
    first = percentile(await kernel_first_output(folder), 0.5)
    at_once, killed = await stopped(folder)
    with tempfile.TemporaryDirectory(prefix="nightbook-bench-") as data:
        new, _ = await trio.to_thread.run_sync(server, data)
        again = [await trio.to_thread.run_sync(server, data) for _ in range(3)]
    return [
        Figure(
            "kernel start to first output, sandbox included",
            first,
            "s",
            "<= 1.0",
            bare,
            "python imports IPython's shell",
        ),
        Figure("stop pressed until the run has ended", at_once, "s", "<= 2"),
        Figure("stop pressed until a run that ignores signals has ended", killed, "s", "<= 2"),
        Figure("server ready, first start (makes its database)", new, "s"),
        Figure("server ready", percentile([took for took, _ in again], 0.5), "s", "< 4"),
        Figure("server resident after start, without PostgreSQL", max(size for _, size in again), "MiB", "< 180"),
    ]
