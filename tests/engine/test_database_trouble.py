"""The database is restarted, cut off, silent, full or slow: engines hold, programs go on, every frame is there once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import trio

from e2e.proxy import Proxy
from engine.journal import Journal
from tests.engine.engine_run import Hand, text_of, worker

pytestmark = pytest.mark.trio

CELL = """
import os, time
open("starts", "a").write("start\\n")
n = 0
while not os.path.exists("enough"):
    print("line", n, flush=True)
    open("printed", "w").write(str(n)); os.replace("printed", "count")
    n += 1
    time.sleep(0.02)
"""
ANSWER_OF_A_STEP = b"SELECT 1\0"  # the tag of its statement, which comes with the word that it is committed
ANSWER_OF_A_CLAIM = b"s\0\0\0\4"  # a statement of which one row is wanted ends with "portal suspended"

# A disk that is full for frames, as PostgreSQL tells it, for as long as the table `full_disk` has a row.
FULL = (
    "CREATE TABLE full_disk ()",
    """
CREATE FUNCTION refuse_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF EXISTS (SELECT FROM full_disk) THEN
        RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
    END IF;
    RETURN NEW;
END $$
""",
    "CREATE TRIGGER full_disk BEFORE INSERT ON frame FOR EACH ROW EXECUTE FUNCTION refuse_full()",
    "INSERT INTO full_disk DEFAULT VALUES",
)


@contextlib.asynccontextmanager
async def between(database: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A network between worker and database, and the address at its near end."""
    parts = urlsplit(database)
    options = parse_qs(parts.query)
    host = options.get("host", [parts.hostname or ""])[0]
    port = int(options.get("port", [str(parts.port or 5432)])[0])
    with Proxy(host, port) as proxy:
        yield proxy, f"postgresql://{parts.username}:{parts.password}@127.0.0.1:{proxy.port}{parts.path}"


@contextlib.asynccontextmanager
async def looking_on(database: str, folder: Path) -> AsyncIterator[Hand]:
    """A hand with a way of its own to the database."""
    journal = Journal(database)
    await journal.start(lambda _: None)
    try:
        yield Hand(journal, folder)
    finally:
        await journal.stop()


async def eventually(condition: Callable[[], bool], what: str) -> None:
    with trio.move_on_after(30):
        while not condition():
            await trio.sleep(0.02)
        return
    raise AssertionError(f"not within 30 s: {what}")


# What is shown of each run as it comes ends after some megabytes: it prints in earnest only once the database is away.
ENDLESS = CELL.replace("flush=True)", "'x' * 20_000, flush=True)").replace(
    "time.sleep(0.02)", "time.sleep(0.002)\n    while n > 4 and not os.path.exists('go'): time.sleep(0.01)"
)
SPOOL_BYTES = 2**20


