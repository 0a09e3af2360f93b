"""What a node that nobody here bought could be adopted as, as far as the cluster shows: it does not show EC2's tags."""

from typing import NamedTuple, cast

from fleet.nodeclaims.adoption_checks import AdoptionPass
from fleet.reasons import Refusal
from fleet.snapshot import Instance, Node, Snapshot
from model import labels
from model.fleet import Fleet
from model.kinds import CapacityType, NodePool


class Prospect(NamedTuple):
    """A pool, and what stands against it that the node joins it; None = nothing that the cluster shows."""

    pool: str
    refusal: Refusal | None


def prospects_of(fleet: Fleet, snapshot: Snapshot, node: Node) -> tuple[Prospect, ...]:
    """Every declared pool, by name; empty for a node that is no EC2 instance."""
    if not node.instance_id:
        return ()
    return tuple(_prospect(fleet, snapshot, node, pool) for _, pool in sorted(fleet.node_pools.items()))


def _prospect(fleet: Fleet, snapshot: Snapshot, node: Node, pool: NodePool) -> Prospect:
    asked = Instance(
        id=node.instance_id,
        instance_type=node.labels.get(labels.INSTANCE_TYPE, ""),
        zone=node.labels.get(labels.ZONE, ""),
        capacity_type=cast("CapacityType", node.labels.get(labels.CAPACITY_TYPE, "on-demand")),
        state="running",
        launched_at_s=node.created_at_s,
        tags={labels.ADOPT: f"{snapshot.cluster}/{pool.name}"},
        placement_group=pool.spec.placement.group,
    )
    verdict = AdoptionPass(fleet, snapshot).judge(asked)
    return Prospect(pool.name, verdict if isinstance(verdict, Refusal) else None)
