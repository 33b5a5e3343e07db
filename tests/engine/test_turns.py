"""Turns in a real worker: real database, real sandboxes; what they do is read back as a viewer would read it."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from engine.agent.calls import KERNEL_GONE, Reply, Thought
from engine.broker import BrokerConfig
from engine.notebook import Notebook
from engine.store import asking, asks
from tests.engine.engine_run import Hand, end_sandboxes, text_of, worker
from tests.engine.scripted import Scripted, calls

FENCE = "```"


def block(word: str, *lines: str) -> str:
    return "\n".join([f"{FENCE}{word}", *lines, FENCE])


def book(*parts: str) -> str:
    return "\n\n".join(parts)


def items(notebook: Notebook, cell: str, t: str) -> list[dict[str, Any]]:
    return [item for item in notebook.cells[cell].story.items if item["t"] == t]


def statuses(notebook: Notebook, cell: str) -> list[str]:
    return [item["status"] for item in items(notebook, cell, "tool")]


def open_asks(notebook: Notebook, cell: str) -> list[dict[str, Any]]:
    return notebook.cells[cell].story.asks


async def free(hand: Hand, *cells: tuple[str, str]) -> tuple[str, list[str]]:
    """A notebook in which agents may do anything unasked."""
    notebook_id, made = await hand.create(*cells)
    await hand.ask(notebook_id, "set_policy", policy="all")
    return notebook_id, made


async def here(hand: Hand, notebook_id: str) -> None:
    """An operator looks on, for as long as a presence row lasts."""
    await hand.journal.query(asking.show_presence, "w", [(notebook_id, "ada", True)])


async def answer(hand: Hand, ask_id: str, verdict: str, message: str | None = None) -> Any:
    return await hand.journal.query(asks.decide, ask_id, verdict, "once", message, "ada")


async def run(hand: Hand, notebook_id: str, cell: str, status: str, seconds: float = 30.0) -> Notebook:
    """Runs the cell to its end."""
    await hand.ask(notebook_id, "run_cell", cell_id=cell)
    assert await hand.ended(notebook_id, cell, seconds) == status
    return await hand.notebook(notebook_id)


async def whole(hand: Hand, notebook_id: str) -> None:
    """Every run of the journal has one end, every call one result, and seq has no gap."""
    frames = await hand.frames(notebook_id)
    assert [frame.seq for frame in frames] == list(range(1, len(frames) + 1))
    for kind, first, last, name in (("run", "queued", "ended", "run_id"), ("tool", "call", "result", "call")):

        def of(event: str, kind: str = kind, name: str = name) -> Iterator[str]:
            for frame in frames:
                if frame.kind == kind and frame.body["event"] == event:
                    yield str(frame.run_id if name == "run_id" else frame.body[name])

        assert sorted(of(first)) == sorted(of(last)), kind
    assert not await hand.sql("SELECT * FROM effect WHERE settled_at IS NULL")
    assert not await hand.sql("SELECT * FROM ask WHERE verdict IS NULL OR NOT told")


@pytest.mark.trio
async def test_a_turn_runs_its_steps_sees_what_stands_above_and_ends(database: str, tmp_path: Path) -> None:
    source = book("First look.", block("sh", "echo hello; echo world"), block("deliver", "It is **done**."))
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await free(hand, ("agent", source))
        notebook = await run(hand, notebook_id, cell, "done")
        story = notebook.cells[cell].story
        assert [item["t"] for item in story.items] == ["request", "thought", "tool", "tool", "delivered", "done"]
        shell = items(notebook, cell, "tool")[0]
        assert (shell["status"], shell["text"]) == ("done", "hello\nworld\n")
        assert items(notebook, cell, "delivered")[0]["text"] == "It is **done**."
        assert items(notebook, cell, "done")[0]["rounds"] == 2
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_what_cannot_be_read_is_told_with_its_line_before_anything_runs(database: str, tmp_path: Path) -> None:
    source = book(block("sh", "touch made"), block("frobnicate", "x"))
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await free(hand, ("agent", source))
        notebook = await run(hand, notebook_id, cell, "error")
        [error] = items(notebook, cell, "error")
        assert error["line"] == 5
        assert "frobnicate" in error["reason"]
        assert items(notebook, cell, "tool") == []
        assert not (tmp_path / "workspaces" / notebook_id / "made").exists()


@pytest.mark.trio
async def test_a_failing_step_ends_the_turn_and_can_be_gone_on_with(database: str, tmp_path: Path) -> None:
    source = book(
        block("sh", "echo one >> log"),
        block("sh", "test -e ready || { echo not ready; exit 3; }"),
        block("python", "open('log', 'a').write('three\\n')"),
    )
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await free(hand, ("agent", source))
        notebook = await run(hand, notebook_id, cell, "error")
        [error] = items(notebook, cell, "error")
        assert (error["step"], error["line"]) == (2, 5)
        assert "exit status 3" in error["reason"]
        assert notebook.cells[cell].story.resume_step == 2
        folder = tmp_path / "workspaces" / notebook_id
        (folder / "ready").touch()
        await hand.ask(notebook_id, "go_on", cell_id=cell)
        notebook = await hand.until(notebook_id, lambda n: n.cells[cell].state == "done", 30)
        assert (folder / "log").read_text() == "one\nthree\n"
        assert statuses(notebook, cell) == ["done", "error", "done", "done"]
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_a_question_ends_the_turn_and_its_answer_goes_on(database: str, tmp_path: Path) -> None:
    source = book(block("check [ ] asked"), block("ask Which colour?"), block("check asked"))
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("agent", source))
        notebook = await run(hand, notebook_id, cell, "done")
        assert (notebook.cells[cell].story.waits_for, notebook.waiting) == ("answer", 1)
        assert notebook.checks == {"asked": False}
        await hand.ask(notebook_id, "answer_turn", cell_id=cell, text="green")
        notebook = await hand.until(notebook_id, lambda n: n.checks == {"asked": True} and not n.runs)
        assert [item["text"] for item in items(notebook, cell, "request")][1:] == ["green"]
        assert notebook.waiting == 0
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_a_denied_step_does_nothing_and_going_on_approves_it_once(database: str, tmp_path: Path) -> None:
    source = book("Needed.", block("sh", "echo made >> made"), block("sh", "echo more >> made"))
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("agent", source))
        await here(hand, notebook_id)
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        notebook = await hand.until(notebook_id, lambda n: open_asks(n, cell))
        [ask] = open_asks(notebook, cell)
        assert (ask["command"], ask["why"], notebook.state) == ("echo made >> made", "Needed.", "waiting")
        assert await answer(hand, ask["ask"], "deny", "not now")
        assert await hand.ended(notebook_id, cell) == "error"
        notebook = await hand.notebook(notebook_id)
        made = tmp_path / "workspaces" / notebook_id / "made"
        assert statuses(notebook, cell) == ["denied"]
        assert "not now" in items(notebook, cell, "error")[0]["reason"]
        assert not made.exists()
        await hand.ask(notebook_id, "go_on", cell_id=cell)
        more = "echo more >> made"  # the first is approved by going on, the next is not
        notebook = await hand.until(notebook_id, lambda n: [a for a in open_asks(n, cell) if a["command"] == more])
        [second] = open_asks(notebook, cell)
        assert made.read_text() == "made\n"
        await answer(hand, second["ask"], "approve")
        assert await hand.ended(notebook_id, cell) == "done"
        assert made.read_text() == "made\nmore\n"
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_with_nobody_there_it_is_denied_and_the_model_is_told_why(database: str, tmp_path: Path) -> None:
    model = Scripted(lambda c: [Reply()] if c.exchanges else [calls(("shell", {"command": "touch made"}))])
    async with worker(database, tmp_path, broker=BrokerConfig(300, 0.3), model=model) as hand:
        notebook_id, [cell] = await hand.create(("agent", "do it"))
        notebook = await run(hand, notebook_id, cell, "done")
        [ask] = items(notebook, cell, "ask")
        assert (ask["verdict"], ask["reason"]) == ("deny", "no_operator")
        [result] = model.seen[-1].exchanges[0].results.values()
        assert result.status == "denied"
        assert "decision, not a failure" in result.text
        assert not (tmp_path / "workspaces" / notebook_id / "made").exists()
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_stop_is_true_when_all_that_the_turn_started_is_gone(database: str, tmp_path: Path) -> None:
    """ "Cancelled" in a second while the job runs on for an hour must not be."""
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell, other] = await free(
            hand, ("agent", block("sh", "echo on; sleep 600")), ("python", "print(6 * 7)")
        )
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        notebook = await hand.until(notebook_id, lambda n: "on" in text_of(n, cell))
        await hand.ask(notebook_id, "stop", run_id=notebook.cells[cell].run_id)
        await hand.ask(notebook_id, "run_cell", cell_id=other)
        assert await hand.ended(notebook_id, cell) == "cancelled"
        notebook = await hand.notebook(notebook_id)
        assert statuses(notebook, cell) == ["cancelled"]
        assert notebook.cells[cell].story.resume_step == 1
        frames = await hand.frames(notebook_id)
        ends = [frame.run_id for frame in frames if frame.kind == "run" and frame.body["event"] == "ended"]
        assert ends.index(notebook.cells[cell].run_id) > ends.index(items(notebook, cell, "tool")[0]["output"])
        assert await hand.ended(notebook_id, other) == "done"
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_each_of_several_open_calls_has_its_result_when_the_turn_is_stopped(
    database: str, tmp_path: Path
) -> None:
    """Else no model would take the conversation up again: it wants a result for each call that it made."""
    wanted = calls(*[("shell", {"command": f"echo {n}; sleep 600"}) for n in range(3)])
    model = Scripted(lambda c: [Reply()] if c.exchanges else [wanted])
    async with worker(database, tmp_path, model=model) as hand:
        notebook_id, [cell] = await free(hand, ("agent", "go"))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await hand.until(notebook_id, lambda n: "0" in text_of(n, cell))
        await hand.ask(notebook_id, "stop", cell_id=cell)
        assert await hand.ended(notebook_id, cell) == "cancelled"
        assert statuses(await hand.notebook(notebook_id), cell) == ["cancelled"] * 3
        await hand.ask(notebook_id, "follow_up", cell_id=cell, text="and now?")
        await hand.until(notebook_id, lambda n: n.cells[cell].state == "done")
        [exchange] = model.seen[-1].exchanges
        assert [result.status for result in exchange.results.values()] == ["cancelled"] * 3
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_stop_while_an_ask_waits_denies_it_as_cancelled(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("agent", block("sh", "touch made")))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await hand.until(notebook_id, lambda n: open_asks(n, cell))
        await hand.ask(notebook_id, "stop", cell_id=cell)
        assert await hand.ended(notebook_id, cell) == "cancelled"
        notebook = await hand.notebook(notebook_id)
        assert [(ask["verdict"], ask["reason"]) for ask in items(notebook, cell, "ask")] == [("deny", "cancelled")]
        assert statuses(notebook, cell) == ["cancelled"]
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_a_command_that_never_ends_meets_the_deadline(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path, turn_seconds=2.0) as hand:
        notebook_id, [cell] = await free(hand, ("agent", block("sh", "sleep 600 & wait")))
        notebook = await run(hand, notebook_id, cell, "error")
        assert "2 seconds of working time" in (notebook.cells[cell].reason or "")
        assert statuses(notebook, cell) == ["cancelled"]
        assert notebook.runs == {}
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_working_time_stands_still_while_a_person_is_asked(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path, turn_seconds=4.0) as hand:
        notebook_id, [cell] = await hand.create(("agent", block("sh", "echo ok")))
        await here(hand, notebook_id)
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        notebook = await hand.until(notebook_id, lambda n: open_asks(n, cell))
        await trio.sleep(4.5)  # longer than the turn has
        await answer(hand, open_asks(notebook, cell)[0]["ask"], "approve")
        assert await hand.ended(notebook_id, cell) == "done"


@pytest.mark.trio
async def test_code_of_a_turn_has_no_stdin(database: str, tmp_path: Path) -> None:
    source = book(
        block("sh", "read x; echo got:$x; test -t 0 || echo no terminal; cat < /dev/tty || true"),
        block("python", "input('name? ')"),
    )
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await free(hand, ("agent", source))
        notebook = await run(hand, notebook_id, cell, "error")
        shell, python = items(notebook, cell, "tool")
        assert "got:\nno terminal" in shell["text"]
        assert shell["status"] == "done"
        assert "EOFError" in python["text"]


@pytest.mark.trio
async def test_a_turn_and_the_cells_share_names_and_the_lane(database: str, tmp_path: Path) -> None:
    """A call waits for the cell that runs, goes before what is queued, and a person runs cells while a turn thinks."""
    source = book(block("python", "found = start + 1", "print('call', found)"))
    async with worker(database, tmp_path) as hand:
        notebook_id, [slow, agent, queued] = await free(
            hand,
            (
                "python",
                "import os, time\nstart = 1\nprint('on', flush=True)\nwhile not os.path.exists('go'): time.sleep(.02)",
            ),
            ("agent", source),
            ("python", "print(found)"),
        )
        await hand.ask(notebook_id, "run_cell", cell_id=slow)
        await hand.until(notebook_id, lambda n: "on" in text_of(n, slow))
        await hand.ask(notebook_id, "run_cell", cell_id=queued)
        await hand.ask(notebook_id, "run_cell", cell_id=agent)
        await hand.until(notebook_id, lambda n: any(run.parent for run in n.runs.values()))
        (tmp_path / "workspaces" / notebook_id / "go").touch()
        assert await hand.ended(notebook_id, queued) == "done"
        notebook = await hand.notebook(notebook_id)
        assert text_of(notebook, queued) == "2\n"
        assert await hand.ended(notebook_id, agent) == "done"
        assert "call 2" in text_of(notebook, agent), "pages see what a call prints as what its cell shows"
        assert notebook.count == 2, "a call of a turn is no execution of a cell"


@pytest.mark.trio
async def test_messages_go_in_at_the_next_round_and_can_be_withdrawn(database: str, tmp_path: Path) -> None:
    """A queued message must not be lost, and one taken back must not go in."""
    hold = trio.Event()

    class Holding(Scripted):
        async def reply(self, conversation: Any, tools: Any) -> Any:
            if not conversation.exchanges:
                await hold.wait()
            async for item in super().reply(conversation, tools):
                yield item

    model = Holding(lambda c: [calls(("progress", {"text": "on"}))] if not c.exchanges else [Thought("bye"), Reply()])
    async with worker(database, tmp_path, model=model) as hand:
        notebook_id, [cell] = await hand.create(("agent", "talk"))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await hand.until(notebook_id, lambda n: n.cells[cell].story.round == 1)
        await hand.ask(notebook_id, "follow_up", id="keep", cell_id=cell, text="and the tests")
        await hand.ask(notebook_id, "follow_up", id="drop", cell_id=cell, text="never mind")
        await hand.ask(notebook_id, "withdraw", message="drop")
        await hand.until(notebook_id, lambda n: [m["message"] for m in n.cells[cell].story.messages] == ["keep"])
        hold.set()
        assert await hand.ended(notebook_id, cell) == "done"
        assert [list(exchange.messages) for exchange in model.seen[-1].exchanges] == [["and the tests"]]
        await hand.ask(notebook_id, "follow_up", id="later", cell_id=cell, text="one more thing")
        await hand.until(
            notebook_id, lambda n: n.cells[cell].story.run_id != "" and len(model.seen) == 3 and not n.runs
        )
        assert [list(exchange.messages) for exchange in model.seen[-1].exchanges][-1] == ["one more thing"]
        notebook = await hand.notebook(notebook_id)
        assert [(m["message"], m["event"]) for m in items(notebook, cell, "message")] == [
            ("keep", "taken"),
            ("drop", "withdrawn"),
        ]


@pytest.mark.trio
async def test_a_model_that_fails_is_asked_again_and_not_for_ever(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.agent.bounds.PAUSE_SECONDS", (0.0, 0.0))
    once = iter([RuntimeError("overloaded")])

    def script(conversation: Any) -> Any:
        if conversation.request == "hopeless":
            return [Thought("half a"), RuntimeError("no such model")]
        return [Thought("half"), error] if (error := next(once, None)) else [Thought("whole"), Reply()]

    async with worker(database, tmp_path, model=Scripted(script)) as hand:
        notebook_id, [hopeless, other] = await hand.create(("agent", "hopeless"), ("agent", "fine"))
        notebook = await run(hand, notebook_id, hopeless, "error")
        assert "3 times" in (notebook.cells[hopeless].reason or "")
        assert "no such model" in (notebook.cells[hopeless].reason or "")
        notebook = await run(hand, notebook_id, other, "done")
        assert [item["text"] for item in items(notebook, other, "thought")] == ["whole"], "what broke off is dropped"


@pytest.mark.trio
async def test_a_runaway_that_repeats_one_failing_call_is_ended_and_told(database: str, tmp_path: Path) -> None:
    model = Scripted(lambda c: [calls(("read_file", {"path": "missing"}))])
    async with worker(database, tmp_path, model=model) as hand:
        notebook_id, [cell] = await hand.create(("agent", "go"))
        notebook = await run(hand, notebook_id, cell, "error")
        assert "read_file failed 3 times in a row" in (notebook.cells[cell].reason or "")
        assert len(model.seen) == 3


@pytest.mark.trio
async def test_bad_calls_are_told_to_the_model_and_touch_nothing(database: str, tmp_path: Path) -> None:
    def script(conversation: Any) -> Any:
        if conversation.exchanges:
            return [Reply()]
        return [calls(("nonsense", {}), ("shell", {"cmd": "ls"}), ("write_file", {"path": "../out", "content": ""}))]

    model = Scripted(script)
    async with worker(database, tmp_path, model=model) as hand:
        notebook_id, [cell] = await free(hand, ("agent", "go"))
        await run(hand, notebook_id, cell, "done")
        results = list(model.seen[-1].exchanges[0].results.values())
        assert [result.status for result in results] == ["error"] * 3
        assert "there is no tool 'nonsense'" in results[0].text
        assert "command" in results[1].text
        await whole(hand, notebook_id)


# A worker that goes and another that comes: what a turn knows is in the database


@pytest.mark.trio
async def test_a_command_that_ran_on_without_a_worker_is_not_started_again(database: str, tmp_path: Path) -> None:
    source = book(
        block("sh", "echo start >> log; until test -e go; do sleep .05; done; echo end"), block("sh", "echo 2 >> log")
    )
    async with worker(database, tmp_path, keep=True) as hand:
        notebook_id, [cell] = await free(hand, ("agent", source))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        folder = tmp_path / "workspaces" / notebook_id
        with trio.fail_after(20):
            while not (folder / "log").exists():
                await trio.sleep(0.02)
    (folder / "go").touch()
    async with worker(database, tmp_path) as hand:
        assert await hand.ended(notebook_id, cell) == "done"
        notebook = await hand.notebook(notebook_id)
        assert items(notebook, cell, "tool")[0]["text"] == "end\n"
        assert (folder / "log").read_text() == "start\n2\n"
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_a_command_that_was_in_line_when_its_worker_went_is_begun_by_the_next(
    database: str, tmp_path: Path
) -> None:
    """What it is to run is known to the turn alone, which comes to it only after the engine looked at its lane."""
    async with worker(database, tmp_path, keep=True) as hand:
        notebook_id, [cell] = await free(hand, ("agent", book(block("sh", "echo 1 >> log"))))
        folder = tmp_path / "sandboxes" / notebook_id
        folder.mkdir(parents=True)
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # no sandbox can start
            await hand.ask(notebook_id, "run_cell", cell_id=cell)
            await hand.until(
                notebook_id, lambda n: any(one.parent and one.state == "queued" for one in n.runs.values())
            )
    async with worker(database, tmp_path) as hand:
        assert await hand.ended(notebook_id, cell) == "done"
        assert (tmp_path / "workspaces" / notebook_id / "log").read_text() == "1\n"
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_a_command_whose_sandbox_went_with_the_worker_is_told_as_unknown(database: str, tmp_path: Path) -> None:
    source = book(block("sh", "echo start >> log; sleep 600"), block("sh", "echo next >> log"))
    quick = BrokerConfig(300, 0.3)
    async with worker(database, tmp_path, broker=quick) as hand:  # its sandbox is ended behind it
        notebook_id, [cell] = await free(hand, ("agent", source))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        folder = tmp_path / "workspaces" / notebook_id
        with trio.fail_after(20):
            while not (folder / "log").exists():
                await trio.sleep(0.02)
    async with worker(database, tmp_path, broker=quick) as hand:
        assert await hand.ended(notebook_id, cell) == "error"
        notebook = await hand.notebook(notebook_id)
        assert statuses(notebook, cell) == ["unknown"]
        assert "Did this happen?" in items(notebook, cell, "ask")[0]["title"]
        assert (folder / "log").read_text() == "start\n", "it is not silently done again, nor passed over"
        assert notebook.cells[cell].story.resume_step == 1
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_a_half_streamed_reply_is_dropped_and_a_finished_one_never_asked_for_again(
    database: str, tmp_path: Path
) -> None:
    def first(conversation: Any) -> Any:
        if not conversation.exchanges:
            return [Thought("one"), calls(("python", {"code": "kept = 1"}))]
        return [Thought("half a thought"), 600.0]

    async with worker(database, tmp_path, model=Scripted(first)) as hand:
        notebook_id, [cell] = await free(hand, ("agent", "think"))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await hand.until(notebook_id, lambda n: len(items(n, cell, "thought")) == 2, 30)
    second = Scripted(lambda c: [Thought("whole"), Reply()])
    async with worker(database, tmp_path, model=second) as hand:
        assert await hand.ended(notebook_id, cell) == "done"
        notebook = await hand.notebook(notebook_id)
        assert [item["text"] for item in items(notebook, cell, "thought")] == ["one", "whole"]
        assert notebook.cells[cell].story.attempt == 2
        assert len(second.seen) == 1
        retrying = [frame.body for frame in await hand.frames(notebook_id) if frame.body.get("event") == "retrying"]
        assert len(retrying) == 1
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_a_turn_is_told_when_the_variables_are_gone(database: str, tmp_path: Path) -> None:
    wait = trio.Event()

    class Slow(Scripted):
        async def reply(self, conversation: Any, tools: Any) -> Any:
            if len(conversation.exchanges) == 2:
                wait.set()
                await trio.sleep_forever()
            async for item in super().reply(conversation, tools):
                yield item

    first = Slow(lambda c: [calls(("python", {"code": "kept = 1"}))])
    async with worker(database, tmp_path, model=first) as hand:
        notebook_id, [cell] = await free(hand, ("agent", "remember"))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        with trio.fail_after(30):
            await wait.wait()
    second = Scripted(lambda c: [Reply()] if len(c.exchanges) > 2 else [calls(("progress", {"text": "on"}))])
    async with worker(database, tmp_path, model=second) as hand:
        assert await hand.ended(notebook_id, cell) == "done"
        assert KERNEL_GONE in [text for exchange in second.seen[-1].exchanges for text in exchange.messages]


@pytest.mark.trio
async def test_an_ask_outlives_the_worker_and_its_answer_counts(database: str, tmp_path: Path) -> None:
    """Approved while no worker lived: it runs once, without a second prompt."""
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await hand.create(("agent", block("sh", "echo made >> made")))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        notebook = await hand.until(notebook_id, lambda n: open_asks(n, cell))
        await answer(hand, open_asks(notebook, cell)[0]["ask"], "approve")
    async with worker(database, tmp_path) as hand:
        assert await hand.ended(notebook_id, cell) == "done"
        notebook = await hand.notebook(notebook_id)
        assert len(items(notebook, cell, "ask")) == 1
        assert (tmp_path / "workspaces" / notebook_id / "made").read_text() == "made\n"
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_a_parked_turn_needs_no_worker_and_goes_on_when_it_is_decided(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.session.LINGER_SECONDS", 0.2)
    async with worker(database, tmp_path, poll=0.2) as hand:
        notebook_id, [cell] = await hand.create(("agent", block("sh", "echo made >> made")))
        await here(hand, notebook_id)
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        notebook = await hand.until(notebook_id, lambda n: open_asks(n, cell))
        ask_id = open_asks(notebook, cell)[0]["ask"]
        await hand.journal.query(asks.park, ask_id)
        await hand.until(notebook_id, lambda n: any(run.parked for run in n.runs.values()))
        with trio.fail_after(20):
            while (await hand.sql("SELECT owner FROM notebook"))[0]["owner"] is not None:
                await trio.sleep(0.02)
        notebook = await hand.notebook(notebook_id)
        assert notebook.cells[cell].state == "waiting"
        await answer(hand, ask_id, "approve")
        assert await hand.ended(notebook_id, cell) == "done"
        assert (tmp_path / "workspaces" / notebook_id / "made").read_text() == "made\n"
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_a_turn_that_is_being_stopped_when_its_worker_goes_is_stopped_by_the_next(
    database: str, tmp_path: Path
) -> None:
    stubborn = "trap '' INT TERM; echo on; while true; do sleep 1; done"
    async with worker(database, tmp_path, keep=True) as hand:
        notebook_id, [cell] = await free(hand, ("agent", block("sh", stubborn)))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await hand.until(notebook_id, lambda n: "on" in text_of(n, cell))
        await hand.ask(notebook_id, "stop", cell_id=cell)
        await hand.until(notebook_id, lambda n: n.cells[cell].state == "cancelling")
    try:
        async with worker(database, tmp_path) as hand:
            assert await hand.ended(notebook_id, cell) == "cancelled"
            await whole(hand, notebook_id)
    finally:
        await end_sandboxes(tmp_path)


# What went wrong elsewhere


@pytest.mark.trio
async def test_turns_tell_each_their_own_story_one_after_the_other(database: str, tmp_path: Path) -> None:
    """One conversation's stream must not show another turn's text, nor a stopped turn's steps the next one's."""

    def script(conversation: Any) -> Any:
        if conversation.request == "stuck":
            return [Thought("stuck"), 600.0]
        return [Thought(f"about {conversation.request}"), 0.1, Thought(", more"), Reply()]

    model = Scripted(script)
    async with worker(database, tmp_path, model=model) as hand:
        notebook_id, [one, two] = await hand.create(("agent", "one"), ("agent", "two"))
        await hand.ask(notebook_id, "run_cell", cell_id=one)
        await hand.ask(notebook_id, "run_cell", cell_id=two)
        assert await hand.ended(notebook_id, two) == "done"
        notebook = await hand.notebook(notebook_id)
        assert [item["text"] for item in items(notebook, one, "thought")] == ["about one, more"]
        assert [item["text"] for item in items(notebook, two, "thought")] == ["about two, more"]
        await hand.ask(notebook_id, "edit_cell", cell_id=one, source="stuck")
        await hand.ask(notebook_id, "run_cell", cell_id=one)
        await hand.until(notebook_id, lambda n: [item["text"] for item in items(n, one, "thought")] == ["stuck"])
        await hand.ask(notebook_id, "stop", run_id=(await hand.notebook(notebook_id)).cells[one].run_id)
        assert await hand.ended(notebook_id, one) == "cancelled"
        await hand.ask(notebook_id, "edit_cell", cell_id=one, source="again")
        await hand.ask(notebook_id, "run_cell", cell_id=one)
        await hand.until(notebook_id, lambda n: n.cells[one].state == "done")
        notebook = await hand.notebook(notebook_id)
        assert [item["t"] for item in notebook.cells[one].story.items] == ["request", "thought", "done"]
        assert model.seen[-1].exchanges == (), "a new run is a new conversation"
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_nothing_ends_a_turn_because_it_waits_for_a_person(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.session.LINGER_SECONDS", 0.1)
    limits: dict[str, Any] = {"sandbox_idle": 0.1, "kernel_idle": 0.1, "poll": 0.1, "turn_seconds": 20.0}
    async with worker(database, tmp_path, **limits) as hand:
        notebook_id, [cell] = await hand.create(("agent", block("sh", "echo made > made")))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        notebook = await hand.until(notebook_id, lambda n: open_asks(n, cell))
        await trio.sleep(1.5)  # many times every limit that there is
        assert (await hand.notebook(notebook_id)).cells[cell].state == "waiting"
        await answer(hand, open_asks(notebook, cell)[0]["ask"], "approve")
        assert await hand.ended(notebook_id, cell) == "done"


@pytest.mark.trio
async def test_a_queued_message_and_a_withdrawn_one_survive_the_worker(database: str, tmp_path: Path) -> None:
    stuck = Scripted(lambda c: [600.0])
    async with worker(database, tmp_path, model=stuck) as hand:
        notebook_id, [cell] = await hand.create(("agent", "talk"))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await hand.until(notebook_id, lambda n: n.cells[cell].story.round == 1)
        await hand.ask(notebook_id, "follow_up", id="keep", cell_id=cell, text="kept")
        await hand.ask(notebook_id, "follow_up", id="drop", cell_id=cell, text="dropped")
        await hand.until(notebook_id, lambda n: len(n.cells[cell].story.messages) == 2)
        await hand.ask(notebook_id, "withdraw", message="drop")
        await hand.until(notebook_id, lambda n: len(n.cells[cell].story.messages) == 1)
    model = Scripted(lambda c: [Reply()])
    async with worker(database, tmp_path, model=model) as hand:
        assert await hand.ended(notebook_id, cell) == "done"
        assert [list(exchange.messages) for exchange in model.seen[-1].exchanges] == [["kept"]]
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_run_all_waits_for_an_agent_cell_and_stops_at_its_error(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, [_one, agent, two] = await free(
            hand, ("python", "x = 1"), ("agent", block("python", "x += 1")), ("python", "print(x)")
        )
        await hand.ask(notebook_id, "run_all")
        assert await hand.ended(notebook_id, two) == "done"
        assert text_of(await hand.notebook(notebook_id), two) == "2\n"
        await hand.ask(notebook_id, "edit_cell", cell_id=agent, source=block("sh", "exit 1"))
        await hand.ask(notebook_id, "run_all")
        notebook = await hand.until(notebook_id, lambda n: n.cells[two].state == "cancelled", 30)
        assert notebook.cells[agent].state == "error"
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_nothing_said_is_lost_when_a_reply_ends_while_it_is_being_stored(database: str, tmp_path: Path) -> None:
    def script(conversation: Any) -> Any:
        number = len(conversation.exchanges)
        said = [Thought(f"{number}a "), 0.0, Thought(f"{number}b "), 0.0]
        return [*said, Reply() if number == 20 else calls(("progress", {"text": "on"}))]

    async with worker(database, tmp_path, model=Scripted(script)) as hand:
        notebook_id, [cell] = await hand.create(("agent", "talk"))
        notebook = await run(hand, notebook_id, cell, "done", 60)
        said = "".join(item["text"] for item in items(notebook, cell, "thought"))
        assert said == "".join(f"{number}a {number}b " for number in range(21))


@pytest.mark.trio
async def test_a_turn_is_told_of_a_kernel_that_a_person_restarted(database: str, tmp_path: Path) -> None:
    hold = trio.Event()

    class Holding(Scripted):
        async def reply(self, conversation: Any, tools: Any) -> Any:
            if len(conversation.exchanges) == 1:
                await hold.wait()
            async for item in super().reply(conversation, tools):
                yield item

    steps = [calls(("python", {"code": "x = 1"})), calls(("python", {"code": "print('x' in globals())"})), Reply()]
    model = Holding(lambda c: [steps[len(c.exchanges)]])
    async with worker(database, tmp_path, model=model) as hand:
        notebook_id, [cell] = await free(hand, ("agent", "go"))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await hand.until(notebook_id, lambda n: n.cells[cell].story.round == 2, 30)
        lives = (await hand.notebook(notebook_id)).sandbox.lives
        await hand.ask(notebook_id, "restart_kernel")
        await hand.until(notebook_id, lambda n: n.sandbox.lives > lives, 30)
        hold.set()
        assert await hand.ended(notebook_id, cell, 30) == "done"
        first, second = model.seen[-1].exchanges
        assert second.results["call-0"].text == "False\n"
        assert KERNEL_GONE in [*first.messages, *second.messages]


@pytest.mark.trio
async def test_a_deleted_cell_takes_its_turn_with_it_and_leaves_the_lane_free(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, [gone, next_] = await free(
            hand, ("agent", block("sh", "echo on; sleep 600")), ("agent", block("check still here"))
        )
        await hand.ask(notebook_id, "run_cell", cell_id=gone)
        await hand.until(notebook_id, lambda n: "on" in text_of(n, gone))
        await hand.ask(notebook_id, "delete_cell", cell_id=gone)
        await hand.ask(notebook_id, "run_cell", cell_id=next_)
        assert await hand.ended(notebook_id, next_) == "done"
        assert (await hand.notebook(notebook_id)).runs == {}
        await whole(hand, notebook_id)


@pytest.mark.trio
async def test_a_turn_that_nightbook_itself_fails_ends_and_takes_nothing_with_it(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.agent.standing import Standing

    async def broken(standing: Standing) -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setattr(Standing, "load", broken)
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell, other] = await free(hand, ("agent", block("check x")), ("python", "print('fine')"))
        notebook = await run(hand, notebook_id, cell, "error")
        assert "see its log" in (notebook.cells[cell].reason or "")
        await run(hand, notebook_id, other, "done")


@pytest.mark.trio
async def test_a_sandbox_that_dies_under_a_call_leaves_its_outcome_unknown(database: str, tmp_path: Path) -> None:
    """A person who is there is asked; what they say is what the turn goes on with."""
    source = book(block("python", "print('on', flush=True)", "import time; time.sleep(600)"), block("check on"))
    async with worker(database, tmp_path) as hand:
        notebook_id, [cell] = await free(hand, ("agent", source))
        await here(hand, notebook_id)
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await hand.until(notebook_id, lambda n: "on" in text_of(n, cell))
        assert hand.supervisor is not None
        session = hand.supervisor._sessions[notebook_id]
        assert session is not None
        assert session._tenancy.sandbox is not None
        os.kill((await session._tenancy.sandbox.status())["pid"], signal.SIGKILL)
        notebook = await hand.until(notebook_id, lambda n: open_asks(n, cell))
        [ask] = open_asks(notebook, cell)
        assert "Did this happen?" in ask["title"]
        await answer(hand, ask["ask"], "approve")
        assert await hand.ended(notebook_id, cell) == "done"
        notebook = await hand.notebook(notebook_id)
        assert "ada says that it happened" in items(notebook, cell, "tool")[0]["text"]
        assert notebook.checks == {"on": True}
        await whole(hand, notebook_id)
