"""The harness finds what it is there to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.scale import SOAK
from tests.harness.broken import BREAKS, Break, copy_with, found
from tests.harness.promises import Evidence, Seen, violations


def frame(seq: int, kind: str, run: str | None = None, **body: object) -> dict[str, object]:
    return {"seq": seq, "kind": kind, "run_id": run, "cell_id": "c", "body": body}


def evidence() -> Evidence:
    """A run that went well, seen by one viewer."""
    frames = [
        frame(1, "session", event="resumed", epoch=1),
        frame(2, "run", "r", event="queued"),
        frame(3, "run", "r", event="started", sandbox="s"),
        frame(4, "output", "r", text="one\n", src=["s", 2]),
        frame(5, "run", "r", event="ended", status="done", src=["s", 3]),
    ]
    return Evidence(
        name="n", head=5, frames=frames, viewers=[Seen("v", 0, list(frames))], prints={"c": ["one"]}, starts=["c"],
        effects=[], asks=[], effect_rows=[], approved=set(), free=False,
    )  # fmt: skip


def test_what_went_well_is_no_violation() -> None:
    assert violations(evidence()) == []


def lost_frame(found: Evidence) -> None:
    found.viewers[0].frames[3] = frame(4, "output", "r", text="other\n")


def gap(found: Evidence) -> None:
    del found.frames[3]


def doubled(found: Evidence) -> None:
    found.viewers[0].frames.insert(2, found.viewers[0].frames[1])


def no_yes(found: Evidence) -> None:
    found.effects = ["1"]


def twice(found: Evidence) -> None:
    found.starts = ["c", "c"]


def asleep(found: Evidence) -> None:
    found.frames.insert(4, frame(5, "session", event="sandbox", state="asleep"))


def no_end(found: Evidence) -> None:
    found.frames[4]["body"] = {"event": "waiting"}


@pytest.mark.parametrize(
    ("spoil", "invariant"),
    [(lost_frame, 1), (gap, 2), (doubled, 3), (no_yes, 5), (twice, 6), (asleep, 7), (no_end, 8)],
)
def test_each_promise_is_seen_to_be_broken(spoil: object, invariant: int) -> None:
    found = evidence()
    spoil(found)  # type: ignore[operator]
    assert invariant in {one.invariant for one in violations(found)}


@pytest.mark.parametrize("broken", BREAKS, ids=lambda one: f"invariant {one.invariant}")
def test_what_is_to_be_broken_stands_where_it_is_said(broken: Break, tmp_path: Path) -> None:
    copy_with(broken, tmp_path)


@pytest.mark.skipif(not SOAK, reason="only with NIGHTBOOK_SOAK=1: some minutes each")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("broken", BREAKS, ids=lambda one: f"invariant {one.invariant}")
def test_a_program_that_breaks_it_is_found_out(broken: Break) -> None:
    assert found(broken) != []
