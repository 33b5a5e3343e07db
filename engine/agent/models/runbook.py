"""The model that needs no key: the request is Markdown, its prose is what it says, its fenced blocks are what it does.

One block is one step, and one round of the turn. The whole is read before anything is done: a block that nobody knows,
a fence that is not closed and a word that is missing are told with their line, and nothing runs. A step that fails or
is denied ends the turn with its number; a question ends it until somebody answers. Both go on where they stood.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from engine.agent.calls import KERNEL_GONE, NOT_RUN, Call, Conversation, Exchange, Reply, Result, Thought, ToolSpec
from engine.agent.mcp.listing import SEPARATOR

STEPS = 100
PIECE = 240  # characters of prose that are said at once
WHY = 300  # characters of the prose before a step that say why

_FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,})[ \t]*(.*?)[ \t]*$")
_SENTENCE = re.compile(rf".{{1,{PIECE}}}(?:(?<=[.!?:\n])\s+|$)|.{{1,{PIECE}}}", re.DOTALL)


class Malformed(Exception):
    """The runbook cannot be read; `line` counts from 1."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(f"line {line}: {reason}")
        self.reason = reason
        self.line = line


@dataclass(frozen=True, slots=True)
class Step:
    """One block: `number` from 1, the line of its fence, and the call that it stands for. `prose` came before it."""

    number: int
    line: int
    word: str
    tool: str
    arguments: dict[str, Any]
    prose: str


@dataclass(frozen=True, slots=True)
class Runbook:
    """A request that was read: its steps, and the prose behind the last."""

    steps: Sequence[Step]
    rest: str


@dataclass(slots=True)
class _Block:
    word: str
    rest: str
    line: int
    lines: list[str] = field(default_factory=list)

    @property
    def body(self) -> str:
        return "\n".join(self.lines)

    def needs(self, what: str) -> str:
        if not self.rest:
            raise Malformed(f"`{self.word}` needs {what} behind it, on the same line", self.line)
        return self.rest

    def content(self, what: str) -> str:
        if not self.body.strip():
            raise Malformed(f"this `{self.word}` block is empty; it needs {what}", self.line)
        return self.body

    def alone(self) -> None:
        if self.rest:
            raise Malformed(f"`{self.word}` takes nothing behind it, but there is {self.rest!r}", self.line)

    def empty(self) -> None:
        if self.body.strip():
            raise Malformed(f"a `{self.word}` block has nothing inside, but there is {self.lines[0]!r}", self.line)


def _code(tool: str, name: str) -> Callable[[_Block], tuple[str, dict[str, Any]]]:
    def read(block: _Block) -> tuple[str, dict[str, Any]]:
        block.alone()
        return tool, {name: block.content("what is to be run")}

    return read


def _fetch(block: _Block) -> tuple[str, dict[str, Any]]:
    url = block.needs("an address")
    if len(url.split()) != 1 or not re.match(r"https?://", url, re.IGNORECASE):
        raise Malformed(f"{url!r} is no address; it begins with http:// or https://", block.line)
    block.empty()
    return "fetch", {"url": url}


def _write(block: _Block) -> tuple[str, dict[str, Any]]:
    content = block.body + "\n" if block.lines else ""
    return "write_file", {"path": block.needs("a path"), "content": content}


_OLD, _MIDDLE, _NEW = "<<<<<<<", "=======", ">>>>>>>"


def _edit(block: _Block) -> tuple[str, dict[str, Any]]:
    path = block.needs("a path")
    marks = [
        [at for at, line in enumerate(block.lines) if line.rstrip() == mark or line.startswith(mark + " ")]
        for mark in (_OLD, _MIDDLE, _NEW)
    ]
    if [len(found) for found in marks] != [1, 1, 1] or not marks[0][0] < marks[1][0] < marks[2][0]:
        raise Malformed(
            f"an `edit` block holds one change: a line `{_OLD}`, the old text, a line `{_MIDDLE}`, the new text, "
            f"a line `{_NEW}`",
            block.line,
        )
    (first,), (middle,), (last,) = marks
    around = block.lines[:first] + block.lines[last + 1 :]
    if any(line.strip() for line in around):
        raise Malformed(f"outside `{_OLD}` and `{_NEW}` there must be nothing", block.line)
    old, new = block.lines[first + 1 : middle], block.lines[middle + 1 : last]
    if not any(old):
        raise Malformed("the old text is empty; say what is to be replaced", block.line + 1 + first)
    end = "" if new else "\n"  # lines that are taken out go with their ends
    return "edit_file", {"path": path, "old": "\n".join(old) + end, "new": "\n".join(new)}


def _read(block: _Block) -> tuple[str, dict[str, Any]]:
    block.empty()
    return "read_file", {"path": block.needs("a path")}


