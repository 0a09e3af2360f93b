"""A place for every pod of a gang, or nothing: on ready machines, on idle ones cut anew, on ones bought for it.

The order of preference is free to dear: what stands idle, then a re-cut, then a purchase of exactly what is missing.
Among what stands idle a place goes by its price (`fleet.placement.appraisal`).
Purchases stay in one zone, and prefer (capacity type by the pool's order, weight of the pool, expected cost, name): the
order in which `CreateFleet` is attempted, because a shortage removes an offering and the next call finds the next best.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fleet.mig.layouts import gpu_part
from fleet.offerings.limits import PoolHeadroom
from fleet.offerings.offerings import Offering, Offerings
from fleet.placement.assortment import DIGITS, Assortment, Choice
from fleet.placement.board import PODS, Board, Slot
from fleet.placement.bought import slot_of
from fleet.placement.hurdles import Hurdles
from fleet.placement.pack import Seat, choose_domain, domains, room, seat
from fleet.placement.shelf import Price, free_of_charge
from fleet.reasons import Reason, Refusal
from fleet.snapshot import CapacityPool, InstanceOffer, Pin, PodSet
from fleet.snapshot.affinity import admits
from model import labels
from model.kinds import NodePool, Toleration
from model.quantity import CPU, Resources


@dataclass(frozen=True, slots=True)
class Need:
    """A pod set with the flavor chosen for it: which slots and pools may serve it."""

    pod_set: PodSet
    tolerations: tuple[Toleration, ...]
    node_labels: Mapping[str, str]
    """A slot must carry these (flavors over existing nodes)."""
    pools: tuple[NodePool, ...]
    """Heaviest first; a slot must be of one of them unless `node_labels` is given."""
    charged: bool = True
    """Whether quota counts any of what it asks; what nobody's quota counts may use machines, never cause a purchase."""
    any_node: bool = False
    """Slots of no pool will do as well, if the labels are there."""
    until_s: float = 0.0
    """A slot that closes before this will not do (epoch seconds): the pods would not come to their end there."""
    kind: Hashable = field(init=False, repr=False, compare=False)
    """Equal for needs that accept the same slots."""
    asks: Hashable = field(init=False, repr=False, compare=False)
    """Equal for those that ask the same of them, too."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self._kind())
        object.__setattr__(self, "asks", (self.kind, tuple(sorted(self.pod_set.requests.items()))))

    def _kind(self) -> Hashable:
        pod_set = self.pod_set
        return (
            tuple(sorted(self.node_labels.items())),
            tuple(pool.name for pool in self.pools),
            self.any_node,
            self.until_s,
            tuple(sorted(pod_set.node_selector.items())),
            pod_set.required_affinity,
            (*pod_set.tolerations, *self.tolerations),
        )

    def rank(self, pool: NodePool) -> int:
        """The place of one of the pools in the order of preference: pools of equal weight share it."""
        return len({it.spec.weight for it in self.pools if it.spec.weight > pool.spec.weight})

    def accepts(self, slot: Slot) -> bool:
        """Whether a pod of the set may stand on the slot."""
        if slot.closes_s <= self.until_s:
            return False
        if self.node_labels or self.any_node:
            for key, value in self.node_labels.items():  # a loop, for it is asked of every machine there is
                if slot.labels.get(key) != value:
                    return False
        elif slot.pool not in {pool.name for pool in self.pools}:
            return False
        return admits(self.pod_set, self.tolerations, slot.labels, slot.taints)


@dataclass(frozen=True, slots=True)
class Recut:
    """An idle machine and what it would offer under another layout of its pool."""

    claim: str
    layout: str
    gpus: Resources
    """The GPU resources the machine would offer."""
    slot: Slot


@dataclass(frozen=True, slots=True)
class Lot:
    """`count` equal machines to buy from one capacity pool."""

    offering: Offering
    count: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Where every pod of a gang goes and what must be done first. Slots bought are named `new/<lot>/<n>`."""

    seats: tuple[Seat, ...] = ()
    recuts: tuple[Recut, ...] = ()
    lots: tuple[Lot, ...] = ()

    @property
    def cost_usd_h(self) -> float:
        """What the purchase costs an hour."""
        return sum(lot.offering.offer.price_usd_h * lot.count for lot in self.lots)

    @property
    def ready(self) -> bool:
        """Whether nothing has to be bought, cut or waited for first."""
        return not self.lots and not self.recuts and all(taken.slot.node for taken in self.seats)

    def pins(self) -> tuple[Pin, ...]:
        """The seats as they are written down."""
        return tuple(sorted(Pin(s.pod_set, s.slot.node, s.slot.claim, s.count) for s in self.seats))


