"""Records on disk, numbered without gaps; runs remembered for a day."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from engine.sandbox import spool as module
from engine.sandbox.spool import Cursor, RunBook, Spool, encode


def drain(spool: Spool, cursor: Cursor, size: int = 4096) -> list[dict[str, Any]]:
    found = []
    while lines := spool.read(cursor, size):
        found += [json.loads(line) for line in lines]
    return found


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Spool:
    monkeypatch.setattr(module, "SEGMENT_BYTES", 2000)
    return Spool(tmp_path / "spool", 20_000)


def test_numbers_have_no_gaps_and_any_place_can_be_read_from(spool: Spool) -> None:
    for i in range(200):
        assert spool.append({"t": "out", "text": "line\r\n" * (i % 7)}) == i + 1
    for after in (0, 1, 57, 199, 200):
        assert [record["n"] for record in drain(spool, spool.cursor(after))] == list(range(after + 1, 201))
    with pytest.raises(ValueError, match="only 1 to 200"):
        spool.cursor(201)


def test_a_reader_follows_as_records_come_and_sees_the_large_one_whole(spool: Spool) -> None:
    cursor = spool.cursor(0)
    assert drain(spool, cursor) == []
    spool.append({"text": "x" * 50_000})
    spool.append({"text": "after"})
    assert [len(record["text"]) for record in drain(spool, cursor, 100)] == [50_000, 5]
    spool.append({"text": "later"})
    assert [record["n"] for record in drain(spool, cursor)] == [3]


def test_acknowledged_records_are_forgotten_and_make_room(spool: Spool, tmp_path: Path) -> None:
    while not spool.full:
        spool.append({"text": "x" * 500})
    files = len(os.listdir(tmp_path / "spool"))
    assert files >= 9
    spool.ack(spool.last // 2)
    assert not spool.full
    assert drain(spool, spool.cursor(spool.last // 2))[0]["n"] == spool.last // 2 + 1
    with pytest.raises(ValueError, match="are not here"):
        spool.cursor(0)
    spool.ack(spool.last)
    spool.ack(10**9)
    assert spool.size <= 2600
    spool.append({"text": "next"})
    assert [record["n"] for record in drain(spool, spool.cursor(spool.last - 1))] == [spool.last]


def test_a_reader_goes_on_when_what_it_reads_is_acknowledged(spool: Spool) -> None:
    for _ in range(50):
        spool.append({"text": "x" * 200})
    cursor = spool.cursor(0)
    assert len(spool.read(cursor, 1000)) > 0
    place = cursor.n
    spool.ack(place)
    assert [record["n"] for record in drain(spool, cursor)] == list(range(place + 1, 51))


def test_a_full_disk_is_back_pressure_not_loss(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    spool.append({"text": "one"})
    real = os.write

    def no_room(fd: int, data: bytes) -> int:
        real(fd, data[:5])
        return 5

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "write", no_room)
        spool.append({"text": "two"})
        assert spool.full
        spool.append({"text": "three"})
    cursor = spool.cursor(0)
    assert [record["text"] for record in drain(spool, cursor)] == ["one"]
    spool.write()
    assert not spool.full
    assert [record["text"] for record in drain(spool, cursor)] == ["two", "three"]


def test_lone_surrogates_never_reach_the_wire() -> None:
    assert json.loads(encode({"text": "a\ud800b\udfff", "≤": "\0"})) == {"text": "a\ufffdb\ufffd", "≤": "\0"}


def test_runs_are_remembered_for_a_day_across_shims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.jsonl"
    book = RunBook(path)
    book.begin("finished", "python")
    book.end("finished", "done", None, 0)
    book.begin("interrupted", "shell")
    book.seen(7)
    with path.open("ab") as file:
        file.write(b'{"run": "torn')
    again = RunBook(path)
    assert again.epoch == 7
    assert again.runs["finished"]["status"] == "done"
    assert again.runs["interrupted"]["state"] == "ended"
    assert again.runs["interrupted"]["reason"] == "the sandbox was lost"
    a_day_later = time.time() + 24 * 3600 + 1
    monkeypatch.setattr(module.time, "time", lambda: a_day_later)
    assert RunBook(path).runs == {}
    assert RunBook(path).epoch == 7
