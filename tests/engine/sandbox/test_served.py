"""A program served over pipes: isolated as a shell cell is, and gone with the connection that asked for it."""

import psutil
import pytest
import trio

from engine.sandbox.client import SandboxError
from tests.engine.sandbox.harness import Notebook, wait_for, with_argument

pytestmark = pytest.mark.trio

ECHO = (
    "import os, sys\n"
    "print(os.environ.get('SECRET'), os.environ.get('NIGHTBOOK_TOKEN'), os.getcwd(), file=sys.stderr, flush=True)\n"
    "for line in sys.stdin:\n    print(line.upper(), end='', flush=True)"
)


async def line(stream: trio.lowlevel.FdStream) -> str:
    told = b""
    with trio.fail_after(30):
        while not told.endswith(b"\n"):
            data = await stream.receive_some(1000)
            assert data
            told += data
    return told.decode()


async def test_it_talks_over_pipes_with_its_own_environment(notebook: Notebook) -> None:
    program = await notebook.sandbox.serve(["python3", "-c", ECHO, "served-secret"], {"SECRET": "s3cret-value"})
    await program.stdin.send_all(b"hello\n")
    assert await line(program.stdout) == "HELLO\n"
    secret, token, folder = (await line(program.stderr)).split()
    assert (secret, token) == ("s3cret-value", "None")
    assert "workspace" in folder
    shown = [psutil.Process(pid).cmdline() for pid in with_argument("served-secret")]
    assert shown
    assert "s3cret-value" not in str(shown)
    await program.aclose()
    await wait_for(lambda: not with_argument("served-secret"), "the program is gone")


async def test_its_end_is_told(notebook: Notebook) -> None:
    program = await notebook.sandbox.serve(["python3", "-c", "raise SystemExit(3)"], {})
    with trio.fail_after(30):
        assert await program.ended() == "exit status 3"
        assert await program.stdout.receive_some(10) == b""
    await program.aclose()


async def test_what_it_started_goes_with_it(notebook: Notebook) -> None:
    code = "import subprocess, sys\nsubprocess.Popen(['sleep', '7654'])\nprint('up', flush=True)\nsys.stdin.read()"
    program = await notebook.sandbox.serve(["python3", "-c", code], {})
    assert await line(program.stdout) == "up\n"
    assert with_argument("7654")
    await program.aclose()
    await wait_for(lambda: not with_argument("7654"), "the child is gone")


async def test_a_program_that_is_not_there(notebook: Notebook) -> None:
    with trio.fail_after(30):
        try:
            program = await notebook.sandbox.serve(["no-such-program-here"], {})
        except SandboxError as error:
            assert "no-such-program-here" in str(error)
        else:  # bubblewrap started, and could not go on
            assert "exit status 1" in await program.ended()
            assert "no-such-program-here" in await line(program.stderr)
            await program.aclose()
