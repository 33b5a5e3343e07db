"""What a turn is shown of its notebook, and its bounds: plain values only."""

from __future__ import annotations

from typing import Any

from engine.agent.bounds import SAME_FAILURES, runaway
from engine.agent.calls import Exchange, Result
from engine.agent.context import OUTPUT, SOURCE, context
from engine.agent.plain import plain
from engine.decide import first_frames
from engine.effects import call_id, effect_key, kept, result_from
from engine.frames import draft
from engine.notebook import Notebook
from tests.engine.frames_made import after


def made(*cells: tuple[str, str, str]) -> Notebook:
    return after(Notebook("n"), first_frames("Title", cells, "owner"))


def printed(notebook: Notebook, cell: str, text: str, **fields: Any) -> Notebook:
    about: dict[str, Any] = {"run_id": f"r-{cell}", "cell_id": cell}
    return after(
        notebook,
        [
            draft("run", event="queued", **about),
            draft("run", event="started", sandbox="s", **about),
            draft("output", text=text, stream="stdout", **about),
            draft("run", event="ended", **{"status": "done", **fields}, **about),
        ],
    )


def test_the_cells_above_are_shown_with_what_they_show_and_those_below_are_not() -> None:
    notebook = made(("a", "python", "print(1)"), ("t", "markdown", "# Hi"), ("g", "agent", "go"), ("z", "python", "z"))
    notebook = printed(notebook, "a", "1\n")
    notebook = printed(notebook, "z", "below")
    shown = context(notebook, "g")
    assert shown.index("print(1)") < shown.index("### What it shows\n1") < shown.index("# Hi")
    assert "id a, done" in shown
    assert "below" not in shown
    assert "go" not in shown.split()


def test_an_error_is_shown_with_its_reason() -> None:
    notebook = printed(made(("a", "python", "1/0"), ("g", "agent", "go")), "a", "trace", status="error", reason="boom")
    assert "error: boom" in context(notebook, "g")


def test_what_is_left_out_is_said_and_the_nearest_cells_come_first() -> None:
    cells = [(f"c{n}", "python", f"source {n} " + "x" * 2 * SOURCE) for n in range(20)]
    notebook = printed(made(*cells, ("g", "agent", "go")), "c19", "y" * 10 * OUTPUT)
    shown = context(notebook, "g")
    assert "source 19" in shown
    assert "source 0 " not in shown
    assert "cells further up are not shown" in shown
    assert "characters not shown" in shown
    assert len(shown) < 30_000


def test_terminal_text_is_read_as_a_terminal_would_show_it() -> None:
    assert plain("10%\r50%\rdone\n") == "done\n"
    assert plain("abc\b\bX\n") == "aXc\n"
    assert plain("\x1b[31mred\x1b[0m \x1b]0;title\x07text\r\n") == "red text\n"
    assert plain("bell\x07 and nul\x00") == "bell and nul"


def exchange(number: int, tool: str, status: Any, **arguments: Any) -> Exchange:
    call = {"id": f"c{number}", "tool": tool, "arguments": arguments}
    return Exchange(number, {"calls": [call]}, {f"c{number}": Result(status)})


def test_only_the_same_call_failing_in_a_row_is_a_runaway() -> None:
    same = [exchange(n, "read_file", "error", path="a") for n in range(SAME_FAILURES)]
    assert "read_file" in (runaway(same) or "")
    assert runaway(same[1:]) is None
    assert runaway([*same[1:], exchange(9, "read_file", "error", path="b"), *same[1:]]) is None
    assert runaway([*same[1:], exchange(9, "shell", "done", command="make"), *same[1:]]) is None
    assert runaway([exchange(n, "shell", "denied", command="rm") for n in range(SAME_FAILURES)]) is not None


def test_calls_that_take_all_memory_are_a_runaway_whatever_lies_between() -> None:
    """Other code each time, and progress told after each: nothing of that makes memory."""

    def starved(number: int, ending: str = "[error: Out of memory: 300 MiB in use]") -> list[Exchange]:
        one = exchange(number, "python", "error", code=f"grow({number})")
        ran_out = Result("error", f"some text\n{ending}")
        return [
            Exchange(number, one.reply, {f"c{number}": ran_out}),
            exchange(number + 1, "progress", "done", text="on"),
        ]

    assert runaway([*starved(1), *starved(3)]) is None
    assert "memory ran out 3 times" in (runaway([*starved(1), *starved(3), *starved(5)]) or "")
    said = "it printed Out of memory: once\n[error: exit status 1]"
    assert runaway([*starved(1, said), *starved(3, said), *starved(5, said)]) is None


def test_a_result_of_a_hundred_megabytes_is_kept_in_bounds() -> None:
    value = kept(Result("done", "é" * 50_000_000, diff="+" * 10_000_000))
    assert len(value["text"].encode()) < 64 * 1024
    assert value["left_out"] == 100_000_000 - 48 * 1024
    assert len(value["diff"]) < 64 * 1024
    assert result_from(value).left_out == value["left_out"]


def test_a_call_and_its_effect_have_the_same_names_after_a_crash() -> None:
    assert call_id("r", 2, 1) == call_id("r", 2, 1) != call_id("r", 1, 2)
    assert effect_key("r", "c", "d") == effect_key("r", "c", "d") != effect_key("r", "c", "e")
