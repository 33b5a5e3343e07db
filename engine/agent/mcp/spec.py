"""Which tool servers there are: those of the team (a setting) and those of a notebook (commands). Pure.

A server is a program (its words) or an address. Keys belong to the team's setting alone: what a notebook says of a
server stands in its journal, for everybody to read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,22}[a-z0-9])?")  # no underscore: `server__tool` has one reading
NAME_EXPECTED = "a server's name has 1 to 24 small letters, digits and hyphens, such as time or our-wiki"
TEAM_SERVERS = 50
WORDS = 64
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # a token of RFC 9110


class BadServer(ValueError):
    """A server that cannot be: the message names it, and what was expected."""


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One server. `command` runs in the sandbox; else there is a `url`. Environment and headers may hold secrets, and
    are in no `repr`."""

    name: str
    command: tuple[str, ...] = ()
    url: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    team: bool = False

    @property
    def fingerprint(self) -> str:
        """What tells this server from another one of its name, without its secrets."""
        where = json.dumps([self.command, self.url, sorted(self.environment), sorted(self.headers)])
        return hashlib.sha256(where.encode()).hexdigest()[:12]

    def hide(self, text: str) -> str:
        """`text` without the secrets that this server was given, should it tell them."""
        for value in (*self.environment.values(), *self.headers.values()):
            for secret in (value, value.rpartition(" ")[2]):  # "Bearer …"
                if len(secret) >= 6:
                    text = text.replace(secret, "[secret]")
        return text

    @property
    def place(self) -> str:
        """Where it is, for people; of a team's server no more than what anybody may know."""
        if self.url is not None:
            parts = urlsplit(self.url)
            return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if self.team else self.url
        return self.command[0] if self.team else " ".join(self.command)


def checked(spec: ServerSpec) -> ServerSpec:
    """The spec. Raises `BadServer`."""
    name = spec.name
    if NAME.fullmatch(name) is None:
        raise BadServer(f"{name[:60]!r}: {NAME_EXPECTED}")
    if bool(spec.command) == (spec.url is not None):
        raise BadServer(f"{name}: a server has either a command or an address (url)")
    if spec.url is not None:
        try:
            parts = urlsplit(spec.url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            good = False
        if not good or len(spec.url) > 2000 or any(c.isspace() or not c.isprintable() for c in spec.url):
            raise BadServer(f"{name}: its address begins with http:// or https:// and names a host")
        if parts.username is not None or parts.password is not None:
            raise BadServer(f"{name}: an address must not hold a user name or password")
    if len(spec.command) > WORDS or any("\0" in word or len(word) > 4000 for word in spec.command):
        raise BadServer(f"{name}: its command has at most {WORDS} words of 4000 characters")
    if spec.command and not spec.command[0].strip():
        raise BadServer(f"{name}: its command is empty")
    for key, value in spec.environment.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key) or "\0" in value:
            raise BadServer(f"{name}: {key[:60]!r} is no name of an environment variable")
    for key, value in spec.headers.items():
        if not _HEADER.fullmatch(key) or any(ord(c) < 32 or ord(c) > 126 for c in value):
            raise BadServer(f"{name}: header {key[:60]!r} cannot be sent")
    return spec


def team_servers(text: str, environ: Mapping[str, str]) -> tuple[ServerSpec, ...]:
    """The servers that `text` (JSON, or the path of a JSON file) names, in the form that such tools share:
    `{"mcpServers": {"time": {"command": "…", "args": […], "env": {…}}, "wiki": {"url": "…", "headers": {…}}}}`.

    `${NAME}` in a value of `env` or `headers` is taken from `environ`. Raises `BadServer`.
    """
    if not text.lstrip().startswith("{"):
        try:
            text = Path(text.strip()).expanduser().read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadServer(f"the file cannot be read: {error}") from None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise BadServer(f"no JSON: {error}") from None
    table = value.get("mcpServers", value) if isinstance(value, dict) else None
    if not isinstance(table, dict) or len(table) > TEAM_SERVERS:
        raise BadServer(f'expected {{"mcpServers": {{"name": {{…}}}}}} with at most {TEAM_SERVERS} servers')
    return tuple(_team_server(name, item, environ) for name, item in table.items())


def _team_server(name: str, item: Any, environ: Mapping[str, str]) -> ServerSpec:
    if not isinstance(item, dict):
        raise BadServer(f"{name}: expected an object with a command or a url")
    if unknown := sorted(set(item) - {"command", "args", "env", "url", "headers", "type"}):
        raise BadServer(f"{name}: unknown {', '.join(unknown)}; known are command, args, env, url, headers")
    if item.get("type") not in (None, "stdio", "http", "streamable-http", "streamableHttp"):
        raise BadServer(f"{name}: of type stdio or http, not {str(item['type'])[:40]!r}")
    args, command = item.get("args", []), item.get("command")
    words = [*([] if command is None else [command]), *(args if isinstance(args, list) else [None])]
    if not all(isinstance(word, str) for word in words):
        raise BadServer(f"{name}: command is a text and args a list of texts")
    url = item.get("url")
    if url is not None and not isinstance(url, str):
        raise BadServer(f"{name}: url is a text")
    environment = _filled(name, "env", item.get("env", {}), environ)
    headers = _filled(name, "headers", item.get("headers", {}), environ)
    return checked(ServerSpec(name, tuple(words), url, environment, headers, team=True))


def _filled(name: str, what: str, value: Any, environ: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise BadServer(f"{name}: {what} is an object of texts")

    def fill(match: re.Match[str]) -> str:
        if match[1] not in environ:
            raise BadServer(f"{name}: {what} needs the environment variable {match[1]}, which is not set")
        return environ[match[1]]

    return {key: _VARIABLE.sub(fill, text) for key, text in value.items()}


def specs(team: Iterable[ServerSpec], servers: Mapping[str, Mapping[str, Any]]) -> dict[str, ServerSpec]:
    """All servers of a notebook by name, from the team's and from the fold's `servers`; those turned off are not."""
    found = {spec.name: spec for spec in team if not servers.get(spec.name, {}).get("off")}
    ours = {spec.name for spec in team}
    for name, server in servers.items():
        if name not in ours and not server.get("team") and not server.get("off"):
            found[name] = of_notebook(name, server.get("command") or (), server.get("url"))
    return found


def of_notebook(name: str, command: Sequence[str], url: str | None) -> ServerSpec:
    """A server that a notebook names: a command or an address, and nothing that is secret."""
    return ServerSpec(name, tuple(command), url)
