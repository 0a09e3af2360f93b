"""Emptying a node: politely, then in a hurry, then not at all."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import EvictPod, SaveClaim
from fleet.nodeclaims.termination import drain, terminating
from fleet.snapshot import NodeDisruption, Pod
from model.kinds import NEVER
from tests.support.fleets import NOW, foreign_pod, gang, gang_pod, small_fleet
from tests.support.world import World


def drained(deadline_s: float | None, *pods: Pod) -> tuple[bool, list[tuple[str, int | None]]]:
    disruption = None if deadline_s is None else NodeDisruption("Expired", "old", NOW, deadline_s)
    world = World(small_fleet())
    claim = world.machine("m0", disruption=disruption)
    world.stands(*pods)
    waits, steps = drain(world.snapshot(), claim, world.nodes["node-m0"])
    assert all(isinstance(it, EvictPod) for it in steps)
    return waits, [(it.pod.name, it.force_grace_s) for it in steps if isinstance(it, EvictPod)]


def other(name: str = "a", **facts: Any) -> Pod:
    return foreign_pod(name, "node-m0", **facts)


def of_gang(name: str = "g-0", **facts: Any) -> Pod:
    return gang_pod(gang("g"), name, node="node-m0", **facts)


@pytest.mark.parametrize(
    ("deadline_s", "pod", "expected"),
    [
        pytest.param(None, other(), (True, [("a", None)]), id="politely"),
        pytest.param(NEVER, other(), (True, [("a", None)]), id="no deadline"),
        pytest.param(NOW + 100, other(), (True, [("a", None)]), id="time enough"),
        pytest.param(NOW + 100, other(deletion_grace_s=3600.0), (True, [("a", 100)]), id="its own grace is too long"),
        pytest.param(NOW + 31, other(), (True, [("a", None)]), id="just enough"),
        pytest.param(NOW + 20, other(), (True, [("a", 20)]), id="hurry"),
        pytest.param(NOW + 100, other(do_not_disrupt="true"), (True, []), id="not to be disrupted while there is time"),
        pytest.param(NOW + 20, other(do_not_disrupt="true"), (True, [("a", 20)]), id="and hurried like others"),
        pytest.param(NEVER, other(do_not_disrupt="true"), (True, [("a", None)]), id="nobody is waited for without end"),
        pytest.param(NOW + 0.5, other(), (True, [("a", 1)]), id="one second at least"),
        pytest.param(NOW, other(), (False, []), id="past the deadline nobody is waited for"),
        pytest.param(NOW + 100, other(deleting=True, deletion_at_s=NOW + 30), (True, []), id="goes already"),
        pytest.param(
            NOW + 100, other(deleting=True, deletion_at_s=NOW + 300), (True, [("a", 100)]), id="goes too slowly"
        ),
        pytest.param(NEVER, other(deleting=True, deletion_at_s=NOW - 59), (True, []), id="should have gone"),
        pytest.param(NEVER, other(deleting=True, deletion_at_s=NOW - 60), (False, []), id="nobody there ends it"),
        pytest.param(NEVER, of_gang(deleting=True, deletion_at_s=NOW - 60), (False, []), id="nor that of a gang"),
        pytest.param(NEVER, of_gang(), (True, []), id="a gang's pods go with their gang"),
        pytest.param(NOW + 100, of_gang(), (True, []), id="while there is time"),
        pytest.param(NOW + 10, of_gang(), (True, []), id="and never before their job is suspended"),
        pytest.param(
            NOW + 100, of_gang(deleting=True, deletion_at_s=NOW + 300), (True, [("g-0", 100)]), id="then they hurry too"
        ),
        pytest.param(NEVER, other(daemon=True), (False, []), id="DaemonSets are not waited for"),
        pytest.param(NEVER, replace(other(), phase="Succeeded"), (False, []), id="nor is what has ended"),
    ],
)
def test_drain(deadline_s: float | None, pod: Pod, expected: tuple[bool, list[tuple[str, int | None]]]) -> None:
    assert drained(deadline_s, pod) == expected


def test_pods_go_in_order_of_name_and_those_under_way_are_left_alone() -> None:
    world = World(small_fleet())
    claim = world.machine("m0")
    world.stands(other("b"), other("a"), other("c"))
    world.busy = frozenset({"pod/uid-b"})
    waits, steps = drain(world.snapshot(), claim, world.nodes["node-m0"])
    assert waits
    assert [it.pod.name for it in steps if isinstance(it, EvictPod)] == ["a", "c"]


def test_a_deadline_that_was_rounded_up_is_over_when_it_is_written() -> None:
    """Found by `--profile faults --seed 20643`: the claim was saved over and over until the microsecond had passed."""
    world = World(small_fleet())
    ended = NodeDisruption("NodeFailures", "x", NOW, NOW + 5e-7)
    claim = world.machine("m0", deleting=True, disruption=ended)
    node = world.nodes["node-m0"]
    world.nodes["node-m0"] = replace(node, ready=False, ready_changed_at_s=NOW - 3600)
    assert not [it for it in terminating(world.fleet, world.snapshot(), claim) if isinstance(it, SaveClaim)]
