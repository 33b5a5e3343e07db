"""What a request or a message names, looked up: files as they are now, brought up to date in the durable copy first."""

from __future__ import annotations

import logging

from engine import workspace
from engine.agent.making import Host
from engine.agent.mentions import ROOM, Attached, attached, files_of
from engine.files import Cause, is_live
from engine.notebook import Run
from engine.store import turns as store

CHARACTERS = 1.3  # for each token of the window: about a third of it
log = logging.getLogger(__name__)


async def attach(host: Host, run: Run, text: str, window: int) -> Attached:
    """All that `text` names, for a model whose window has `window` tokens. Nothing in it can fail the turn."""
    for path in dict.fromkeys(files_of(text)):
        try:
            await host.files.keep_one(path, Cause())
        except (workspace.WorkspaceError, OSError) as error:  # then the last version that was kept is shown
            log.info("notebook %s: %s: %s", host.notebook.id, workspace.shown(path), error)
    known = [host.notebook.files.get(path) for path in files_of(text)]
    names = [file["sha256"] for file in known if file is not None and is_live(file)]
    contents = await host.query(store.beginnings, host.notebook.id, names) if names else {}
    made = attached(host.notebook, run.cell_id, text, contents, min(ROOM, int(window * CHARACTERS)))
    for picture in made.pictures:
        if picture.sha256 in made.inline:
            await host.keep_blob(picture.mime, None, made.inline[picture.sha256])
    return made
