"""Small worlds of racks and hosts, written as `"block/rack/host": GPUs`."""

from collections.abc import Mapping

from fleet.placement.topology import (
    Topologies,
    TopologyAssignment,
    TopologyFlavor,
    TopologyOptions,
    TopologyRequest,
    TopologyResult,
)
from fleet.snapshot import Node, PodSet
from model import labels
from model.quantity import Resources

GPU = "nvidia.com/gpu"
BLOCK, RACK, HOST = "example.com/block", "example.com/rack", labels.HOSTNAME
LEVELS = (BLOCK, RACK, HOST)
FLAVOR = "h100"


def host(path: str, free: int | Resources, *more: tuple[str, str], ready: bool = True) -> Node:
    """A node at `block/rack/host` (or fewer levels, from the right) with `free` GPUs, and `more` labels."""
    values = path.split("/")
    found = dict(zip(LEVELS[-len(values) :], values, strict=True)) | dict(more)
    amounts = {GPU: free, "pods": 100} if isinstance(free, int) else free
    return Node(values[-1], values[-1], "", found, (), amounts, ready=ready, unschedulable=False, created_at_s=0.0)


def flavor(levels: tuple[str, ...] = LEVELS, name: str = FLAVOR) -> TopologyFlavor:
    """A flavor over all nodes."""
    return TopologyFlavor(name, levels)


def world(free: Mapping[str, int], options: TopologyOptions | None = None) -> Topologies:
    """One flavor over these hosts; the levels are as many as the paths have parts."""
    depth = next(iter(free), "a/b/c").count("/") + 1
    return Topologies([host(path, gpus) for path, gpus in free.items()], {}, [flavor(LEVELS[-depth:])], options)


def pods(count: int, gpus: int = 1, name: str = "main", **wish: object) -> PodSet:
    """`count` pods of `gpus` GPUs each."""
    return PodSet(name, count, {GPU: gpus}, **wish)  # type: ignore[arg-type]


def find(topologies: Topologies, *pod_sets: PodSet, empty: bool = False) -> TopologyResult:
    """Places in the one flavor there is."""
    return topologies.find([TopologyRequest(pod_set, FLAVOR) for pod_set in pod_sets], empty=empty)


def on_hosts(placement: TopologyAssignment | None) -> dict[str, int]:
    """Host -> pods."""
    return {} if placement is None else {values[-1]: count for values, count in placement.domains.items()}


def placed(outcome: TopologyResult) -> dict[str, dict[str, int]]:
    """Pod set -> host -> pods."""
    return {placement.pod_set: on_hosts(placement) for placement in outcome.assignments}
