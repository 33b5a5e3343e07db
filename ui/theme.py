"""The look: one style sheet, in the head of every page, and the few pages that need nothing else."""

from __future__ import annotations

import html
from pathlib import Path

from fastapi.responses import HTMLResponse
from nicegui import ui

from ui.components import module_urls

FAVICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><circle cx="16" cy="16" r="16" fill="#4b46c9"/>'
    '<circle cx="21.5" cy="10.5" r="7.5" fill="#faf9f7"/></svg>'
)

CSS = (Path(__file__).parent / "theme.css").read_text("utf-8")


def install() -> None:
    """Puts the style sheet and the preloads into the head of every NiceGUI page."""
    ui.add_css(CSS, shared=True)
    ui.add_head_html("".join(f'<link rel="modulepreload" href="{url}">' for url in module_urls()), shared=True)


def message_page(status: int, title: str, text: str) -> HTMLResponse:
    """A whole page of one calm sentence and the way home, without a script."""
    return HTMLResponse(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)} · Nightbook</title><style>{CSS}</style></head>"
        f'<body><div class="nb"><main class="page empty"><h1>{html.escape(title)}</h1><p>{html.escape(text)}</p>'
        '<p><a href="/">All notebooks</a></p></main></div></body></html>',
        status_code=status,
        headers={"Cache-Control": "no-store"},
    )
