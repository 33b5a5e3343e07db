"""Frames over server-sent events: each once, in order, from where the reader says; else a reset, never silence."""

import threading
import time
from typing import Any

import httpx
import pytest

from e2e.api import Api, Notebook
from e2e.waiting import until
from tests.app.events import follow, frames_up_to

RENAMES = 150


@pytest.fixture
def notebook(api: Api) -> Notebook:
    """A notebook with some frames."""
    made = api.notebook(("python", "print(1)"))
    for number in range(5):
        made.ask("rename", title=f"Title {number}")
    until(lambda: made.view()["title"] == "Title 4", "five renames")
    return made


def numbers(frames: list[dict[str, Any]]) -> list[int]:
    return [frame["seq"] for frame in frames]


def test_a_frame_says_all_there_is(api: Api, notebook: Notebook) -> None:
    with follow(api.client, notebook.id) as events:
        first = next(events)
    assert (first.event, first.id) == ("frame", "1")
    assert first.data.keys() == {"seq", "at", "kind", "cell_id", "run_id", "by", "command_id", "body"}
    assert (first.data["kind"], first.data["body"]["event"], first.data["by"]) == ("session", "created", "owner")


def test_readers_at_any_place_get_every_frame_once_while_frames_are_written(api: Api, notebook: Notebook) -> None:
    """Some read from the start, some from the middle, some join late, some come back with where they were."""
    head = notebook.head()
    last = head + RENAMES
    found: dict[int, list[int]] = {}

    def read(reader: int) -> None:
        after = (0, 3, head)[reader % 3]
        with httpx.Client(base_url=api.client.base_url, headers=api.client.headers, trust_env=False) as client:
            with follow(client, notebook.id, after=after) as events:
                seen = frames_up_to(events, last if reader < 6 else head + 20)
            if reader >= 6:  # the connection is lost and made again
                with follow(client, notebook.id, last_event_id=str(seen[-1]["seq"])) as events:
                    seen += frames_up_to(events, last)
        found[reader] = numbers(seen)

    readers = [threading.Thread(target=read, args=(number,)) for number in range(9)]
    for number, reader in enumerate(readers):
        reader.start()
        for step in range(RENAMES // 9 + 1):
            notebook.ask("rename", title=f"Title {number} {step}")
    for reader in readers:
        reader.join(60)
    assert len(found) == 9
    for number, seen in found.items():
        assert seen == list(range((0, 3, head)[number % 3] + 1, seen[-1] + 1))
        assert seen[-1] >= last


def test_the_last_event_id_wins_over_after(api: Api, notebook: Notebook) -> None:
    with follow(api.client, notebook.id, after=0, last_event_id="3") as events:
        assert next(events).id == "4"


def test_a_cursor_from_the_future_gets_a_snapshot_and_goes_on_from_it(api: Api, notebook: Notebook) -> None:
    head = notebook.head()
    for query in ({"after": head + 1}, {"after": 2**62}, {"last_event_id": str(10**17)}):
        with follow(api.client, notebook.id, **query) as events:
            reset = next(events)
            assert reset.event == "reset"
            assert reset.id == str(reset.data["seq"]) == str(notebook.head())
            assert reset.data["title"] == notebook.view()["title"]
            assert [cell["id"] for cell in reset.data["cells"]] == notebook.cells
            notebook.ask("comment", text="what comes after")
            following = frames_up_to(events, int(reset.id) + 1)
            assert numbers(following) == [int(reset.id) + 1]


def test_a_cursor_at_the_head_waits_for_what_comes(api: Api, notebook: Notebook) -> None:
    with follow(api.client, notebook.id, after=notebook.head()) as events:
        notebook.ask("comment", text="here")
        assert next(events).data["body"]["text"] == "here"


@pytest.mark.parametrize("after", ["-1", "one", "1.5", "", "9223372036854775808", "1e3", "NaN"])
@pytest.mark.parametrize("follow", ["true", "false"])
def test_a_cursor_that_is_none_is_a_422(api: Api, notebook: Notebook, after: str, follow: str) -> None:
    path = f"/api/v1/notebooks/{notebook.id}/frames"
    answer = api.client.get(path, params={"after": after, "follow": follow})
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == "after"


def test_a_last_event_id_that_is_none_is_a_422(api: Api, notebook: Notebook) -> None:
    for value in ("x", "-1", "1" * 30):
        answer = api.client.get(f"/api/v1/notebooks/{notebook.id}/frames", headers={"Last-Event-ID": value})
        assert answer.status_code == 422, value
        assert answer.json()["errors"][0]["field"] == "last-event-id"


def test_silence_is_filled_with_heartbeats_that_a_script_can_see(api: Api, notebook: Notebook) -> None:
    head = notebook.head()
    with follow(api.client, notebook.id, after=head) as events:
        began = time.monotonic()
        beats = [next(events), next(events)]
        took = time.monotonic() - began
    assert [beat.event for beat in beats] == ["heartbeat", "heartbeat"]
    assert beats[0].id == "", "a heartbeat must not move the cursor that a browser keeps"
    assert beats[0].data == {"seq": head, "engine": "here"}
    assert 7 < took < 20


def test_a_run_that_is_over_has_its_end_for_whoever_comes_later(api: Api, notebook: Notebook) -> None:
    notebook.run(notebook.cells[0])
    notebook.wait(notebook.cells[0], "done")
    with follow(api.client, notebook.id, after=0) as events:
        seen = frames_up_to(events, notebook.head())
    ends = [frame for frame in seen if frame["kind"] == "run" and frame["body"]["event"] == "ended"]
    assert [frame["body"]["status"] for frame in ends] == ["done"]


def test_pages_of_at_most_a_thousand(api: Api) -> None:
    notebook = api.notebook(
        ("python", "import sys\nfor n in range(1100): print(n, file=(sys.stdout, sys.stderr)[n % 2])")
    )
    notebook.run(notebook.cells[0])
    notebook.wait(notebook.cells[0], "done")
    head = notebook.head()
    path = f"/api/v1/notebooks/{notebook.id}/frames"
    seen: list[int] = []
    while True:
        page = api.client.get(path, params={"after": seen[-1] if seen else 0, "follow": False}).json()
        assert page["head"] >= head
        assert len(page["frames"]) <= 1000
        if not page["frames"]:
            break
        seen += numbers(page["frames"])
    assert seen == list(range(1, seen[-1] + 1))
    assert seen[-1] >= head
    shown = [item["text"] for item in notebook.cell(notebook.cells[0])["output"]]
    assert "".join(shown).split() == [str(number) for number in range(1100)]


def test_a_reader_that_reads_nothing_holds_nobody_up(api: Api, notebook: Notebook) -> None:
    flood = "for n in range(40): print('z' * 50_000)"
    notebook.ask("edit_cell", cell_id=notebook.cells[0], source=flood)
    with (
        follow(api.client, notebook.id, after=0) as stalled,
        follow(api.client, notebook.id, after=notebook.head()) as events,
    ):
        notebook.run(notebook.cells[0])
        for event in events:
            body = event.data.get("body", {})
            if body.get("event") == "ended":
                assert body["status"] == "done"
                break
        last = event.data["seq"]
        assert numbers(frames_up_to(stalled, last)) == list(range(1, last + 1)), "and gets every frame once, later"


def test_a_reader_that_goes_is_forgotten_and_nothing_stops(api: Api, notebook: Notebook) -> None:
    notebook.ask("edit_cell", cell_id=notebook.cells[0], source="import time; time.sleep(1); print('through')")
    notebook.run(notebook.cells[0])
    for _ in range(20):
        with follow(api.client, notebook.id, after=0) as events:
            next(events)
    cell = notebook.wait(notebook.cells[0], "done")
    assert cell["output"][0]["text"] == "through\n"
