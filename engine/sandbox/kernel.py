"""The Python kernel: IPython's InteractiveShell in a child process of the shim, without Jupyter's server or ZMQ.

Its asyncio loop runs for ever in the main thread, so background tasks tick between cells; a second thread listens to
the shim. An interrupt is raised in running code as KeyboardInterrupt; if the cell waits in an `await`, its task is
cancelled.

What people know from Jupyter holds: `sys.exit()` ends the cell and not the kernel. So do `exit()` and `quit()` here (in
Jupyter they take the kernel, and the variables, with them).

What a thread or task prints after its cell's end belongs to the cell that runs then, and is lost when none does: an
ended run takes no more records. It is not told by the thread's first cell, because the threads of a pool outlive the
cell that started them and work for the later ones, whose output would be lost instead.
"""

import asyncio
import base64
import builtins
import getpass
import json
import os
import queue
import re
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from types import FrameType
from typing import Any

from IPython.core.compilerop import CachingCompiler
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.formatters import BaseFormatter
from IPython.core.interactiveshell import InteractiveShell
from traitlets import ObjectName, Type, Unicode
from traitlets.config import Config

from engine.sandbox import knowledge, tables, wire
from engine.sandbox.channel import Channel, InStream, OutStream, encode, flush_c_stdio

LARGEST_DISPLAY = 16 * 1024 * 1024
REASON_CHARACTERS = 500
INTERRUPTED_FRAMES = 8
QUESTION_SECONDS = 0.8

_channel: Channel


def leave_out_own_frames(problem: BaseException | None) -> None:
    """Take the kernel's own frames out of an exception's traceback and of those it came from."""
    own, seen = os.path.dirname(__file__), set()
    while problem is not None and id(problem) not in seen:
        seen.add(id(problem))
        kept = []
        frame = problem.__traceback__
        while frame is not None:
            if os.path.dirname(frame.tb_frame.f_code.co_filename) != own:
                kept.append(frame)
            frame = frame.tb_next
        for above, below in pairwise([*kept, None]):
            if above is not None:
                above.tb_next = below
        problem.__traceback__ = kept[0] if kept else None
        problem = problem.__cause__ or problem.__context__


def bundle(data: dict[str, Any]) -> dict[str, Any]:
    """A MIME bundle as JSON can carry it: bytes in base64, and nothing larger than 16 MiB."""
    ready: dict[str, Any] = {}
    for kind, value in data.items():
        if isinstance(value, (bytes, bytearray, memoryview)):
            value = base64.b64encode(value).decode("ascii")
        elif not isinstance(value, str):
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError):
                value = repr(value)
        size = len(value) if isinstance(value, str) else len(json.dumps(value))
        if size > LARGEST_DISPLAY:
            ready["text/plain"] = f"{kind} of {size / 1048576:.1f} MiB is not shown: the most is 16 MiB"
        else:
            ready.setdefault(str(kind), value)
    return ready


def send_data(
    data: dict[str, Any], metadata: dict[str, Any] | None, display: str | None, update: bool, result: int
) -> None:
    body = {
        "t": "data", "data": bundle(data), "metadata": bundle(metadata or {}), "result": bool(result),
        "display": display, "update": update,
    }  # fmt: skip
    if result:
        body["count"] = result
    _channel.message(body)


class Publisher(DisplayPublisher):
    """`display(…)` becomes a message."""

    def publish(
        self, data: dict[str, Any], metadata: dict[str, Any] | None = None, source: Any = None, *,
        transient: dict[str, Any] | None = None,
        update: bool = False, **_: Any,
    ) -> None:  # fmt: skip
        send_data(data, metadata, (transient or {}).get("display_id"), update, 0)

    def clear_output(self, wait: bool = False) -> None:
        _channel.message({"t": "clear", "wait": wait})


class ResultHook(DisplayHook):
    """The last expression's value becomes a message, not printed text."""

    def write_output_prompt(self) -> None:
        """The page draws it."""

    def write_format_data(self, format_dict: dict[str, Any], md_dict: dict[str, Any] | None = None) -> None:
        send_data(format_dict, md_dict, None, False, self.prompt_count)

    def finish_displayhook(self) -> None:
        """Nothing to print."""


class TableFormatter(BaseFormatter):
    """Data frames as tables of their first and last rows (see `tables.py`). Knows types by name, imports none."""

    format_type = Unicode(tables.MIME)
    print_method = ObjectName("_nightbook_table_")
    _return_type = dict


class Compiler(CachingCompiler):
    """Gives code of cells a name in tracebacks that leads to the cell: a link (OSC 8) around IPython's own words."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cell: str | None = None  # the cell whose code is compiled
        self._cells: dict[str, str] = {}

    def cache(self, transformed_code: str, number: int = 0, raw_code: str | None = None) -> str:
        name = super().cache(transformed_code, number, raw_code)
        if self.cell is not None:
            self._cells[name] = self.cell
        return name

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        known, cell = super().format_code_name(name), self._cells.get(name)
        if known is None or cell is None:
            return known
        label, words = known
        return f"\x1b]8;;nightbook:cell/{cell}\x1b\\{label}", f"{words}\x1b]8;;\x1b\\"


def in_any_width(parts: Iterable[str]) -> Iterator[str]:
    """IPython's traceback without what fills 75 columns: the rule on top, and the gap in each head."""
    for part in parts:
        if re.sub(r"\x1b\[[\d;]*m", "", part).strip("-"):
            yield re.sub(r"(?m)^.* (?=Traceback \(most recent call last\))", "", part)


