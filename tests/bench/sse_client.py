"""SSE readers in a process of their own, so that they take no time from the server's interpreter.

`python -m tests.bench.sse_client PORT TOKEN AFTER UPTO PARSE ID…` follows each notebook from AFTER until it has UPTO
frames (0: until a run ended) and prints, as JSON: the delay of each time in ns that is told as text (ms), how long it
took from the request to the last frame (ms), and whether every number came once, in order.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any


async def follow(
    port: int, token: str, notebook_id: str, after: int, upto: int, parse: bool, over: asyncio.Barrier
) -> dict[str, Any]:
    """One reader, on a bare socket. It goes when all have what they wanted: no figure is of readers who leave."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    path = f"/api/v1/notebooks/{notebook_id}/frames?after={after}"
    began = time.perf_counter()
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    delays: list[float] = []
    expected, ordered = after + 1, True
    rest = b""
    ended = False
    while not ended and (upto == 0 or expected <= upto):
        data = await reader.read(2**20)
        now = time.time_ns()
        if not data:
            break
        # Chunk lengths stand on lines of their own; no line of a frame looks like one.
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if not line.startswith(b'data: {"seq": ') or b'"kind"' not in line:
                continue
            seq = int(line[14 : line.index(b",")])
            ordered = ordered and seq == expected
            expected = seq + 1
            if parse:
                body = json.loads(line[6:])["body"]
                delays += [(now - int(text)) / 1e6 for text in body.get("text", "").split() if text.isdigit()]
                ended = ended or (upto == 0 and body.get("event") == "ended")
    took = (time.perf_counter() - began) * 1000
    await over.wait()
    writer.close()
    return {"delays": delays, "took": took, "ordered": ordered and (upto == 0 or expected == upto + 1)}


async def main() -> None:
    port, token, after, upto, parse = (
        int(sys.argv[1]),
        sys.argv[2],
        int(sys.argv[3]),
        int(sys.argv[4]),
        sys.argv[5] == "1",
    )
    print("ready", flush=True)
    over = asyncio.Barrier(len(sys.argv[6:]))
    found = await asyncio.gather(*(follow(port, token, key, after, upto, parse, over) for key in sys.argv[6:]))
    print(
        json.dumps(
            {
                "delays": [delay for one in found for delay in one["delays"]],
                "took": [one["took"] for one in found],
                "ordered": all(one["ordered"] for one in found),
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
