"""The plugin `persistence`: the JSON Lines store, and every session kept with it (R4).

[plugins.persistence]
dir = ".checkrein"       # a relative path is taken from the workspace
sync = "normal"          # or "always": every gate waits for the disk, not only turn end and approvals
# owner = "nightly job"  # who to name when somebody else wants to write the same session
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from checkrein.errors import ConfigError
from checkrein.flushing import ALL_GATES, SYNCED_GATES, Flusher
from checkrein.hookspecs import hookimpl

from .jsonl import JsonlStore

if TYPE_CHECKING:
    from checkrein.harness import Harness
    from checkrein.store import Store

__all__ = ["Plugin"]

_SYNC = {"normal": SYNCED_GATES, "always": ALL_GATES}


class Plugin(Flusher):
    """Registers the store `jsonl`, and writes and syncs at the gates as every Flusher does.

    Raises:
        ConfigError: `sync` is neither `normal` nor `always`, or `dir` is empty.
    """

    class Config(Struct, frozen=True):
        """The table `[plugins.persistence]`.

        Attributes:
            dir: the folder that keeps sessions.
            sync: `normal` or `always`.
            owner: a name for this process in the owner record of a session.
        """

        dir: str = ".checkrein"
        sync: str = "normal"
        owner: str = ""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config = config or self.Config()
        if config.sync not in _SYNC:
            raise ConfigError(f'expected "normal" or "always", got {config.sync!r}', path="plugins.persistence.sync")
        if not config.dir:
            raise ConfigError("expected a folder, got an empty text", path="plugins.persistence.dir")
        super().__init__(_SYNC[config.sync])

    @hookimpl
    def register_stores(self, harness: Harness) -> list[Store]:
        """Offer the store `jsonl`."""
        folder = harness.workspace / Path(self.config.dir).expanduser()
        return [JsonlStore(folder, owner=self.config.owner)]