class Exit:
    """`exit` and `quit`: end the cell. Works without parentheses too, as in IPython."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"{self._name}() ends the cell; the kernel and its variables stay"

    def __call__(self, code: object = None) -> None:
        raise SystemExit(code)


class Shell(InteractiveShell):
    displayhook_class = Type(ResultHook)
    display_pub_class = Type(Publisher)
    compiler_class = Type(Compiler)

    compile: Compiler
    stopped: Callable[[], bool]  # whether the running cell's task was cancelled by an interrupt; set by the kernel

    def _showtraceback(self, etype: type[BaseException], evalue: BaseException, stb: list[str]) -> None:
        _channel.text("traceback", "\n".join(in_any_width(stb)) + "\n")

    def showtraceback(self, *args: Any, **kwargs: Any) -> None:
        problem = sys.exc_info()[1]
        if isinstance(problem, asyncio.CancelledError) and self.stopped():
            _channel.text("traceback", "KeyboardInterrupt: stopped while it waited\n")
        elif isinstance(problem, KeyboardInterrupt):
            # Plain, because it must be quick: IPython's own takes up to half a second the first time.
            leave_out_own_frames(problem)
            frames = traceback.extract_tb(problem.__traceback__)
            first = next((i for i, frame in enumerate(frames) if frame.filename.startswith("<ipython-input")), 0)
            lines = "".join(map(self._frame, frames[first:][-INTERRUPTED_FRAMES:]))
            _channel.text("traceback", f"{lines}KeyboardInterrupt\n")
        elif not isinstance(problem, SystemExit):
            leave_out_own_frames(problem)
            super().showtraceback(*args, **kwargs)

    def _frame(self, frame: traceback.FrameSummary) -> str:
        """One frame of a traceback, plain, in the form of IPython's."""
        named = self.compile.format_code_name(frame.filename)
        words = " ".join(named) if named else f"File {frame.filename}"
        function = "" if frame.name.startswith("<") else f", in {frame.name}"
        return f"{words}, line {frame.lineno}{function}\n    {frame.line or ''}\n\n"

    def enable_gui(self, gui: str | None = None) -> None:
        """There is no screen here."""

    def ask_exit(self) -> None:
        raise SystemExit


def make_shell() -> Shell:
    config = Config()
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.Completer.use_jedi = False
    config.InteractiveShell.colors = "neutral"  # readable on light and dark
    config.InteractiveShell.autoindent = False
    shell = Shell.instance(config=config)
    formatter = TableFormatter(parent=shell.display_formatter)
    for module, name, to_table in tables.FORMATTERS:
        formatter.for_type_by_name(module, name, to_table)  # type: ignore[no-untyped-call]
    assert shell.display_formatter is not None
    shell.display_formatter.formatters[tables.MIME] = formatter
    shell.user_ns.update(exit=Exit("exit"), quit=Exit("quit"))
    # IPython's advice for its terminal ("To exit: use 'exit', 'quit', or Ctrl-D").
    warnings.filterwarnings("ignore", message="To exit: use")
    return shell