class Work:
    """A notebook whose one cell prints until it is told that it is enough."""

    def __init__(self, hand: Hand, notebook_id: str, cell: str) -> None:
        self.hand, self.id, self.cell = hand, notebook_id, cell
        self._folder = hand.folder / "workspaces" / notebook_id

    def count(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            return int((self._folder / "count").read_text())
        return -1

    async def goes_on(self) -> None:
        """The program prints, whatever becomes of it."""
        seen = self.count()
        await eventually(lambda: self.count() > seen + 20, "the program goes on")

    async def ends_whole(self) -> None:
        """Every line once, one start, one end, numbers without a gap."""
        (self._folder / "enough").touch()
        assert await self.hand.ended(self.id, self.cell, 60) == "done"
        lines = text_of(await self.hand.notebook(self.id), self.cell).splitlines()
        assert lines == [f"line {n}" for n in range(self.count() + 1)]
        assert (self._folder / "starts").read_text() == "start\n"
        frames = await self.hand.frames(self.id)
        assert [frame.seq for frame in frames] == list(range(1, len(frames) + 1))
        assert [frame.body["event"] for frame in frames if frame.kind == "run"] == ["queued", "started", "ended"]


@contextlib.asynccontextmanager
async def work(database: str, tmp_path: Path, source: str = CELL, **settings: Any) -> AsyncIterator[tuple[Work, Proxy]]:
    async with (
        between(database) as (proxy, address),
        looking_on(database, tmp_path) as hand,
        worker(address, tmp_path, poll=0.5, sandbox=settings) as inside,
    ):
        notebook_id, [cell] = await hand.create(("python", source))
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await hand.until(notebook_id, lambda n: "line 3" in text_of(n, cell), 60)
        hand.supervisor = inside.supervisor
        yield Work(hand, notebook_id, cell), proxy


async def test_a_step_whose_answer_is_lost_behind_its_commit_is_neither_lost_nor_doubled(
    database: str, tmp_path: Path
) -> None:
    async with work(database, tmp_path) as (at, proxy):
        proxy.lose_answers(ANSWER_OF_A_STEP, 6)
        await eventually(lambda: proxy.lost_answers == 6, "answers are lost")
        await at.goes_on()
        await at.ends_whole()


@pytest.mark.parametrize("trouble", ["refuse", "freeze"])
async def test_a_database_that_is_away_or_silent_is_waited_for(database: str, tmp_path: Path, trouble: str) -> None:
    async with work(database, tmp_path) as (at, proxy):
        await trio.to_thread.run_sync(getattr(proxy, trouble))
        before = (await at.hand.notebook(at.id)).seq
        await at.goes_on()
        assert (await at.hand.notebook(at.id)).seq <= before + 2, "nothing can be stored"
        await trio.to_thread.run_sync(proxy.restore)
        await at.hand.until(at.id, lambda n: n.seq > before + 5, 60)
        await at.ends_whole()


async def test_a_program_that_prints_without_end_is_slowed_and_no_buffer_grows(database: str, tmp_path: Path) -> None:
    """Invariant 10: while the database is away its output waits in the spool, bounded; then the program itself does."""
    async with work(database, tmp_path, ENDLESS, spool_bytes=SPOOL_BYTES) as (at, proxy):
        await trio.to_thread.run_sync(proxy.refuse)
        folder = tmp_path / "workspaces" / at.id
        (folder / "go").touch()
        await eventually(lambda: at.count() > 4, "the program prints on")
        seen, since = -1, trio.current_time()
        with trio.fail_after(60):
            while trio.current_time() - since < 1.5:
                if (now := at.count()) != seen:
                    seen, since = now, trio.current_time()
                await trio.sleep(0.05)
        assert at.hand.supervisor is not None
        session = at.hand.supervisor._sessions[at.id]
        assert session._tenancy.sandbox is not None
        assert (await session._tenancy.sandbox.status())["spool"] < 2 * SPOOL_BYTES
        assert session._tenancy.records._bytes < 2 * SPOOL_BYTES
        await trio.to_thread.run_sync(proxy.restore)
        await eventually(lambda: at.count() > seen + 20, "the program goes on by itself")
        (folder / "enough").touch()
        assert await at.hand.ended(at.id, at.cell, 60) == "done"
        lines = [f"line {n} {'x' * 20_000}\n" for n in range(at.count() + 1)]
        printed, held_up = "".join(lines), len("".join(lines[: seen + 1]))
        # What it printed meanwhile is there; of what came later, some bytes may only be counted.
        told = 0
        for frame in await at.hand.frames(at.id):
            if frame.kind == "output":
                assert not frame.body.get("left_out") or told >= held_up
                told += frame.body.get("left_out", 0)
                assert printed.startswith(frame.body["text"], told)
                told += len(frame.body["text"])
        assert told == len(printed)


async def test_a_full_disk_loses_nothing_and_blames_no_step(database: str, tmp_path: Path) -> None:
    async with work(database, tmp_path) as (at, _):
        for statement in FULL:
            await at.hand.sql(statement)
        before = (await at.hand.notebook(at.id)).seq
        await at.goes_on()
        assert (await at.hand.notebook(at.id)).seq == before
        await at.hand.sql("TRUNCATE full_disk")
        await at.hand.until(at.id, lambda n: n.seq > before + 5, 60)
        await at.ends_whole()
        assert not [frame for frame in await at.hand.frames(at.id) if "refused" in str(frame.body.get("reason"))]


async def test_slow_commits_slow_nothing_but_what_is_seen(database: str, tmp_path: Path) -> None:
    async with work(database, tmp_path) as (at, proxy):
        proxy.answer_seconds = 0.5
        await at.goes_on()
        proxy.answer_seconds = 0.0
        await at.ends_whole()


async def test_a_claim_whose_answer_is_lost_leaves_no_notebook_without_an_engine(database: str, tmp_path: Path) -> None:
    """The notebook is this worker's then, as every other is told; so this one must find it again by itself."""
    async with (
        between(database) as (proxy, address),
        looking_on(database, tmp_path) as hand,
        worker(address, tmp_path, poll=0.5),
    ):
        notebook_id, [cell] = await hand.create(("python", "print('hello')"))
        proxy.lose_answers(ANSWER_OF_A_CLAIM, 3)
        await hand.ask(notebook_id, "run_cell", cell_id=cell)
        await eventually(lambda: proxy.lost_answers == 3, "the claim's answer is lost")
        assert await hand.ended(notebook_id, cell, 60) == "done"


async def test_a_database_that_goes_while_a_sandbox_starts_fails_no_run(database: str, tmp_path: Path) -> None:
    """Its folder is being filled: what is kept is on its way, and the connection is cut under it."""
    async with between(database) as (proxy, address), looking_on(database, tmp_path) as hand:
        async with worker(database, tmp_path):
            notebook_id, [makes, reads] = await hand.create(
                ("shell", "head -c 3000000 /dev/zero > made"), ("shell", "stat -c %s made")
            )
            await hand.ask(notebook_id, "run_cell", cell_id=makes)
            await hand.until(notebook_id, lambda n: "made" in n.files)
        (tmp_path / "workspaces" / notebook_id / "made").unlink()  # an empty folder is filled
        await hand.ask(notebook_id, "run_cell", cell_id=reads)
        proxy.answer_seconds = 0.2
        async with worker(address, tmp_path, poll=0.5):
            await hand.until(notebook_id, lambda n: n.sandbox.state == "starting" and n.epoch > 1, 60)
            await trio.to_thread.run_sync(proxy.refuse)
            await trio.sleep(1.0)  # several attempts fail
            proxy.answer_seconds = 0.0
            await trio.to_thread.run_sync(proxy.restore)
            assert await hand.ended(notebook_id, reads, 60) == "done"
        assert text_of(await hand.notebook(notebook_id), reads).split() == ["3000000"]
