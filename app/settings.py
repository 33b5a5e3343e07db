"""The settings: what an operator may decide, read once from the environment at the start.

Each setting is a variable `NIGHTBOOK_<NAME>`. Its description says what is expected there: the same words
are shown when a value is refused, so a bad start is always one line that names the variable.
Times are in seconds, sizes in bytes (`16MiB` is understood too). An empty variable counts as not set.
"""

import ipaddress
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from engine.agent.mcp.spec import BadServer, ServerSpec, team_servers
from engine.agent.models.places import ANTHROPIC_URL, OLLAMA_URL, OPENAI_URL, RUNBOOK, ModelsConfig, Place, Price

PREFIX = "NIGHTBOOK_"
_SECRET = frozenset({"token", "database_url", "anthropic_api_key", "openai_api_key", "mcp_servers"})
_UNITS = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


class SettingsError(Exception):
    """The settings cannot be used. The message is one line: the variable, what was expected, what was there."""


def _bytes(value: object) -> object:
    """Read `16MiB`, `1.5 GB` or `4096` as a number of bytes; other types go on to pydantic unchanged."""
    if not isinstance(value, str):
        return value
    if (parts := re.fullmatch(r"(\d+(?:\.\d+)?) ?(b|[kmg]i?b)?", value.strip().lower())) is None:
        raise ValueError("not a size")
    return int(float(parts[1]) * _UNITS[parts[2] or "b"])


def _list(value: object) -> object:
    """Split a comma-separated text, dropping the empty parts."""
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


def is_loopback(host: str) -> bool:
    """Tell whether `host` (a name or an address) can be reached from this machine only."""
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _address(value: str) -> str:
    """An http(s) address without a trailing slash; a key does not belong into it."""
    parts = urlsplit(value.strip())
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise ValueError("not an address")
    return value.strip().rstrip("/")


def prices_of(text: str) -> tuple[tuple[str, Price], ...]:
    """Reads `anthropic:claude-sonnet=3/15/0.3/3.75, …`; what is left out costs as much as plain input."""
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, numbers = part.rpartition("=")
        values = [float(number) for number in numbers.split("/")]
        if not name or not 2 <= len(values) <= 4 or any(not 0 <= value < 1e6 for value in values):
            raise ValueError("not a price")
        plain, output, cached, written = (values + [values[0]] * 2)[:4] if len(values) < 4 else values
        found.append((name.strip(), Price(plain, output, cached, written)))
    return tuple(found)


