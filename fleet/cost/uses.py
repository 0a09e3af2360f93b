"""What every machine that bills costs an hour, and who takes which part of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import chain
from math import inf
from operator import attrgetter
from typing import Final, NamedTuple

from fleet.catalog import InstanceOffer, InstanceType
from fleet.cost.machine_use import IDLE, NOT_READY, UNCLAIMED, Commitment, Holding, MachineUse
from fleet.cost.weights import MachineWeights, machine_weights
from fleet.markets import PriceSource
from fleet.mig.layouts import gpu_part
from fleet.mig.mixed_cuts import mixed_layout_of
from fleet.snapshot import CapacityPool, Catalog, Claim, Gang, Instance, Pod, Reservation, Snapshot
from fleet.snapshot.lookups import forgotten, node_of, ordinary_tenants, tenants, unclaimed, unlisted
from model import labels
from model.fleet import Fleet
from model.index import Index, derived, followed_each
from model.kinds import CapacityType, MigLayout
from model.mig.layouts import config_name

AS_BOUGHT: Final = "price at purchase"


class NegotiatedRate(NamedTuple):
    """A `NegotiatedRate` is what machines cost whose price is not the list's: a savings plan, a private agreement."""

    instance_type: str
    """Pattern of instance types: `p5.*`."""
    capacity_type: CapacityType
    usd_h: float | None
    percent_off: float
    """Off the price of the catalogue; counts where no `usd_h` is given."""
    source: str
    """In words, for reports."""


@dataclass(frozen=True, slots=True)
class CostTerms:
    """`CostTerms` say how costs are told apart: who pays, which label names a user, and rates of one's own."""

    payer: Callable[[Fleet, str, str], str | None]
    """(fleet, namespace, queue) -> the team that pays, or None."""
    user_label: str = labels.USER
    """Label of pods, or of their job, whose value is their user."""
    rates: tuple[NegotiatedRate, ...] = ()
    """The first that fits counts."""
    commitments: tuple[Commitment, ...] = ()
    """Of a machine in their reservation they say what it costs, before any rate."""


def uses(
    fleet: Fleet, snapshot: Snapshot, terms: CostTerms, borrowing: frozenset[str] = frozenset()
) -> Mapping[str, MachineUse]:
    """Returns id -> use of all machines that are launched and not gone yet, also those that no claim answers for.

    One that the cloud has forgotten is gone.

    Spot machines cost what spot costs now, where that is known (EC2 user guide, "Spot Instance pricing"), others what
    they cost when they were bought: reserved ones their list price. `borrowing` has uids of gangs on borrowed quota.
    """
    context = _Context(fleet, snapshot.catalog, terms, _reservation_ends(snapshot), borrowing)
    return _uses(
        snapshot.index,
        *context,
        snapshot.claims,
        snapshot.instances,
        tenants(snapshot),
        ordinary_tenants(snapshot),
        unclaimed(snapshot),
        forgotten(snapshot),
    )


def ended_uses(
    fleet: Fleet, snapshot: Snapshot, terms: CostTerms, since_s: float
) -> Iterator[tuple[MachineUse, float]]:
    """Yields the machines that are known to have ended since then, and when (epoch seconds).

    The cloud says so of those that it still lists, the node of one that it has forgotten: it is not ready since. Who
    held a machine is what the Workloads still say: a gang that has not been told of the end yet.
    """
    index, catalog = snapshot.index, snapshot.catalog
    context = _Context(fleet, catalog, terms, _reservation_ends(snapshot), frozenset())
    maker = _Maker(context, _offers(index, catalog), _layouts(index, fleet), ordinary_tenants(snapshot))
    held, owned = tenants(snapshot), set()
    for name, claim in sorted(snapshot.claims.items()):
        owned.add(claim.instance_id)
        instance = snapshot.instances.get(claim.instance_id)
        if claim.launched_at_s and _end_s(snapshot, claim, instance) > since_s:
            yield maker.of_claim(claim, instance, held.get(name, ())), _end_s(snapshot, claim, instance)
    ended = (it for it in snapshot.instances.values() if it.gone and it.ended_at_s > since_s and it.id not in owned)
    for instance in sorted(ended, key=attrgetter("id")):
        if instance.tags.get(labels.CLUSTER) == snapshot.cluster:
            yield maker.of_stray(instance), min(instance.ended_at_s, snapshot.now_s)


