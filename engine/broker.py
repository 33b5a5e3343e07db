"""The broker: between a call that a turn wants made and the person who may say no. Silence is no.

The `ask` row decides, the `verdict` frame reports. The broker writes the rows of a round's asks side by side, lets each
have its time, tells every verdict in exactly one frame, and hands it to the turn that waits for it. It decides only by
silence: the time ran out, nobody is there who could answer, or the turn was stopped. What it keeps in memory is only a
shortcut: after a crash all of it is read from the rows again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import trio

from engine.asks import Asker, BrokerConfig, Place, Round, Verdict, Wanted, digest, silences, telling, verdict_of
from engine.frames import Draft
from engine.notebook import Notebook
from engine.store import asks as store
from engine.store.asks import Ask
from engine.store.steps import Row

__all__ = ["Asker", "Broker", "BrokerConfig", "Host", "Parked", "Verdict", "Wanted", "digest"]

T = TypeVar("T")


class Host(Protocol):
    """What the session lends to its broker."""

    @property
    def notebook(self) -> Notebook:
        """As it stands now."""

    async def step(self, decide: Callable[[Notebook], tuple[Sequence[Draft], Sequence[Row]]]) -> None:
        """Commits what `decide` makes of the notebook as it is at that moment, in one step, and folds it."""

    async def query(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """`await function(pool, *args)` on the store's loop; waits, and asks again, while the database is away."""


class Parked(Exception):
    """A person put the ask off: the turn yields its worker, and goes on when its run is not parked any more."""


@dataclass(slots=True)
class _Call:
    """A call of a turn that runs here, and whoever waits for its verdict."""

    run_id: str
    ask: str | None = None
    verdict: Verdict | None = None
    parked: bool = False
    changed: trio.Event = field(default_factory=trio.Event)

    def take(self, place: Place) -> None:
        self.ask, self.verdict, self.parked = place.ask, place.verdict, place.parked
        changed, self.changed = self.changed, trio.Event()
        changed.set()


class Broker:
    """The asks of one awake notebook. `run` serves until cancelled; the session starts it before any turn."""

    def __init__(self, host: Host, config: BrokerConfig) -> None:
        self._host = host
        self._config = config
        self._calls: dict[str, _Call] = {}
        self._lock = trio.Lock()  # one hand at the rows: none is told twice, none is missed by "the last one"
        self._wake = trio.Event()
        self._alone_since = trio.current_time()  # the latest of: engine resumed, operator seen
        self._deserted: set[str] = set()

    # For the turn

    async def decide(self, turn: Asker, wanted: Sequence[Wanted]) -> None:
        """Registers the calls of one round, in order; their asks stand side by side from now on.

        Known calls keep the ask they have: open, it goes on with its time; decided, its verdict stands. Asked again
        (`again` says why) is what changed since, what was approved too long ago, and what was used already.
        """
        async with self._lock:
            notebook = self._host.notebook
            self._calls = {key: call for key, call in self._calls.items() if call.run_id in notebook.runs}
            run = notebook.runs.get(turn.run_id)
            run_ids = [turn.run_id] if run is None or run.follows is None else [turn.run_id, run.follows]
            known = await self._host.query(store.of_runs, notebook.id, run_ids)
            round_ = Round(self._config, notebook, turn, known)
            for one in wanted:
                self._calls.setdefault(one.call.id, _Call(turn.run_id)).take(round_.place(one))
            if round_.outdated:
                await self._host.query(store.withdraw, notebook.id, round_.outdated, "changed")
            if round_.drafts:
                await self._host.step(lambda _: (round_.drafts, round_.rows))
            for ask_id in round_.approved:
                by = "owner" if run is None or run.by is None else run.by
                await self._host.query(store.decide, ask_id, "approve", "once", None, by)
        self.poke()

    async def verdict(self, call_id: str) -> Verdict:
        """Waits until the call is decided. Raises `Parked` when a person put it off."""
        call = self._calls[call_id]
        while call.verdict is None:
            if call.parked:
                raise Parked
            await call.changed.wait()
        return call.verdict

    async def confirm(self, turn: Asker, wanted: Wanted) -> bool:
        """Just before a call begins: whether its approval counts for exactly this, now.

        If not (what it points at changed, the approval is too old, the policy was tightened) it was asked again:
        `verdict` waits for the new answer.
        """
        await self.decide(turn, [wanted])
        verdict = self._calls[wanted.call.id].verdict
        return verdict is not None and verdict.approved

    async def cancel(self, run_id: str) -> None:
        """The turn is being stopped: its open asks are denied, and told of, before this returns."""
        async with self._lock:
            asks = await self._host.query(store.untold, self._host.notebook.id)
            mine = [ask.id for ask in asks if ask.open and ask.run_id == run_id]
            if mine:
                await self._host.query(store.withdraw, self._host.notebook.id, mine, "cancelled")
                await self._tell(await self._host.query(store.untold, self._host.notebook.id))

    # For the session

    def poke(self) -> None:
        """Asks may have changed, or a run."""
        self._wake.set()

    async def run(self) -> None:
        """Decides by silence and tells verdicts, as long as the notebook is awake."""
        while True:
            self._wake = trio.Event()
            seconds = await self._look()
            with trio.move_on_after(seconds):
                await self._wake.wait()

    async def _look(self) -> float:
        """Decides what silence decides now, tells what was decided; returns after how long to look again."""
        async with self._lock:
            notebook = self._host.notebook
            asks = await self._host.query(store.untold, notebook.id)
            self._deserted.intersection_update(notebook.runs)
            watching = self._deserted or any(ask.open and not ask.parked for ask in asks)
            now = trio.current_time()
            present = bool(watching) and await self._host.query(store.present, notebook.id)
            if present:
                self._alone_since = now
                self._deserted.clear()
            found = silences(
                asks,
                alive=lambda run_id: run_id in notebook.runs and notebook.runs[run_id].state != "cancelling",
                present=present,
                alone=now - self._alone_since,
                deserted=self._deserted,
                grace=self._config.operator_grace,
            )
            if found.timeout:
                await self._host.query(store.time_out, notebook.id, found.timeout)
            if found.no_operator:
                await self._host.query(store.give_up, notebook.id, found.no_operator)
            if found.cancelled:
                await self._host.query(store.withdraw, notebook.id, found.cancelled, "cancelled")
            if found.timeout or found.no_operator or found.cancelled:
                asks = await self._host.query(store.untold, notebook.id)
            await self._tell(asks)
            # Of presence no hint tells; of all else one does, and the supervisor stands behind it.
            return max(0.01, min(found.next, self._config.look if watching else math.inf))

    async def _tell(self, asks: Sequence[Ask]) -> None:
        """Each verdict in one frame, in the step that marks it as told, and then to the turn that waits for it."""
        if asks:
            await self._host.step(lambda notebook: telling(notebook, asks))
        for ask in asks:
            call = self._calls.get(ask.call_id)
            waits = call is not None and call.ask == ask.id
            if ask.open:
                if call is not None and waits and ask.parked != call.parked:
                    call.take(Place(ask.id, parked=ask.parked))
                continue
            if ask.reason == "no_operator":
                self._deserted.add(ask.run_id)
            if call is not None and waits:
                call.take(Place(ask.id, verdict_of(ask, self._config)))
