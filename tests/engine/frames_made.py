"""Frames for tests, numbered as a journal would."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from engine.frames import Draft, Frame
from engine.notebook import Notebook, fold

START = datetime(2026, 1, 1, tzinfo=UTC)


def numbered(drafts: Iterable[Draft], first: int = 1) -> list[Frame]:
    """The drafts as committed frames, a second apart."""
    return [
        Frame(
            seq,
            START + timedelta(seconds=seq),
            item.kind,
            item.cell_id,
            item.run_id,
            item.by,
            item.command_id,
            item.body,
        )
        for seq, item in enumerate(drafts, first)
    ]


def after(notebook: Notebook, drafts: Iterable[Draft]) -> Notebook:
    """The notebook with the drafts committed."""
    return fold(notebook, numbered(drafts, notebook.seq + 1))
