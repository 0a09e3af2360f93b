"""Who pays for a stretch of machine time: the teams whose gangs stand on a machine by the share they take of it.

A machine's price is split over its GPUs (its CPUs where it has none); what no gang takes is idle and goes to nobody's
team but `IDLE`. Amounts are integers of micro-USD and add up to the bill exactly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fleet.capacity.stock import holders, machines_held
from fleet.mig.layouts import is_gpu_resource
from fleet.snapshot import Claim, Gang, Snapshot
from model.fleet import Fleet
from model.quantity import CPU

IDLE = "(idle)"
MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Bill:
    """Micro-USD by team, and in all. `sum(by_team.values()) == total` always."""

    total: int = 0
    by_team: Mapping[str, int] = field(default_factory=dict)

    def plus(self, other: "Bill") -> "Bill":
        """Both together."""
        teams = sorted({*self.by_team, *other.by_team})
        summed = {team: self.by_team.get(team, 0) + other.by_team.get(team, 0) for team in teams}
        return Bill(self.total + other.total, summed)


def allocate(fleet: Fleet, snapshot: Snapshot, seconds: float) -> Bill:
    """The bill for `seconds` of the world as it is: every launched machine that is not gone yet."""
    held = machines_held(holders(snapshot))
    by_team: dict[str, int] = {}
    for name, claim in snapshot.claims.items():
        instance = snapshot.instances.get(claim.instance_id)
        if claim.launched_at_s and not (instance and instance.gone):
            for team, amount in _machine(fleet, claim, held.get(name, ()), seconds).items():
                by_team[team] = by_team.get(team, 0) + amount
    return Bill(sum(by_team.values()), dict(sorted(by_team.items())))


def _machine(fleet: Fleet, claim: Claim, gangs: Sequence[Gang], seconds: float) -> Mapping[str, int]:
    """What each team pays for one machine; together its price."""
    price = round(claim.price_usd_h * MICRO * seconds / 3600)
    if not gangs:
        return {IDLE: price} if price else {}
    shares: dict[str, float] = {}
    for gang in gangs:
        queue = fleet.queues.get(gang.queue)
        team = queue.spec.team if queue else IDLE
        shares[team] = shares.get(team, 0.0) + share_of(claim, gang)
    scale = max(1.0, sum(shares.values()))
    paid = {team: int(price * share / scale) for team, share in sorted(shares.items())}
    paid[IDLE] = paid.get(IDLE, 0) + price - sum(paid.values())
    return {team: amount for team, amount in paid.items() if amount}


def share_of(claim: Claim, gang: Gang) -> float:
    """The part of a machine a gang takes, 0 to 1: of its GPU resources, or of its CPUs where it has no GPU."""
    measured = {name for name, amount in claim.resources.items() if amount and is_gpu_resource(name)} or {CPU}
    whole = sum(claim.resources.get(name, 0) for name in measured)
    taken = 0
    for pin in gang.pins:
        if pin.claim == claim.name:
            requests = gang.pod_set(pin.pod_set).requests
            taken += pin.count * sum(requests.get(name, 0) for name in measured)
    return min(1.0, taken / whole) if whole else 0.0
