"""How long a machine of a capacity type that its pool did not prefer stays at least."""

from collections.abc import Sequence

from fleet.snapshot import Claim
from model.kinds import CapacityType, NodePool


def preferred_to(pool: NodePool, claim: Claim) -> Sequence[CapacityType]:
    """The capacity types that the pool prefers to the machine's, in order; none for one that it does not declare."""
    order, held = pool.spec.capacity_types, claim.capacity_pool.capacity_type
    return order[: order.index(held)] if held in order else ()


def stays_until_s(pool: NodePool, claim: Claim) -> float:
    """Until when it is not replaced for what it costs or is (epoch seconds); 0 where the pool has no such policy."""
    policy = pool.spec.disruption.return_to_preferred
    return claim.ready_at_s + policy.after if policy is not None and preferred_to(pool, claim) else 0.0
