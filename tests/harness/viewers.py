"""Viewers that follow a notebook for as long as it takes, through any death of who serves them."""

from __future__ import annotations

import json
import random
import threading
import time

import httpx

from tests.harness.house import TOKEN
from tests.harness.promises import Seen


class Viewer(threading.Thread):
    """Follows from `after` on; cut off, it says which frame it has, as browsers do. `pause`: how slowly it reads."""

    def __init__(self, url: str, notebook_id: str, name: str, after: int = 0, pause: float = 0.0) -> None:
        super().__init__(name=name, daemon=True)
        self.seen = Seen(name, after)
        self.seq = after
        self.moved = threading.Condition()
        self._url = f"{url}/api/v1/notebooks/{notebook_id}/frames"
        self._pause = pause
        self._over = False

    def run(self) -> None:
        with httpx.Client(headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False, timeout=10) as client:
            while not self._over:
                try:
                    self._follow(client)
                except (httpx.HTTPError, OSError):
                    time.sleep(0.1)

    def _follow(self, client: httpx.Client) -> None:
        headers = {"Last-Event-ID": str(self.seq)}
        with client.stream("GET", self._url, headers=headers) as answer:
            if answer.status_code != 200:
                time.sleep(0.2)
                return
            event = ""
            for line in answer.iter_lines():
                if self._over:
                    return
                if line.startswith("event: "):
                    event = line[7:]
                elif line.startswith("data: ") and event in ("frame", "reset"):
                    self._take(event, json.loads(line[6:]))

    def _take(self, event: str, data: dict) -> None:  # type: ignore[type-arg]
        with self.moved:
            if event == "reset":
                self.seen.resets.append(data["seq"])
            else:
                self.seen.frames.append(data)
            self.seq = data["seq"]
            self.moved.notify_all()
        if self._pause:
            time.sleep(self._pause)

    def wait(self, kind: str, chance: random.Random, seconds: float) -> bool:
        """Until a frame of this kind comes that was not there before (and perhaps a moment longer)."""
        with self.moved:
            known = len(self.seen.frames)

            def came() -> bool:
                return any(frame["kind"] == kind for frame in self.seen.frames[known:])

            found = self.moved.wait_for(came, seconds)
        if found and chance.random() < 0.5:
            time.sleep(chance.random() * 0.1)
        return found

    def finish(self, head: int, seconds: float) -> None:
        """Ends it once it has `head`, or when that takes too long."""
        self._pause = 0.0
        with self.moved:
            self.moved.wait_for(lambda: self.seq >= head, seconds)
        self._over = True
