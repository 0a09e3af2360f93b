"""A place for every pod or nothing: order of preference, bounds, zones, topology, refusals."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fleet.mig.layouts import with_gpus
from fleet.placement.buyable_capacity import BuyableCapacity
from fleet.placement.cluster_state import ClusterState
from fleet.placement.flavor_nodes import FleetFlavors
from fleet.placement.inventory import build_capacity, build_cluster_state
from fleet.placement.place import place_gang
from fleet.placement.plan import Need, PlacementPlan
from fleet.reasons import Refusal
from fleet.snapshot import CapacityPool, PodSet
from fleet.snapshot.lookups import holders
from model import labels
from model.mig import config_name
from tests.support.checker import before, faults
from tests.support.fleets import (
    G6,
    GPU,
    M7,
    NOW,
    P4,
    P5,
    P5S,
    A,
    B,
    FleetBuilder,
    amounts,
    capacity_pool,
    gang,
    pod_set,
)
from tests.support.world import World

ALL = [P5.name, P5S.name]
ZONE, HOST = labels.ZONE, labels.HOSTNAME


@dataclass
class PlacementRig:
    """A world ready to be asked for places."""

    world: World
    board: ClusterState
    supply: BuyableCapacity
    flavors: FleetFlavors

    def need(self, pods: PodSet, flavor: str = "h100") -> Need:
        return self.flavors.need(pods, (flavor,))

    def ask(self, *sets: PodSet, flavor: str = "h100") -> PlacementPlan | Refusal:
        needs = [self.need(pods, flavor) for pods in sets]
        standing = before(self.board)
        limits = {name: (it.nodes, it.usd_h, dict(it.resources)) for name, it in self.supply.headroom.items()}
        found = place_gang(self.board, self.supply, "uid-g", needs)
        if isinstance(found, Refusal):
            assert before(self.board) == standing
            assert {n: (it.nodes, it.usd_h, it.resources) for n, it in self.supply.headroom.items()} == limits
        else:
            assert faults(found, needs, standing, "uid-g") == []
        return found

    def plan(self, *sets: PodSet, flavor: str = "h100") -> PlacementPlan:
        found = self.ask(*sets, flavor=flavor)
        assert isinstance(found, PlacementPlan), found
        return found

    def refusal(self, *sets: PodSet, flavor: str = "h100") -> Refusal:
        found = self.ask(*sets, flavor=flavor)
        assert isinstance(found, Refusal), found
        return found


def rig(world: World, *, may_buy: bool = True) -> PlacementRig:
    snapshot = world.snapshot()
    supply = build_capacity(world.fleet, snapshot, may_buy=may_buy)
    board = build_cluster_state(snapshot, holders(snapshot))
    return PlacementRig(world, board, supply, FleetFlavors(world.fleet, supply.offerings, board))


def pooled(short: Mapping[CapacityPool, float] | None = None, **pool: Any) -> PlacementRig:
    """One pool, nothing standing."""
    world = World(FleetBuilder().pool(**pool).team().queue().build())
    world.shortages = dict(short or {})
    return rig(world)


def bought(plan: PlacementPlan) -> list[tuple[str, str, str, int]]:
    return [
        (lot.offering.offer.instance_type.name, lot.offering.offer.zone, lot.offering.offer.capacity_type, lot.count)
        for lot in plan.purchases
    ]


# -- preferences ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "pods", "expected"),
    [
        pytest.param({}, pod_set(count=2), [(P5.name, A, "on-demand", 2)], id="exactly what is missing"),
        pytest.param({}, pod_set(count=3, gpu=4), [(P5.name, A, "on-demand", 2)], id="two pods a machine, rounded up"),
        pytest.param({"zones": [B]}, pod_set(), [(P5.name, B, "on-demand", 1)], id="only its zones"),
        pytest.param(
            {"capacityTypes": ["on-demand", "spot"]}, pod_set(), [(P5.name, A, "on-demand", 1)], id="preference first"
        ),
        pytest.param({"capacityTypes": ["spot", "on-demand"]}, pod_set(), [(P5.name, A, "spot", 1)], id="spot first"),
        pytest.param(
            {"instanceTypes": ALL}, pod_set(gpu=1), [(P5S.name, A, "on-demand", 1)], id="the cheapest that holds it"
        ),
        pytest.param(
            {"instanceTypes": ALL},
            pod_set(count=8, gpu=1),
            [(P5.name, A, "on-demand", 1)],
            id="cheapest in sum: one of 98 against eight of 14",
        ),
        pytest.param(
            {"instanceTypes": ALL},
            pod_set(count=6, gpu=1),
            [(P5S.name, A, "on-demand", 6)],
            id="cheapest in sum: six of 14 against one of 98",
        ),
        pytest.param(
            {"instanceTypes": ALL, "requirements": [{"key": labels.INSTANCE_CPU, "operator": "Gt", "values": ["100"]}]},
            pod_set(gpu=1),
            [(P5.name, A, "on-demand", 1)],
            id="requirements",
        ),
        pytest.param({"gpu": {"models": ["a100"]}}, pod_set(), [(P4.name, A, "on-demand", 1)], id="GPU model"),
        pytest.param({"gpu": {}}, pod_set(gpu=4), [(G6.name, A, "on-demand", 1)], id="any GPU, but a GPU"),
    ],
)
def test_what_is_bought(pool: dict[str, Any], pods: PodSet, expected: list[tuple[str, str, str, int]]) -> None:
    assert bought(pooled(**pool).plan(pods)) == expected


def test_capacity_type_beats_price_and_weight() -> None:
    """The pool's first capacity type, whatever the price; then the heavier pool; then the cheaper machine."""
    fleet = (
        FleetBuilder()
        .pool("light", instanceTypes=ALL, capacityTypes=["on-demand", "spot"])
        .pool("heavy", weight=10, capacityTypes=["on-demand", "spot"])
        .flavor("any", nodePools=["light", "heavy"])
        .team(quotas={"any": {GPU: 99}})
        .queue(flavors=["any"])
        .build()
    )
    world = World(fleet)
    assert [lot.offering.pool.name for lot in rig(world).plan(pod_set(gpu=1), flavor="any").purchases] == ["heavy"]
    world.shortages = {capacity_pool(zone=zone): NOW + 60 for zone in (A, B)}
    found = rig(world).plan(pod_set(gpu=1), flavor="any")
    assert [(lot.offering.pool.name, lot.offering.offer.capacity_type) for lot in found.purchases] == [
        ("light", "on-demand")
    ]
    world.shortages |= {capacity_pool(kind=P5S.name, zone=zone): NOW + 60 for zone in (A, B)}
    found = rig(world).plan(pod_set(gpu=1), flavor="any")
    assert [(lot.offering.pool.name, lot.offering.offer.capacity_type) for lot in found.purchases] == [
        ("heavy", "spot")
    ]


