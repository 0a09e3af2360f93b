"""NVLink domains that gangs may share: which needs belong together, and how a stated split falls apart."""

from dataclasses import replace

import pytest

from fleet.offerings.offerings import Offerings
from fleet.placement.cluster_state import ClusterState, NodeSlot
from fleet.placement.plan import Need
from fleet.placement.shared_domains import nvlink_domains, nvlink_parts, ways_over_nvlink
from fleet.snapshot import Catalog, PodSet, Reservation
from fleet.snapshot.gangs import Slice
from model.fleet import Fleet
from model.labels import GPU_CLIQUE, HOSTNAME
from providers.aws.catalog import package_catalog

GB200 = package_catalog("us-east-1").catalog.types["p6e-gb200.36xlarge"]
PLAIN = package_catalog("us-east-1").catalog.types["p5.48xlarge"]


def need(name: str = "main", count: int = 12, **more: object) -> Need:
    return Need(replace(PodSet(name, count, {"nvidia.com/gpu": 4}), **more), (), {}, ())  # type: ignore[arg-type]


def counts(way: list[Need]) -> list[tuple[str, int, str]]:
    return [(it.pod_set.name, it.pod_set.count, it.pod_set.required_topology) for it in way]


@pytest.mark.parametrize(
    ("asked", "ways"),
    [
        ([need(slices=(Slice(GPU_CLIQUE, 6),))], [[("main", 6, GPU_CLIQUE)] * 2]),
        ([need(preferred_topology=GPU_CLIQUE)], [[("main", 12, GPU_CLIQUE)], [("main", 12, "")]]),
        (
            [need("a", 1, required_topology=GPU_CLIQUE), need("b", slices=(Slice(GPU_CLIQUE, 4),))],
            [[("a", 1, GPU_CLIQUE), *[("b", 4, GPU_CLIQUE)] * 3]],
        ),
        ([need(slices=(Slice(GPU_CLIQUE, 5),))], []),
        ([need(slices=(Slice("rack", 6),))], []),
        ([need(slices=(Slice(GPU_CLIQUE, 6), Slice(HOSTNAME, 2)))], []),
        ([need(slices=(Slice(GPU_CLIQUE, 6),), group="g")], []),
        ([need(preferred_topology="rack")], []),
    ],
)
def test_a_stated_split_is_a_need_a_slice(asked: list[Need], ways: list[list[tuple[str, int, str]]]) -> None:
    assert [counts(way) for way in ways_over_nvlink(asked)] == ways


def test_sets_share_a_domain_and_slices_stand_alone() -> None:
    leader, workers = need("a", 1, required_topology=GPU_CLIQUE), need("b", required_topology=GPU_CLIQUE)
    assert [counts(part) for part in nvlink_parts([leader, need("free"), workers])] == [counts([leader, workers])]
    [split] = ways_over_nvlink([need(slices=(Slice(GPU_CLIQUE, 6),))])
    assert [counts(part) for part in nvlink_parts(split)] == [[("main", 6, GPU_CLIQUE)]] * 2
    assert nvlink_parts([need()]) == []


@pytest.mark.parametrize(
    ("kind", "machines", "joined"),
    [("capacity-block", 18, True), ("capacity-block", 9, True), ("capacity-block", 36, False), ("default", 18, False)],
)
def test_a_block_of_one_ultraserver_is_one_domain(kind: str, machines: int, joined: bool) -> None:
    held = Reservation("cr", GB200.name, "us-east-1a", machines, machines, kind=kind)  # type: ignore[arg-type]
    assert held.joined_by_nvlink(GB200) is joined
    assert not held.joined_by_nvlink(PLAIN)


def test_however_many_domains_are_nearly_full_one_with_room_is_tried_first() -> None:
    cliques = [*(f"small-{number}" for number in range(40)), *["large"] * 4, *["middle"] * 3]
    state = ClusterState(
        {
            f"n{number}": NodeSlot(
                f"n{number}", f"n{number}", "", {GPU_CLIQUE: clique}, (), {"nvidia.com/gpu": 4, "pods": 9}
            )
            for number, clique in enumerate(cliques)
        }
    )
    asked = replace(need(count=3), any_node=True)
    first, second, *rest = nvlink_domains(state, Offerings(Fleet(), Catalog()), [asked])
    assert [first, second] == [{GPU_CLIQUE: "middle"}, {GPU_CLIQUE: "large"}]
    assert len(rest) == 30
