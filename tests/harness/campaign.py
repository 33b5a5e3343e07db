"""Some stories at once in one house, with troubles at moments drawn by the first of their seeds."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.harness.house import House
from tests.harness.people import Hand, Operator
from tests.harness.promises import Evidence, Violation, violations
from tests.harness.story import EFFECTS, STARTS, Story, story
from tests.harness.viewers import Viewer

END_SECONDS = 240.0
MOMENTS = ("time", "output", "run", "tool", "ask", "verdict", "input", "thought", "session")
SEEN = MOMENTS[1:]  # what is lost with a database was seen just before
POLICY_ALL = "all"


@dataclass
class Stage:
    """One story in its notebook."""

    story: Story
    notebook_id: str
    cells: list[str]
    viewers: list[Viewer]


class Campaign:
    """`kills` troubles over the stories of `seeds`, of lengths `size`, in a house that stands.

    With `calm`, troubles that cost another start of a process (a frozen worker) are left out.
    """

    def __init__(self, house: House, seeds: list[int], *, kills: int, size: int, calm: bool = False) -> None:
        self.seeds = seeds
        self.told: list[str] = []
        self._house = house
        self._kills = kills
        self._size = size
        self._calm = calm
        self._chance = random.Random(seeds[0])
        self._hand = Hand(house.web.url)
        self._stages: list[Stage] = []

    def run(self) -> list[Violation]:
        """All that went against a promise."""
        operator = Operator(self._house.web.url, random.Random(self.seeds[0] + 1), self._watched)
        try:
            self._stages = [self._set(story(seed, self._size)) for seed in self.seeds]
            operator.start()
            with ThreadPoolExecutor(len(self._stages) + 1) as pool:
                playing = [pool.submit(self._play, stage) for stage in self._stages]
                pool.submit(self._make_trouble).result()
                for played in playing:
                    played.result()
            late = self._wait_for_the_end()
            self._house.assert_alive()
            operator.finish()
            assert operator.failed is None, operator.failed
            return late + [one for stage in self._stages for one in violations(self._gather(stage, operator.approved))]
        finally:
            operator.finish()
            for stage in self._stages:
                for viewer in stage.viewers:
                    viewer.finish(0, 0)
            self._hand.close()

    def _watched(self) -> dict[str, Viewer]:
        return {stage.notebook_id: stage.viewers[0] for stage in self._stages}

    def _set(self, one: Story) -> Stage:
        cells = [{"kind": kind, "source": source} for kind, source in one.cells]
        answer = self._hand.ask("POST", "notebooks", {"title": f"Seed {one.seed}", "cells": cells})
        assert answer.status_code == 201, answer.text
        made = answer.json()
        stage = Stage(one, made["id"], [cell["id"] for cell in made["cells"]], [])
        self._view(stage, "the first viewer")
        self._view(stage, "a slow viewer", pause=0.01)
        if one.free:
            self._hand.command(stage.notebook_id, "policy", "set_policy", policy=POLICY_ALL)
        return stage

    def _view(self, stage: Stage, name: str, after: int = 0, pause: float = 0.0) -> None:
        viewer = Viewer(self._house.web.url, stage.notebook_id, f"seed {stage.story.seed}, {name}", after, pause)
        stage.viewers.append(viewer)
        viewer.start()

    def _play(self, stage: Stage) -> None:
        hand = Hand(self._house.web.url)
        try:
            for number, (pause, kind, place, text) in enumerate(stage.story.deeds):
                time.sleep(pause)
                fields: dict[str, Any] = {"text": text} if text else {}
                hand.command(stage.notebook_id, f"deed-{number}", kind, cell_id=stage.cells[place], **fields)
        finally:
            hand.close()

    # Trouble

    def _make_trouble(self) -> None:
        kinds = ["worker", "web", "database"] if self._house.apart else ["web", "database"]
        chance = self._chance
        wanted = chance.sample(kinds, len(kinds))
        if not self._calm:  # each once besides what chance gives: what is broken shows where just that death meets it
            if self._house.apart:
                wanted.append("freeze")
                kinds += ["worker", "all", "freeze"]
            wanted += chance.choices(kinds, k=self._kills - len(wanted))
            chance.shuffle(wanted)
        for trouble in wanted[: self._kills]:
            stage = chance.choice(self._stages)
            moment = chance.choice(MOMENTS if trouble != "database" else SEEN)
            if moment == "time":
                time.sleep(chance.uniform(0.0, 1.0))
            else:
                stage.viewers[0].wait(moment, chance, 1.5)
            self._late_viewer(stage)
            dead = chance.choice([0.0, 0.2, 0.8])
            self.told.append(f"{trouble} at {moment}, {dead} s")
            match trouble:
                case "worker":
                    self._house.kill(self._house.workers[0], dead)
                case "web":
                    self._house.kill(self._house.web, dead)
                case "database":
                    self._house.kill_database(dead)
                case "all":
                    self._house.kill_all(dead)
                case "freeze":
                    self._house.freeze(dead + 0.3)

    def _late_viewer(self, stage: Stage) -> None:
        """Somebody who comes just before, and begins in the middle."""
        after = self._chance.randint(0, stage.viewers[0].seq)
        self._view(stage, f"viewer {len(stage.viewers)}", after)

    # The end

    def _wait_for_the_end(self) -> list[Violation]:
        deadline = time.monotonic() + END_SECONDS
        ids = [stage.notebook_id for stage in self._stages]
        while True:
            open_runs = self._house.sql(
                """
                SELECT notebook_id, run_id FROM frame WHERE notebook_id = ANY($1::text[]) AND kind = 'run'
                GROUP BY notebook_id, run_id HAVING bool_and(body->>'event' <> 'ended')
                """,
                ids,
            )
            waiting = self._house.sql(
                "SELECT notebook_id, id FROM command WHERE notebook_id = ANY($1::text[]) AND NOT consumed", ids
            )
            if not open_runs and not waiting:
                return []
            if time.monotonic() > deadline:
                for key in {row["notebook_id"] for row in (*open_runs, *waiting)}:
                    self.told += [str(frame)[:400] for frame in self._house.journal(key)[-25:]]
                return [Violation(8, f"not over after {END_SECONDS:g} s: runs {open_runs}, commands {waiting}")]
            time.sleep(0.2)

    def _gather(self, stage: Stage, approved: set[str]) -> Evidence:
        key = stage.notebook_id
        [row] = self._house.sql("SELECT head FROM notebook WHERE id = $1", key)
        head = row["head"]
        for viewer in stage.viewers:
            viewer.finish(head, END_SECONDS)
            # An engine that falls asleep meanwhile has more to say: what is judged ends where this began.
            viewer.seen.frames = [frame for frame in viewer.seen.frames if frame["seq"] <= head]
        return Evidence(
            name=f"seed {stage.story.seed}, notebook {key}",
            head=head,
            frames=self._house.journal(key)[:head],
            viewers=[viewer.seen for viewer in stage.viewers],
            prints={stage.cells[place]: lines for place, lines in stage.story.prints.items()},
            starts=self._words(key, STARTS),
            effects=self._words(key, EFFECTS),
            asks=self._house.sql("SELECT id, call_id, verdict FROM ask WHERE notebook_id = $1", key),
            effect_rows=self._house.sql("SELECT call_id, class, settled_at FROM effect WHERE notebook_id = $1", key),
            approved=approved,
            free=stage.story.free,
        )

    def _words(self, notebook_id: str, name: str) -> list[str]:
        path = self._house.data / "workspaces" / notebook_id / name
        return path.read_text().split() if path.exists() else []
