"""What the controllers of nodes share: keys are node names, and a fault or a recovery makes them look at every node."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from providers.sim.controllers.health import NodeHealth
from providers.sim.controllers.mirror import InformerCache, MirroredCluster
from providers.sim.controllers.objects import Obj, node_of
from providers.sim.controllers.runtime import Reconciler


class NodeReconciler(Reconciler[str]):
    """Looks at a node when it changes, when its time comes, and when the health of any node changes."""

    def __init__(self, cluster: MirroredCluster, health: NodeHealth) -> None:
        super().__init__(cluster)
        self._health = health
        self._health_seen = health.version
        self._nodes = cluster.mirror("Node")
        self._nodes.watch(self._on_node)

    @abstractmethod
    def forget(self, node: Obj) -> None:
        """The node is gone: drop what is remembered about it."""

    def step(self, now: float) -> float | None:
        """Reconcile the nodes that are due."""
        if self._health_seen != self._health.version:
            self._health_seen = self._health.version
            for node in self._nodes:
                self._queue.add(node["metadata"]["name"])
        return super().step(now)

    def _on_node(self, old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            self._queue.add(new["metadata"]["name"])
        elif old is not None:
            self.forget(old)


def read_node_fault(
    body: Mapping[str, Any], values: Mapping[str, Callable[[object], bool]]
) -> tuple[str, str, bool | int | str]:
    """Returns (node, kind, value) of `{"node": "...", "hang": true}`, by what each kind may be.

    Raises ValueError with what there is where it is none.
    """
    kinds = [key for key in body if key != "node"]
    if not isinstance(body.get("node"), str) or len(kinds) != 1 or kinds[0] not in values:
        raise ValueError(f"give node and one of {', '.join(values)}, not {', '.join(body) or 'nothing'}")
    kind, value = kinds[0], body[kinds[0]]
    if not values[kind](value):
        raise ValueError(f"{kind} cannot be {value!r}")
    return body["node"], kind, value


def pods_by_node(cluster: MirroredCluster) -> InformerCache:
    """The mirror of pods, filed under `node` by the node they are bound to."""
    pods = cluster.mirror("Pod")
    pods.index("node", lambda pod: (node_of(pod),) if node_of(pod) else ())
    return pods
