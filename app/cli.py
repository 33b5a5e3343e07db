"""The command `nightbook`. Everything heavy is imported inside the command that needs it: `--version` stays quick."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from app.settings import Settings

_STOP_SECONDS = 40.0  # turns have 20 s to rest, then all is released

cli = typer.Typer(
    help="A notebook that keeps working when you leave. Settings come from NIGHTBOOK_… variables, see README.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they print local variables, secrets among them
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command line."""
    cli()


@cli.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        from importlib import metadata

        typer.echo(f"nightbook {metadata.version('nightbook')}")
        raise typer.Exit


@cli.command()
def serve() -> None:
    """Run everything in one process: pages, API and engine."""
    _run(web=True, worker=True)


@cli.command()
def web() -> None:
    """Run the pages and the API only; workers do the work."""
    _run(web=True, worker=False)


@cli.command()
def worker() -> None:
    """Run the engine only; any number of workers may share one database."""
    _run(web=False, worker=True)


@cli.command()
def migrate() -> None:
    """Bring the database to this version's schema."""
    with _told_in_one_line():
        settings = _prepare()
        import asyncio

        import asyncpg

        from engine.store import embedded, schema
        from engine.store.address import place, unavailable

        given = settings.database_url
        own = embedded.start(settings.data) if given is None else None
        dsn = own.dsn if own is not None else given.get_secret_value() if given is not None else ""
        try:
            asyncio.run(schema.migrate(dsn))
        except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            raise unavailable(dsn, error) from error
        finally:
            if own is not None:
                own.release()
        typer.echo(f"The schema of {place(dsn)} is up to date.")


@cli.command()
def status() -> None:
    """Show what runs on this data folder. Exit status 1 when nothing does, or it is not ready."""
    with _told_in_one_line():
        from app import asking
        from app.login import load_or_make_token
        from app.running import list_running
        from app.sandboxes import find_sandboxes
        from app.settings import load

        settings = load()
        running = list_running(settings.data)
        sandboxes = len(find_sandboxes(settings.data))
        if not running:
            typer.echo(f"Nothing runs on {settings.data}{_and_sandboxes(sandboxes)}.")
            raise typer.Exit(1)
        good = True
        for one in running:
            since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.started))
            typer.echo(f"{one.role:8} process {one.pid}, since {since}{f', {one.url}' if one.url else ''}")
            if one.url:
                ready, said = asking.readiness(one.url)
                good = good and ready
                typer.echo(f"         {said}")
        served = next((one.url for one in running if one.url), None)
        if served:
            typer.echo(f"         {asking.notebooks(served, load_or_make_token(settings))}")
        typer.echo(f"         sandboxes: {sandboxes}")
        if not good:
            raise typer.Exit(1)


@cli.command()
def stop(
    sandboxes: Annotated[
        bool, typer.Option("--sandboxes", help="Also end the programs that notebooks run; by default they go on.")
    ] = False,
) -> None:
    """Stop the processes on this data folder. Programs that notebooks run go on, for the next start to rejoin."""
    with _told_in_one_line():
        from app.running import list_running
        from app.sandboxes import find_sandboxes, shut_down
        from app.settings import load

        data = load().data
        asked = list_running(data)
        for one in asked:
            with contextlib.suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while (left := [one for one in list_running(data) if one in asked]) and time.monotonic() < deadline:
            time.sleep(0.05)
        for one in asked:
            typer.echo(f"{one.role} (process {one.pid}) {'still runs' if one in left else 'stopped'}")
        alive = find_sandboxes(data)
        if sandboxes:
            kept = [folder for folder in alive if not shut_down(folder)]
            typer.echo(f"Sandboxes ended: {len(alive) - len(kept)}.")
            for folder in kept:
                typer.echo(f"The sandbox in {folder} did not end.", err=True)
            if kept:
                raise typer.Exit(1)
        elif alive:
            typer.echo(f"Sandboxes that go on: {len(alive)}. `nightbook stop --sandboxes` ends them as well.")
        elif not asked:
            typer.echo(f"Nothing runs on {data}.")
        if left:
            raise typer.Exit(1)
        from engine.store.embedded import stop_unused

        if stop_unused(data):
            typer.echo("PostgreSQL stopped, which a killed server had left behind.")


def _run(*, web: bool, worker: bool) -> None:
    with _told_in_one_line():
        settings = _prepare()
        from app import process

        code = process.run(settings, web=web, worker=worker)
    raise typer.Exit(code)


def _prepare() -> "Settings":
    from app.data import prepare_data
    from app.settings import load

    settings = load()
    prepare_data(settings.data)
    return settings


@contextlib.contextmanager
def _told_in_one_line() -> Iterator[None]:
    """Turn the errors that an operator can do something about into one line and exit status 1."""
    try:
        yield
    except (typer.Exit, KeyboardInterrupt):
        raise
    except Exception as error:
        from app.data import DataError
        from app.settings import SettingsError

        known: tuple[type[Exception], ...] = (SettingsError, DataError)
        if "engine.store.embedded" in sys.modules:
            from engine.store.embedded import StoreUnavailable
            from engine.store.schema import MigrationFailed, SchemaNewer

            known += (StoreUnavailable, SchemaNewer, MigrationFailed)
        found: Exception | None = error
        while isinstance(found, ExceptionGroup):  # from inside a nursery
            rest = found.subgroup(known)
            found = rest.exceptions[0] if rest is not None else None
        if not isinstance(found, known):
            raise
        typer.echo(f"nightbook: {found}", err=True)
        raise typer.Exit(1) from None


def _and_sandboxes(count: int) -> str:
    return f", except {count} sandbox{'es' if count > 1 else ''}" if count else ""


if __name__ == "__main__":
    main()
