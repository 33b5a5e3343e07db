"""What must hold after any death, as plain functions over what was found afterwards.

Each yields what contradicts one of the invariants, by its number in the project's list: 1 stored before seen, 2 one
writer, 3 exactly once and in order, 5 no effect without a yes, 6 an effect happens once, 7 work keeps its own place
alive, 8 one ending. 0 stands for what was asked for and did not come to pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Frame = dict[str, Any]
STARTED_BY_CODE = ("output", "input")  # kinds of frames that only a program that runs can cause


@dataclass(frozen=True)
class Violation:
    """One contradiction. `invariant` is its number, `what` says where and how."""

    invariant: int
    what: str

    def __str__(self) -> str:
        return f"invariant {self.invariant}: {self.what}"


@dataclass
class Seen:
    """What one viewer got: `after` is where it began, `resets` the snapshots it was sent instead of frames."""

    name: str
    after: int
    frames: list[Frame] = field(default_factory=list)
    resets: list[int] = field(default_factory=list)


@dataclass
class Evidence:
    """What is found of one notebook when all is over.

    `prints` has by cell the lines it must have printed when its run ends as done; `starts` what its programs noted
    at their start, one word a start; `effects` the lines that calls of turns appended, in the file's order; `approved`
    the asks to which somebody said yes; `free` says that its policy asks nobody.
    """

    name: str
    head: int
    frames: list[Frame]
    viewers: list[Seen]
    prints: dict[str, list[str]]
    starts: list[str]
    effects: list[str]
    asks: list[dict[str, Any]]
    effect_rows: list[dict[str, Any]]
    approved: set[str]
    free: bool
    waiting_commands: list[str] = field(default_factory=list)


def stored_before_seen(found: Evidence) -> Iterator[Violation]:
    """Whatever a viewer saw is in the journal, under its number and unchanged."""
    stored = {frame["seq"]: frame for frame in found.frames}
    for viewer in found.viewers:
        for frame in viewer.frames:
            if stored.get(frame["seq"]) != frame:
                yield Violation(1, f"{viewer.name} saw frame {frame['seq']} ({frame['kind']}), the journal has another")
                break
        if viewer.resets:
            yield Violation(1, f"{viewer.name} had seen more than the journal holds, and was reset to {viewer.resets}")


def one_writer(found: Evidence) -> Iterator[Violation]:
    """Numbers have no gap and end at the head; every engine that came had a higher epoch; no record is told twice."""
    numbers = [frame["seq"] for frame in found.frames]
    if numbers != list(range(1, found.head + 1)):
        yield Violation(2, f"the journal has {len(numbers)} frames, its head is {found.head}")
    epochs = [frame["body"]["epoch"] for frame in found.frames if frame["body"].get("epoch")]
    if epochs != sorted(set(epochs)):
        yield Violation(2, f"engines took over out of order: epochs {epochs}")
    upto: dict[str, int] = {}
    for frame in found.frames:
        if (src := frame["body"].get("src")) is not None:
            if src[1] < upto.get(src[0], 0):
                yield Violation(2, f"frame {frame['seq']} tells record {src[1]} of a sandbox behind {upto[src[0]]}")
                break
            upto[src[0]] = src[1]


def exactly_once_in_order(found: Evidence) -> Iterator[Violation]:
    """A viewer that says "after N" gets N+1, N+2 … to the head."""
    for viewer in found.viewers:
        numbers = [frame["seq"] for frame in viewer.frames]
        wanted = list(range(viewer.after + 1, found.head + 1))
        if not viewer.resets and numbers != wanted:
            wrong = next((pair for pair in zip(numbers, wanted, strict=False) if pair[0] != pair[1]), None)
            where = f"got {wrong[0]} for {wrong[1]}" if wrong else f"has {len(numbers)} of {len(wanted)}"
            yield Violation(3, f"{viewer.name}, after {viewer.after}: {where}")


def printed_once(found: Evidence) -> Iterator[Violation]:
    """Of a program nothing is lost and nothing told twice, whoever was dead while it printed."""
    for run in runs_of(found.frames):
        wanted = found.prints.get(run.cell_id)
        if wanted is None or run.parent is not None:
            continue
        lines = run.text.split("\n")[:-1] if run.text.endswith("\n") else run.text.split("\n")
        lines = [line.rstrip("\r") for line in lines]
        if (run.status == "done" and lines != wanted) or (run.status == "cancelled" and len(lines) > len(wanted)):
            wrong = next((pair for pair in zip(lines, wanted, strict=False) if pair[0] != pair[1]), "their number")
            yield Violation(
                3, f"run {run.id} printed {len(lines)} lines of {len(wanted)}; the first difference: {wrong}"
            )


def nothing_without_a_yes(found: Evidence) -> Iterator[Violation]:
    """Each ask has one verdict, told once; each call that had to be asked about was approved by somebody."""
    told = Counter(frame["body"]["ask"] for frame in found.frames if frame["kind"] == "verdict")
    for ask in found.asks:
        if ask["verdict"] is None or told[ask["id"]] != 1:
            yield Violation(5, f"ask {ask['id']} has verdict {ask['verdict']}, told {told[ask['id']]} times")
        if ask["verdict"] == "approve" and ask["id"] not in found.approved:
            yield Violation(5, f"ask {ask['id']} counts as approved, and nobody said yes")
    if found.free:
        return
    yes = {ask["call_id"] for ask in found.asks if ask["verdict"] == "approve"}
    for row in found.effect_rows:
        if row["class"] != "pure" and row["call_id"] not in yes:
            yield Violation(5, f"call {row['call_id']} was begun without a yes")
    if len(found.effects) > len(yes):
        yield Violation(5, f"{len(found.effects)} effects, and only {len(yes)} were approved")


def an_effect_happens_once(found: Evidence) -> Iterator[Violation]:
    """Code starts once; a call's effect is there once, or not at all; said to be done, it is there."""
    for word, times in Counter(found.starts).items():
        if times > 1:
            yield Violation(6, f"the code of {word} was started {times} times")
    for line, times in Counter(found.effects).items():
        if times > 1:
            yield Violation(6, f"effect {line} happened {times} times")
    for row in found.effect_rows:
        if row["settled_at"] is None:
            yield Violation(6, f"call {row['call_id']} was begun, and what became of it was never told")
    done = sum(
        frame["kind"] == "tool" and frame["body"]["event"] == "result" and frame["body"]["status"] == "done"
        for frame in found.frames
    )
    if done > len(found.effects) + sum(ask["call_id"].endswith(".happened") for ask in found.asks):
        yield Violation(6, f"{done} calls are told as done, and {len(found.effects)} effects are there")


