"""Servers of models that are not ours, each driving turns of a real Nightbook: `python -m tests.bench.others`.

They come from PyPI into an environment of their own, at pinned versions, so this needs a network and is in no suite.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from e2e.api import Api
from e2e.server import Server, free_port
from e2e.waiting import until
from tests.bench import toy

FAKELLM = "fakellm==0.3.5"  # speaks both protocols, by rules
TINYQ4 = "tinyq4==0.1.0"  # runs a real model; ends its replies without a reason to stop, as small servers do
RULES = {
    "rules": [
        {
            "name": "the call was made",
            "when": {"tool_result_contains": "moth-4711"},
            "respond": {"content": "The file says moth-4711, and that is all."},
        },
        {
            "name": "two calls at once",
            "when": {"tools_include": "shell"},
            "respond": {
                "tool_calls": [
                    {"name": "write_file", "arguments": {"path": "moth.txt", "content": "moth-4711\n"}},
                    {"name": "shell", "arguments": {"command": "cat moth.txt"}},
                ]
            },
        },
    ]
}


def environment(folder: Path, *packages: str) -> Path:
    """A virtual environment with `packages`; returns its folder of programs."""
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--only-binary", ":all:", *packages]
    subprocess.run(pip, check=True)
    return folder / "bin"


@contextmanager
def running(arguments: list[str], port: int, folder: Path, variables: Mapping[str, str] | None = None) -> Iterator[str]:
    """A server in a process of its own, in `folder`, as soon as it answers; gives its address."""
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        try:
            return httpx.get(url, trust_env=False).status_code < 600
        except httpx.HTTPError:
            return False

    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            arguments, cwd=folder, env={**os.environ, **(variables or {})}, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        until(lambda: answers() or process.poll() is not None, f"{arguments[0]} answers", 120)
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        yield url
    finally:
        process.terminate()
        process.wait(20)


def turn(api: Api, model: str, request: str) -> tuple[str, str]:
    """Has a model work on a request; how the turn ended, and its story in a few lines."""
    notebook = api.notebook(("agent", request))
    [cell] = notebook.cells
    notebook.ask("set_model", model=model)
    notebook.ask("set_policy", policy="all")
    notebook.run(cell)
    ended = notebook.wait(cell, seconds=180)
    lines = []
    for item in ended["story"]["items"]:
        if item["t"] in ("thought", "error"):
            lines.append(f"  {item['t']}: {(item.get('text') or item.get('reason') or '')[:200]!r}")
        elif item["t"] == "tool":
            lines.append(f"  call: {item['title']} -> {item['status']}")
    return ended["state"], "\n".join(lines)


def rules(folder: Path) -> None:
    """fakellm, by both protocols."""
    programs = environment(folder / "environment", FAKELLM)
    (folder / "fakellm.yaml").write_text(json.dumps(RULES))
    port = free_port()
    with running([str(programs / "fakellm"), "serve", "--port", str(port)], port, folder) as url:
        server = Server(folder / "data", ANTHROPIC_URL=url, OPENAI_URL=f"{url}/v1")
        try:
            server.start()
            api = Api(server.url, server.token)
            for model in ("openai:some-model", "anthropic:some-model"):
                state, told = turn(api, model, f"As {model}: write the file, and say what stands in it.")
                print(f"{FAKELLM} as {model}: {state}\n{told}")
                assert state == "done"
                assert told.count("-> done") == 2
                assert "that is all" in told
            api.close()
        finally:
            server.stop_all()


def inference(folder: Path) -> None:
    """tinyq4, a transformer runtime, with a model of random weights: a turn of prose without sense."""
    programs = environment(folder / "environment", TINYQ4)
    toy.write(folder / "toy.gguf")
    port = free_port()
    with running([str(programs / "tinyq4"), "toy.gguf", "--server", str(port)], port, folder) as url:
        server = Server(folder / "data", OLLAMA_URL=f"{url}/v1")
        try:
            server.start()
            api = Api(server.url, server.token)
            tried = api.client.post("/api/v1/models/ollama/try").json()
            print(f"{TINYQ4} offers {tried['models']}")
            [model] = tried["models"]
            state, told = turn(api, f"ollama:{model}", "Say something.")
            print(f"{TINYQ4} as ollama:{model}: {state}\n{told}")
            assert state == "done"
            assert "thought: " in told
            api.close()
        finally:
            server.stop_all()


def main() -> None:
    for shown in (rules, inference):
        with tempfile.TemporaryDirectory(prefix="nightbook-others-") as folder:
            shown(Path(folder))


if __name__ == "__main__":
    main()
