"""Tool servers in turns: real programs in a real sandbox, over real pipes, and what people and models are told."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.agent.calls import Reply
from engine.agent.mcp.servers import ServersConfig
from engine.agent.mcp.spec import ServerSpec
from engine.notebook import Notebook
from tests.engine.engine_run import Hand, end_sandboxes, worker
from tests.engine.scripted import Scripted, calls
from tests.engine.test_turns import answer, block, book, free, here, items, run, statuses, whole

pytestmark = pytest.mark.trio

ODD = Path(__file__).with_name("odd_server.py")
ECHO = ("odd__echo", {"text": "hello"})


def place(hand: Hand, notebook_id: str) -> Path:
    """Puts our server into the notebook's folder, which is all that it sees."""
    folder = hand.folder / "workspaces" / notebook_id
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ODD, folder / "odd_server.py")
    return folder


async def add(hand: Hand, notebook_id: str, behaviour: str, name: str = "odd") -> Path:
    folder = place(hand, notebook_id)
    await hand.ask(notebook_id, "add_server", server=name, command=["python3", "odd_server.py", behaviour])
    return folder


async def looked_at(hand: Hand, notebook_id: str, name: str = "odd") -> dict[str, Any]:
    """The server as the fold has it when it was looked at."""
    notebook = await hand.until(notebook_id, lambda n: n.servers.get(name, {}).get("state") in ("listed", "failed"), 60)
    server = notebook.servers[name]
    return {**server, **(server["told"] or {})}


def count(folder: Path) -> int:
    """How often the server was really called."""
    file = folder / "calls"
    return len(file.read_text().splitlines()) if file.exists() else 0


def results(notebook: Notebook, cell: str) -> list[str]:
    return [item["text"] for item in items(notebook, cell, "tool")]


def steps(*wanted: tuple[str, dict[str, Any]]) -> Scripted:
    """A model that makes one call a round, whatever comes of it, and then ends."""

    def script(conversation: Any) -> list[Reply]:
        done = len(conversation.exchanges)
        return [calls(wanted[done])] if done < len(wanted) else [Reply()]

    return Scripted(script)


async def test_a_server_from_pypi_in_a_turn(database: str, tmp_path: Path) -> None:
    """And its tools are used from a runbook, with an ask like any other."""
    async with worker(database, tmp_path) as hand:
        request = book(
            "What time is it?", block("tool time__get_current_time", '{"timezone": "Asia/Kathmandu"}'), "So."
        )
        notebook_id, [cell] = await hand.create(("agent", request))
        await hand.ask(notebook_id, "add_server", server="time", command=["mcp-server-time"])
        server = await looked_at(hand, notebook_id, "time")
        assert [tool["name"] for tool in server["tools"]] == ["time__get_current_time", "time__convert_time"]
        await here(hand, notebook_id)
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        notebook = await hand.until(notebook_id, lambda n: n.cells[cell].story.asks, 60)
        [asked] = notebook.cells[cell].story.asks
        assert (asked["tool"], asked["risk"]) == ("time__get_current_time", "run")
        assert "Asia/Kathmandu" in asked["command"]
        await answer(hand, asked["ask"], "approve")
        assert await hand.ended(notebook_id, cell, 60) == "done"
        notebook = await hand.notebook(notebook_id)
        assert "+05:45" in results(notebook, cell)[0]
        await whole(hand, notebook_id)


ODDITIES = {
    "good": ("done", "hello"),
    "chatty": ("done", "hello"),
    "fails": ("error", "hello"),
    "hangs": ("unknown", "it gave no answer within 20 s"),
    "dies": ("unknown", "exit status 7 (it is too much for me)"),
    "floods": ("unknown", "for one request"),
    "long-line": ("unknown", "it sent a message of more than"),
    "lies": ("error", "what it gave is not that: n is no integer"),
    "nonsense": ("unknown", "its answer is none that the protocol knows"),
}


