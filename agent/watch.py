"""Watchers: whoever is told what the brain does and may not change it (journal, metrics, announcements, books)."""

from collections.abc import Callable

from agent.failures import SetAside
from agent.inbox import Done, Failed
from agent.mirror import Mirror
from agent.refused_writes import RefusedWrite
from fleet.actions import Action, Announce
from fleet.snapshot import Snapshot
from model.fleet import Fleet


class Watcher:
    """A watcher is told what the brain does; each method does nothing unless a subclass overrides it."""

    def acting(self, action: Action, mirror: Mirror, now_s: float) -> None:
        """An action is about to be carried out; the mirror still shows the world before it."""

    def ended(self, event: Done | Failed, now_s: float) -> None:
        """An action is through or has failed."""

    def stumbled(self, found: SetAside, snapshot: Snapshot) -> None:
        """A decider has failed on a subject, which it leaves alone for a while."""

    def write_refused(self, write: RefusedWrite, snapshot: Snapshot) -> None:
        """The API keeps refusing a write, for this reason from now on."""

    def told(self, event: Announce, now_s: float) -> None:
        """A change of the FleetSync is announced."""

    def turning(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """A pass of all deciders begins: the world as it was found."""

    def turned(self, fleet: Fleet, snapshot: Snapshot) -> None:
        """A pass of all deciders is over."""


class OnceDone:
    """Keeps what there is to say of an action until that is through: of one that has failed nothing is said.

    It is decided anew and then said once, where an announcement before the write came again with every try.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[Action, Callable[[], None]]] = {}

    def keep(self, action: Action, say: Callable[[], None]) -> None:
        """Say it when the action is done."""
        self._waiting[id(action)] = action, say

    def ended(self, event: Done | Failed) -> None:
        """Say what was kept for the action, or drop it."""
        _, say = self._waiting.pop(id(event.action), (None, None))
        if say is not None and isinstance(event, Done):
            say()
