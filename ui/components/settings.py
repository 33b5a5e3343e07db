"""The settings' one element."""

from __future__ import annotations

from nicegui.element import Element


class SettingsView(Element, component="settings.js"):
    """Draws which models there are, and lets the team choose one. It speaks to the API by itself."""
