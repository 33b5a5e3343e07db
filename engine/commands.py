"""Commands: what a member asks for. One row each, with an id that the asker made, so that asking twice is asking once.

Here a command is checked for its shape; whether it can be applied is the engine's decision, told as a `refused` frame.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, RootModel, StringConstraints, ValidationError

from engine.frames import CellKind, Policy

SOURCE_LIMIT = 512 * 1024  # bytes of UTF-8
TITLE_LIMIT = 300  # characters
INPUT_LIMIT = 64 * 1024  # characters
SAID_LIMIT = 20_000  # characters of one message to a turn

Id = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.:-]+$")]
Title = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=TITLE_LIMIT)]


Said = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=SAID_LIMIT)]


class CommandBase(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: Id = Field(description="Made by the caller, unique in the notebook: the same id asks for the same thing once")


class AddCell(CommandBase):
    """A new cell behind `after` (null: first; left out: last). `cell_id` may be chosen by the caller."""

    kind: Literal["add_cell"]
    cell_kind: CellKind = "python"
    source: str = ""
    after: Id | None = "end"
    cell_id: Id | None = None


class EditCell(CommandBase):
    """A splice on version `base` (`at`, `remove` code points, `insert`), or the whole `source` in its place.

    `cell_kind` changes the kind of the cell.
    """

    kind: Literal["edit_cell"]
    cell_id: Id
    base: int | None = None
    at: int | None = Field(default=None, ge=0)
    remove: int = Field(default=0, ge=0)
    insert: str = ""
    source: str | None = None
    cell_kind: CellKind | None = None


class MoveCell(CommandBase):
    """Puts a cell behind `after` (null: first)."""

    kind: Literal["move_cell"]
    cell_id: Id
    after: Id | None = None


class SplitCell(CommandBase):
    """Makes two cells of one at code point `at` of version `base`; a line end at the cut goes.

    The second part becomes cell `into`: a new one, or one that was merged into this cell and now comes back.
    """

    kind: Literal["split_cell"]
    cell_id: Id
    base: int
    at: int = Field(ge=0)
    into: Id | None = None


class MergeCells(CommandBase):
    """Puts the text of cell `other` behind that of `cell_id`, with `joint` between, and takes `other` out."""

    kind: Literal["merge_cells"]
    cell_id: Id
    other: Id
    joint: Literal["\n", ""] = "\n"


class Collapse(CommandBase):
    """Folds the source or the output of a cell away, or shows it (false), for everybody; null leaves it as it is."""

    kind: Literal["collapse"]
    cell_id: Id
    source: bool | None = None
    output: bool | None = None


class DeleteCell(CommandBase):
    """Takes a cell out. A run of it is stopped first. `restore_cell` brings it back."""

    kind: Literal["delete_cell"]
    cell_id: Id


class RestoreCell(CommandBase):
    """Brings a deleted cell back to where it stood."""

    kind: Literal["restore_cell"]
    cell_id: Id


class RunCell(CommandBase):
    """Runs a cell after those asked for before; turns of agents have a line of their own, so that one runs at a time
    while people run other cells. `run_id` may be chosen by the caller."""

    kind: Literal["run_cell"]
    cell_id: Id
    run_id: Id | None = None


class RunAll(CommandBase):
    """Runs every cell that can run, in order; the first error cancels the rest.

    `since` and `until` are the first and the last of them.
    """

    kind: Literal["run_all"]
    since: Id | None = None
    until: Id | None = None


class Stop(CommandBase):
    """Stops a run (`run_id`), the run of a cell (`cell_id`), or all. Stopping what runs drops what is queued behind."""

    kind: Literal["stop"]
    run_id: Id | None = None
    cell_id: Id | None = None


class Input(CommandBase):
    """A line for the program of a run; `input` names the question it answers, null for a terminal."""

    kind: Literal["input"]
    run_id: Id
    input: Id | None = None
    text: Annotated[str, Field(max_length=INPUT_LIMIT)]


class FollowUp(CommandBase):
    """Says something to the turn of an agent cell. While it runs, the message (named by this command's id) waits for
    the next round; after its end it continues the conversation as a new run (`run_id` may be chosen by the caller)."""

    kind: Literal["follow_up"]
    cell_id: Id
    text: Said
    run_id: Id | None = None


class AnswerTurn(CommandBase):
    """Answers the question with which the turn of an agent cell ended: it goes on as a new run."""

    kind: Literal["answer_turn"]
    cell_id: Id
    text: Said
    run_id: Id | None = None


class Withdraw(CommandBase):
    """Takes back a message that no round has taken yet; `message` is the id of its `follow_up`."""

    kind: Literal["withdraw"]
    message: Id


class GoOn(CommandBase):
    """Goes on with a turn that ended at a step. A step that was denied is approved by this, once, as it was asked."""

    kind: Literal["go_on"]
    cell_id: Id
    run_id: Id | None = None


class SetPolicy(CommandBase):
    """What agents may do unasked: `ask` (reads only), `edits` (files too) or `all`. Decides no pending ask."""

    kind: Literal["set_policy"]
    policy: Policy


class SetModel(CommandBase):
    """Which model replies to the notebook's turns from their next run on, as `anthropic:NAME`; empty: the team's."""

    kind: Literal["set_model"]
    model: Annotated[str, StringConstraints(strip_whitespace=True, max_length=TITLE_LIMIT)]


class RemoveRule(CommandBase):
    """Takes a rule back that an approval of "this kind" had made."""

    kind: Literal["remove_rule"]
    rule: Id


class Check(CommandBase):
    """Ticks an item of the checklist, adds a new one, or takes the tick away."""

    kind: Literal["check"]
    item: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=TITLE_LIMIT)]
    done: bool = True


class PutFile(CommandBase):
    """Puts bytes that were stored before (by an upload) into the notebook's folder, as a new version of a file."""

    kind: Literal["put_file"]
    path: Annotated[str, Field(min_length=1, max_length=1024)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class AddServer(CommandBase):
    """A tool server for the agents of this notebook: a program (`command`, its words) in the sandbox, or an address
    (`url`). Nothing secret: a server that needs a key belongs into the team's setting. It is looked at, at once."""

    kind: Literal["add_server"]
    server: Annotated[str, Field(min_length=1, max_length=60)]
    command: Annotated[list[Annotated[str, Field(max_length=4000)]], Field(max_length=64)] | None = None
    url: Annotated[str, Field(max_length=2000)] | None = None


class RemoveServer(CommandBase):
    """Takes a tool server out of the notebook; one of the team is turned off here."""

    kind: Literal["remove_server"]
    server: Annotated[str, Field(min_length=1, max_length=60)]


class LookAtServer(CommandBase):
    """Connects to a tool server and lists its tools anew; one of the team that was turned off is turned on."""

    kind: Literal["look_at_server"]
    server: Annotated[str, Field(min_length=1, max_length=60)]


class RestartKernel(CommandBase):
    """A new kernel: variables gone, running code stopped, that of turns too; the turns themselves go on.

    With `run_all` every code cell is run in the new kernel.
    """

    kind: Literal["restart_kernel"]
    run_all: bool = False


class Rename(CommandBase):
    kind: Literal["rename"]
    title: Title


class Archive(CommandBase):
    """Puts the notebook out of sight, or back (`archived` false). Nothing is lost."""

    kind: Literal["archive"]
    archived: bool = True


class Comment(CommandBase):
    kind: Literal["comment"]
    text: Annotated[str, Field(min_length=1, max_length=10_000)]
    cell_id: Id | None = None


Command = Annotated[
    AddCell
    | EditCell
    | MoveCell
    | SplitCell
    | MergeCells
    | Collapse
    | DeleteCell
    | RestoreCell
    | RunCell
    | RunAll
    | Stop
    | Input
    | FollowUp
    | AnswerTurn
    | Withdraw
    | GoOn
    | SetPolicy
    | SetModel
    | RemoveRule
    | Check
    | PutFile
    | AddServer
    | RemoveServer
    | LookAtServer
    | RestartKernel
    | Rename
    | Archive
    | Comment,
    Field(discriminator="kind"),
]


class CommandModel(RootModel[Command]):
    """Any command, told apart by `kind`."""


Model = TypeVar("Model", bound=BaseModel)


class Invalid(Exception):
    """The command is malformed. `errors` names each field and what was expected."""

    def __init__(self, message: str, errors: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.errors = errors or []


class TooLarge(Exception):
    """A source over `SOURCE_LIMIT`."""


def validate(model: type[Model], value: Any) -> Model:
    """`value` (decoded JSON) as `model`. Raises `Invalid`, which names the fields."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise Invalid(*explain(error)) from None


def parse(value: Any) -> Command:
    """The command in `value` (decoded JSON). Raises `Invalid`, which names the fields, or `TooLarge`."""
    command = validate(CommandModel, value).root
    for text in (getattr(command, "source", None), getattr(command, "insert", None)):
        if isinstance(text, str):
            check_source(text)
    return command


def cells_named(command: Command) -> list[str]:
    """The cells that a command is about, and which must therefore exist. Where to put one is not among them."""
    if isinstance(command, AddCell):
        return []
    named = [getattr(command, "cell_id", None), getattr(command, "since", None), getattr(command, "until", None)]
    named.append(getattr(command, "other", None))
    return [cell_id for cell_id in named if cell_id is not None]


def new_run(command: Command) -> str | None:
    """The id that the caller chose for the run which the command begins, where there is one."""
    return command.run_id if isinstance(command, RunCell | FollowUp | AnswerTurn | GoOn) else None


def check_source(text: str) -> None:
    """Raises `TooLarge` for a source of more than `SOURCE_LIMIT` bytes."""
    if len(text.encode("utf-8", "surrogatepass")) > SOURCE_LIMIT:
        raise TooLarge(
            f"a cell holds at most {SOURCE_LIMIT // 1024} KiB of source; put the rest in a file or a second cell"
        )


def explain(error: ValidationError) -> tuple[str, list[dict[str, Any]]]:
    """One sentence for a person and one entry a field, without the values (they may be secret)."""
    errors = [
        {"field": ".".join(str(part) for part in item["loc"]) or "body", "message": item["msg"]}
        for item in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return "; ".join(f"{item['field']}: {item['message']}" for item in errors[:5]), errors
