"""The words that models, tools and the turn share: a call, what it would do, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from engine.files import Files
from engine.frames import Draft, Risk
from engine.notebook import Notebook
from engine.store.steps import Row

EffectClass = Literal["pure", "keyed", "once"]
Status = Literal["done", "error", "denied", "unknown", "cancelled"]


NOT_RUN = ", so it was not run"  # between what became of a denied call and the advice that only a model needs
KERNEL_GONE = "The Python kernel of before is gone, and with it the variables that cells and calls had made."


@dataclass(frozen=True, slots=True)
class Call:
    """What a model wants done. `id` is unique in the notebook; `arguments` is what the model wrote, not yet checked."""

    id: str
    tool: str
    arguments: dict[str, Any]
    why: str | None = None
    step: int | None = None  # of a runbook, from 1
    line: int | None = None  # of the request, from 1
    malformed: str | None = None  # why what the model wrote is no arguments at all; then `arguments` is empty


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that a model is shown, by reference: `sha256` names a blob of the notebook. PNG, JPEG, GIF or WebP."""

    sha256: str
    mime: str
    name: str


@dataclass(frozen=True, slots=True)
class Description:
    """A call in words: what people are asked about, and what its approval is bound to.

    `command` is exactly what would be done. `facts` are what it points at (the hash of a file to edit, the version of a
    cell to run): if they change, an approval does not count any more. `words` is the whole word list of one simple
    command, for a rule of "this kind"; null when no rule may cover it.
    """

    title: str
    command: str
    touches: Sequence[str] = ()
    facts: Sequence[str] = ()
    words: Sequence[str] | None = None
    rule: str | None = None
    diff: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """How a call ended. `text` goes to the model and, trimmed, to people; `drafts` and `rows` are committed with it.

    `source`: where `text` comes from when nobody here wrote it (an address, a file, a server): models are told that it
    is data, and people that what was proposed after it may be its doing.
    """

    status: Status
    text: str = ""
    diff: str | None = None
    left_out: int = 0  # bytes
    drafts: Sequence[Draft] = ()
    rows: Sequence[Row] = ()
    ends: Literal["answer", "delivered"] | None = None  # the turn ends with it: with a question, or with what it made
    source: str | None = None
    pictures: Sequence[Picture] = ()


class ToolFailed(Exception):
    """The tool could not do it; the message says why, to the model and to people."""


class OutcomeUnknown(ToolFailed):
    """It was begun, and how far it came cannot be found out."""


@dataclass(frozen=True, slots=True)
class CodeResult:
    """What a run of code in the sandbox gave: its status as in `run ended`, its text (trimmed), its exit code, and the
    newest pictures that it showed. `inline` has the bytes of those that are no blobs yet, by sha256."""

    status: str
    text: str
    left_out: int
    reason: str | None
    exit: int | None
    pictures: Sequence[Picture] = ()
    inline: Mapping[str, bytes] = field(default_factory=dict)


