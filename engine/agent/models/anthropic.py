"""The Messages protocol, by the `anthropic` SDK, read event by event. The SDK runs in the turn's own trio task.

Blocks are kept as they came, so that thinking goes back with its signature in the next round, and what the provider
searched for stays known to it. What an installation refuses (thinking, web search) is left out from then on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.agent.calls import Call, Conversation, Picture, Reply, Search, Thought, ToolSpec, Usage
from engine.agent.models import telling
from engine.agent.models.places import ModelsConfig, Place
from engine.agent.models.speaking import SpokenModel
from engine.agent.models.trouble import too_long

PROTOCOL = "anthropic"
SEARCHES = 5  # of one reply
_EPHEMERAL = {"cache_control": {"type": "ephemeral"}}
_OPTIONAL = ("thinking", "web_search")
_THOUGHTS = ("thinking", "redacted_thinking")


class AnthropicModel(SpokenModel):
    """One model of one place that speaks the Messages protocol."""

    def __init__(self, place: Place, model: str, config: ModelsConfig) -> None:
        super().__init__(place, model, config)
        if not config.web_search:
            self._refused.add("web_search")

    def _reading(self, names: Mapping[str, str]) -> Reading:
        return Reading(names)

    async def _open(
        self, sdk: Any, client: Any, messages: list[dict[str, Any]], names: Mapping[str, str], tools: Sequence[ToolSpec]
    ) -> Any:
        while True:
            options: dict[str, Any] = {}
            offered: list[dict[str, Any]] = [
                {"name": wire, "description": tool.description, "input_schema": tool.schema}
                for wire, tool in zip(names, tools, strict=True)
            ]
            if "thinking" not in self._refused:
                options["thinking"] = {"type": "adaptive", "display": "summarized"}
            if "web_search" not in self._refused:
                offered.append({"type": "web_search_20250305", "name": "web_search", "max_uses": SEARCHES})
            if offered:
                options["tools"] = offered
            try:
                return await client.messages.create(
                    model=self._model,
                    max_tokens=self._config.reply_tokens,
                    system=[{"type": "text", "text": telling.SYSTEM, **_EPHEMERAL}],
                    messages=messages,
                    stream=True,
                    **options,
                )
            except sdk.BadRequestError as error:
                said = str(error).lower()
                refused = next((name for name in _OPTIONAL if name in said and name not in self._refused), None)
                if refused is None:
                    raise
                self._refused.add(refused)
                if refused == "thinking":
                    messages = [_without_thinking(message) for message in messages]

    def _messages(self, conversation: Conversation, names: Mapping[str, str]) -> list[dict[str, Any]]:
        first: list[dict[str, Any]] = [{"type": "text", "text": telling.opening(conversation)}]
        first += [_picture(picture, conversation.blobs) for picture in conversation.pictures]
        messages: list[dict[str, Any]] = [{"role": "user", "content": first}]
        for exchange in conversation.exchanges:
            content, ids = self._assistant(exchange.reply, names)
            if content:
                messages.append({"role": "assistant", "content": content})
            answer: list[dict[str, Any]] = []
            for call in exchange.reply["calls"]:
                result = exchange.results.get(call["id"])
                text, bad = telling.outcome(result)
                shown = [_picture(picture, conversation.blobs) for picture in (result.pictures if result else ())]
                answer.append(
                    {
                        "type": "tool_result",
                        "tool_use_id": ids[call["id"]],
                        "content": [{"type": "text", "text": text}, *shown] if shown else text,
                        **({"is_error": True} if bad else {}),
                    }
                )
            answer += [{"type": "text", "text": text} for text in exchange.messages if text.strip()]
            answer += [_picture(picture, conversation.blobs) for picture in exchange.pictures]
            if exchange.reply["state"].get("stop") == "max_tokens" and not answer:
                answer.append({"type": "text", "text": telling.CUT})
            if answer:
                messages.append({"role": "user", "content": answer})
        last = conversation.exchanges[-1].reply["state"] if conversation.exchanges else {}
        if messages[-1]["role"] == "assistant" and last.get("stop") != "pause_turn":
            messages.append({"role": "user", "content": [{"type": "text", "text": telling.GO_ON}]})
        if messages[-1]["role"] == "user":
            messages[-1]["content"][-1] |= _EPHEMERAL
        return messages

    def _assistant(
        self, reply: Mapping[str, Any], names: Mapping[str, str]
    ) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """A stored reply as content blocks, and the id that each call has in them."""
        state = reply["state"]
        if state.get("protocol") == PROTOCOL:
            content = [dict(block) for block in state["content"]]
            if state.get("model") != self.name or "thinking" in self._refused:
                content = [block for block in content if block["type"] not in _THOUGHTS]
            return content, {call["id"]: call["id"] for call in reply["calls"]}
        ids = {call["id"]: call["call"].replace(".", "_") for call in reply["calls"]}
        text = telling.said(state)
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text.strip() else []
        for call in reply["calls"]:
            name = telling.wire_name(call["tool"], names)
            blocks.append({"type": "tool_use", "id": ids[call["id"]], "name": name, "input": call["arguments"]})
        return blocks, ids


class Reading:
    """One reply as its events come. `take` is pure but for what it keeps."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.usage: Usage | None = None
        self._names = names
        self._blocks: dict[int, dict[str, Any]] = {}
        self._written: dict[int, str] = {}  # arguments, piece by piece
        self._malformed: dict[str, str] = {}
        self._queries: dict[str, str] = {}
        self._stop: str | None = None
        self._details: Mapping[str, Any] = {}

    @property
    def finished(self) -> bool:
        return self._stop is not None

    def take(self, event: Mapping[str, Any]) -> list[Thought | Search]:
        """One event; what is to be shown of it."""
        match event.get("type"):
            case "message_start":
                self._count(event["message"].get("usage") or {})
            case "content_block_start":
                return self._start(event["index"], dict(event["content_block"]))
            case "content_block_delta":
                return self._delta(event["index"], event["delta"])
            case "content_block_stop":
                return self._end(event["index"])
            case "message_delta":
                self._count(event.get("usage") or {})
                self._stop = event["delta"].get("stop_reason") or self._stop
                self._details = event["delta"].get("stop_details") or {}
        return []

    def _count(self, usage: Mapping[str, Any]) -> None:
        """Counts are cumulative: the newest of each stands."""
        before = self.usage or Usage()
        cached = usage.get("cache_read_input_tokens")
        written = usage.get("cache_creation_input_tokens")
        cached = before.cached if cached is None else int(cached)
        written = before.written if written is None else int(written)
        plain = usage.get("input_tokens")
        plain = before.input - before.cached - before.written if plain is None else int(plain)
        output = usage.get("output_tokens")
        self.usage = Usage(plain + cached + written, before.output if output is None else int(output), cached, written)

    def _start(self, index: int, block: dict[str, Any]) -> list[Thought | Search]:
        self._blocks[index] = block
        match block["type"]:
            case "text" if block.get("text"):
                return [Thought(block["text"])]
            case "thinking" if block.get("thinking"):
                return [Thought(block["thinking"], thinking=True)]
            case "web_search_tool_result":
                found = block.get("content")
                sources = [
                    {"title": item.get("title") or item["url"], "url": item["url"]}
                    for item in (found if isinstance(found, list) else [])
                    if item.get("url")
                ]
                return [Search(self._queries.get(block.get("tool_use_id", ""), "web search"), sources)]
        return []

    def _delta(self, index: int, delta: Mapping[str, Any]) -> list[Thought | Search]:
        block = self._blocks[index]
        match delta["type"]:
            case "text_delta":
                block["text"] = block.get("text", "") + delta["text"]
                return [Thought(delta["text"])]
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
                return [Thought(delta["thinking"], thinking=True)]
            case "signature_delta":
                block["signature"] = block.get("signature", "") + delta["signature"]
            case "input_json_delta":
                self._written[index] = self._written.get(index, "") + delta["partial_json"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
        return []

    def _end(self, index: int) -> list[Thought | Search]:
        block = self._blocks[index]
        if index in self._written and block["type"] in ("tool_use", "server_tool_use"):
            block["input"], wrong = telling.arguments(self._written.pop(index))
            if wrong is not None:
                self._malformed[block["id"]] = wrong
        if block["type"] == "server_tool_use":
            self._queries[block["id"]] = str((block.get("input") or {}).get("query") or block.get("name"))
        return []

    def reply(self, name: str, usage: Usage | None, limit: int) -> Reply:
        """What the events made. A call that was cut off by the limit is told to the model as malformed. Raises
        `ModelFailed` when the window of the model was full."""
        if self._stop == "model_context_window_exceeded":
            raise too_long(name, usage)
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        for index in list(self._written):  # a block without its stop: the limit came in the midst of it
            self._end(index)
        if self._stop == "max_tokens":
            cut = f"your reply was cut off at its limit of {limit} tokens in the midst of them; write less at once"
            self._malformed = dict.fromkeys(self._malformed, cut)
        content = [block for block in blocks if block["type"] != "text" or block.get("text", "").strip()]
        text = "".join(block.get("text", "") for block in content if block["type"] == "text")
        calls = [
            Call(
                block["id"],
                self._names.get(block["name"], block["name"]),
                block.get("input") or {},
                why=telling.why(text),
                malformed=self._malformed.get(block["id"]),
            )
            for block in content
            if block["type"] == "tool_use"
        ]
        state = {"protocol": PROTOCOL, "model": name, "stop": self._stop, "text": text, "content": content}
        error = None
        if self._stop == "refusal":
            more = self._details.get("explanation") or self._details.get("category")
            error = (
                "the model refused to answer"
                + (f": {more}" if more else "")
                + ". Say it differently, or choose another model"
            )
        unfinished = self._stop in ("max_tokens", "pause_turn") and not calls
        return Reply(calls, state, usage, unfinished, error=error)


def _without_thinking(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] != "assistant":
        return message
    return {**message, "content": [block for block in message["content"] if block["type"] not in _THOUGHTS]}


def _picture(picture: Picture, blobs: Mapping[str, bytes]) -> dict[str, Any]:
    """A picture as a block; one whose bytes are not at hand by its name."""
    encoded = telling.encoded(picture, blobs)
    if encoded is None:
        return {"type": "text", "text": f"(the picture {picture.name} is not shown)"}
    return {"type": "image", "source": {"type": "base64", "media_type": picture.mime, "data": encoded}}
