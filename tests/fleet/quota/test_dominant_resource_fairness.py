"""Dominant resource fairness as a policy of queues: the worked examples of the papers, decided by the production pass.

Teams without quota of their own below one that has all of it: everything they use is borrowed, so that the weighted
share of what they borrow is their dominant share. Sources: Ghodsi et al., "Dominant Resource Fairness" (NSDI'11),
sections 4.1 and 4.3; Bhattacharya et al., "Hierarchical Scheduling for Diverse Datacenter Workloads" (SoCC'13).
"""

from collections import Counter
from typing import Any

import pytest

from fleet.scheduling import cycle
from fleet.snapshot import GangState
from model import labels
from tests.support.fleets import FleetBuilder, gang, plain_node, pod_set
from tests.support.world import World

GI = 1 << 30
Tree = dict[str, Any]
"""Team -> its tasks' requests (cores, GiB) with its weight, or the teams below it."""


def world(tree: Tree, cores: int, memory_gi: int, *, tasks: int = 40) -> World:
    """One node, and more tasks than it can take."""
    builder = FleetBuilder().flavor("box", nodeLabels={"box": "yes"})
    whole = {"cpu": str(cores), "memory": f"{memory_gi}Gi"}
    builder.team("org", quotas={"box": whole}, namespaces=[])
    demands: dict[str, tuple[int, int]] = {}

    def plant(below: str, teams: Tree) -> None:
        for name, what in teams.items():
            spec: Any = what if isinstance(what, dict) else {}
            weight = 1.0 if isinstance(what, dict) else what[2]
            builder.team(name, quotas={}, namespaces=[f"ns-{name}"], parent=below, weight=weight)
            if spec:
                plant(name, spec)
            else:
                builder.queue(f"q-{name}", name, ["box"], fairness="DominantShare")
                demands[name] = (what[0], what[1])

    plant("org", tree)
    made = World(builder.build())
    carried = {"box": "yes", labels.HOSTNAME: "n"}
    made.nodes["n"] = plain_node("n", {"cpu": cores * 1000, "memory": memory_gi * GI, "pods": 1000}, carried)
    for name, (cpu, memory) in demands.items():
        asked = {key: value for key, value in {"cpu": cpu * 1000, "memory": memory * GI}.items() if value}
        for n in range(tasks):
            one = pod_set(requests=asked)
            made.waits(gang(f"{name}-{n:02}", one, queue=f"q-{name}", namespace=f"ns-{name}", created_s=float(n)))
    return made


def running(made: World) -> dict[str, int]:
    for _ in range(3):
        made.apply(cycle.decide(made.fleet, made.snapshot()))
    found = Counter(it.queue[2:] for it in made.gangs.values() if it.state is GangState.ADMITTED)
    return dict(found)


def test_the_example_of_the_paper() -> None:
    """Nine cores, 18 GB; A's tasks take (1, 4), B's (3, 1): three of A and two of B, two thirds of each one's own."""
    assert running(world({"a": (1, 4, 1.0), "b": (3, 1, 1.0)}, 9, 18)) == {"a": 3, "b": 2}


def test_weights_divide_the_dominant_shares() -> None:
    """Alike but for their weights: twice the weight, twice the share."""
    assert running(world({"a": (1, 1, 2.0), "b": (1, 1, 1.0)}, 30, 30)) == {"a": 20, "b": 10}


def test_one_who_joins_nobody_else_gets_what_it_can_use() -> None:
    """Work conserving: who has no rival for a resource gets all of it."""
    assert running(world({"a": (1, 0, 1.0), "b": (0, 1, 1.0)}, 10, 10)) == {"a": 10, "b": 10}


@pytest.mark.parametrize("deeper", [False, True], ids=["two children", "one level more between"])
def test_a_blocked_child_does_not_hold_its_node_back(deeper: bool) -> None:
    """H-DRF: cores are used up when each of three nodes has a third; memory still goes to the two that can use it."""
    third: Tree = {"third-cpu": (1, 0, 1.0), "third-memory": (0, 1, 1.0)}
    tree: Tree = {
        "first": (1, 0, 1.0),
        "second": {"second-cpu": (1, 0, 1.0), "second-memory": (0, 1, 1.0)},
        "third": {"inner": third} if deeper else third,
    }
    expected = {"first": 10, "second-cpu": 10, "second-memory": 15, "third-cpu": 10, "third-memory": 15}
    assert running(world(tree, 30, 30)) == expected


def test_a_node_counts_its_children_together() -> None:
    """H-DRF's other repair: a node of two unlike children gets half of each resource, not a quarter."""
    tree: Tree = {"both": (1, 1, 1.0), "two": {"cpu": (1, 0, 1.0), "memory": (0, 1, 1.0)}}
    assert running(world(tree, 10, 10)) == {"both": 5, "cpu": 5, "memory": 5}


@pytest.mark.parametrize(
    ("fairness", "guarantees", "runs"),
    [
        ("DominantShare", (4, 4), "a"),
        ("GuaranteeShare", (4, 4), "b"),
        ("GuaranteeShare", (4, 2), "b"),
    ],
)
def test_within_guarantees_the_smaller_part_goes_first(fairness: str, guarantees: tuple[int, int], runs: str) -> None:
    """One team holds half of its guarantee and asks first; there is room for one more gang."""
    builder = FleetBuilder().flavor("box", nodeLabels={"box": "yes"}).team("org", quotas={}, namespaces=[])
    for name, cores in zip("ab", guarantees, strict=True):
        builder.team(name, {"box": {"cpu": str(cores)}}, namespaces=[f"ns-{name}"], parent="org")
        builder.queue(f"q-{name}", name, ["box"], fairness=fairness, preemption={"reclaim": "Never"})
    made = World(builder.build())
    made.nodes["n"] = plain_node("n", {"cpu": 4000, "pods": 10}, {"box": "yes", labels.HOSTNAME: "n"})
    made.waits(gang("first", pod_set(requests={"cpu": 2000}), queue="q-a", namespace="ns-a"))
    assert running(made) == {"a": 1}
    for n, name in enumerate("ab"):
        one = pod_set(requests={"cpu": 2000})
        made.waits(gang(f"next-{name}", one, queue=f"q-{name}", namespace=f"ns-{name}", created_s=float(n)))
    assert running(made) == ({"a": 2} if runs == "a" else {"a": 1, "b": 1})


def test_what_is_asked_decides_between_equal_parts() -> None:
    builder = FleetBuilder().flavor("box", nodeLabels={"box": "yes"}).team("org", quotas={}, namespaces=[])
    for name, cores in (("a", 2), ("b", 4)):
        builder.team(name, {"box": {"cpu": str(cores)}}, namespaces=[f"ns-{name}"], parent="org")
        builder.queue(f"q-{name}", name, ["box"], fairness="GuaranteeShare", preemption={"reclaim": "Never"})
    made = World(builder.build())
    made.nodes["n"] = plain_node("n", {"cpu": 2000, "pods": 10}, {"box": "yes", labels.HOSTNAME: "n"})
    for n, name in enumerate("ab"):
        one = pod_set(requests={"cpu": 2000})
        made.waits(gang(f"g-{name}", one, queue=f"q-{name}", namespace=f"ns-{name}", created_s=float(n)))
    assert running(made) == {"b": 1}
