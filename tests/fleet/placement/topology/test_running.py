"""Sets that run already: a lost host, more pods, fewer pods."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.placement.topology import (
    NodeReplacement,
    PreviousAssignment,
    RefusalKind,
    Topologies,
    TopologyAssignment,
    TopologyRequest,
    TopologyResult,
)
from fleet.snapshot import PodSet, Slice
from tests.support.topology import BLOCK, FLAVOR, GPU, HOST, LEVELS, RACK, flavor, host, placed, pods, world

PAIRS_IN_RACKS = (Slice(RACK, 4), Slice(HOST, 2))


def running(**counts: int) -> TopologyAssignment:
    return TopologyAssignment("main", FLAVOR, {GPU: 1}, (HOST,), {(name,): count for name, count in counts.items()})


def repair(
    free: dict[str, int], pod_set: PodSet, before: TopologyAssignment, lost: str, *, charged: bool = True
) -> TopologyResult:
    topologies = world(free)
    if charged:
        topologies.take(before)
    return topologies.find([TopologyRequest(pod_set, FLAVOR, previous=NodeReplacement(before, lost))])


@pytest.mark.parametrize(
    ("free", "pod_set", "before", "expected"),
    [
        # a required domain is the one the others are in, although another is tighter
        ({"r/b": 4, "r/c": 4, "s/d": 2}, pods(4, required_topology=RACK), {"a": 2, "b": 2}, {"b": 4}),
        ({"r/b": 2, "r/c": 4, "s/d": 2}, pods(4, required_topology=RACK), {"a": 2, "b": 2}, {"b": 2, "c": 2}),
        # a preferred one is not: the lost pods go where they fit best
        ({"r/b": 2, "r/c": 4, "s/d": 2}, pods(4, preferred_topology=RACK), {"a": 2, "b": 2}, {"b": 2, "d": 2}),
        ({"r/b": 2, "s/d": 2}, pods(4, any_topology=True), {"a": 2, "b": 2}, {"b": 2, "d": 2}),
        # nothing is left: anywhere
        ({"r/b": 1, "s/d": 2}, pods(2, required_topology=RACK), {"a": 2}, {"d": 2}),
        # half a slice was lost: to the rest of it
        (
            {"r/b": 9, "s/c": 9, "s/d": 1},
            pods(4, slices=(Slice(RACK, 2),)),
            {"b": 1, "a": 1, "c": 1, "d": 1},
            {"b": 2, "c": 1, "d": 1},
        ),
        # a whole slice was lost: to any rack
        (
            {"r/b": 3, "s/c": 9},
            pods(4, slices=(Slice(RACK, 2),), preferred_topology=RACK),
            {"a": 2, "b": 2},
            {"b": 2, "c": 2},
        ),
        # a pair out of a rack of four: to the same rack, as a pair
        ({"r/b": 3, "r/e": 1, "r/f": 2, "s/c": 9}, pods(4, slices=PAIRS_IN_RACKS), {"a": 2, "b": 2}, {"b": 2, "f": 2}),
        # the host was not among them
        ({"r/b": 3}, pods(2, required_topology=RACK), {"b": 2}, {"b": 2}),
    ],
)
def test_a_lost_host(free: dict[str, int], pod_set: PodSet, before: dict[str, int], expected: dict[str, int]) -> None:
    outcome = repair(free, pod_set, running(**before), "a")
    assert outcome.refusal is None
    assert placed(outcome) == {"main": expected}


@pytest.mark.parametrize(
    ("free", "pod_set", "before", "kind"),
    [
        ({"r/b": 3, "s/d": 9}, pods(4, required_topology=RACK), {"a": 2, "b": 2}, RefusalKind.NO_ROOM),
        ({"r/b": 1, "s/d": 9}, pods(2, slices=(Slice(RACK, 2),)), {"a": 1, "b": 1}, RefusalKind.NO_ROOM),
        ({"r/b": 9, "s/d": 9}, pods(3, required_topology=RACK), {"a": 1, "b": 1, "gone": 1}, RefusalKind.STALE),
        ({"r/b": 9}, pods(3), {"a": 1, "b": 2}, RefusalKind.NO_REQUEST),
    ],
)
def test_a_host_that_nothing_replaces(
    free: dict[str, int], pod_set: PodSet, before: dict[str, int], kind: RefusalKind
) -> None:
    outcome = repair(free, pod_set, running(**before), "a")
    assert outcome.refusal is not None
    assert outcome.refusal.kind is kind


@settings(max_examples=80)
@given(
    free=st.lists(st.integers(0, 6), min_size=8, max_size=8),
    slices=st.integers(1, 5),
    lost=st.integers(0, 7),
    wish=st.sampled_from(
        [
            {"required_topology": RACK},
            {"preferred_topology": RACK},
            {"any_topology": True},
            {"slices": PAIRS_IN_RACKS},
            {"required_topology": BLOCK, "slices": PAIRS_IN_RACKS},
        ]
    ),
)
def test_a_repair_keeps_what_runs_and_every_promise(
    free: list[int], slices: int, lost: int, wish: dict[str, object]
) -> None:
    """The others stay where they are, all pods are there again, and domains and slices are as when they started."""
    names = {f"h{n}": f"b{n // 4}/r{n // 2}/h{n}" for n in range(8)}
    pod_set = pods(4 * slices, **wish)
    before = world(dict(zip(names.values(), free, strict=True))).find([TopologyRequest(pod_set, FLAVOR)])
    gone = f"h{lost}"
    if before.refusal is not None or (gone,) not in before.assignments[0].domains:
        return
    left = {path: gpus for (name, path), gpus in zip(names.items(), free, strict=True) if name != gone}
    outcome = repair(left, pod_set, before.assignments[0], gone)
    for placement in outcome.assignments:
        kept = {values: count for values, count in before.assignments[0].domains.items() if values != (gone,)}
        assert placement.count == pod_set.count
        assert all(placement.domains[values] >= count for values, count in kept.items())
        racks, blocks = Counter[str](), Counter[str]()
        for (name,), count in placement.domains.items():
            racks[names[name].split("/")[1]] += count
            blocks[names[name].split("/")[0]] += count
        required = {RACK: racks, BLOCK: blocks}.get(pod_set.required_topology)
        assert required is None or not kept or len(required) == 1
        if pod_set.slices:
            assert all(count % 4 == 0 for count in racks.values())
            assert all(count % 2 == 0 for count in placement.domains.values())


def test_a_pod_that_is_its_own_workload_stays() -> None:
    before = running(a=1)
    asked = [TopologyRequest(pods(1, any_topology=True), FLAVOR, previous=NodeReplacement(before, "a", movable=False))]
    assert world({"r/b": 9}).find(asked).assignments == (before,)


def test_two_sets_on_the_lost_host_do_not_get_the_same_place() -> None:
    topologies = world({"r/b": 2, "r/c": 2})
    asked = [
        TopologyRequest(
            pods(2, name=name, required_topology=RACK), FLAVOR, previous=NodeReplacement(_named(name, a=2), "a")
        )
        for name in ("one", "two")
    ]
    assert placed(topologies.find(asked)) == {"one": {"b": 2}, "two": {"c": 2}}
    assert placed(topologies.find(asked[:1])) == {"one": {"b": 2}}


@pytest.mark.parametrize(
    ("free", "pod_set", "before", "expected"),
    [
        # more: the old places stay, the others fit around them
        ({"r/a": 4, "r/b": 4}, pods(6, any_topology=True), {"a": 3}, {"a": 3, "b": 3}),
        ({"r/a": 4, "r/b": 4}, pods(4, any_topology=True), {"a": 3}, {"a": 4}),
        ({"r/a": 2, "r/b": 4, "s/c": 3}, pods(5, required_topology=RACK), {"a": 2}, {"a": 2, "b": 3}),
        # fewer: the last go
        ({"r/a": 4, "r/b": 4}, pods(4, any_topology=True), {"a": 3, "b": 3}, {"a": 3, "b": 1}),
        ({"r/a": 4, "r/b": 4}, pods(3, any_topology=True), {"a": 3, "b": 3}, {"a": 3}),
        # as many: nothing moves, however badly it is placed
        ({"r/a": 4, "r/b": 4}, pods(2, any_topology=True), {"a": 1, "b": 1}, {"a": 1, "b": 1}),
        # a host is gone, or the slices were cut otherwise: everything anew
        ({"r/b": 4, "s/c": 3}, pods(3, any_topology=True), {"a": 1, "b": 1}, {"c": 3}),
        ({"r/a": 4, "r/b": 5}, pods(4, slices=(Slice(HOST, 4),)), {"b": 3}, {"a": 4}),
    ],
)
def test_more_pods_or_fewer(
    free: dict[str, int], pod_set: PodSet, before: dict[str, int], expected: dict[str, int]
) -> None:
    outcome = world(free).find([TopologyRequest(pod_set, FLAVOR, previous=PreviousAssignment(running(**before)))])
    assert outcome.refusal is None
    assert placed(outcome) == {"main": expected}


def test_more_pods_stay_in_the_required_domain_or_nowhere() -> None:
    asked = [TopologyRequest(pods(4, required_topology=RACK), FLAVOR, previous=PreviousAssignment(running(a=2)))]
    refusal = world({"r/a": 3, "s/b": 9}).find(asked).refusal
    assert refusal is not None
    assert refusal.kind is RefusalKind.NO_ROOM


def test_a_leader_keeps_its_host() -> None:
    workers = pods(4, any_topology=True, group="g")
    leader = pods(1, name="leader", any_topology=True, group="g")
    topologies = world({"r/a": 2, "r/b": 1, "r/c": 2})
    kept = [
        TopologyRequest(leader, FLAVOR, previous=PreviousAssignment(_named("leader", b=1))),
        TopologyRequest(workers, FLAVOR, previous=PreviousAssignment(running(a=2))),
    ]
    assert placed(topologies.find(kept)) == {"leader": {"b": 1}, "main": {"a": 2, "c": 2}}
    late = [
        TopologyRequest(leader, FLAVOR),
        TopologyRequest(workers, FLAVOR, previous=PreviousAssignment(running(a=2))),
    ]
    assert placed(topologies.find(late)) == {"leader": {"b": 1}, "main": {"a": 2, "c": 2}}
    shrunk = [
        kept[0],
        TopologyRequest(pods(1, any_topology=True, group="g"), FLAVOR, previous=PreviousAssignment(running(a=2))),
    ]
    assert placed(topologies.find(shrunk)) == {"leader": {"b": 1}, "main": {"a": 1}}


def test_later_sets_see_old_places_and_new_ones() -> None:
    topologies = world({"r/a": 4, "r/b": 4})
    grown = TopologyRequest(pods(5, any_topology=True), FLAVOR, previous=PreviousAssignment(running(a=3)))
    other = TopologyRequest(pods(3, name="other", any_topology=True), FLAVOR)
    assert placed(topologies.find([grown, other])) == {"main": {"a": 3, "b": 2}, "other": {"a": 1, "b": 2}}


def test_in_a_topology_above_hosts_a_whole_domain_is_lost() -> None:
    topologies = Topologies([host("b/r/x", 4), host("b/s/y", 4)], {}, [flavor(LEVELS[:2])])
    before = TopologyAssignment("main", FLAVOR, {GPU: 1}, LEVELS[:2], {("b", "q"): 2, ("b", "r"): 2})
    asked = [TopologyRequest(pods(4, required_topology=BLOCK), FLAVOR, previous=NodeReplacement(before, "q"))]
    assert [dict(it.domains) for it in topologies.find(asked).assignments] == [{("b", "r"): 4}]


def _named(name: str, **counts: int) -> TopologyAssignment:
    from dataclasses import replace

    return replace(running(**counts), pod_set=name)
