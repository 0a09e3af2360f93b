"""Small worlds to buy machines in, drawn by hypothesis, and a judge of what was decided that shares no code with it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from bench.reference.karpenter.buy import (
    Daemon,
    HostPort,
    KarpenterNode,
    MachineType,
    Peers,
    PlannedClaim,
    PodSpecification,
    PoolTemplate,
    ReferenceOffering,
    Resident,
    SchedulingResults,
    Spread,
    WaitingPod,
    Weighted,
)
from bench.reference.karpenter.buy.order import identity
from model import labels
from model.kinds import Taint, Toleration
from model.requirements import Requirement, Requirements

ZONES = ("a", "b")
APPS = ("x", "y")
KEYS = (labels.ZONE, labels.ZONE, labels.HOSTNAME, labels.HOSTNAME, labels.CAPACITY_TYPE)
SPECIAL = Taint(key="special", value="", effect="NoSchedule")
TWO_TYPES = Requirements({labels.INSTANCE_TYPE: Requirement(complement=True, min_values=2)})
WARY = Taint(key="wary", value="", effect="PreferNoSchedule")


def of(**wanted: str) -> Requirements:
    return Requirements.from_labels(wanted)


def at(key: str, *values: str) -> Requirements:
    return Requirements({key: Requirement.one_of(*values)})


def machine(
    name: str,
    cpu: int,
    memory: int = 64,
    pods: int = 10,
    price: float | None = None,
    zones: Sequence[str] = ZONES,
    reserved: int = 0,
    spot: bool = False,
) -> MachineType:
    amounts = {"cpu": 1000 * cpu, "memory": memory, "pods": pods}
    cost = cpu if price is None else price
    offers = [ReferenceOffering("on-demand", zone, cost + number / 8) for number, zone in enumerate(zones)]
    if spot:
        offers.append(ReferenceOffering("spot", max(zones), cost / 2))
    if reserved:
        offers.append(ReferenceOffering("reserved", min(zones), 0.0, reservation_id="r", reserved_left=reserved))
    return MachineType(name, at(labels.INSTANCE_TYPE, name), amounts, amounts, tuple(offers))


def pods(ask: PodSpecification, count: int, name: str = "p") -> list[WaitingPod]:
    return [WaitingPod(f"{name}-{number:02}", ask) for number in range(count)]


# -- drawn ------------------------------------------------------------------------------------------------------------

_selectors = st.sampled_from([of(app=app) for app in APPS])
_keys = st.sampled_from(KEYS)
_peers = st.builds(Peers, _keys, _selectors)
_spreads = st.builds(
    Spread,
    _keys,
    _selectors,
    max_skew=st.integers(1, 2),
    hard=st.booleans(),
    min_domains=st.sampled_from([None, 2, 3]),
    honor_affinity=st.booleans(),
    honor_taints=st.booleans(),
)
_zones = st.sampled_from([at(labels.ZONE, zone) for zone in ZONES])
_terms = st.sampled_from([*(at(labels.ZONE, zone) for zone in ZONES), at(labels.CAPACITY_TYPE, "spot"), of(team="x")])


def _few(each: st.SearchStrategy[object], most: int = 1) -> st.SearchStrategy[tuple[object, ...]]:
    """Mostly none: who asks for everything at once gets nothing."""
    none: st.SearchStrategy[tuple[object, ...]] = st.just(())
    return st.one_of(none, none, none, st.lists(each, min_size=1, max_size=most).map(tuple))


def _weighted(each: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.builds(Weighted, st.integers(1, 3), each)


asks = st.builds(
    PodSpecification,
    requests=st.fixed_dictionaries(
        {"cpu": st.sampled_from([0, 500, 1000, 1500]), "memory": st.sampled_from([0, 5, 20])}
    ),
    labels=st.sampled_from(APPS).map(lambda app: {"app": app}),
    selector=st.one_of(*[st.just(Requirements())] * 4, _zones),
    required=_few(_terms, 2),
    preferred=_few(_weighted(_terms), 2),
    tolerations=st.sampled_from([(), (Toleration(operator="Exists"),)]),
    spreads=_few(_spreads),
    affinity=_few(_peers),
    preferred_affinity=_few(_weighted(_peers)),
    anti_affinity=_few(_peers),
    preferred_anti_affinity=_few(_weighted(_peers)),
    volumes=_few(_zones, 2),
    host_ports=st.sampled_from([*[frozenset()] * 5, frozenset({HostPort(80)})]),
)
machines = st.builds(
    machine,
    name=st.sampled_from(["small", "tall", "wide"]),
    cpu=st.sampled_from([2, 4, 8]),
    memory=st.integers(30, 64),
    pods=st.sampled_from([2, 4, 8]),
    zones=st.sampled_from([("a",), ("b",), ZONES]),
    reserved=st.sampled_from([0, 0, 0, 1, 2]),
    spot=st.booleans(),
)
_daemons = st.builds(
    Daemon,
    name=st.just("d"),
    requests=st.just({"cpu": 500}),
    alternatives=_few(st.sampled_from([at(labels.INSTANCE_TYPE, "tall"), of(team="x"), at(labels.ZONE, "b")])),
)
templates = st.builds(
    PoolTemplate,
    name=st.sampled_from(["one", "two"]),
    machines=st.lists(machines, min_size=1, max_size=3, unique_by=lambda each: each.name).map(tuple),
    requirements=st.sampled_from(
        [*[Requirements()] * 3, TWO_TYPES, at(labels.ZONE, "a"), of(team="x"), at(labels.CAPACITY_TYPE, "on-demand")]
    ),
    taints=st.sampled_from([(), (), (SPECIAL,), (WARY,)]),
    weight=st.integers(0, 1),
    remaining=st.sampled_from([None, None, {"cpu": 9000}, {"nodes": 2}]),
    daemons=_few(_daemons),
)
_residents = st.builds(
    Resident,
    labels=st.sampled_from(APPS).map(lambda app: {"app": app}),
    count=st.integers(1, 2),
    anti_affinity=_few(_peers),
    host_ports=st.sampled_from([frozenset(), frozenset({HostPort(80)})]),
)
nodes = st.builds(
    KarpenterNode,
    name=st.sampled_from(["n1", "n2", "n3"]),
    labels=st.builds(
        lambda zone, capacity_type: {labels.ZONE: zone, labels.CAPACITY_TYPE: capacity_type},
        st.sampled_from(ZONES),
        st.sampled_from(["spot", "on-demand"]),
    ),
    free=st.fixed_dictionaries({"cpu": st.integers(1000, 4000), "memory": st.just(30), "pods": st.integers(1, 4)}),
    taints=st.sampled_from([(), (), (SPECIAL,)]),
    initialized=st.booleans(),
    residents=_few(_residents, 2),
)


@dataclass(frozen=True)
class KarpenterWorld:
    classes: tuple[tuple[PodSpecification, int], ...]
    templates: tuple[PoolTemplate, ...]
    nodes: tuple[KarpenterNode, ...]

    def pods(self) -> list[WaitingPod]:
        """Classes come one after the other also by name."""
        return [
            WaitingPod(f"{number}-{index}", ask)
            for number, (ask, count) in enumerate(self.classes)
            for index in range(count)
        ]

    def singly(self) -> list[WaitingPod]:
        """The same pods, each of a class of its own by a label nobody looks at."""
        return [
            WaitingPod(pod.name, replace(pod.ask, labels={**pod.ask.labels, "solo": pod.name})) for pod in self.pods()
        ]


worlds = st.builds(
    KarpenterWorld,
    st.lists(st.tuples(asks, st.integers(1, 6)), min_size=1, max_size=4, unique_by=lambda each: identity(each[0])).map(
        tuple
    ),
    st.lists(templates, min_size=1, max_size=2, unique_by=lambda each: each.name).map(tuple),
    st.lists(nodes, max_size=3, unique_by=lambda each: each.name).map(tuple),
)


# -- seen -------------------------------------------------------------------------------------------------------------


def kind(pod: str) -> str:
    return pod.partition("-")[0]


def seen(outcome: SchedulingResults) -> object:
    """What was decided, equal pods not told apart."""
    return (
        [
            (claim.template, claim.requirements, claim.options, Counter(map(kind, claim.pods)))
            for claim in outcome.claims
        ],
        {node: Counter(map(kind, names)) for node, names in outcome.seats.items()},
        Counter(kind(name) for each in outcome.unplaced for name in each.pods),
    )


# -- judged -----------------------------------------------------------------------------------------------------------


def faults(world: KarpenterWorld, outcome: SchedulingResults) -> list[str]:
    """What is wrong with an outcome: pods lost or doubled, machines too small, rules broken between pods."""
    asked = {pod.name: pod.ask for pod in world.pods()}
    placed = [*(n for c in outcome.claims for n in c.pods), *(n for names in outcome.seats.values() for n in names)]
    found = (
        [] if Counter(placed + [n for u in outcome.unplaced for n in u.pods]) == Counter(list(asked)) else ["pods lost"]
    )
    pools = {template.name: template for template in world.templates}
    for claim in outcome.claims:
        found += _claim_faults(claim, pools[claim.template], asked)
    stand = {node.name: node for node in world.nodes}
    for name, names in outcome.seats.items():
        found += _seat_faults(stand[name], [asked[each] for each in names])
    found += _between(world, outcome, asked)
    left = max((o.reserved_left for t in world.templates for m in t.machines for o in m.offerings), default=0)
    if sum(bool(claim.reservations) for claim in outcome.claims) > left:
        found.append("more in the reservation than it has")
    return found


def _total(asks_there: Iterable[PodSpecification]) -> Counter[str]:
    total: Counter[str] = Counter()
    for ask in asks_there:
        total.update(ask.requests)
        total["pods"] += 1
    return total


def _meets(ask: PodSpecification, carried: Mapping[str, str]) -> bool:
    terms = ask.required or (Requirements(),)
    places = ask.volumes or (Requirements(),)
    return (
        ask.selector.matches(carried)
        and any(term.matches(carried) for term in terms)
        and any(place.matches(carried) for place in places)
    )


def _tolerates(ask: PodSpecification, taints: Iterable[Taint]) -> bool:
    hard = [taint for taint in taints if taint.effect != "PreferNoSchedule"]
    return all(any(each.tolerates(taint) for each in ask.tolerations) for taint in hard)


def _claim_faults(claim: PlannedClaim, pool: PoolTemplate, asked: Mapping[str, PodSpecification]) -> list[str]:
    there = [asked[name] for name in claim.pods]
    found = [f"{claim.name} has taints" for ask in there if not _tolerates(ask, pool.taints)]
    if not claim.options:
        return [*found, f"{claim.name} has no options"]
    if list(claim.options) != sorted(claim.options, key=lambda each: (each.price_usd_h, each.machine)):
        found.append(f"{claim.name} is not ordered by price")
    by_name = {each.name: each for each in pool.machines}
    total = _total(there)
    least = pool.requirements.of(labels.INSTANCE_TYPE).min_values or 0
    if len(claim.options) < least:
        found.append(f"{claim.name} is not flexible")
    for option in claim.options:
        small = by_name[option.machine]
        if any(amount > small.allocatable.get(name, 0) for name, amount in total.items()):
            found.append(f"{claim.name} does not fit {option.machine}")
        ways = [
            {**pool.requirements.labels(), labels.ZONE: o.zone, labels.CAPACITY_TYPE: o.capacity_type}
            for o in small.offerings
            if claim.requirements.of(labels.ZONE).has(o.zone)
            and claim.requirements.of(labels.CAPACITY_TYPE).has(o.capacity_type)
        ]
        if not ways:
            found.append(f"{claim.name} is nowhere")
        found += [f"{claim.name} may be {way}" for way in ways if not all(_meets(ask, way) for ask in there)]
    return found


def _seat_faults(node: KarpenterNode, there: list[PodSpecification]) -> list[str]:
    found = [f"{node.name} is full" for name, n in _total(there).items() if n > max(node.free.get(name, 0), 0)]
    found += [f"{node.name} has taints" for ask in there if not _tolerates(ask, node.taints)]
    return found + [f"{node.name} is elsewhere" for ask in there if not _meets(ask, node.labels)]


def _between(world: KarpenterWorld, outcome: SchedulingResults, asked: Mapping[str, PodSpecification]) -> list[str]:
    """Ports and required anti-affinity on one host; anti-affinity within a zone that is decided."""
    hosts: dict[str, tuple[str, list[tuple[PodSpecification | Resident, int]]]] = {}
    for node in world.nodes:
        standing: list[tuple[PodSpecification | Resident, int]] = [(each, each.count) for each in node.residents]
        come = [(asked[name], 1) for name in outcome.seats.get(node.name, ())]
        hosts[node.name] = (node.labels[labels.ZONE], [*standing, *come])
    for claim in outcome.claims:
        hosts[claim.name] = (claim.requirements.of(labels.ZONE).only or "", [(asked[name], 1) for name in claim.pods])
    found = []
    for name, (_, there) in hosts.items():
        fresh = [ask for ask, _ in there if isinstance(ask, PodSpecification)]
        if fresh and sum(count for ask, count in there if ask.host_ports) > _standing_ports(there, fresh):
            found.append(f"{name} has a port twice")
        found += [f"{name}: {each}" for each in _repelled(there, labels.HOSTNAME)]
    for zone in ZONES:
        inside = [entry for where, there in hosts.values() if where == zone for entry in there]
        found += [f"zone {zone}: {each}" for each in _repelled(inside, labels.ZONE)]
    return found


def _standing_ports(there: list[tuple[PodSpecification | Resident, int]], fresh: list[PodSpecification]) -> int:
    """How many may hold the port: one, or as many as did before anybody came."""
    standing = sum(count for each, count in there if isinstance(each, Resident) and each.host_ports)
    return standing if standing and not any(ask.host_ports for ask in fresh) else 1


def _repelled(there: list[tuple[PodSpecification | Resident, int]], key: str) -> list[str]:
    """New pods beside those they repel, or that repel them."""
    found = []
    for index, (each, count) in enumerate(there):
        for term in each.anti_affinity:
            if term.key != key or term.selector is None:
                continue
            for other, (peer, _) in enumerate(there):
                alone = index == other and count < 2
                old = isinstance(each, Resident) and isinstance(peer, Resident)
                if not alone and not old and term.selector.matches(peer.labels):
                    found.append(f"{each.labels} beside {peer.labels}")
    return found
