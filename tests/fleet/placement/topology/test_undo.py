"""What-ifs leave no trace, and what is kept between searches never differs from counting anew."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.placement.topology import (
    PreviousAssignment,
    Topologies,
    TopologyAssignment,
    TopologyOptions,
    TopologyRequest,
)
from fleet.snapshot import PodSet, Slice
from tests.support.topology import FLAVOR, HOST, LEVELS, RACK, find, flavor, host, pods

NAMES = [f"b{b}/r{r}/h{b}{r}{h}" for b in range(2) for r in range(2) for h in range(3)]
FREE = st.lists(st.integers(0, 8), min_size=len(NAMES), max_size=len(NAMES))
WISHES: list[dict[str, object]] = [
    {"required_topology": RACK},
    {"preferred_topology": RACK},
    {"any_topology": True},
    {"slices": (Slice(RACK, 4), Slice(HOST, 2))},
    {"preferred_topology": RACK, "slices": (Slice(HOST, 2),)},
]
SETS = st.builds(
    lambda slices, gpus, wish: pods(4 * slices, gpus, **wish),
    st.integers(1, 6),
    st.integers(1, 3),
    st.sampled_from(WISHES),
)
OPTIONS = st.builds(TopologyOptions, st.booleans(), st.booleans())


def topologies(free: Sequence[int], options: TopologyOptions) -> Topologies:
    hosts = [host(name, gpus) for name, gpus in zip(NAMES, free, strict=True)]
    return Topologies(hosts, {}, [flavor(), flavor(LEVELS[:2], name="racks")], options)


@settings(max_examples=60)
@given(free=FREE, sets=st.lists(SETS, max_size=12), back=st.lists(st.integers(0, 11), max_size=8), options=OPTIONS)
def test_views_that_caught_up_equal_views_made_anew(
    free: list[int], sets: list[PodSet], back: list[int], options: TopologyOptions
) -> None:
    kept = topologies(free, options)
    standing: list[TopologyAssignment] = []
    for pod_set in sets:
        for placement in find(kept, pod_set).assignments:
            kept.take(placement)
            standing.append(placement)
    for number in back:
        if number < len(standing):
            kept.give(standing.pop(number))
    anew = topologies(free, options)
    for placement in standing:
        anew.take(placement)
    for pod_set in sets:
        for empty in (False, True):
            assert find(kept, pod_set, empty=empty) == find(anew, pod_set, empty=empty)
    by_rack = [TopologyRequest(pods(2, any_topology=True), "racks")]
    assert kept.find(by_rack) == anew.find(by_rack)


@settings(max_examples=60)
@given(free=FREE, sets=st.lists(SETS, min_size=1, max_size=4), options=OPTIONS)
def test_a_search_leaves_everything_as_it_was(free: list[int], sets: list[PodSet], options: TopologyOptions) -> None:
    made = topologies(free, options)
    named = [TopologyRequest(pods(it.count, 1, f"s{n}", any_topology=True), FLAVOR) for n, it in enumerate(sets)]
    before = made.find(named)
    for placement in before.assignments:
        grown = TopologyRequest(
            pods(placement.count + 4, 1, placement.pod_set, any_topology=True),
            FLAVOR,
            previous=PreviousAssignment(placement),
        )
        made.find([grown, *named])
        made.take(placement)
        made.give(placement)
    assert made.find(named) == before


@settings(max_examples=80)
@given(free=FREE, pod_set=SETS, options=OPTIONS)
def test_whatever_is_placed_fits_and_is_what_was_asked(
    free: list[int], pod_set: PodSet, options: TopologyOptions
) -> None:
    made = topologies(free, options)
    outcome = find(made, pod_set)
    room = dict(zip(NAMES, free, strict=True))
    gpus = next(iter(pod_set.requests.values()))
    for placement in outcome.assignments:
        assert placement.count == pod_set.count
        assert made.fits([placement])
        paths = {name.rpartition("/")[2]: name for name in NAMES}
        taken = {paths[values[0]]: count for values, count in placement.domains.items()}
        assert all(count * gpus <= room[name] for name, count in taken.items())
        racks: dict[str, int] = {}
        for name, count in taken.items():
            racks[name.rpartition("/")[0]] = racks.get(name.rpartition("/")[0], 0) + count
        if pod_set.required_topology:
            assert len(racks) == 1
        for layer in pod_set.slices:
            counts = racks.values() if layer.level == RACK else taken.values()
            assert all(count % layer.size == 0 for count in counts)
        made.take(placement)
        assert not made.fits([placement] * 9)
        made.give(placement)


def test_a_long_what_if_starts_the_log_anew() -> None:
    made = topologies([8] * len(NAMES), TopologyOptions())
    wanted = pods(8, required_topology=RACK)
    first = find(made, wanted)
    for _ in range(3000):
        made.take(first.assignments[0])
        made.give(first.assignments[0])
    assert find(made, wanted) == first
    made.take(first.assignments[0])
    assert find(made, wanted) != first


def test_fits_is_about_all_of_them_together() -> None:
    made = topologies([8] + [0] * (len(NAMES) - 1), TopologyOptions())
    half = find(made, pods(4, any_topology=True)).assignments[0]
    assert made.fits([half, half])
    assert not made.fits([half, half, half])
    made.take(half)
    assert not made.fits([half, half])
    gone = TopologyAssignment("main", FLAVOR, half.requests, half.levels, {("nowhere",): 1})
    assert not made.fits([gone])
    made.take(gone)
    assert made.fits([half])
