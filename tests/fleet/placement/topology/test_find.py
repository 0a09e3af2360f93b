"""Where the pods of one set go: levels, slices, order, and what keeps a host out."""

import pytest

from fleet.placement.topology import (
    PreferredSchedulingTerm,
    RefusalKind,
    Topologies,
    TopologyFlavor,
    TopologyOptions,
    TopologyRequest,
)
from fleet.snapshot import PodSet, Slice
from model.kinds import RequirementTerm, Taint, Toleration
from tests.support.topology import (
    BLOCK,
    FLAVOR,
    GPU,
    HOST,
    LEVELS,
    RACK,
    find,
    flavor,
    host,
    on_hosts,
    placed,
    pods,
    world,
)

TWO_RACKS = {"b1/r1/a": 4, "b1/r1/b": 2, "b1/r2/c": 8, "b2/r3/d": 3, "b2/r3/e": 3}


@pytest.mark.parametrize(
    ("free", "pod_set", "expected"),
    [
        # required: the tightest domain that holds all, then as few hosts as possible, the last the tightest
        (TWO_RACKS, pods(6, required_topology=RACK), {"a": 4, "b": 2}),
        (TWO_RACKS, pods(5, required_topology=RACK), {"a": 4, "b": 1}),
        (TWO_RACKS, pods(4, required_topology=RACK), {"a": 4}),
        (TWO_RACKS, pods(3, required_topology=RACK), {"a": 3}),
        (TWO_RACKS, pods(7, required_topology=RACK), {"c": 7}),
        (TWO_RACKS, pods(9, required_topology=BLOCK), {"c": 8, "b": 1}),
        (TWO_RACKS, pods(3, required_topology=HOST), {"d": 3}),
        (TWO_RACKS, pods(4, 2, required_topology=RACK), {"c": 4}),
        # preferred: the level, then coarser ones, then several domains of the top
        (TWO_RACKS, pods(8, preferred_topology=RACK), {"c": 8}),
        (TWO_RACKS, pods(10, preferred_topology=RACK), {"c": 8, "b": 2}),
        (TWO_RACKS, pods(17, preferred_topology=RACK), {"a": 4, "c": 8, "b": 2, "d": 3}),
        # no wish: the least room that holds all of it
        (TWO_RACKS, pods(2, any_topology=True), {"b": 2}),
        (TWO_RACKS, pods(5, any_topology=True), {"c": 5}),
        (TWO_RACKS, pods(9, any_topology=True), {"b": 2, "d": 3, "e": 3, "a": 1}),
        # ties go by the values of the levels
        ({"b2/r1/a": 2, "b1/r9/z": 2}, pods(2, required_topology=RACK), {"z": 2}),
        ({"b1/r1/n2": 2, "b1/r1/n1": 2}, pods(3, required_topology=RACK), {"n1": 2, "n2": 1}),
        ({"b1/r1/a": 1}, pods(0, required_topology=RACK), {}),
    ],
)
def test_one_set(free: dict[str, int], pod_set: PodSet, expected: dict[str, int]) -> None:
    outcome = find(world(free), pod_set)
    assert outcome.refusal is None
    assert placed(outcome) == {"main": expected}


@pytest.mark.parametrize(
    ("free", "pod_set", "expected"),
    [
        # a slice stays whole; hosts with half a slice left over are used for what fits
        (
            {"r/a": 3, "r/b": 3, "r/c": 2},
            pods(6, slices=(Slice(HOST, 2),), required_topology=RACK),
            {"c": 2, "a": 2, "b": 2},
        ),
        ({"r/a": 5, "r/b": 2, "r/c": 4}, pods(6, slices=(Slice(HOST, 2),), required_topology=RACK), {"c": 4, "b": 2}),
        # below the level of the slices the small places go first
        ({"r/a": 1, "r/b": 5, "s/c": 2}, pods(3, slices=(Slice(RACK, 3),)), {"a": 1, "b": 2}),
        ({"r/a": 2, "r/b": 2, "s/c": 3, "s/d": 1}, pods(8, slices=(Slice(RACK, 4),)), {"a": 2, "b": 2, "c": 3, "d": 1}),
        # inner slices: whole racks of 4 in pairs on a host
        ({"r/a": 3, "r/b": 3, "s/c": 4}, pods(4, slices=(Slice(RACK, 4), Slice(HOST, 2))), {"a": 2, "b": 2}),
        ({"r/a": 3, "r/b": 1, "s/c": 4}, pods(4, slices=(Slice(RACK, 4), Slice(HOST, 2))), {"c": 4}),
    ],
)
def test_slices(free: dict[str, int], pod_set: PodSet, expected: dict[str, int]) -> None:
    assert placed(find(world(free), pod_set)) == {"main": expected}


