"""Purchases of one pass put together: never dearer, nothing lost, one GPU model a gang, each claim with its purpose."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.actions import OpenClaims, PurchaseTally
from fleet.catalog import InstanceOffer, InstanceType
from fleet.reasons import Reason
from fleet.scheduling import cycle
from fleet.snapshot import Claim, Gang
from model import labels
from model.fleet import Fleet
from model.kinds import RequirementTerm
from model.quantity import Resources
from tests.support.fleets import GPU, NOW, A, B, FleetBuilder, amounts, catalog, gang, machine, offering, pod_set
from tests.support.world import World

ONE = machine("one.large", gpus=1, gpu="l4", gpu_memory=22888, cpu=8, gib=32)
EIGHT = machine("eight.large", gpus=8, gpu="l4", gpu_memory=22888, cpu=64, gib=256)
OTHER = machine("other.large", gpus=4, gpu="a10g", gpu_memory=22888, cpu=32, gib=128)
CPUS = machine("cpus.large", cpu=32, gib=128)
TWIN = machine("twin.large", gpus=8, gpu="l4", gpu_memory=22888, cpu=64, gib=256)
PRICES = {"twin.large": 8.1, "one.large": 1.2, "eight.large": 8.0, "other.large": 3.9, "cpus.large": 1.5}


def market(*types: InstanceType) -> Any:
    return catalog([InstanceOffer(it, zone, "on-demand", PRICES[it.name]) for it in types for zone in (A, B)])


def fleet(purchases: str = "Optimal", **pool: Any) -> Fleet:
    families = {"instanceFamilies": ["one", "eight", "twin", "other", "cpus"]}
    quotas = {"all": {GPU: 1000, "cpu": 10_000_000}}
    builder = FleetBuilder().pool("all", **families, **pool).team(quotas=quotas).queue(flavors=["all"])
    return builder.policy(purchases=purchases).build()


def bought(world: World) -> tuple[list[Claim], PurchaseTally | None]:
    actions = cycle.decide(world.fleet, world.snapshot())
    world.apply(actions)
    opened = [it for it in actions if isinstance(it, OpenClaims)]
    return [claim for it in opened for claim in it.claims], next((it.tally for it in opened if it.tally), None)


def kinds(claims: Iterable[Claim]) -> dict[str, int]:
    return dict(Counter(claim.capacity_pool.instance_type for claim in claims))


def test_a_gang_is_bought_the_mix_that_costs_least() -> None:
    world = World(fleet(), catalog=market(ONE, EIGHT))
    world.waits(gang("g", count=9, gpu=1))
    claims, tally = bought(world)
    assert kinds(claims) == {"one.large": 1, "eight.large": 1}
    assert tally is not None
    assert (tally.cost_usd_h, tally.one_kind_usd_h) == (pytest.approx(9.2), pytest.approx(10.8))
    assert tally.bound_usd_h <= 9.2 + 1e-9
    assert tally.karpenter_usd_h >= 9.2 - 1e-9


def test_a_shared_machine_holds_no_more_than_enough_kinds_would() -> None:
    """Eight on the large machine would cost less, and nothing else would hold them (`minValues`)."""
    term = {"key": labels.INSTANCE_TYPE, "operator": "Exists", "minValues": 2}
    world = World(fleet(requirements=[term]), catalog=market(ONE, EIGHT))
    for number in range(8):
        world.waits(gang(f"g{number}", count=1, gpu=1))
    assert kinds(bought(world)[0]) == {"one.large": 8}


def without(*types: InstanceType) -> dict[str, Any]:
    """Pods that are not to stand on some types."""
    values = tuple(it.name for it in types)
    return {"required_affinity": ((RequirementTerm(key=labels.INSTANCE_TYPE, operator="NotIn", values=values),),)}


@pytest.mark.parametrize(
    ("asks", "expected"),
    [
        pytest.param({}, {"eight.large": 1}, id="another type holds as many"),
        pytest.param(without(TWIN), {"one.large": 8}, id="not one that the pods may use"),
        pytest.param({"node_selector": {labels.ZONE: B}}, {"one.large": 8}, id="nor is it sold in their zone"),
    ],
)
def test_the_kinds_that_min_values_count_are_those_the_pods_may_use(
    asks: dict[str, Any], expected: dict[str, int]
) -> None:
    """Eight pods of a GPU; the large type has a twin, which is sold in one zone."""
    term = {"key": labels.INSTANCE_TYPE, "operator": "Exists", "minValues": 2}
    sold = market(ONE, EIGHT, TWIN)
    sold = replace(sold, offers=tuple(it for it in sold.offers if it.instance_type != TWIN or it.zone == A))
    world = World(fleet(requirements=[term]), catalog=sold)
    for number in range(8):
        world.waits(gang(f"g{number}", pod_set("main", 1, 1, **asks)))
    assert kinds(bought(world)[0]) == expected


def test_gangs_that_buy_in_one_pass_share_what_is_cheaper_together() -> None:
    world = World(fleet(), catalog=market(ONE, EIGHT))
    world.waits(gang("g", count=5, gpu=1), gang("h", count=4, gpu=1))
    claims, _ = bought(world)
    assert kinds(claims) == {"one.large": 1, "eight.large": 1}
    assert {claim.gang for claim in claims} == {"uid-g", "uid-h"}
    sizes = {claim.launch.group: claim.launch.size for claim in claims}
    assert all(sum(claim.launch.group == group for claim in claims) == size for group, size in sizes.items())
    for name, count in (("g", 5), ("h", 4)):
        assert sum(pin.count for pin in world.gang(name).pins) == count
    shared = next(claim for claim in claims if claim.capacity_pool.instance_type == "eight.large")
    assert "of ns/g" in shared.purpose
    assert "of ns/h" in shared.purpose


def test_whose_machine_is_shared_says_what_it_waits_for() -> None:
    world = World(fleet(), catalog=market(EIGHT))
    world.waits(gang("g", count=4, gpu=1), gang("h", count=4, gpu=1))
    claims, _ = bought(world)
    assert kinds(claims) == {"eight.large": 1}
    assert world.gang("g").message == f"buying 1 x eight.large (on-demand, {A}) at 8.00 USD/h"
    assert world.gang("h").message == "waits for 1 machine on the way"


def test_pods_of_a_set_with_gpus_stay_on_one_model_and_single_pods_go_anywhere() -> None:
    world = World(fleet(), catalog=market(ONE, OTHER))
    world.waits(gang("g", count=5, gpu=1))
    assert kinds(bought(world)[0]) == {"one.large": 5}, "6.00 USD/h; with 4 on the other model it would be 5.10"
    world = World(fleet(), catalog=market(ONE, OTHER))
    world.waits(*(gang(f"g{n}", count=1, gpu=1) for n in range(5)))
    assert kinds(bought(world)[0]) == {"other.large": 1, "one.large": 1}


def test_by_rules_alone_where_the_policy_says_so() -> None:
    world = World(fleet("Greedy"), catalog=market(ONE, EIGHT))
    world.waits(gang("g", count=9, gpu=1))
    claims, tally = bought(world)
    assert tally is not None
    assert sum(claim.price_usd_h for claim in claims) <= 10.8 + 1e-9
    assert tally.bound_usd_h > 0


def test_a_purpose_names_the_next_best() -> None:
    world = World(fleet(), catalog=market(EIGHT, CPUS))
    world.waits(gang("g", pod_set("main", 1, requests=amounts(0, "4"))))
    [claim] = bought(world)[0]
    assert claim.purpose == "for 1 x main of ns/g; next best eight.large at 8.00 USD/h"


def test_the_limits_of_a_pool_hold() -> None:
    world = World(fleet(limits={"nodes": 5}), catalog=market(ONE, EIGHT))
    world.waits(gang("g", count=9, gpu=1))
    assert kinds(bought(world)[0]) == {"one.large": 1, "eight.large": 1}
    world = World(fleet(limits={"resources": {GPU: 9}}), catalog=market(ONE, EIGHT))
    world.waits(gang("g", count=9, gpu=1))
    assert kinds(bought(world)[0]) == {"one.large": 1, "eight.large": 1}


def test_pods_that_share_one_host_stay_together() -> None:
    world = World(fleet(), catalog=market(ONE, EIGHT, CPUS))
    together = pod_set("main", 3, 1, required_topology="kubernetes.io/hostname")
    world.waits(gang("g", together), gang("h", count=1, gpu=1))
    claims, _ = bought(world)
    assert kinds(claims) == {"eight.large": 1}
    assert [pin.count for pin in world.gang("g").pins] == [3]


_sets = st.tuples(st.integers(1, 6), st.sampled_from([(1, "2"), (2, "4"), (4, "8"), (0, "3"), (0, "11")]))
_gangs = st.lists(st.lists(_sets, min_size=1, max_size=2), min_size=1, max_size=5)


@settings(max_examples=40)
@given(_gangs, st.sampled_from([None, 6, 12]), st.sampled_from([None, 30]))
def test_never_dearer_than_gang_by_gang_and_all_have_room(
    asked: list[list[tuple[int, tuple[int, str]]]], nodes: int | None, usd_h: int | None
) -> None:
    limits = {key: value for key, value in (("nodes", nodes), ("usdPerHour", usd_h)) if value is not None}
    world = World(fleet(limits=limits), catalog=market(ONE, EIGHT, OTHER, CPUS))
    for n, sets in enumerate(asked):
        pods = [pod_set(f"s{i}", count, requests=amounts(*each)) for i, (count, each) in enumerate(sets)]
        world.waits(gang(f"g{n}", *pods))
    claims, tally = bought(world)
    assert (tally is None) is not bool(claims)
    if tally is not None:
        cost = sum(claim.price_usd_h for claim in claims)
        assert tally.bound_usd_h - 1e-6 <= cost <= tally.one_kind_usd_h + 1e-6
        assert cost == pytest.approx(tally.cost_usd_h)
        assert nodes is None or len(claims) <= nodes
        assert usd_h is None or cost <= usd_h + 1e-6
    room: dict[str, dict[str, int]] = {claim.name: dict(_room(world, claim)) for claim in claims}
    for it in world.gangs.values():
        pinned = Counter[str]()
        for pin in it.pins:
            pinned[pin.pod_set] += pin.count
            for resource, amount in {**it.pod_set(pin.pod_set).requests, "pods": 1}.items():
                room[pin.claim][resource] = room[pin.claim].get(resource, 0) - amount * pin.count
        assert not it.pins or pinned == Counter({pods.name: pods.count for pods in it.pod_sets}), "all or nothing"
    assert all(left >= 0 for resources in room.values() for left in resources.values())
    assert {claim.name for claim in claims} == {pin.claim for it in world.gangs.values() for pin in it.pins}, (
        "none idle"
    )


def _room(world: World, claim: Claim) -> Resources:
    where = claim.capacity_pool
    return offering(world.fleet, world.catalog, "all", where.instance_type, where.zone, "on-demand").allocatable


# -- single pods gather -----------------------------------------------------------------------------------------------


def single(name: str, age_s: float, **more: Any) -> Gang:
    return gang(name, count=1, gpu=1, created_s=NOW - age_s, **more)


def turn(world: World, at_s: float) -> dict[str, str]:
    world.now_s = NOW + at_s
    bought(world)
    return {it.job.name: str(it.reason) for it in world.gangs.values()}


def test_single_pods_gather_for_a_second_of_quiet() -> None:
    world = World(fleet(), catalog=market(ONE, EIGHT))
    world.waits(*(single(f"g{n}", 0) for n in range(6)))
    assert set(turn(world, 0.2).values()) == {"Batching"}
    world.waits(single("late", -0.9), single("later", -0.9))
    assert set(turn(world, 1.1).values()) == {"Batching"}
    assert set(turn(world, 2.0).values()) == {"Buying"}
    assert kinds(world.claims.values()) == {"eight.large": 1}


def test_whom_others_were_evicted_for_keeps_its_turn_while_it_gathers() -> None:
    """Told otherwise it would be tried after those, who would be evicted for it again: a thousand turns a second."""
    world = World(fleet(), catalog=market(ONE, EIGHT))
    waits = {"reason": Reason.WAITING_FOR_PREEMPTED, "message": "waits until x has left"}
    world.waits(single("first", 0, **waits), single("other", 0))
    assert turn(world, 0.2) == {"first": "WaitingForPreemptedWorkloads", "other": "Batching"}
    assert set(turn(world, 1.1).values()) == {"Buying"}


def test_ten_seconds_are_the_most_whoever_comes() -> None:
    world = World(fleet(), catalog=market(ONE))
    seen = []
    for second in range(12):
        world.waits(single(f"g{second}", -second))
        seen.append(set(turn(world, second + 0.1).values()))
    assert seen[:10] == [{"Batching"}] * 10
    assert seen[10] == {"Buying"}, "all that had come"
    assert seen[11] == {"Buying", "Batching"}, "the next window"


def test_gangs_do_not_wait_and_take_single_pods_on_their_machines_along() -> None:
    world = World(fleet(), catalog=market(EIGHT))
    world.waits(gang("g", count=2, gpu=1, created_s=NOW), single("s", 0))
    assert turn(world, 0.1) == {"g": "Buying", "s": "Buying"}
    assert kinds(world.claims.values()) == {"eight.large": 1}


def test_who_finds_room_does_not_wait() -> None:
    world = World(fleet(), catalog=market(EIGHT))
    world.machine("m0", "all", "eight.large")
    world.waits(single("s", 0))
    assert turn(world, 0.1) == {"s": "Admitted"}


def test_a_clock_that_is_ahead_holds_nobody_back() -> None:
    world = World(fleet(), catalog=market(EIGHT))
    world.waits(single("s", -3600))
    assert turn(world, 0.1) == {"s": "Buying"}
