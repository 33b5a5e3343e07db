"""What both protocols share: the SDK's client for a place, and a reply from its opening to its end.

The SDKs are sisters: clients, streams and errors have the same shape, so all that differs here is three names. They are
imported at first use, as they take seconds and tens of megabytes, and run in whatever task awaits them.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import trio

from engine.agent.calls import Conversation, ModelFailed, Reply, Search, Thought, ToolSpec, Usage
from engine.agent.models import places, telling
from engine.agent.models.places import ModelsConfig, Place
from engine.agent.models.trouble import expect_events, failed, from_below, trusted

SECONDS = 600.0  # without any event; a provider sends pings, a local server may think for long before its first
CONNECT_SECONDS = 15.0
REST_SECONDS = 10.0  # once the reply is whole, for what may stand behind it: counts, and a mark at the end


@dataclass(frozen=True, slots=True)
class Sdk:
    """An SDK by name: its module, its client, and the error that all of its errors are."""

    module: str
    client: str
    error: str


SDKS: Mapping[places.Protocol, Sdk] = {
    "anthropic": Sdk("anthropic", "AsyncAnthropic", "AnthropicError"),
    "openai": Sdk("openai", "AsyncOpenAI", "OpenAIError"),
}


def load(place: Place) -> Any:
    """The module of the SDK that speaks to `place`. Takes seconds at first: call it in a thread."""
    return importlib.import_module(SDKS[place.protocol].module)


def client(sdk: Any, place: Place, seconds: float = SECONDS) -> Any:
    """A client of the loaded `sdk` for `place`, to be entered: with its key, and with what the SDK and this machine's
    environment add (headers, a proxy, certificates). It does not try again by itself."""
    return getattr(sdk, SDKS[place.protocol].client)(
        api_key=place.key or "none",
        base_url=place.url,
        max_retries=0,
        timeout=sdk.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS)),
        http_client=sdk.DefaultAsyncHttpxClient(verify=trusted()),
    )


def expected(sdk: Any, place: Place, error: Exception) -> bool:
    """Whether `error` came from the other side or from the way there, and is no fault of ours."""
    known: type[Exception] = getattr(sdk, SDKS[place.protocol].error)
    return isinstance(error, known | OSError | ValueError) or from_below(error)


class Reading(Protocol):
    """One reply as its events come."""

    usage: Usage | None

    @property
    def finished(self) -> bool:
        """Whether the reply is whole, whatever comes behind it."""

    def take(self, event: Mapping[str, Any]) -> list[Thought | Search]:
        """One event; what is to be shown of it."""

    def reply(self, name: str, usage: Usage | None, limit: int) -> Reply:
        """What the events made. `limit`: tokens of one reply, for the words about one that was cut off."""


class SpokenModel(ABC):
    """One model of one place. A protocol adds how a conversation is written in it, how it is opened, how it is read."""

    def __init__(self, place: Place, model: str, config: ModelsConfig) -> None:
        self.name = f"{place.id}:{model}"
        self._place = place
        self._model = model
        self._config = config
        self._price = config.price(self.name)
        self._refused: set[str] = set()  # what this place turned out to refuse

    @abstractmethod
    async def _open(
        self, sdk: Any, client: Any, messages: list[dict[str, Any]], names: Mapping[str, str], tools: Sequence[ToolSpec]
    ) -> Any:
        """The stream of a reply; without what this place turns out to refuse."""

    @abstractmethod
    def _messages(self, conversation: Conversation, names: Mapping[str, str]) -> list[dict[str, Any]]:
        """The conversation as this protocol has it."""

    @abstractmethod
    def _reading(self, names: Mapping[str, str]) -> Reading:
        """What reads one reply; `names` are those that tools have on the wire."""

    async def reply(
        self, conversation: Conversation, tools: Sequence[ToolSpec]
    ) -> AsyncIterator[Thought | Search | Reply]:
        """Streams what it says; the finished reply comes last. Raises `ModelFailed`."""
        sdk = await trio.to_thread.run_sync(load, self._place)
        names = telling.wire_names(tools)
        reading = self._reading(names)
        try:
            async with client(sdk, self._place) as opened:
                stream = await self._open(sdk, opened, self._messages(conversation, names), names, tools)
                async with stream:
                    await expect_events(self._place, stream.response)
                    events = self._events(stream, reading)
                    until = math.inf
                    while (event := await _before(until, events)) is not None:
                        for said in reading.take(event):
                            yield said
                        if reading.finished:
                            until = min(until, trio.current_time() + REST_SECONDS)
        except ModelFailed:
            raise
        except Exception as error:
            if not expected(sdk, self._place, error):
                raise
            if not reading.finished:
                raise failed(sdk, self._place, self._model, error, self._usage(reading)) from error
        if not reading.finished:
            raise ModelFailed(
                f"the connection to {self._place.title} was cut while it replied",
                again=True,
                usage=self._usage(reading),
            )
        yield reading.reply(self.name, self._usage(reading), self._config.reply_tokens)

    async def _events(self, stream: Any, reading: Any) -> AsyncIterator[Mapping[str, Any]]:
        """What comes, event by event."""
        async for event in stream:
            yield event.to_dict()

    def _usage(self, reading: Reading) -> Usage | None:
        usage = reading.usage
        if usage is None or self._price is None:
            return usage
        return replace(usage, cost=self._price.of(usage))


async def _before(until: float, events: AsyncIterator[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The next event; none when there is no more, or none came before that time (of trio's clock)."""
    with trio.CancelScope(deadline=until):
        return await anext(events, None)
    return None
