"""Ids for notebooks, cells and runs: 16 characters, 80 random bits, safe in URLs and file names, unlike in any case."""

import secrets

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id() -> str:
    """A new id."""
    bits = secrets.randbits(80)
    return "".join(_ALPHABET[(bits >> shift) & 31] for shift in range(0, 80, 5))