def _end_s(snapshot: Snapshot, claim: Claim, instance: Instance | None) -> float:
    """Returns when a machine is known to have ended (epoch seconds); 0 where it has not, or nobody tells.

    Whoever tells of an end that is still to come has another clock: it is now.
    """
    if instance is not None:
        return min(instance.ended_at_s, snapshot.now_s) if instance.gone else 0.0
    node = node_of(snapshot, claim)
    if node is None or node.ready or not unlisted(snapshot, claim):
        return 0.0
    return min(node.ready_changed_at_s, snapshot.now_s)


def subject_usd_h(index: Index, used: Mapping[str, MachineUse]) -> Mapping[str, float]:
    """Returns subject (uid of a gang's job, owner of ordinary pods) -> what its parts of machines cost an hour."""
    return _subject_usd_h(index, used)


@derived(1)
def _subject_usd_h(_index: Index, used: Mapping[str, MachineUse]) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for use in used.values():
        for holding in use.holdings:
            found[holding.subject] = found.get(holding.subject, 0.0) + use.usd_h * holding.share
    return found


class _Context(NamedTuple):
    fleet: Fleet
    catalog: Catalog
    terms: CostTerms
    ends: Mapping[str, float]
    borrowing: frozenset[str]


_Seen = tuple[Claim, Instance | None, Sequence[Gang], MachineUse]


@derived(1)
def _uses(  # noqa: PLR0913, PLR0917 - compared one by one
    index: Index,
    fleet: Fleet,
    catalog: Catalog,
    terms: CostTerms,
    ends: Mapping[str, float],
    borrowing: frozenset[str],
    claims: Mapping[str, Claim],
    instances: Mapping[str, Instance],
    held: Mapping[str, Sequence[Gang]],
    ordinary: Mapping[str, tuple[Gang, tuple[Pod, ...]]],
    strays: Sequence[Instance],
    unheard_of: frozenset[str],
) -> Mapping[str, MachineUse]:
    context = _Context(fleet, catalog, terms, ends, borrowing)
    before, moved = _still_good(index.take(_uses), context)
    maker = _Maker(context, _offers(index, catalog), _layouts(index, fleet), ordinary)
    seen: dict[str, _Seen] = {}
    for name, claim in claims.items():
        instance = instances.get(claim.instance_id)
        if not claim.launched_at_s or name in unheard_of or (instance is not None and instance.gone):
            continue
        gangs = held.get(name, ())
        old = before.get(name)
        same = old is not None and old[0] is claim and old[1] is instance and old[2] is gangs
        if old is not None and same and (not moved or moved.isdisjoint(it.uid for it in gangs)):
            seen[name] = old
        else:
            seen[name] = claim, instance, gangs, maker.of_claim(claim, instance, gangs)
    index.hand_on(_uses, (context, seen))
    found = {use.machine: use for _, _, _, use in seen.values()}
    return found | {it.id: maker.of_stray(it) for it in strays}


def _still_good(kept: object, context: _Context) -> tuple[Mapping[str, _Seen], frozenset[str]]:
    """Returns what was worked out before, if the same holds still, and the gangs that do or do not borrow since."""
    if not isinstance(kept, tuple) or any(old is not new for old, new in zip(kept[0][:4], context[:4], strict=True)):
        return {}, frozenset()
    return kept[1], kept[0].borrowing ^ context.borrowing


