"""The life of gangs whose pods are held one by one, as rules: state, what is seen, what is asked for."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import Action, EvictPod, Marks, ReleasePod, SaveGang, StartJob, StopJob
from fleet.gangs import holding, lifecycle
from fleet.snapshot import (
    Eviction,
    Gang,
    GangState,
    GroupMember,
    Hold,
    Job,
    JobRef,
    NodeDisruption,
    Pin,
    Pod,
    PodSet,
    Snapshot,
)
from fleet.snapshot.works import group_uid
from model.kinds import PodsReady, Taint, Toleration
from tests.support.fleets import NOW, FleetBuilder, amounts, gang, job_of, pod_set, small_fleet
from tests.support.world import World

UID = group_uid("ns", "g")
TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
FLEET = small_fleet()
STAGE = World(FLEET)
STAGE.machine("m0")
CLAIM, NODE = STAGE.claims["m0"], STAGE.nodes["node-m0"]
OFFERING = PodSet("main", 2, amounts(gpu=4))
GANG = replace(gang("g", OFFERING), uid=UID, job=JobRef("v1", "PodGroup", "ns", "g", UID))
PENDING, RESERVED, ADMITTED, EVICTING = list(GangState)[:4]


def pod(name: str, **changes: Any) -> Pod:
    member = GroupMember("g", 2, replace(OFFERING, count=1), GANG.queue, NOW)
    held = Pod(f"uid-{name}", "ns", name, "", "Pending", amounts(gpu=4), gated=True, job_uid=UID, member=member)
    return replace(held, pod_set="main", **changes)


RUNS: dict[str, Any] = {"workload": GANG.workload, "gated": False, "node": "node-m0", "phase": "Running", "ready": True}
PAST: dict[str, Any] = {"gated": False, "node": "node-m0", "phase": "Running"}
GOING: dict[str, Any] = {**RUNS, "deleting": True}


def seen(state: GangState, pods: Sequence[Pod], busy: frozenset[str] = frozenset(), **job: Any) -> Snapshot:
    holds = state is not PENDING
    pins = (Pin("main", CLAIM.node, CLAIM.name, 2),) if holds else ()
    found = replace(
        GANG,
        state=state,
        pins=pins,
        flavors={"main": ("h100",)} if holds else {},
        admitted_at_s=NOW if state in {ADMITTED, EVICTING} else 0.0,
        eviction=Eviction("InClusterQueue", "makes room", NOW) if state is EVICTING else None,
    )
    started = any(one.active and not one.deleting and (one.workload or not one.gated) for one in pods)
    work = replace(job_of(found, suspended=not started), hold=Hold.PODS, **job)
    return Snapshot(
        now_s=NOW,
        nodes={NODE.name: NODE},
        gang_pods={f"ns/{GANG.workload}": tuple(it for it in pods if it.workload)},
        job_pods={UID: tuple(pods)},
        jobs={UID: work},
        gangs={UID: found},
        claims={CLAIM.name: CLAIM},
        busy=busy,
    )


def told(snapshot: Snapshot) -> list[str]:
    """What is asked for, in words: `release a`, `end b`, or the name of the action."""
    words: dict[type, Any] = {
        ReleasePod: lambda action: f"release {action.pod.name}",
        EvictPod: lambda action: f"end {action.pod.name}",
        SaveGang: lambda action: f"save {action.gang.state}",
    }
    actions: list[Action] = lifecycle.decide(FLEET, snapshot)
    return [words.get(type(action), lambda action: type(action).__name__)(action) for action in actions]


CASES: list[tuple[str, GangState, list[Pod], list[str]]] = [
    ("waits", PENDING, [pod("a"), pod("b")], []),
    ("one runs past the queue", PENDING, [pod("a", **PAST), pod("b")], ["end a"]),
    ("one past the queue is leaving", PENDING, [pod("a", **PAST, deleting=True), pod("b")], []),
    ("machines are ready", RESERVED, [pod("a"), pod("b")], ["save Admitted"]),
    ("one runs before its turn", RESERVED, [pod("a", **PAST), pod("b")], ["end a"]),
    ("its turn", ADMITTED, [pod("a"), pod("b")], ["release a", "release b"]),
    ("no pods yet", ADMITTED, [], []),
    ("one is there", ADMITTED, [pod("a", **RUNS)], []),
    ("one was made anew", ADMITTED, [pod("a", **RUNS), pod("c")], ["release c"]),
    ("one more than has a place", ADMITTED, [pod("a", **RUNS), pod("b", **RUNS), pod("c")], ["save Admitted", "end c"]),
    ("its last pods end", ADMITTED, [pod("a", **RUNS), pod("b", **GOING)], []),
    ("told to leave", EVICTING, [pod("a", **RUNS), pod("b", **RUNS)], ["end a", "end b"]),
    ("leaving, made anew", EVICTING, [pod("a", **GOING), pod("b")], []),
    ("has left", EVICTING, [pod("a"), pod("b")], ["save Pending"]),
]


@pytest.mark.parametrize(("what", "state", "pods", "expected"), CASES, ids=[row[0] for row in CASES])
def test_life(what: str, state: GangState, pods: list[Pod], expected: list[str]) -> None:
    assert told(seen(state, pods)) == expected


def test_among_alike_pods_their_own_priority_decides_who_starts() -> None:
    assert told(seen(ADMITTED, [pod("a"), pod("b", priority=1)])) == ["release b", "release a"]


def test_a_pod_too_many_is_not_let_go_and_ended_at_once() -> None:
    """Whatever it is called: the youngest goes, the others get the places."""
    young = pod("a")
    assert young.member is not None
    young = replace(young, member=replace(young.member, created_at_s=NOW + 1))
    assert told(seen(ADMITTED, [young, pod("b"), pod("c")])) == ["release b", "release c", "end a"]


@pytest.mark.parametrize(
    ("node", "claim"),
    [
        ({"unschedulable": True}, {}),
        ({"taints": (Taint(key="hands-off", effect="NoSchedule"),)}, {}),
        ({"ready": False}, {}),
        ({"deleting": True}, {}),
        ({}, {"disruption": NodeDisruption("Drifted", "x", NOW)}),
        ({}, {"recut_at_s": NOW, "ready_at_s": NOW - 1}),
        (None, {}),
    ],
    ids=["cordoned", "tainted", "not ready", "deleted", "leaving", "being cut", "gone"],
)
def test_nobody_is_let_go_onto_a_machine_that_takes_no_pods(node: dict[str, Any] | None, claim: dict[str, Any]) -> None:
    found = seen(ADMITTED, [pod("a"), pod("b")])
    assert len(list(holding.releases(FLEET, found, found.gangs[UID]))) == 2
    nodes = {} if node is None else {NODE.name: replace(NODE, **node)}
    sick = replace(found, nodes=nodes, claims={CLAIM.name: replace(CLAIM, **claim)})
    assert list(holding.releases(FLEET, sick, sick.gangs[UID])) == []


def test_nothing_is_done_twice() -> None:
    busy = frozenset({"pod/uid-a"})
    assert told(seen(ADMITTED, [pod("a"), pod("b")], busy)) == ["release b"]
    assert told(seen(EVICTING, [pod("a", **RUNS), pod("b", **RUNS)], busy)) == ["end b"]


def test_a_pod_is_taken_in_with_what_its_template_could_not_carry() -> None:
    fleet = FleetBuilder().pool().flavor("h100", nodePools=["h100"], tolerations=[TAINT]).team().queue().build()
    actions = lifecycle.decide(fleet, seen(ADMITTED, [pod("a"), pod("b", **RUNS)]))
    (release,) = [action for action in actions if isinstance(action, ReleasePod)]
    kept = Toleration(key="muster.dev/gang", operator="Exists", effect="NoSchedule")
    assert release.marks == Marks(GANG.workload, "main", (*fleet.flavors["h100"].spec.tolerations, kept))
    assert (release.node, len(release.marks.tolerations)) == (CLAIM.node, 2)


def test_a_pod_ends_with_the_grace_it_asks_for() -> None:
    (end,) = lifecycle.decide(FLEET, seen(PENDING, [pod("a", **PAST, deletion_grace_s=120.0)]))
    assert isinstance(end, EvictPod)
    assert end.force_grace_s == 120


@pytest.mark.parametrize("state", [PENDING, RESERVED, ADMITTED])
def test_a_group_that_changes_before_it_starts_is_another(state: GangState) -> None:
    assert told(seen(state, [pod("a"), pod("b")], pod_sets=(replace(OFFERING, count=3),))) == ["save Pending"]
    assert told(seen(state, [pod("a")], queue="")) == ["CloseGang"]


def test_one_whose_pods_never_come_does_not_keep_its_machines() -> None:
    late = seen(ADMITTED, [])
    old = replace(late.gangs[UID], admitted_at_s=NOW - PodsReady().start_timeout)
    assert told(replace(late, gangs={UID: old})) == ["save Evicting"]


def test_a_group_without_a_queue_is_left_alone() -> None:
    alone = seen(PENDING, [pod("a"), pod("b"), pod("c")], queue="")
    assert told(replace(alone, gangs={})) == []


# -- whether it would come back --------------------------------------------------------------------------------------

A, B = (pod(name, **RUNS) for name in "ab")
OWNED = replace(A, controlled=True)
VOLCANO = JobRef("batch.volcano.sh/v1alpha1", "Job", "ns", "g", UID)


@pytest.mark.parametrize(
    ("pods", "facts", "lost"),
    [
        pytest.param([A, B], {}, "main", id="plain pods"),
        pytest.param([OWNED, B], {}, "main", id="one that nobody owns"),
        pytest.param([OWNED, replace(B, controlled=True)], {}, "", id="each has a controller"),
        pytest.param([A, B], {"on_node_failure": "Replace"}, "", id="says that it comes back"),
        pytest.param([A, B], {"on_node_failure": "Evict"}, "main", id="says that it does not"),
        pytest.param([OWNED], {"ref": VOLCANO}, "main", id="a job that does not make lost pods anew"),
        pytest.param([A, B], {"ref": VOLCANO, "restarts": {"main": 1}}, "main", id="one that makes fewer"),
        pytest.param([A, B], {"ref": VOLCANO, "restarts": {"main": 2}}, "", id="one that makes all"),
        pytest.param([A, replace(B, deleting=True)], {"restarts": {"main": 1}}, "", id="those that end do not count"),
        pytest.param([pod("a"), pod("b")], {}, "", id="none has started"),
    ],
)
def test_who_would_not_come_back(pods: Sequence[Pod], facts: dict[str, Any], lost: str) -> None:
    snapshot = seen(ADMITTED, pods)
    work = replace(snapshot.jobs[UID], **{"ref": GANG.job, **facts})
    assert holding.gone_for_good(replace(snapshot, jobs={UID: work}), GANG) == lost
    assert holding.gone_for_good(replace(snapshot, jobs={UID: replace(work, hold=Hold.SWITCH)}), GANG) == ""


# -- admitted with fewer pods -----------------------------------------------------------------------------------------

WHOLE = pod_set(count=4, gpu=2)
ASKS = replace(WHOLE, min_count=2)


def part(count: int, asks: PodSet = ASKS, state: GangState = ADMITTED) -> tuple[Gang, Job]:
    found = gang("g", replace(asks, count=count))
    pins = (Pin("main", CLAIM.node, CLAIM.name, count),)
    found = replace(found, state=state, pins=pins, flavors={"main": ("h100",)}, admitted_at_s=NOW)
    return found, replace(job_of(found), pod_sets=(asks,))


@pytest.mark.parametrize(
    ("count", "asks", "expected"),
    [
        (4, ASKS, StartJob),
        (2, ASKS, StartJob),
        (1, ASKS, SaveGang),
        (2, WHOLE, SaveGang),
        (2, replace(ASKS, min_count=3), SaveGang),
    ],
)
def test_a_part_that_may_run_is_started_as_that_part(count: int, asks: PodSet, expected: type) -> None:
    found, job = part(count, asks)
    world = Snapshot(now_s=NOW, jobs={found.uid: job}, gangs={found.uid: found}, claims={CLAIM.name: CLAIM})
    actions = lifecycle.decide(FLEET, replace(world, nodes={NODE.name: NODE}))
    assert [type(action) for action in actions] == [expected]
    for action in actions:
        if isinstance(action, StartJob):
            assert action.pod_sets == found.pod_sets


def test_a_pending_gang_is_all_that_its_job_asks_for() -> None:
    found, job = part(2, state=PENDING)
    world = Snapshot(now_s=NOW, jobs={found.uid: job}, gangs={found.uid: replace(found, pins=())})
    assert [type(action) for action in lifecycle.decide(FLEET, world)] == [SaveGang]


def test_a_job_with_a_switch_is_stopped_by_it() -> None:
    found = gang("g")
    job = job_of(found, suspended=False)
    world = Snapshot(now_s=NOW, jobs={found.uid: job}, gangs={found.uid: found})
    assert [type(action) for action in lifecycle.decide(FLEET, world)] == [StopJob]
