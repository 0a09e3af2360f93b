"""Cost allocation: teams pay for machines by the share that their gangs take of them, and their pods of no gang.

A machine's price is split over its GPUs (its CPUs where it has none); what nobody takes goes to `IDLE` instead
of a team. Amounts are integers of micro-USD and add up to the bill exactly.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fleet.mig.layouts import is_gpu_resource
from fleet.snapshot import CapacityPool, Claim, Gang, Instance, InstanceOffer, Snapshot
from fleet.snapshot.lookups import tenants
from model.index import Index, derived
from model.quantity import CPU

IDLE = "(idle)"
MICRO = 1_000_000
_Queue = tuple[str, str]
"""(namespace, name of the queue) as a job says it; the name is empty for pods of no gang."""
_Use = tuple[float, tuple[tuple[_Queue, float], ...]]
"""(USD an hour, shares by the queue that its tenants name) of a machine."""


@dataclass(frozen=True, slots=True)
class Bill:
    """An amount in micro-USD, by team and in all; `sum(by_team.values()) == total` always."""

    total: int = 0
    by_team: Mapping[str, int] = field(default_factory=dict)

    def plus(self, other: "Bill") -> "Bill":
        """Returns the sum of both bills."""
        teams = sorted({*self.by_team, *other.by_team})
        summed = {team: self.by_team.get(team, 0) + other.by_team.get(team, 0) for team in teams}
        return Bill(self.total + other.total, summed)


def allocate(payer: Callable[[str, str], str | None], snapshot: Snapshot, seconds: float) -> Bill:
    """Returns the bill for `seconds` of all machines that are launched and not gone yet.

    Spot machines cost what spot costs now, where that is known (EC2 user guide, "Spot Instance pricing"): not what they
    cost when they were launched.
    `payer` returns the team that pays for work, from its namespace and queue; None = no team, which is `IDLE`.
    """
    held, spot = tenants(snapshot), _spot_prices(snapshot.index, snapshot.catalog.offers)
    by_team: dict[str, int] = {}
    young = _launched_since(snapshot, seconds)
    for (price_usd_h, shares), count in _uses(snapshot.index, snapshot.claims, snapshot.instances, held, spot).items():
        for team, amount in _machine(price_usd_h, _paid_by(payer, shares), seconds).items():
            by_team[team] = by_team.get(team, 0) + amount * count
    for claim in young:  # its part of this time begins with its launch
        price_usd_h, shares = (
            spot.get(claim.capacity_pool, claim.charged_usd_h),
            _shares(claim, held.get(claim.name, ())),
        )
        paid = _paid_by(payer, shares)
        for team, amount in _machine(price_usd_h, paid, seconds).items():
            by_team[team] -= amount
        for team, amount in _machine(price_usd_h, paid, snapshot.now_s - claim.launched_at_s).items():
            by_team[team] = by_team.get(team, 0) + amount
    by_team = {team: amount for team, amount in by_team.items() if amount}
    return Bill(sum(by_team.values()), dict(sorted(by_team.items())))


def _launched_since(snapshot: Snapshot, seconds: float) -> list[Claim]:
    """Returns the machines that are billed and were launched within the last seconds."""
    since_s, found = snapshot.now_s - seconds, []
    for claim in snapshot.claims.values():
        instance = snapshot.instances.get(claim.instance_id)
        if since_s < claim.launched_at_s <= snapshot.now_s and not (instance and instance.gone):
            found.append(claim)
    return found


@derived(1)
def _uses(
    _index: Index,
    claims: Mapping[str, Claim],
    instances: Mapping[str, Instance],
    held: Mapping[str, Sequence[Gang]],
    spot: Mapping[CapacityPool, float],
) -> Mapping[_Use, int]:
    """Returns how many machines there are of each price and division among queues."""
    uses: Counter[_Use] = Counter()
    for name, claim in claims.items():
        instance = instances.get(claim.instance_id)
        if claim.launched_at_s and not (instance and instance.gone):
            uses[spot.get(claim.capacity_pool, claim.charged_usd_h), _shares(claim, held.get(name, ()))] += 1
    return uses


@derived()
def _spot_prices(_index: Index, offers: tuple[InstanceOffer, ...]) -> Mapping[CapacityPool, float]:
    """Returns what a machine of each spot capacity pool costs (USD an hour)."""
    return {offer.pool_key: offer.price_usd_h for offer in offers if offer.capacity_type == "spot"}


def _shares(claim: Claim, gangs: Sequence[Gang]) -> tuple[tuple[_Queue, float], ...]:
    """Returns (queue, the part of the machine that its gangs take) in order of queue."""
    shares: dict[_Queue, float] = {}
    for gang in gangs:
        queue = gang.namespace, gang.queue
        shares[queue] = shares.get(queue, 0.0) + share_of(claim, gang)
    return tuple(sorted(shares.items()))


def _paid_by(
    payer: Callable[[str, str], str | None], shares: tuple[tuple[_Queue, float], ...]
) -> tuple[tuple[str, float], ...]:
    """Returns (team, the part of the machine that it pays for) in order of team."""
    paid: dict[str, float] = {}
    for (namespace, queue), share in shares:
        team = payer(namespace, queue) or IDLE
        paid[team] = paid.get(team, 0.0) + share
    return tuple(sorted(paid.items()))


def _machine(price_usd_h: float, shares: tuple[tuple[str, float], ...], seconds: float) -> Mapping[str, int]:
    """Returns what each team pays for one machine (micro-USD); together its price."""
    price = round(price_usd_h * MICRO * seconds / 3600)
    scale = max(1.0, sum(share for _, share in shares))
    paid = {team: int(price * share / scale) for team, share in shares}
    paid[IDLE] = paid.get(IDLE, 0) + price - sum(paid.values())
    return {team: amount for team, amount in paid.items() if amount}


def share_of(claim: Claim, gang: Gang) -> float:
    """Returns the part of a machine a gang takes, 0 to 1: of its GPU resources, or of its CPUs where it has no GPU."""
    measured = {name for name, amount in claim.resources.items() if amount and is_gpu_resource(name)} or {CPU}
    whole = sum(claim.resources.get(name, 0) for name in measured)
    taken = 0
    for pin in gang.pins:
        if pin.claim == claim.name:
            requests = gang.pod_set(pin.pod_set).requests
            taken += pin.count * sum(requests.get(name, 0) for name in measured)
    return min(1.0, taken / whole) if whole else 0.0


def gang_usd_h(gang: Gang, snapshot: Snapshot) -> float:
    """Returns what the machines of a gang cost it an hour (USD), by its share of each."""
    if not gang.holds_capacity:
        return 0.0
    claims = (snapshot.claims.get(name) for name in sorted({pin.claim for pin in gang.pins}))
    return sum(claim.charged_usd_h * share_of(claim, gang) for claim in claims if claim is not None)


def month_forecast_usd(spent_usd: float, usd_h: float, now_s: float) -> float:
    """Returns what a calendar month (UTC) comes to (USD) if the rate stays as it is now until its end."""
    now = datetime.fromtimestamp(now_s, UTC)
    following = datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC)
    return spent_usd + usd_h * (following - now).total_seconds() / 3600
