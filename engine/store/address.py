"""Speaking about a database in messages: its place without its password, and why it could not be reached."""

from urllib.parse import parse_qs, urlsplit

from engine.store.embedded import StoreUnavailable


def place(dsn: str) -> str:
    """Say which database `dsn` means, as `user@host:port/name`, without the password."""
    parts = urlsplit(dsn)
    host = parts.hostname or parse_qs(parts.query).get("host", ["localhost"])[-1]
    user = f"{parts.username}@" if parts.username else ""
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return f"{user}{host}{port}{parts.path}"


def unavailable(dsn: str, error: BaseException) -> StoreUnavailable:
    """Make the one line for a database that was tried at `dsn` and failed with `error`."""
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return StoreUnavailable(
        f"The database {place(dsn)} cannot be used ({said}): start it, correct NIGHTBOOK_DATABASE_URL, "
        "or leave that unset to use the embedded PostgreSQL."
    )
