"""The story of an agent's turn in words, for a document: what was asked, thought, called, decided, handed over.

`told` says it once for all forms of a document (`ui/export.py`); nothing in it is markup, all of it may be hostile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.story import Item, Story

CHARACTERS = 64 * 1024  # of one text in a document

_STATUS = {
    "open": "not begun",
    "begun": "going on",
    "error": "failed",
    "denied": "denied",
    "unknown": "whether it happened is not known",
    "cancelled": "stopped",
}
_SILENCE = {
    "timeout": "nobody answered in time",
    "no_operator": "nobody was there",
    "cancelled": "the turn was stopped",
    "changed": "what it was for had changed",
    "unused": "the call was not made",
    "policy": "by the policy of the notebook",
}


@dataclass(frozen=True, slots=True)
class Told:
    """One item: `label` is a line; `prose` is Markdown, `words` are none; `blocks` are (caption, text to the letter).
    `folded`: a reader opens it when they want to know."""

    label: str
    prose: str = ""
    words: str = ""
    blocks: tuple[tuple[str, str], ...] = ()
    folded: bool = False


def told(story: Story, source: str, files: Mapping[str, Mapping[str, Any]]) -> list[Told]:
    """The items of a story, oldest first. `source` stands above it already; `files` are a notebook's, by path."""
    found = [Told(f"… {story.left_out:,} earlier steps not kept")] if story.left_out else []
    made: dict[str, list[str]] = {}
    for path, file in files.items():
        if file.get("call") and not file.get("deleted"):
            made.setdefault(file["call"], []).append(path)
    for item in story.items:
        if item["t"] == "request" and item.get("text") == source and item is story.items[0]:
            continue
        if (one := _item(item, made)) is not None:
            found.append(one)
    return found


def _item(item: Item, made: Mapping[str, list[str]]) -> Told | None:
    match item["t"]:
        case "request":
            return Told(f"{_who(item)} asked", words=_cut(item.get("text")))
        case "message":
            said = {"queued": "said, not taken up yet", "withdrawn": "said and took back"}.get(item["event"], "said")
            return Told(f"{_who(item)} {said}", words=_cut(item.get("text")))
        case "thought":
            text = _cut(item["text"])
            if item.get("thinking"):
                return Told("Thought", words=text, folded=True)
            return Told("Said", prose=text, folded=True)
        case "search":
            sources = [f"{source.get('title') or ''} {source.get('url') or ''}".strip() for source in item["sources"]]
            return Told(f"Searched: {_line(item['query'])}", words=_cut("\n".join(sources)) or "Found nothing.")
        case "tool":
            return _call(item, made)
        case "ask":
            blocks = [("What exactly", item["command"])]
            if item.get("why"):
                blocks.append(("Why", item["why"]))
            if item.get("touches"):
                blocks.append(("What it may touch", "\n".join(item["touches"])))
            label = f"Asked for a yes: {_line(item['title'])}. {verdict(item)}"
            return Told(label, words=_cut(item.get("message")), blocks=_blocks(blocks))
        case "delivered":
            return Told("Delivered", prose=_cut(item.get("text")), blocks=_files(item.get("files") or ()))
        case "error":
            places = [f"{name} {item[name]}" for name in ("step", "line") if item.get(name)]
            place = f" at {', '.join(places)}" if places else ""
            return Told(f"Failed{place}", words=_cut(item["reason"]))
        case "done":
            work = f"{item['rounds']:,} rounds, {item['calls']:,} calls, {item['ms'] / 1000:,.1f} s of work"
            return Told(work + (f", {item['tokens']:,} tokens" if item.get("tokens") else ""))
    return None


def verdict(item: Mapping[str, Any]) -> str:
    """How an ask ended, and who decided."""
    if item.get("verdict") is None:
        return "Not decided yet"
    if item["verdict"] == "approve":
        scope = ", and all of this kind" if item.get("scope") == "kind" else ""
        who = "a rule" if item.get("reason") == "rule" else _line(item.get("by") or "a person")
        return f"Approved by {who}{scope}"
    if item.get("reason") in _SILENCE:
        return f"Denied: {_SILENCE[item['reason']]}"
    return f"Denied by {_line(item.get('by') or 'a person')}"


def _call(item: Item, made: Mapping[str, list[str]]) -> Told:
    label = f"Call: {_line(item.get('title') or item.get('tool') or 'a tool')}"
    if item["status"] != "done":
        label += f" ({_STATUS.get(item['status'], item['status'])})"
    blocks = []
    if item.get("arguments"):
        blocks.append((f"Arguments of {_line(item.get('tool') or '')}", _json(item["arguments"])))
    if item.get("diff"):
        blocks.append(("Changes", item["diff"]))
    if item.get("text"):
        missing = f", {item['left_out']:,} bytes left out" if item.get("left_out") else ""
        blocks.append((f"Result{missing}", item["text"]))
    return Told(label, blocks=_blocks(blocks) + _files(made.get(item["call"], ())), folded=True)


def _files(paths: Any) -> tuple[tuple[str, str], ...]:
    return _blocks([("Files", "\n".join(_line(path) for path in paths))]) if paths else ()


def _blocks(blocks: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((caption, _cut(text)) for caption, text in blocks)


def _who(item: Mapping[str, Any]) -> str:
    return _line(item.get("by") or "A person")


def _line(text: Any) -> str:
    """Text of any kind as one short line."""
    line = " ".join(str(text).split())
    return line if len(line) <= 300 else f"{line[:300]}…"


def _cut(text: Any) -> str:
    text = str(text or "").rstrip()
    return text if len(text) <= CHARACTERS else f"{text[:CHARACTERS]}\n… {len(text) - CHARACTERS:,} more characters"


def _json(arguments: Any) -> str:
    """Arguments as people read them: a text to the letter, with its name before it."""
    if isinstance(arguments, dict) and all(isinstance(value, str | int | float) for value in arguments.values()):
        return "\n".join(f"{name}: {value}" for name, value in arguments.items())
    return json.dumps(arguments, indent=2, ensure_ascii=False)