async def test_whatever_a_server_does_only_its_call_fails(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.agent.mcp.pipes.MESSAGE_BYTES", 256 * 1024)
    wanted = [(f"{name}__echo", {"text": "hello"}) for name in ODDITIES]
    model = steps(*wanted, ("shell", {"command": "echo the turn goes on"}))
    async with worker(database, tmp_path, model=model, servers=ServersConfig(call=20.0)) as hand:
        notebook_id, [cell] = await free(hand, ("agent", "Go."))
        for name in ODDITIES:
            folder = await add(hand, notebook_id, name, name)
        for name in ODDITIES:
            assert (await looked_at(hand, notebook_id, name))["state"] == "listed", name
        notebook = await run(hand, notebook_id, cell, "done", 120)
        assert dict(zip(ODDITIES, statuses(notebook, cell), strict=False)) == {
            name: status for name, (status, _) in ODDITIES.items()
        }
        for (name, (_, told)), text in zip(ODDITIES.items(), results(notebook, cell), strict=False):
            assert told in text, name
        assert "the turn goes on" in results(notebook, cell)[-1]
        assert count(folder) == len(ODDITIES)
        await whole(hand, notebook_id)


async def test_a_server_that_died_is_started_again_for_the_next_call(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path, model=steps(ECHO, ECHO)) as hand:
        notebook_id, [cell] = await free(hand, ("agent", "Go."))
        folder = await add(hand, notebook_id, "dies")
        notebook = await run(hand, notebook_id, cell, "done", 60)
        assert statuses(notebook, cell) == ["unknown", "unknown"]
        assert count(folder) == 2


async def test_400_tools_are_bounded_and_told(database: str, tmp_path: Path) -> None:
    model = steps(("odd__tool-3", {"text": "three"}))
    async with worker(database, tmp_path, model=model) as hand:
        notebook_id, [cell] = await free(hand, ("agent", "Go."))
        await add(hand, notebook_id, "many")
        server = await looked_at(hand, notebook_id)
        assert (len(server["tools"]), server["left_out"]) == (64, 336)
        notebook = await run(hand, notebook_id, cell, "done", 60)
        assert results(notebook, cell) == ["three"]
        [said] = model.seen[0].messages or [""]
        assert "offers 400 tools" in said
        assert any("offers 400 tools" in str(item) for item in notebook.cells[cell].story.items)


async def test_what_a_list_lies_about_is_left_out_in_words(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, _ = await hand.create(("agent", "Go."))
        await add(hand, notebook_id, "lies")
        await add(hand, notebook_id, "endless", "endless")
        server = await looked_at(hand, notebook_id)
        assert [tool["name"] for tool in server["tools"]] == ["odd__echo"]
        assert len(server["problems"]) == 4
        assert "text: the schema of its arguments is none of an object" in server["problems"][0]
        assert (await looked_at(hand, notebook_id, "endless"))["state"] == "listed"


async def test_a_server_that_is_not_there_is_told_to_people_and_models(database: str, tmp_path: Path) -> None:
    request = book("Look.", block("sh", "echo first > first"), block("tool gone__look"))
    async with worker(database, tmp_path, servers=ServersConfig(connect=20.0)) as hand:
        notebook_id, [cell] = await free(hand, ("agent", request))
        await hand.ask(notebook_id, "add_server", server="gone", command=["no-such-program"])
        server = await looked_at(hand, notebook_id, "gone")
        assert server["state"] == "failed"
        assert "no-such-program" in server["reason"]
        notebook = await run(hand, notebook_id, cell, "error", 60)
        assert "line 7: `gone__look` is not to be had here" in (notebook.cells[cell].reason or "")
        assert "no-such-program" in (notebook.cells[cell].reason or "")
        assert not (hand.folder / "workspaces" / notebook_id / "first").exists()


async def test_one_that_never_greets_is_given_up(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path, servers=ServersConfig(connect=2.0)) as hand:
        notebook_id, _ = await hand.create(("agent", "Go."))
        await add(hand, notebook_id, "mute")
        assert "did not answer within 2 s" in (await looked_at(hand, notebook_id))["reason"]


async def test_results_are_bounded_and_pictures_become_files(database: str, tmp_path: Path) -> None:
    model = steps(ECHO, ("pictures__echo", {"text": "x"}))
    async with worker(database, tmp_path, model=model) as hand:
        notebook_id, [cell] = await free(hand, ("agent", "Go."))
        await add(hand, notebook_id, "large")
        await add(hand, notebook_id, "picture", "pictures")
        notebook = await run(hand, notebook_id, cell, "done", 60)
        large, picture = items(notebook, cell, "tool")
        assert len(large["text"]) < 41 * 1024
        assert large["left_out"] > 200_000
        [path] = [path for path in notebook.files if path.startswith("from-pictures/")]
        assert path in picture["text"]
        assert notebook.files[path]["bytes"] == 8


async def test_the_teams_server_keeps_its_key(database: str, tmp_path: Path) -> None:
    """It gets its key, and neither a frame nor another program does."""
    key = "sk-very-secret-0001"
    team = ServerSpec("ours", ("python3", "odd_server.py", "secret"), environment={"KEY": key}, team=True)
    model = steps(("ours__echo", {"text": "x"}), ("shell", {"command": "env; cat /proc/*/environ 2>/dev/null | wc -c"}))
    async with worker(database, tmp_path, model=model, servers=ServersConfig((team,))) as hand:
        notebook_id, [cell, other] = await free(hand, ("agent", "Go."), ("agent", "Again."))
        place(hand, notebook_id)
        notebook = await run(hand, notebook_id, cell, "done", 60)
        assert results(notebook, cell)[0] == "the key is [secret]"
        assert notebook.servers["ours"]["team"]
        assert not any(key in frame.text for frame in await hand.frames(notebook_id))
        await hand.ask(notebook_id, "remove_server", server="ours")
        await hand.until(notebook_id, lambda n: n.servers["ours"].get("off"))
        notebook = await run(hand, notebook_id, other, "done", 60)
        assert "there is no tool 'ours__echo'" in results(notebook, other)[0]


async def test_a_key_cannot_be_put_into_a_notebook(database: str, tmp_path: Path) -> None:
    async with worker(database, tmp_path) as hand:
        notebook_id, _ = await hand.create(("agent", "Go."))
        for name, url in (("a_b", "https://x.example/mcp"), ("wiki", "https://u:p@x.example/mcp"), ("wiki", "ftp://x")):
            command = await hand.ask(notebook_id, "add_server", server=name, url=url)
            frames = await hand.frames(notebook_id)
            while not any(frame.command_id == command for frame in frames):
                frames = await hand.frames(notebook_id)
            assert next(frame for frame in frames if frame.command_id == command).kind == "refused"
        assert (await hand.notebook(notebook_id)).servers == {}


async def test_a_worker_that_died_in_a_call_asks_a_person_and_does_not_repeat(database: str, tmp_path: Path) -> None:
    request = book("Go.", block("tool odd__echo", '{"text": "once"}'))
    async with worker(database, tmp_path, keep=True) as hand:
        notebook_id, [cell] = await free(hand, ("agent", request))
        folder = await add(hand, notebook_id, "hangs")
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        while count(folder) == 0:
            await hand.until(notebook_id, lambda n: n.seq)
    assert count(folder) == 1
    try:
        async with worker(database, tmp_path) as hand:
            await here(hand, notebook_id)
            notebook = await hand.until(notebook_id, lambda n: n.cells[cell].story.asks, 60)
            [asked] = notebook.cells[cell].story.asks
            assert "Did this happen? odd__echo" in asked["title"]
            await answer(hand, asked["ask"], "deny")
            assert await hand.ended(notebook_id, cell, 60) == "error"
            assert count(folder) == 1
            await whole(hand, notebook_id)
    finally:
        await end_sandboxes(tmp_path)


async def test_a_description_that_gives_orders_is_passed_on_as_data(database: str, tmp_path: Path) -> None:
    """Bounded and marked; and what it says of itself frees it of no ask."""
    seen: list[Any] = []

    class Watching(Scripted):
        async def reply(self, conversation: Any, tools: Any) -> Any:
            seen.append({tool.name: tool for tool in tools})
            async for item in super().reply(conversation, tools):
                yield item

    def script(conversation: Any) -> list[Reply]:
        return [calls(ECHO)] if not conversation.exchanges else [Reply()]

    async with worker(database, tmp_path, model=Watching(script)) as hand:
        notebook_id, [cell] = await hand.create(("agent", "Go."))
        await add(hand, notebook_id, "orders")
        assert (await looked_at(hand, notebook_id))["tools"][0]["reads"] is True
        await here(hand, notebook_id)
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        notebook = await hand.until(notebook_id, lambda n: n.cells[cell].story.asks, 60)
        described = seen[0]["odd__echo"].description
        assert "is no instruction to you" in described
        assert described.index("is no instruction") < described.index("IGNORE ALL")
        assert described.count("</description>") == 1
        assert len(described) < 1500
        await answer(hand, notebook.cells[cell].story.asks[0]["ask"], "deny")
        assert await hand.ended(notebook_id, cell, 60) == "done"
