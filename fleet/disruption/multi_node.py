"""Consolidation of many machines by one integer programme: the fleet as `fleet.optimize.consolidate` sees it.

What it suggests is a choice of machines to go and to buy, step by step. Whether a step is carried out is for
`evaluation` to say, which places the gangs anew; here nothing is promised to anybody.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from fleet.actions import gang_subject
from fleet.cost.lost_work import PAYBACK_S, lost_work_usd
from fleet.disruption.context import DisruptionContext
from fleet.disruption.evaluation import eviction_cost
from fleet.fence import concerning
from fleet.mig.layouts import gpu_part
from fleet.nodeclaims.capacity_buffers import pods_of_buffers
from fleet.offerings.offerings import Offering
from fleet.optimize.consolidate import (
    ConsolidationProblem,
    ConsolidationRules,
    ConsolidationStep,
    PodBlock,
    PodClass,
    ReplacementKind,
    StandingMachine,
    solve,
)
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import PODS, ClusterState, NodeSlot
from fleet.placement.domains import Place
from fleet.placement.flavor_nodes import FleetFlavors
from fleet.placement.inventory import build_capacity, build_cluster_state
from fleet.placement.machine_caps import DomainLabel, MachineCaps, domains_on, is_in
from fleet.placement.plan import Need
from fleet.placement.pod_filter import company
from fleet.reasons import Reason
from fleet.scheduling.catalog import OfferingCatalog
from fleet.snapshot import Claim, Gang, Pin, PodSet
from fleet.snapshot.lookups import holders
from model import labels
from model.pools import capacity_rank
from model.quantity import CPU, Resources

MOST_HOSTS: Final = 1000
"""Machines beside the candidates whose free room is looked at, roomiest first."""
MOST_WAYS: Final = 400
"""Ways in which gangs on several machines may move, one for each zone where the zone matters: what the search takes
grows with them. Machines whose gangs would bring more are left for the next plan."""
LEAST_USD: Final = 0.01
"""What moving a gang counts at least: nothing moves for nothing."""
LEAST_SHARE: Final = 0.1
"""Of it is what pods count that would rather go."""
_PLANNED = frozenset({"", labels.ZONE, labels.HOSTNAME})
"""What pods may have to share for the plan to know where they may go."""
_OWN_LABELS = frozenset({labels.HOSTNAME, labels.NODE_NAME, labels.NODE_CLAIM})
"""Different on every machine."""
_Domains = frozenset[DomainLabel]


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A suggestion names machines that should go together, and what should come first."""

    claims: tuple[Claim, ...]
    bought: tuple[Offering, ...]


def suggestions(context: DisruptionContext, candidates: Sequence[Claim]) -> list[Suggestion]:
    """Returns what to give back of the candidates, best first; each suggestion holds by itself."""
    translated = MultiNodeProblem.of(context, candidates)
    if translated is None:
        return []
    return [translated.suggestion(step) for step in solve(translated.problem()).steps]


