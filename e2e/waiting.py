"""The two ways a test may let time pass: until a condition holds, or because the time itself is the test."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

_LOOK_SECONDS = 0.02


def until(condition: Callable[[], Value], what: str, seconds: float = 20.0, every: float = _LOOK_SECONDS) -> Value:
    """Waits until `condition` gives a true value, and returns that. `what` names it when `seconds` were not enough.

    `every`: seconds between two looks; more where a look costs more.

    An entry that is not there yet (a LookupError) is as false as None.
    """
    deadline = time.monotonic() + seconds
    seen: object = None
    while True:
        try:
            if value := condition():
                return value
            seen = value
        except LookupError as error:
            seen = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}; last seen: {seen!r}")
        time.sleep(every)


def pass_time(seconds: float, why: str) -> None:
    """Lets time go by where that is what is tested: nobody there, the link cut, the server dead."""
    assert why
    time.sleep(seconds)
