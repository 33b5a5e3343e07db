"""How large and long everything is: whole in the long form (NIGHTBOOK_SOAK=1), else as short as still proves the same.

Seconds. In the short form the suite's own server gets time limits that are shorter still (`SHORT_LIMITS`), so that a
limit that wrongly ends something does so within these times, too.
"""

import os

SOAK = os.environ.get("NIGHTBOOK_SOAK") == "1"

LINES, PAUSE = (400, 0.05) if SOAK else (150, 0.02)  # of the cell that counts
AWAY = 8.0 if SOAK else 1.5  # with the tab closed
LONG_AWAY = 75.0 if SOAK else 6.0  # with nobody there
CUT = 5.0  # without a network
DEAD = 5.0 if SOAK else 2.0  # without a server
KILL_LINES, KILL_PAUSE = (400, 0.05) if SOAK else (400, 0.02)
DESERTED = 180.0 if SOAK else 5.0  # with no viewer at all, while a turn works
TURN_KILLS = 100 if SOAK else 3
EVENT_KILLS = slice(None) if SOAK else slice(7, 8)  # which events of a model's reply the worker dies at
KILLED_PROTOCOLS = ("anthropic", "openai") if SOAK else ("openai",)  # an SDK takes its time in every life of a worker
REPLY_POINTS = ("replied", "reserved", "done", "settled") if SOAK else ("replied",)  # behind a finished reply
CUTS = 20 if SOAK else 4
IDLE_LIMIT, SILENCE = (5.0, 20.0) if SOAK else (3.0, 8.0)
MEGABYTES = 200 if SOAK else 12  # past 5 of a run a page is told only its newest lines, at times
VISITS = 100 if SOAK else 5
EDITS = 50 if SOAK else 12  # of each of two people in one cell
SEEDS = (50, 51, 52) if SOAK else (50,)  # of the places where they type

SHORT_LIMITS = {"REPLAY_SECONDS": 1, "SANDBOX_IDLE_SECONDS": 2, "POLL_SECONDS": 1, "ORPHAN_SECONDS": 2}
