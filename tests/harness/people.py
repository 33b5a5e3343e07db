"""People who ask for things and answer questions, and try again when nobody is there to hear them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx

from tests.harness.house import TOKEN
from tests.harness.viewers import Viewer

PATIENCE = 240.0  # a busy machine is no reason to give up


class Hand:
    """Asks by HTTP. An answer that never came is asked for again, under the same id."""

    def __init__(self, url: str) -> None:
        self.client = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False, timeout=5
        )

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """The answer of a server that lives. Repeating is for what has an id of its own."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                answer = self.client.request(method, f"/api/v1/{path}", json=body)
                if answer.status_code < 500 or time.monotonic() > deadline:
                    return answer
            except (httpx.HTTPError, OSError):
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def command(self, notebook_id: str, name: str, kind: str, **fields: Any) -> None:
        answer = self.ask("POST", f"notebooks/{notebook_id}/commands", {"id": name, "kind": kind} | fields)
        assert answer.status_code == 202, answer.text

    def close(self) -> None:
        self.client.close()


class Operator(threading.Thread):
    """Answers every ask and every program that wants a line, a little later, now and then with no."""

    def __init__(self, url: str, chance: random.Random, viewers: Callable[[], dict[str, Viewer]]) -> None:
        super().__init__(name="operator", daemon=True)
        self.approved: set[str] = set()
        self._hand = Hand(url)
        self._chance = chance
        self._viewers = viewers
        self._answered: set[tuple[str, str]] = set()
        self._over = False
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._over:
                self._decide()
                self._type()
                time.sleep(0.15)
        except BaseException as error:
            self.failed = error
        finally:
            self._hand.close()

    def _decide(self) -> None:
        for ask in self._hand.ask("GET", "asks").json():
            if self._over:
                return
            say = "approve" if ask["id"] in self.approved or self._chance.random() < 0.85 else "deny"
            if say == "approve":
                self.approved.add(ask["id"])  # before: the answer may be lost, and counts all the same
            answer = self._hand.ask("POST", f"asks/{ask['id']}", {"verdict": say})
            assert answer.status_code in (200, 409), answer.text

    def _type(self) -> None:
        for notebook_id, viewer in self._viewers().items():
            for frame in list(viewer.seen.frames):
                body = frame["body"]
                name = f"answer-{frame['run_id']}-{body.get('input')}"
                if frame["kind"] == "input" and body["event"] == "asked" and (notebook_id, name) not in self._answered:
                    self._answered.add((notebook_id, name))
                    line = {"run_id": frame["run_id"], "input": body["input"], "text": "Ada"}
                    self._hand.command(notebook_id, name, "input", **line)

    def finish(self) -> None:
        self._over = True
        self.join(PATIENCE)
