"""The shim's event loop: a selector and timers. asyncio would cost it more memory than all the rest together."""

import heapq
import selectors
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType


class Timer:
    """A call that is due at a time of `time.monotonic()`; `cancel()` may be called more than once."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self.when = when
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class Loop:
    """One thread, level-triggered. `on_signal` is called with each number that `watch_signals` was asked for."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._calls: dict[int, dict[int, Callable[[], None]]] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._count = 0
        self._running = True
        self._sockets: tuple[socket.socket, socket.socket] | None = None

    def watch_signals(self, numbers: set[signal.Signals], on_signal: Callable[[int], None]) -> None:
        inside, outside = socket.socketpair()
        inside.setblocking(False)
        outside.setblocking(False)
        self._sockets = (inside, outside)

        def nothing(_number: int, _frame: FrameType | None) -> None:
            """The wake-up byte does the work, in the loop and not in the middle of something."""

        def arrived() -> None:
            with suppress(BlockingIOError):
                for number in set(inside.recv(4096)):
                    on_signal(number)

        signal.set_wakeup_fd(outside.fileno(), warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, nothing)
        self.reader(inside.fileno(), arrived)

    def reader(self, fd: int, call: Callable[[], None] | None) -> None:
        """Call `call` while `fd` can be read; None forgets it."""
        self._set(fd, selectors.EVENT_READ, call)

    def writer(self, fd: int, call: Callable[[], None] | None) -> None:
        """Call `call` while `fd` can be written; None forgets it."""
        self._set(fd, selectors.EVENT_WRITE, call)

    def forget(self, fd: int) -> None:
        self._set(fd, selectors.EVENT_READ, None)
        self._set(fd, selectors.EVENT_WRITE, None)

    def _set(self, fd: int, event: int, call: Callable[[], None] | None) -> None:
        calls = self._calls.get(fd, {})
        before = sum(calls)
        if call is None:
            calls.pop(event, None)
        else:
            calls[event] = call
        after = sum(calls)
        if after:
            self._calls[fd] = calls
        else:
            self._calls.pop(fd, None)
        if before == after:
            return
        if not before:
            self._selector.register(fd, after)
        elif not after:
            self._selector.unregister(fd)
        else:
            self._selector.modify(fd, after)

    def at(self, when: float, call: Callable[[], None]) -> Timer:
        timer = Timer(when, call)
        self._count += 1
        heapq.heappush(self._timers, (when, self._count, timer))
        return timer

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        return self.at(time.monotonic() + seconds, call)

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        while self._running:
            self.turn()

    def turn(self) -> None:
        """Wait for the next thing and do all that is ready."""
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        wait = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
        for key, events in self._selector.select(wait):
            for event in (selectors.EVENT_READ, selectors.EVENT_WRITE):
                # Looked up again each time: an earlier call may have closed this one.
                call = self._calls.get(key.fd, {}).get(event) if events & event else None
                if call is not None:
                    call()
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            timer = heapq.heappop(self._timers)[2]
            if timer.call is not None:
                timer.call()
