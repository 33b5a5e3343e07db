"""`python -m tests.harness 0-199`: runs seeds, five at once in one house; ends with 1 at the first violation."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.harness.campaign import Campaign
from tests.harness.house import House

TOGETHER = 5
KILLS, SIZE = 5, 90


def seeds_of(text: str) -> list[int]:
    """ "3-7" or "3"."""
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def campaign(seeds: list[int], *, kills: int = KILLS, size: int = SIZE, calm: bool = False) -> list[str]:
    """Everything that went wrong with these seeds, in words; none when all promises held."""
    with tempfile.TemporaryDirectory(prefix="nightbook-harness-") as folder:
        house = House(Path(folder) / "data", apart=seeds[0] // TOGETHER % 4 != 3)
        try:
            one = Campaign(house, seeds, kills=kills, size=size, calm=calm)
            wrong = [str(violation) for violation in one.run()]
            print(f"seeds {seeds[0]}-{seeds[-1]}:", *one.told, sep="\n  ", flush=True)
        except BaseException:
            print(f"seeds {seeds[0]}-{seeds[-1]} broke off", flush=True)
            print(*house.logs(), sep="\n", flush=True)
            raise
        finally:
            left = house.close()
        if wrong:
            print(*house.logs(), sep="\n", flush=True)
        return wrong + [f"left behind: {line}" for line in left]


def main() -> int:
    seeds = seeds_of(sys.argv[1])
    began = time.monotonic()
    for start in range(0, len(seeds), TOGETHER):
        some = seeds[start : start + TOGETHER]
        if wrong := campaign(some):
            print(*wrong, sep="\n")
            print(f"to see it again: python -m tests.harness {some[0]}-{some[-1]}")
            return 1
        print(f"{start + len(some)} seeds held, {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