def test_what_stands_idle_comes_before_a_purchase() -> None:
    world = World(FleetBuilder().pool().team().queue().build())
    world.machine("m0")
    found = rig(world).plan(pod_set(count=2, gpu=4))
    assert found.ready
    assert [(pin.node, pin.claim, pin.count) for pin in found.pins()] == [("node-m0", "m0", 2)]


def test_only_what_is_missing_is_bought() -> None:
    world = World(FleetBuilder().pool().team().queue().build())
    world.machine("m0")
    world.runs(gang("other", gpu=4), ("m0", 1))
    found = rig(world).plan(pod_set(count=3, gpu=4))
    assert bought(found) == [(P5.name, A, "on-demand", 1)]
    assert sorted((pin.claim, pin.count) for pin in found.pins()) == [("m0", 1), ("new/0/0", 2)]


def mig_world(*layouts: str) -> World:
    fleet = (
        FleetBuilder()
        .layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
        .layout("large", h100_80gb=[{"profiles": {"3g.40gb": 2}}])
        .layout("two", h100_80gb=[{"profiles": {"2g.20gb": 3}}])
        .layout("mixed", h100_80gb=[{"profiles": {"1g.10gb": 4, "3g.40gb": 1}}])
        .pool(sharing={"mig": {"layouts": list(layouts or ("small", "large"))}})
        .team()
        .queue()
        .build()
    )
    return World(fleet)


def sliced(profile: str, count: int) -> PodSet:
    return pod_set(count=count, requests={**amounts(), labels.MIG_RESOURCE_PREFIX + profile: 1})