def work_keeps_its_place(found: Evidence) -> Iterator[Violation]:
    """No sandbox falls asleep or gets lost under a program: nobody harmed one here."""
    running: set[str] = set()
    for frame in found.frames:
        body = frame["body"]
        if frame["kind"] == "run" and body["event"] == "started" and body.get("sandbox"):
            running.add(frame["run_id"])
        elif frame["kind"] == "run" and body["event"] == "ended":
            running.discard(frame["run_id"])
        elif running and body.get("event") == "sandbox" and body.get("state") in ("asleep", "lost"):
            yield Violation(7, f"frame {frame['seq']}: the sandbox is {body['state']} under {sorted(running)}")


def one_ending(found: Evidence) -> Iterator[Violation]:
    """Every run has one `run ended`, and no program speaks behind it; every call has one result."""
    for run in runs_of(found.frames):
        if run.ends != 1:
            yield Violation(8, f"run {run.id} of cell {run.cell_id} ended {run.ends} times")
        if run.spoke_after:
            yield Violation(8, f"run {run.id} spoke behind its end, in frame {run.spoke_after}")
    calls = [frame["body"] for frame in found.frames if frame["kind"] == "tool"]
    made = Counter(body["call"] for body in calls if body["event"] == "call")
    ended = Counter(body["call"] for body in calls if body["event"] == "result")
    if made != ended or set(made.values()) - {1}:
        yield Violation(8, f"calls {sorted(made.elements())} have results {sorted(ended.elements())}")


def all_came_to_pass(found: Evidence) -> Iterator[Violation]:
    """No wish is left lying, and no run ended for another reason than its own."""
    if found.waiting_commands:
        yield Violation(0, f"commands that nobody took: {found.waiting_commands}")
    for run in runs_of(found.frames):
        if run.status == "error" and run.parent is None and run.cell_id in found.prints:
            yield Violation(0, f"run {run.id} ended as error: {run.reason}")


PROMISES = (
    stored_before_seen, one_writer, exactly_once_in_order, printed_once, nothing_without_a_yes, an_effect_happens_once,
    work_keeps_its_place, one_ending, all_came_to_pass,
)  # fmt: skip


def violations(found: Evidence) -> list[Violation]:
    """All that contradicts a promise."""
    return [Violation(one.invariant, f"{found.name}: {one.what}") for promise in PROMISES for one in promise(found)]


@dataclass
class RunStory:
    """What the journal tells of one run."""

    id: str
    cell_id: str
    parent: str | None
    text: str = ""
    ends: int = 0
    status: str | None = None
    reason: str | None = None
    spoke_after: int | None = None


def runs_of(frames: list[Frame]) -> list[RunStory]:
    """All runs, in the order in which they were asked for."""
    runs: dict[str, RunStory] = {}
    for frame in frames:
        if frame["run_id"] is None:
            continue
        body = frame["body"]
        run = runs.setdefault(frame["run_id"], RunStory(frame["run_id"], frame["cell_id"], body.get("parent")))
        if frame["kind"] == "run" and body["event"] == "ended":
            run.ends += 1
            run.status, run.reason = body["status"], body.get("reason")
        elif frame["kind"] in STARTED_BY_CODE:
            if run.ends:
                run.spoke_after = frame["seq"]
            run.text += body.get("text", "") if frame["kind"] == "output" else ""
    return list(runs.values())
