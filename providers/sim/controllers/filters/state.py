"""What filters look at and what they answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from providers.sim.controllers.dra.inventory import DeviceInventory
from providers.sim.controllers.dra.podclaims import serves_devices
from providers.sim.controllers.filters.bound_pods import BoundPods
from providers.sim.controllers.filters.volumes import VolumeObjects
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import Obj, labels_of
from providers.sim.controllers.occupancy import Occupancy
from providers.sim.controllers.scheduling import SchedulableNode


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """Why a node is not for a pod; `final` when evicting others from it would not help."""

    reasons: tuple[str, ...]
    final: bool = True


class UnschedulablePodError(Exception):
    """No node will do, whatever the nodes are (PreFilter); the text is kube-scheduler's."""


class SchedulingState:
    """The cluster as filters see it: nodes, what is taken on them, who stands there, volumes, namespaces."""

    def __init__(self, cluster: MirroredCluster) -> None:
        self.nodes: dict[str, SchedulableNode] = {}
        self.occupancy = Occupancy()
        self.bound = BoundPods()
        self.volumes = VolumeObjects.of(cluster)
        self.namespaces = cluster.mirror("Namespace")
        self.devices = DeviceInventory(cluster) if serves_devices(cluster) else None
        """None where the release has no claims of devices."""

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """The labels of a namespace; none where it does not exist."""
        return labels_of(self.namespaces.get(("", name)) or {"metadata": {}})


NodeCheck = Callable[[SchedulableNode], NodeRefusal | None]
Filter = Callable[[Obj, SchedulingState], NodeCheck | None]
"""What a plugin prepares for one pod: None where it has nothing to say. UnschedulablePodError where no node will do."""
