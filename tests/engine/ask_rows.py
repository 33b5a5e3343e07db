"""A broker's house without a store, so that minutes of silence pass on a virtual clock: rows in memory, trio's time.

What the rows do under concurrency, and by PostgreSQL's clock, the tests of the store say.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import trio

from engine.agent.calls import Call, Description
from engine.asks import Asker, Wanted, digest
from engine.broker import Broker, BrokerConfig
from engine.frames import Draft, Frame, draft
from engine.notebook import Notebook, apply, fold
from engine.store.asks import Ask
from engine.store.steps import Row
from tests.engine.frames_made import numbered

TURN = Asker("r", "c")


@dataclass
class House:
    """A notebook in which a turn runs, and a broker for it. `present`: somebody is there who may decide."""

    notebook: Notebook = field(default_factory=lambda: Notebook("n"))
    asks: dict[str, Ask] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    present: bool = True
    config: BrokerConfig = field(default_factory=BrokerConfig)

    def __post_init__(self) -> None:
        self.fold(
            draft("session", event="created", title="t"),
            draft("cell", event="added", cell_id="c", kind="agent", source="do it"),
            draft("run", event="queued", run_id="r", cell_id="c", by="owner"),
            draft("run", event="started", run_id="r", cell_id="c"),
        )
        self.broker = Broker(self, self.config)

    def fold(self, *drafts: Draft) -> None:
        made = numbered(drafts, self.notebook.seq + 1)
        self.frames += made
        self.notebook = fold(self.notebook, made)

    async def restart(self, nursery: trio.Nursery) -> None:
        """Another engine takes the notebook up."""
        nursery.cancel_scope.cancel()
        fresh = Notebook("n")
        for frame in self.frames:
            fresh = apply(fresh, frame)
        self.notebook = fresh
        self.broker = Broker(self, self.config)

    # What a session lends

    async def step(self, decide: Callable[[Notebook], tuple[Sequence[Draft], Sequence[Row]]]) -> None:
        await trio.lowlevel.checkpoint()
        drafts, rows = decide(self.notebook)
        self.fold(*drafts)
        for row in rows:
            values = row.fields
            if row.table == "ask":
                self.asks[values["id"]] = self._made(values)
            elif row.table == "ask_changed":
                ask = self.asks[values["id"]]
                self.asks[ask.id] = replace(
                    ask, told=ask.told or values.get("told", False), used=ask.used or values.get("used", False)
                )

    async def query(self, function: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return getattr(self, f"_{function.__name__}")(*args)

    # The rows, as `engine/store/asks.py` has them

    def _made(self, values: dict[str, Any]) -> Ask:
        now = _now()
        return Ask(
            "n", values["id"], values["cell_id"], values["run_id"], values["call_id"], values["digest"],
            values["body"], now, now + timedelta(seconds=values["due_seconds"]), False,
            None, None, None, None, None, None, False, False, 0, 0, None,
        )  # fmt: skip

    def _read(self, chosen: Callable[[Ask], bool]) -> list[Ask]:
        now = _now()
        return [
            replace(
                ask,
                age=(now - ask.asked_at).total_seconds(),
                left=(ask.due_at - now).total_seconds(),
                since=None if ask.decided_at is None else (now - ask.decided_at).total_seconds(),
            )
            for ask in self.asks.values()
            if chosen(ask)
        ]

    def _untold(self, _: str) -> list[Ask]:
        return self._read(lambda ask: not ask.told)

    def _of_runs(self, _: str, run_ids: Sequence[str]) -> list[Ask]:
        return self._read(lambda ask: ask.run_id in run_ids)

    def _present(self, _: str) -> bool:
        return self.present

    def _deny(self, ids: Sequence[str], reason: str, chosen: Callable[[Ask], bool]) -> None:
        for ask_id in ids:
            ask = self.asks[ask_id]
            if ask.open and chosen(ask):
                self.asks[ask_id] = replace(ask, verdict="deny", reason=reason, decided_at=_now())

    def _time_out(self, _: str, ids: Sequence[str]) -> None:
        self._deny(ids, "timeout", lambda ask: ask.due_at <= _now())

    def _give_up(self, _: str, ids: Sequence[str]) -> None:
        self._deny(ids, "no_operator", lambda ask: ask.due_at > _now() and not self.present)

    def _withdraw(self, _: str, ids: Sequence[str], reason: str) -> None:
        self._deny(ids, reason, lambda _: True)

    def _decide(self, ask_id: str, verdict: str, scope: str | None, message: str | None, by: str) -> Ask | None:
        ask = self.asks[ask_id]
        if not ask.open or ask.due_at <= _now():
            return None
        self.asks[ask_id] = made = replace(
            ask, verdict=verdict, reason="person", scope=scope, message=message, by=by, decided_at=_now()
        )
        return made

    # For tests

    def answer(self, verdict: str, *, ask: str | None = None, scope: str = "once", message: str | None = None) -> bool:
        """A person answers the newest open ask, or this one, as the API does; whether it counted."""
        ask_id = ask or [known.id for known in self.asks.values() if known.open][-1]
        made = self._decide(ask_id, verdict, scope if verdict == "approve" else None, message, "ada")
        self.broker.poke()
        return made is not None

    def park(self) -> None:
        for ask in self.asks.values():
            if ask.open:
                self.asks[ask.id] = replace(ask, parked=True, due_at=_now() + timedelta(hours=24))
        self.broker.poke()

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [frame.body for frame in self.frames if frame.kind == kind]

    def runs(self) -> list[str]:
        return [body["event"] for body in self.told("run")]


def _now() -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=trio.current_time())


def wanted(command: str = "touch made", call: str = "k1", *, facts: Sequence[str] = (), tool: str = "shell") -> Wanted:
    """A call that needs an ask under the policy `ask`."""
    return Wanted(
        Call(call, tool, {"command": command}, why="because"),
        Description(title=command, command=command, facts=facts, words=command.split()),
        "run",
        digest(tool, {"command": command}, ".", facts),
    )
