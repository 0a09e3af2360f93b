"""Why a machine was bought, what stands on it, why it is kept or going; and what a node that nobody bought could be."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, cast

from fleet.cost.lost_work import lost_since_s, lost_work_usd
from fleet.disruption.outcomes import DisruptionVerdict
from fleet.explain.verdicts import verdicts
from fleet.mig.layouts import departed, due_config
from fleet.nodeclaims.adoption_checks import AdoptionPass
from fleet.reasons import Refusal
from fleet.scheduling.queue_order import ends_at_s
from fleet.snapshot import Claim, Gang, Instance, Node, Snapshot
from fleet.snapshot.lookups import claims_by_node, machines_held
from model import labels
from model.fleet import Fleet
from model.kinds import CapacityType, NodePool


@dataclass(frozen=True, slots=True)
class GangOnMachine:
    """What stopping a gang on a machine would lose, and when it ends by itself."""

    gang: Gang
    pods: int
    """Of its pods, on this machine."""
    lost_usd: float
    """Machine time that would be wasted if it were stopped now, on all of its machines."""
    lost_s: float
    """How long ago that begins: its last checkpoint, or its start."""
    ends_s: float
    """When it will have ended (epoch seconds); inf = it does not say."""


@dataclass(frozen=True, slots=True)
class MachineView:
    """Everything that people ask about one machine, at one instant."""

    claim: Claim
    node: Node | None
    buyer: str
    """The gang it was bought for, by name, or that it is gone; empty = for none."""
    gangs: tuple[GangOnMachine, ...]
    foreign_pods: tuple[str, ...]
    """Pods of no gang, but not of a DaemonSet."""
    verdicts: tuple[DisruptionVerdict, ...]
    """Empty where no fleet was given."""
    departed: str = ""
    """How its GPUs are cut otherwise than its claim says, declared and real; empty where they are not."""


def claim_called(snapshot: Snapshot, name: str) -> Claim | None:
    """Returns the claim of this name, or behind the node of this name; None for a machine that nobody here bought."""
    owner = claims_by_node(snapshot).get(name) if name not in snapshot.claims else None
    return snapshot.claims.get(name if owner is None else owner.name)


def node_view(snapshot: Snapshot, claim: Claim, fleet: Fleet | None = None) -> MachineView:
    """Returns the view of a claim's machine; what methods say of it takes the fleet's declarations."""
    buyer = snapshot.gangs.get(claim.gang)
    pods = snapshot.node_pods.get(claim.node, ())
    return MachineView(
        claim,
        snapshot.nodes.get(claim.node),
        buyer.name if buyer else claim.gang and "a gang that is gone",
        tuple(_gangs_on(snapshot, claim)),
        tuple(sorted(pod.key for pod in pods if not pod.workload)),
        verdicts(fleet, snapshot, claim) if fleet is not None else (),
        _departed(snapshot, claim, fleet),
    )


def _departed(snapshot: Snapshot, claim: Claim, fleet: Fleet | None) -> str:
    node, pool = snapshot.nodes.get(claim.node), fleet.node_pools.get(claim.node_pool) if fleet is not None else None
    if node is None or not claim.ready_at_s or not (claim.layout or pool):
        return ""
    return departed(claim, node, due_config(pool, claim, snapshot.catalog.types))


def _gangs_on(snapshot: Snapshot, claim: Claim) -> Iterator[GangOnMachine]:
    now = snapshot.now_s
    gangs = machines_held(snapshot).get(claim.name, ())
    for gang in sorted(gangs, key=lambda gang: (-gang.effective_priority, gang.name, gang.uid)):
        pods = sum(pin.count for pin in gang.pins if pin.claim == claim.name)
        lost_s = max(0.0, now - lost_since_s(gang, now)) if gang.admitted_at_s else 0.0
        yield GangOnMachine(gang, pods, lost_work_usd(gang, snapshot), lost_s, ends_at_s(gang, now))


# -- a node that nobody here bought ------------------------------------------------------------------------------------


class PoolAdoption(NamedTuple):
    """What stands against a node joining a pool; None = nothing that the cluster shows."""

    pool: str
    refusal: Refusal | None


def adoptable_by(fleet: Fleet, snapshot: Snapshot, node: Node) -> tuple[PoolAdoption, ...]:
    """Returns what every declared pool, by name, has against it; empty for a node without a machine of the cloud.

    As far as the cluster shows: it does not show the tags of machines.
    """
    if not node.instance_id:
        return ()
    return tuple(_adoption(fleet, snapshot, node, pool) for _, pool in sorted(fleet.node_pools.items()))


def _adoption(fleet: Fleet, snapshot: Snapshot, node: Node, pool: NodePool) -> PoolAdoption:
    asked = Instance(
        id=node.instance_id,
        instance_type=node.labels.get(labels.INSTANCE_TYPE, ""),
        zone=node.labels.get(labels.ZONE, ""),
        capacity_type=cast("CapacityType", node.labels.get(labels.CAPACITY_TYPE, "on-demand")),
        state="running",
        launched_at_s=node.created_at_s,
        tags={labels.ADOPT: f"{snapshot.cluster}/{pool.name}"},
        placement_group=pool.spec.placement.group,
        provider_id=node.provider_id,
    )
    verdict = AdoptionPass(fleet, snapshot).judge(asked)
    return PoolAdoption(pool.name, verdict if isinstance(verdict, Refusal) else None)
