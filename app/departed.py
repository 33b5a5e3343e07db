"""Who asked has gone before the answer began: nobody's fault, and nothing for the log.

What serves a request meets that in its own way, and each way would put a page of traceback into the log: for each file
that a closed tab had asked for, for each body broken off.
"""

from __future__ import annotations

from starlette.requests import ClientDisconnect

from app.auth import App, Message, Receive, Scope, Send


class DepartedMiddleware:
    """Ends quietly what nobody waits for any more. Other errors pass, also while serving somebody who has gone."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        departed = False

        async def heard() -> Message:
            nonlocal departed
            message = await receive()
            departed = departed or message["type"] == "http.disconnect"
            return message

        try:
            await self._app(scope, heard, send)
        except Exception as error:
            if not departed or not _says_departed(error):
                raise


def _says_departed(error: Exception) -> bool:
    """Whether that is all an error says."""
    return (
        isinstance(error, ClientDisconnect)  # in a body
        # A file's answer ends without a word, which starlette.middleware.base takes for an error of what it wraps.
        or (isinstance(error, RuntimeError) and str(error) == "No response returned.")
        # engineio.async_drivers.asgi gives an empty environment on, for a request of a page without a socket.
        or (isinstance(error, KeyError) and error.args == ("REQUEST_METHOD",))
    )