R = RefusalKind


@pytest.mark.parametrize(
    ("free", "pod_set", "kind", "fitting"),
    [
        (TWO_RACKS, pods(9, required_topology=RACK), R.NO_ROOM, 8),
        (TWO_RACKS, pods(21, preferred_topology=RACK), R.NO_ROOM, 20),
        (TWO_RACKS, pods(21, any_topology=True), R.NO_ROOM, 20),
        (TWO_RACKS, pods(1, 9, any_topology=True), R.NO_ROOM, 0),
        (TWO_RACKS, PodSet("main", 1, {"example.com/tpu": 1}, any_topology=True), R.NO_ROOM, 0),
        (TWO_RACKS, pods(6, slices=(Slice(RACK, 6),), required_topology=HOST), R.INVALID_SLICES, 0),
        (TWO_RACKS, pods(5, slices=(Slice(HOST, 2),)), R.INVALID_SLICES, 0),
        (TWO_RACKS, pods(4, slices=(Slice(HOST, 0),)), R.INVALID_SLICES, 0),
        (TWO_RACKS, pods(6, slices=(Slice(RACK, 3), Slice(HOST, 2))), R.INVALID_SLICES, 0),
        (TWO_RACKS, pods(6, slices=(Slice(HOST, 3), Slice(RACK, 3))), R.INVALID_SLICES, 0),
        (TWO_RACKS, pods(6, slices=(Slice("row", 3),)), R.UNKNOWN_LEVEL, 0),
        (TWO_RACKS, pods(6, required_topology="row"), R.UNKNOWN_LEVEL, 0),
        (TWO_RACKS, pods(6), R.NO_REQUEST, 0),
        ({}, pods(1, any_topology=True), R.NO_DOMAINS, 0),
        # racks of 4 in pairs: neither rack has two pairs
        ({"r/a": 3, "r/b": 1, "s/c": 1, "s/d": 3}, pods(4, slices=(Slice(RACK, 4), Slice(HOST, 2))), R.NO_ROOM, 0),
    ],
)
def test_refused(free: dict[str, int], pod_set: PodSet, kind: RefusalKind, fitting: int) -> None:
    outcome = find(world(free), pod_set)
    assert not outcome.assignments
    assert outcome.refusal is not None
    assert (outcome.refusal.kind, outcome.refusal.fitting) == (kind, fitting)
    assert outcome.refusal.message


def test_a_refusal_says_what_would_change_it() -> None:
    gpus, sick = Taint(key="gpu", effect="NoSchedule"), ("state", "sick")
    hosts = [host("b/r/a", 1), host("b/r/b", 0), host("b/r/c", 8), host("b/r/d", 8, sick)]
    tainted = [*hosts[:2], _tainted(hosts[2], gpus), hosts[3]]
    healthy = ((RequirementTerm(key="state", operator="DoesNotExist"),),)
    refusal = find(_of(tainted), pods(4, required_topology=RACK, required_affinity=healthy)).refusal
    assert refusal is not None
    assert refusal.excluded == (
        ("do not match its node selector or affinity", 1),
        ("have a taint that is not tolerated", 1),
        (f"have too little {GPU}", 1),
    )
    assert refusal.message == (
        "of 4 pods of pod set main only 1 can be placed in one domain of example.com/rack; 1 of 4 do not match its "
        "node selector or affinity, 1 of 4 have a taint that is not tolerated, 1 of 4 have too little nvidia.com/gpu"
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (TopologyOptions(), {"b": 2}),
        (TopologyOptions(least_free_first=False), {"b": 2}),
        (TopologyOptions(weigh_preferences=True), {"c": 2}),
        (TopologyOptions(weigh_preferences=True, least_free_first=False), {"c": 2}),
    ],
)
def test_preferred_affinity_comes_before_room(options: TopologyOptions, expected: dict[str, int]) -> None:
    hosts = [host("b/r/a", 8), host("b/r/b", 2), host("b/r/c", 8, ("disk", "fast"))]
    liked = (PreferredSchedulingTerm(10, (RequirementTerm(key="disk", operator="In", values=("fast",)),)),)
    found = _of(hosts, options).find([TopologyRequest(pods(2, any_topology=True), FLAVOR, liked)])
    assert placed(found) == {"main": expected}


