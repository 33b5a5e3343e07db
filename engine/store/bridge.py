"""The one way from trio into asyncio: runs a coroutine on another thread's loop and waits for it.

Cancelling the waiting trio task cancels the asyncio task and waits until that has cleaned up; only then does the
cancellation go on in trio. Nothing is left running behind the caller's back.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import outcome
import trio
import uvloop

T = TypeVar("T")


class Bridge:
    """An asyncio loop in a thread of its own (`name`), reachable from trio through `run`.

    `start` returns when the loop turns; `stop` cancels what is left on it and joins the thread.
    """

    def __init__(self, name: str) -> None:
        self._ready = threading.Event()
        self.loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(self._ready.set)
        try:
            self.loop.run_forever()
        finally:
            for task in (tasks := asyncio.all_tasks(self.loop)):
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.close()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    async def run(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """`await function(*args)` on the loop. Raises what it raises."""
        trio_task = trio.lowlevel.current_task()
        token = trio.lowlevel.current_trio_token()
        started: list[asyncio.Task[T]] = []
        raise_cancel: list[Callable[[], Any]] = []

        def done(task: asyncio.Task[T]) -> None:
            result: outcome.Outcome[T]
            if task.cancelled():
                result = outcome.Error(asyncio.CancelledError())
            elif (error := task.exception()) is not None:
                result = outcome.Error(error)
            else:
                result = outcome.Value(task.result())
            token.run_sync_soon(deliver, result)

        def deliver(result: outcome.Outcome[T]) -> None:
            if isinstance(result, outcome.Error) and isinstance(result.error, asyncio.CancelledError) and raise_cancel:
                result = outcome.capture(raise_cancel[0])
            trio.lowlevel.reschedule(trio_task, result)

        def begin() -> None:
            task = self.loop.create_task(function(*args))
            started.append(task)
            task.add_done_callback(done)

        def abort(raise_cancelled: Callable[[], Any]) -> trio.lowlevel.Abort:
            raise_cancel.append(raise_cancelled)
            self.loop.call_soon_threadsafe(lambda: started[0].cancel())
            return trio.lowlevel.Abort.FAILED

        self.loop.call_soon_threadsafe(begin)
        result: T = await trio.lowlevel.wait_task_rescheduled(abort)
        return result
