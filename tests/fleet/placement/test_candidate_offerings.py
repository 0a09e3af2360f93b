"""What could be bought for pods, by columns: the same as is found offering by offering, and in the same order."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.catalog import InstanceOffer
from fleet.offerings.offerings import Offerings
from fleet.placement.candidate_offerings import CandidateOfferings
from fleet.placement.cluster_state import room_in
from fleet.placement.inventory import build_capacity
from fleet.placement.offering_columns import PoolColumns
from fleet.placement.plan import Need
from model import labels
from model.kinds import NodePool
from tests.support.fleets import NOW, P5, P5S, A, B, FleetBuilder, amounts, catalog, pod_set, small_fleet
from tests.support.world import World

FLEET = small_fleet(instanceTypes=[P5.name, P5S.name], capacityTypes=["on-demand", "spot"])
OFFERINGS = Offerings(FLEET, catalog())
[POOL] = FLEET.node_pools.values()


def usd_h(offer: InstanceOffer) -> float:
    return offer.price_usd_h + 0.25


def columns(pool: NodePool) -> PoolColumns:
    return PoolColumns.of(pool, OFFERINGS, usd_h)


def found(need: Need) -> dict[str, CandidateOfferings]:
    return CandidateOfferings.by_zone(need, ("", A, B, "elsewhere"), OFFERINGS, columns)


def need(requests: Any = None, **more: Any) -> Need:
    return Need(pod_set(requests=requests, **more), (), {}, (POOL,))


REQUESTS = st.fixed_dictionaries(
    {"cpu": st.integers(0, 400_000)},
    optional={"memory": st.integers(1, 1 << 43), "nvidia.com/gpu": st.integers(0, 9), "example.com/none": st.just(1)},
)


@given(requests=REQUESTS)
def test_a_room_holds_as_many_pods_as_go_into_it(requests: dict[str, int]) -> None:
    known = columns(POOL)
    assert [*known.holds(requests)] == [room_in(room, requests) for room in known.rooms]


def test_names_that_nobody_offers_are_not_kept() -> None:
    known = columns(POOL)
    for number in range(100):
        assert not any(known.holds({"cpu": 1000, f"example.com/{number}": 1}))
    assert known._known.keys() == {("cpu", 1000), ("pods", 1)}


@given(requests=REQUESTS, pods=st.integers(1, 9))
def test_candidates_are_the_offerings_of_a_zone_that_hold_a_pod(requests: dict[str, int], pods: int) -> None:
    asked = need(requests)
    for zone, here in found(asked).items():
        held = {it.key: room_in(it.allocatable, requests) for it in OFFERINGS.of(POOL) if zone in {"", it.offer.zone}}
        candidates = [it for _, some in here.pools for it in some]
        assert here.seen == len(held)
        assert {it.offering.key: it.fits for it in candidates} == {key: fits for key, fits in held.items() if fits}
        assert all(it.usd_h == usd_h(it.offering.offer) for it in candidates)
        ranked = here.ranking(pods, whole=False).open
        assert [*ranked] == sorted(candidates, key=lambda it: it.rank(pods, -(-pods // it.fits)))


def test_only_offerings_that_pods_select_and_tolerate() -> None:
    picky = need(node_selector={labels.INSTANCE_TYPE: P5S.name})
    for here in found(picky).values():
        assert {it.offering.offer.instance_type.name for _, some in here.pools for it in some} <= {P5S.name}
    assert found(picky)[A].seen > 0
    tainted = FleetBuilder().pool(template={"taints": [{"key": "mine", "effect": "NoSchedule"}]}).build()
    [pool] = tainted.node_pools.values()
    shut_out = replace(need(), pools=(pool,))
    assert CandidateOfferings.by_zone(shut_out, (A,), Offerings(tainted, catalog()), columns)[A].pools == ()


@pytest.mark.parametrize(("until_s", "lasts"), [(NOW + 10, True), (NOW + 9e9, False)])
def test_what_ends_before_the_pods_is_named(until_s: float, lasts: bool) -> None:
    every = tuple(replace(it, closes_s=NOW + 1000) for it in OFFERINGS.of(POOL))
    known = Offerings(FLEET, catalog(), _by_pool={POOL.name: every})
    here = CandidateOfferings.by_zone(
        replace(need(amounts(gpu=1)), until_s=until_s), (A,), known, lambda pool: PoolColumns.of(pool, known, usd_h)
    )[A]
    assert bool(here.seen) is lasts
    assert bool(here.too_short) is not lasts


def test_candidates_are_kept_from_pass_to_pass() -> None:
    seen = World(FLEET).snapshot()
    once, again = build_capacity(FLEET, seen), build_capacity(FLEET, seen)
    assert once.candidates(need(), A) is again.candidates(need(), A)
    assert once.candidates(need(), A) is not build_capacity(FLEET, World(FLEET).snapshot()).candidates(need(), A)
