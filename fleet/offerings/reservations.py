"""Capacity reservations: which a pool may use, what a machine of one costs, how many are left, and until when.

Sources: EC2 User Guide, "Capacity Reservations" and "Capacity Blocks for ML"; Karpenter's rules for reserved offers
(`pkg/providers/instancetype/offering`, `reservationmanager.go`, `pkg/controllers/nodeclaim/capacityreservation`).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from fleet.snapshot import Claim, InstanceOffer, Reservation, Snapshot
from model import labels
from model.index import Index, derived
from model.kinds import CapacityType, NodePool, ReservationTerm

RESERVED: CapacityType = "reserved"
DISCOUNT = 10_000_000
"""A reserved machine is paid for whether it runs or not: using it costs this part of the list price, which keeps the
order of prices and is always the cheapest (Karpenter's figure)."""
RESERVATION_LABELS = (
    labels.CAPACITY_RESERVATION_ID,
    labels.CAPACITY_RESERVATION_TYPE,
    labels.CAPACITY_RESERVATION_INTERRUPTIBLE,
)
ANY_VALUE = "*"


@dataclass(frozen=True, slots=True)
class ReservationSelector:
    """The reservations there are and which pools may use them, but not how many machines are left in one.

    It stays the same while machines come and go.
    """

    cluster: str = ""
    terms: Mapping[str, Reservation] = field(default_factory=dict)

    def of(self, pool: NodePool) -> list[Reservation]:
        """The reservations a pool may launch into, by id."""
        if RESERVED not in pool.spec.capacity_types:
            return []
        return [found for _, found in sorted(self.terms.items()) if found.active and self.selected(pool, found)]

    def selected(self, pool: NodePool, reservation: Reservation) -> bool:
        """Whether the pool names the reservation, whatever its state."""
        select = pool.spec.reservations.select or (ReservationTerm(tags={labels.CLUSTER: self.cluster}),)
        return any(_holds(term, reservation) for term in select)


NO_RESERVATIONS = ReservationSelector()


def _holds(term: ReservationTerm, reservation: Reservation) -> bool:
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


def reservation_selector(snapshot: Snapshot) -> ReservationSelector:
    """Who may use which reservation: the same object until one comes, goes or changes."""
    return _selector(snapshot.index, snapshot.cluster, snapshot.reservations)


@derived(1, steady=True)
def _selector(_index: Index, cluster: str, reservations: Mapping[str, Reservation]) -> ReservationSelector:
    return ReservationSelector(cluster, {name: replace(found, available=0) for name, found in reservations.items()})


def reservation_of(snapshot: Snapshot, claim: Claim) -> Reservation | None:
    """The reservation a machine was bought from, as far as it is still known."""
    return snapshot.reservations.get(claim.capacity_pool.reservation)


def offer_of(claim: Claim, snapshot: Snapshot) -> InstanceOffer:
    """What was bought with a claim. KeyError for an instance type that is no longer known."""
    where = claim.capacity_pool
    machine = snapshot.catalog.types[where.instance_type]
    known = reservation_of(snapshot, claim)
    if known is None and where.reservation:
        known = Reservation(where.reservation, where.instance_type, where.zone, 0, 0, state="expired")
    return InstanceOffer(machine, where.zone, where.capacity_type, claim.price_usd_h, known, claim.list_usd_h)


def reserved_labels(reservation: Reservation) -> dict[str, str]:
    """The labels that nodes of a reservation carry (Karpenter's names)."""
    return {
        labels.CAPACITY_RESERVATION_ID: reservation.id,
        labels.CAPACITY_RESERVATION_TYPE: reservation.kind,
        labels.CAPACITY_RESERVATION_INTERRUPTIBLE: str(reservation.interruptible).lower(),
    }


def preference(offer: InstanceOffer) -> tuple[int, bool]:
    """Among equal prices: machines without an end before those of a block, and those nobody may take back first."""
    reservation = offer.reservation
    return (int(reservation.ends_machines), reservation.interruptible) if reservation else (0, False)


def terminates_s(reservation: Reservation | None) -> float:
    """When the cloud begins to terminate the machines of a reservation; never where it is none."""
    return inf if reservation is None else reservation.terminates_s


def closes_s(pool: NodePool | None, reservation: Reservation | None) -> float:
    """From when on no work starts on machines of the reservation any more, and what is there begins to leave."""
    lead_s = pool.spec.reservations.leave_before if pool else 0.0
    return terminates_s(reservation) - lead_s


@dataclass(slots=True)
class ReservationCapacity:
    """How many machines of each reservation may still be bought; one for all pools, which may share reservations."""

    now_s: float = 0.0
    left: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshot: Snapshot) -> "ReservationCapacity":
        """What the cloud says is free, less the claims that it cannot know of yet.

        A second bound holds where the cloud's count is older than a launch of ours: no more than the reservation has
        in all, less every claim of ours.
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
        """How many machines of an offer are left; None where no reservation bounds it."""
        if offer.reservation is None:
            return None
        return self.left.get(offer.reservation.id, 0) if self.now_s < closes_at_s else 0

    def take(self, offer: InstanceOffer, count: int) -> None:
        """Count `count` machines as bought; a negative count gives them back."""
        if offer.reservation is not None:
            self.left[offer.reservation.id] = self.left.get(offer.reservation.id, 0) - count


def _occupied(claims: Iterable[Claim], read_at_s: float) -> tuple[Counter[str], Counter[str]]:
    """Claims by reservation: all of them, and those whose machine was not there yet when reservations were read."""
    mine: Counter[str] = Counter()
    unseen: Counter[str] = Counter()
    for claim in claims:
        if name := claim.capacity_pool.reservation:
            mine[name] += 1
            unseen[name] += not claim.launched_at_s or claim.launched_at_s >= read_at_s
    return mine, unseen


def unselected(reserved: ReservationSelector, pool: NodePool, claim: Claim) -> str:
    """Why a machine's reservation is none of its pool's any more; empty when it is, or is not known at all.

    One that has ended is no drift: its machines run on as on-demand ones, and are judged as such.
    """
    known = reserved.terms.get(claim.capacity_pool.reservation)
    if known is None or reserved.selected(pool, known):
        return ""
    return f"node pool {pool.name} no longer selects its capacity reservation {known.id}"


def outlived(snapshot: Snapshot, claim: Claim) -> Claim | None:
    """The claim of a reserved machine as an on-demand one, once the cloud says that it runs in no reservation."""
    where = claim.capacity_pool
    instance = snapshot.instances.get(claim.instance_id)
    if where.capacity_type != RESERVED or instance is None or instance.gone or instance.reservation:
        return None
    if instance.capacity_type != "on-demand" or snapshot.instances_at_s <= claim.launched_at_s:
        return None
    price_usd_h = claim.charged_usd_h
    plain = replace(where, capacity_type="on-demand", reservation="")
    return replace(claim, capacity_pool=plain, price_usd_h=price_usd_h, list_usd_h=None)
