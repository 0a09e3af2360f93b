"""The gang of a StatefulSet as rules: seats given back, pods of another template, and how long it has to be ready."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import CloseGang, EvictPod, ReleasePod, SaveGang
from fleet.gangs import lifecycle
from fleet.gangs.elastic import scaled_down
from fleet.reasons import Reason
from fleet.snapshot import STATEFUL_SET, GangState, GroupMember, Hold, JobRef, Numbering, Pin, Pod, PodSet, Snapshot
from model.kinds import PodsReady
from tests.support.fleets import NOW, amounts, gang, job_of, small_fleet
from tests.support.world import World

FLEET = small_fleet()
STAGE = World(FLEET)
for machine in ("m0", "m1"):
    STAGE.machine(machine)
ASKED = PodSet("main", 3, amounts(gpu=2))
GANG = replace(gang("web", ASKED), job=JobRef("apps/v1", STATEFUL_SET, "ns", "web", "uid-web"))
UID = GANG.uid
OLD, NEW = "web-1", "web-2"
"""Revisions."""


def pod(number: int, **changes: Any) -> Pod:
    member = GroupMember("", 0, replace(ASKED, count=1), GANG.queue, NOW)
    made = Pod(f"uid-{number}", "ns", f"web-{number}", "", "Pending", amounts(gpu=2), gated=True, job_uid=UID)
    made = replace(made, member=member, pod_set="main", labels=(("controller-revision-hash", OLD),))
    return replace(made, **changes)


def runs(number: int, machine: str = "m0", **changes: Any) -> Pod:
    facts: dict[str, Any] = {"workload": GANG.workload, "gated": False, "node": f"node-{machine}", "phase": "Running"}
    return pod(number, **{**facts, "ready": True, **changes})


def seen(pods: Sequence[Pod], *pins: Pin, asks: int = 3, going: int = 0, **changes: Any) -> Snapshot:
    """Three seats, two on `m0` and one on `m1`, unless told otherwise."""
    seats = pins or (Pin("main", "node-m0", "m0", 2), Pin("main", "node-m1", "m1", 1))
    held = replace(ASKED, count=sum(pin.count for pin in seats))
    facts: dict[str, Any] = {"state": GangState.ADMITTED, "pins": seats, "admitted_at_s": NOW, "pod_sets": (held,)}
    found = replace(GANG, flavors={"main": ("h100",)}, **facts)
    numbering = Numbering(going=going, revision=changes.pop("revision", OLD), one_by_one=changes.pop("one", True))
    started = any(it.active and it.workload and not it.deleting for it in pods)
    asked = changes.pop("template", ASKED)
    job = replace(job_of(found, suspended=not started), hold=Hold.PODS, numbering=numbering)
    job = replace(job, pod_sets=(replace(asked, count=asks),))
    return Snapshot(
        now_s=NOW,
        nodes=STAGE.nodes,
        gang_pods={f"ns/{GANG.workload}": tuple(it for it in pods if it.workload)},
        job_pods={UID: tuple(pods)},
        jobs={UID: job},
        gangs={UID: replace(found, **changes)},
        claims=STAGE.claims,
    )


def told(snapshot: Snapshot) -> list[str]:
    words: dict[type, Any] = {
        ReleasePod: lambda action: f"release {action.pod.name} {action.node}",
        EvictPod: lambda action: f"end {action.pod.name}",
        SaveGang: lambda action: f"save {action.gang.state} {action.gang.reason}",
        CloseGang: lambda _action: "close",
    }
    return [words[type(action)](action) for action in lifecycle.decide(FLEET, snapshot)]


M0, M1, COMING = Pin("main", "node-m0", "m0", 2), Pin("main", "node-m1", "m1", 1), Pin("main", "", "c", 1)
DOWN: list[tuple[str, list[Pod], dict[str, Any], tuple[Pin, ...] | None]] = [
    # what, pods, what the set asks for, the seats that are left
    ("all are there", [runs(0), runs(1), runs(2, "m1")], {}, None),
    ("one is being made anew", [runs(0), runs(2, "m1")], {}, None),
    ("one is too many and runs", [runs(0), runs(1), runs(2, "m1")], {"asks": 2, "going": 1}, None),
    ("it has gone", [runs(0), runs(1)], {"asks": 2}, (M0,)),
    ("it has gone, another is being made anew", [runs(0)], {"asks": 2}, (replace(M0, count=1), M1)),
    ("one too many runs, one of the others is missing", [runs(0), runs(2, "m1")], {"asks": 2, "going": 1}, None),
    ("it stands where others do", [runs(0), runs(1, "m1")], {"asks": 2}, (replace(M0, count=1), M1)),
    ("all but the last have gone", [runs(0)], {"asks": 0, "going": 1}, (replace(M0, count=1),)),
    ("no replicas, and nobody is there", [], {"asks": 0}, None),
]


@pytest.mark.parametrize(("what", "pods", "asks", "left"), DOWN, ids=[row[0] for row in DOWN])
def test_seats_are_given_back_once_they_are_empty(
    what: str, pods: list[Pod], asks: dict[str, Any], left: tuple[Pin, ...] | None
) -> None:
    snapshot = seen(pods, **asks)
    found = scaled_down(snapshot, snapshot.gangs[UID], snapshot.jobs[UID])
    if left is None:
        assert found is None or what.startswith("no replicas")
    else:
        assert found is not None
        assert found.pins == left
        assert found.pod_sets[0].count == sum(pin.count for pin in left)


def test_a_seat_on_a_machine_that_is_still_to_come_is_given_back_first() -> None:
    snapshot = seen([runs(0), runs(1)], M0, COMING, asks=2)
    found = scaled_down(snapshot, snapshot.gangs[UID], snapshot.jobs[UID])
    assert found is not None
    assert found.pins == (M0,)


LARGER = replace(ASKED, requests=amounts(gpu=4))
RELABELLED = replace(ASKED, labels=(("version", "2"),))
NEWER: dict[str, Any] = {"labels": (("controller-revision-hash", NEW),)}
BOTH = [runs(0), runs(1)]
LATER: dict[str, Any] = {"template": LARGER, "revision": NEW}
CHANGED: list[tuple[str, list[Pod], dict[str, Any], list[str]]] = [
    ("nobody is of it yet", [*BOTH, runs(2, "m1")], LATER, ["ready"]),
    ("one is", [*BOTH, pod(2, **NEWER)], LATER, ["leave"]),
    ("one is, its revision not told yet", [*BOTH, pod(2, **NEWER)], {**LATER, "revision": ""}, []),
    ("one is made anew of the old", [*BOTH, pod(2)], LATER, ["release web-2 node-m1"]),
    ("one was let go before it was told", [*BOTH, runs(2, "m1", **NEWER)], LATER, ["leave"]),
    ("one on its way out is", [*BOTH, runs(2, "m1", deleting=True, **NEWER)], LATER, []),
    ("all are: a newer agent reads more", [*BOTH, pod(2)], {**LATER, "revision": OLD}, ["release web-2 node-m1"]),
    ("it asks for the same", [*BOTH, pod(2, **NEWER)], {**LATER, "template": RELABELLED}, ["release web-2 node-m1"]),
    ("a pod asks for more than was known of it", [*BOTH, pod(2, requests=amounts(gpu=4))], {}, []),
    ("others gave a pod more", [*BOTH, pod(2, requests=amounts(gpu=2, cpu="9"))], {}, ["release web-2 node-m1"]),
    ("none has started", [pod(0, **NEWER)], LATER, ["save Pending Queued"]),
]


@pytest.mark.parametrize(("what", "pods", "facts", "expected"), CHANGED, ids=[row[0] for row in CHANGED])
def test_a_template_that_asks_for_something_else(
    what: str, pods: list[Pod], facts: dict[str, Any], expected: list[str]
) -> None:
    words = {"leave": "save Evicting TemplateChanged", "ready": "save Admitted PodsReady"}
    assert told(seen(pods, **facts)) == [words.get(one, one) for one in expected]


START_S = PodsReady().start_timeout


@pytest.mark.parametrize(
    ("one", "since_s", "late"), [(True, START_S, False), (True, 9 * START_S, False), (False, START_S, True)]
)
def test_pods_made_one_after_the_other_have_each_the_time_of_all(one: bool, since_s: float, late: bool) -> None:
    """The youngest was made a moment ago; the gang was admitted long before."""
    found = lifecycle.decide(
        FLEET, seen([runs(0), runs(1), runs(2, ready=False)], one=one, admitted_at_s=NOW - since_s)
    )
    reasons = [action.gang.reason for action in found if isinstance(action, SaveGang)]
    assert (Reason.PODS_READY_TIMEOUT in reasons) is late
