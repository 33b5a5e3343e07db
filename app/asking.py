"""What the command line asks a running server over its own HTTP API."""

import json
import urllib.error
import urllib.request
from collections import Counter
from typing import Any

_SECONDS = 5.0
# Settings of a proxy in the environment are not meant for our own server.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def readiness(url: str) -> tuple[bool, str]:
    """Ask /readyz of the server at `url`; returns whether it is ready, and that in words."""
    try:
        with _opener.open(f"{url.rstrip('/')}/readyz", timeout=_SECONDS):
            return True, "ready"
    except urllib.error.HTTPError as error:
        return False, f"not ready: {_detail(error)}"
    except OSError as error:
        return False, f"not ready: {getattr(error, 'reason', error)}"


def notebooks(url: str, token: str) -> str:
    """Say how many notebooks there are, and how many of them run or wait for a person."""
    request = urllib.request.Request(
        f"{url.rstrip('/')}/api/v1/notebooks", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with _opener.open(request, timeout=_SECONDS) as answer:
            listed: list[dict[str, Any]] = json.load(answer)
    except urllib.error.HTTPError as error:
        return f"notebooks: unknown ({_detail(error)})"
    except (OSError, ValueError) as error:
        return f"notebooks: unknown ({error})"
    states = Counter(one.get("state") for one in listed)
    return f"notebooks: {len(listed)}, running {states['running']}, waiting {states['waiting']}"


def _detail(error: urllib.error.HTTPError) -> str:
    """Take the reason out of a problem, or out of the parts that /readyz lists."""
    try:
        said: dict[str, Any] = json.load(error)
        return str(said.get("detail") or ", ".join(f"{part} {state}" for part, state in said.items()))
    except (ValueError, AttributeError, OSError):
        return f"HTTP {error.code}"
