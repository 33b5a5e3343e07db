"""Two hundred pages of one busy notebook that all come back within a second: `python -m tests.bench.returns`.

Once behind a cut link, where each goes on from what it has, and once behind a kill -9 of `web`, where each loads anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from e2e.waiting import pass_time
from tests.bench.report import Figure, percentile
from tests.bench.viewers import TOKEN, Stage, main

TABS = 200
AWAY = 3.0  # seconds without a link
CALM = 6.0


class Pages:
    """The process of the pages."""

    def __init__(self, url: str, notebook_id: str) -> None:
        command = [sys.executable, "-m", "tests.bench.tabs", url, TOKEN, notebook_id, str(TABS)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, command: str) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(command, file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        assert not answer["wrong"], answer["wrong"]
        return answer["answer"]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def figures(stage: Stage) -> Iterator[Figure]:
    """All figures; takes a minute."""
    notebook = stage.busy()
    pass_time(5, "the engine and its kernel are warm")
    alone = stage.span(CALM, "nobody looks")
    empty = stage.web.resident()
    pages = Pages(stage.web.url, notebook.id)
    try:
        pages.do("open")
        opened = stage.web.resident()
        calm = stage.span(CALM, "all look")
        pages.do("cut")
        pass_time(AWAY, "no link")
        back, storm = stage.during(lambda: pages.do("back"))
        whole = pages.do(f"check {notebook.head()}")
        after = stage.web.resident()
        stage.web.kill()
        pages.do("cut")
        stage.web.start()
        again, _ = stage.during(lambda: pages.do("reload"))
        whole = min(whole, pages.do(f"check {notebook.head()}"))
        anew = stage.web.resident()
    finally:
        pages.close()
    yield Figure(f"{TABS} pages come back in one second: with every frame once", whole, "", f"= {TABS}")
    for took, name in ((back, "behind a cut link"), (again, "behind kill -9 of web, loaded anew")):
        yield Figure(f"they, {name}: caught up, p50", percentile(took, 0.5), "s")
        yield Figure(f"they, {name}: all caught up", max(took), "s")
    raw = percentile(stage.steps(alone), 0.99)
    for span, name in ((calm, "while they look"), (storm, "while they come back")):
        yield Figure(
            f"an engine's step {name}, p99", percentile(stage.steps(span), 0.99), "ms", "", raw, "nobody looks"
        )
    yield Figure("web grew by a page", (opened - empty) / TABS / 1024, "KiB", "under 1024")
    yield Figure("web grew as they came back", (after - opened) / 2**20, "MiB")
    yield Figure("web anew, with all of them", anew / 2**20, "MiB")
    yield Figure("load of the machine, one minute", os.getloadavg()[0], "")


if __name__ == "__main__":
    main(figures)
