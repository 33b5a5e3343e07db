"""The settings: which model replies. What it shows it asks the API for; keys are not among it."""

from __future__ import annotations

from nicegui import ui
from nicegui.client import Client

from ui.components.settings import SettingsView
from ui.pages.sockets import only_newest


def register() -> None:
    """Registers `/settings`."""

    @ui.page("/settings", title="Settings · Nightbook", language="en-US")
    def settings_page(client: Client) -> None:
        SettingsView()
        client.on_connect(only_newest)
