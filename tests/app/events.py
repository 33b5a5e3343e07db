"""Reading server-sent events as a program does: by line, with a bound on how long to wait."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx


@dataclass(frozen=True)
class Event:
    """One event. `id` is empty where it has none."""

    event: str
    id: str
    data: Any


@contextmanager
def follow(
    client: httpx.Client, notebook_id: str, *, last_event_id: str | None = None, **query: Any
) -> Iterator[Iterator[Event]]:
    """Follows the frames of a notebook; a silence of 10 s is an error."""
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    path = f"/api/v1/notebooks/{notebook_id}/frames"
    with client.stream("GET", path, params=query, headers=headers, timeout=10) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield _events(answer.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            if name:
                fields[name] = value.removeprefix(" ")
        elif fields:
            yield Event(fields.get("event", "message"), fields.get("id", ""), json.loads(fields["data"]))
            fields = {}


def frames_up_to(events: Iterator[Event], seq: int) -> list[dict[str, Any]]:
    """The frames that come until one has the number `seq`; heartbeats between them are left out."""
    found: list[dict[str, Any]] = []
    for event in events:
        assert event.event in {"frame", "heartbeat"}, event
        if event.event == "frame":
            assert event.id == str(event.data["seq"])
            found.append(event.data)
            if event.data["seq"] >= seq:
                return found
    raise AssertionError(f"the stream ended before frame {seq}")