def test_a_recut_comes_before_a_purchase_and_after_what_fits_as_it_is() -> None:
    world = mig_world()
    world.machine("m0")
    assert rig(world).plan(sliced("1g.10gb", 56)).ready
    found = rig(world).plan(sliced("3g.40gb", 16))
    assert not found.purchases
    assert [(recut.claim, recut.layout.rpartition("-")[0]) for recut in found.recuts] == [("m0", "large")]
    found = rig(world).plan(sliced("3g.40gb", 17))
    assert len(found.recuts) == 1
    assert [lot.count for lot in found.purchases] == [1]


def test_a_machine_that_is_to_be_replaced_is_cut_anew_last() -> None:
    """Found by the fuzzer: the first by name was, and the work stopped twice."""
    world = mig_world()
    for name in ("m0", "m1"):
        world.machine(name)
    snapshot = world.snapshot()
    asked = replace(rig(world), board=build_cluster_state(snapshot, (), (), world.fleet.node_pools, frozenset({"m0"})))
    assert [recut.claim for recut in asked.plan(sliced("3g.40gb", 16)).recuts] == ["m1"]


@pytest.mark.parametrize(
    ("waiting", "layout"),
    [
        pytest.param({"1g.10gb": 4}, "small", id="everybody asks for small ones"),
        pytest.param({"1g.10gb": 4, "3g.40gb": 40}, "mixed", id="most ask for what another layout has as well"),
    ],
)
def test_the_layout_is_chosen_by_what_all_gangs_ask_for(waiting: dict[str, int], layout: str) -> None:
    """The gang in line has room on either: the roomiest is not taken for its own sake."""
    world = mig_world("two", "small", "mixed")
    world.machine("m0")
    for profile, count in waiting.items():
        world.waits(gang(f"wants-{profile}", sliced(profile, count)))
    found = rig(world).plan(sliced("1g.10gb", 4))
    assert [recut.layout.rpartition("-")[0] for recut in found.recuts] == [layout]


def test_the_machine_is_cut_anew_whose_cut_nobody_asks_for() -> None:
    world = mig_world("large", "two", "small")
    world.machine("m0")
    other = world.machine("m1")
    layout, twos = config_name(world.fleet.mig_layouts["two"]), {labels.MIG_RESOURCE_PREFIX + "2g.20gb": 24}
    world.claims["m1"] = replace(other, layout=layout, resources=with_gpus(other.resources, twos))
    node = world.nodes[other.node]
    relabelled = {**node.labels, labels.MIG_CONFIG: layout}
    world.nodes[node.name] = replace(node, labels=relabelled, allocatable=with_gpus(node.allocatable, twos))
    world.waits(gang("wants-large", sliced("3g.40gb", 40)), gang("wants-small", sliced("1g.10gb", 4)))
    assert [recut.claim for recut in rig(world).plan(sliced("1g.10gb", 4)).recuts] == ["m1"]


def test_a_machine_is_never_used_in_two_cuts_at_once() -> None:
    world = mig_world()
    world.machine("m0")
    found = rig(world).plan(
        pod_set("a", 1, requests={labels.MIG_RESOURCE_PREFIX + "3g.40gb": 1}),
        pod_set("b", 1, requests={labels.MIG_RESOURCE_PREFIX + "1g.10gb": 1}),
    )
    assert {pin.claim for pin in found.pins()} > {"m0"} or len(found.purchases) == 2
    assert len(found.purchases) >= 1


def test_a_machine_with_work_is_not_cut_anew() -> None:
    world = mig_world()
    world.machine("m0")
    world.runs(gang("other", sliced("1g.10gb", 1)), ("m0", 1))
    assert not rig(world).plan(sliced("3g.40gb", 1)).recuts


def test_a_machine_on_which_somebody_else_holds_slices_is_not_cut_anew() -> None:
    from tests.support.fleets import foreign_pod

    world = mig_world()
    world.machine("m0")
    world.stands(foreign_pod("debug", "node-m0", {labels.MIG_RESOURCE_PREFIX + "1g.10gb": 1}))
    assert not rig(world).plan(sliced("3g.40gb", 1)).recuts