def test_what_is_liked_less_is_still_taken_when_required() -> None:
    """Where the domain liked most does not hold all, a required wish goes to the next."""
    hosts = [host("r/a", 1, ("disk", "fast")), host("s/b", 9), host("t/c", 4)]
    liked = (PreferredSchedulingTerm(10, (RequirementTerm(key="disk", operator="Exists"),)),)
    topologies = Topologies(hosts, {}, [flavor((RACK, HOST))], TopologyOptions(weigh_preferences=True))
    assert placed(topologies.find([TopologyRequest(pods(3, required_topology=RACK), FLAVOR, liked)])) == {
        "main": {"c": 3}
    }
    spread = topologies.find([TopologyRequest(pods(3, preferred_topology=RACK), FLAVOR, liked)])
    assert placed(spread) == {"main": {"a": 1, "c": 2}}


@pytest.mark.parametrize(
    ("wish", "tolerations", "expected"),
    [
        ({}, (), {"a": 1}),
        ({"node_selector": {"zone": "2"}}, (), {}),
        ({"node_selector": {"zone": "2"}}, (Toleration(key="gpu", operator="Exists"),), {"b": 1}),
        ({"required_affinity": ((RequirementTerm(key="zone", operator="NotIn", values=("1",)),),)}, (), {"c": 1}),
        ({"required_affinity": ((RequirementTerm(key="zone", operator="DoesNotExist"),),)}, (), {"c": 1}),
    ],
)
def test_labels_and_taints(
    wish: dict[str, object], tolerations: tuple[Toleration, ...], expected: dict[str, int]
) -> None:
    hosts = [
        host("b/r/a", 1, ("zone", "1")),
        _tainted(host("b/r/b", 1, ("zone", "2")), Taint(key="gpu", effect="NoExecute")),
        host("b/r/c", 2),
    ]
    assert (
        on_hosts(find(_of(hosts), pods(1, any_topology=True, tolerations=tolerations, **wish)).of("main")) == expected
    )


def test_the_flavor_adds_its_tolerations_and_chooses_its_nodes() -> None:
    hosts = [_tainted(host("b/r/a", 8, ("kind", "x")), Taint(key="gpu", effect="NoSchedule")), host("b/r/b", 8)]
    tolerant = TopologyFlavor(FLAVOR, LEVELS, {"kind": "x"}, (Toleration(key="gpu", operator="Exists"),))
    assert placed(find(Topologies(hosts, {}, [tolerant]), pods(8, any_topology=True))) == {"main": {"a": 8}}
    strict = TopologyFlavor(FLAVOR, LEVELS, {"kind": "x"})
    assert find(Topologies(hosts, {}, [strict]), pods(8, any_topology=True)).refusal is not None


def test_nodes_that_are_not_well_or_lack_a_level_are_not_in_the_tree() -> None:
    hosts = [host("b/r/a", 8, ready=False), host("r/b", 8), host("b/r/c", 1)]
    assert placed(find(_of(hosts), pods(1, any_topology=True))) == {"main": {"c": 1}}
    assert find(_of(hosts), pods(2, any_topology=True)).refusal is not None


def test_pods_of_nobody_take_room_and_a_pod_each() -> None:
    hosts = [host("b/r/a", {GPU: 8, "pods": 3})]

    def fits(count: int, **foreign: int) -> bool:
        made = Topologies(hosts, {"a": {"pods": foreign.get("pods", 0), GPU: foreign.get("gpu", 0)}}, [flavor()])
        return all(find(made, pods(count, any_topology=True), empty=empty).refusal is None for empty in (False, True))

    assert fits(3)
    assert not fits(4)
    assert not fits(3, pods=1)
    assert fits(2, pods=1, gpu=6)
    assert not fits(2, pods=1, gpu=7)


def test_a_topology_above_hosts_counts_whole_domains() -> None:
    hosts = [host("b/r/a", 3), host("b/r/b", 3), host("b/s/c", 4)]
    made = Topologies(hosts, {}, [flavor((BLOCK, RACK))])
    found = find(made, pods(2, 3, required_topology=RACK)).of("main")
    assert found is not None
    assert (found.levels, dict(found.domains)) == ((BLOCK, RACK), {("b", "r"): 2})
    wanted = find(made, pods(1, 4, required_topology=RACK, node_selector={"no": "such"})).of("main")
    assert wanted is not None
    assert dict(wanted.domains) == {("b", "r"): 1}


def _of(hosts: list[object], options: TopologyOptions | None = None) -> Topologies:
    return Topologies(hosts, {}, [flavor()], options)  # type: ignore[arg-type]


def _tainted(node: object, taint: Taint) -> object:
    from dataclasses import replace

    return replace(node, taints=(taint,))  # type: ignore[type-var]
