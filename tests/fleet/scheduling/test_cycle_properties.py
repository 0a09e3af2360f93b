"""Whatever waits and runs: the input's order does not matter, quota holds, decisions are stable, nobody thrashes."""

from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.actions import Action, OpenClaims, SaveClaim, SaveGang
from fleet.quota.build_tree import quota_specs, usage_of
from fleet.quota.tree import charge, fits
from fleet.scheduling import cycle
from fleet.snapshot import Gang, GangState, PodSet, Snapshot
from model import labels
from tests.support.checker import over_limits
from tests.support.fleets import GPU, NOW, P5, P5S, A, B, FleetBuilder, amounts, gang
from tests.support.world import World

TEAMS = ("a", "b", "c")
SMALL, LARGE = labels.MIG_RESOURCE_PREFIX + "1g.10gb", labels.MIG_RESOURCE_PREFIX + "3g.40gb"
policies = st.fixed_dictionaries(
    {
        "withinQueue": st.sampled_from(("Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority")),
        "reclaim": st.sampled_from(("Never", "LowerPriority", "Any", "Any")),
        "whileBorrowing": st.sampled_from(("Never", "LowerPriority")),
    }
)


@st.composite
def quotas(draw: st.DrawFn) -> dict[str, Any]:
    """Eight GPUs more or less, with limits now and then."""
    quota: dict[str, Any] = {"guaranteed": {GPU: draw(st.sampled_from((0, 4, 8, 8, 16)))}}
    for limit in ("borrowingLimit", "lendingLimit"):
        if draw(st.integers(0, 4)) == 0:
            quota[limit] = {GPU: draw(st.sampled_from((0, 4, 8)))}
    return quota


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Three teams, two pools (one cut by MIG), a few machines, running gangs that fit, more that wait.

    Each team has two namespaces; some queues let the one go first that used less lately.
    """
    builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
    builder.layout("large", h100_80gb=[{"profiles": {"3g.40gb": 2}}])
    builder.pool("h100", instanceTypes=[P5.name, P5S.name], limits={"nodes": draw(st.integers(0, 5))})
    builder.pool("mig", limits={"nodes": draw(st.integers(0, 2))}, sharing={"mig": {"layouts": ["small", "large"]}})
    builder.team("org", quotas={"h100": draw(quotas())}, namespaces=[])
    for team in TEAMS:
        parent = draw(st.sampled_from(("org", "org", "a"))) if team == "c" else "org"
        cells = {"h100": draw(quotas()), "mig": {"cpu": "999"}}
        builder.team(
            team, cells, parent=parent, namespaces=[team, f"{team}2"], weight=draw(st.sampled_from((0.5, 1.0, 2.0)))
        )
        builder.queue(
            f"q{team}",
            team,
            ["h100", "mig"],
            order=draw(st.sampled_from(("BestEffortFIFO", "StrictFIFO"))),
            fairness=draw(st.sampled_from(("None", "DominantShare"))),
            preemption=draw(policies),
            **draw(st.sampled_from(({}, {"admissionFairSharing": {}}))),
        )
    builder.policy(admissionFairSharing={"usageHalfLifeTime": "1h"})
    world = World(builder.build())
    used = st.sampled_from((0.0, 1.0, 9.0))
    world.local_usage = {f"{team}{n}/q{team}": {GPU: draw(used)} for team in TEAMS for n in ("", "2")}
    for n in range(draw(st.integers(2, 5))):
        pool = draw(st.sampled_from(("h100", "h100", "h100", "mig")))
        world.machine(f"m{n}", pool, zone=draw(st.sampled_from((A, B))))
    world.waits(*[draw(gangs(n, 0)) for n in range(draw(st.integers(3, 8)))])
    start_who_can(world)
    world.waits(*[draw(gangs(10 + n, 1)) for n in range(draw(st.integers(1, 5)))])
    return world


@st.composite
def gangs(draw: st.DrawFn, number: int, importance: int) -> Gang:
    """One or two pod sets of GPUs or slices; priorities of two generations overlap."""
    team = draw(st.sampled_from(TEAMS))
    sets = []
    for n in range(draw(st.sampled_from((1, 1, 1, 2)))):
        resource = draw(st.sampled_from((GPU,) * 6 + (SMALL, LARGE)))
        amount = draw(st.sampled_from((1, 4, 8))) if resource == GPU else 1
        sets.append(PodSet(f"s{n}", draw(st.integers(1, 3)), {**amounts(), resource: amount}))
    return gang(
        f"g{number}",
        *sets,
        queue=f"q{team}",
        namespace=draw(st.sampled_from((team, f"{team}2"))),
        priority=importance + draw(st.integers(0, 1)),
        created_s=NOW - 900 + draw(st.integers(0, 3)),
    )


def start_who_can(world: World) -> None:
    """Lets those who wait run on the machines that are there, as far as they go."""
    world.apply(cycle.decide(world.fleet, world.snapshot(), may_buy=False))
    for uid, it in world.gangs.items():
        if it.state is GangState.ADMITTED:
            reserved = replace(it, admitted_at_s=NOW - 300, quota_reserved_at_s=NOW - 300)
            world.runs(reserved, pins=it.pins, flavors=it.flavors, pods=False)
        else:
            assert it.state in {GangState.PENDING, GangState.RESERVED}, uid


def decided(world: World) -> list[Action]:
    return cycle.decide(world.fleet, world.snapshot())


@settings(max_examples=120, deadline=None)
@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_changes_nothing(world: World, rng: Any) -> None:
    snapshot = world.snapshot()
    mixed = _mixed(snapshot, rng)
    assert cycle.decide(world.fleet, mixed) == cycle.decide(world.fleet, snapshot)


def _mixed(snapshot: Snapshot, rng: Any) -> Snapshot:
    def shuffled(table: Any) -> dict[str, Any]:
        entries = list(table.items())
        rng.shuffle(entries)
        return dict(entries)

    tables = ("nodes", "gangs", "claims", "jobs", "instances", "gang_pods", "node_pods", "shortages")
    mixed: dict[str, Any] = {name: shuffled(getattr(snapshot, name)) for name in tables}
    return replace(snapshot, **mixed)


@settings(max_examples=200, deadline=None)
@given(worlds())
def test_quota_limits_and_rooms_hold_after_a_pass(world: World) -> None:
    held_before = {uid for uid, it in world.gangs.items() if it.holds_capacity}
    actions = decided(world)
    saved = Counter(it.gang.uid for it in actions if isinstance(it, SaveGang))
    assert not [uid for uid, times in saved.items() if times > 1], "one decision a gang and pass"
    claims = Counter(it.claim.name for it in actions if isinstance(it, SaveClaim))
    assert not [name for name, times in claims.items() if times > 1]
    gone = {it.gang.uid for it in actions if isinstance(it, SaveGang) and it.gang.eviction}
    world.apply(actions)
    _check_quota(world, held_before - gone)
    _check_rooms(world)
    for name, pool in world.fleet.node_pools.items():
        mine = [claim for claim in world.claims.values() if claim.node_pool == name]
        if any(isinstance(it, OpenClaims) and it.claims[0].node_pool == name for it in actions):
            assert not over_limits(
                pool, [(it.price_usd_h, world.catalog.types[it.capacity_pool.instance_type].capacity) for it in mine]
            )


def _check_quota(world: World, held_before: set[str]) -> None:
    """Charging everybody who holds capacity, newcomers last, never needs more than is available."""
    tree = quota_specs(world.fleet).tree()
    holders = sorted((it for it in world.gangs.values() if it.holds_capacity), key=lambda it: it.uid not in held_before)
    for it in holders:
        queue = tree.queues[it.queue]
        usage = usage_of(quota_specs(world.fleet), tree, it.queue, it)
        if it.uid not in held_before and it.state in {GangState.ADMITTED, GangState.RESERVED}:
            assert fits(queue, usage), it.name
        charge(queue, usage)


def _check_rooms(world: World) -> None:
    """Every pod of every gang that holds capacity has its room, on machines that are as they will be."""
    room: dict[str, Counter[str]] = {}
    for claim in world.claims.values():
        node = world.nodes.get(claim.node)
        resources = claim.resources if node is None or claim.recut_at_s > claim.ready_at_s else node.allocatable
        room[claim.name] = Counter(dict(resources))
    for it in world.gangs.values():
        if not it.holds_capacity:
            continue
        pinned = Counter[str]()
        for pin in it.pins:
            pinned[pin.pod_set] += pin.count
            requests = it.pod_set(pin.pod_set).requests
            room[pin.claim].subtract(
                {name: amount * pin.count for name, amount in requests.items()} | {"pods": pin.count}
            )
        assert pinned == Counter({pod_set.name: pod_set.count for pod_set in it.pod_sets})
    for name, left in room.items():
        assert not {resource: amount for resource, amount in left.items() if amount < 0}, name


@settings(max_examples=120, deadline=None)
@given(worlds())
def test_deciding_again_changes_nothing_once_victims_are_told(world: World) -> None:
    """Nothing but the clock's business is left after a few passes without anybody leaving."""
    for _ in range(12):
        actions = decided(world)
        if not actions:
            break
        world.apply(actions)
    assert decided(world) == []