@dataclass(slots=True)
class MultiNodeProblem:
    """The machines and gangs of a pass as a `ConsolidationProblem`, and its steps as machines again."""

    context: DisruptionContext
    going: Mapping[str, Claim]
    gangs: Sequence[Gang]
    """Those that may move: all that stand on the candidates."""
    state: ClusterState
    capacity: BuyableCapacity
    flavors: FleetFlavors
    needs: dict[str, list[Need]] = field(default_factory=dict)
    """Gang -> what its pod sets need, in their order."""
    kinds: dict[str, NodeSlot] = field(default_factory=dict)
    """Kind of standing machine -> one of it."""
    caps: MachineCaps = field(init=False)
    """What their constraints make of machines."""
    market: OfferingCatalog = field(init=False)
    _left: Mapping[Place, Resources] = field(init=False)
    """What is left of the caps, where somebody takes any."""
    _classes: dict[Hashable, PodClass] = field(default_factory=dict)
    _of_need: dict[tuple[str, str, _Domains], str] = field(default_factory=dict)
    """(gang, pod set, domains that its pods keep to) -> class."""

    @classmethod
    def of(cls, context: DisruptionContext, candidates: Sequence[Claim]) -> "MultiNodeProblem | None":
        """Returns the problem of a pass; None where nobody on the candidates could be moved by this."""
        standing = (*holders(context.snapshot), *pods_of_buffers(context.fleet, context.snapshot))
        state = build_cluster_state(context.snapshot, standing)
        capacity = build_capacity(context.fleet, context.snapshot)
        made = cls(context, {}, (), state, capacity, FleetFlavors(context.fleet, capacity.offerings, state))
        tenants = {gang.uid: gang for claim in candidates for gang in context.gangs_on(claim)}
        asked = (pods for _, gang in sorted(tenants.items()) for pods in gang.pod_sets)
        made.caps = MachineCaps.of(state.neighbours, asked, standing=True)
        made._left = made.caps.left()
        made.market = OfferingCatalog(capacity, made.caps.capacity)
        made.going = {claim.name: claim for claim in made._within_ways(it for it in candidates if made._movable(it))}
        gangs = {gang.uid: gang for claim in made.going.values() for gang in context.gangs_on(claim)}
        made.gangs = [gangs[uid] for uid in sorted(gangs)]
        return made if made.gangs else None

    def _within_ways(self, claims: Iterable[Claim]) -> Iterator[Claim]:
        """Returns those whose gangs, with the gangs on those before, have no more than `MOST_WAYS`."""
        zones = max(1, len({slot.labels.get(labels.ZONE, "") for slot in self.state.slots.values()}))
        known: dict[str, int] = {}
        for claim in claims:
            mine = {gang.uid: _ways(gang, zones) for gang in self.context.gangs_on(claim)}
            if sum((known | mine).values()) <= MOST_WAYS:
                known |= mine
                yield claim

    def _movable(self, claim: Claim) -> bool:
        """Returns whether the plan can tell where the gangs on a machine may go, by their topology and flavors.

        Topology domains below the zone are too many for the plan; what shares a host is one large pod in it.
        """
        gangs = self.context.gangs_on(claim)
        return bool(gangs) and all(map(self._places_known, gangs))

    def _places_known(self, gang: Gang) -> bool:
        if not self.flavors.declared(gang):
            return False
        if not all(map(self._reduces, gang.pod_sets)):
            return False  # the plan knows nothing of what they ask of others; one machine at a time does
        return all(pin.node in self.state.slots for pin in gang.pins)

    def _reduces(self, pods: PodSet) -> bool:
        if pods.wishes or pods.required_topology not in _PLANNED:
            return False
        return not self.caps.stays(pods) and not self._has_company(pods)

    def _has_company(self, pods: PodSet) -> bool:
        """Returns whether pods share a machine with others that they keep near: those would have to come along."""
        return self.caps.gathers(pods) is not None and company(self.state.neighbours, pods) > pods.count

    def problem(self) -> ConsolidationProblem:
        """Returns the machines, the gangs on the candidates, and what may be bought, in the solver's words."""
        standing = list(self._standing())
        for gang in self.gangs:
            with concerning(gang_subject(gang.uid)):
                self.needs[gang.uid] = [self.flavors.need_of(gang, pods) for pods in gang.needed]
        needs = [(gang, need) for gang in self.gangs for need in self.needs[gang.uid]]
        for gang, need in needs:
            self._classify(gang, need)
        classes = tuple(self._classes.values())
        pools = sorted({pool.name for _, need in needs for pool in need.pools})
        return ConsolidationProblem(
            resources=self.market.resources((name for it in classes for name in it.requests), pools),
            classes=classes,
            standing=tuple(standing),
            blocks=tuple(self._block(gang) for gang in self.gangs),
            kinds=tuple(self._buyables()),
            budgets={name: self.context.budget(name, Reason.UNDERUTILIZED) for name in self._pools()},
            limits=tuple(self.market.limits_of(pools)),
            rules=ConsolidationRules(payback_h=PAYBACK_S / 3600),
        )

    def _pools(self) -> list[str]:
        return sorted({claim.node_pool for claim in self.going.values()})

    def _zones(self) -> frozenset[str]:
        return frozenset(claim.capacity_pool.zone for claim in self.going.values())

    def _capacity_types(self) -> Mapping[str, frozenset[str]]:
        """Returns for each pool the capacity types that may come: those it likes best, and those that go."""
        found = {
            name: {it for it in pool.spec.capacity_types if not capacity_rank(pool, it)}
            for name, pool in self.context.fleet.node_pools.items()
        }
        for claim in self.going.values():
            found[claim.node_pool].add(claim.capacity_pool.capacity_type)
        return {name: frozenset(those) for name, those in found.items()}

    def _standing(self) -> Iterator[StandingMachine]:
        """Returns the candidates, other machines that their gangs stand on, and of the rest those with most room."""
        theirs = {pin.node for gang in self.gangs for pin in gang.pins}
        hosts: list[NodeSlot] = []
        for slot in sorted(self.state.slots.values(), key=lambda slot: slot.name):
            claim = self.going.get(slot.claim)
            if claim is not None:
                yield self._machine(slot, claim)
            elif slot.name in theirs:
                yield self._machine(slot, None)
            elif slot.free.get(PODS, 0) > 0 and slot.claim not in self.context.taken and not slot.only_for:
                hosts.append(slot)
        hosts.sort(key=lambda it: (-sum(gpu_part(it.free).values()), -it.free.get(CPU, 0), it.name))
        for slot in hosts[:MOST_HOSTS]:
            yield self._machine(slot, None)

    def _machine(self, slot: NodeSlot, claim: Claim | None) -> StandingMachine:
        kind = repr((slot.pool, sorted(it for it in slot.labels.items() if it[0] not in _OWN_LABELS), slot.taints))
        self.kinds.setdefault(kind, slot)
        free = {**slot.free, **self._left.get(slot, self.caps.capacity)}
        return StandingMachine(
            name=claim.name if claim else f"host {slot.name}",
            kind=kind,
            price_usd_h=claim.price_usd_h + self.market.supply.machine_usd_h if claim else 0.0,
            free={resource: max(0, amount) for resource, amount in free.items()},
            pool=claim.node_pool if claim else "",
            domain=slot.labels.get(labels.ZONE, ""),
            spot=claim is not None and claim.capacity_pool.capacity_type == "spot",
            may_go=claim is not None,
        )

    def _classify(self, gang: Gang, need: Need) -> None:
        requests = {**need.pod_set.requests, PODS: 1, **self.caps.taken(need.pod_set)}
        if self._on_one_host(need.pod_set):
            requests = {name: amount * need.pod_set.count for name, amount in requests.items()}
        for domains in {self._domains(gang, pin) for pin in gang.pins if pin.pod_set == need.pod_set.name}:
            asked = (need.kind, tuple(sorted(requests.items())), domains)
            if asked not in self._classes:
                name = f"{len(self._classes):05d}"
                self._classes[asked] = PodClass(name, requests, self._kinds_for(need, domains))
            self._of_need[gang.uid, need.pod_set.name, domains] = self._classes[asked].name

    def _kinds_for(self, need: Need, domains: _Domains) -> frozenset[str]:
        kinds = ((name, slot) for name, slot in self.kinds.items() if need.accepts(slot))
        standing = frozenset(name for name, slot in kinds if is_in(slot.labels, domains))
        return standing | self.market.kinds_in(need, self._zones(), self._capacity_types(), domains)

    def _domains(self, gang: Gang, pin: Pin) -> _Domains:
        """Returns the domains in which pods stay, so that whoever counts them by domains still finds as many."""
        keys = self.caps.keys(gang.pod_set(pin.pod_set))
        return frozenset(domains_on(self.state.slots[pin.node].labels, keys))

    def _block(self, gang: Gang) -> PodBlock:
        """Returns a gang as the solver moves it: whole, at the price of the work that is lost."""
        places: dict[str, dict[str, int]] = {}
        for pin in gang.pins:
            held = places.setdefault(self._place(pin), {})
            name = self._of_need[gang.uid, pin.pod_set, self._domains(gang, pin)]
            held[name] = held.get(name, 0) + (1 if self._on_one_host(gang.pod_set(pin.pod_set)) else pin.count)
        one_domain = any(pods.required_topology == labels.ZONE for pods in gang.pod_sets)
        return PodBlock(gang.uid, places, moving_usd=self._moving_usd(gang), one_domain=one_domain)

    def _moving_usd(self, gang: Gang) -> float:
        """Returns what moving it counts: the work that is lost; ordinary pods lose none, and go by their eviction cost.

        That chooses between machines that save the same, and is too little to keep any where it is.
        """
        if gang.ordinary:
            return LEAST_USD * max(LEAST_SHARE, eviction_cost(gang.deletion_cost, gang.effective_priority))
        return max(LEAST_USD, lost_work_usd(gang, self.context.snapshot))

    def _on_one_host(self, pods: PodSet) -> bool:
        return pods.required_topology == labels.HOSTNAME or self.caps.gathers(pods) is not None

    def _place(self, pin: Pin) -> str:
        return pin.claim if pin.claim in self.going else f"host {pin.node}"

    def _buyables(self) -> Iterator[ReplacementKind]:
        for name, kind in self.market.kinds.items():
            offer = self.market.offerings[name].offer
            yield ReplacementKind(
                kind.name,
                kind.price_usd_h,
                kind.capacity,
                domain=offer.zone,
                spot=offer.capacity_type == "spot",
                type=offer.instance_type.name,
            )

    def suggestion(self, step: ConsolidationStep) -> Suggestion:
        """Returns a step of the solver in claims and offerings."""
        offerings = tuple(self.market.offerings[it.kind] for it in step.bought)
        return Suggestion(tuple(self.going[name] for name in step.removed), offerings)


def _ways(gang: Gang, zones: int) -> int:
    """Counts the ways in which a gang may move; for the plan a gang on one machine is no more than pods there."""
    if any(pods.required_topology == labels.ZONE for pods in gang.pod_sets):
        return zones
    return 1 if len({pin.node for pin in gang.pins}) > 1 else 0
