"""Pods with constraints in the purchase of a pass: cheaper together, and where kube-scheduler lets them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.actions import OpenClaims, PurchaseTally
from fleet.scheduling import cycle
from fleet.snapshot import Claim, Pod, PodSet
from fleet.snapshot.constraints import PodAffinityTerm, PodConstraints, PodHostPort, TopologySpreadConstraint
from model import labels
from model.fleet import Fleet
from model.upstream.selectors import LabelSelectorRequirement
from tests.fleet.scheduling.test_joint_purchase import EIGHT, ONE, OTHER, TWIN, kinds, market
from tests.support.fleets import GPU, NOW, A, B, FleetBuilder, amounts, gang, node_of, offering, pod_set
from tests.support.scheduler_judge import refused
from tests.support.world import World

HOST, ZONE, TYPE = labels.HOSTNAME, labels.ZONE, labels.INSTANCE_TYPE


def term(key: str, *apps: str) -> PodAffinityTerm:
    chosen = LabelSelectorRequirement(key="app", operator="In", values=apps or ("x",))
    return PodAffinityTerm(key, (chosen,), frozenset({"default"}))


def apart(key: str = HOST, *apps: str) -> PodConstraints:
    return PodConstraints(anti_affinity=(term(key, *apps),))


def near(key: str = HOST, *apps: str) -> PodConstraints:
    return PodConstraints(affinity=(term(key, *apps),))


def spread(key: str = ZONE, skew: int = 1) -> PodConstraints:
    return PodConstraints(spread=(TopologySpreadConstraint(key, skew, term(key).selector),))


PORT = PodConstraints(host_ports=(PodHostPort(80),))
NOTHING = PodConstraints()


def pods(asked: PodConstraints, count: int = 1, gpu: int = 1, app: str = "x", **more: Any) -> PodSet:
    asks = {"namespace": "default", "labels": (("app", app),), "constraints": asked}
    return pod_set("main", count, requests=amounts(gpu), **asks | more)


def fleet(**pool: Any) -> Fleet:
    spec = {"instanceFamilies": ["one", "eight", "twin", "other"], "serves": ["Gangs", "Pods"], **pool}
    builder = FleetBuilder().pool("all", **spec).team(quotas={"all": {GPU: 1000, "cpu": 10_000_000}})
    return builder.queue(flavors=["all"]).build()


def world_of(*sets: PodSet, types: Sequence[Any] = (ONE, EIGHT), **pool: Any) -> World:
    """A gang waits for each of the sets."""
    world = World(fleet(**pool), catalog=market(*types))
    for n, each in enumerate(sets):
        world.waits(gang(f"g{n:02d}", each, created_s=NOW - 100 + n))
    return world


def ordinary(*sets: PodSet) -> list[Pod]:
    """Pods of no gang, as many of each set as it counts."""
    made = Pod("", "default", "", "", "Pending", {}, controlled=True, waits_since_s=NOW - 60)
    return [
        replace(
            made,
            uid=f"uid-{n}-{i}",
            name=f"p{n}-{i}",
            requests=each.requests,
            labels=each.labels,
            constraints=each.constraints,
            shape=replace(each, count=1),
        )
        for n, each in enumerate(sets)
        for i in range(each.count)
    ]


def buy(world: World) -> tuple[list[Claim], PurchaseTally | None]:
    actions = cycle.decide(world.fleet, world.snapshot())
    world.apply(actions)
    opened = [it for it in actions if isinstance(it, OpenClaims)]
    claims = [claim for it in opened for claim in it.claims]
    return claims, next((it.tally for it in opened if it.tally), None)


def stands(world: World) -> list[tuple[PodSet, str]]:
    """Every pod that has a place, with the machine, in the order of the pass: who is spread goes before its like."""
    gangs = [(it, pin) for _, it in sorted(world.gangs.items()) for pin in it.pins]
    found = [(it.pod_set(pin.pod_set), pin.claim) for it, pin in gangs for _ in range(pin.count)]
    for pod in sorted(world.pods.values(), key=lambda it: (not it.constraints.spread, it.name)):
        verdict = world.pod_verdicts.get(pod.uid)
        if pod.shape is not None and verdict is not None and verdict.nominated:
            found.append((pod.shape, verdict.claim))
    return found


def accepted(world: World) -> list[str]:
    """What the judge has against where the pods stand, once all that is bought is there."""
    nodes = {}
    for name, claim in world.claims.items():
        where = claim.capacity_pool
        bought = offering(world.fleet, world.catalog, "all", where.instance_type, where.zone, where.capacity_type)
        nodes[name] = replace(node_of(claim, bought), name=name, taints=())
        nodes[name] = replace(nodes[name], labels={**nodes[name].labels, HOST: name})
    return refused(nodes, stands(world))


FREE = [pods(NOTHING, app="free") for _ in range(7)]


@pytest.mark.parametrize(
    ("sets", "machines", "usd_h"),
    [
        pytest.param([pods(apart(), 3), *FREE], {"eight.large": 1, "one.large": 2}, 12.0, id="apart by host"),
        pytest.param([*(pods(apart()) for _ in range(3)), *FREE], {"eight.large": 1, "one.large": 2}, 12.0, id="jobs"),
        pytest.param([pods(PORT, 3), *FREE], {"eight.large": 1, "one.large": 2}, 12.0, id="a host port"),
        pytest.param([pods(spread(HOST, 2), 4), *FREE[1:]], {"eight.large": 1, "one.large": 2}, 12.0, id="two a host"),
        pytest.param([pods(near(ZONE), 4), *FREE[3:]], {"eight.large": 1}, 9.6, id="near by zone"),
        pytest.param([*(pods(near(ZONE)) for _ in range(8))], {"eight.large": 1}, 8.0, id="jobs near by zone"),
        pytest.param([pods(spread(), 6), *FREE[2:]], {"eight.large": 1, "one.large": 3}, 13.2, id="spread over zones"),
        pytest.param([pods(apart(ZONE), 2), *FREE], {"eight.large": 1, "one.large": 1}, 10.8, id="apart by zone"),
        pytest.param([pods(near()) for _ in range(5)], {"eight.large": 1}, 8.0, id="near by host"),
        pytest.param([pods(near()), *FREE], {"eight.large": 1}, 9.6, id="one that is near itself alone"),
    ],
)
def test_what_is_bought_together(sets: list[PodSet], machines: dict[str, int], usd_h: float) -> None:
    """`usd_h`: what it costs gang by gang."""
    world = world_of(*sets)
    claims, tally = buy(world)
    assert kinds(claims) == machines
    assert tally is not None
    assert tally.one_kind_usd_h == pytest.approx(usd_h)
    assert all(it.pins for it in world.gangs.values())
    assert accepted(world) == []


def test_pods_of_nobody_are_bought_for_alike() -> None:
    world = world_of()
    world.pods = {pod.key: pod for pod in ordinary(pods(apart(), 3), *FREE)}
    assert kinds(buy(world)[0]) == {"eight.large": 1, "one.large": 2}
    assert accepted(world) == []


def test_who_follows_another_onto_its_machine_stays_where_it_was_planned() -> None:
    """What they ask is in no programme: their machine is not exchanged, and others on it stay as well."""
    leader, follower = pods(NOTHING, gpu=2, app="leader"), pods(near(HOST, "leader"), app="follower")
    world = world_of(leader, follower, *FREE, types=(EIGHT, ONE, OTHER))
    buy(world)
    nodes = {name: {pin.claim for pin in world.gang(name).pins} for name in ("g00", "g01")}
    assert nodes["g00"] == nodes["g01"] != set()
    assert accepted(world) == []


LEADERS_APART = pods(apart(HOST, "leader"), 2, app="leader")


@pytest.mark.parametrize(
    ("leader", "workers", "machines"),
    [
        pytest.param(pods(NOTHING, app="leader"), 3, {"eight.large": 1}, id="one leader"),
        pytest.param(pods(NOTHING, 2, app="leader"), 6, {"eight.large": 1, "one.large": 1}, id="two on one machine"),
        pytest.param(
            pods(apart(HOST, "leader"), 2, app="leader"), 6, {"eight.large": 1, "one.large": 1}, id="one alone"
        ),
        pytest.param(pods(apart(HOST, "leader"), 2, app="leader"), 12, {"eight.large": 2}, id="workers beside both"),
    ],
)
def test_a_gang_whose_workers_follow_its_leaders(leader: PodSet, workers: int, machines: dict[str, int]) -> None:
    """Other gangs come beside them where there is room left; none of their machines is exchanged for a smaller one."""
    world = world_of()
    follow = replace(pods(near(HOST, "leader"), workers, app="worker"), name="workers")
    world.waits(gang("led", replace(leader, name="leaders"), follow, created_s=NOW - 100))
    world.waits(gang("free", pods(NOTHING, app="free"), created_s=NOW - 99))
    claims, _ = buy(world)
    assert not waiting(world)
    assert kinds(claims) == machines
    assert accepted(world) == []


@pytest.mark.parametrize(
    ("gpus", "first", "machines", "waits"),
    [
        pytest.param(3, True, {"eight.large": 1}, 0, id="one machine for the leader and two"),
        pytest.param(3, False, {"eight.large": 1, "one.large": 1}, 0, id="and for two who have come before it"),
        pytest.param(4, True, {"eight.large": 1}, 1, id="room for one of them"),
        pytest.param(4, False, {"eight.large": 1, "one.large": 1}, 1, id="and for one who has come before it"),
    ],
)
def test_gangs_that_follow_another_find_room_on_its_machine(
    gpus: int, first: bool, machines: dict[str, int], waits: int
) -> None:
    """Whoever comes first; a machine with one GPU would do for the leader. Another gang is between them."""
    world = world_of()
    sets = [pods(near(HOST, "leader"), gpu=gpus, app="worker")] * 2
    for n, each in enumerate(sets):
        world.waits(gang(f"work{n}", each, created_s=NOW - 50 + n))
    world.waits(gang("lead", pods(NOTHING, app="leader"), created_s=NOW - (99 if first else 10)))
    world.waits(gang("free", pods(NOTHING, app="free"), created_s=NOW - 70))
    claims, _ = buy(world)
    more, _ = buy(world)
    assert (kinds([*claims, *more]), len(waiting(world))) == (machines, waits)
    assert all("spec.affinity.podAffinity" in words for words in waiting(world).values())
    assert accepted(world) == []


# -- whose pods keep near each other ----------------------------------------------------------------------------------


def waiting(world: World) -> dict[str, str]:
    return {it.job.name: it.message for it in world.gangs.values() if not it.pins}


def test_one_machine_holds_all_that_keep_near_each_other_where_one_can() -> None:
    world = world_of(*(pods(near()) for _ in range(8)))
    assert kinds(buy(world)[0]) == {"eight.large": 1}
    assert len({pin.claim for it in world.gangs.values() for pin in it.pins}) == 1


def test_a_machine_that_stands_is_taken_where_it_holds_all() -> None:
    world = world_of(*(pods(near()) for _ in range(4)))
    world.machine("small", "all", "one.large")
    world.machine("large", "all", "eight.large")
    assert buy(world)[0] == []
    assert {pin.claim for it in world.gangs.values() for pin in it.pins} == {"large"}


def test_room_for_the_first_alone_is_left_for_a_machine_that_holds_all() -> None:
    """On the machine that stands the first would run at once, and the others never."""
    world = world_of(*(pods(near()) for _ in range(4)))
    world.machine("small", "all", "one.large")
    assert kinds(buy(world)[0]) == {"eight.large": 1}
    assert not waiting(world)


def test_with_quota_for_one_it_runs_where_there_is_room() -> None:
    builder = FleetBuilder().pool("all", instanceFamilies=["one", "eight"])
    small = builder.team(quotas={"all": {GPU: 1, "cpu": 10_000_000}}).queue(flavors=["all"]).build()
    world = World(small, catalog=market(ONE, EIGHT))
    world.machine("small", "all", "one.large")
    for n in range(4):
        world.waits(gang(f"g{n:02d}", pods(near()), created_s=NOW - 100 + n))
    assert buy(world)[0] == []
    assert [pin.claim for it in world.gangs.values() for pin in it.pins] == ["small"]


def test_as_many_as_one_machine_holds_and_the_rest_is_told_why() -> None:
    world = world_of(*(pods(near()) for _ in range(10)))
    assert kinds(buy(world)[0]) == {"eight.large": 1}
    assert set(waiting(world)) == {"g08", "g09"}
    assert all(
        "pods like it keep to one machine, and theirs has no room for more" in it for it in waiting(world).values()
    )
    world.settle_down()
    assert (set(waiting(world)), len(world.claims)) == ({"g08", "g09"}, 1)
    assert accepted(world) == []


def test_a_machine_is_as_large_as_those_who_have_quota_need() -> None:
    builder = FleetBuilder().pool("all", instanceFamilies=["one", "other", "eight"])
    small = builder.team(quotas={"all": {GPU: 3, "cpu": 10_000_000}}).queue(flavors=["all"]).build()
    world = World(small, catalog=market(ONE, OTHER, EIGHT))
    for n in range(8):
        world.waits(gang(f"g{n:02d}", pods(near()), created_s=NOW - 100 + n))
    assert kinds(buy(world)[0]) == {"other.large": 1}, "four GPUs for three pods, not eight"
    assert len(waiting(world)) == 5


def test_a_limit_that_forbids_the_large_machine_leaves_the_smaller_one() -> None:
    world = world_of(*(pods(near()) for _ in range(8)), types=(ONE, OTHER, EIGHT), limits={"usdPerHour": 5})
    assert kinds(buy(world)[0]) == {"other.large": 1}
    assert len(waiting(world)) == 4


def test_pods_of_one_gang_that_no_machine_holds_together_are_told_so() -> None:
    world = world_of(pods(near(), 9))
    assert buy(world)[0] == []
    assert "no machine its pools may buy in zone-a holds the 9 pods of main, which keep to one machine" in str(
        waiting(world)
    ).replace(A, "zone-a").replace(B, "zone-a")


def test_the_zone_is_one_in_which_all_find_machines() -> None:
    """The first alone would be cheapest where there is a single machine left of its kind, and the others would wait."""
    world = world_of(*(pods(near(ZONE), gpu=4) for _ in range(4)), types=(OTHER, EIGHT))
    offers = [it if it.zone == B or it.instance_type == OTHER else None for it in world.catalog.offers]
    cheap = [replace(it, price_usd_h=3.0) if it.zone == A else it for it in offers if it is not None]
    world.catalog = replace(world.catalog, offers=tuple(cheap))
    claims, _ = buy(world)
    assert {claim.capacity_pool.zone for claim in claims} in ({A}, {B})
    assert not waiting(world)
    assert accepted(world) == []


# -- whatever waits ---------------------------------------------------------------------------------------------------

KEYS = st.sampled_from([HOST, HOST, ZONE, TYPE])
APPS = st.sampled_from(["x", "y", "z"])


@st.composite
def asked(draw: st.DrawFn) -> PodConstraints:
    kind = draw(st.integers(0, 6))
    if kind == 0:
        return apart(draw(KEYS), draw(APPS))
    if kind == 1:
        return near(draw(KEYS), draw(APPS))
    if kind == 2:
        return spread(draw(st.sampled_from([HOST, ZONE])), draw(st.integers(1, 3)))
    if kind == 3:
        return PORT
    if kind == 4:
        return replace(apart(HOST, draw(APPS)), spread=spread(ZONE).spread)
    return NOTHING


SETS = st.tuples(asked(), st.integers(1, 4), st.sampled_from([1, 1, 2, 4]), APPS)
GANGS = st.lists(SETS, min_size=1, max_size=2)
Asked = tuple[PodConstraints, int, int, str]


def drawn(each: Asked) -> PodSet:
    """Who is spread counts among those over whom it is spread: else the order in which pods come would decide."""
    constraints, count, gpu, app = each
    return pods(constraints, count, gpu, "x" if constraints.spread else app)


@settings(max_examples=60)
@given(st.lists(GANGS, min_size=1, max_size=5), st.lists(SETS, max_size=3), st.sampled_from([None, 25]))
def test_what_is_bought_together_is_never_dearer_and_accepted(
    gangs: list[list[Asked]], nobodys: list[Asked], usd_h: int | None
) -> None:
    """Held against what is bought gang by gang, which the judge refuses where the order in which pods come decides."""
    limits = {} if usd_h is None else {"limits": {"usdPerHour": usd_h}}

    def waits() -> World:
        world = world_of(types=(ONE, EIGHT, OTHER), **limits)
        for n, sets in enumerate(gangs):
            named = (replace(drawn(each), name=f"s{i}") for i, each in enumerate(sets))
            world.waits(gang(f"g{n:02d}", *named, created_s=NOW - 100 + n))
        world.pods = {pod.key: pod for pod in ordinary(*map(drawn, nobodys))}
        return world

    world, plain = waits(), waits()
    claims, tally = buy(world)
    with patch.object(cycle.AdmissionPass, "_buy_together", lambda _: None):
        one_by_one, _ = buy(plain)
    cost, beside = sum(claim.price_usd_h for claim in claims), world.fleet.policy.spec.usd_per_hour_per_machine
    most = sum(claim.price_usd_h + beside for claim in one_by_one)
    assert cost + beside * len(claims) <= most + 1e-6, "with what a machine costs beside its price"
    assert tally is None or tally.cost_usd_h <= cost + 1e-6, "without who stays"
    assert usd_h is None or cost <= usd_h + 1e-6
    assert len(stands(world)) == len(stands(plain))
    assert accepted(world) == [] or accepted(plain) != []
    used = {place for _, place in stands(world)}
    assert {claim.name for claim in claims} == used, "none idle"


# -- minValues --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("least", "machines"), [(2, {"eight.large": 1}), (3, {"one.large": 8})])
def test_min_values_are_those_of_the_pool_that_is_bought_of(least: int, machines: dict[str, int]) -> None:
    """Of two pools of equal weight the one asks for nothing, the other for so many types."""
    values = {"key": TYPE, "operator": "Exists", "minValues": least}
    builder = FleetBuilder().pool("plain", instanceFamilies=["one"], serves=["Pods"])
    builder.pool("choosy", instanceFamilies=["eight", "twin"], requirements=[values], serves=["Pods"])
    world = World(
        builder.team(quotas={"plain": {GPU: 9}}).queue(flavors=["plain"]).build(), catalog=market(ONE, EIGHT, TWIN)
    )
    world.pods = {pod.key: pod for pod in ordinary(*FREE, pods(NOTHING, app="free", gpu=1, node_selector={ZONE: A}))}
    assert kinds(buy(world)[0]) == machines


def test_min_values_are_counted_in_the_zone_that_constraints_leave() -> None:
    """The twin is sold in one zone: in the other one nothing but the large type would hold eight."""
    values = {"key": TYPE, "operator": "Exists", "minValues": 2}
    world = world_of(pods(spread(), 16), types=(ONE, EIGHT, TWIN), requirements=[values])
    offers = (it for it in world.catalog.offers if it.instance_type != TWIN or it.zone == A)
    world.catalog = replace(world.catalog, offers=tuple(offers))
    bought = Counter((it.capacity_pool.zone, it.capacity_pool.instance_type) for it in buy(world)[0])
    assert bought == {(A, "eight.large"): 1, (B, "one.large"): 8}
    assert accepted(world) == []
