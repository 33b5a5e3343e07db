"""A server on loopback that speaks the protocols of providers byte for byte, as they are publicly documented.

It answers over real HTTP with what a test scripted: event streams cut off anywhere, errors in their midst, refusals
with headers, pages of a proxy. It keeps what it was asked.
"""

from __future__ import annotations

import json
import socketserver
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

EVENTS = {"content-type": "text/event-stream; charset=utf-8"}
JSON = {"content-type": "application/json"}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="  # a PNG


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Answer:
    """What is sent back, chunk by chunk; `cut`: the connection is closed behind the last one without an end.
    `before` is called before each chunk with its index (from 0)."""

    pieces: Sequence[bytes]
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: dict(EVENTS))
    cut: bool = False
    before: Callable[[int], None] = lambda index: None


Script = Callable[[Asked], Answer]


class Provider:
    """The server; `asked` has every request, in order."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.asked: list[Asked] = []
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                try:
                    while outer._serve(self.rfile, self.wfile):
                        pass
                except OSError:
                    pass  # the other side went away

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True
            block_on_close = False

            def get_request(self) -> Any:
                connection, address = super().get_request()
                if tls is not None:
                    connection = tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
                return connection, address

        self._server = Server(("127.0.0.1", 0), Handler)
        place = "http://127.0.0.1" if tls is None else "https://localhost"
        self.url = f"{place}:{self._server.server_address[1]}"

    def _serve(self, rfile: Any, wfile: Any) -> bool:
        if rfile.peek(1)[:1] == b"\x16":  # somebody wants TLS, and is answered as a plain server answers
            wfile.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return False
        first = rfile.readline().decode("ascii").split()
        if len(first) < 2:
            return False
        headers: dict[str, str] = {}
        while (line := rfile.readline().decode("latin-1").strip()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        data = rfile.read(int(headers.get("content-length", 0)))
        asked = Asked(first[0], first[1], headers, json.loads(data) if data else {})
        self.asked.append(asked)
        answer = self.script(asked)
        head = [f"HTTP/1.1 {answer.status} Said", "transfer-encoding: chunked"]
        head += [f"{name}: {value}" for name, value in answer.headers.items()]
        wfile.write(("\r\n".join(head) + "\r\n\r\n").encode("latin-1"))
        for index, piece in enumerate(answer.pieces):
            answer.before(index)
            wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            wfile.flush()
        if answer.cut:
            return False
        wfile.write(b"0\r\n\r\n")
        wfile.flush()
        return True


@contextmanager
def provider(script: Script | Iterable[Answer], tls: ssl.SSLContext | None = None) -> Iterator[Provider]:
    """A server that answers by a function of the request, or with each of some answers in turn (the last again)."""
    if not callable(script):
        answers = list(script)

        def script(asked: Asked) -> Answer:
            return answers.pop(0) if len(answers) > 1 else answers[0]

    made = Provider(script, tls)
    thread = threading.Thread(target=made._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made._server.shutdown()
        made._server.server_close()
        thread.join()


def refusal(status: int, body: object, **headers: str) -> Answer:
    """An error as JSON, or, given a text, as a page."""
    if isinstance(body, str):
        return Answer([body.encode()], status, {"content-type": "text/html", **headers})
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer([json.dumps(body).encode()], status, {**JSON, **named})


# The Messages protocol


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def start(tokens: int = 25) -> bytes:
    return event(
        "message_start",
        message={
            "id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "claude-test",
            "stop_reason": None, "stop_sequence": None,
            "usage": {"input_tokens": tokens, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 2,
                      "output_tokens": 1},
        },
    )  # fmt: skip


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
    return [
        event("content_block_start", index=index, content_block=content),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    ]


def text(index: int, *pieces: str) -> list[bytes]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


def thinking(index: int, *pieces: str, signature: str = "EqQBsig==") -> list[bytes]:
    return block(
        index,
        {"type": "thinking", "thinking": "", "signature": ""},
        *({"type": "thinking_delta", "thinking": piece} for piece in pieces),
        {"type": "signature_delta", "signature": signature},
    )


def tool(index: int, name: str, *pieces: str, id: str = "toolu_1") -> list[bytes]:
    return block(
        index,
        {"type": "tool_use", "id": id, "name": name, "input": {}},
        *({"type": "input_json_delta", "partial_json": piece} for piece in pieces),
    )


def stop(reason: str, tokens: int = 15, **delta: Any) -> list[bytes]:
    return [
        event(
            "message_delta", delta={"stop_reason": reason, "stop_sequence": None, **delta},
            usage={"output_tokens": tokens},
        ),
        event("message_stop"),
    ]  # fmt: skip


PING = event("ping")


def message(*blocks: list[bytes], reason: str = "end_turn") -> list[bytes]:
    """A whole reply of the Messages protocol, event by event."""
    return [start(), PING, *(piece for one in blocks for piece in one), *stop(reason)]


# Chat completions


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, usage: dict[str, Any] | None = None) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
    body = {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-test", "choices": choices,
        **({"usage": usage} if usage else {}),
    }  # fmt: skip
    return f"data: {json.dumps(body)}\n\n".encode()


def tool_chunks(index: int, name: str, *pieces: str, id: str = "call_1") -> list[bytes]:
    first = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
    return [
        chunk({"tool_calls": [first]}),
        *(chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}) for piece in pieces),
    ]


DONE = b"data: [DONE]\n\n"
COUNTED = {
    "prompt_tokens": 32, "completion_tokens": 15, "total_tokens": 47, "prompt_tokens_details": {"cached_tokens": 5},
}  # fmt: skip


def completion(*pieces: bytes, finish: str = "stop") -> list[bytes]:
    """A whole reply of chat completions, chunk by chunk."""
    return [
        chunk({"role": "assistant", "content": ""}),
        *pieces,
        chunk({}, finish),
        chunk(usage=COUNTED),
        DONE,
    ]


def everything(protocol: str, said: str, *calls: tuple[str, dict[str, Any]]) -> list[bytes]:
    """A reply with all that there is: thinking, text in two pieces, parallel calls (tool, arguments) in two each."""
    thought, middle = f"Thinking of: {said}", len(said) // 2
    pieces = [json.dumps(arguments) for _, arguments in calls]
    halves = [(piece[: len(piece) // 2], piece[len(piece) // 2 :]) for piece in pieces]
    if protocol == "anthropic":
        tools = [
            tool(at, name, *half, id=f"toolu_{at}")
            for at, ((name, _), half) in enumerate(zip(calls, halves, strict=True), 2)
        ]
        return message(
            thinking(0, thought), text(1, said[:middle], said[middle:]), *tools,
            reason="tool_use" if calls else "end_turn",
        )  # fmt: skip
    chunks = [
        piece
        for at, ((name, _), half) in enumerate(zip(calls, halves, strict=True))
        for piece in tool_chunks(at, name, *half, id=f"call_{at}")
    ]
    return completion(
        chunk({"reasoning_content": thought}), chunk({"content": said[:middle]}), chunk({"content": said[middle:]}),
        *chunks, finish="tool_calls" if calls else "stop",
    )  # fmt: skip


def last_needed(protocol: str, pieces: Sequence[bytes]) -> int:
    """The index of the event that says why a reply stops: behind it comes only what is counted, and the end."""
    return len(pieces) - (2 if protocol == "anthropic" else 3)
