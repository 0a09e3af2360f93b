"""How long a machine takes from its launch until pods may count on it: as long as its like have taken."""

from collections.abc import Mapping, Sequence
from statistics import median_high
from typing import Final

from fleet.snapshot import Claim, ClaimState, Snapshot
from fleet.snapshot.memo import remembered

BOOT_S: Final = 240.0
"""Where no machine of the pool is known to have come up: image, join, drivers and device plug-in of a GPU node."""


def boot_s(snapshot: Snapshot, node_pool: str, instance_type: str) -> float:
    """Seconds from launch to ready: the median of the pool's machines of this type, else of all the pool's."""
    known = _known(snapshot.claims)
    taken = known.get((node_pool, instance_type)) or known.get((node_pool, ""), ())
    return median_high(taken) if taken else BOOT_S


def ready_at_s(snapshot: Snapshot, claim: Claim) -> float:
    """When a machine on its way is expected to be ready (epoch seconds, not in the past).

    One that is being cut anew counts as one that boots: that too ends with a device plug-in.
    """
    now = snapshot.now_s
    begun_s = max(claim.launched_at_s, claim.recut_at_s) or now
    return max(now, begun_s + boot_s(snapshot, claim.node_pool, claim.capacity_pool.instance_type))


@remembered()
def _known(claims: Mapping[str, Claim]) -> Mapping[tuple[str, str], Sequence[float]]:
    """(pool, type) and (pool, "") -> what machines that are there have taken."""
    found: dict[tuple[str, str], list[float]] = {}
    for claim in claims.values():
        came = claim.state in {ClaimState.READY, ClaimState.TERMINATING} and claim.ready_at_s > claim.launched_at_s > 0
        if came and not claim.recut_at_s:  # a cut moves the instant at which it was ready
            for kind in (claim.capacity_pool.instance_type, ""):
                found.setdefault((claim.node_pool, kind), []).append(claim.ready_at_s - claim.launched_at_s)
    return found
