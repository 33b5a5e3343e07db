"""The durable copy: what programs leave in the folder is kept by version, bounded, and fills an empty folder again."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from engine import files, filling, workspace
from engine.diff import unified
from engine.files import Cause, is_live, mime_of
from engine.frames import draft
from engine.notebook import Notebook, fold
from tests.engine.agent.tools.house import House, house
from tests.engine.frames_made import after, numbered

RUN = Cause(cell_id="c", run_id="r")


async def kept(room: House, *, ends: bool = True) -> dict[str, tuple[int | None, bool]]:
    """Keeps, and tells of each path its version and whether it is live."""
    await room.files.keep(RUN, ends=ends)
    return {path: (file.get("version"), is_live(file)) for path, file in room.notebook.files.items()}


def write(folder: Path, path: str, data: str | bytes) -> None:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data.encode() if isinstance(data, str) else data)


@pytest.mark.trio
async def test_what_a_program_wrote_changed_and_deleted_becomes_versions(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as room:
        await room.files.fill()
        write(room.folder, "a", "1")
        write(room.folder, "data/b.csv", "x,y\n")
        assert await kept(room) == {"a": (1, True), "data/b.csv": (1, True)}
        head = room.notebook.seq
        assert await kept(room) == {"a": (1, True), "data/b.csv": (1, True)}
        assert room.notebook.seq == head  # nothing changed, nothing said
        write(room.folder, "a", "2")
        os.unlink(room.folder / "data/b.csv")
        assert await kept(room) == {"a": (2, True), "data/b.csv": (2, False)}
        write(room.folder, "data/b.csv", "again")
        assert (await kept(room))["data/b.csv"] == (3, True)
        rows = await room.sql("SELECT path, version, sha256 IS NULL AS gone, run_id FROM file ORDER BY path, version")
        assert [(row["path"], row["version"], row["gone"]) for row in rows] == [
            ("a", 1, False), ("a", 2, False),
            ("data/b.csv", 1, False), ("data/b.csv", 2, True), ("data/b.csv", 3, False),
        ]  # fmt: skip
        assert {row["run_id"] for row in rows} == {"r"}


@pytest.mark.trio
async def test_a_change_that_keeps_size_and_time_is_seen(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as room:
        await room.files.fill()
        write(room.folder, "a", "1")
        await kept(room)
        about = (room.folder / "a").stat()
        write(room.folder, "a", "2")
        os.utime(room.folder / "a", ns=(about.st_atime_ns, about.st_mtime_ns))
        assert await kept(room) == {"a": (2, True)}


@pytest.mark.trio
async def test_an_empty_folder_is_filled_and_only_an_empty_one(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as room:
        await room.files.fill()
        write(room.folder, "a", "1")
        write(room.folder, "deep/er/b", b"\x00\xff")
        write(room.folder, "gone", "x")
        await kept(room)
        os.unlink(room.folder / "gone")
        write(room.folder, "a", "2")
        await kept(room)
        shutil.rmtree(room.folder)
        os.close(await room.files.root())
        assert (room.folder / "a").read_text() == "2"
        assert (room.folder / "deep/er/b").read_bytes() == b"\x00\xff"
        assert not (room.folder / "gone").exists()
        write(room.folder, "a", "3")
        await room.files.fill()
        assert (room.folder / "a").read_text() == "3"  # what programs see is never written over


@pytest.mark.trio
async def test_a_folder_that_a_living_sandbox_emptied_is_not_filled(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as room:
        await room.files.fill()
        write(room.folder, "a", "1")
        await kept(room)
        os.unlink(room.folder / "a")
        room.files = files.Files(room.id, room.folder, room, room.journal)  # the server was started anew
        room.files.in_use()
        assert await kept(room) == {"a": (2, False)}
        assert os.listdir(room.folder) == []


@pytest.mark.trio
async def test_a_folder_that_another_machine_has_overtaken_gets_what_changed_there(
    database: str, tmp_path: Path
) -> None:
    async with house(database, tmp_path) as room:
        here, there = room.folder, tmp_path / "there/workspace"

        def engine(folder: Path) -> None:
            room.files = files.Files(room.id, folder, room, room.journal)

        await room.files.woke(0, 1)
        await room.files.fill()
        for path in ("changed", "deleted", "same", "unkept"):
            write(here, path, "1")
        await kept(room)
        write(here, "unkept", "written as the machine died")
        engine(there)
        await room.files.woke(1, 2)
        await room.files.fill()
        write(there, "changed", "2")
        write(there, "new/one", "2")
        os.unlink(there / "deleted")
        await kept(room)
        engine(here)
        await room.files.woke(2, 3)
        state = await kept(room)
        assert (here / "changed").read_text() == "2"
        assert (here / "new/one").read_text() == "2"
        assert not (here / "deleted").exists()
        assert state == {
            "changed": (2, True), "deleted": (2, False), "new/one": (1, True), "same": (1, True), "unkept": (2, True),
        }  # fmt: skip
        engine(here)
        await room.files.woke(3, 4)  # nobody came between: what is here counts
        write(here, "changed", "1")
        assert (await kept(room))["changed"] == (3, True)


@pytest.mark.trio
async def test_filling_that_was_broken_off_goes_on(database: str, tmp_path: Path, monkeypatch: Any) -> None:
    async with house(database, tmp_path) as room:
        await room.files.fill()
        for number in range(450):
            write(room.folder, f"f{number:03}", str(number))
        await kept(room)
        shutil.rmtree(room.folder)
        real = filling._write_missing
        calls = 0

        def once(root: int, batch: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise OSError("the machine died")
            real(root, batch)

        monkeypatch.setattr(filling, "_write_missing", once)
        with pytest.raises(OSError, match="machine died"):
            await room.files.fill()
        assert len(os.listdir(room.folder)) == 200
        monkeypatch.setattr(filling, "_write_missing", real)
        await room.files.fill()
        assert len(os.listdir(room.folder)) == 450
        assert all(is_live(file) for file in room.notebook.files.values())


@pytest.mark.trio
async def test_a_crash_between_commit_and_folder_loses_neither_the_file_nor_what_was_there(
    database: str, tmp_path: Path, monkeypatch: Any
) -> None:
    async with house(database, tmp_path) as room:
        await room.files.put("a", b"old", RUN)

        class Died(BaseException):
            """The process is gone: nothing after it runs."""

        def die(*_: Any) -> None:
            raise Died

        with monkeypatch.context() as patched:
            patched.setattr(workspace.Staged, "put", die)
            patched.setattr(workspace.Staged, "drop", lambda _: None)
            patched.setattr(Path, "unlink", lambda *_, **__: None)
            with pytest.raises(Died):
                await room.files.put("a", b"new", RUN)
            assert (room.folder / "a").read_text() == "old"
            assert room.notebook.files["a"]["version"] == 2
        room.files = files.Files(room.id, room.folder, room, room.journal)  # the next process
        await kept(room)
        assert (room.folder / "a").read_text() == "new"
        assert room.notebook.files["a"]["version"] == 2
        assert os.listdir(room.folder) == ["a"]
        assert not room.folder.with_name("workspace.placing").exists()


@pytest.mark.trio
async def test_what_is_not_kept_is_named_once_with_its_reason(database: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(files, "FILE_BYTES", 1000)
    async with house(database, tmp_path) as room:
        await room.files.fill()
        write(room.folder, "small", "x")
        write(room.folder, "large", "x" * 999)
        await kept(room)
        write(room.folder, "large", "x" * 1001)
        write(room.folder, "node_modules/m/index.js", "x")
        write(room.folder, "p/__pycache__/a.pyc", "x")
        write(room.folder, "q/__pycache__/a.pyc", "x")
        write(room.folder, ".nightbook/outputs/r.gz", "x")
        (room.folder / "link").symlink_to("/etc/passwd")
        os.mkfifo(room.folder / "pipe")
        (room.folder / os.fsdecode(b"not-\xff-utf8")).write_text("x")
        await kept(room)
        told = {path: file["skipped"] for path, file in room.notebook.files.items() if file.get("skipped")}
        assert told == {
            "large": "larger than 0 MiB",
            "node_modules": "node_modules folders are not kept",
            "p/__pycache__": "__pycache__ folders are not kept",
            "link": "a link, and links are not kept",
            "pipe": "not a plain file",
            "not-?-utf8": "its name is not UTF-8 text",
        }
        assert room.notebook.files["large"]["version"] == 1  # what was kept of it before is there still
        head = room.notebook.seq
        await kept(room)
        assert room.notebook.seq == head
        shutil.rmtree(room.folder / "node_modules")
        write(room.folder, "large", "y")
        await kept(room)
        assert "node_modules" not in room.notebook.files
        assert room.notebook.files["large"].get("skipped") is None
        assert room.notebook.files["large"]["version"] == 2


@pytest.mark.trio
async def test_names_of_any_kind_come_back_as_they_were(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as room:
        await room.files.fill()
        names = [
            "new\nline",
            "tab\t",
            "Case",
            "case",
            " space ",
            "q'\"?#%",
            "é",
            "e\u0301",
            "-rf",
            "$(x)",
            "a\\b",
            "\x7f",
        ]
        for number, name in enumerate(names):
            write(room.folder, name, str(number))
        at = os.open(room.folder, os.O_DIRECTORY)
        for _ in range(1000):  # step by step: no path this long can be named at once
            os.mkdir("d", dir_fd=at)
            inner = os.open("d", os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = inner
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        os.close(at)
        state = await kept(room)
        assert {path for path, (_, live) in state.items() if live} == set(names)
        assert [file["skipped"] for file in room.notebook.files.values() if file.get("skipped")] == ["nested too deep"]
        await trio.run_process(["rm", "-rf", room.folder])  # what Python brings gives up that deep
        os.close(await room.files.root())
        assert {name: (room.folder / name).read_text() for name in names} == {
            name: str(number) for number, name in enumerate(names)
        }


@pytest.mark.trio
async def test_a_flood_of_files_stays_bounded_and_says_so(database: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(workspace, "WALK_FILES", 500)
    async with house(database, tmp_path) as room:
        await room.files.fill()
        for number in range(1200):
            write(room.folder, f"d{number % 7}/f{number}", str(number))
        state = await kept(room)
        assert sum(live for _, live in state.values()) == 500
        assert room.notebook.files["."]["skipped"] == "more than 500 files: the rest is not kept"
        head = room.notebook.seq
        await kept(room)
        assert room.notebook.seq == head
        shutil.rmtree(room.folder / "d1")
        monkeypatch.setattr(workspace, "WALK_FILES", 2000)
        state = await kept(room)
        assert "." not in state  # nothing is left out any more
        assert sum(live for _, live in state.values()) == 1200 - 172


@pytest.mark.trio
async def test_a_file_rewritten_without_end_is_kept_midway_up_to_a_bound_and_at_the_end(
    database: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(files, "MIDWAY_BYTES", 3000)
    async with house(database, tmp_path) as room:
        await room.files.fill()
        for number in range(10):
            write(room.folder, "log", str(number) * 1000)
            await room.files.keep(RUN, ends=False)
        assert room.notebook.files["log"]["version"] == 3
        await kept(room)
        assert room.notebook.files["log"]["version"] == 4
        write(room.folder, "log", "once more")
        await room.files.keep(RUN, ends=False)
        assert room.notebook.files["log"]["version"] == 5


@pytest.mark.trio
async def test_a_tool_and_a_walk_at_once_never_make_the_same_version(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as room:
        await room.files.fill()

        async def tool(number: int) -> None:
            for turn in range(10):
                await room.files.put("shared", f"{number} {turn}".encode(), RUN)

        async def walks() -> None:
            for _ in range(10):
                write(room.folder, "other", str(time.monotonic_ns()))
                await room.files.keep(RUN, ends=False)

        lock, write_step = trio.Lock(), room.write

        async def one_step(drafts: Any, rows: Any = ()) -> None:  # as the session: one step after the other
            async with lock:
                await write_step(drafts, rows)

        room.write = one_step  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(tool, number)
            nursery.start_soon(walks)
        rows = await room.sql("SELECT version FROM file WHERE path = 'shared' ORDER BY version")
        assert [row["version"] for row in rows] == list(range(1, len(rows) + 1))
        assert room.notebook.files["shared"]["version"] == len(rows) >= 10


def test_the_fold_remembers_versions_and_forgets_old_deletions(monkeypatch: Any) -> None:
    monkeypatch.setattr("engine.notebook.FILES_KEPT", 50)
    drafts = [draft("file", path=f"f{number}", version=2, deleted=True) for number in range(60)]
    notebook = fold(Notebook("n"), numbered(drafts))
    assert len(notebook.files) == 50
    assert "f9" not in notebook.files
    assert "f10" in notebook.files
    notebook = after(
        Notebook("n"), [draft("file", path="a", version=3, sha256="s"), draft("file", path="a", skipped="x")]
    )
    assert (notebook.files["a"]["version"], notebook.files["a"]["sha256"]) == (3, "s")


def test_twenty_thousand_files_are_folded_in_no_time() -> None:
    frames = numbered(draft("file", path=f"f{number}", version=1, sha256="s") for number in range(20_000))
    began = time.process_time()
    fold(Notebook("n"), frames)
    assert time.process_time() - began < 2


def test_a_diff_is_right_at_every_place_and_bounded() -> None:
    before = "".join(f"line {number}\n" for number in range(1, 101))
    found = unified("f", before, before.replace("line 50\n", "new\nnewer\n"))
    assert found.text.split("\n")[2] == "@@ -47,7 +47,8 @@"
    assert (found.added, found.removed) == (2, 1)
    assert "\\ No newline" in unified("f", "a\n", "a").text
    assert unified("f", "x\n", "x\n").text == ""
    huge = "".join(f"{number}\n" for number in range(200_000))
    began = time.process_time()
    found = unified("f", huge, "".join(f"{number}\n" for number in range(200_000, 0, -1)))
    assert time.process_time() - began < 5
    assert (found.added, found.removed) == (200_000, 200_000)
    assert len(found.text) < 50_000


@pytest.mark.parametrize(
    ("path", "data", "mime"),
    [
        ("a.png", b"", "image/png"),
        ("a.py", b"", "text/x-python"),
        ("a", b"text", "text/plain"),
        ("a", b"\x00", "application/octet-stream"),
        ("a", ("é" * 5000).encode()[:8193], "text/plain"),
        ("a.tar.gz", b"\x1f\x8b\x08\x00", "application/octet-stream"),
    ],
)
def test_a_file_is_what_its_name_or_beginning_says(path: str, data: bytes, mime: str) -> None:
    assert mime_of(path, data) == mime