class Kernel:
    """Runs one cell at a time, in the order the shim sends them (it sends the next after the last one's `end`)."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._task: asyncio.Task[None] | None = None
        self._answers: dict[str, queue.SimpleQueue[str]] = {}
        self._asked = 0
        self._cancelled = False
        self._stdin = True
        self._shell = make_shell()
        self._shell.stopped = lambda: self._cancelled

    def serve(self) -> None:
        sys.stdout, sys.stderr = OutStream(_channel, "stdout"), OutStream(_channel, "stderr")
        sys.stdin = InStream(self._ask)
        builtins.input = lambda prompt="", /: self._ask(str(prompt), False)
        getpass.getpass = lambda prompt="Password: ", stream=None: self._ask(str(prompt), True)
        signal.signal(signal.SIGINT, self._interrupted)
        threading.Thread(target=self._listen, name="nightbook-control", daemon=True).start()
        _channel.message({"t": "ready", "pid": os.getpid()})
        while True:
            # An interrupt or exit raised in a background task leaves the loop; the loop goes on without that task.
            with suppress(KeyboardInterrupt, SystemExit):
                self._loop.run_forever()

    # The control thread.

    def _listen(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        flush_c_stdio()  # the import it needs, so that no cell waits for it
        frames = wire.Unpacker()
        while data := self._receive():
            frames.feed(data)
            for _, payload in frames.whole():
                body = json.loads(payload)
                if body["op"] == "execute":
                    wanted = body["run"], body["code"], body.get("stdin", True), body.get("cell")
                    self._loop.call_soon_threadsafe(self._start, *wanted)
                elif body["op"] == "question":
                    due = time.monotonic() + QUESTION_SECONDS
                    self._loop.call_soon_threadsafe(self._question, body, due)
                elif body["op"] == "answer" and (answers := self._answers.pop(body["input"], None)) is not None:
                    answers.put(body["text"])
        os._exit(0)

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(65536)
        except OSError:
            return b""

    # The main thread.

    def _question(self, body: dict[str, Any], due: float) -> None:
        """Answers between two cells, or not at all: what comes late nobody reads, and code of the user's that is asked
        for its names (`__dir__`) must not hold the kernel."""
        if time.monotonic() > due or self._task is not None:
            return
        answer: dict[str, Any] = {}

        def enough(_number: int, _frame: FrameType | None) -> None:
            raise TimeoutError

        handler = signal.signal(signal.SIGALRM, enough)
        timer = signal.setitimer(signal.ITIMER_REAL, max(0.01, due - time.monotonic()))
        try:
            answer = knowledge.answer(self._shell, body["kind"], body["code"], body["at"])
        except BaseException:
            answer = {}
        finally:
            signal.setitimer(signal.ITIMER_REAL, *timer)
            signal.signal(signal.SIGALRM, handler)
        _channel.message({"t": "answer", "key": body["key"], "answer": answer})

    def _start(self, run: str, code: str, stdin: bool, cell: str | None) -> None:
        self._cancelled = False
        self._stdin = stdin
        self._shell.compile.cell = cell
        signal.signal(signal.SIGINT, self._interrupted)  # a cell may have changed it
        _channel.message({"t": "begin", "run": run})
        self._task = self._loop.create_task(self._cell(run, code))

    async def _cell(self, run: str, code: str) -> None:
        status, reason = "error", None
        try:
            status, reason = await self._execute(code)
            self._task = None
        except BaseException as problem:
            # Raised outside the cell's own code: in a hook, or the interrupt came between two steps.
            self._task = None
            reason = describe(problem)
            if not isinstance(problem, (KeyboardInterrupt, asyncio.CancelledError)):
                _channel.text("traceback", traceback.format_exc())
        if _channel.forked:
            with suppress(Exception):
                sys.stdout.flush()
            os._exit(0)
        flush_c_stdio()
        _channel.message({"t": "end", "run": run, "status": status, "reason": reason})

    async def _execute(self, code: str) -> tuple[str, str | None]:
        shell, transform_problem, cell = self._shell, None, code
        try:
            cell = shell.transform_cell(code)  # type: ignore[no-untyped-call]
        except Exception:
            transform_problem = sys.exc_info()
        result = await shell.run_cell_async(
            code, store_history=True, transformed_cell=cell, preprocessing_exc_tuple=transform_problem
        )
        shell.events.trigger("post_execute")
        shell.events.trigger("post_run_cell", result)
        problem = result.error_before_exec or result.error_in_exec
        if isinstance(problem, SystemExit):
            if problem.code in (None, 0):
                return "done", None
            _channel.text("stderr", f"{problem.code}\n" if isinstance(problem.code, str) else "")
            return "error", f"exit status {problem.code if isinstance(problem.code, int) else 1}"
        if problem is not None:
            return "error", "interrupted" if self._cancelled else describe(problem)
        return "done", None

    def _interrupted(self, _number: int, _frame: FrameType | None) -> None:
        task = self._task
        if task is None or _channel.interrupted():
            return
        current = asyncio.current_task(self._loop) if self._loop.is_running() else None
        raised = current is task or (current is not None and self._cancelled)
        _channel.message({"t": "interrupted", "raised": raised}, wait=False)
        if raised:
            raise KeyboardInterrupt
        # The cell waits in an await. If a background task holds the loop instead, the next interrupt is for that one.
        self._cancelled = True
        self._loop.call_soon_threadsafe(task.cancel)

    def _ask(self, prompt: str, password: bool) -> str:
        """`input()`: blocks this thread until the answer is there; an interrupt breaks it."""
        if _channel.forked:
            raise EOFError("input() is not possible in a forked process")
        if not self._stdin:
            raise EOFError("there is no input here: an agent runs this, and nobody is asked")
        self._asked += 1
        key = f"{os.getpid()}-{self._asked}"
        answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._answers[key] = answers
        try:
            _channel.message({"t": "input", "input": key, "prompt": encode(prompt).decode(), "password": password})
            return answers.get()
        finally:
            self._answers.pop(key, None)


def describe(problem: BaseException) -> str:
    """An exception in one line."""
    with suppress(Exception):
        text = traceback.format_exception_only(type(problem), problem)[-1].strip()
        return encode(text[:REASON_CHARACTERS]).decode()
    return type(problem).__name__


def main(fd: int) -> None:
    """Serve the shim at the inherited socket `fd`; returns never."""
    global _channel
    # What carried this code in stays out of the user's sight: `import engine` is theirs to use.
    for name in [name for name in sys.modules if name.partition(".")[0] == "engine"]:
        del sys.modules[name]
    sys.argv = [""]
    os.set_inheritable(fd, False)
    connection = socket.socket(fileno=fd)
    _channel = Channel(connection)
    Kernel(connection).serve()
