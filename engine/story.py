"""The story of an agent turn: the part of the fold that frames of a turn write. Plain values, bounded, pure.

A cell of kind `agent` has one: the items of its newest conversation, oldest first. Items are JSON objects, told apart
by `t`, and are replaced, never changed in place. A run that continues a conversation appends to it.

| `t` | fields |
| --- | --- |
| `request` | run, text: what the person asked, or answered |
| `thought` | run, round, text, thinking |
| `search` | run, round, query, sources |
| `context` | run, and as in the frame: what the model was shown |
| `tool` | run, call, round, tool, arguments, title, risk, effect, status, text, left_out, diff, ms, output |
| `ask` | behind its tool: run, and as in the frame; then verdict, reason, by, message, scope, decided_at |
| `message` | run, message, text, event, by |
| `delivered` `error` | run, and as in the frame |
| `done` | run, rounds, calls, ms, tokens, cost |

The status of a tool call is open, begun, then as in the frame of its result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from engine.frames import Frame

if TYPE_CHECKING:
    from engine.notebook import Run

ITEMS = 400  # of one story; the oldest finished ones go first, and `left_out` counts them
TEXT = 64 * 1024  # characters of one thought

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Story:
    """What a turn did so far, and how far its bounds are used up. `seconds` is the working time left at round start."""

    run_id: str | None = None
    round: int = 0
    rounds: int = 0
    seconds: float | None = None
    attempt: int = 1
    waits_for: str | None = None
    progress: dict[str, Any] | None = None
    items: tuple[Item, ...] = ()
    left_out: int = 0
    tokens: int = 0  # that its conversation used so far
    cost: float | None = None  # dollars, where a price is known
    resume_step: int | None = None  # a turn that ended here can be told to go on

    @property
    def asks(self) -> list[Item]:
        """The asks that wait for a verdict, oldest first."""
        return [item for item in self.items if item["t"] == "ask" and item.get("verdict") is None]

    @property
    def messages(self) -> list[Item]:
        """The messages that no round has taken yet, oldest first."""
        return [item for item in self.items if item["t"] == "message" and item["event"] == "queued"]


def began(story: Story, frame: Frame, run: Run, source: str) -> Story:
    """A run of the cell starts: a new conversation, or the next part of one."""
    kept = story if run.follows else Story(items=tuple(story.messages))
    text = f"Go on at step {run.step}" if run.step is not None else source if run.answer is None else run.answer
    request = {"t": "request", "run": run.id, "text": text, "by": run.by, "at": frame.at.isoformat()}
    return replace(
        _added(kept, request),
        run_id=frame.run_id, round=0, rounds=0, seconds=None, attempt=1, waits_for=None, progress=None,
        resume_step=None,
    )  # fmt: skip


def told(story: Story, frame: Frame) -> Story:
    """The story after a frame of its run. A frame of another run, or of another kind, changes nothing; but a message
    may come before the run it is for has begun, and stays until a round takes it."""
    reducer = _REDUCERS.get(frame.kind)
    if reducer is None or (frame.run_id != story.run_id and frame.kind != "message"):
        return story
    return reducer(story, frame)


def ended(story: Story, frame: Frame) -> Story:
    """Its run ended: nothing is open any more."""
    items = tuple(
        {**item, "status": "cancelled"} if item["t"] == "tool" and item["status"] in ("open", "begun") else item
        for item in story.items
    )
    body = frame.body
    return replace(story, items=items, waits_for=body.get("waits_for"), progress=None, resume_step=body.get("step"))


def waits(story: Story, frame: Frame) -> Story:
    """What `run` frames between start and end say."""
    body = frame.body
    match body.get("event"):
        case "round":
            return replace(
                story,
                round=body.get("round", 0), rounds=body.get("rounds", 0), seconds=body.get("seconds"), attempt=1,
                waits_for=None,
            )  # fmt: skip
        case "retrying":  # what a reply that broke off had said is not part of the story
            at = body.get("round", story.round)
            items = tuple(
                item
                for item in story.items
                if not (item["t"] in ("thought", "search") and item["run"] == story.run_id and item["round"] == at)
            )
            return replace(story, items=items, attempt=body.get("attempt", story.attempt + 1))
        case "waiting":
            return replace(story, waits_for=body.get("waits_for"))
        case "resumed":
            return replace(story, waits_for=None)
    return story


def _usage(story: Story, frame: Frame) -> Story:
    body = frame.body
    cost = story.cost if body.get("cost") is None else (story.cost or 0.0) + body["cost"]
    return replace(story, tokens=story.tokens + body["input"] + body["output"], cost=cost)


def _added(story: Story, item: Item) -> Story:
    items, left_out = (*story.items, item), story.left_out
    while len(items) > ITEMS:
        gone = next((at for at, old in enumerate(items) if not _open(old)), None)
        if gone is None:
            break
        items, left_out = (*items[:gone], *items[gone + 1 :]), left_out + 1
    return replace(story, items=items, left_out=left_out)


def _open(item: Item) -> bool:
    if item["t"] == "tool":
        return item["status"] in ("open", "begun")
    if item["t"] == "message":
        return bool(item["event"] == "queued")
    return item["t"] == "ask" and item.get("verdict") is None


def _changed(story: Story, t: str, key: str, value: Any, /, **fields: Any) -> Story:
    """The newest item of kind `t` whose `key` is `value`, with `fields`."""
    for at in range(len(story.items) - 1, -1, -1):
        item = story.items[at]
        if item["t"] == t and item[key] == value:
            changed = {**item, **{name: field for name, field in fields.items() if field is not None}}
            return replace(story, items=(*story.items[:at], changed, *story.items[at + 1 :]))
    return story


def _thought(story: Story, frame: Frame) -> Story:
    body = frame.body
    thinking = bool(body.get("thinking"))
    last = story.items[-1] if story.items else None
    if (
        last is not None
        and last["t"] == "thought"
        and (last["run"], last["round"], last["thinking"]) == (frame.run_id, body["round"], thinking)
    ):
        text = last["text"] + body["text"]
        if len(text) > TEXT:
            text = text[: TEXT // 2] + "\n…\n" + text[-TEXT // 2 + 3 :]
        return replace(story, items=(*story.items[:-1], {**last, "text": text}))
    item = {"t": "thought", "run": frame.run_id, "round": body["round"], "thinking": thinking, "text": body["text"]}
    return _added(story, item)


def _appended(t: str) -> Callable[[Story, Frame], Story]:
    def reducer(story: Story, frame: Frame) -> Story:
        return _added(story, {"t": t, "run": frame.run_id, "at": frame.at.isoformat(), **frame.body})

    return reducer


def _tool(story: Story, frame: Frame) -> Story:
    body = {key: value for key, value in frame.body.items() if key != "event"}
    match frame.body.get("event"):
        case "call":
            return _added(
                story, {"t": "tool", "run": frame.run_id, "at": frame.at.isoformat(), "status": "open", **body}
            )
        case "begun":
            fields = {name: body.get(name) for name in ("output", "title", "diff")}
            return _changed(story, "tool", "call", body["call"], status="begun", **fields)
    return _changed(story, "tool", "call", body.pop("call"), **body)


def _ask(story: Story, frame: Frame) -> Story:
    """A new ask, or one told anew because a person parked it."""
    body, at = frame.body, frame.at.isoformat()
    if any(old["t"] == "ask" and old["ask"] == body["ask"] for old in story.items):
        return _changed(story, "ask", "ask", body["ask"], at=at, parked=body.get("parked"), seconds=body["seconds"])
    return _added(story, {"t": "ask", "run": frame.run_id, "at": at, **body})


def _progress(story: Story, frame: Frame) -> Story:
    return replace(story, progress=dict(frame.body))


def _verdict(story: Story, frame: Frame) -> Story:
    body = frame.body
    return _changed(
        story, "ask", "ask", body["ask"],
        verdict=body["verdict"], reason=body["reason"], scope=body.get("scope"), message=body.get("message"),
        by=frame.by, decided_at=frame.at.isoformat(),
    )  # fmt: skip


def _message(story: Story, frame: Frame) -> Story:
    body = frame.body
    if body.get("text") is not None:  # new: one that waits, or what Nightbook itself had to tell at once
        return _added(story, {"t": "message", "run": frame.run_id, "by": frame.by, **body})
    return _changed(story, "message", "message", body["message"], event=body["event"])


_REDUCERS: dict[str, Callable[[Story, Frame], Story]] = {
    "thought": _thought,
    "search": _appended("search"),
    "context": _appended("context"),
    "usage": _usage,
    "tool": _tool,
    "progress": _progress,
    "ask": _ask,
    "verdict": _verdict,
    "message": _message,
    "delivered": _appended("delivered"),
    "error": _appended("error"),
    "done": _appended("done"),
}
