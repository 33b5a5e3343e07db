"""Runs all benchmarks and prints one line a figure."""

from __future__ import annotations

import logging
from pathlib import Path

import trio

from tests.bench import latency, page, returns, starts, throughput, turns, viewers
from tests.bench.house import database, house


async def _all(dsn: str, folder: Path) -> None:
    for figure in await starts.figures(folder):
        print(figure.line(), flush=True)
    async with house(dsn, folder) as server:
        for figure in await latency.figures(server, dsn):
            print(figure.line(), flush=True)
        for figure in await throughput.figures(server, dsn):
            print(figure.line(), flush=True)
        for figure in await turns.figures(server):
            print(figure.line(), flush=True)


def main() -> None:
    logging.disable(logging.WARNING)
    with database() as (dsn, folder):
        trio.run(_all, dsn, folder)
    viewers.main()
    viewers.main(returns.figures)
    page.main()


if __name__ == "__main__":
    main()
