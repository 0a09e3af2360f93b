"""Why a machine was bought, what stands on it, and why it is kept or going."""

from collections.abc import Iterator
from dataclasses import dataclass

from fleet.cost.lost import lost_since_s, lost_work_usd
from fleet.disruption.outcomes import DisruptionVerdict
from fleet.explain.verdicts import verdicts
from fleet.scheduling.patience import ends_at_s
from fleet.snapshot import Claim, Gang, Node, Snapshot
from fleet.snapshot.lookups import claims_by_node, machines_held
from model.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Tenant:
    """A gang on a machine."""

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
class NodeView:
    """Everything about one machine at one instant."""

    claim: Claim
    node: Node | None
    buyer: str
    """The gang it was bought for, by name; its uid where it is gone; empty = for none."""
    tenants: tuple[Tenant, ...]
    foreign_pods: tuple[str, ...]
    """Pods of no gang, but not of a DaemonSet."""
    verdicts: tuple[DisruptionVerdict, ...]
    """Empty where no fleet was given."""


def claim_called(snapshot: Snapshot, name: str) -> Claim | None:
    """The claim of this name, or behind the node of this name; None for a machine nobody here bought."""
    return snapshot.claims.get(name) or claims_by_node(snapshot).get(name)


def node_view(snapshot: Snapshot, claim: Claim, fleet: Fleet | None = None) -> NodeView:
    """The view of a claim's machine; what methods say of it takes the fleet's declarations."""
    buyer = snapshot.gangs.get(claim.gang)
    pods = snapshot.node_pods.get(claim.node, ())
    return NodeView(
        claim,
        snapshot.nodes.get(claim.node),
        buyer.name if buyer else claim.gang,
        tuple(_tenants(snapshot, claim)),
        tuple(sorted(pod.key for pod in pods if not pod.workload)),
        verdicts(fleet, snapshot, claim) if fleet is not None else (),
    )


def _tenants(snapshot: Snapshot, claim: Claim) -> Iterator[Tenant]:
    now = snapshot.now_s
    gangs = machines_held(snapshot).get(claim.name, ())
    for gang in sorted(gangs, key=lambda gang: (-gang.effective_priority, gang.name, gang.uid)):
        pods = sum(pin.count for pin in gang.pins if pin.claim == claim.name)
        lost_s = max(0.0, now - lost_since_s(gang, now)) if gang.admitted_at_s else 0.0
        yield Tenant(gang, pods, lost_work_usd(gang, snapshot), lost_s, ends_at_s(gang, now))