Bytes = Annotated[int, BeforeValidator(_bytes)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_list)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Settings(BaseSettings):
    """Everything that can be set, with its default. Made by `load`; frozen, so one process sees one truth."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="ignore")

    database_url: SecretStr | None = Field(
        default=None, description="a PostgreSQL address, postgresql://user:password@host/name"
    )
    data: Path = Field(default=Path(".nightbook"), description="a folder")
    host: str = Field(default="127.0.0.1", min_length=1, description="an address or a name of this machine")
    port: int = Field(
        default=8080, ge=0, le=65535, description="a port number from 0 to 65535, where 0 picks a free one"
    )
    public_url: str | None = Field(
        default=None, description="an address like https://nightbook.example.org, without a path"
    )
    trusted_proxies: Names = Field(default=(), description="addresses or networks of proxies, separated by commas")
    token: SecretStr | None = Field(default=None, description="at least 16 printable ASCII characters without spaces")

    approval_seconds: Seconds = Field(default=300, description="a number of seconds above 0")
    operator_grace_seconds: Seconds = Field(default=60, description="a number of seconds above 0")
    turn_seconds: Seconds = Field(default=480, description="a number of seconds above 0")
    poll_seconds: Seconds = Field(default=5, description="a number of seconds above 0")

    buffer_frames: int = Field(default=5000, ge=1, description="a whole number of frames, at least 1")
    buffer_bytes: Bytes = Field(default=16 * 2**20, ge=2**16, description="a size of at least 64KiB, such as 16MiB")
    buffer_total_bytes: Bytes = Field(default=256 * 2**20, ge=2**16, description="a size such as 256MiB")
    replay_seconds: Seconds = Field(default=300, description="a number of seconds above 0")

    sandbox: Literal["auto", "bubblewrap", "process"] = Field(default="auto", description="auto, bubblewrap or process")
    sandbox_idle_seconds: Seconds = Field(default=300, description="a number of seconds above 0")
    kernel_idle_seconds: Seconds = Field(default=86400, description="a number of seconds above 0")
    orphan_seconds: Seconds = Field(default=600, description="a number of seconds above 0")
    sandbox_memory_bytes: Bytes = Field(
        default=4 * 2**30, ge=64 * 2**20, description="a size of at least 64MiB, such as 4GiB"
    )
    sandbox_processes: int = Field(default=512, ge=8, description="a whole number of processes, at least 8")
    fetch_allow: Names = Field(default=(), description="host names, addresses or networks, separated by commas")
    mcp_servers: SecretStr | None = Field(
        default=None,
        description='the path of a JSON file, or JSON like {"mcpServers": {"time": {"command": "mcp-server-time"}}}',
    )

    model: str = Field(default=RUNBOOK, description="runbook, anthropic:MODEL, openai:MODEL or ollama:MODEL")
    anthropic_api_key: SecretStr | None = Field(
        default=None,
        description="a key",
        validation_alias=AliasChoices(f"{PREFIX}ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY"),
    )
    anthropic_url: Annotated[str, AfterValidator(_address)] = Field(
        default=ANTHROPIC_URL, description="an address like https://gateway.example.org"
    )
    openai_api_key: SecretStr | None = Field(
        default=None, description="a key", validation_alias=AliasChoices(f"{PREFIX}OPENAI_API_KEY", "OPENAI_API_KEY")
    )
    openai_url: Annotated[str, AfterValidator(_address)] = Field(
        default=OPENAI_URL, description="an address like http://127.0.0.1:8000/v1"
    )
    ollama_url: Annotated[str, AfterValidator(_address)] = Field(
        default=OLLAMA_URL, description="an address like http://127.0.0.1:11434/v1"
    )
    web_search: bool = Field(default=False, description="true or false")
    reply_tokens: int = Field(default=16_384, ge=256, description="a number of tokens, at least 256")
    context_tokens: int = Field(default=150_000, ge=2_000, description="a number of tokens, at least 2000")
    turn_tokens: int = Field(default=3_000_000, ge=0, description="a number of tokens; 0: no bound")
    day_tokens: int = Field(default=0, ge=0, description="a number of tokens; 0: no bound")
    day_cost: float = Field(default=0, ge=0, allow_inf_nan=False, description="a number of dollars; 0: no bound")
    prices: str = Field(
        default="", description="MODEL=INPUT/OUTPUT[/CACHED[/WRITTEN]] in dollars a million tokens, separated by commas"
    )

    @field_validator("database_url")
    @classmethod
    def _is_postgresql(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and urlsplit(value.get_secret_value()).scheme not in {"postgresql", "postgres"}:
            raise ValueError("not a PostgreSQL address")
        return value

    @field_validator("data")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("public_url")
    @classmethod
    def _is_an_origin(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        _ = parts.port  # raises ValueError when it is no port
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path not in {"", "/"}:
            raise ValueError("not an origin")
        if parts.query or parts.fragment or parts.username is not None:
            raise ValueError("not an origin")
        return f"{parts.scheme}://{parts.netloc}"

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(ipaddress.ip_network(item, strict=False)) for item in value)

    @field_validator("token")
    @classmethod
    def _is_strong(cls, value: SecretStr | None) -> SecretStr | None:
        text = "" if value is None else value.get_secret_value()
        if value is not None and (len(text) < 16 or not all("!" <= c <= "~" for c in text)):
            raise ValueError("weak or unusable in a header")
        return value

    @field_validator("model")
    @classmethod
    def _is_a_model(cls, value: str) -> str:
        place, _, model = value.partition(":")
        if value != RUNBOOK and (place not in ("anthropic", "openai", "ollama") or not model.strip()):
            raise ValueError("not a model")
        return value

    @field_validator("prices")
    @classmethod
    def _are_prices(cls, value: str) -> str:
        prices_of(value)
        return value

    @field_validator("mcp_servers")
    @classmethod
    def _are_servers(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            team_servers(value.get_secret_value(), os.environ)
        return value

    @property
    def team_servers(self) -> tuple[ServerSpec, ...]:
        """The tool servers that every notebook has."""
        return () if self.mcp_servers is None else team_servers(self.mcp_servers.get_secret_value(), os.environ)

    @field_validator("fetch_allow")
    @classmethod
    def _are_places(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for item in value:
            try:
                ipaddress.ip_network(item, strict=False)
            except ValueError:
                if "/" in item or any(c.isspace() for c in item):
                    raise
        return value

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if not is_loopback(self.host) and self.token is None:
            raise ValueError(
                f"{PREFIX}TOKEN: expected to be set, as {PREFIX}HOST={self.host} can be reached from other machines"
            )
        if self.buffer_total_bytes < self.buffer_bytes:
            raise ValueError(
                f"{PREFIX}BUFFER_TOTAL_BYTES: expected at least {PREFIX}BUFFER_BYTES ({self.buffer_bytes})"
            )
        return self


def models_config(settings: Settings) -> ModelsConfig:
    """What the settings say about models."""
    plain = ModelsConfig()

    def place(of: Place, url: str, default: str, key: SecretStr | None = None) -> Place:
        secret = key.get_secret_value() if key is not None else None
        return replace(of, url=url, key=secret, needs_key=of.needs_key and url == default)

    return ModelsConfig(
        default=settings.model,
        anthropic=place(plain.anthropic, settings.anthropic_url, ANTHROPIC_URL, settings.anthropic_api_key),
        openai=place(plain.openai, settings.openai_url, OPENAI_URL, settings.openai_api_key),
        ollama=place(plain.ollama, settings.ollama_url, OLLAMA_URL),
        reply_tokens=settings.reply_tokens,
        context_tokens=settings.context_tokens,
        turn_tokens=settings.turn_tokens or None,
        day_tokens=settings.day_tokens or None,
        day_cost=settings.day_cost or None,
        prices=prices_of(settings.prices),
        web_search=settings.web_search,
    )


def load() -> Settings:
    """Read the settings from the environment. Raises SettingsError with one line about the first bad value."""
    try:
        return Settings()
    except ValidationError as error:
        raise SettingsError(_explain(error)) from None


def _explain(error: ValidationError) -> str:
    first: Any = error.errors(include_url=False)[0]
    if not first["loc"]:
        return str(first["ctx"]["error"])
    name = str(first["loc"][0])
    expected = Settings.model_fields[name].description
    if isinstance(bad := first.get("ctx", {}).get("error"), BadServer):
        expected = f"{expected}; {bad}"
    got = "" if name in _SECRET else f", got {str(first['input'])[:100]!r}"
    return f"{PREFIX}{name.upper()}: expected {expected}{got}"
