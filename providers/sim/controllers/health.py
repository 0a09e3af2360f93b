"""The faults a node can be given, and since when; shared by the kubelet, the heartbeats and the node lifecycle."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from providers.clock import Clock


class NodeState(Enum):
    """What is wrong with a node."""

    WELL = "well"
    UNREADY = "unready"  # heartbeats arrive and say Ready=False; pods run on
    SILENT = "silent"  # pods run on, but nothing is heard of the node or of them
    DEAD = "dead"  # the machine stands still: containers are gone and nothing is heard

    @property
    def reports(self) -> bool:
        """Whether the API server hears of this node."""
        return self in (NodeState.WELL, NodeState.UNREADY)


@dataclass(frozen=True, slots=True)
class NodeFault:
    """A state, the instant it began (UTC epoch seconds) and what the kubelet says of it."""

    health: NodeState
    since: float
    why: str = ""


class NodeHealth:
    """The faults of all nodes by name; a node without an entry is well.

    `version` grows with every change, so that a controller sees cheaply that it has to look again. Faults may be given
    from any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._faults: dict[str, NodeFault] = {}
        self._deaths: dict[str, int] = {}
        self._listeners: list[Callable[[], None]] = []
        self.version = 0

    def of(self, node: str) -> NodeState:
        """The state of a node."""
        fault = self._faults.get(node)
        return NodeState.WELL if fault is None else fault.health

    def since(self, node: str) -> float | None:
        """When the present fault began; for a node that does not report, the time of its last heartbeat."""
        fault = self._faults.get(node)
        return None if fault is None else fault.since

    def deaths(self, node: str) -> int:
        """How often the node died so far; what ran on it when the number changed is lost."""
        return self._deaths.get(node, 0)

    def fail_node(self, node: str) -> None:
        """The machine dies: its containers end and it falls silent."""
        self._set(node, NodeState.DEAD)

    def stop_heartbeats(self, node: str) -> None:
        """The node is cut off: its containers run on and nobody hears of it."""
        self._set(node, NodeState.SILENT)

    def make_unready(self, node: str, why: str = "container runtime is down") -> None:
        """The kubelet says it is not ready."""
        self._set(node, NodeState.UNREADY, why)

    def why(self, node: str) -> str:
        """Why the kubelet says that it is not ready."""
        fault = self._faults.get(node)
        return "" if fault is None else fault.why

    def heal(self, node: str) -> None:
        """The node is back; what died on it stays dead."""
        if self._faults.pop(node, None) is not None:
            self._changed()

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` after every change (a `KernelThread.wake`)."""
        self._listeners.append(listener)

    def look_again(self) -> None:
        """Something else has happened to a node that the controllers of nodes cannot see in the store."""
        self._changed()

    def _set(self, node: str, health: NodeState, why: str = "") -> None:
        old = self._faults.get(node)
        if old is not None and (old.health, old.why) == (health, why):
            return
        if health is NodeState.DEAD and (old is None or old.health is not health):
            self._deaths[node] = self.deaths(node) + 1
        silent_already = old is not None and not old.health.reports and not health.reports
        since = old.since if old is not None and silent_already else self._clock.now()
        self._faults[node] = NodeFault(health, since, why)
        self._changed()

    def _changed(self) -> None:
        self.version += 1
        for listener in self._listeners:
            listener()
