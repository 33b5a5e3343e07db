"""The chat completions protocol, by the `openai` SDK, chunk by chunk: OpenAI, Ollama, vLLM, llama.cpp, gateways.

The SDK runs in the turn's own trio task. What servers add to the protocol is taken where it is wide-spread (thinking as
`reasoning_content` or `reasoning`), and what they leave out is done without (a reason to stop before the mark at the
end); what one refuses (usage in the stream) is left out from then on.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from engine.agent.calls import Call, Conversation, Picture, Reply, Search, Thought, ToolSpec, Usage
from engine.agent.models import telling
from engine.agent.models.places import OPENAI_URL, ModelsConfig, Place
from engine.agent.models.speaking import SpokenModel

PROTOCOL = "openai"
_THINKING = ("reasoning_content", "reasoning")
_END = b"[DONE]"
_OPTIONAL = ("stream_options", "web_search_options")
_PICTURES = "image_url"  # refused by models that read text alone, which servers say in words of their own
_BLIND = re.compile(
    r"not a multimodal|mmproj|(image|vision|multimodal).{0,60}(not support|unsupported|only supported)"
    r"|(not support|no support for|missing data required for).{0,40}(image|vision|multimodal)",
    re.IGNORECASE | re.DOTALL,
)


class OpenAIModel(SpokenModel):
    """One model of one place that speaks chat completions."""

    def __init__(self, place: Place, model: str, config: ModelsConfig) -> None:
        super().__init__(place, model, config)
        if not (config.web_search and place.url == OPENAI_URL and "search" in model):
            self._refused.add("web_search_options")

    @property
    def blind(self) -> bool:
        """Whether it was found to read text alone: pictures are only named to it from then on."""
        return _PICTURES in self._refused

    def _reading(self, names: Mapping[str, str]) -> Reading:
        return Reading(names)

    async def _events(self, stream: Any, reading: Reading) -> AsyncIterator[Mapping[str, Any]]:
        """Notices the mark at the end, which the SDK keeps to itself: some servers give no other sign of it."""
        body, tail = stream.response.aiter_bytes, b""

        async def watched(*args: Any, **named: Any) -> AsyncIterator[bytes]:
            nonlocal tail
            async for data in body(*args, **named):
                tail = (tail + data)[-len(_END) - 8 :]
                yield data

        stream.response.aiter_bytes = watched
        async for event in super()._events(stream, reading):
            yield event
        if _END in tail:
            reading.end()

    async def _open(
        self, sdk: Any, client: Any, messages: list[dict[str, Any]], names: Mapping[str, str], tools: Sequence[ToolSpec]
    ) -> Any:
        while True:
            options: dict[str, Any] = {}
            if tools:
                options["tools"] = [
                    {
                        "type": "function",
                        "function": {"name": wire, "description": tool.description, "parameters": tool.schema},
                    }
                    for wire, tool in zip(names, tools, strict=True)
                ]
            if "stream_options" not in self._refused:
                options["stream_options"] = {"include_usage": True}
            if "web_search_options" not in self._refused:
                options["web_search_options"] = {}
            if self._place.url == OPENAI_URL:  # other servers have limits of their own, and may refuse ours
                options["max_completion_tokens"] = self._config.reply_tokens
            if self.blind:
                messages = [_without_pictures(message) for message in messages]
            try:
                return await client.chat.completions.create(
                    model=self._model, messages=messages, stream=True, **options
                )
            except (sdk.BadRequestError, sdk.UnprocessableEntityError, sdk.InternalServerError) as error:
                said = str(error).lower()
                refused = next((name for name in _OPTIONAL if name in said and name not in self._refused), None)
                if refused is None and not self.blind and _BLIND.search(said) and any(map(_pictured, messages)):
                    refused = _PICTURES
                if refused is None:
                    raise
                self._refused.add(refused)

    def _messages(self, conversation: Conversation, names: Mapping[str, str]) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": telling.SYSTEM},
            _user(telling.opening(conversation), conversation.pictures, conversation.blobs),
        ]
        for exchange in conversation.exchanges:
            message = self._assistant(exchange.reply, names)
            if message is not None:
                messages.append(message)
            pictures: list[Picture] = []
            for call in exchange.reply["calls"]:
                result = exchange.results.get(call["id"])
                text, _ = telling.outcome(result)
                messages.append({"role": "tool", "tool_call_id": _id(exchange.reply, call), "content": text})
                pictures += result.pictures if result is not None else ()
            said = [text for text in exchange.messages if text.strip()]
            if exchange.reply["state"].get("stop") in ("length", "max_tokens") and not exchange.reply["calls"]:
                said.append(telling.CUT)
            if pictures:
                shown = "Pictures that the calls above gave: " + ", ".join(picture.name for picture in pictures)
                messages.append(_user(shown, pictures, conversation.blobs))
            messages += [{"role": "user", "content": text} for text in said[:-1]]
            if said:
                messages.append(_user(said[-1], exchange.pictures, conversation.blobs))
        if messages[-1]["role"] == "assistant":
            messages.append({"role": "user", "content": telling.GO_ON})
        return messages

    def _assistant(self, reply: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any] | None:
        """A stored reply as a message; null when there was nothing in it."""
        state = reply["state"]
        written = state.get("written") or {} if state.get("protocol") == PROTOCOL else {}
        message: dict[str, Any] = {"role": "assistant", "content": telling.said(state) or None}
        calls = [
            {
                "id": _id(reply, call),
                "type": "function",
                "function": {
                    "name": telling.wire_name(call["tool"], names),
                    "arguments": json.dumps(
                        call["arguments"] or ({"malformed": written[call["id"]]} if call["id"] in written else {})
                    ),
                },
            }
            for call in reply["calls"]
        ]
        if calls:
            message["tool_calls"] = calls
            if state.get("model") == self.name and state.get("thinking") and self._place.url != OPENAI_URL:
                message[state["thinking_in"]] = state["thinking"]  # some servers want it back as long as tools are used
        return message if calls or message["content"] else None


def _id(reply: Mapping[str, Any], call: Mapping[str, Any]) -> str:
    """The id of a call in this protocol: what the model gave it, or, of another protocol, its name in the notebook."""
    return str(call["id"] if reply["state"].get("protocol") == PROTOCOL else call["call"])


class Reading:
    """One reply as its chunks come."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.usage: Usage | None = None
        self._names = names
        self._text = ""
        self._thinking = ""
        self._thinking_in = _THINKING[0]
        self._refusal = ""
        self._calls: dict[int, dict[str, str]] = {}
        self._stop: str | None = None

    @property
    def finished(self) -> bool:
        return self._stop is not None

    def end(self) -> None:
        """The mark at the end came: a reply without a reason to stop is whole, too, if there is anything in it."""
        if self._text or self._calls:
            self._stop = self._stop or "stop"

    def take(self, chunk: Mapping[str, Any]) -> list[Thought | Search]:
        """One chunk; what is to be shown of it."""
        if usage := chunk.get("usage"):
            details = usage.get("prompt_tokens_details") or {}
            self.usage = Usage(
                int(usage.get("prompt_tokens") or 0),
                int(usage.get("completion_tokens") or 0),
                int(details.get("cached_tokens") or 0),
                int(details.get("cache_write_tokens") or 0),
            )
        shown: list[Thought | Search] = []
        for choice in (chunk.get("choices") or [])[:1]:
            shown += self._delta(choice.get("delta") or {})
            self._stop = choice.get("finish_reason") or self._stop
        return shown

    def _delta(self, delta: Mapping[str, Any]) -> list[Thought | Search]:
        shown: list[Thought | Search] = []
        for name in _THINKING:
            if isinstance(piece := delta.get(name), str) and piece:
                self._thinking += piece
                self._thinking_in = name
                shown.append(Thought(piece, thinking=True))
                break
        if piece := delta.get("content"):
            self._text += piece
            shown.append(Thought(piece))
        if piece := delta.get("refusal"):
            self._refusal += piece
        for call in delta.get("tool_calls") or ():
            self._call(call)
        sources = [
            {"title": cited.get("title") or cited["url"], "url": cited["url"]}
            for note in delta.get("annotations") or ()
            if (cited := note.get("url_citation") or {}).get("url")
        ]
        return [*shown, Search("web search", sources)] if sources else shown

    def _call(self, piece: Mapping[str, Any]) -> None:
        """A piece of a call; servers that leave out its number send the whole call at once."""
        index = piece.get("index")
        at = len(self._calls) if index is None else int(index)
        call = self._calls.setdefault(at, {"id": "", "name": "", "arguments": ""})
        function = piece.get("function") or {}
        call["id"] = piece.get("id") or call["id"]
        call["name"] = function.get("name") or call["name"]
        call["arguments"] += function.get("arguments") or ""

    def reply(self, name: str, usage: Usage | None, limit: int) -> Reply:
        """What the chunks made."""
        calls: list[Call] = []
        written: dict[str, str] = {}
        for at, piece in sorted(self._calls.items()):
            arguments, wrong = telling.arguments(piece["arguments"])
            call_id = piece["id"] or f"call_{at + 1}"
            if any(call.id == call_id for call in calls):
                call_id = f"{call_id}_{at + 1}"
            if wrong is not None:
                written[call_id] = piece["arguments"][:2000]
                if self._stop == "length":
                    wrong = f"your reply was cut off at its limit of {limit} tokens; write less at once"
            tool = self._names.get(piece["name"], piece["name"])
            calls.append(Call(call_id, tool, arguments, why=telling.why(self._text), malformed=wrong))
        state: dict[str, Any] = {"protocol": PROTOCOL, "model": name, "stop": self._stop, "text": self._text}
        if self._thinking:
            state |= {"thinking": self._thinking, "thinking_in": self._thinking_in}
        if written:
            state["written"] = written
        error = None
        if self._refusal:
            error = f"the model refused to answer: {self._refusal[:400]}. Say it differently, or choose another model"
        elif self._stop == "content_filter":
            error = "the provider's content filter stopped the reply. Say it differently, or choose another model"
        return Reply(calls, state, usage, self._stop == "length" and not calls, error=error)


def _pictured(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(part["type"] == _PICTURES for part in content)


def _without_pictures(message: dict[str, Any]) -> dict[str, Any]:
    if not _pictured(message):
        return message
    gone = {"type": "text", "text": "(a picture is not shown here: you read text alone)"}
    return {**message, "content": [gone if part["type"] == _PICTURES else part for part in message["content"]]}


def _user(text: str, pictures: Sequence[Picture], blobs: Mapping[str, bytes]) -> dict[str, Any]:
    """What the person's side says, with pictures where their bytes are at hand."""
    parts: list[dict[str, Any]] = []
    for picture in pictures:
        encoded = telling.encoded(picture, blobs)
        if encoded is None:
            parts.append({"type": "text", "text": f"(the picture {picture.name} is not shown)"})
        else:
            parts.append({"type": "image_url", "image_url": {"url": f"data:{picture.mime};base64,{encoded}"}})
    return {"role": "user", "content": [{"type": "text", "text": text}, *parts] if parts else text}
