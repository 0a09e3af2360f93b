"""A leader with its workers, and several sets of one workload one after the other."""

import pytest

from fleet.placement.topology import RefusalKind, Topologies, TopologyOptions, TopologyRequest
from fleet.snapshot import PodSet, Slice
from tests.support.topology import FLAVOR, GPU, HOST, LEVELS, RACK, find, flavor, host, on_hosts, placed, pods, world


def team(workers: PodSet, leader_gpus: int = 1) -> tuple[PodSet, PodSet]:
    from dataclasses import replace

    leader = replace(workers, name="leader", count=1, requests={GPU: leader_gpus}, slices=(), group="g")
    return leader, replace(workers, group="g")


@pytest.mark.parametrize(
    ("free", "workers", "leader_gpus", "leader", "expected"),
    [
        # both in the one rack that has room for all
        ({"r/a": 4, "s/b": 5}, pods(4, required_topology=RACK), 1, "b", {"b": 4}),
        # the leader goes where it takes no worker's place
        ({"r/a": 2, "r/b": 4, "r/c": 3}, pods(4, 2, required_topology=RACK), 1, "c", {"a": 1, "b": 2, "c": 1}),
        # and where there is no such host, the count of the rack says so
        ({"r/a": 2, "r/b": 4, "s/c": 2, "s/d": 5}, pods(3, 2, required_topology=RACK), 1, "d", {"c": 1, "d": 2}),
        # a leader that leaves no room on its host for a worker
        ({"r/a": 4, "r/b": 2}, pods(2, 1, required_topology=RACK), 4, "a", {"b": 2}),
        # slices of two: the leader on the host with an odd one
        (
            {"r/a": 2, "r/b": 4, "r/c": 3},
            pods(8, required_topology=RACK, slices=(Slice(HOST, 2),)),
            1,
            "c",
            {"a": 2, "b": 4, "c": 2},
        ),
        # spread over racks when it is only preferred
        ({"r/a": 3, "s/b": 3}, pods(5, preferred_topology=RACK), 1, "a", {"a": 2, "b": 3}),
        ({"r/a": 1, "s/b": 3}, pods(3, any_topology=True), 1, "a", {"b": 3}),
    ],
)
def test_a_leader_and_its_workers(
    free: dict[str, int], workers: PodSet, leader_gpus: int, leader: str, expected: dict[str, int]
) -> None:
    outcome = find(world(free), *team(workers, leader_gpus))
    assert placed(outcome) == {"leader": {leader: 1}, "main": expected}


def test_the_order_of_a_group_does_not_matter() -> None:
    free = {"r/a": 2, "r/b": 4, "r/c": 3}
    leader, workers = team(pods(4, 2, required_topology=RACK))
    assert placed(find(world(free), leader, workers)) == placed(find(world(free), workers, leader))


def test_each_looks_at_labels_of_its_own() -> None:
    hosts = [host("b/r/a", 8, ("kind", "gpu")), host("b/r/z", {"cpu": 8, "pods": 8}, ("kind", "cpu"))]
    workers = pods(8, required_topology=RACK, group="g", node_selector={"kind": "gpu"})
    leader = PodSet("leader", 1, {"cpu": 4}, required_topology=RACK, group="g", node_selector={"kind": "cpu"})
    assert placed(find(Topologies(hosts, {}, [flavor()]), leader, workers)) == {"leader": {"z": 1}, "main": {"a": 8}}


@pytest.mark.parametrize("counts", [(2, 4), (1, 4, 4)])
def test_no_group(counts: tuple[int, ...]) -> None:
    asked = [pods(count, name=f"s{number}", group="g", any_topology=True) for number, count in enumerate(counts)]
    refusal = find(world({"r/a": 100}), *asked).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.INVALID_GROUP


@pytest.mark.parametrize("empty", [False, True])
def test_later_sets_see_what_earlier_ones_took(empty: bool) -> None:
    topologies = world({"r/a": 4, "r/b": 4, "s/c": 4})
    two = pods(4, name="one", required_topology=HOST), pods(5, name="two", required_topology=RACK)
    outcome = find(topologies, *two, empty=empty)
    assert placed(outcome) == {"one": {"a": 4}}
    assert outcome.refusal is not None
    assert outcome.refusal.pod_set == "two"
    assert placed(find(topologies, *reversed(two), empty=empty)) == {"two": {"a": 4, "b": 1}, "one": {"c": 4}}


def test_empty_is_as_if_no_gang_took_anything() -> None:
    topologies = world({"r/a": 4})
    whole = find(topologies, pods(4, any_topology=True)).of("main")
    assert whole is not None
    topologies.take(whole)
    assert find(topologies, pods(1, any_topology=True)).refusal is not None
    assert placed(find(topologies, pods(4, any_topology=True), empty=True)) == {"main": {"a": 4}}


def test_flavors_that_share_hosts_see_each_other() -> None:
    hosts = [host("b/r/a", 4), host("b/r/b", 4)]
    flavors = [flavor(), flavor(name="spot"), flavor(LEVELS[:2], name="racks")]
    topologies = Topologies(hosts, {}, flavors, TopologyOptions())
    both = [
        TopologyRequest(pods(4, name="one", any_topology=True), FLAVOR),
        TopologyRequest(pods(4, name="two", any_topology=True), "spot"),
    ]
    outcome = topologies.find(both)
    assert placed(outcome) == {"one": {"a": 4}, "two": {"b": 4}}
    topologies.take(outcome.assignments[0])
    assert on_hosts(topologies.find([both[1]]).of("two")) == {"b": 4}
    # a topology of racks counts what is taken on its hosts; the hosts do not know what the rack has given
    racks = topologies.find([TopologyRequest(pods(4, any_topology=True), "racks")])
    assert [dict(it.domains) for it in racks.assignments] == [{("b", "r"): 4}]
    topologies.take(racks.assignments[0])
    assert topologies.find([TopologyRequest(pods(1, any_topology=True), "racks")]).refusal is not None
    assert topologies.find([both[1]]).refusal is None


def test_a_flavor_without_topology_is_a_mistake_that_leaves_no_trace() -> None:
    topologies = world({"r/a": 4})
    wanted = [TopologyRequest(pods(2, name=name, any_topology=True), FLAVOR) for name in ("one", "two")]
    with pytest.raises(KeyError):
        topologies.find([*wanted, TopologyRequest(pods(1, name="three", any_topology=True), "other")])
    assert topologies.find(wanted).refusal is None