@dataclass(slots=True)
class Supply:
    """What can be bought or re-cut. `spend` is undone together with the board by the caller that took it."""

    offerings: Offerings
    headroom: dict[str, PoolHeadroom]
    shortages: Mapping[CapacityPool, float]
    recuts: list[Recut] = field(default_factory=list)
    may_buy: bool = True
    priced: Callable[[Resources], Price] = lambda _requests: free_of_charge
    """What pods cost the slots they might stand on."""
    closing: bool = False
    """Whether there are capacity blocks, so that it matters how long pods will run."""
    premiums: Mapping[CapacityPool, float] = field(default_factory=dict)
    """Capacity pool -> the part of its price that its interruptions add (`fleet.offerings.interruption_rate`)."""
    _assortments: dict[Hashable, Assortment] = field(default_factory=dict, init=False, repr=False)

    def expected_usd_h(self, offer: InstanceOffer) -> float:
        """What an offer is ordered by: its price, and what its interruptions waste."""
        return offer.price_usd_h * (1.0 + self.premiums.get(offer.pool_key, 0.0))

    def assortment(self, need: Need, zone: str) -> Assortment:
        """What could be bought for pods of a need in a zone."""
        asked = (need.asks, zone)
        if asked not in self._assortments:
            self._assortments[asked] = Assortment.of(need, zone, self.offerings, self.expected_usd_h)
        return self._assortments[asked]


def provide(board: Board, supply: Supply, gang: str, needs: Iterable[Need]) -> Plan | Refusal:
    """The best plan for all of `needs`, taken on the board and from the headroom; on refusal nothing is changed.

    Where pods have to share a domain that none has the room for, it is bought if pools promise one: all machines of a
    pool carry the labels of its template.
    """
    asked = list(needs)
    found = _provided(board, supply, gang, asked)
    if isinstance(found, Plan) or found.reason is not Reason.TOPOLOGY or not supply.may_buy:
        return found
    best: tuple[float, str, list[Need]] | None = None
    for value, tied in _promised(asked):
        mark = board.mark()
        plan = _provided(board, supply, gang, tied)
        if isinstance(plan, Plan):
            board.undo(mark)
            for lot in plan.lots:
                supply.headroom[lot.offering.pool.name].spend(lot.offering, -lot.count)
            if best is None or (round(plan.cost_usd_h, DIGITS), value) < best[:2]:
                best = round(plan.cost_usd_h, DIGITS), value, tied
    return found if best is None else _provided(board, supply, gang, best[2])


def _promised(needs: Sequence[Need]) -> Iterator[tuple[str, list[Need]]]:
    """Values that pools promise for the one label pods have to share, with the needs tied to it."""
    wanted = {need.pod_set.required_topology for need in needs} - {"", labels.ZONE, labels.HOSTNAME}
    if len(wanted) != 1:
        return
    label = wanted.pop()
    bound = [need for need in needs if need.pod_set.required_topology == label]
    carried = {pool.spec.template.labels.get(label, "") for need in bound for pool in need.pools}
    for value in sorted(carried - {""}):
        yield value, [_tied(need, label, value) if need in bound else need for need in needs]


def _tied(need: Need, label: str, value: str) -> Need:
    selector = {**need.pod_set.node_selector, label: value}
    return replace(need, pod_set=replace(need.pod_set, node_selector=selector, required_topology=""))


