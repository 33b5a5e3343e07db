"""A program that talks over pipes for as long as one connection stands: a tool server inside the sandbox.

It is isolated as a shell cell is, in a place of its own, and counted in the same limits. The shim hands the other
ends of its pipes to the engine and reads none of them; when the engine's connection closes, all that it started ends.
"""

import contextlib
import os
from typing import TYPE_CHECKING

from engine.sandbox.isolation import Place
from engine.sandbox.loop import Loop
from engine.sandbox.processes import Process, Tree
from engine.sandbox.spawn import ending, spawn

if TYPE_CHECKING:
    from engine.sandbox.peer import Peer


class Served:
    """Runs at once; raises `OSError` when it cannot be started. `fds`: its stdin, stdout and stderr, for the engine."""

    def __init__(
        self, place: Place, loop: Loop, mark: str, program: list[str], environment: dict[str, str], peer: "Peer"
    ) -> None:
        self._loop = loop
        self._peer = peer
        self._why: str | None = None
        self.over = False
        pipes = [os.pipe() for _ in range(3)]
        ends = [pipes[0][0], pipes[1][1], pipes[2][1]]
        self.fds = [pipes[0][1], pipes[1][0], pipes[2][0]]
        try:
            self.tree: Tree = spawn(
                place, program, mark, stdin=ends[0], stdout=ends[1], stderr=ends[2], leader=True,
                environment={**_caches(place), **environment},
            )  # fmt: skip
        except BaseException:
            self.let_go()
            raise
        finally:
            for fd in ends:
                os.close(fd)

    def let_go(self) -> None:
        """The engine has its ends: the shim keeps none."""
        for fd in self.fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        self.fds = []

    # Told by the shim.

    def died(self, status: int) -> None:
        """The program has ended: end what it left behind, and say how it went."""
        self.over = True
        code, reason = ending(status)
        self._peer.tell({"ended": {"exit": code, "reason": self._why or reason}})
        self.kill()

    def limit(self, reason: str) -> None:
        self._why = self._why or reason
        self.kill()

    def pause(self, paused: bool) -> None:
        """Nothing of it goes through the spool."""

    def members(self, processes: dict[int, Process]) -> list[Process]:
        return self.tree.members(processes)

    def kill(self) -> None:
        """Until none is left."""
        if not self.tree.destroy():
            self._loop.after(0.05, self.kill)


def _caches(place: Place) -> dict[str, str]:
    """Where package runners keep what they load: in the sandbox's own temporary folder, not among the files."""
    temporary = place.environment()["TMPDIR"]
    return {
        "npm_config_cache": f"{temporary}/.npm", "npm_config_update_notifier": "false",
        "UV_CACHE_DIR": f"{temporary}/.uv", "PYTHONUNBUFFERED": "1",
    }  # fmt: skip