def _wait(block: _Block) -> tuple[str, dict[str, Any]]:
    text = block.needs("a number of seconds")
    block.empty()
    if not re.fullmatch(r"\d{1,6}(\.\d+)?", text):
        raise Malformed(f"{text!r} is no number of seconds", block.line)
    return "wait", {"seconds": float(text)}


def _text(tool: str, name: str, what: str) -> Callable[[_Block], tuple[str, dict[str, Any]]]:
    """Text that may stand on the line of the fence, inside the block, or both."""

    def read(block: _Block) -> tuple[str, dict[str, Any]]:
        text = "\n".join(part for part in (block.rest, block.body.strip("\n")) if part.strip())
        if not text:
            raise Malformed(f"`{block.word}` needs {what}", block.line)
        return tool, {name: text}

    return read


def _check(block: _Block) -> tuple[str, dict[str, Any]]:
    block.empty()
    item = block.needs("an item")
    if mark := re.match(r"\[([ xX])\]\s+(.+)$", item):
        return "check", {"item": mark[2], "done": mark[1] != " "}
    return "check", {"item": item}


def _run(block: _Block) -> tuple[str, dict[str, Any]]:
    block.empty()
    return "run_cell", {"cell_id": block.needs("the id of a cell")}


def _tool(block: _Block) -> tuple[str, dict[str, Any]]:
    """Any tool by its name, its arguments a JSON object inside: how those of a server are called."""
    name = block.needs("the name of a tool")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
        raise Malformed(f"{name!r} is no name of a tool", block.line)
    if not block.body.strip():
        return name, {}
    try:
        arguments = json.loads(block.body)
    except json.JSONDecodeError as error:
        raise Malformed(
            f"the arguments are no JSON: {error.msg} (column {error.colno})", block.line + error.lineno
        ) from None
    except RecursionError:
        raise Malformed("the arguments are nested too deeply", block.line + 1) from None
    if not isinstance(arguments, dict):
        raise Malformed('the arguments are a JSON object, such as {"path": "notes.md"}', block.line + 1)
    return name, arguments


def _deliver(block: _Block) -> tuple[str, dict[str, Any]]:
    """Behind the word stand paths of files, inside the text."""
    files = block.rest.split()
    if not files and not block.body.strip():
        raise Malformed("`deliver` needs text inside, or paths of files behind it", block.line)
    return "deliver", {"text": block.body, **({"files": files} if files else {})}


_BLOCKS: dict[str, Callable[[_Block], tuple[str, dict[str, Any]]]] = {
    "sh": _code("shell", "command"),
    "python": _code("python", "code"),
    "fetch": _fetch,
    "write": _write,
    "edit": _edit,
    "read": _read,
    "wait": _wait,
    "ask": _text("ask_person", "question", "a question"),
    "check": _check,
    "progress": _text("progress", "text", "a few words"),
    "run": _run,
    "tool": _tool,
    "deliver": _deliver,
}
_PROSE = ("text", "")  # a block of these words is something to read, not to do
WORDS = tuple(_BLOCKS)


def parse(source: str) -> Runbook:
    """The steps of `source`. Raises `Malformed` with the first line that cannot be read."""
    steps: list[Step] = []
    prose: list[str] = []
    lines = source.splitlines()
    at = 0
    while at < len(lines):
        opened = _FENCE.match(lines[at])
        if opened is None or (opened[2][0] == "`" and "`" in opened[3]):
            prose.append(lines[at])
            at += 1
            continue
        block, after = _block(lines, at, opened)
        if block.word in _PROSE:
            prose += lines[at:after]
        else:
            if block.word not in _BLOCKS:
                raise Malformed(f"unknown block `{block.word}`; known are {', '.join(WORDS)}, text", block.line)
            if len(steps) == STEPS:
                raise Malformed(f"a runbook has at most {STEPS} steps", block.line)
            tool, arguments = _BLOCKS[block.word](block)
            steps.append(Step(len(steps) + 1, block.line, block.word, tool, arguments, "\n".join(prose).strip()))
            prose = []
        at = after
    return Runbook(steps, "\n".join(prose).strip())


def _block(lines: Sequence[str], at: int, opened: re.Match[str]) -> tuple[_Block, int]:
    """The block whose fence is line `at` (from 0), and the line behind it."""
    indent, fence, info = opened[1], opened[2], opened[3]
    word, _, rest = info.partition(" ")
    block = _Block(word.lower(), rest.strip(), at + 1)
    closing = re.compile(rf"^ {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}[ \t]*$")
    for end in range(at + 1, len(lines)):
        if closing.match(lines[end]):
            return block, end + 1
        line = lines[end]
        block.lines.append(line[len(indent) :] if line.startswith(indent) else line.lstrip(" "))
    raise Malformed(f"this block is not closed: a line of {fence} is missing", at + 1)