# -- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        pytest.param({"nodes": 2}, 2, id="nodes"),
        pytest.param({"usdPerHour": 196.0}, 2, id="USD/h, exactly"),
        pytest.param({"usdPerHour": 195.99}, 1, id="USD/h, a cent less"),
        pytest.param({"resources": {GPU: 16}}, 2, id="GPUs by capacity"),
        pytest.param({"resources": {"cpu": "383"}}, 1, id="CPUs by capacity, not by what pods get"),
        pytest.param({"resources": {"memory": "2Ti"}}, 2, id="memory"),
        pytest.param({"nodes": 5, "resources": {GPU: 8}}, 1, id="the tightest of all"),
        pytest.param({"nodes": 0}, 0, id="nothing"),
    ],
)
def test_limits(limits: dict[str, Any], most: int) -> None:
    if most:
        assert len(pooled(limits=limits).plan(pod_set(count=most)).assignments) == most
    refused = pooled(limits=limits).refusal(pod_set(count=most + 1))
    assert refused.reason == "PoolLimitReached"
    assert refused.message == (
        f"{most + 1} more pods of main need machines beyond the limits of h100"
        if most
        else "1 more pod of main needs machines beyond the limits of h100"
    )
    assert refused.retry_at_s == 0


def test_machines_on_their_way_out_still_count_against_the_limits() -> None:
    world = World(FleetBuilder().pool(limits={"nodes": 2}).team().queue().build())
    world.machine("m0", deleting=True)
    assert len(rig(world).plan(pod_set()).purchases) == 1
    assert rig(world).refusal(pod_set(count=2)).reason == "PoolLimitReached"


@pytest.mark.parametrize(
    ("short", "expected"),
    [
        pytest.param([("spot", A)], (B, "spot"), id="the next zone"),
        pytest.param([("spot", A), ("spot", B)], (A, "on-demand"), id="the next capacity type"),
        pytest.param([("spot", A), ("spot", B), ("on-demand", A)], (B, "on-demand"), id="the last one"),
    ],
)
def test_shortages(short: list[tuple[Any, str]], expected: tuple[str, str]) -> None:
    known = {capacity_pool(zone=zone, capacity_type=ct): NOW + 60 for ct, zone in short}
    [lot] = pooled(known, capacityTypes=["spot", "on-demand"]).plan(pod_set()).purchases
    assert (lot.offering.offer.zone, lot.offering.offer.capacity_type) == expected


def test_when_everything_is_short_the_refusal_says_what_and_until_when() -> None:
    refused = pooled({capacity_pool(zone=A): NOW + 90, capacity_pool(zone=B): NOW + 30}).refusal(pod_set(count=2))
    assert (refused.reason, refused.retry_at_s) == ("InsufficientCapacity", NOW + 30)
    assert refused.message == f"no machine for 2 more pods of main: the cloud is short of {P5.name}:on-demand:{B}"


def test_a_shortage_that_is_over_is_forgotten() -> None:
    assert pooled({capacity_pool(zone=A): NOW}).plan(pod_set()).purchases


@pytest.mark.parametrize(("least", "possible"), [(1, True), (2, True), (3, False)])
def test_min_values(least: int, possible: bool) -> None:
    term = {"key": labels.INSTANCE_TYPE, "operator": "In", "values": [P5.name, P5S.name, M7.name], "minValues": least}
    made = pooled(instanceTypes=[P5.name, P5S.name], requirements=[term])
    if possible:
        made.plan(pod_set(gpu=1))
    else:
        refused = made.refusal(pod_set(gpu=1))
        assert refused.reason == "NoMatchingOffer"
        assert refused.message == "too few kinds of machines left for minValues of h100 to buy 1 more pod of main"


def test_min_values_count_only_machines_that_hold_a_pod() -> None:
    term = {"key": labels.INSTANCE_TYPE, "operator": "In", "values": [P5.name, P5S.name], "minValues": 2}
    assert pooled(instanceTypes=ALL, requirements=[term]).refusal(pod_set(gpu=8)).reason == "NoMatchingOffer"


def test_min_values_count_what_is_sold_in_any_zone() -> None:
    term = {"key": labels.ZONE, "operator": "Exists", "minValues": 2}
    assert pooled(zones=[A, B], requirements=[term]).plan(pod_set()).purchases
    assert pooled(zones=[A], requirements=[term]).refusal(pod_set()).reason == "NoMatchingOffer"


# -- zones and topology -----------------------------------------------------------------------------------------------