def _provided(board: Board, supply: Supply, gang: str, needs: Sequence[Need]) -> Plan | Refusal:
    """The best plan where only zones and hosts may be shared on what is bought."""
    ordered = sorted(needs, key=_hardest_first)
    may_buy = supply.may_buy
    zone_bound = any(need.pod_set.required_topology == labels.ZONE for need in ordered)
    best: tuple[tuple[object, ...], str, bool] | None = None
    refusals: list[Refusal] = []
    zones = _all_zones(board, supply, ordered) if zone_bound else ["", *(_zones(supply, ordered) if may_buy else ())]
    for zone in zones:
        trial = _Trial(board, supply, gang, zone, bound=zone_bound, may_buy=may_buy and bool(zone))
        outcome = trial.run(ordered)
        if best is None and not zone_bound and isinstance(outcome, Plan) and (outcome.ready or not may_buy):
            return outcome  # nothing is better than what stands idle, and nothing else is tried where nothing is bought
        trial.undo()
        if isinstance(outcome, Refusal) and trial.parts:
            trial = _Trial(board, supply, gang, zone, bound=zone_bound, may_buy=True, splits=False)
            outcome = trial.run(ordered)
            trial.undo()
        if isinstance(outcome, Refusal):
            refusals.append(outcome)
        elif best is None or (trial.rank(), zone, trial.splits) < best:
            best = (trial.rank(), zone, trial.splits)
    if best is None:
        return _most_telling(refusals if zone_bound else refusals[1:] or refusals)
    _, zone, splits = best
    trial = _Trial(board, supply, gang, zone, bound=zone_bound, may_buy=may_buy and bool(zone), splits=splits)
    return trial.run(ordered)


def _hardest_first(need: Need) -> tuple[object, ...]:
    """What may buy before what may not, GPUs before the rest, then by size and name."""
    requests = need.pod_set.requests
    gpus = sum(gpu_part(requests).values())
    return (not need.charged, -gpus, -requests.get(CPU, 0), -max(requests.values(), default=0), need.pod_set.name)


def _zones(supply: Supply, needs: Iterable[Need]) -> list[str]:
    return sorted({zone for need in needs for pool in need.pools for zone in supply.offerings.zones(pool)})


def _all_zones(board: Board, supply: Supply, needs: list[Need]) -> list[str]:
    return sorted({*domains(board.slots.values(), labels.ZONE), *_zones(supply, needs)})


def _most_telling(refusals: list[Refusal]) -> Refusal:
    """The refusal that says most: a shortage passes, a limit can be raised, the rest needs another gang or pool."""
    order = [Reason.NO_CAPACITY, Reason.POOL_LIMIT, Reason.TOPOLOGY, Reason.NO_OFFER]
    ranked = sorted(refusals, key=lambda refusal: (order.index(refusal.reason), refusal.retry_at_s, refusal.message))
    return ranked[0] if ranked else Refusal(Reason.NO_OFFER, "no machine of its flavors exists or may be bought")


