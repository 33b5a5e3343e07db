"""What an idle kernel says of a name; a busy one says nothing, and nobody's code is held up or run for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from engine.sandbox.unimported import written
from tests.engine.sandbox.harness import Notebook

pytestmark = pytest.mark.trio


@pytest.fixture
async def kernel(open_sandbox: Callable[..., Any], mode: str) -> Notebook:
    opened: Notebook = await open_sandbox(mode)
    code = (
        "import math\nvalue_of_mine = 3\ndef function_of_mine(a, b=2):\n    '''Says 😀.'''\n"
        "class Trap:\n    ran = 0\n    @property\n    def slow(self):\n        Trap.ran += 1\n    def __dir__(self):\n"
        "        import time\n        time.sleep(60)\ntrap = Trap()"
    )
    await opened.run("python", code)
    return opened


async def ask(kernel: Notebook, kind: str, code: str) -> dict[str, Any]:
    with trio.fail_after(10):
        return await kernel.sandbox.question(kind, code, len(code))


async def test_names_members_and_docs(kernel: Notebook) -> None:
    answer = await ask(kernel, "complete", "'😀'; valu")
    assert "value_of_mine" in [item["text"] for item in answer["items"]]
    assert (answer["start"], answer["end"]) == (5, 9)
    assert "sqrt" in [item["text"] for item in (await ask(kernel, "complete", "math.sq"))["items"]]
    assert (await ask(kernel, "complete", "no_such_name_at_all"))["items"] == []
    docs = (await ask(kernel, "inspect", "function_of_mine("))["text"]
    assert "function_of_mine(a, b=2)" in docs
    assert "Says 😀." in docs
    assert "\x1b" not in docs
    assert await ask(kernel, "inspect", "no_such_name") == {"text": ""}


async def test_properties_are_not_run_and_code_that_hangs_is_left(kernel: Notebook) -> None:
    await ask(kernel, "inspect", "trap.slow")
    with trio.fail_after(15):
        answer = await ask(kernel, "complete", "trap.")  # what is found without its `__dir__`, or nothing
        assert {item["text"] for item in answer.get("items", [])} <= {"ran", "slow"}
        _, text = await kernel.run("python", "print(Trap.ran)")
    assert text == "0\n"


async def test_a_question_imports_nothing(kernel: Notebook) -> None:
    files = {
        "lib/__init__.py": "import math\nopen('ran', 'w')\ndef within(): x = 1\nLIMIT = 3",
        "lib/part.py": "",
        "lazy/__init__.py": "import importlib\ndef __getattr__(name): return importlib.import_module('lazy.' + name)",
        "lazy/deep.py": "open('ran', 'w')",
    }
    code = (
        f"import pathlib, sys\nfor name, text in {files!r}.items():\n    file = pathlib.Path(name)\n"
        "    file.parent.mkdir(exist_ok=True)\n    file.write_text(text)\nimport lazy"
    )
    await kernel.run("python", code)

    async def texts(code: str) -> set[str]:
        with trio.fail_after(30):
            while not (answer := await ask(kernel, "complete", code)):
                pass  # its time was up
        return {item["text"] for item in answer["items"]}

    assert "lib" in await texts("import li")
    assert "lib.part" in await texts("import lib.pa")
    names = await texts("from lib import ")
    assert {"part", "within", "LIMIT", "math"} <= names
    assert "x" not in names
    await ask(kernel, "complete", "lazy.deep.")
    await ask(kernel, "inspect", "lazy.deep")
    _, text = await kernel.run(
        "python", "print(pathlib.Path('ran').exists(), 'lib' in sys.modules)\nlazy.deep\nimport lib.part"
    )
    assert text == "False False\n"


@pytest.mark.parametrize(
    "source", [b"def (:", b"\xff\xfe", b"\0", b"(" * 100_000], ids=["half", "bytes", "nul", "deep"]
)
async def test_of_a_file_that_is_no_python_no_names_are_listed(
    source: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_written_module.py").write_bytes(source)
    monkeypatch.syspath_prepend(tmp_path)
    assert written("half_written_module") == []


async def test_a_busy_kernel_says_nothing_and_a_stop_does_not_wait(kernel: Notebook) -> None:
    run = await kernel.begin("python", "import time\nprint('on', flush=True)\ntime.sleep(60)")
    await kernel.printed(run, "on")
    assert await ask(kernel, "complete", "math.sq") == {}
    await kernel.sandbox.stop(run)
    assert (await kernel.ended(run))["status"] == "cancelled"
    assert (await ask(kernel, "complete", "math.sq"))["items"]


async def test_before_there_is_a_kernel_there_is_no_answer(open_sandbox: Callable[..., Any]) -> None:
    opened: Notebook = await open_sandbox("process")
    assert await ask(opened, "complete", "prin") == {}
    assert (await opened.sandbox.status())["kernel"] == "none"
