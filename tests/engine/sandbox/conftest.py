"""Real shims, kernels and shells for these tests: nothing is mocked, every wait is bounded."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from engine.sandbox.client import Sandbox, SandboxConfig
from tests.engine.sandbox.harness import MODES, Notebook, config_of


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
