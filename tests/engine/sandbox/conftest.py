"""Real shims, kernels and shells for these tests: nothing is mocked, every wait is bounded."""

import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from e2e.scale import SOAK
from engine.sandbox.client import Sandbox, SandboxConfig
from tests.engine.sandbox.harness import MODES, Notebook, bubblewrap_works, config_of


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The short form takes each test in one mode, by turns; the long form takes each in both."""
    if SOAK:
        return
    turns = itertools.cycle(["bubblewrap", "process"] if bubblewrap_works() else ["process"])
    of_test: dict[tuple[object, ...], str] = {}
    passed_over = []
    for item in items:
        if not isinstance(item, pytest.Function) or "mode" not in (params := _parameters(item)):
            continue
        test = (item.path, item.originalname, *(str(value) for name, value in params.items() if name != "mode"))
        if test not in of_test:
            of_test[test] = next(turns)
        if params["mode"] != of_test[test]:
            passed_over.append(item)
    items[:] = [item for item in items if item not in passed_over]
    config.hook.pytest_deselected(items=passed_over)


def _parameters(item: pytest.Function) -> dict[str, object]:
    return item.callspec.params if hasattr(item, "callspec") else {}


@pytest.fixture
async def open_sandbox(tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    """A factory of started sandboxes; all are shut down in the end, however the test went."""
    configs: list[tuple[SandboxConfig, str]] = []

    async def start(mode: str = "process", notebook: str = "one", **settings: Any) -> Notebook:
        config = config_of(tmp_path, mode, **settings)
        configs.append((config, notebook))
        return Notebook(await Sandbox.start(config, notebook, 1))

    yield start
    with trio.CancelScope(shield=True, deadline=trio.current_time() + 20):
        for config, notebook in configs:
            sandbox = await Sandbox.join(config, notebook, 1_000_000, lambda _: 0)
            if sandbox is not None:
                await sandbox.shutdown()
                await sandbox.aclose()


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def notebook(open_sandbox: Callable[..., Any], mode: str) -> AsyncIterator[Notebook]:
    """A sandbox in each of the two modes."""
    opened: Notebook = await open_sandbox(mode)
    yield opened
    await opened.sandbox.aclose()
