"""The engine's side of a program that the sandbox serves over pipes: its three ends, and how it ended."""

import json
import os
import socket
from pathlib import Path
from typing import Any, Self

import trio

ANSWER_SECONDS = 20.0
_MESSAGE_BYTES = 64 * 1024


class SandboxError(Exception):
    """The sandbox refused a request or could not be started; the message says why."""


class Program:
    """`stdin`, `stdout` and `stderr` of a program that lives until `aclose`, or until it ends by itself."""

    def __init__(self, control: trio.socket.SocketType, fds: list[int]) -> None:
        self._control = control
        self.stdin, self.stdout, self.stderr = (trio.lowlevel.FdStream(fd) for fd in fds)

    @classmethod
    async def start(cls, folder: Path, request: dict[str, Any]) -> Self:
        """Asks the shim of `folder` for it. Raises `SandboxError`."""
        control = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        fds: list[int] = []
        try:
            with trio.fail_after(ANSWER_SECONDS):
                fd = os.open(folder, os.O_DIRECTORY)
                try:
                    await control.connect(f"/proc/self/fd/{fd}/shim.sock")
                finally:
                    os.close(fd)
                await _send(control, json.dumps(request).encode() + b"\n")
                told = b""
                while not told.endswith(b"\n"):
                    data, extra, _, _ = await control.recvmsg(_MESSAGE_BYTES, socket.CMSG_SPACE(3 * 4))
                    for level, kind, packed in extra:
                        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                            fds += memoryview(packed[: len(packed) - len(packed) % 4]).cast("i").tolist()
                    if not data:
                        raise SandboxError("the sandbox does not answer any more")
                    told += data
            answer = json.loads(told)
            if not answer.get("ok") or len(fds) != 3:
                raise SandboxError(str(answer.get("error", "the sandbox did not hand over the program")))
        except BaseException as error:
            control.close()
            for fd in fds:
                os.close(fd)
            if isinstance(error, OSError | trio.TooSlowError):
                raise SandboxError(f"the sandbox does not answer: {error or 'it took too long'}") from None
            raise
        for fd in fds:
            os.set_inheritable(fd, False)
        return cls(control, fds)

    async def ended(self) -> str:
        """Waits for its end; says how it went, in words."""
        told = b""
        try:
            while not told.endswith(b"\n") and (data := await self._control.recv(_MESSAGE_BYTES)):
                told += data
            reason: str | None = json.loads(told)["ended"]["reason"] if told else "the sandbox went away"
        except (OSError, ValueError, KeyError):
            return "the sandbox went away"
        return reason or "it ended by itself"

    async def aclose(self) -> None:
        """Ends it, and all that it started."""
        self._control.close()
        with trio.CancelScope(shield=True):
            for stream in (self.stdin, self.stdout, self.stderr):
                await trio.aclose_forcefully(stream)


async def _send(control: trio.socket.SocketType, data: bytes) -> None:
    while data:
        data = data[await control.send(data) :]