class ModelFailed(Exception):
    """No reply was had. The message names what failed and the way out.

    `again`: asking once more may help; `after`: the other side wants so many seconds of quiet before it. `settings`:
    the way out leads over the page of settings. `usage`: what the failed attempt has used up all the same. `long`: the
    conversation is longer than the model can read.
    """

    def __init__(
        self,
        reason: str,
        *,
        again: bool = False,
        after: float | None = None,
        settings: bool = False,
        usage: Usage | None = None,
        long: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again
        self.after = after
        self.settings = settings
        self.usage = usage
        self.long = long


class Room(Protocol):
    """What a turn lends to its tools. No viewer, no page, no request is to be had here."""

    @property
    def notebook(self) -> Notebook:
        """As it stands now."""

    @property
    def cell_id(self) -> str: ...

    @property
    def run_id(self) -> str: ...

    @property
    def call_id(self) -> str:
        """The call that is being made; unique in the notebook, and the same after a crash."""

    async def run_code(self, key: str, kind: Literal["python", "shell"], code: str) -> CodeResult:
        """Runs code in the sandbox, at the head of the cell lane, without stdin. `key` names the effect: known, the
        code is not started again and the first outcome is given. Raises `ToolFailed` when the outcome is unknown."""

    async def run_cell(self, key: str, cell_id: str) -> CodeResult:
        """Runs a cell of the notebook at the head of the cell lane, as `run_cell` does for a person, and waits for its
        end. `key` names the run, as in `run_code`."""

    @property
    def files(self) -> Files:
        """The durable copy of the notebook's files: every write of a tool goes through it."""

    @property
    def fetch_allow(self) -> Sequence[str]:
        """Hosts, addresses and networks that `fetch` may reach although they are not public (a setting)."""

    async def workspace(self) -> int:
        """A descriptor of the notebook's folder, open until the call ends; the folder is filled when it was empty."""

    async def write(self, drafts: Sequence[Draft], rows: Sequence[Row] = ()) -> None:
        """Commits frames and rows in one step of the notebook."""

    async def keep_blob(self, mime: str, encoding: str | None, data: bytes) -> str:
        """Stores bytes; returns their sha256."""


class Tool(Protocol):
    """One tool. Stateless: one object serves every turn.

    `risk`: what a policy goes by. `effect`: what happens after a crash between reservation and result: `pure` runs
    again; `keyed` is looked up, and runs again with its key when nothing is known of it; `once` is looked up, else told
    as unknown.
    """

    @property
    def name(self) -> str: ...

    @property
    def risk(self) -> Risk: ...

    @property
    def effect(self) -> EffectClass: ...

    @property
    def Arguments(self) -> type[BaseModel]:
        """The model of its arguments; its docstring is the tool's description for models."""

    async def describe(self, room: Room, arguments: Any) -> Description:
        """What the call would do. Reads, changes nothing. Raises `ToolFailed` when it cannot be done at all."""

    async def run(self, room: Room, key: str, arguments: Any, description: Description) -> Result:
        """Does it. `key` names the effect. Raises `ToolFailed`."""

    async def look_up(self, room: Room, key: str, arguments: Any) -> Result | None:
        """For `keyed` and `once`: how the call of this key ended, after a crash; null when nothing is known of it."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as models see it: `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of what the model says, as it comes."""

    text: str
    thinking: bool = False


@dataclass(frozen=True, slots=True)
class Search:
    """A search that the provider made."""

    query: str
    sources: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one reply. `input` counts all that was read, `cached` of it from the provider's cache, `written` into
    it. `cost` in dollars; null where no price is known."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    cost: float | None = None

    @property
    def tokens(self) -> int:
        return self.input + self.output


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished reply: calls to make in order; none: it was the final answer. `state` is what the model's protocol
    needs back in the next round (stored as it is). `unfinished`: without calls, and yet not the final answer."""

    calls: Sequence[Call] = ()
    state: dict[str, Any] = field(default_factory=dict)
    usage: Usage | None = None
    unfinished: bool = False
    error: str | None = None  # the request cannot be carried out: told, and the turn ends
    error_step: int | None = None
    error_line: int | None = None
    error_settings: bool = False  # the way out leads over the page of settings


@dataclass(frozen=True, slots=True)
class Exchange:
    """One finished round: the model's reply, and the result of each of its calls by call id."""

    round: int
    reply: Mapping[str, Any]  # as stored: {"calls": […], "state": …}
    results: Mapping[str, Result]
    messages: Sequence[str] = ()  # what people said after it, and what Nightbook itself had to tell
    pictures: Sequence[Picture] = ()  # that came with those messages


@dataclass(frozen=True, slots=True)
class Conversation:
    """All a model needs for its next reply. `request` is the cell's source, `context` what the cells above show."""

    request: str
    context: str
    exchanges: Sequence[Exchange]
    messages: Sequence[str] = ()  # what people said before the first exchange
    start_step: int | None = None  # a person said to go on at this step, and nothing was replied since
    summary: str | None = None  # what became of exchanges that are not shown any more
    said: Sequence[str] = ()  # what people said in those
    attached: str = ""  # what the request names, foreign content in it marked as data
    pictures: Sequence[Picture] = ()  # with the request
    blobs: Mapping[str, bytes] = field(default_factory=dict)  # of pictures, by sha256; what is missing is only named


class Model(Protocol):
    """Something that replies. `reply` streams `Thought` and `Search`, and ends with one `Reply`; it raises
    `ModelFailed`. `name` is what it is chosen by."""

    @property
    def name(self) -> str: ...

    def reply(self, conversation: Conversation, tools: Sequence[ToolSpec]) -> Any:
        """An async iterator of `Thought`, `Search` and, last, one `Reply`."""


def spec(tool: Tool) -> ToolSpec:
    """A tool as a model is told of it."""
    return ToolSpec(tool.name, (tool.Arguments.__doc__ or "").strip(), tool.Arguments.model_json_schema())
