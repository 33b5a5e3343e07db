"""The command `nightbook` with a window: on SIGUSR1 the process writes down what it holds on to for visitors.

Run as `python -m e2e.counted serve`. It is the same server in every other way, except that in the short form of the
suite it gives up on visitors sooner, so that a test need not wait for the minute that NiceGUI gives them.
"""

import asyncio
import gc
import json
import os
import signal
from pathlib import Path
from types import FrameType

from app import cli
from e2e.scale import SOAK
from engine.feed import Feed

FILE = "counts.json"  # in the data folder


_feeds: list[Feed] = []


def remember_feeds() -> None:
    """Keeps the feed, which has no public way to it, and with it the loop that serves visitors."""
    start = Feed.start

    async def started(feed: Feed) -> None:
        _feeds.append(feed)
        await start(feed)

    Feed.start = started  # type: ignore[method-assign]


def counts() -> dict[str, int]:
    """What there is now of NiceGUI's clients, the feed's viewers, and tasks in the loop that serves visitors."""
    from nicegui import Client

    gc.collect()
    return {
        "clients": len(Client.instances),
        "viewers": sum(feed.statistics()["viewers"] for feed in _feeds),
        "tasks": sum(len(asyncio.all_tasks(feed._tasks[0].get_loop())) for feed in _feeds),
    }


def write_down(number: int, frame: FrameType | None) -> None:
    place = Path(os.environ["NIGHTBOOK_DATA"]) / FILE
    fresh = place.with_suffix(".new")
    fresh.write_text(json.dumps(counts()))
    fresh.replace(place)


def give_up_sooner() -> None:
    from nicegui import Client

    from app import web

    web.RECONNECT_SECONDS = 1.0
    prune = Client.prune_instances
    Client.prune_instances = lambda: prune(client_age_threshold=3.0)  # type: ignore[method-assign]


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, write_down)
    remember_feeds()
    if not SOAK:
        give_up_sooner()
    cli.main()
