"""The tools that turns have, by name. Stateless: one object serves every turn; none knows of any viewer."""

from __future__ import annotations

from engine.agent.calls import Tool
from engine.agent.tools.cells import AddCell, RunCell
from engine.agent.tools.code import Python, Shell
from engine.agent.tools.fetching import Fetch, Send
from engine.agent.tools.reading import ListFiles, ReadFile, SearchFiles
from engine.agent.tools.telling import AskPerson, Check, Deliver, Progress, Wait
from engine.agent.tools.writing import EditFile, WriteFile

_ALL: tuple[Tool, ...] = (
    Shell(),
    Python(),
    ReadFile(),
    WriteFile(),
    EditFile(),
    ListFiles(),
    SearchFiles(),
    Fetch(),
    Send(),
    AddCell(),
    RunCell(),
    Check(),
    Progress(),
    AskPerson(),
    Deliver(),
    Wait(),
)
TOOLS: dict[str, Tool] = {tool.name: tool for tool in _ALL}
