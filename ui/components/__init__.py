"""Own Vue components: one a page, each with its modules in `page/`, served by NiceGUI from here and nowhere else."""

from __future__ import annotations

from pathlib import Path

from nicegui import __version__
from nicegui.dependencies import compute_key, register_esm
from nicegui.elements import plotly

PARTS = Path(__file__).parent / "page"
# NiceGUI names the folder by its own time stamp, which an edit of a file in it leaves alone, and browsers keep modules
# for a year: the newest file's time stamp makes the name.
_NEWEST = max(path.stat().st_mtime for path in PARTS.glob("*.js"))
register_esm("nightbook", PARTS, max_time=_NEWEST)

assert plotly.__name__  # imported for what it registers: the bundle that the page's frames draw plots with


def module_urls() -> list[str]:
    """Where the modules are served, for preloading."""
    key = compute_key(PARTS, max_time=_NEWEST)
    return [f"/_nicegui/{__version__}/esm/{key}/{path.name}" for path in sorted(PARTS.glob("*.js"))]
