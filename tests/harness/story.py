"""What one seed asks for: a notebook with cells of every kind, and the moments at which people ask for them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

FENCE = "```"
STARTS, EFFECTS = "starts", "effects"  # files in the notebook's folder


@dataclass
class Story:
    """`cells` are (kind, source), `prints` what those that print must print, by their place; `deeds` are commands in
    their order, each with the seconds to wait before it and the place of its cell."""

    seed: int
    cells: list[tuple[str, str]]
    prints: dict[int, list[str]]
    free: bool
    deeds: list[tuple[float, str, int, str]] = field(default_factory=list)


def story(seed: int, size: int) -> Story:
    """The story of a seed. `size` is how many lines a cell prints and, by 15, how many calls a turn makes."""
    chance = random.Random(seed)
    pause = chance.choice([0.01, 0.02, 0.04])
    lines = chance.randint(size // 2, size)
    word = f"{seed}"
    printed = [f"{word} {number}" for number in range(lines)]
    python = (
        f"import time\nopen('{STARTS}', 'a').write('python\\n')\n"
        f"for number in range({lines}):\n    print('{word}', number, flush=True)\n    time.sleep({pause})\nkept = 41"
    )
    shell = f"echo shell >> {STARTS}\nfor number in $(seq 0 {lines - 1}); do echo {word} $number; sleep {pause}; done"
    asking = f"open('{STARTS}', 'a').write('asking\\n')\nname = input('name? ')\nprint('hello', name)"
    queued = f"open('{STARTS}', 'a').write('queued\\n')\nprint(kept + 1)"
    endless = f"echo endless >> {STARTS}\nsleep 86400 & sleep 86400 & wait"
    calls = max(2, size // 15)
    turn = "\n\n".join(_step(number, chance) for number in range(1, calls + 1))
    cells = [("python", python), ("shell", shell), ("python", asking), ("python", queued), ("agent", turn)]
    prints = {0: printed, 1: printed, 2: ["name? Ada", "hello Ada"], 3: ["42"]}
    found = Story(seed, cells, prints, free=chance.random() < 0.4)
    for place in range(4):
        found.deeds.append((chance.choice([0.0, 0.0, 0.3]), "run_cell", place, ""))
    turn_at = chance.randint(0, 4)
    found.deeds.insert(turn_at, (0.0, "run_cell", 4, ""))
    if chance.random() < 0.7:
        said = f"One more.\n\n{FENCE}sh\necho more >> {EFFECTS}\n{FENCE}"
        found.deeds.append((chance.uniform(0.0, 1.5), "follow_up", 4, said))
    if chance.random() < 0.5:
        found.cells.append(("shell", endless))
        found.deeds.append((0.0, "run_cell", 5, ""))
        found.deeds.append((chance.uniform(0.0, 2.0), "stop", 5, ""))
    return found


def _step(number: int, chance: random.Random) -> str:
    """One call of a turn, that leaves one line; what it does can be found out about, but not be repeated."""
    if chance.random() < 0.7:
        code = f"{FENCE}sh\necho {number} >> {EFFECTS}; sleep {chance.choice([0.0, 0.1, 0.3])}\n{FENCE}"
    else:
        code = f"{FENCE}python\nopen({EFFECTS!r}, 'a').write('{number}\\n')\n{FENCE}"
    return f"Now number {number}. It leaves a line behind it.\n\n{code}"
