"""The pages: home and the notebook. Registered once; a page function builds its page and starts no work."""

from __future__ import annotations

from engine.feed import Feed
from ui import theme
from ui.pages import home, notebook


def register(feed: Feed) -> None:
    """Registers the pages with NiceGUI. The member who asks is `request.scope["nightbook.member"]`."""
    theme.install()
    home.register(feed)
    notebook.register(feed)
