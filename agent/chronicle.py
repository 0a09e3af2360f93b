"""The log of decisions: every change of a gang or a machine, with revision, gang and claim as fields."""

import structlog

from agent.journal import entries
from agent.mirror import Mirror
from agent.sync import Sync
from agent.watch import Watcher
from fleet.actions import Action

log = structlog.get_logger("muster")


class Chronicler(Watcher):
    """Writes to the log what the journal writes to its file."""

    def __init__(self, sync: Sync) -> None:
        self._sync = sync

    def acting(self, action: Action, mirror: Mirror, now_s: float) -> None:
        """A decision is about to be carried out."""
        for entry in entries(action, mirror):
            fields = {name: value for name, value in entry.items() if name != "event"}
            log.info(entry["event"], revision=self._sync.state.applied, **fields)
