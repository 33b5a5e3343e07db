"""A notebook as a document: outputs as they end, pictures inside, nothing that runs or loads."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from engine.notebook import Notebook, fold
from tests.ui.scripted import frames_of
from ui import export
from ui.harmless import harmless

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
TABLE = {
    "columns": [{"name": "a|b", "dtype": "i64", "number": True}],
    "index": 0, "rows": [[1], [{"text": "y" * 10, "cut": 99}]], "head": 1, "shape": [1000, 1],
}  # fmt: skip


def notebook() -> Notebook:
    place: dict[str, Any] = {"cell_id": "a", "run_id": "r"}
    shown = [
        {"stream": "stdout", "text": "10%\r\x1b[31m100%\x1b[0m\n"},
        {"stream": "stderr", "text": "warning <b>\n"},
        {"data": {"image/png": {"blob": "f" * 64, "bytes": 70}, "text/plain": "Figure"}},
        {
            "data": {
                "text/html": "<table onclick='x()'><tr><td colspan=2>1</table><script>bad()</script><img src=http://a/b>"
            }
        },
        {"data": {"application/vnd.nightbook.table+json": TABLE}},
        {"data": {"text/latex": r"$\frac{a}{b}$"}},
        {"stream": "stdout", "text": "end\n", "left_out": 5_000_000, "displays_left_out": 12},
    ]
    return fold(
        Notebook("n"),
        frames_of(
            ("session", {"event": "created", "title": "A <title>"}),
            (
                "cell",
                {"event": "added", "cell_id": "m", "kind": "markdown", "source": "# Head\n\n$x^2$ `$no$` <i>raw</i>"},
            ),
            ("cell", {"event": "added", "cell_id": "a", "kind": "python", "source": "print('```')", "after": "m"}),
            ("run", {"event": "queued", **place}),
            ("run", {"event": "started", **place}),
            *[("output", {**place, **body}) for body in shown],
            ("run", {"event": "ended", "status": "error", "reason": "E: no", **place}),
        ),
    )


@pytest.fixture(params=["md", "html", "txt"])
def form(request: pytest.FixtureRequest) -> export.Format:
    return request.param  # type: ignore[no-any-return]


def test_every_form_has_sources_and_outputs_as_they_end(form: export.Format) -> None:
    blobs = {"f" * 64: PIXEL}
    assert export.blobs_of(notebook()) == list(blobs)
    text = export.document(notebook(), form, blobs)
    assert "100%" in text
    assert "10%\r" not in text
    assert "\x1b" not in text
    assert "5,000,000 bytes and 12 displays not shown here" in text
    assert "Cell 2, Python, error: E: no" in text


def test_html_is_whole_harmless_and_has_its_pictures() -> None:
    text = export.document(notebook(), "html", {"f" * 64: PIXEL})
    assert "<script" not in text
    assert "http://" not in text
    assert "onclick" not in text
    assert "bad()" not in text
    assert f'<img src="data:image/png;base64,{base64.b64encode(PIXEL).decode()}" alt="Figure">' in text
    assert '<span class="fg fg1">100%</span>' in text
    assert '<span class="err">warning &lt;b&gt;</span>' in text
    assert "<mfrac>" in text
    assert "<code>$no$</code>" in text
    assert "&lt;i&gt;raw&lt;/i&gt;" in text
    assert "1,000 rows × 1 columns" in text


def test_markdown_fences_what_has_fences_and_draws_tables() -> None:
    text = export.document(notebook(), "md", {})
    assert "````python\nprint('```')\n````" in text
    assert "| a\\|b |\n| --- |\n| 1 |\n| … |" in text
    assert "```\nFigure\n```" in text, "a picture that is not at hand is told by its words"


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        ("<p>a<b>b</p>c", "<p>a<b>b</b></p>c"),
        ("<a href='javascript:x'>t</a>", "t"),
        ("<svg><script>x</script></svg>t", "t"),
        ("<style>p{}</style><p style='position:fixed'>t", "<p>t</p>"),
        ("<img src=x onerror=y><form><input>t</form>", "t"),
        ("<td colspan='2' rowspan='x'>1 < 2", '<td colspan="2">1 &lt; 2</td>'),
        ("<iframe src=//a></iframe>t<br/>", "t<br>"),
    ],
)
def test_html_of_programs_is_made_harmless(bad: str, good: str) -> None:
    assert harmless(bad) == good


HOSTILE = "</pre></details><script>bad()</script> <img src=http://a/b onerror=bad()> ```\n[x](javascript:bad())"


def turn() -> Notebook:
    place: dict[str, Any] = {"cell_id": "a", "run_id": "r"}
    call = {"call": "c", "tool": "shell", "round": 1, "title": f"Run {HOSTILE}", "arguments": {"command": HOSTILE}}
    ask = {"tool": "shell", "title": "Run make", "command": HOSTILE, "why": "To build", "risk": "run", "seconds": 300}
    return fold(
        Notebook("n"),
        frames_of(
            ("session", {"event": "created", "title": "A turn"}),
            ("cell", {"event": "added", "cell_id": "a", "kind": "agent", "source": "Build it"}),
            ("run", {"event": "queued", **place}),
            ("run", {"event": "started", **place}),
            ("thought", {"round": 1, "text": f"I will **build**. {HOSTILE}", **place}),
            ("thought", {"round": 1, "text": "to myself", "thinking": True, **place}),
            ("tool", {"event": "call", **call, **place}),
            ("ask", {"ask": "q", "call": "c", **ask, **place}),
            ("verdict", {"ask": "q", "call": "c", "verdict": "approve", "reason": "person", "by": "Mia <b>", **place}),
            ("file", {"path": "made/out.txt", "version": 1, "bytes": 3, "call": "c", **place}),
            ("tool", {"event": "result", "call": "c", "status": "error", "text": f"\x1b[31m{HOSTILE}", **place}),
            ("tool", {"event": "call", **call, "call": "d", "title": "Again", **place}),
            ("ask", {"ask": "w", "call": "d", **ask, **place}),
            ("verdict", {"ask": "w", "call": "d", "verdict": "deny", "reason": "timeout", **place}),
            ("delivered", {"text": f"All **built**. {HOSTILE}", "files": ["made/out.txt"], **place}),
            ("done", {"rounds": 2, "calls": 2, "ms": 1500, **place}),
            ("run", {"event": "ended", "status": "done", **place}),
        ),
    )


def test_every_form_tells_the_story_of_a_turn(form: export.Format) -> None:
    text = export.document(turn(), form, {})
    for words in (
        "Build it", "to myself", "Result", "Arguments of shell", "Approved by Mia", "Denied: nobody answered in time",
        "made/out.txt", "Delivered", "2 rounds, 2 calls, 1.5 s of work", "To build",
    ):  # fmt: skip
        assert words in text.replace("\\", "")
    assert text.count("Build it") == 1, "the request stands above its story"
    assert "\x1b" not in text


def test_a_hostile_story_is_text_and_thoughts_and_calls_are_folded() -> None:
    text = export.document(turn(), "html", {})
    assert "<script" not in text
    assert "<img" not in text
    assert "Mia <b>" not in text
    assert 'href="javascript' not in text
    assert text.count("<details") == text.count("</details>") == 4
    assert "<strong>built</strong>" in text
    assert "<details open" not in text
    plain = export.document(turn(), "md", {})
    outside = "".join(plain.split("````")[::2])  # the fences are longer than the ticks in what they hold
    assert "<script" not in outside.replace("\\<", "")
    assert "<img" not in outside.replace("\\<", "")
