"""Where a gang waits: a Queue of ours, or a ClusterQueue of Kueue behind a LocalQueue, under one set of names."""

from dataclasses import dataclass

from fleet.snapshot.memo import remembered
from model.fleet import Fleet
from model.kinds import Team
from model.upstream import ClusterQueue
from model.upstream.selectors import LabelSelector
from model.upstream.volcano import ROOT


@dataclass(frozen=True, slots=True)
class QueueBinding:
    """A queue as the rest of admission sees it; the quota engine knows it by `name`."""

    name: str
    stop_policy: str = "None"
    protected_run_s: float = 0.0
    reserve_after_s: float | None = None
    """How long its gangs wait before capacity is kept for them; None = as long as they say themselves."""
    team: Team | None = None
    """Whose quota it uses; None for a ClusterQueue, which has its own."""
    on_node_failure: str = "Replace"
    """What becomes of its gangs when they lose a node, unless they say it themselves; Kueue replaces it."""
    namespaces: LabelSelector | None = None
    """Namespaces whose work a ClusterQueue takes; None = none, or the team says."""

    @property
    def payer(self) -> str:
        """Whom the cost of its gangs is told to: the team, or the ClusterQueue itself."""
        return self.team.name if self.team is not None else self.name


def binding_of(fleet: Fleet, namespace: str, queue: str) -> QueueBinding | None:
    """The line behind the queue a job names: ours by its name, Kueue's by the LocalQueue of its namespace."""
    return _lines(fleet).get(("", queue)) or _lines(fleet).get((namespace, queue))


def payer_of(fleet: Fleet, namespace: str, queue: str) -> str | None:
    """Whose bill work of this queue is on; None for a queue that is not declared."""
    line = binding_of(fleet, namespace, queue)
    return line.payer if line is not None else None


def known_queues(fleet: Fleet, namespace: str) -> list[str]:
    """Names that jobs of a namespace may use."""
    return sorted(queue for of, queue in _lines(fleet) if of in {"", namespace})


@remembered()
def _lines(fleet: Fleet) -> dict[tuple[str, str], QueueBinding]:
    lines = {}
    for local in fleet.local_queues.values():
        behind = fleet.cluster_queues[local.spec.cluster_queue]
        lines[local.metadata.namespace, local.name] = _behind(behind, local.spec.stop_policy)
    parents = {queue.parent for queue in fleet.volcano_queues.values()}
    for name in fleet.volcano_queues.keys() - parents - {ROOT}:
        lines["", name] = QueueBinding(name, namespaces=LabelSelector())
    for queue in fleet.queues.values():
        spec = queue.spec
        lines["", queue.name] = QueueBinding(
            queue.name,
            spec.stop_policy,
            spec.protected_run_time,
            spec.reserve_after,
            fleet.teams[spec.team],
            spec.on_node_failure,
        )
    return lines


_STRICTEST = ("HoldAndDrain", "Hold", "None")


def _behind(queue: ClusterQueue, local_stop: str) -> QueueBinding:
    stops = {local_stop, queue.spec.stop_policy}
    return QueueBinding(
        queue.name,
        next(stop for stop in _STRICTEST if stop in stops),
        namespaces=queue.spec.namespace_selector,
    )
