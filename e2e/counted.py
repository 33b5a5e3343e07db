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

FILE = "counts.json"  # in the data folder


def counts() -> dict[str, int]:
    """What there is now of NiceGUI's clients, the feed's viewers, and the tasks of all event loops."""
    from nicegui import Client

    from engine.feed import Feed

    gc.collect()
    known = gc.get_objects()
    loops = [thing for thing in known if isinstance(thing, asyncio.AbstractEventLoop) and thing.is_running()]
    return {
        "clients": len(Client.instances),
        "viewers": sum(feed.statistics()["viewers"] for feed in known if isinstance(feed, Feed)),
        "tasks": sum(len(asyncio.all_tasks(loop)) for loop in loops),
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
    if not SOAK:
        give_up_sooner()
    cli.main()
