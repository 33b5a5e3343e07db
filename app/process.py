"""The process: which threads it has, in which order they come up, and how they end.

main runs trio and owns the signals. The listening socket is bound before anything else starts, so that a taken port
ends the start with one line. A web half that dies ends the process with its reason; programs in sandboxes
go on either way.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import importlib
import logging
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import asyncpg
import trio

from app.auth import load_or_make_token
from app.leaving import Leaving
from app.running import ProcessFile
from app.settings import Settings, SettingsError, models_config
from engine.agent.mcp.servers import ServersConfig
from engine.agent.models.choosing import Chosen
from engine.broker import BrokerConfig
from engine.journal import Journal
from engine.sandbox.client import SandboxConfig
from engine.store import embedded, schema
from engine.store.address import unavailable
from engine.supervisor import Supervisor

log = logging.getLogger("nightbook")

OPEN_FILES = 65536  # each viewer holds one; the usual 1,024 would turn away people and leave engines without files
UNSENT_BYTES = 128 * 1024  # that the system takes for one who reads nothing; it would take megabytes, for each
# Objects more than at the last search for garbage, until the next. Steps replace what engines hold, and a search goes
# through all of that: with a thousand engines at work, 67 of 3 ms in 10 s at Python's own 700, now 5 of 8 ms.
GARBAGE = (10_000, 10, 10)
SWITCH_SECONDS = 0.0005  # with the web thread busy, a commit waits for the interpreter no longer than this


def run(settings: Settings, *, web: bool, worker: bool) -> int:
    """Serves until SIGINT or SIGTERM; returns the exit code. Raises one-line errors for what an operator can mend."""
    began = time.monotonic()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    # Its lines name the address of each socket, and with it the page's client id, which opens it to anybody.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)  # that the database is away, who asks it says in a line
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.disable()  # until it is ready: what a start imports stays, and each search through it for garbage finds none
    allow_open_files()
    listener = _listen(settings) if web else None
    if web:  # its imports take a second, while the database starts in processes of its own
        threading.Thread(target=importlib.import_module, args=("app.web",), daemon=True).start()
    role = "serve" if web and worker else "web" if web else "worker"
    port = None if listener is None else listener.getsockname()[1]
    said = ProcessFile(settings.data, role, None if port is None else f"http://{_loopback(settings.host)}:{port}")
    own: embedded.Embedded | None = None
    try:
        own = embedded.start(settings.data) if settings.database_url is None else None
        dsn = own.dsn if own is not None else settings.database_url.get_secret_value() if settings.database_url else ""
        try:
            asyncio.run(schema.migrate(dsn))
        except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise unavailable(dsn, error) from error
        leaving = Leaving(settings.data)
        leaving.install()
        code = trio.run(_main, settings, dsn, listener, worker, began, leaving)
        leaving.finish()
        return code
    finally:
        if listener is not None:
            listener.close()
        if own is not None:
            own.release()
        said.close()  # last: who waits for it may remove the data folder next


def allow_open_files() -> None:
    """Takes as many open files as this account may have, up to `OPEN_FILES`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with contextlib.suppress(OSError, ValueError):  # refused by the system: it goes on with what there is
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _listen(settings: Settings) -> socket.socket:
    """The bound socket. Raises `SettingsError` when the address cannot be had."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # what it accepts has this from it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        listener.bind(address)
        listener.listen(1024)
        listener.setblocking(False)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        if error.errno == errno.EADDRINUSE:
            raise SettingsError(
                f"port {settings.port} on {settings.host} is taken: stop what uses it, or set NIGHTBOOK_PORT"
            ) from None
        raise SettingsError(
            f"cannot listen on {where} ({error.strerror}): correct NIGHTBOOK_HOST or NIGHTBOOK_PORT"
        ) from None
    return listener


def sandbox_config(settings: Settings) -> SandboxConfig:
    """What the sandboxes need to know of the settings."""
    return SandboxConfig(
        root=settings.data / "sandboxes",
        workspaces=settings.data / "workspaces",
        isolation=settings.sandbox,
        orphan_seconds=settings.orphan_seconds,
        memory_bytes=settings.sandbox_memory_bytes,
        processes=settings.sandbox_processes,
    )


async def _main(
    settings: Settings, dsn: str, listener: socket.socket | None, worker: bool, began: float, leaving: Leaving
) -> int:
    journal = supervisor = None
    if worker:
        journal = Journal(dsn)
        supervisor = Supervisor(
            journal,
            sandbox_config(settings),
            settings.data / "workers",
            poll=settings.poll_seconds,
            sandbox_idle=settings.sandbox_idle_seconds,
            kernel_idle=settings.kernel_idle_seconds,
            broker=BrokerConfig(settings.approval_seconds, settings.operator_grace_seconds),
            turn_seconds=settings.turn_seconds,
            fetch_allow=settings.fetch_allow,
            models=Chosen(models_config(settings)),
            servers=ServersConfig(settings.team_servers),
        )
    code = 0
    leave = supervisor.leave if supervisor is not None else _nothing
    settled = supervisor.settled if supervisor is not None else _at_once
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leaving.serve, nursery.cancel_scope, leave, settled)
        if journal is not None and supervisor is not None:
            await journal.start(supervisor.hint, supervisor.question)
            nursery.start_soon(supervisor.serve)
            await supervisor.ready.wait()
        try:
            if listener is None:
                collect_garbage()
                print(
                    f"Nightbook worker is ready ({time.monotonic() - began:.1f} s). Stop it with Ctrl-C.",
                    flush=True,
                )
                await trio.sleep_forever()
            else:
                code = await _serve_web(settings, dsn, listener, supervisor, began, leaving)
                nursery.cancel_scope.cancel()
        finally:
            if journal is not None:
                nursery.cancel_scope.cancel()
    if journal is not None:
        await journal.stop()
    return code


def _nothing() -> None:
    """Without a worker half there is nothing to hold back."""


def _at_once() -> bool:
    return True


async def _serve_web(
    settings: Settings,
    dsn: str,
    listener: socket.socket,
    supervisor: Supervisor | None,
    began: float,
    leaving: Leaving,
) -> int:
    """Runs the web thread until it ends or this task is cancelled. Returns 1 when it died."""
    # Imported only where pages are served: NiceGUI takes a second and 60 MiB.
    from app import web
    from engine.feed import Feed

    token = load_or_make_token(settings)
    port = listener.getsockname()[1]
    feed = Feed(dsn, web.feed_config(settings))
    leaving.tell.append(feed.leave)
    ready = None if supervisor is None else supervisor.ready.is_set
    app = web.build(settings, feed, token, port, ready)
    over = trio.Event()
    failed: list[BaseException] = []
    trio_token = trio.lowlevel.current_trio_token()

    def ended(error: BaseException | None) -> None:
        if error is not None:
            failed.append(error)
        with contextlib.suppress(trio.RunFinishedError):
            trio_token.run_sync_soon(over.set)

    thread = web.WebThread(app, listener, ended)
    thread.start()
    try:
        await _until(lambda: thread.started or over.is_set())
        if not over.is_set():
            collect_garbage()
            _greet(_url(settings, port), token, settings, time.monotonic() - began)
        await over.wait()
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(thread.stop)
    if failed:
        log.error("the web half died: %s: %s", type(failed[0]).__name__, failed[0])
        return 1
    return 0


def collect_garbage() -> None:
    """From now on, but not among what the start has made: that is there for as long as the process is."""
    gc.set_threshold(*GARBAGE)
    gc.freeze()
    gc.enable()


async def _until(condition: Callable[[], bool]) -> None:
    """Waits for what uvicorn tells by no event: that it answers requests."""
    while not condition():  # noqa: ASYNC110
        await trio.sleep(0.01)


def _loopback(host: str) -> str:
    """The address at which this machine reaches itself when it listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"[{host}]" if ":" in host else host


def _url(settings: Settings, port: int) -> str:
    return settings.public_url or f"http://{_loopback(settings.host)}:{port}"


def _greet(url: str, token: str, settings: Settings, seconds: float) -> None:
    """One link that logs the owner in, and how to stop. Only ever on the terminal's own stream, not in a log."""
    shown = Path(os.path.relpath(settings.data)) if settings.data.is_relative_to(Path.cwd()) else settings.data
    print(
        f"\nNightbook is ready ({seconds:.1f} s). Open this link, it logs you in:\n\n    {url}/?token={token}\n\n"
        f"Data is in {shown}. Stop with Ctrl-C: programs that notebooks run go on; "
        "`nightbook stop --sandboxes` ends them.\n",
        flush=True,
    )
