"""Answers for capacity reservations: which a pool may use, what a machine costs, how many are left, until when.

Sources: EC2 User Guide, "Capacity Reservations" and "Capacity Blocks for ML"; Karpenter's rules for reserved offers
(`pkg/providers/instancetype/offering`, `reservationmanager.go`, `pkg/controllers/nodeclaim/capacityreservation`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING

from fleet.catalog import InstanceOffer, Reservation
from model import labels
from model.index import Index, derived
from model.kinds import CapacityType, NodePool, ReservationTerm

if TYPE_CHECKING:  # fleets are checked against what is sold without what is observed
    from fleet.snapshot import Claim, Snapshot

RESERVED: CapacityType = "reserved"
DISCOUNT = 10_000_000
"""Divisor of the list price of reserved machines: they are paid for whether they run or not, so they must sort before
all others while keeping the order among themselves (Karpenter's figure)."""
RESERVATION_LABELS = (
    labels.CAPACITY_RESERVATION_ID,
    labels.CAPACITY_RESERVATION_TYPE,
    labels.CAPACITY_RESERVATION_INTERRUPTIBLE,
)
ANY_VALUE = "*"


@dataclass(frozen=True, slots=True)
class ReservationSelector:
    """A `ReservationSelector` knows the reservations and which pools may use them, without counting machines.

    It stays the same while machines come and go.
    """

    cluster: str = ""
    terms: Mapping[str, Reservation] = field(default_factory=dict)

    def of(self, pool: NodePool) -> list[Reservation]:
        """Returns the reservations that a pool may launch into, by id."""
        if RESERVED not in pool.spec.capacity_types:
            return []
        return [found for _, found in sorted(self.terms.items()) if found.active and self.selected(pool, found)]

    def selected(self, pool: NodePool, reservation: Reservation) -> bool:
        """Returns whether the pool selects the reservation, whatever the reservation's state."""
        select = pool.spec.reservations.select or (ReservationTerm(tags={labels.CLUSTER: self.cluster}),)
        return any(_matches(term, reservation) for term in select)


NO_RESERVATIONS = ReservationSelector()


def _matches(term: ReservationTerm, reservation: Reservation) -> bool:
    """Returns whether a term of a pool's selector matches a reservation."""
    if term.id:
        return term.id == reservation.id
    return (
        all(
            reservation.tags.get(key) is not None and value in (reservation.tags[key], ANY_VALUE)
            for key, value in term.tags.items()
        )
        and term.owner in ("", reservation.owner)
        and term.type in (None, reservation.kind)
        and term.match in (None, reservation.match)
    )


def reservation_selector(snapshot: "Snapshot") -> ReservationSelector:
    """Returns which pools may use which reservation: the same object until a reservation comes, goes or changes."""
    return _selector(snapshot.index, snapshot.cluster, snapshot.reservations)


@derived(1, steady=True)
def _selector(_index: Index, cluster: str, reservations: Mapping[str, Reservation]) -> ReservationSelector:
    return ReservationSelector(cluster, {name: replace(found, available=0) for name, found in reservations.items()})


def reservation_of(snapshot: "Snapshot", claim: "Claim") -> Reservation | None:
    """Returns the reservation that a claim's machine was bought from; None if there is none or it is gone."""
    return snapshot.reservations.get(claim.capacity_pool.reservation)


def offer_of(claim: "Claim", snapshot: "Snapshot") -> InstanceOffer:
    """Returns what was bought with a claim. Raises KeyError for an instance type that is no longer known."""
    where = claim.capacity_pool
    machine = snapshot.catalog.types[where.instance_type]
    known = reservation_of(snapshot, claim)
    if known is None and where.reservation:
        known = Reservation(where.reservation, where.instance_type, where.zone, 0, 0, state="expired")
    return InstanceOffer(machine, where.zone, where.capacity_type, claim.price_usd_h, known, claim.list_usd_h)


def reserved_labels(reservation: Reservation) -> dict[str, str]:
    """Returns the labels that nodes of a reservation carry (Karpenter's names)."""
    return {
        labels.CAPACITY_RESERVATION_ID: reservation.id,
        labels.CAPACITY_RESERVATION_TYPE: reservation.kind,
        labels.CAPACITY_RESERVATION_INTERRUPTIBLE: str(reservation.interruptible).lower(),
    }


def terminates_s(reservation: Reservation | None) -> float:
    """Returns when the cloud begins to terminate the machines of a reservation (epoch seconds); inf = never."""
    return inf if reservation is None else reservation.terminates_s


def closes_s(pool: NodePool | None, reservation: Reservation | None) -> float:
    """Returns when machines of a reservation stop taking work and are drained (epoch seconds); inf = never."""
    lead_s = pool.spec.reservations.leave_before if pool else 0.0
    return terminates_s(reservation) - lead_s


@dataclass(slots=True)
class ReservationCapacity:
    """A `ReservationCapacity` counts the machines of each reservation that may still be bought, by all pools."""

    now_s: float = 0.0
    left: dict[str, int] = field(default_factory=dict)
    """Reservation id -> machines."""

    @classmethod
    def of(cls, snapshot: "Snapshot") -> "ReservationCapacity":
        """Returns what the cloud says is free, less the claims that the cloud could not know of yet.

        A second bound holds where the cloud's count is older than a launch of ours: the size of the reservation less
        all our claims.
        """
        if not snapshot.reservations:
            return cls(snapshot.now_s)
        mine, unseen = _occupied(snapshot.claims.values(), snapshot.reservations_at_s)
        return cls(
            snapshot.now_s,
            {
                name: max(0, min(found.available - unseen[name], found.total - mine[name])) if found.active else 0
                for name, found in snapshot.reservations.items()
            },
        )

    def most(self, offer: InstanceOffer, closes_at_s: float) -> int | None:
        """Returns how many machines of an offer are left; None where no reservation bounds it."""
        if offer.reservation is None:
            return None
        return self.left.get(offer.reservation.id, 0) if self.now_s < closes_at_s else 0

    def take(self, offer: InstanceOffer, count: int) -> None:
        """Counts `count` machines as bought; a negative count gives them back."""
        if offer.reservation is not None:
            self.left[offer.reservation.id] = self.left.get(offer.reservation.id, 0) - count


def _occupied(claims: Iterable["Claim"], read_at_s: float) -> tuple[Counter[str], Counter[str]]:
    """Returns claims by reservation: all of them, and those launched after reservations were last read."""
    mine: Counter[str] = Counter()
    unseen: Counter[str] = Counter()
    for claim in claims:
        if name := claim.capacity_pool.reservation:
            mine[name] += 1
            unseen[name] += not claim.launched_at_s or claim.launched_at_s >= read_at_s
    return mine, unseen


def unselected(reserved: ReservationSelector, pool: NodePool, claim: "Claim") -> str:
    """Returns why a pool no longer selects a machine's reservation; empty if it does, or if none is known.

    A machine whose reservation has ended runs on as an on-demand one and is judged as such, so that is no drift.
    """
    known = reserved.terms.get(claim.capacity_pool.reservation)
    if known is None or reserved.selected(pool, known):
        return ""
    return f"node pool {pool.name} no longer selects its capacity reservation {known.id}"


def converted_to_on_demand(snapshot: "Snapshot", claim: "Claim") -> "Claim | None":
    """Returns a reserved claim as an on-demand one once the cloud says it runs in no reservation; else None."""
    where = claim.capacity_pool
    instance = snapshot.instances.get(claim.instance_id)
    if where.capacity_type != RESERVED or instance is None or instance.gone or instance.reservation:
        return None
    if instance.capacity_type != "on-demand" or snapshot.instances_at_s <= claim.launched_at_s:
        return None
    price_usd_h = claim.charged_usd_h
    plain = replace(where, capacity_type="on-demand", reservation="")
    return replace(claim, capacity_pool=plain, price_usd_h=price_usd_h, list_usd_h=None)
