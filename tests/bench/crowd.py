"""Very many SSE readers of one notebook in one process of their own, on bare sockets, as cheap as readers can be.

`python -m tests.bench.crowd PORT TOKEN NOTEBOOK AFTER READERS STALLED` opens READERS streams behind frame AFTER. The
last STALLED of them read nothing once the answer has begun. It prints `ready` when all stand. A line on stdin names the
head: those that stalled read on, everybody reads up to it, and what was seen is printed as JSON: how many readers got
every number once and in order, how often the server ended a stream (they come again with `Last-Event-ID`), and the
delays (ms) of the times in ns that one reader in fifty was told as text.
"""

from __future__ import annotations

import json
import re
import resource
import selectors
import socket
import sys
import time

NUMBER = b"\nid: "
TIME = re.compile(rb'"text":"(\d{19})')
STALLED_BUFFER = 16384  # bytes that the kernel takes for a reader that reads nothing


class Reader:
    """One stream. `seq` is the last number it has."""

    def __init__(self, crowd: Crowd, number: int, stalls: bool, watched: bool) -> None:
        self.crowd, self.number, self.stalls, self.watched = crowd, number, stalls, watched
        self.seq = crowd.after
        self.ordered, self.begun, self.cut = True, False, 0
        self.connect()

    def connect(self) -> None:
        self.rest = b""
        self.socket = socket.socket()
        if self.stalls:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, STALLED_BUFFER)
        self.socket.connect(("127.0.0.1", self.crowd.port))
        path = f"/api/v1/notebooks/{self.crowd.notebook}/frames?after={self.seq}"
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.crowd.token}\r\n\r\n"
        self.socket.sendall(head.encode())
        self.socket.setblocking(False)
        self.crowd.selector.register(self.socket, selectors.EVENT_READ, self)

    def read(self) -> None:
        try:
            data = self.socket.recv(262144)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.crowd.selector.unregister(self.socket)
            self.socket.close()
            self.cut += 1
            self.connect()
            return
        self.begun = True
        data = self.rest + data
        whole = data.rfind(b"\n\n") + 2
        if whole < 2:
            self.rest = data
            return
        self.rest = data[whole:]
        at = data.find(NUMBER, 0, whole)
        while at >= 0:
            end = data.index(b"\n", at + 5)
            seq = int(data[at + 5 : end])
            self.ordered = self.ordered and seq == self.seq + 1
            self.seq = seq
            at = data.find(NUMBER, end, whole)
        if self.watched:
            now = time.time_ns()
            self.crowd.delays += [(now - int(at)) / 1e6 for at in TIME.findall(data, 0, whole)]


class Crowd:
    """All of them."""

    def __init__(self, port: int, token: str, notebook: str, after: int, readers: int, stalled: int) -> None:
        self.port, self.token, self.notebook, self.after = port, token, notebook, after
        self.selector = selectors.DefaultSelector()
        self.delays: list[float] = []
        self.readers = [
            Reader(self, number, number >= readers - stalled, number % 50 == 0 and number < readers - stalled)
            for number in range(readers)
        ]
        self.begin()

    def look(self) -> None:
        for key, _ in self.selector.select(1.0):
            if isinstance(key.data, Reader):
                key.data.read()

    def begin(self) -> None:
        while not all(reader.begun for reader in self.readers):
            self.look()
        for reader in self.readers:
            if reader.stalls:
                self.selector.unregister(reader.socket)

    def follow(self) -> int:
        """Reads until a line comes on stdin; returns the number in it."""
        self.selector.register(sys.stdin, selectors.EVENT_READ, None)
        while True:
            for key, _ in self.selector.select(1.0):
                if key.data is None:
                    self.selector.unregister(sys.stdin)
                    return int(sys.stdin.readline())
                key.data.read()

    def finish(self, head: int, seconds: float) -> None:
        for reader in self.readers:
            if reader.stalls:
                self.selector.register(reader.socket, selectors.EVENT_READ, reader)
        until = time.monotonic() + seconds
        while any(reader.seq < head for reader in self.readers) and time.monotonic() < until:
            self.look()

    def told(self, head: int) -> dict[str, object]:
        return {
            "whole": sum(reader.ordered and reader.seq >= head for reader in self.readers),
            "cut": sum(reader.cut for reader in self.readers),
            "delays": self.delays,
            "cpu": time.process_time(),
        }


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    port, token, notebook, after, readers, stalled = sys.argv[1:]
    crowd = Crowd(int(port), token, notebook, int(after), int(readers), int(stalled))
    print("ready", flush=True)
    head = crowd.follow()
    crowd.finish(head, 60)
    print(json.dumps(crowd.told(head)), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main()