def test_a_purchase_stays_in_one_zone() -> None:
    """Two pod sets that only different zones could sell separately are refused together."""
    fleet = FleetBuilder().pool("pa", zones=[A]).pool("pb", instanceTypes=[G6.name], zones=[B])
    world = World(fleet.flavor("any", nodePools=["pa", "pb"]).team().queue().build())
    assert rig(world).plan(pod_set("a"), flavor="any").purchases
    assert rig(world).plan(pod_set("b", requests={GPU: 4, "cpu": 1000}), flavor="any").purchases
    made = rig(world)
    cpu_of_g6 = pod_set("b", requests={GPU: 1}, node_selector={labels.INSTANCE_TYPE: G6.name})
    assert made.refusal(pod_set("a"), cpu_of_g6, flavor="any").reason == "NoMatchingOffer"


def test_a_required_zone_spans_what_stands_and_what_is_bought() -> None:
    world = World(FleetBuilder().pool().team().queue().build())
    world.machine("m0", zone=B)
    found = rig(world).plan(pod_set(count=2, required_topology=ZONE))
    assert bought(found) == [(P5.name, B, "on-demand", 1)]
    assert "m0" in {pin.claim for pin in found.pins()}


def test_a_required_zone_prefers_the_one_where_nothing_has_to_be_bought() -> None:
    world = World(FleetBuilder().pool().team().queue().build())
    world.machine("a0", zone=A)
    world.machine("b0", zone=B)
    world.machine("b1", zone=B)
    found = rig(world).plan(pod_set(count=2, required_topology=ZONE))
    assert {pin.claim for pin in found.pins()} == {"b0", "b1"}


def test_without_a_required_zone_what_stands_may_be_anywhere() -> None:
    world = World(FleetBuilder().pool().team().queue().build())
    world.machine("a0", zone=A)
    world.machine("b0", zone=B)
    assert rig(world).plan(pod_set(count=2)).ready


def test_one_host_means_one_machine_bought_if_need_be() -> None:
    world = World(FleetBuilder().pool().team().queue().build())
    world.machine("m0")
    world.runs(gang("other", gpu=5), ("m0", 1))
    assert rig(world).plan(pod_set(count=3, gpu=1, required_topology=HOST)).ready
    found = rig(world).plan(pod_set(count=4, gpu=1, required_topology=HOST))
    assert bought(found) == [(P5.name, A, "on-demand", 1)]
    assert rig(world).refusal(pod_set(count=9, gpu=1, required_topology=HOST)).reason == "NoMatchingOffer"


def test_a_rack_cannot_be_bought() -> None:
    world = World(FleetBuilder().pool().team().queue().build())
    for name, rack in (("m0", "r1"), ("m1", "r2"), ("m2", "r2")):
        world.machine(name)
        node = world.nodes[f"node-{name}"]
        from dataclasses import replace

        world.nodes[node.name] = replace(node, labels={**node.labels, "rack": rack})
    found = rig(world).plan(pod_set(count=2, required_topology="rack"))
    assert {pin.claim for pin in found.pins()} == {"m1", "m2"}
    refused = rig(world).refusal(pod_set(count=3, required_topology="rack"))
    assert refused.reason == "TopologyPlacementFailed"
    assert refused.message == (
        "3 pods of main need one domain of rack; no domain has the room, "
        "and no pool that may buy more has that label in its template"
    )


def test_a_rack_that_a_pool_promises_is_bought() -> None:
    """All of it in one: what stands there already counts, and the cheaper of two racks is taken."""
    labelled = {rack: {"template": {"labels": {"rack": rack}}} for rack in ("r1", "r2")}
    builder = FleetBuilder().pool("one", limits={"nodes": 3}, **labelled["r1"]).pool("two", **labelled["r2"])
    world = World(builder.flavor("any", nodePools=["one", "two"]).team().queue().build())
    world.machine("m0", "two")
    found = rig(world).plan(pod_set(count=3, required_topology="rack"), flavor="any")
    assert {lot.offering.pool.name: lot.count for lot in found.purchases} == {"two": 2}
    assert {pin.claim for pin in found.pins()} >= {"m0"}
    found = rig(world).plan(pod_set(count=3, required_topology="rack"), flavor="one")
    assert {lot.offering.pool.name: lot.count for lot in found.purchases} == {"one": 3}


