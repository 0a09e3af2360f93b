"""Balanced placement: even shares over few domains for preferred sets, where the option is on."""

import pytest

from fleet.placement.topology import TopologyOptions
from fleet.snapshot import PodSet, Slice
from tests.support.topology import BLOCK, HOST, RACK, find, placed, pods, world

EVEN = TopologyOptions(balanced=True)


@pytest.mark.parametrize(
    ("free", "pod_set", "expected"),
    [
        # even shares; what does not divide goes to the roomiest
        ({"b/r/x": 8, "b/r/y": 8}, pods(10, preferred_topology=RACK), {"x": 5, "y": 5}),
        ({"b/r/x": 8, "b/r/y": 8}, pods(11, preferred_topology=RACK), {"x": 6, "y": 5}),
        # no more domains than needed, and those whose room is used up best
        ({"b/r/x": 8, "b/r/y": 8, "b/r/z": 8}, pods(10, preferred_topology=RACK), {"x": 5, "y": 5}),
        ({"b/r/x": 9, "b/r/y": 6, "b/r/z": 5}, pods(10, preferred_topology=RACK), {"y": 5, "z": 5}),
        # the rack where the smallest share is largest
        ({"b/r/x": 9, "b/r/y": 2, "b/s/z": 6, "b/s/w": 5}, pods(10, preferred_topology=RACK), {"z": 5, "w": 5}),
        # one host holds all: nothing to spread
        ({"b/r/x": 12, "b/r/y": 8}, pods(10, preferred_topology=RACK), {"x": 10}),
        # racks below a block
        ({"b/r/x": 8, "b/s/y": 8}, pods(10, preferred_topology=RACK), {"x": 5, "y": 5}),
        # slices are shared out whole
        ({"b/r/x": 9, "b/r/y": 7}, pods(12, slices=(Slice(HOST, 2),), preferred_topology=RACK), {"x": 6, "y": 6}),
        # not for a required set, nor for one without a wish
        ({"b/r/x": 8, "b/r/y": 8}, pods(10, required_topology=RACK), {"x": 8, "y": 2}),
        ({"b/r/x": 8, "b/r/y": 7}, pods(10, any_topology=True), {"x": 3, "y": 7}),
    ],
)
def test_even_shares(free: dict[str, int], pod_set: PodSet, expected: dict[str, int]) -> None:
    assert placed(find(world(free, EVEN), pod_set)) == {"main": expected}


def test_a_leader_counts() -> None:
    leader = pods(1, name="leader", preferred_topology=RACK, group="g")
    workers = pods(10, preferred_topology=RACK, group="g")
    outcome = find(world({"b/r/x": 6, "b/r/y": 5}, EVEN), leader, workers)
    assert placed(outcome) == {"leader": {"x": 1}, "main": {"x": 5, "y": 5}}


def test_where_no_block_holds_all_it_is_placed_as_any_other() -> None:
    free = {"b/r/x": 8, "c/r/y": 8, "c/s/z": 3}
    wanted = pods(15, preferred_topology=BLOCK)
    assert placed(find(world(free, EVEN), wanted)) == placed(find(world(free), wanted))
    assert find(world(free, EVEN), pods(20, preferred_topology=BLOCK)).refusal is not None
