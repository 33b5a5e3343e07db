"""What went wrong between us and a provider, in words that name the thing and the way out.

Both SDKs raise the same family of errors; `failed` maps them once, at this boundary. Whatever a provider says of a key
is taken out: a key stands in no frame and on no page.
"""

from __future__ import annotations

import importlib
import json
import re
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

from engine.agent.calls import ModelFailed, Usage
from engine.agent.models.places import Place

LIST = "its list of models"
SAID = 400  # characters of what the other side said
KEY_LIKE = re.compile(r"\b(?:sk|pk|key|Bearer)[-_ ][A-Za-z0-9*_.-]{6,}")
NO_QUOTA = (
    "insufficient_quota",
    "billing_hard_limit_reached",
    "credit balance",
    "billing_error",
    "exceeded your current quota",
)
AGAIN = ("overloaded_error", "api_error", "rate_limit_error", "timeout_error", "server_error", "rate_limit_exceeded")
WINDOW = (
    "context length",
    "context_length",
    "context window",
    "prompt is too long",
    "maximum context",
    "input is too long",
)
PAGE = re.compile(r"\s*<(?:!doctype|html|head|body)\b", re.IGNORECASE)


def failed(sdk: Any, place: Place, model: str | None, error: Exception, usage: Usage | None = None) -> ModelFailed:
    """The error of an SDK (the module `anthropic` or `openai`), or of the connection under it, as `ModelFailed`.

    Without a `model` its list of models was asked for."""
    if isinstance(error, ModelFailed):
        return error
    if isinstance(error, sdk.APIStatusError):
        return by_status(place, model, error.status_code, error.response.headers, error.body, str(error), usage)
    if isinstance(error, sdk.APITimeoutError) or "Timeout" in type(error).__name__:
        return ModelFailed(f"{place.title} at {place.url} did not answer in time", again=True, usage=usage)
    if isinstance(error, sdk.APIConnectionError):
        return unreachable(place, error.__cause__ or error, usage)
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        reason = (
            f"{place.title} at {place.url} sent something that is no JSON in its reply: {_short(str(error), place)}"
        )
        return ModelFailed(reason, again=True, usage=usage)
    if isinstance(error, sdk.APIError):  # in the midst of a stream
        return by_status(place, model, 200, {}, error.body, str(error), usage)
    return unreachable(place, error, usage)


def unreachable(place: Place, cause: BaseException, usage: Usage | None = None) -> ModelFailed:
    """There was no connection, or it was cut."""
    root, tls = cause, isinstance(cause, ssl.SSLError)
    while (below := root.__cause__ or root.__context__) is not None and not isinstance(root, OSError):
        root, tls = below, tls or isinstance(below, ssl.SSLError)
    said = _short(str(root), place) or _short(str(cause), place) or type(cause).__name__
    if tls or "CERTIFICATE" in said.upper():
        return ModelFailed(
            f"the TLS connection to {place.title} at {place.url} is not trusted ({said}): correct "
            f"{place.url_variable}, or have this machine trust its certificate",
            settings=True,
            usage=usage,
        )
    name = type(cause).__name__
    if name in ("RemoteProtocolError", "ReadError", "WriteError", "CloseError"):
        return ModelFailed(
            f"the connection to {place.title} was cut while it replied ({said})", again=True, usage=usage
        )
    return ModelFailed(
        f"{place.title} cannot be reached at {place.url} ({said}): see that it runs there, or correct "
        f"{place.url_variable}",
        again=True,
        settings=True,
        usage=usage,
    )


def no_event_stream(place: Place, content_type: str, text: str) -> ModelFailed:
    """Something answered that does not speak the protocol: a proxy's page, most often."""
    what = (
        "a web page" if "html" in content_type or PAGE.match(text) else f"{content_type or 'something'} of no use here"
    )
    return ModelFailed(
        f"{place.url} answered with {what} instead of {place.title}'s protocol: a proxy stands between, or "
        f"{place.url_variable} is not right",
        settings=True,
    )


