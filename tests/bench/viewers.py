"""A thousand viewers of one busy notebook, one in ten of which reads nothing: `python -m tests.bench.viewers`.

`web` and `worker` are two processes, as in a Procfile; the viewers are a third, on real connections. The engine's steps
are timed in the worker without viewers, with them, and without them again. The viewers' own work is no part of the
server, but on a small machine it takes its processors: so the second half of the time they run at the lowest priority,
and the figure is told for both halves.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from e2e.api import Api, Notebook
from e2e.server import Server
from e2e.waiting import pass_time
from engine.store import embedded
from tests.bench import timed
from tests.bench.report import Figure, percentile

READERS, STALLED = 1000, 100
ALONE, WATCHED = 15.0, 60.0  # seconds without and with viewers
BUSY = "import time\nwhile True:\n    print(time.time_ns(), 'and more ' * 50, flush=True)\n    time.sleep(0.02)\n"
TOKEN = "a-token-for-benchmarks-only"

Value = TypeVar("Value")


@dataclass(frozen=True)
class Span:
    """A time in which something was measured: ns, and the processor seconds that web and worker took in it."""

    began: int
    ended: int
    web: float
    worker: float

    @property
    def seconds(self) -> float:
        return (self.ended - self.began) / 1e9


class Stage:
    """The processes, and the notebook that prints."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.database = embedded.start(data)
        self.web = Server(data, "web", TOKEN=TOKEN)
        self.worker = Server(data, "worker", launch=("-m", "tests.bench.timed"), TOKEN=TOKEN)
        for server in (self.web, self.worker):
            server.launch()
        for server in (self.web, self.worker):
            server.wait_ready()
        self.api = Api(self.web.url, TOKEN)

    def busy(self) -> Notebook:
        """A notebook whose one cell prints the time without end."""
        notebook = self.api.notebook(("python", BUSY))
        notebook.run(notebook.cells[0])
        notebook.wait(notebook.cells[0], "running")
        return notebook

    def span(self, seconds: float, why: str) -> Span:
        """Lets time pass."""
        return self.during(lambda: pass_time(seconds, why))[1]

    def during(self, work: Callable[[], Value]) -> tuple[Value, Span]:
        """What `work` gives, and the time it took."""
        began, web, worker = time.time_ns(), _cpu(self.web.pid), _cpu(self.worker.pid)
        value = work()
        return value, Span(began, time.time_ns(), _cpu(self.web.pid) - web, _cpu(self.worker.pid) - worker)

    def steps(self, *spans: Span) -> list[float]:
        """How long (ms) the steps took that began in one of these times."""
        noted = timed.steps(self.data)
        return [took for at, took in noted if any(span.began <= at < span.ended for span in spans)]

    def close(self) -> None:
        self.api.close()
        self.web.stop_all()
        self.database.release()


def _cpu(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def _held(port: int) -> int:
    """Bytes that the system holds for all who are connected to `port` and do not take them."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(line[4].partition(":")[0], 16) for line in lines if line[1].endswith(f":{port:04X}"))


def figures(stage: Stage) -> Iterator[Figure]:
    """All figures; takes two minutes."""
    notebook = stage.busy()
    pass_time(5, "the engine and its kernel are warm")
    before = stage.span(ALONE, "nobody looks")
    small = stage.web.resident()
    arguments = [str(stage.web.port), TOKEN, notebook.id, str(notebook.head()), str(READERS), str(STALLED)]
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.crowd", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as crowd:
        try:
            assert crowd.stdin is not None
            assert crowd.stdout is not None
            began = time.perf_counter()
            assert crowd.stdout.readline() == "ready\n"
            opened = time.perf_counter() - began
            pass_time(2, "all have come")
            first = stage.web.resident()
            usual = stage.span(WATCHED / 2, "all look")
            half = stage.web.resident()
            os.setpriority(os.PRIO_PROCESS, crowd.pid, 19)
            humble = stage.span(WATCHED / 2, "all look, and leave the processors to the server")
            last, held = stage.web.resident(), _held(stage.web.port)
            print(notebook.head(), file=crowd.stdin, flush=True)
            seen = json.loads(crowd.stdout.readline())
            most = max(half, last, stage.web.resident())
        finally:
            crowd.kill()
    pass_time(2, "all have gone")
    after = stage.span(ALONE, "nobody looks again")
    alone = stage.steps(before, after)
    yield Figure(
        f"{READERS} viewers, {STALLED} of them stalled: got each frame once", seen["whole"], "", f"= {READERS}"
    )
    yield Figure("they: all streams stand", opened, "s")
    yield Figure("they: streams that the server ended", seen["cut"], "")
    for share, name, wanted in ((0.5, "p50", ""), (0.99, "p99", "<= 2 x raw")):
        raw = percentile(alone, share)
        for span, who in ((usual, "with them"), (humble, "with them at the lowest priority")):
            took = percentile(stage.steps(span), share)
            yield Figure(f"an engine's step {who}, {name}", took, "ms", wanted, raw, "without viewers")
    yield Figure("they: print to viewer, p50", percentile(seen["delays"], 0.5), "ms")
    yield Figure("they: print to viewer, p99", percentile(seen["delays"], 0.99), "ms")
    yield Figure("they: processor that web takes", 100 * (usual.web + humble.web) / WATCHED, "%")
    yield Figure("they: processor that they take themselves", 100 * seen["cpu"] / WATCHED, "%")
    yield Figure(
        "they: processor that the worker takes",
        100 * (usual.worker + humble.worker) / WATCHED,
        "%",
        "",
        100 * (before.worker + after.worker) / 2 / ALONE,
        "without viewers",
    )
    yield Figure("web grew as they came", (first - small) / 2**20, "MiB")
    yield Figure(f"web grew in the {WATCHED:.0f} s that they looked", (last - first) / 2**20, "MiB")
    yield Figure("web grew at most", (most - small) / 2**20, "MiB")
    yield Figure("the system holds for those that stalled", held / 2**20, "MiB")
    yield Figure("load of the machine, one minute", os.getloadavg()[0], "")


def main(measured: Callable[[Stage], Iterator[Figure]] = figures) -> None:
    """Prints the figures, or others that are `measured` on such a stage."""
    with tempfile.TemporaryDirectory(prefix="nightbook-bench-") as folder:
        stage = Stage(Path(folder) / "data")
        try:
            for figure in measured(stage):
                print(figure.line(), flush=True)
        finally:
            stage.close()


if __name__ == "__main__":
    main()
