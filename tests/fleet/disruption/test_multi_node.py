"""Many machines given back as one plan: cheaper, within budgets, gangs whole, and then quiet."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fleet.actions import Action, OpenClaims, SaveClaim
from fleet.catalog import InstanceOffer, InstanceType
from fleet.disruption import multi_node
from fleet.disruption.context import DisruptionContext
from fleet.disruption.evaluation import ConsolidationMove, evaluate
from fleet.disruption.multi_node import suggestions
from fleet.disruption.outcomes import Blocked
from fleet.snapshot import GangState, Launch
from fleet.snapshot.constraints import PodAffinityTerm, PodConstraints, PodHostPort, TopologySpreadConstraint
from model.fleet import default_policy
from model.labels import HOSTNAME as HOST
from model.labels import ZONE
from model.upstream.selectors import LabelSelectorRequirement
from tests.support.fleets import GPU, NOW, A, B, FleetBuilder, catalog, gang, machine, pod_set
from tests.support.scheduler_judge import refused
from tests.support.world import World

ONE = machine("one.large", gpus=1, gpu="l4", gpu_memory=22888, cpu=8, gib=32)
FOUR = machine("four.large", gpus=4, gpu="l4", gpu_memory=22888, cpu=32, gib=128)
EIGHT = machine("eight.large", gpus=8, gpu="l4", gpu_memory=22888, cpu=64, gib=256)
PRICES = {"one.large": 1.2, "four.large": 4.4, "eight.large": 8.0}


def world_of(*types: InstanceType, zones: Sequence[str] = (A,), **pool: Any) -> World:
    spec = {"instanceFamilies": ["one", "four", "eight"], "disruption": {"budgets": [{"nodes": "100%"}]}, **pool}
    fleet = FleetBuilder().pool("all", **spec).team(quotas={"all": {GPU: 1000}}).queue(flavors=["all"]).build()
    offers = [InstanceOffer(it, zone, "on-demand", PRICES[it.name]) for it in types for zone in zones]
    return World(fleet, catalog=catalog(offers))


def runs(world: World, name: str, *places: tuple[str, int], gpu: int = 1, **more: Any) -> None:
    world.runs(
        gang(name, count=sum(count for _, count in places), gpu=gpu, queue="q"),
        *places,
        flavor="all",
        admitted_at_s=NOW - 600,
        **more,
    )


def outcome(actions: list[Action]) -> tuple[list[str], dict[str, int]]:
    """(machines told to go at once, kinds bought first)."""
    gone = [it.claim.name for it in actions if isinstance(it, SaveClaim) and it.claim.disruption]
    bought = Counter(
        claim.capacity_pool.instance_type for it in actions if isinstance(it, OpenClaims) for claim in it.claims
    )
    return sorted(gone), dict(bought)


def decided(world: World) -> tuple[list[str], dict[str, int]]:
    return outcome(world.disrupted())


def bill(world: World) -> float:
    return sum(claim.price_usd_h for claim in world.claims.values())


def test_several_machines_become_one_that_is_shared() -> None:
    """None of them fits on the others, nor is there a cheaper one for any: only together they are cheaper."""
    world = world_of(FOUR, EIGHT)
    for n in range(3):
        world.machine(f"m{n}", "all", "four.large")
        runs(world, f"g{n}", (f"m{n}", 1), gpu=2)
    world.machine("full", "all", "four.large")
    runs(world, "h", ("full", 1), gpu=4)
    before = bill(world)
    world.settle_down()
    assert bill(world) < before
    assert {it.state for it in world.gangs.values()} == {GangState.ADMITTED}
    quiet(world)


@pytest.mark.parametrize("beside_usd_h", [0, 1.0])
def test_of_equal_price_fewer_machines_come_where_each_costs_something_beside(beside_usd_h: float) -> None:
    """Two machines with four GPUs each become one with eight that costs as much as both."""
    world = world_of(FOUR, EIGHT)
    policy = default_policy()
    told = policy.model_copy(update={"spec": policy.spec.model_copy(update={"usd_per_hour_per_machine": beside_usd_h})})
    world.fleet = replace(world.fleet, policy=told)
    offers = [InstanceOffer(FOUR, A, "on-demand", 4.4), InstanceOffer(EIGHT, A, "on-demand", 8.8)]
    world.catalog = catalog(offers)
    for n in range(2):
        world.machine(f"m{n}", "all", "four.large")
        runs(world, f"g{n}", (f"m{n}", 1), gpu=4)
    context = DisruptionContext.of(world.fleet, world.snapshot())
    found = suggestions(context, [world.claims[it] for it in sorted(world.claims)])
    assert len(found) == (1 if beside_usd_h else 0)
    moves = [evaluate(context, it.claims, bought=it.bought) for it in found]
    assert [it.saving_usd_h for it in moves if isinstance(it, ConsolidationMove)] == pytest.approx([1.0] * len(found))


def test_a_machine_bought_for_several_is_kept_for_all_of_them() -> None:
    world = world_of(ONE, FOUR, EIGHT)
    for n in range(4):
        world.machine(f"m{n}", "all", "four.large")
        runs(world, f"g{n}", (f"m{n}", 2))
    world.catalog = catalog([InstanceOffer(EIGHT, A, "on-demand", 5.0), InstanceOffer(FOUR, A, "on-demand", 4.4)])
    gone, bought = decided(world)
    world.settle_down()
    assert bill(world) <= 2 * 4.4 + 1e-9, (gone, bought)
    assert {it.state for it in world.gangs.values()} == {GangState.ADMITTED}
    assert max(it.evictions for it in world.gangs.values()) == 1
    quiet(world)


def test_budgets_hold_for_all_together() -> None:
    world = world_of(ONE, EIGHT, disruption={"budgets": [{"nodes": 2}]})
    for n in range(6):
        world.machine(f"m{n}", "all", "eight.large")
        runs(world, f"g{n}", (f"m{n}", 1))
    actions = world.disrupted()
    gone, _ = outcome(actions)
    replaced = {name for it in actions if isinstance(it, OpenClaims) for claim in it.claims for name in claim.replaces}
    assert 1 <= len({*gone, *replaced}) <= 2


def test_work_that_would_be_lost_is_weighed() -> None:
    world = world_of(ONE, EIGHT)
    for n in range(3):
        world.machine(f"m{n}", "all", "eight.large")
        world.runs(gang(f"g{n}", gpu=1), (f"m{n}", 1), flavor="all", admitted_at_s=NOW - 40 * 3600)
    assert decided(world) == ([], {}), "40 hours without a checkpoint cost more than 4 hours save"


def quiet(world: World, rounds: int = 10) -> None:
    for _ in range(rounds):
        world.now_s += 10
        assert world.pass_once() == []


_gangs = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([1, 2, 4])), min_size=1, max_size=6)


@settings(max_examples=25)
@given(_gangs, st.sampled_from(["four.large", "eight.large"]), st.sampled_from(["100%", "30%"]))
def test_gangs_stay_whole_the_bill_never_grows_and_there_is_an_end(
    asked: list[tuple[int, int]], kind: str, budget: str
) -> None:
    world = world_of(ONE, FOUR, EIGHT, disruption={"budgets": [{"nodes": budget}]})
    for n, (count, gpu) in enumerate(asked):
        for i in range(count):
            world.machine(f"m{n}-{i}", "all", kind)
        runs(world, f"g{n}", *((f"m{n}-{i}", 1) for i in range(count)), gpu=gpu)
    before = bill(world)
    for _ in range(30):
        world.settle_down()
        world.now_s += 60
    assert bill(world) <= before + 1e-9
    for it in world.gangs.values():
        assert it.state is GangState.ADMITTED
        assert sum(pin.count for pin in it.pins) == sum(pods.count for pods in it.pod_sets)
    quiet(world)


@pytest.mark.parametrize("topology", ["kubernetes.io/hostname", "rack"])
def test_gangs_with_a_topology_are_left_to_the_packer(topology: str) -> None:
    world = world_of(ONE, EIGHT)
    for n in range(2):
        world.machine(f"m{n}", "all", "eight.large", node={"labels": {"rack": "r"}} if topology == "rack" else None)
        wide = pod_set("main", 2, 1, required_topology=topology)
        world.runs(gang(f"g{n}", wide), (f"m{n}", 2), flavor="all", admitted_at_s=NOW - 600)
    world.settle_down()
    assert {it.state for it in world.gangs.values()} == {GangState.ADMITTED}


def shared_hosts(world: World) -> None:
    """Three machines of four GPUs, on each two pods of a gang that has to share its host."""
    for n in range(3):
        world.machine(f"m{n}", "all", "four.large")
        pair = pod_set("main", 2, 1, required_topology="kubernetes.io/hostname")
        world.runs(gang(f"g{n}", pair), (f"m{n}", 2), flavor="all", admitted_at_s=NOW - 600)


def test_pods_that_share_a_host_are_one_large_pod_of_the_plan() -> None:
    """All three come to one large machine, which is cheaper; none is torn apart."""
    world = world_of(FOUR, EIGHT)
    shared_hosts(world)
    context = DisruptionContext.of(world.fleet, world.snapshot())
    [suggestion] = suggestions(context, list(world.claims.values()))
    assert (len(suggestion.claims), [it.offer.instance_type for it in suggestion.bought]) == (3, [EIGHT])
    world.settle_down()
    assert bill(world) == pytest.approx(8.0)
    assert all(len(it.pins) == 1 for it in world.gangs.values())
    quiet(world)


NOTHING, PORT = PodConstraints(), PodConstraints(host_ports=(PodHostPort(80),))


def term(key: str, app: str = "x") -> PodAffinityTerm:
    return PodAffinityTerm(key, (LabelSelectorRequirement(key="app", operator="In", values=(app,)),), frozenset({"ns"}))


def apart(key: str = HOST, app: str = "x") -> PodConstraints:
    return PodConstraints(anti_affinity=(term(key, app),))


def near(key: str = ZONE, app: str = "x") -> PodConstraints:
    return PodConstraints(affinity=(term(key, app),))


Tenant = tuple[PodConstraints, str]
"""What a pod asks, and its label."""


def tenants(world: World, asked: Sequence[Tenant], zones: str = "AAA") -> None:
    """On each of some machines of four GPUs a pod with two, with what it asks and its label."""
    for n, ((constraints, app), zone) in enumerate(zip(asked, zones, strict=True)):
        world.machine(f"m{n}", "all", "four.large", zone=A if zone == "A" else B)
        pods = pod_set("main", 1, 2, namespace="ns", labels=(("app", app),), constraints=constraints)
        world.runs(gang(f"g{n}", pods), (f"m{n}", 1), flavor="all", admitted_at_s=NOW - 600)


SPREAD = PodConstraints(spread=(TopologySpreadConstraint(HOST, 1, term(HOST).selector),))
SPREAD_ZONES = PodConstraints(spread=(TopologySpreadConstraint(ZONE, 1, term(ZONE).selector),))


@pytest.mark.parametrize(
    ("asked", "zones", "gone", "bought"),
    [
        pytest.param([(NOTHING, "x")] * 3, "AAA", 3, 1, id="nothing"),
        pytest.param([(PORT, "x"), *[(NOTHING, "x")] * 2], "AAA", 3, 1, id="one port"),
        pytest.param([(PORT, "x")] * 2 + [(NOTHING, "x")] * 2, "AAAA", 2, 0, id="two clash"),
        pytest.param([(apart(), "x"), *[(NOTHING, "y")] * 2], "AAA", 3, 1, id="apart from its like"),
        pytest.param([(apart(app="y"), "x"), *[(NOTHING, "y")] * 2], "AAA", 1, 0, id="apart from others"),
        pytest.param([(near(), "x")] * 3, "AAA", 3, 1, id="near by zone"),
        pytest.param([(near(HOST), "x"), *[(NOTHING, "y")] * 2], "AAA", 3, 1, id="alone on its host"),
        pytest.param([(near(HOST), "z"), *[(NOTHING, "x")] * 2], "AAA", 0, 0, id="who follows others"),
        pytest.param([(SPREAD, "x")] * 3, "AAA", 0, 0, id="spread over hosts"),
        pytest.param([(SPREAD_ZONES, "x")] * 4, "AABB", 2, 0, id="spread over zones"),
    ],
)
def test_pods_with_constraints_are_planned_for_by_what_these_reduce_to(
    asked: Sequence[Tenant], zones: str, gone: int, bought: int
) -> None:
    """Machines that go, and that come; placement finds every place of the plan."""
    world = world_of(FOUR, EIGHT, zones=(A, B))
    tenants(world, asked, zones)
    context = DisruptionContext.of(world.fleet, world.snapshot())
    plan = suggestions(context, [world.claims[it] for it in sorted(world.claims)])
    assert (sum(len(it.claims) for it in plan), sum(len(it.bought) for it in plan)) == (gone, bought)
    for it in plan:
        assert not isinstance(evaluate(context, it.claims, bought=it.bought), Blocked)


def test_where_pods_have_moved_kube_scheduler_lets_them() -> None:
    world = world_of(FOUR, EIGHT)
    tenants(world, [(PORT, "z"), (apart(), "x"), (NOTHING, "y")])
    world.settle_down()
    assert bill(world) == pytest.approx(8.0)
    assert against(world) == []
    quiet(world)


def against(world: World) -> list[str]:
    """What the simulated scheduler has against where the pods stand; who is spread may have come first."""
    gangs = sorted(world.gangs.values(), key=lambda it: (not it.pod_sets[0].constraints.spread, it.uid))
    pins = [(it, pin) for it in gangs for pin in it.pins]
    stands = [(it.pod_set(pin.pod_set), pin.node) for it, pin in pins for _ in range(pin.count)]
    return refused({name: replace(node, taints=()) for name, node in world.nodes.items()}, stands)


ASKED = [NOTHING, PORT, apart(), apart(app="y"), apart(ZONE), near(), near(HOST), SPREAD, SPREAD_ZONES]
_tenants = st.lists(
    st.tuples(st.sampled_from(ASKED), st.sampled_from("xy"), st.sampled_from("AB")), min_size=2, max_size=6
)


@settings(max_examples=40)
@given(_tenants)
def test_whoever_moves_may_stand_where_it_goes(asked: list[tuple[PodConstraints, str, str]]) -> None:
    world = world_of(ONE, FOUR, EIGHT, zones=(A, B))
    tenants(world, [(it, app) for it, app, _ in asked], "".join(zone for _, _, zone in asked))
    assume(not against(world))
    before = bill(world)
    world.settle_down()
    assert bill(world) <= before + 1e-9
    assert {it.state for it in world.gangs.values()} == {GangState.ADMITTED}
    assert against(world) == []


@pytest.mark.parametrize(("ways", "planned"), [(0, {"alone"}), (1, {"alone", "a0", "a1"}), (2, None)])
def test_gangs_on_many_machines_are_planned_for_as_far_as_their_ways_allow(
    monkeypatch: pytest.MonkeyPatch, ways: int, planned: set[str] | None
) -> None:
    monkeypatch.setattr(multi_node, "MOST_WAYS", ways)
    world = world_of(ONE, FOUR, EIGHT)
    for name in ("a0", "a1", "b0", "b1", "alone"):
        world.machine(name, "all", "eight.large")
    for name in "ab":
        runs(world, name, (f"{name}0", 1), (f"{name}1", 1))
    runs(world, "c", ("alone", 1))
    plan = suggestions(
        DisruptionContext.of(world.fleet, world.snapshot()), [world.claims[it] for it in sorted(world.claims)]
    )
    going = {claim.name for suggestion in plan for claim in suggestion.claims}
    assert going <= (planned or set(world.claims))
    assert going


def test_a_purchase_that_lost_a_machine_is_given_up_and_decided_anew() -> None:
    world = world_of(ONE, EIGHT)
    world.machine("m0", "all", "eight.large")
    runs(world, "g", ("m0", 1))
    world.machine("r0", "all", "one.large", replaces=("m0",), gang="uid-g", launch=Launch("x", 0, 2))
    gone, _ = decided(world)
    assert gone == ["r0"]
    world.settle_down()
    assert {claim.capacity_pool.instance_type for claim in world.claims.values()} == {"one.large"}
    quiet(world)


def test_what_was_bought_is_given_up_where_the_work_would_not_fit_any_more() -> None:
    """Validated once more when it is ready: somebody else has moved onto the old machine since."""
    world = world_of(ONE, EIGHT)
    world.machine("m0", "all", "eight.large")
    runs(world, "g", ("m0", 1))
    world.machine("r0", "all", "one.large", replaces=("m0",), gang="uid-g", launch=Launch("x", 0, 1))
    assert decided(world)[0] == ["m0"]
    runs(world, "late", ("m0", 4))
    assert decided(world)[0] == ["r0"]
