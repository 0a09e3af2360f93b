"""What the last pass of all deciders saw, for threads beside the brain."""

from collections.abc import Callable
from typing import NamedTuple

from agent.sync import SyncState
from agent.watch import Watcher
from fleet.snapshot import Snapshot
from model.fleet import Fleet


class LastPass(NamedTuple):
    """What a request is planned in."""

    fleet: Fleet
    snapshot: Snapshot


class LatestWorld(Watcher):
    """Keeps what the last pass of all deciders saw: values, which another thread may look at.

    `wake` is called where a revision begins or ceases to wait for approval, or is done: the forge is asked, or told.
    """

    def __init__(self, state: Callable[[], SyncState], wake: Callable[[], None]) -> None:
        self.now: LastPass | None = None
        self._wake = wake
        self._state = state
        self._stood = ("", "", "")

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """A pass of all deciders is over."""
        self.now = LastPass(fleet, snapshot)
        state = self._state()
        stands = (state.attempted, state.outcome, state.convergence.phase.value if state.convergence else "")
        if stands != self._stood:
            self._stood = stands
            self._wake()
