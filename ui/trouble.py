"""What the log is told when a page cannot be served from the feed: one line while the database is away."""

from __future__ import annotations

import logging

from engine.feed import UNREACHABLE


def tell(log: logging.Logger, what: str, error: Exception) -> None:
    """Called where `error` is handled. Other trouble than an absent database is a fault, told with its traceback."""
    if isinstance(error, UNREACHABLE):
        log.warning("%s; database away: %s", what, error)
    else:
        log.error("%s", what, exc_info=error)
