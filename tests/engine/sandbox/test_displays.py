"""What cells display with the libraries people use: figures, tables, plots, tracebacks that lead to their cells."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from engine.images import sides
from engine.sandbox import tables
from tests.engine.sandbox.harness import Notebook

pytestmark = pytest.mark.trio


@pytest.fixture
async def notebook(open_sandbox: Callable[..., Any]) -> AsyncIterator[Notebook]:
    opened: Notebook = await open_sandbox("process")
    yield opened
    await opened.sandbox.aclose()


async def shown(notebook: Notebook, code: str) -> list[dict[str, Any]]:
    run = await notebook.begin("python", code)
    ended = await notebook.ended(run, 90)
    assert ended["status"] == "done", (ended, notebook.text(run))
    return notebook.of(run, "data")


async def test_a_figure_shows_without_any_magic(notebook: Notebook) -> None:
    code = "import matplotlib.pyplot as plt\nplt.figure(figsize=(2, 1), dpi=100)\nplt.plot([1, 3, 2])\n'last'"
    result, figure = await shown(notebook, code)
    assert result["data"]["text/plain"] == "'last'"
    width, height = sides("image/png", base64.b64decode(figure["data"]["image/png"])) or (0, 0)
    assert 100 < width < 300
    assert 50 < height < 200
    assert await shown(notebook, "1;") == [], "a figure is shown once"


async def test_frames_of_pandas_and_polars_are_tables_of_their_ends(notebook: Notebook) -> None:
    code = (
        "import pandas as pd\nfrom IPython.display import display\n"
        "frame = pd.DataFrame({'n': range(1_000_000), 's': 'x'})\n"
        "display(frame)\ndisplay(frame['n'].head(2))\n"
        "import polars as pl\npl.DataFrame({'a': [1.5, None], 's': ['y' * 1_000_000, 'z']})"
    )
    frame, series, other = [record["data"][tables.MIME] for record in await shown(notebook, code)]
    assert frame["shape"] == [1_000_000, 2]
    assert (frame["head"], len(frame["rows"])) == (tables.HEAD, tables.HEAD + tables.TAIL)
    assert (frame["rows"][0], frame["rows"][-1]) == ([0, 0, "x"], [999_999, 999_999, "x"])
    assert [column["number"] for column in frame["columns"]] == [True, True, False]
    assert series["rows"] == [[0, 0], [1, 1]]
    assert [column["dtype"] for column in other["columns"]] == ["Float64", "String"]
    assert other["rows"][1] == [None, "z"]
    assert other["rows"][0][1]["cut"] == 1_000_000
    assert len(other["rows"][0][1]["text"]) == tables.TEXT


async def test_a_plotly_figure_is_its_specification(notebook: Notebook) -> None:
    code = "import plotly.graph_objects as go\ngo.Figure(go.Scatter(y=[1, 3, 2]))"
    (plot,) = await shown(notebook, code)
    assert plot["data"]["application/vnd.plotly.v1+json"]["data"][0]["type"] == "scatter"


async def test_output_is_cleared_at_once_or_when_the_next_comes(notebook: Notebook) -> None:
    code = (
        "from IPython.display import clear_output, display\nimport time\n"
        "print('one')\ntime.sleep(0.1)\nclear_output()\nprint('two')\ntime.sleep(0.1)\n"
        "for number in range(2000):\n    clear_output(wait=True)\n    print(number)\n"
        "clear_output(wait=True)"
    )
    run = await notebook.begin("python", code)
    await notebook.ended(run)
    kinds = [(record["t"], record.get("text")) for record in notebook.of(run)]
    assert kinds[:4] == [("started", None), ("out", "one\n"), ("clear", None), ("out", "two\n")]
    assert len(kinds) < 500, "a loop that clears is not stored step by step"
    assert kinds[-2] == ("out", "1999\n"), "what was there when nothing followed stays"


async def test_a_traceback_leads_to_its_cells(notebook: Notebook) -> None:
    await notebook.sandbox.execute("r1", "python", "def half(x):\n    return 1 / x", cell_id="cell-one")
    await notebook.ended("r1")
    await notebook.sandbox.execute("r2", "python", "\nhalf(0)", cell_id="cell-two")
    await notebook.ended("r2")
    text = notebook.text("r2", "traceback")
    first, second = (
        text.find("\x1b]8;;nightbook:cell/cell-two\x1b\\"),
        text.find("\x1b]8;;nightbook:cell/cell-one\x1b\\"),
    )
    assert 0 < first < second
