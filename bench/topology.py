"""Topology-aware placement on 10,000 hosts of 8 GPUs, 10 blocks x 50 racks x 20 hosts: milliseconds a search.

`<fill>_<gang>`: hosts empty, half or nine tenths full; a gang of 64 pods x 8 GPUs or 512 pods x 1 GPU inside one block.
Every measured search comes after a change of 64 hosts, as in a cycle that just placed another gang.
"""

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fleet.placement.topology import Topologies, TopologyAssignment, TopologyFlavor, TopologyOptions, TopologyRequest
from fleet.snapshot import Node, PodSet, Slice
from model import labels

BLOCK, RACK = "topology/block", "topology/rack"
GPU = "nvidia.com/gpu"
BLOCKS, RACKS, HOSTS = 10, 50, 20
ROUNDS = 60

FLAVOR = TopologyFlavor("h100", (BLOCK, RACK, labels.HOSTNAME))
WISH = PodSet("main", 64, {GPU: 8, "cpu": 64_000})
SINGLE = PodSet("main", 512, {GPU: 1, "cpu": 8_000}, required_topology=BLOCK)
LEADER = PodSet("leader", 1, {"cpu": 16_000}, required_topology=BLOCK, group="team")
GANGS = {
    "64x8": [replace(WISH, required_topology=BLOCK)],
    "512x1": [SINGLE],
    "64x8_preferred": [replace(WISH, preferred_topology=RACK)],
    "64x8_anywhere": [replace(WISH, any_topology=True)],
    "512x1_with_leader": [LEADER, replace(SINGLE, group="team")],
    "512x1_in_racks_of_16": [replace(SINGLE, slices=(Slice(RACK, 16),))],
    "4096x8_refused": [replace(WISH, count=4096, required_topology=BLOCK)],
}
FILLS = {"empty": 0, "half": 5, "full": 9}


def run() -> dict[str, float]:
    """The same under the name every benchmark has."""
    return measure()


def measure() -> dict[str, float]:
    """Medians in ms (`*_ms`), us (`*_us`); `first_ms` is the first search of a class, `build_ms` the tree."""
    numbers: dict[str, float] = {}
    nodes = _nodes()
    for fill, tenths in FILLS.items():
        began_s = time.perf_counter()
        world = Topologies(nodes, {}, [FLAVOR], TopologyOptions())
        numbers[f"{fill}_build_ms"] = 1000 * (time.perf_counter() - began_s)
        world.take(_filling(tenths))
        for name, gang in GANGS.items():
            numbers |= {f"{fill}_{name}_{key}": value for key, value in _searched(world, gang).items()}
    return numbers


def _nodes() -> list[Node]:
    free = {GPU: 8, "cpu": 192_000, "memory": 2 * 2**40, "pods": 110}
    made = []
    for block in range(BLOCKS):
        for rack in range(RACKS):
            for host in range(HOSTS):
                name = f"b{block}-r{rack:02}-h{host:02}"
                found = {BLOCK: f"b{block}", RACK: f"r{rack:02}", labels.HOSTNAME: name, labels.ARCH: "amd64"}
                made.append(Node(name, name, "", found, (), free, ready=True, unschedulable=False, created_at_s=0.0))
    return made


def _filling(tenths: int) -> TopologyAssignment:
    """Single-GPU pods: of ten hosts in a row `tenths` have no GPU left, and every seventh of the others four."""
    taken = {}
    for number, node in enumerate(_nodes()):
        if pods := 8 if number % 10 < tenths else 4 * (number % 7 == 0 and tenths > 0):
            taken[(node.name,)] = pods
    return TopologyAssignment("filler", FLAVOR.name, {GPU: 1}, (labels.HOSTNAME,), taken)


def _searched(world: Topologies, gang: Sequence[PodSet]) -> dict[str, float]:
    ask = [TopologyRequest(pod_set, FLAVOR.name) for pod_set in gang]
    first_ms = _ms(lambda: world.find(ask))
    other = world.find(
        [TopologyRequest(PodSet("other", 64, {GPU: 8}, required_topology=BLOCK), FLAVOR.name)]
    ).assignments[0]
    again, empty, take, give = [], [], [], []
    for _ in range(ROUNDS):
        take.append(_ms(lambda: world.take(other)))
        again.append(_ms(lambda: world.find(ask)))
        empty.append(_ms(lambda: world.find(ask, empty=True)))
        give.append(_ms(lambda: world.give(other)))
    timed = {"find_ms": again, "find_empty_ms": empty}
    costs = {"take_us": take, "give_us": give}
    return {
        "first_ms": first_ms,
        **{key: statistics.median(values) for key, values in timed.items()},
        **{key: 1000 * statistics.median(values) for key, values in costs.items()},
        "found": float(world.find(ask).refusal is None),
    }


def _ms(work: Callable[[], Any]) -> float:
    began_s = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - began_s)


if __name__ == "__main__":
    print(json.dumps({key: round(value, 3) for key, value in measure().items()}, indent=2))
