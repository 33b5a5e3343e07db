"""The file tools: what they do, and that nothing leads them out of the notebook's folder."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from engine import workspace
from engine.agent.calls import ToolFailed
from engine.agent.tools import TOOLS, reading
from tests.engine.agent.tools.house import house

READ, WRITE, EDIT = TOOLS["read_file"], TOOLS["write_file"], TOOLS["edit_file"]
LIST, SEARCH = TOOLS["list_files"], TOOLS["search_files"]


@pytest.mark.trio
async def test_writing_makes_versions_and_an_edit_shows_its_diff(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as room:
        made = await room.call(WRITE, "c1", path="./notes//a.txt", content="one\ntwo\n")
        assert "notes/a.txt is version 1" in made.text
        edited = await room.call(EDIT, "c2", path="notes/a.txt", old="two", new="three")
        assert edited.diff == "--- notes/a.txt\n+++ notes/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
        assert (room.folder / "notes/a.txt").read_text() == "one\nthree\n"
        file = room.notebook.files["notes/a.txt"]
        assert (file["version"], file["added"], file["removed"], file["call"]) == (2, 1, 1, "c2")
        rows = await room.sql("SELECT version, bytes, call_id, sha256 FROM file ORDER BY version")
        assert [(row["version"], row["bytes"], row["call_id"]) for row in rows] == [(1, 8, "c1"), (2, 10, "c2")]
        kept = await room.journal.file_contents(room.id, [row["sha256"] for row in rows])
        assert [kept[row["sha256"]] for row in rows] == [b"one\ntwo\n", b"one\nthree\n"]
        read = await room.call(READ, path="notes/a.txt", first_line=2)
        assert read.text.startswith("three\n[lines 2 to 2 of 2, 10 bytes, sha256 ")


@pytest.mark.trio
async def test_the_same_content_again_is_no_new_version(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as room:
        await room.call(WRITE, "c1", path="a", content="x")
        assert "as before" in (await room.call(WRITE, "c2", path="a", content="x")).text
        assert len(await room.sql("SELECT FROM file")) == 1


@pytest.mark.trio
async def test_a_call_made_again_after_a_crash_makes_no_second_version(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as room:
        await room.call(WRITE, "c1", path="a", content="old old")
        arguments = EDIT.Arguments.model_validate({"path": "a", "old": "old", "new": "new", "all": True})
        room.call_id = "c2"
        assert await EDIT.look_up(room, "key", arguments) is None
        await room.call(EDIT, "c2", path="a", old="old", new="new", all=True)
        found = await EDIT.look_up(room, "key", arguments)
        assert found is not None
        assert found.text == "a is version 2"
        assert len(await room.sql("SELECT FROM file")) == 2


@pytest.mark.trio
async def test_a_file_that_changed_since_it_was_asked_about_or_read_is_left_alone(
    database: str, tmp_path: Path
) -> None:
    async with house(database, tmp_path) as room:
        await room.call(WRITE, path="a", content="one")
        room.call_id = "c2"
        arguments = WRITE.Arguments.model_validate({"path": "a", "content": "mine"})
        described = await WRITE.describe(room, arguments)
        (room.folder / "a").write_text("theirs")
        assert (await WRITE.describe(room, arguments)).facts != described.facts  # so an approval does not count
        with pytest.raises(ToolFailed, match="changed meanwhile: read it again"):
            await WRITE.run(room, "key", arguments, described)
        assert "read it again" in await room.failure(WRITE, path="a", content="mine", over="0" * 64)
        assert (room.folder / "a").read_text() == "theirs"
        fresh = WRITE.Arguments.model_validate({"path": "b", "content": "mine"})
        described = await WRITE.describe(room, fresh)
        (room.folder / "b").write_text("somebody made it")
        with pytest.raises(ToolFailed, match="changed meanwhile"):
            await WRITE.run(room, "key", fresh, described)


@pytest.mark.trio
async def test_an_edit_that_does_not_fit_is_told_with_what_is_there(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as room:
        await room.call(WRITE, path="a.py", content="def f():\n    return 1\n\n\ndef g():\n    return 1\n")
        told = await room.failure(EDIT, path="a.py", old="return 1", new="return 2")
        assert "2 times in a.py (at lines 2, 6)" in told
        told = await room.failure(EDIT, path="a.py", old="def f(x):\n", new="")
        assert "The nearest is, at line 1" in told
        assert "def f():" in told
        assert "spaces around it differ" in await room.failure(EDIT, path="a.py", old="def g():\n  return 1", new="")
        assert "there is no file b.py; write_file makes one" in await room.failure(EDIT, path="b.py", old="x", new="y")
        assert "nothing to change" in await room.failure(EDIT, path="a.py", old="f", new="f")
        (room.folder / "dos").write_bytes(b"a\r\nb\r\n")
        assert "other line ends" in await room.failure(EDIT, path="dos", old="a\nb", new="y")
        (room.folder / "bin").write_bytes(b"\x00\x01")
        assert "no UTF-8 text" in await room.failure(EDIT, path="bin", old="x", new="y")
        assert "not text: 2 bytes with NUL" in await room.failure(READ, path="bin")


@pytest.mark.trio
async def test_a_file_keeps_its_mode_and_nothing_is_left_beside_it(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as room:
        await room.call(WRITE, path="run.sh", content="echo 1\n")
        (room.folder / "run.sh").chmod(0o750)
        await room.call(EDIT, "c2", path="run.sh", old="1", new="2")
        assert stat.S_IMODE((room.folder / "run.sh").stat().st_mode) == 0o750
        assert os.listdir(room.folder) == ["run.sh"]


OUTSIDE: list[tuple[str, str]] = [
    ("../secret", "cannot go up"),
    ("a/../../secret", "cannot go up"),
    ("/etc/passwd", "without a leading slash"),
    ("//etc/passwd", "without a leading slash"),
    ("link", "is a link"),
    ("folder-link/secret", "is not a folder (or a link"),
    ("dangling", "is a link"),
    ("a\0b", "NUL"),
    ("\ud800", "UTF-8"),
    (".", "the folder itself"),
    ("x" * 256, "a name 255"),
    ("a/" * 65 + "b", "64 folders deep"),
    ("é" * 300 + "/" + "é" * 300, "at most 1024 bytes"),
]


@pytest.mark.parametrize(("path", "told"), OUTSIDE, ids=[repr(path)[:20] for path, _ in OUTSIDE])
def test_no_path_leads_out_of_the_folder(tmp_path: Path, path: str, told: str) -> None:
    (tmp_path / "secret").write_text("secret")
    inner = tmp_path / "workspace"
    inner.mkdir()
    (inner / "link").symlink_to(tmp_path / "secret")
    (inner / "folder-link").symlink_to(tmp_path)
    (inner / "dangling").symlink_to(tmp_path / "not-there")
    root = workspace.open_root(inner)
    try:
        with pytest.raises(workspace.WorkspaceError) as read:
            workspace.read(root, path, 1000)
        with pytest.raises(workspace.WorkspaceError) as written:
            workspace.stage(root, path, b"x")
        assert told in str(written.value)
        assert told in str(read.value) or path == "."
    finally:
        os.close(root)
    assert (tmp_path / "secret").read_text() == "secret"
    assert sorted(os.listdir(tmp_path)) == ["secret", "workspace"]


def test_devices_pipes_sockets_and_folders_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    root = workspace.open_root(tmp_path)
    try:
        for path, told in (("pipe", "not a plain file"), ("folder", "is a folder")):
            with pytest.raises(workspace.WorkspaceError, match=told):
                workspace.read(root, path, 1000)
            with pytest.raises(workspace.WorkspaceError, match=told):
                workspace.stage(root, path, b"x")
    finally:
        os.close(root)
    dev = workspace.open_root(Path("/dev"))
    try:
        with pytest.raises(workspace.WorkspaceError, match="not a plain file"):
            workspace.read(dev, "zero", 1000)
    finally:
        os.close(dev)


def test_a_folder_that_becomes_a_link_again_and_again_never_lets_anything_out(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    inner = tmp_path / "workspace"
    (inner / "real").mkdir(parents=True)
    (inner / "real/file").write_text("mine")
    (inner / "link").symlink_to(outside)
    over = threading.Event()
    flips = 0

    def flip() -> None:
        nonlocal flips
        folder, real, link = inner / "folder", inner / "real", inner / "link"
        while not over.is_set():
            try:
                for source, target in ((real, folder), (folder, real), (link, folder), (folder, link)):
                    os.rename(source, target)
                flips += 1
            except OSError:  # the writer made a folder of that name
                if folder.is_symlink():
                    os.rename(folder, link)
                elif real.exists():
                    shutil.rmtree(folder, ignore_errors=True)
                else:
                    os.rename(folder, real)

    thread = threading.Thread(target=flip)
    thread.start()
    root = workspace.open_root(inner)
    try:
        for number in range(4000):
            with suppress(workspace.WorkspaceError):
                assert workspace.read(root, "folder/file", 1000).data != b"secret"
            if number % 20 == 0:
                with suppress(workspace.WorkspaceError):
                    workspace.stage(root, "folder/new", b"x", durable=False).put()
    finally:
        over.set()
        thread.join()
        os.close(root)
    assert flips > 50
    assert os.listdir(outside) == ["file"]


@pytest.mark.trio
async def test_a_full_disk_or_a_folder_in_the_way_leaves_version_and_folder_as_they_were(
    database: str, tmp_path: Path
) -> None:
    async with house(database, tmp_path) as room:
        await room.call(WRITE, path="a/b", content="x")
        assert "a/b is a folder" not in await room.failure(WRITE, path="a/b/c", content="x")
        assert "a is a folder, not a file" in await room.failure(WRITE, path="a", content="x")
        assert ".nightbook is Nightbook's own folder" in await room.failure(WRITE, path=".nightbook/x", content="x")
        assert [row["path"] for row in await room.sql("SELECT path FROM file")] == ["a/b"]


@pytest.mark.trio
async def test_a_large_file_is_cut_while_it_is_told_and_a_huge_one_refused(database: str, tmp_path: Path) -> None:
    async with house(database, tmp_path) as room:
        await room.files.fill()
        (room.folder / "big").write_text("".join(f"line {number}\n" for number in range(200_000)))
        read = await room.call(READ, path="big")
        assert len(read.text) < 60_000
        assert read.left_out > 2_000_000
        assert "lines 1 to 200000 of 200000" in read.text
        with (room.folder / "huge").open("wb") as file:
            file.truncate(100_000_000)
        assert "huge has 100000000 bytes; at most 16777216" in await room.failure(READ, path="huge")


@pytest.mark.trio
async def test_listing_and_searching_say_what_is_there_and_pass_over_what_nobody_means(
    database: str, tmp_path: Path
) -> None:
    async with house(database, tmp_path) as room:
        assert (await room.call(LIST)).text == "[empty]"
        for path in ("src/a.py", "src/b.txt", "node_modules/m/a.py", "odd\nname"):
            target = room.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("needle = 1\nhay\n")
        assert (await room.call(LIST)).text.split("\n") == ["node_modules/", "odd\\nname  15", "src/"]
        deep = (await room.call(LIST, deep=True)).text.split("\n")
        assert deep[:3] == ["odd\\nname  15", "src/a.py  15", "src/b.txt  15"]
        found = await room.call(SEARCH, pattern="NEEDLE", ignore_case=True, glob="*.py")
        assert found.text == "src/a.py:1: needle = 1"
        assert (await room.call(SEARCH, pattern=r"^h[ab]y$", regex=True, path="src/b.txt")).text == "src/b.txt:2: hay"
        assert "nothing found in 3 files" in (await room.call(SEARCH, pattern="gone")).text
        assert "regular expression cannot be used" in await room.failure(SEARCH, pattern="(", regex=True)
        assert "cannot go up" in await room.failure(SEARCH, pattern="x", path="../")
        assert "cannot go up" in await room.failure(LIST, path="..")
        assert "there is no folder nowhere" in await room.failure(LIST, path="nowhere")


@pytest.mark.trio
async def test_an_expression_that_never_ends_is_ended_and_the_engine_goes_on_meanwhile(
    database: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(reading, "SEARCH_SECONDS", 1.0)
    async with house(database, tmp_path) as room:
        await room.call(WRITE, path="a", content="a" * 60 + "!")
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await trio.sleep(0.01)
                ticks += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)
            told = await room.failure(SEARCH, pattern="(a+)+$", regex=True)
            nursery.cancel_scope.cancel()
        assert "took longer than 1 s" in told
        assert ticks > 20
