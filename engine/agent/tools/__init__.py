"""The tools that turns have, by name. Stateless: one object serves every turn; none knows of any viewer."""

from __future__ import annotations

from engine.agent.calls import Tool
from engine.agent.tools.code import Python, Shell
from engine.agent.tools.telling import AskPerson, Check, Deliver, Progress, Wait

TOOLS: dict[str, Tool] = {
    tool.name: tool for tool in (Shell(), Python(), Progress(), Check(), AskPerson(), Deliver(), Wait())
}
