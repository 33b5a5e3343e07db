"""Whatever a program prints is shown safely, and no other notebook notices."""

import time

import pytest

from e2e.api import Api
from e2e.waiting import until


def run(api: Api, kind: str, source: str) -> tuple[dict[str, object], str]:
    notebook = api.notebook((kind, source))
    notebook.run(notebook.cells[0])
    cell = notebook.wait(notebook.cells[0], seconds=60)
    return cell, notebook.text(notebook.cells[0])


@pytest.mark.parametrize(
    ("kind", "source", "shown"),
    [
        ("python", r"print('a\x00b')", "a\ufffdb\n"),
        ("python", r"print('a\ud800b')", "a\ufffdb\n"),
        ("python", r"import os; os.write(1, b'a\xff\xfeb\n')", "a\ufffd\ufffdb\n"),
        ("shell", r"printf 'a\000b\377c\n'", "a\ufffdb\ufffdc\r\n"),
        ("shell", r"printf '\342'; sleep 0.2; printf '\211'; sleep 0.2; printf '\244\n'", "≤\r\n"),
        ("python", r"import sys; sys.stdout.write('a\ud83d'); sys.stdout.write('\ude00b\n')", None),
    ],
    ids=["nul", "surrogate", "invalid UTF-8", "shell bytes", "a character in pieces", "a pair in pieces"],
)
def test_strange_text_is_shown_with_replacement_characters(api: Api, kind: str, source: str, shown: str | None) -> None:
    cell, text = run(api, kind, source)
    assert cell["state"] == "done", cell
    assert "\x00" not in text
    assert not any("\ud800" <= character <= "\udfff" for character in text)
    if shown is not None:
        assert text == shown


def test_strange_text_in_an_error_a_prompt_and_a_result(api: Api) -> None:
    cell, text = run(api, "python", r"raise ValueError('bad \x00 \ud800 value')")
    assert cell["state"] == "error"
    assert "bad \ufffd \ufffd value" in text
    cell, _ = run(api, "python", r"'\x00\ud800'")
    assert cell["state"] == "done"
    notebook = api.notebook(("python", r"input('\x00\ud800? ')"))
    notebook.run(notebook.cells[0])
    asked = notebook.wait(notebook.cells[0], "waiting")
    assert asked["input"]["prompt"] == "\ufffd\ufffd? "
    notebook.ask("input", run_id=asked["run_id"], input=asked["input"]["id"], text="a\x00b")
    assert notebook.wait(notebook.cells[0])["state"] in {"done", "error"}


def test_a_line_of_fifty_megabytes_is_bounded_and_nobody_else_notices(api: Api) -> None:
    notebook = api.notebook(("python", "for _ in range(50): print('y' * 1_000_000, end='')\nprint('end')"))
    other = api.notebook(("python", "print('calm')"))
    other.run(other.cells[0])
    other.wait(other.cells[0], "done")
    notebook.run(notebook.cells[0])
    until(lambda: notebook.text(notebook.cells[0]), "the flood has begun")
    began = time.monotonic()
    other.run(other.cells[0])
    other.wait(other.cells[0], "queued", "running", "done")
    other.wait(other.cells[0], "done")
    assert time.monotonic() - began < 30  # as long as the flood lasts, if it had to wait for it
    cell = notebook.wait(notebook.cells[0], "done", seconds=60)
    text = notebook.text(notebook.cells[0])
    assert text.endswith("yend\n")
    assert len(text) < 400_000
    assert cell["whole"]["bytes"] == 50_000_004
    stored = sum(len(frame["body"].get("text", "")) for frame in notebook.frames() if frame["kind"] == "output")
    assert stored < 16_000_000, "the journal keeps the first and the last 5 MiB, and a little between"
    whole = api.client.get(f"/api/v1/blobs/{cell['whole']['sha256']}")
    assert len(whole.content) == 50_000_004
    assert whole.headers["content-type"].startswith("text/plain")