def by_status(
    place: Place,
    model: str | None,
    status: int,
    headers: Mapping[str, str],
    body: object,
    text: str,
    usage: Usage | None = None,
) -> ModelFailed:
    """What a status and the error in the body mean. `status` 200: the error came in the midst of a reply."""
    error = body.get("error", body) if isinstance(body, dict) else {}
    error = error if isinstance(error, dict) else {"message": str(error)}
    kind = f"{error.get('type') or ''} {error.get('code') or ''}"
    raw = error.get("message") or (body if isinstance(body, str) else text)
    said = _short(str(raw), place)
    if isinstance(body, str) and PAGE.match(body):
        wrong = no_event_stream(place, "text/html", body)
        again = status >= 500
        return ModelFailed(f"{wrong.reason} (status {status})", again=again, after=_after(headers), settings=True)
    about = f"{kind} {raw}".lower()
    if any(word in about for word in NO_QUOTA) or status == 402:
        return ModelFailed(
            f"the account at {place.title} has no quota left: {said}. Top it up there, or choose another model in "
            "Settings",
            settings=True,
            usage=usage,
        )
    match status:
        case 401:
            return ModelFailed(
                f"{place.title} refuses the key of {place.variable}: {said}. Correct it in the environment of "
                "Nightbook, start it again, and try it in Settings",
                settings=True,
            )
        case 403:
            return ModelFailed(f"{place.title} does not allow {model or LIST} with this key: {said}", settings=True)
        case 404 if model is None:
            return ModelFailed(
                f"{place.title} has no list of models at {place.url}: {said}. See that {place.url_variable} is right",
                settings=True,
            )
        case 404:
            return ModelFailed(
                f"{place.title} at {place.url} knows no model {model!r}: {said}. Choose another one in Settings",
                settings=True,
            )
        case 413:
            reason = f"the request is too large for {place.title}: {said}. Show it less, or begin a new cell"
            return ModelFailed(reason, long=True)
    if any(word in about for word in WINDOW):
        return too_long(f"{model}: {said}", usage)
    wait = _after(headers)
    if status == 429 or "rate_limit" in kind:
        return ModelFailed(f"{place.title} asks to slow down: {said}", again=True, after=wait, usage=usage)
    if status == 529 or "overloaded" in kind:
        return ModelFailed(f"{place.title} is overloaded: {said}", again=True, after=wait, usage=usage)
    if status >= 500 or status in (408, 409):
        return ModelFailed(f"{place.title} failed with status {status}: {said}", again=True, after=wait, usage=usage)
    if status == 200:
        again = any(word in kind for word in AGAIN) or not kind.strip()
        return ModelFailed(f"{place.title} broke off its reply: {said}", again=again, usage=usage)
    return ModelFailed(f"{place.title} refuses the request with status {status}: {said}", usage=usage)


def too_long(of: str, usage: Usage | None = None) -> ModelFailed:
    """The conversation does not fit the window `of` a model."""
    return ModelFailed(
        f"the conversation does not fit the window of {of}. Lower NIGHTBOOK_CONTEXT_TOKENS, or begin a new cell",
        usage=usage,
        long=True,
    )


def _after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the other side wants to be left alone: retry-after-ms, or retry-after in seconds or as a date."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            value = float(headers[name]) / scale
        except (KeyError, ValueError):
            continue
        return max(0.0, value) if value == value else None
    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time())
    except (KeyError, ValueError, TypeError):
        return None


def _short(text: str, place: Place) -> str:
    """What the other side said, in one line, without anything that looks like a key."""
    if place.key:
        text = text.replace(place.key, "(the key)")
    text = KEY_LIKE.sub("(a key)", text)
    text = " ".join(text.split())
    return text if len(text) <= SAID else f"{text[:SAID]} …"


@cache
def trusted() -> Any:
    """What TLS connections trust: this machine's own certificates. Made once: it takes 50 ms."""
    httpx = importlib.import_module("httpx2")  # which both SDKs stand on
    return httpx.create_ssl_context()


def from_below(error: Exception) -> bool:
    """Whether it came from the HTTP client under an SDK, which lets errors in the midst of a stream through."""
    return type(error).__module__.partition(".")[0] in ("httpx2", "httpcore2", "httpx", "httpcore", "anyio", "ssl")


async def expect_events(place: Place, response: Any) -> None:
    """Raises `ModelFailed` when what answered is no event stream."""
    kind = response.headers.get("content-type", "text/event-stream").partition(";")[0].strip().lower()
    if kind != "text/event-stream":
        await response.aread()
        raise no_event_stream(place, kind, response.text[:2000])