# -- what may not be used ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pool", "pods", "message"),
    [
        pytest.param(
            {},
            pod_set(gpu=9),
            f"no machine its pools may buy in {A} holds one pod of main",
            id="too big",
        ),
        pytest.param(
            {"template": {"taints": [{"key": "x", "effect": "NoSchedule"}]}},
            pod_set(),
            f"its pools may buy no machine in {A} that main selects and tolerates",
            id="tainted",
        ),
        pytest.param(
            {},
            pod_set(node_selector={"team": "x"}),
            f"its pools may buy no machine in {A} that main selects (team=x) and tolerates",
            id="not selected",
        ),
        pytest.param(
            {"zones": ["us-east-1c"]}, pod_set(), "1 pod of main has no room on existing machines", id="nowhere"
        ),
    ],
)
def test_refusals_say_why(pool: dict[str, Any], pods: PodSet, message: str) -> None:
    refused = pooled(**pool).refusal(pods)
    assert (refused.reason, refused.message) == ("NoMatchingOffer", message)


def test_template_labels_taints_and_start_up_taints() -> None:
    template = {
        "labels": {"team": "x"},
        "taints": [{"key": "gpu", "effect": "NoSchedule"}],
        "startupTaints": [{"key": "boot", "effect": "NoSchedule"}],
    }
    made = pooled(template=template)
    tolerations = ({"key": "gpu", "operator": "Exists"},)
    from model.kinds import Toleration

    wanted = pod_set(node_selector={"team": "x"}, tolerations=tuple(Toleration.model_validate(t) for t in tolerations))
    assert made.plan(wanted).purchases


@pytest.mark.parametrize(
    ("claim", "node"),
    [
        ({}, {"ready": False}),
        ({}, {"unschedulable": True}),
        ({}, {"deleting": True}),
        ({"deleting": True}, {}),
        ({"ready_at_s": 0.0}, {}),
        ({"recut_at_s": NOW}, {}),
    ],
    ids=["not ready", "cordoned", "node deleting", "claim deleting", "not initialised", "being cut"],
)
def test_machines_that_do_not_count(claim: dict[str, Any], node: dict[str, Any]) -> None:
    world = World(FleetBuilder().pool(limits={"nodes": 1}).team().queue().build())
    world.machine("m0", node=node, **claim)
    assert rig(world).refusal(pod_set()).reason == "PoolLimitReached"


def test_a_machine_without_its_claim_is_not_ours_to_use() -> None:
    world = World(FleetBuilder().pool().team().queue().build())
    world.machine("m0")
    del world.claims["m0"]
    assert rig(world).plan(pod_set()).purchases


def test_without_leave_to_buy_there_is_only_what_stands() -> None:
    world = World(FleetBuilder().pool().team().queue().build())
    refused = rig(world, may_buy=False).refusal(pod_set(count=2))
    assert refused.message == "2 pods of main have no room on existing machines"


@pytest.mark.parametrize(("count", "fits"), [(99, True), (100, False), (150, False), (300, False)])
def test_who_nobodys_quota_counts_has_a_place_for_all_pods_or_for_none(count: int, fits: bool) -> None:
    ours, helpers = pooled(), pod_set("helpers", count, requests=amounts(cpu="1"))
    needs = [ours.need(pod_set("workers", gpu=8)), ours.flavors.need(helpers, ("h100",), charged=False)]
    found = place_gang(ours.board, ours.supply, "uid-g", needs)
    if fits:
        assert isinstance(found, PlacementPlan)
        assert [(it.pod_set, it.count) for it in found.assignments] == [("workers", 1), ("helpers", count)]
    else:
        assert isinstance(found, Refusal)
        pods = (
            "1 pod of helpers has no room, and asks"
            if count == 100
            else f"{count - 99} pods of helpers have no room, and ask"
        )
        assert found.message.startswith(f"{pods} nothing that")


def test_daemonsets_are_subtracted_before_a_purchase_is_sized() -> None:
    from fleet.offerings.offerings import Offerings
    from fleet.snapshot import DaemonOverhead

    world = World(FleetBuilder().pool(template={"labels": {"role": "gpu"}}).team().queue().build())
    daemons = (
        DaemonOverhead({"role": "gpu"}, {"cpu": 1000}, "a"),
        DaemonOverhead({"role": "cpu"}, {"cpu": 5000}, "b"),
        DaemonOverhead({}, {"cpu": 10}, "c"),
    )
    [offering, _] = Offerings(world.fleet, world.catalog, daemons).of(world.fleet.node_pools["h100"])
    assert offering.allocatable["cpu"] == P5.allocatable["cpu"] - 1010
    assert offering.allocatable["pods"] == P5.allocatable["pods"] - 2


