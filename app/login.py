"""What shows that someone is the owner: the token, the cookie that stands for it, and the page that asks for it.

The cookie never holds the token. It is an issue time and a random value, signed with a key made from the token, so it
ends after 30 days and, at once, whenever the token changes.
"""

import hashlib
import hmac
import html
import secrets
import time

from app.data import write_private
from app.settings import Settings

COOKIE_SECONDS = 30 * 24 * 3600
_CLOCK_SKEW = 60  # seconds that an issue time may lie in the future, after the clock was set back


def load_or_make_token(settings: Settings) -> str:
    """Return the owner's token: NIGHTBOOK_TOKEN, or the one in DATA/token (0600), made at the first start.

    DATA must exist. Safe to call from several processes at once. Raises OSError when the file cannot be used.
    """
    if settings.token is not None:
        return settings.token.get_secret_value()
    path = settings.data / "token"
    text = path.read_text() if path.exists() else write_private(path, secrets.token_urlsafe(32) + "\n")
    return text.strip()


class Tickets:
    """Makes and checks the values of the login cookie for one token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()
        self._key = hmac.digest(self._token, b"nightbook login cookie, version 1", "sha256")

    def is_token(self, text: str) -> bool:
        """Compare `text` with the token, in a time that tells nothing about either."""
        return hmac.compare_digest(
            hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest(), hashlib.sha256(self._token).digest()
        )

    def issue(self) -> str:
        """Make a cookie value, valid from now on for COOKIE_SECONDS."""
        body = f"{int(time.time())}.{secrets.token_urlsafe(16)}"
        return f"{body}.{self._sign(body)}"

    def is_ticket(self, value: str) -> bool:
        """Tell whether `value` was made by `issue` for this token and is not too old."""
        body, _, signature = value.rpartition(".")
        if not hmac.compare_digest(signature.encode("latin-1", "replace"), self._sign(body).encode()):
            return False
        age = time.time() - int(body.partition(".")[0])
        return -_CLOCK_SKEW <= age <= COOKIE_SECONDS

    def _sign(self, body: str) -> str:
        return hmac.new(self._key, body.encode("latin-1", "replace"), "sha256").hexdigest()


def login_page(path: str, message: str) -> bytes:
    """Build the page that asks for the token and then goes on to `path`. `message` says what went wrong, or nothing."""
    said = f'<p role="alert">{html.escape(message)}</p>' if message else ""
    return _PAGE.replace("{said}", said).replace("{path}", html.escape(path, quote=True)).encode()


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Nightbook</title>
<style>
  :root { --ink: #1c1d22; --soft: #62656f; --line: #d9dae0; --ground: #fbfbfa; --accent: #3d4fb8; --bad: #b3261e }
  @media (prefers-color-scheme: dark) {
    :root { --ink: #e8e8ec; --soft: #9a9da8; --line: #34363f; --ground: #15161a; --accent: #93a2ff; --bad: #ff8a80 }
  }
  * { box-sizing: border-box }
  body { margin: 0; min-height: 100vh; display: grid; place-items: center; padding: 24px;
         background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
  main { width: 100%; max-width: 342px }
  h1 { font-size: 22px; margin: 0 0 4px }
  p { margin: 0 0 20px; color: var(--soft) }
  p[role=alert] { color: var(--bad) }
  label { display: block; font-size: 14px; margin-bottom: 6px }
  input, button { width: 100%; min-height: 44px; font: inherit; border-radius: 8px; padding: 8px 12px }
  input { border: 1px solid var(--line); background: transparent; color: inherit }
  button { margin-top: 12px; border: 0; cursor: pointer;
           background: var(--accent); color: var(--ground); font-weight: 600 }
  :focus-visible { outline: 2px solid var(--accent); outline-offset: 2px }
</style>
<main>
  <h1>Nightbook</h1>
  <p>Open the link that the server printed at its start, or paste the token here.</p>
  {said}
  <form method="post" action="/login">
    <input type="hidden" name="path" value="{path}">
    <label for="token">Token</label>
    <input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
    <button>Log in</button>
  </form>
</main>
</html>
"""
