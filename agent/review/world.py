"""What a review reads beside the forge: what the last pass of all deciders saw, and the commits that are proposed."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from agent.sync import SyncState
from agent.watch import Watcher
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from providers.git.files import Files


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


class ProposedCommits(Protocol):
    """The fleet repository, for commits that are not in force: fetched and read by a bounded child, never run."""

    def fetch_ref(self, name: str) -> str:
        """Fetches a ref by full name and returns its commit. Errors: SourceError."""
        ...

    def merged_files(self, base_oid: str, head_oid: str) -> Files:
        """Returns the files after merging a commit into another, by path from the repository's root.

        Errors: MergeConflict and other SourceErrors.
        """
        ...
