"""The programs that the suite runs in cells. Each leaves in a file how often it began and ended."""

LOG = "log.txt"
ONCE = "start\nend\n"  # what LOG holds after exactly one whole run


def counting(lines: int, pause: float, first_pause: float = 0.0) -> str:
    """Prints `line 00000` … one by one, `pause` seconds apart, the first after `first_pause` seconds."""
    return f"""\
import time

def note(word):
    with open({LOG!r}, "a") as log:
        log.write(word + "\\n")

note("start")
time.sleep({first_pause})
for number in range({lines}):
    print(f"line {{number:05d}}", flush=True)
    time.sleep({pause})
note("end")
"""


def counted(lines: int) -> list[str]:
    """The lines that `counting` prints."""
    return [f"line {number:05d}" for number in range(lines)]


def asking(question: str) -> str:
    """Asks for something by the expression `question`, binding it to `answer`, and says its length."""
    return f"""\
import getpass

with open({LOG!r}, "a") as log:
    log.write("start\\n")
print("before")
answer = {question}
print(f"got {{len(answer)}} characters")
with open({LOG!r}, "a") as log:
    log.write("end\\n")
"""


FLOOD = """\
import time
for number in range(20_000):
    print(f"line {number:05d}")
print(f"finished at {time.time():.3f}")
"""


def printing(megabytes: int) -> str:
    """Prints so many megabytes as fast as it can, in lines of 100 bytes, and then a last line."""
    return f"""\
block = ("x" * 99 + "\\n") * 10_000
for _ in range({megabytes}):
    print(block, end="")
print("that was all")
"""
