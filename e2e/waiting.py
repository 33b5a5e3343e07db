"""The two ways a test may let time pass: until a condition holds, or because the time itself is the test."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

_FIRST_SECONDS, _LAST_SECONDS, _GROWTH = 0.02, 0.2, 1.15


def until(condition: Callable[[], Value], what: str, seconds: float = 20.0, every: float | None = None) -> Value:
    """Waits until `condition` gives a true value, and returns that. `what` names it when `seconds` were not enough.

    `every`: seconds between two looks. By default the first follow each other at once, and those of a long wait less
    often: a look asks a server or a page, which then has less of the processor for what is waited for.

    An entry that is not there yet (a LookupError) is as false as None.
    """
    deadline = time.monotonic() + seconds
    seen: object = None
    pause = every or _FIRST_SECONDS
    while True:
        try:
            if value := condition():
                return value
            seen = value
        except LookupError as error:
            seen = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}; last seen: {seen!r}")
        time.sleep(pause)
        if every is None:
            pause = min(pause * _GROWTH, _LAST_SECONDS)


def pass_time(seconds: float, why: str) -> None:
    """Lets time go by where that is what is tested: nobody there, the link cut, the server dead."""
    assert why
    time.sleep(seconds)