def _reservation_ends(snapshot: Snapshot) -> Mapping[str, float]:
    return _ends(snapshot.index, snapshot.reservations)


@followed_each()
def _ends(reservation: Reservation) -> float | None:
    """Returns when the machines of a reservation go, or leave it (epoch seconds); None where no end is set."""
    at_s = min(reservation.terminates_s, reservation.ends_s)
    return at_s if at_s < inf else None


@derived()
def _offers(_index: Index, catalog: Catalog) -> Mapping[CapacityPool, InstanceOffer]:
    return {offer.pool_key: offer for offer in catalog.offers}


@derived()
def _layouts(_index: Index, fleet: Fleet) -> Mapping[str, MigLayout]:
    """Returns configuration name -> layout."""
    return {config_name(layout): layout for layout in fleet.mig_layouts.values()}


def user_of(gang: Gang, label: str) -> str:
    """Returns whose work it is: the value of the label of its pods, or else of its job; empty where neither has it."""
    every = chain(*(pods.labels for pods in gang.pod_sets), gang.labels)
    return next((value for name, value in every if name == label), "")


class _Maker(NamedTuple):
    """Makes the uses of machines, one by one."""

    context: _Context
    offers: Mapping[CapacityPool, InstanceOffer]
    layouts: Mapping[str, MigLayout]
    ordinary: Mapping[str, tuple[Gang, tuple[Pod, ...]]]

    def of_claim(self, claim: Claim, instance: Instance | None, gangs: Sequence[Gang]) -> MachineUse:
        """Returns what a claim's machine costs an hour (USD), and who has it.

        It bills since the cloud launched it; one that was adopted, or is not listed, since its claim says.
        """
        kind = self.context.catalog.types.get(claim.capacity_pool.instance_type)
        layout = mixed_layout_of(claim, kind) or self.layouts.get(claim.layout)
        weights = machine_weights(claim.resources, kind, layout)
        usd_h, priced, spot_part = self._price(claim.capacity_pool, claim.charged_usd_h, claim.launched_at_s)
        launched_s = instance.launched_at_s if instance is not None and not claim.adopts else claim.launched_at_s
        holdings = _merged([self._holding(claim, gang, weights) for gang in gangs])
        ready = claim.ready_at_s and claim.node_ready
        return MachineUse(
            claim.instance_id or claim.name,
            claim.node_pool,
            claim.capacity_pool,
            *_gpus(kind),
            usd_h,
            priced,
            launched_s,
            holdings,
            IDLE if ready else NOT_READY,
            spot_part,
            *self._end(claim),
            claim.launched_at_s,
        )

    def _end(self, claim: Claim) -> tuple[float, float]:
        """Returns when a machine's reservation ends (epoch seconds), and what is paid for in its place an hour."""
        where, (fleet, _, terms, ends, _) = claim.capacity_pool, self.context
        told = [
            ends.get(where.reservation, inf),
            *(it.end_s for it in terms.commitments if it.reservation == where.reservation),
        ]
        pool = fleet.node_pools.get(claim.node_pool)
        if not where.reservation or min(told) == inf:
            return 0.0, 0.0
        if pool is None or "on-demand" not in pool.spec.capacity_types:
            return min(told), 0.0
        on_demand = replace(where, capacity_type="on-demand", reservation="")
        return min(told), self._price(on_demand, claim.charged_usd_h, claim.launched_at_s)[0]

    def of_stray(self, instance: Instance) -> MachineUse:
        """Returns the same of a machine without a claim: nobody has it. Where it has no offer its list price is 0."""
        where = CapacityPool(instance.capacity_type, instance.instance_type, instance.zone, instance.reservation)
        offer = self.offers.get(where)
        kind = self.context.catalog.types.get(instance.instance_type)
        usd_h, priced, spot_part = self._price(where, offer.charged_usd_h if offer else 0.0, instance.launched_at_s)
        launched_s = instance.launched_at_s
        return MachineUse(
            instance.id,
            "",
            where,
            *_gpus(kind),
            usd_h,
            priced,
            launched_s,
            rest=UNCLAIMED,
            spot_part=spot_part,
            known_s=launched_s,
        )

    def _price(self, where: CapacityPool, charged_usd_h: float, bought_s: float) -> tuple[float, PriceSource, float]:
        """Returns what a machine costs (USD an hour), where that comes from, and which part of the spot price it is."""
        usd_h, priced = self._list_price(where, charged_usd_h, bought_s)
        spot = 1.0 if where.capacity_type == "spot" else 0.0
        for paid in self.context.terms.commitments:
            if paid.reservation == where.reservation:
                return paid.machine_usd_h, PriceSource(paid.source, priced.region, paid.begin_s), 0.0
        for rate in self.context.terms.rates:
            if rate.capacity_type == where.capacity_type and fnmatchcase(where.instance_type, rate.instance_type):
                part = 1 - rate.percent_off / 100 if rate.usd_h is None else 0.0
                own = usd_h * part if rate.usd_h is None else rate.usd_h
                return own, PriceSource(rate.source, priced.region, priced.at_s), part * spot
        return usd_h, priced, spot

    def _list_price(self, where: CapacityPool, charged_usd_h: float, bought_s: float) -> tuple[float, PriceSource]:
        offer = self.offers.get(where)
        if offer is None:
            return charged_usd_h, PriceSource(AS_BOUGHT, "", bought_s)
        return offer.price_usd_h if where.capacity_type == "spot" else charged_usd_h, offer.priced

    def _holding(self, claim: Claim, gang: Gang, weights: MachineWeights) -> Holding:
        devices: dict[str, int] = {}
        share = 0.0
        for pin in gang.pins:
            if pin.claim == claim.name:
                requests = gang.pod_set(pin.pod_set).requests
                share += pin.count * weights.part_of(requests)
                for name, amount in gpu_part(requests).items():
                    devices[name] = devices.get(name, 0) + amount * pin.count
        fleet, terms = self.context.fleet, self.context.terms
        subject, name = self._named(gang)
        return Holding(
            subject,
            name,
            gang.namespace,
            gang.queue,
            terms.payer(fleet, gang.namespace, gang.queue) or "",
            user_of(gang, terms.user_label),
            gang.uid in self.context.borrowing,
            min(1.0, share),
            _devices(devices),
            gang.admitted_at_s,
        )

    def _named(self, gang: Gang) -> tuple[str, str]:
        """Returns subject and name; ordinary pods go by their owner."""
        _, pods = self.ordinary.get(gang.uid, (gang, ()))
        if not pods:
            return gang.uid, gang.job.name
        owner = pods[0].owner or f"Pod/{pods[0].name}"
        return f"{gang.namespace}/{owner}", owner


def _gpus(kind: InstanceType | None) -> tuple[str, int]:
    """Returns model and number of the GPUs of a type; none where it is not known."""
    return (kind.gpu_name, kind.gpu_count) if kind is not None else ("", 0)


def _devices(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{amount} {name}" for name, amount in sorted(amounts.items()))


def _merged(holdings: Sequence[Holding]) -> tuple[Holding, ...]:
    """Returns the holdings in order, those of one subject as one."""
    found: dict[tuple[str, bool], Holding] = {}
    for holding in holdings:
        key = holding.subject, holding.borrowed
        found[key] = _both(found[key], holding) if key in found else holding
    return tuple(found[key] for key in sorted(found))


def _both(one: Holding, other: Holding) -> Holding:
    """Returns two classes of pods of one owner on one machine as one."""
    return Holding(
        one.subject,
        one.name,
        one.namespace,
        one.queue,
        one.team,
        one.user or other.user,
        one.borrowed,
        min(1.0, one.share + other.share),
        ", ".join(filter(None, (one.devices, other.devices))),
        max(one.since_s, other.since_s),
    )
