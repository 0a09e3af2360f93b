"""Fixed pools: exactly so many machines, bought by halves, the least useful let go first."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import OpenClaims, SaveClaim
from fleet.nodeclaims import fixed
from fleet.snapshot import Claim, NodeDisruption
from model.kinds import NEVER
from tests.support.fleets import NOW, P5, P5S, A, B, FleetBuilder, capacity_pool, foreign_pod, gang, small_fleet
from tests.support.world import World


def world_of(replicas: int, standing: int = 0, **pool: Any) -> World:
    world = World(small_fleet(replicas=replicas, **pool))
    for n in range(standing):
        world.machine(f"m{n}", at_s=NOW - 7000 + n)
    return world


def bought(world: World) -> list[Claim]:
    return [
        claim for it in fixed.decide(world.fleet, world.snapshot()) if isinstance(it, OpenClaims) for claim in it.claims
    ]


def let_go(world: World) -> list[str]:
    found = [it.claim for it in fixed.decide(world.fleet, world.snapshot()) if isinstance(it, SaveClaim)]
    assert all(claim.disruption and claim.disruption.reason == "ScaledDown" for claim in found)
    return [claim.name for claim in found]


@pytest.mark.parametrize(
    ("replicas", "standing", "buys", "goes"), [(3, 0, 3, 0), (3, 2, 1, 0), (3, 3, 0, 0), (1, 3, 0, 2), (0, 2, 0, 2)]
)
def test_how_many(replicas: int, standing: int, buys: int, goes: int) -> None:
    world = world_of(replicas, standing)
    assert (len(bought(world)), len(let_go(world))) == (buys, goes)


@pytest.mark.parametrize(
    ("replicas", "sizes"),
    [(1, [1]), (2, [1, 1]), (3, [2, 1]), (10, [5, 3, 1, 1]), (1000, [500, 250, 125, 63, 31, 16, 8, 4, 2, 1])],
)
def test_machines_are_launched_by_halves(replicas: int, sizes: list[int]) -> None:
    claims = bought(world_of(replicas))
    groups: dict[str, list[Claim]] = {}
    for claim in claims:
        groups.setdefault(claim.launch.group, []).append(claim)
    assert [len(group) for group in groups.values()] == sizes
    assert all(claim.launch.size == len(groups[claim.launch.group]) and not claim.gang for claim in claims)
    assert len({claim.name for claim in claims}) == replicas


def test_the_same_machine_is_bought_once_more_by_another_name() -> None:
    """Found by the fuzzer: a machine that went in the instant in which another was bought was bought by its name."""
    world = world_of(2, 1)
    (first,) = bought(world)
    world.claims[first.name] = first
    world.claims["m0"] = replace(world.claims["m0"], deleting=True)
    (second,) = bought(world)
    assert second.name != first.name


def test_machines_on_their_way_count_and_those_that_leave_do_not() -> None:
    world = world_of(3, 3)
    world.claims["m0"] = replace(world.claims["m0"], ready_at_s=0.0, registered_at_s=0.0)
    assert bought(world) == []
    world.claims["m1"] = replace(world.claims["m1"], disruption=NodeDisruption("Expired", "x", NOW, NEVER))
    world.claims["m2"] = replace(world.claims["m2"], deleting=True)
    assert len(bought(world)) == 2


def test_a_machine_with_pods_of_others_is_not_idle() -> None:
    world = world_of(1, 2)
    world.stands(foreign_pod("p", "node-m1"), foreign_pod("d", "node-m0", daemon=True))
    assert let_go(world) == ["m0"]


def test_idle_machines_go_first_then_the_youngest() -> None:
    world = world_of(2, 4)
    for n in range(4):
        world.claims[f"m{n}"] = replace(world.claims[f"m{n}"], created_at_s=NOW - 100 + n)
    world.runs(gang("g"), ("m3", 1))
    assert let_go(world) == ["m2", "m1"]


@pytest.mark.parametrize(
    ("pool", "short", "expected"),
    [
        ({}, [], (P5.name, A, "on-demand")),
        ({"instanceTypes": [P5.name, P5S.name]}, [], (P5S.name, A, "on-demand")),
        ({"capacityTypes": ["spot", "on-demand"]}, [], (P5.name, A, "spot")),
        ({}, [capacity_pool(zone=A)], (P5.name, B, "on-demand")),
        ({}, [capacity_pool(zone=A), capacity_pool(zone=B)], None),
        ({"limits": {"nodes": 0}}, [], None),
        ({"limits": {"usdPerHour": 97.0}}, [], None),
    ],
)
def test_what_is_bought(pool: dict[str, Any], short: list[Any], expected: tuple[str, ...] | None) -> None:
    world = world_of(1, **pool)
    world.shortages = dict.fromkeys(short, NOW + 60)
    where = [
        (it.capacity_pool.instance_type, it.capacity_pool.zone, it.capacity_pool.capacity_type) for it in bought(world)
    ]
    assert where == ([expected] if expected else [])


def test_limits_hold_for_the_sum() -> None:
    assert len(bought(world_of(5, 1, limits={"nodes": 3}))) == 2


def test_the_first_layout_is_what_they_are_born_with() -> None:
    builder = FleetBuilder().layout("zz", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
    builder.layout("aa", h100_80gb=[{"profiles": {"3g.40gb": 2}}])
    world = World(builder.pool(replicas=1, sharing={"mig": {"layouts": ["zz", "aa"]}}).team().queue().build())
    [claim] = bought(world)
    assert claim.layout.startswith("zz-")


def test_a_pool_with_an_action_under_way_waits() -> None:
    world = world_of(3, 1)
    world.busy = frozenset({"claim/m0"})
    assert bought(world) == []


def test_gangs_may_use_them_but_buy_none() -> None:
    world = world_of(1)
    world.waits(gang("g"), gang("h", created_s=NOW))
    world.settle_down()
    assert {it.job.name: str(it.state) for it in world.gangs.values()} == {"g": "Admitted", "h": "Pending"}
    assert len(world.claims) == 1


def test_ten_rounds_later_nothing_has_changed() -> None:
    world = world_of(3)
    world.settle_down()
    assert len(world.claims) == 3
    for _ in range(10):
        world.now_s += 60
        assert world.pass_once() == []


def test_scaling_to_nothing_and_back() -> None:
    world = world_of(2)
    world.settle_down()
    world.fleet = small_fleet(replicas=0)
    world.settle_down()
    assert not world.claims
    assert not [it for it in world.instances.values() if not it.gone]
    world.fleet = small_fleet(replicas=1)
    world.settle_down()
    assert len(world.claims) == 1


def test_a_pool_that_is_removed_gives_its_machines_back() -> None:
    world = world_of(2)
    world.settle_down()
    world.fleet = FleetBuilder().pool("other").team(quotas={}).queue(flavors=["other"]).build()
    world.settle_down()
    assert not world.claims