def pieces(prose: str) -> list[str]:
    """Prose in the pieces in which it is said, a sentence or so each; together they are the prose."""
    return [piece for piece in _SENTENCE.findall(prose) if piece]


class RunbookModel:
    """Carries a runbook out, a step a round. Where it stands it reads from the conversation alone."""

    name: ClassVar[str] = "runbook"

    @staticmethod
    def servers(request: str) -> set[str]:
        """The tool servers that the steps of a request name; none when it cannot be read."""
        try:
            steps = parse(request).steps
        except Malformed:
            return set()
        return {server for server, separator, _ in (step.tool.partition(SEPARATOR) for step in steps) if separator}

    async def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> AsyncIterator[Thought | Reply]:
        """Says the prose before the next step, then asks for that step; behind the last step it is done."""
        try:
            book = parse(conversation.request)
        except Malformed as error:
            yield Reply(error=str(error), error_line=error.line)
            return
        unread = _unread(conversation)
        for message in unread:
            yield Thought(f"A runbook follows its steps alone. What you said changed none of them: “{message}”\n\n")
        known = {tool.name for tool in tools}
        for step in book.steps:
            if step.tool not in known:
                what = step.tool if step.word == "tool" else step.word
                missing = _missing(step.tool, known, conversation)
                yield Reply(error=f"line {step.line}: `{what}` is not to be had here{missing}", error_line=step.line)
                return
        if not book.steps and not book.rest:
            yield Reply(error="the request is empty: say what is to be done", error_line=1)
            return
        if conversation.start_step is None and (failed := _failed(book, conversation.exchanges)) is not None:
            yield failed
            return
        at = _next(conversation)
        if at > len(book.steps):
            again = bool(unread) and at > len(book.steps) + 1  # what stands behind the last step was said before
            for piece in [] if again else pieces(book.rest):
                yield Thought(piece)
            yield Reply(state={"step": at})
            return
        step = book.steps[at - 1]
        for piece in pieces(step.prose):
            yield Thought(piece)
        why = step.prose[-WHY:].strip() or None
        call = Call(f"step-{at}", step.tool, step.arguments, why=why, step=at, line=step.line)
        yield Reply([call], state={"step": at})


def _missing(tool: str, known: Collection[str], conversation: Conversation) -> str:
    """Why a tool of a server is not there, as far as that was told."""
    server, separator, _ = tool.partition(SEPARATOR)
    if not separator:
        return ""
    said = conversation.exchanges[-1].messages if conversation.exchanges else conversation.messages
    told = next((message for message in reversed(said) if f"The server {server} " in message), None)
    others = sorted(name for name in known if name.startswith(f"{server}{SEPARATOR}"))
    if told is None and others:
        return f"; the server {server} has {', '.join(others[:20])}"
    return f": {told}" if told is not None else f": the notebook has no server {server}"


def _next(conversation: Conversation) -> int:
    """The number of the next step."""
    if conversation.start_step is not None:
        return conversation.start_step
    last = conversation.exchanges[-1].reply if conversation.exchanges else None
    return 1 if last is None else int(_state(last).get("step", 0)) + 1


def _unread(conversation: Conversation) -> Sequence[str]:
    """What people said since the last reply, the answer to a question of the runbook's own left out."""
    last = conversation.exchanges[-1] if conversation.exchanges else None
    said = [text for text in (last.messages if last else conversation.messages) if text != KERNEL_GONE]
    asked = last is not None and any(call.get("tool") == "ask_person" for call in last.reply["calls"])
    return said[1:] if asked else said


def _state(reply: Mapping[str, Any]) -> Mapping[str, Any]:
    state: Mapping[str, Any] = reply.get("state") or {}
    return state


def _failed(book: Runbook, exchanges: Sequence[Exchange]) -> Reply | None:
    """The end of a turn whose last step was not done, in words; null when it was."""
    if not exchanges:
        return None
    results = list(exchanges[-1].results.values())
    if not results or results[-1].status == "done":
        return None
    number = int(_state(exchanges[-1].reply).get("step", 0))
    if not 1 <= number <= len(book.steps):
        return None
    step = book.steps[number - 1]
    reason = f"step {number} ({step.word}, line {step.line}) {_became(results[-1])}"
    return Reply(error=reason, error_step=number, error_line=step.line)


def _became(result: Result) -> str:
    last = next((line.strip() for line in reversed(result.text.splitlines()) if line.strip()), "")
    match result.status:
        case "denied":
            last = last.partition(NOT_RUN)[0]  # what follows is for models
            return f"was denied: {last}" if last else "was denied"
        case "unknown":
            return f"may have happened or not: {last}"
        case "cancelled":
            return f"was stopped: {last}" if last else "was stopped"
    return f"failed: {last[:500]}" if last else "failed"