@settings(max_examples=120, deadline=None)
@given(worlds())
def test_two_gangs_never_evict_each_other_for_ever(world: World) -> None:
    """Victims vanish at once; after a while nobody is evicted any more."""
    evictions = Counter[str]()
    for _ in range(30):
        actions = decided(world)
        world.apply(actions)
        for it in actions:
            if isinstance(it, SaveGang) and it.gang.eviction and not it.gang.flavors:
                evictions[it.gang.uid] += 1
        leaving = [it for it in world.gangs.values() if it.state is GangState.EVICTING]
        for left in leaving:
            evictions[left.uid] += 1
            world.gangs[left.uid] = replace(
                left, state=GangState.PENDING, pins=(), flavors={}, recuts={}, eviction=None
            )
        _machines_join(world)
        world.now_s += 5
        if not actions:
            break
    assert decided(world) == [], evictions
    assert not evictions or max(evictions.values()) <= len(world.gangs)


def _machines_join(world: World) -> None:
    """Bought machines become ready, cuts are done, and gangs that wait for them are admitted."""
    for name, claim in list(world.claims.items()):
        if not claim.ready_at_s:
            del world.claims[name]
            where = claim.capacity_pool
            world.machine(name, claim.node_pool, where.instance_type, where.zone, where.capacity_type)
            if claim.layout != world.claims[name].layout:
                _cut(world, name, claim.layout, dict(claim.resources))
        elif claim.recut_at_s > claim.ready_at_s:
            _cut(world, name, claim.layout, dict(claim.resources))
    for uid, it in list(world.gangs.items()):
        if it.state is GangState.RESERVED:
            pins = tuple(replace(pin, node=world.claims[pin.claim].node) for pin in it.pins)
            world.gangs[uid] = replace(it, state=GangState.ADMITTED, pins=pins, recuts={}, admitted_at_s=world.now_s)


def _cut(world: World, name: str, layout: str, resources: dict[str, int]) -> None:
    claim = replace(world.claims[name], layout=layout, resources=resources)
    world.claims[name] = replace(claim, ready_at_s=max(world.now_s, claim.recut_at_s))
    node = world.nodes[claim.node]
    world.nodes[claim.node] = replace(node, labels={**node.labels, labels.MIG_CONFIG: layout}, allocatable=resources)