def test_efa_is_there_only_where_it_is_asked_for() -> None:
    wanted = pod_set(requests={GPU: 8, labels.FABRIC_RESOURCE: 32})
    assert pooled().refusal(wanted).reason == "NoMatchingOffer"
    assert pooled(placement={"efa": True}).plan(wanted).purchases
    assert not pooled(placement={"efa": True}, instanceTypes=[P5S.name]).supply.offerings.of(
        FleetBuilder().pool(placement={"efa": True}, instanceTypes=[P5S.name]).build().node_pools["h100"]
    )


@pytest.mark.parametrize("way", ["timeSlicing", "mps"])
def test_shared_gpus_are_offered_several_times(way: str) -> None:
    [lot] = pooled(sharing={way: {"replicas": 4}}).plan(pod_set(count=32, gpu=1)).purchases
    assert lot.count == 1
    assert lot.offering.labels[labels.DEVICE_PLUGIN_CONFIG] in {"time-slicing-4", "mps-4"}


@pytest.mark.parametrize("order", [("mixed", "small"), ("small", "mixed")])
def test_machines_are_born_with_the_first_layout_that_does(order: tuple[str, str]) -> None:
    fleet = (
        FleetBuilder()
        .layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
        .layout("mixed", h100_80gb=[{"profiles": {"1g.10gb": 4, "3g.40gb": 1}}])
        .pool(sharing={"mig": {"layouts": list(order)}})
        .team()
        .queue()
        .build()
    )
    [lot] = rig(World(fleet)).plan(sliced("1g.10gb", 2)).purchases
    assert lot.offering.layout.startswith(f"{order[0]}-")


def grouped(**placement: str) -> World:
    builder = FleetBuilder()
    for name in ("h100", "more"):
        builder.pool(name, placement={"group": "pg"} | placement)
    return World(builder.flavor("all", nodePools=["h100", "more"]).team(quotas={"all": {GPU: 99}}).queue().build())


def test_a_cluster_placement_group_stays_in_the_zone_of_its_first_machine() -> None:
    world = grouped()
    world.machine("m0", zone=B)
    ours = rig(world)
    plan = ours.plan(pod_set(count=3, gpu=8), flavor="all")
    assert {lot.offering.offer.zone for lot in plan.purchases} == {B}


def test_two_gangs_of_one_pass_do_not_stretch_a_group() -> None:
    ours = rig(grouped())
    first = ours.plan(pod_set(count=1, gpu=8), flavor="all")
    (zone,) = {lot.offering.offer.zone for lot in first.purchases}
    other = B if zone == A else A
    refused = ours.refusal(pod_set(count=1, gpu=8, node_selector={ZONE: other}), flavor="all")
    assert refused.reason == "PoolLimitReached"
    assert f"pg in {zone}" in refused.message


@pytest.mark.parametrize("strategy", ["partition", "spread"])
def test_other_groups_span_zones(strategy: str) -> None:
    world = grouped(strategy=strategy)
    world.machine("m0", "more", zone=B)
    ours = rig(world)
    plan = ours.plan(pod_set(count=1, gpu=8, node_selector={ZONE: A, labels.NODE_POOL: "more"}), flavor="all")
    assert {lot.offering.offer.zone for lot in plan.purchases} == {A}


def test_a_machine_with_pods_of_a_set_that_its_gang_does_not_have_takes_nothing_more() -> None:
    """Somebody has edited the Workload. Nobody knows what stands there, and nobody else is stopped by it."""
    world = World(FleetBuilder().pool(limits={"nodes": 0}).team().queue().build())
    world.machine("m0")
    world.machine("m1")
    sick = world.runs(gang("sick", count=1, gpu=1), ("m0", 1))
    world.gangs[sick.uid] = replace(sick, pins=tuple(replace(pin, pod_set="gone") for pin in sick.pins))
    plan = rig(world, may_buy=False).plan(pod_set(gpu=1))
    assert [it.slot.claim for it in plan.assignments] == ["m1"]
