"""The look: one style sheet and the chosen theme, in the head of every page, and the pages that need nothing else."""

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

STYLES = Path(__file__).parent / "styles"
_FIRST = ("light", "dark", "base", "head", "page")  # the other rooms come by name, after what they build on


def _css() -> str:
    """All of `styles/` as one sheet. The dark tokens stand in one file and serve both who asked and whose system is."""
    names = [*_FIRST, *sorted(path.stem for path in STYLES.glob("*.css") if path.stem not in _FIRST)]
    rooms = {name: (STYLES / f"{name}.css").read_text("utf-8") for name in names}
    asked = ":root[data-theme=dark]"
    rooms["dark"] += (
        f"@media (prefers-color-scheme: dark) {{\n{rooms['dark'].replace(asked, ':root:not([data-theme])')}}}\n"
    )
    return "\n".join(rooms.values())


CSS = _css()

# In the head, before anything is drawn: no flash of the wrong theme. `data-theme` is then "light" or "dark", also
# where the system decides; the browser keeps the choice ("light", "dark" or nothing) under this key.
SCRIPT = """(() => {
  const night = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    let asked = null;
    try { asked = localStorage.getItem("nightbook.theme"); } catch { /* storage is forbidden: the system decides */ }
    const known = asked === "light" || asked === "dark";
    document.documentElement.dataset.theme = known ? asked : night.matches ? "dark" : "light";
  };
  apply();
  night.addEventListener("change", apply);
  addEventListener("storage", apply);
  addEventListener("nightbook-theme", apply);
})();"""


def install() -> None:
    """Puts the theme's script, the style sheet and the preloads into the head of every NiceGUI page."""
    ui.add_head_html(f"<script>{SCRIPT}</script>", shared=True)
    ui.add_css(CSS, shared=True)
    ui.add_head_html("".join(f'<link rel="modulepreload" href="{url}">' for url in module_urls()), shared=True)


def message_page(status: int, title: str, text: str) -> HTMLResponse:
    """A whole page of one calm sentence and the way home; its script only picks the theme."""
    return HTMLResponse(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)} · Nightbook</title><script>{SCRIPT}</script><style>{CSS}</style></head>"
        f'<body><div class="nb"><main class="page empty"><h1>{html.escape(title)}</h1><p>{html.escape(text)}</p>'
        '<p><a href="/">All notebooks</a></p></main></div></body></html>',
        status_code=status,
        headers={"Cache-Control": "no-store"},
    )