@dataclass(slots=True)
class _Trial:
    """One attempt with purchases in one zone; everything it takes is undone by `undo`."""

    board: Board
    supply: Supply
    gang: str
    zone: str
    bound: bool
    """Every pod set that asks for one zone is held to `zone`, on existing machines too."""
    may_buy: bool
    splits: bool = True
    """Whether the rest of a reservation may be bought for some of the pods, and other machines for the others."""
    parts: bool = False
    """Whether that has happened."""
    seats: list[Seat] = field(default_factory=list)
    recuts: list[Recut] = field(default_factory=list)
    lots: list[Lot] = field(default_factory=list)
    new: list[Slot] = field(default_factory=list)
    worst_capacity_rank: int = 0
    worst_pool_rank: int = 0
    _mark: int = -1

    def run(self, needs: list[Need]) -> Plan | Refusal:
        self._mark = self.board.mark()
        for need in needs:
            refusal = self._serve(need)
            if refusal is not None:
                return refusal
        return Plan(tuple(self.seats), tuple(self.recuts), tuple(self.lots))

    def undo(self) -> None:
        self.board.undo(self._mark)
        for lot in self.lots:
            self.supply.headroom[lot.offering.pool.name].spend(lot.offering, -lot.count)

    def rank(self) -> tuple[object, ...]:
        cost = sum(self.supply.expected_usd_h(lot.offering.offer) * lot.count for lot in self.lots)
        return (bool(self.lots), self.worst_capacity_rank, self.worst_pool_rank, round(cost, DIGITS), len(self.recuts))

    def _serve(self, need: Need) -> Refusal | None:
        pod_set = need.pod_set
        if not pod_set.count:
            return None
        view = self.board.view(need.kind, pod_set.requests, need.accepts, self.supply.priced)
        if pod_set.required_topology and pod_set.required_topology != labels.ZONE:
            standing, all_machines = view.among(self.gang, standing=True), view.among(self.gang)
            domain = choose_domain(standing, pod_set) or choose_domain(all_machines, pod_set)
            if domain is not None:
                self.seats += seat(self.board, domain, pod_set, pod_set.count)
                return None
            if pod_set.required_topology != labels.HOSTNAME:
                return Refusal(
                    Reason.TOPOLOGY,
                    f"{pod_set.count} pods of {pod_set.name} need one domain of {pod_set.required_topology}; "
                    "no domain has the room, and no pool that might buy more promises one",
                )
            return self._buy(need, pod_set.count, whole=True)
        missing = pod_set.count
        scopes = [view.among(self.gang, standing=standing) for standing in (True, False)]
        if self.bound and pod_set.required_topology == labels.ZONE:
            scopes = [scope.within(labels.ZONE, self.zone) for scope in scopes]
        if not self.supply.recuts and not (self.may_buy and need.charged):
            short = missing - sum(room(scope, pod_set) for scope in scopes)
            if short > 0:  # refused as it would be after all the seats there are had been taken
                return self._buy(need, short, whole=False)
        for scope in scopes:  # machines on the way only for what the standing ones do not hold
            if not missing:
                break
            placed = seat(self.board, scope, pod_set, missing)
            self.seats += placed
            missing -= sum(taken.count for taken in placed)
        missing -= self._recut(need, missing)
        return self._buy(need, missing, whole=False) if missing else None

    def _recut(self, need: Need, missing: int) -> int:
        """Serve from idle machines cut anew, roomiest first; returns how many pods found a place."""
        placed = 0
        held = self.bound and need.pod_set.required_topology == labels.ZONE
        while placed < missing:
            used = {recut.claim for recut in self.recuts}
            options = [
                recut
                for recut in self.supply.recuts
                if recut.claim not in used
                and self._untouched(recut)
                and (not held or recut.slot.labels.get(labels.ZONE) == self.zone)
                and recut.slot.room_for(need.pod_set.requests)
                and need.accepts(recut.slot)
            ]
            if not options:
                break
            chosen = min(options, key=lambda r: (-r.slot.room_for(need.pod_set.requests), r.claim, r.layout))
            slot = Slot(
                f"recut/{chosen.claim}",
                chosen.slot.node,
                chosen.claim,
                chosen.slot.labels,
                chosen.slot.taints,
                dict(chosen.slot.free),
                chosen.slot.pool,
                frozenset({self.gang}),
                closes_s=chosen.slot.closes_s,
            )
            self.board.close(chosen.slot.name)
            self.board.add(slot)
            self.recuts.append(chosen)
            seats = seat(self.board, [slot], need.pod_set, missing - placed)
            self.seats += seats
            placed += sum(taken.count for taken in seats)
        return placed

    def _untouched(self, recut: Recut) -> bool:
        """A machine can be cut anew only while nothing decided since stands on it as it is."""
        standing = self.board.slots.get(recut.slot.name)
        return standing is not None and standing.free.get(PODS, 0) == recut.slot.free.get(PODS, 0)

    def _buy(self, need: Need, missing: int, *, whole: bool) -> Refusal | None:
        if not whole:
            fitting = [slot for slot in self.new if need.accepts(slot)]
            leftover = seat(self.board, fitting, need.pod_set, missing)
            self.seats += leftover
            missing -= sum(taken.count for taken in leftover)
            if not missing:
                return None
        while missing:
            lot = self._choose(need, missing, whole=whole)
            if isinstance(lot, Refusal):
                return lot
            missing -= self._take(lot, need.pod_set, missing)
        return None

    def _take(self, lot: Lot, pod_set: PodSet, missing: int) -> int:
        """Count a lot as bought and put pods on it; how many."""
        self.supply.headroom[lot.offering.pool.name].spend(lot.offering, lot.count)
        self.lots.append(lot)
        bought = [slot_of(lot.offering, f"new/{len(self.lots) - 1}/{n}", self.gang) for n in range(lot.count)]
        for slot in bought:
            self.board.add(slot)
        self.new += bought
        seats = seat(self.board, bought, pod_set, missing)
        self.seats += seats
        return sum(taken.count for taken in seats)

    def _choose(self, need: Need, missing: int, *, whole: bool) -> Lot | Refusal:
        """The first lot that holds all, by capacity type in the pool's order, pool by weight, expected cost, name.

        Of a reservation it may hold less: what is left there is used up before anything else is bought.
        """
        if not need.charged:
            return Refusal(
                Reason.NO_OFFER,
                f"{missing} pods of {need.pod_set.name} have no room, and ask nothing that their queue's quota counts: "
                "such pods may use machines that stand, but none is bought for them",
            )
        if not self.may_buy:
            return Refusal(Reason.NO_OFFER, f"{missing} pods of {need.pod_set.name} have no room on existing machines")
        assortment = self.supply.assortment(need, self.zone)
        ranking = assortment.ranking(missing, whole=whole)
        hurdles = Hurdles(need.pod_set, missing, self.zone, assortment.seen, set(ranking.inflexible))
        hurdles.too_short |= assortment.too_short
        found = [self._lot(it, missing, whole=whole, hurdles=hurdles) for it in ranking.reserved]
        plain = (self._lot(it, missing, whole=whole, hurdles=hurdles) for it in ranking.open)
        ranked = [it for it in (*found, next((lot for lot in plain if lot is not None), None)) if it is not None]
        if not ranked:
            return hurdles.refusal()
        rank, lot, choice = min(ranked, key=lambda it: it[0])
        self.parts = self.parts or rank[2] != 0
        self.worst_capacity_rank = max(self.worst_capacity_rank, choice.capacity_rank)
        self.worst_pool_rank = max(self.worst_pool_rank, choice.pool_rank)
        return lot

    def _lot(
        self, choice: Choice, missing: int, *, whole: bool, hurdles: Hurdles
    ) -> tuple[tuple[object, ...], Lot, Choice] | None:
        """What can be had of a choice now, by its rank."""
        offering = choice.offering
        count = self._most_of(offering, -(-missing // choice.fits), whole=whole, hurdles=hurdles)
        if not count:
            return None
        if (until := self.supply.shortages.get(offering.offer.pool_key)) is not None:
            hurdles.short(offering, until)
            return None
        return choice.rank(missing, count), Lot(offering, count), choice

    def _most_of(self, offering: Offering, wanted: int, *, whole: bool, hurdles: Hurdles) -> int:
        """How many of the machines that are wanted may be of this offering: all, or what a reservation has left."""
        headroom = self.supply.headroom[offering.pool.name]
        left = headroom.reserved_left(offering)
        if zone := headroom.bound_to(offering):
            hurdles.bound.add(f"{offering.pool.spec.placement.group} in {zone}")
            return 0
        if headroom.allowed(offering) < (wanted if left is None else min(wanted, left)):
            hurdles.over_limit.add(offering.pool.name)
            return 0
        if left is None or left >= wanted:
            return wanted
        hurdles.used_up.add(str(offering.offer.pool_key))
        return max(0, left) if self.splits and not whole else 0
