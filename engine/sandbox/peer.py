"""One connection to the shim: requests in, answers and records out, both bounded."""

import json
import socket
from typing import TYPE_CHECKING, Any

from engine.sandbox.spool import Cursor, encode

if TYPE_CHECKING:
    from engine.sandbox.shim import Shim

# A request holds at most a cell's source.
LONGEST_REQUEST = 16 * 1024 * 1024
RECORDS_BYTES = 128 * 1024


class Peer:
    """`cursor` is set when this connection receives records; `epoch` with its first request."""

    def __init__(self, shim: "Shim", connection: socket.socket) -> None:
        self._shim = shim
        self._socket = connection
        self._in = bytearray()
        self._out = bytearray()
        self.cursor: Cursor | None = None
        self.epoch: int | None = None
        connection.setblocking(False)
        shim.loop.reader(connection.fileno(), self._read)

    @property
    def behind(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._out) or (self.cursor is not None and self.cursor.n < self._shim.spool.last)

    def wake(self) -> None:
        """There is something to send."""
        if self._socket.fileno() >= 0:
            self._shim.loop.writer(self._socket.fileno(), self._write)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._shim.loop.forget(self._socket.fileno())
            self._socket.close()
            self._shim.left(self)

    def _read(self) -> None:
        try:
            data = self._socket.recv(256 * 1024)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or len(self._in) > LONGEST_REQUEST:
            self.close()
            return
        self._in += data
        if b"\n" not in data:
            return
        *lines, rest = self._in.split(b"\n")
        self._in = rest
        for line in lines:
            if (answer := self._answer(bytes(line))) is not None:
                self._out += encode(answer)
        self._write()

    def tell(self, body: dict[str, Any]) -> None:
        """Something that nobody asked for, on a connection that serves one program."""
        self._out += encode(body)
        self.wake()

    def hand_over(self, name: Any, fds: list[int]) -> None:
        """Answers the request with descriptors beside it. Raises `OSError` when the connection does not take them."""
        socket.send_fds(self._socket, [encode({"id": name, "ok": True})], fds)

    def reply(self, name: Any, body: dict[str, Any]) -> None:
        """The answer to a request that could not be answered at once."""
        self._out += encode({"id": name, "ok": True, **body})
        self.wake()

    def _answer(self, line: bytes) -> dict[str, Any] | None:
        from engine.sandbox.shim import Refused

        name = None
        try:
            body = json.loads(line)
            name = body["id"]
            answer = self._shim.request(self, body)
            return None if answer is None else {"id": name, "ok": True, **answer}
        except Refused as refused:
            return {"id": name, "ok": False, "error": str(refused)}
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            return {"id": name, "ok": False, "error": f"bad request: {type(problem).__name__}: {problem}"}

    def _write(self) -> None:
        if self._socket.fileno() < 0:
            return
        try:
            while True:
                if not self._out:
                    self._fill()
                if not self._out:
                    self._shim.loop.writer(self._socket.fileno(), None)
                    return
                del self._out[: self._socket.send(self._out)]
        except BlockingIOError:
            self._shim.loop.writer(self._socket.fileno(), self._write)
        except OSError:
            self.close()

    def _fill(self) -> None:
        """The next records, straight from the disk: their lines are JSON already."""
        if self.cursor is not None and (lines := self._shim.spool.read(self.cursor, RECORDS_BYTES)):
            self._out += b'{"records":[' + b",".join(lines) + b"]}\n"
