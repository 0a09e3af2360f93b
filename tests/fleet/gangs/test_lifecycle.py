"""The life of a gang as a table: what is observed, and the one step that follows."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fleet.actions import Action, CloseGang, OpenGang, ReleasePod, SaveGang, StartJob, StopJob, gang_subject
from fleet.gangs import lifecycle
from fleet.snapshot import Eviction, Gang, GangState, JobRef, JobResult, NodeDisruption, Pin
from fleet.snapshot.affinity import DISRUPTED
from fleet.snapshot.gangs import workload_name
from model.kinds import NEVER, Taint
from tests.support.fleets import (
    NOW,
    FleetBuilder,
    foreign_pod,
    gang,
    gang_pod,
    job_of,
    pod_set,
    small_fleet,
)
from tests.support.world import World

G = "uid-g"
HANDS_OFF = Taint(key="maintenance", effect="NoSchedule")
RATHER_NOT = Taint(key="maintenance", effect="PreferNoSchedule")
PASSING = (Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule"), DISRUPTED)


def steps(world: World) -> list[Action]:
    return list(lifecycle.decide(world.fleet, world.snapshot()))


def pending() -> World:
    world = World(small_fleet())
    world.machine("m0")
    world.waits(gang("g", count=2, gpu=4))
    return world


def holding(state: GangState, **more: Any) -> World:
    """A gang pinned to a ready machine; its job is suspended and has no pods."""
    world = pending()
    world.runs(
        world.gang("g"), ("m0", 2), pods=False, state=state, pods_ready=False, reason="Admitted", message="x", **more
    )
    world.jobs[G] = job_of(world.gang("g"))
    return world


def running() -> World:
    """The same, started, with its two pods."""
    world = pending()
    world.runs(world.gang("g"), ("m0", 2))
    return world


Change = Callable[[World], object]


def job(**facts: Any) -> Change:
    return lambda world: world.jobs.__setitem__(G, replace(world.jobs[G], **facts))


def claim(**facts: Any) -> Change:
    return lambda world: world.claims.__setitem__("m0", replace(world.claims["m0"], **facts))


def node(**facts: Any) -> Change:
    return lambda world: world.nodes.__setitem__("node-m0", replace(world.nodes["node-m0"], **facts))


def facts(**changes: Any) -> Change:
    return lambda world: world.gangs.__setitem__(G, replace(world.gang("g"), **changes))


def no_job(world: World) -> None:
    world.jobs.clear()


def no_pods(world: World) -> None:
    world.pods.clear()


def ended_pods(world: World) -> None:
    world.pods = {key: replace(pod, phase="Succeeded") for key, pod in world.pods.items()}


def one_pod_less(world: World) -> None:
    job(ready_pods=1)(world)
    first = min(world.pods)
    world.pods[first] = replace(world.pods[first], ready=False)


def one_pod_succeeds(world: World) -> None:
    job(ready_pods=1)(world)
    first = min(world.pods)
    world.pods[first] = replace(world.pods[first], ready=False, phase="Succeeded")


def cordoned_and_left(world: World) -> None:
    job(ready_pods=1)(world)
    node(unschedulable=True)(world)
    del world.pods[min(world.pods)]


def lost_unnoticed(world: World) -> None:
    """A pod is gone; the Job controller backs off and says that both are ready."""
    job(ready_pods=2)(world)
    del world.pods[min(world.pods)]


def no_claim(world: World) -> None:
    world.claims.clear()


def no_node(world: World) -> None:
    world.nodes.clear()


def queue(policy: str) -> Change:
    def change(world: World) -> None:
        world.fleet = FleetBuilder().pool().team().queue(stopPolicy=policy).build()

    return change


def no_queue(world: World) -> None:
    world.fleet = FleetBuilder().pool().team().build()


def two(*changes: Change) -> Change:
    def change(world: World) -> None:
        for one in changes:
            one(world)

    return change


LEAVES = NodeDisruption("Interrupted", "EC2 takes the spot machine back", NOW, NOW + 100)
OTHER_PODS = (pod_set(count=3, gpu=4),)
MAX_RUN = "MaximumExecutionTimeExceeded"
Expected = tuple[Any, ...]
"""Class of the action and, for SaveGang, the state and reason it writes; () = nothing to do."""
PENDING, RESERVED, ADMITTED, EVICTING, FINISHED = GangState


def _not_ready_yet() -> World:
    world = running()
    world.gangs[G] = replace(world.gang("g"), pods_ready=False)
    return world


def _lost_a_pod(ago_s: float) -> Callable[[], World]:
    def start() -> World:
        world = running()
        world.gangs[G] = replace(world.gang("g"), pods_ready=False, not_ready_since_s=NOW - ago_s)
        return world

    return start


def _slow_start(ago_s: float) -> Callable[[], World]:
    def start() -> World:
        world = running()
        world.gangs[G] = replace(world.gang("g"), pods_ready=False, admitted_at_s=NOW - ago_s)
        return world

    return start


def _evicting() -> World:
    world = running()
    eviction = Eviction("InClusterQueue", "makes room for ns/h", NOW - 9)
    world.gangs[G] = replace(world.gang("g"), state=EVICTING, reason="InClusterQueue", eviction=eviction, evictions=1)
    return world


CASES: list[tuple[str, Callable[[], World], Change, Expected]] = [
    # pending
    ("waits", pending, job(), ()),
    ("its job is gone", pending, no_job, (CloseGang,)),
    ("its job is being deleted", pending, job(deleting=True), (CloseGang,)),
    ("its job asks other pods", pending, job(pod_sets=OTHER_PODS), (SaveGang, PENDING, "Queued")),
    ("its job names no queue", pending, job(queue=""), (CloseGang,)),
    ("its job names another queue", pending, job(queue="other"), (SaveGang, PENDING, "Queued")),
    ("its job names another priority", pending, job(priority_class="high"), (SaveGang, PENDING, "Queued")),
    ("somebody unsuspended it", pending, job(suspended=False), (StopJob,)),
    ("it succeeded all the same", pending, job(result=JobResult.SUCCEEDED), (SaveGang, FINISHED, "Succeeded")),
    ("is deactivated", pending, facts(active=False), ()),
    ("may run longer", pending, facts(max_run_s=60.0, ran_before_s=59.0), ()),
    ("has run its time", pending, facts(max_run_s=60.0, ran_before_s=60.0), (SaveGang, PENDING, MAX_RUN)),
    # reserved
    ("machines are ready", lambda: holding(RESERVED), job(), (SaveGang, ADMITTED, "Admitted")),
    ("deactivated", lambda: holding(RESERVED), facts(active=False), (SaveGang, PENDING, "Deactivated")),
    (
        "its time was cut short",
        lambda: holding(RESERVED),
        facts(max_run_s=60.0, ran_before_s=60.0),
        (SaveGang, PENDING, MAX_RUN),
    ),
    ("machine not ready yet", lambda: holding(RESERVED), claim(ready_at_s=0.0), ()),
    ("node not ready", lambda: holding(RESERVED), node(ready=False), ()),
    ("cordoned", lambda: holding(RESERVED), node(unschedulable=True), (SaveGang, PENDING, "MachineLost")),
    ("tainted by hand", lambda: holding(RESERVED), node(taints=(HANDS_OFF,)), (SaveGang, PENDING, "MachineLost")),
    (
        "tainted by hand, not required",
        lambda: holding(RESERVED),
        node(taints=(RATHER_NOT,)),
        (SaveGang, ADMITTED, "Admitted"),
    ),
    ("taints that pass", lambda: holding(RESERVED), node(taints=PASSING), (SaveGang, ADMITTED, "Admitted")),
    ("still being cut", lambda: holding(RESERVED), claim(recut_at_s=NOW), ()),
    (
        "its cut was never asked for",
        lambda: holding(RESERVED, recuts={"m0": "x"}),
        job(),
        (SaveGang, PENDING, "MachineLost"),
    ),
    ("claim gone", lambda: holding(RESERVED), no_claim, (SaveGang, PENDING, "MachineLost")),
    ("claim leaves", lambda: holding(RESERVED), claim(disruption=LEAVES), (SaveGang, PENDING, "MachineLost")),
    ("claim deleted", lambda: holding(RESERVED), claim(deleting=True), (SaveGang, PENDING, "MachineLost")),
    ("queue held", lambda: holding(RESERVED), queue("Hold"), (SaveGang, PENDING, "QueueStopped")),
    ("queue drained", lambda: holding(RESERVED), queue("HoldAndDrain"), (SaveGang, PENDING, "QueueStopped")),
    ("queue removed", lambda: holding(RESERVED), no_queue, (SaveGang, PENDING, "QueueNotFound")),
    ("unsuspended by hand", lambda: holding(RESERVED), job(suspended=False), (StopJob,)),
    ("asks other pods now", lambda: holding(RESERVED), job(pod_sets=OTHER_PODS), (SaveGang, PENDING, "Queued")),
    ("job gone", lambda: holding(RESERVED), no_job, (CloseGang,)),
    # admitted, not started
    ("is started", lambda: holding(ADMITTED), job(), (StartJob,)),
    ("changed before it started", lambda: holding(ADMITTED), job(pod_sets=OTHER_PODS), (SaveGang, PENDING, "Queued")),
    ("changed while its pods end", running, job(suspended=True, pod_sets=OTHER_PODS), ()),
    ("its queue is held", lambda: holding(ADMITTED), queue("Hold"), (StartJob,)),
    # admitted, started
    ("runs", running, job(), ()),
    ("all pods ready", _not_ready_yet, job(ready_pods=2), (SaveGang, ADMITTED, "PodsReady")),
    ("some pods ready", _not_ready_yet, one_pod_less, ()),
    ("one pod of two lost", running, one_pod_less, (SaveGang, ADMITTED, "PodsNotReady")),
    ("one pod of two lost, and the job does not say so", running, lost_unnoticed, (SaveGang, ADMITTED, "PodsNotReady")),
    ("a pod has done its part", running, one_pod_succeeds, ()),
    ("back in time", _lost_a_pod(299), job(), (SaveGang, ADMITTED, "PodsReady")),
    ("not back yet", _lost_a_pod(299), one_pod_less, ()),
    ("not back in time", _lost_a_pod(300), one_pod_less, (SaveGang, EVICTING, "PodsReadyTimeout")),
    ("slow to start", _slow_start(1799), one_pod_less, ()),
    ("too slow to start", _slow_start(1800), one_pod_less, (SaveGang, EVICTING, "PodsReadyTimeout")),
    ("cordoned, all there", running, node(unschedulable=True), ()),
    ("tainted by hand, all there", running, node(taints=(HANDS_OFF,)), ()),
    (
        "tainted by hand, and a pod has left",
        running,
        two(cordoned_and_left, node(unschedulable=False, taints=(HANDS_OFF,))),
        (SaveGang, EVICTING, "NodeFailures"),
    ),
    ("cordoned, and a pod has left", running, cordoned_and_left, (SaveGang, EVICTING, "NodeFailures")),
    (
        "cordoned, a pod has left, and the job does not say so",
        running,
        two(node(unschedulable=True), lost_unnoticed),
        (SaveGang, EVICTING, "NodeFailures"),
    ),
    ("queue held, work goes on", running, queue("Hold"), ()),
    ("deactivated while it runs", running, facts(active=False), (SaveGang, EVICTING, "Deactivated")),
    ("runs for less than it may", running, facts(max_run_s=501.0), ()),
    ("runs for as long as it may", running, facts(max_run_s=500.0), (SaveGang, EVICTING, MAX_RUN)),
    (
        "has with its former runs",
        running,
        facts(max_run_s=800.0, ran_before_s=300.0),
        (SaveGang, EVICTING, MAX_RUN),
    ),
    ("HoldAndDrain", running, queue("HoldAndDrain"), (SaveGang, EVICTING, "ClusterQueueStopped")),
    ("its machine leaves", running, claim(disruption=LEAVES), (SaveGang, EVICTING, "Interrupted")),
    ("its machine is deleted", running, claim(deleting=True), (SaveGang, EVICTING, "Deleted")),
    ("its claim is gone", running, no_claim, (SaveGang, EVICTING, "NodeFailures")),
    ("its node is gone", running, no_node, (SaveGang, EVICTING, "NodeFailures")),
    ("node not ready 59 s", running, node(ready=False, ready_changed_at_s=NOW - 59), ()),
    (
        "node not ready 60 s",
        running,
        node(ready=False, ready_changed_at_s=NOW - 60),
        (SaveGang, EVICTING, "NodeFailures"),
    ),
    ("suspended by hand", running, two(job(suspended=True), no_pods), (StartJob,)),
    ("succeeded, pods ending", running, job(result=JobResult.SUCCEEDED), ()),
    ("succeeded", running, two(job(result=JobResult.SUCCEEDED), ended_pods), (SaveGang, FINISHED, "Succeeded")),
    ("failed", running, two(job(result=JobResult.FAILED), no_pods), (SaveGang, FINISHED, "Failed")),
    ("job gone, pods still there", running, no_job, ()),
    ("job being deleted, pods still there", running, job(deleting=True), ()),
    ("job and pods gone", running, two(no_job, no_pods), (CloseGang,)),
    # evicting
    ("is stopped", _evicting, job(), (StopJob,)),
    ("pods still end", _evicting, job(suspended=True), ()),
    ("all gone", _evicting, two(job(suspended=True), no_pods), (SaveGang, PENDING, "Queued")),
    (
        "all gone, deactivated meanwhile",
        _evicting,
        two(job(suspended=True), no_pods, facts(active=False)),
        (SaveGang, PENDING, "Deactivated"),
    ),
    (
        "all gone that has run its time",
        _evicting,
        two(job(suspended=True), no_pods, facts(eviction=Eviction(MAX_RUN, "it has run", NOW))),
        (SaveGang, PENDING, MAX_RUN),
    ),
    (
        "all gone that has run its time, and the agent died while it wrote that",
        _evicting,
        two(job(suspended=True), no_pods, facts(active=False, eviction=Eviction(MAX_RUN, "it has run", NOW))),
        (SaveGang, PENDING, MAX_RUN),
    ),
    (
        "asks other pods now",
        _evicting,
        two(job(suspended=True, pod_sets=OTHER_PODS), no_pods),
        (SaveGang, PENDING, "Queued"),
    ),
    ("pods ended", _evicting, two(job(suspended=True), ended_pods), (SaveGang, PENDING, "Queued")),
    (
        "finished meanwhile",
        _evicting,
        two(job(result=JobResult.SUCCEEDED), no_pods),
        (SaveGang, FINISHED, "Succeeded"),
    ),
    ("job gone meanwhile", _evicting, two(no_job, no_pods), (CloseGang,)),
    # finished
    ("stays finished", lambda: holding(FINISHED), job(result=JobResult.SUCCEEDED), ()),
    ("until the job goes", lambda: holding(FINISHED), no_job, (CloseGang,)),
]


@pytest.mark.parametrize(("start", "change", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_next_step(start: Callable[[], World], change: Change, expected: Expected) -> None:
    world = start()
    change(world)
    actions = steps(world)
    assert [type(it) for it in actions] == list(expected[:1])
    if expected[1:]:
        [action] = actions
        assert isinstance(action, SaveGang)
        assert (action.gang.state, action.gang.reason) == expected[1:]
        if action.gang.state is PENDING:
            _gives_everything_back(action.gang)
    world.busy = frozenset({gang_subject(G)})
    assert [it for it in steps(world) if gang_subject(G) in it.subjects] == [], "a busy gang is left alone"


def _gives_everything_back(it: Gang) -> None:
    assert (it.pins, it.flavors, it.recuts) == ((), {}, {})
    assert (it.quota_reserved_at_s, it.admitted_at_s, it.pods_ready) == (0.0, 0.0, False)


# -- details of single steps ------------------------------------------------------------------------------------------


def test_a_job_that_names_a_queue_becomes_a_gang_at_its_old_place() -> None:
    world = pending()
    waiting = world.gang("g")
    world.gangs.clear()
    [opened] = steps(world)
    assert isinstance(opened, OpenGang)
    made = opened.gang
    assert (made.uid, made.queue, made.pod_sets, made.created_at_s) == (G, "q", waiting.pod_sets, waiting.created_at_s)
    assert (made.state, made.reason, made.since_s) == (PENDING, "Queued", NOW)
    assert made.workload == "job-g-uid-g"


@pytest.mark.parametrize("facts", [{"queue": ""}, {"deleting": True}, {"result": JobResult.FAILED}])
def test_a_job_that_does_not(facts: dict[str, Any]) -> None:
    world = pending()
    world.gangs.clear()
    job(**facts)(world)
    assert steps(world) == []


def test_the_priority_of_a_class_is_taken_when_the_gang_is_opened() -> None:
    world = World(FleetBuilder().pool().team().queue().priority("high", 7).build())
    world.waits(gang("g", priority_class="high"))
    world.gangs.clear()
    [opened] = steps(world)
    assert isinstance(opened, OpenGang)
    assert opened.gang.priority == 7


@pytest.mark.parametrize("name", ["x" * 250, "a" * 57 + ".-b"])
def test_a_workload_name_fits_a_label(name: str) -> None:
    workload = workload_name(JobRef("batch/v1", "JobSet", "ns", name, "0123456789"))
    assert len(workload) <= 63
    assert workload.startswith("jobset-")
    assert workload.endswith("01234")
    assert ".-0" not in workload


def test_starting_carries_the_tolerations_of_the_flavors() -> None:
    world = holding(ADMITTED)
    builder = (
        FleetBuilder().pool().flavor("h100", nodePools=["h100"], tolerations=[{"key": "gpu", "operator": "Exists"}])
    )
    world.fleet = builder.team().queue().build()
    [start] = steps(world)
    assert isinstance(start, StartJob)
    assert (start.resource_version, start.workload) == ("1", "job-g")
    assert [it.key for it in start.tolerations["main"]] == ["gpu", "muster.dev/gang"]
    world.gangs[G] = replace(world.gang("g"), flavors={})
    [start] = steps(world)
    assert isinstance(start, StartJob)
    assert [it.key for it in start.tolerations["main"]] == ["muster.dev/gang"], (
        "its machine is kept for it all the same"
    )


def test_pins_get_their_nodes_when_the_machines_have_joined() -> None:
    world = holding(RESERVED, pins=(Pin("main", "", "m0", 2),))
    [save] = steps(world)
    assert isinstance(save, SaveGang)
    assert save.gang.pins == (Pin("main", "node-m0", "m0", 2),)
    assert save.gang.admitted_at_s == NOW
    assert save.gang.message == "has quota and 1 ready machine"


def test_a_requeued_gang_remembers_why() -> None:
    world = _evicting()
    two(job(suspended=True), no_pods)(world)
    [save] = steps(world)
    assert isinstance(save, SaveGang)
    assert save.gang.message == "requeued; was evicted because it makes room for ns/h"
    assert (save.gang.evictions, save.gang.created_at_s) == (1, world.gang("g").created_at_s)


@pytest.mark.parametrize(
    ("reason", "pause_s", "told"),
    [
        ("LaunchTimeout", 60, ("MachineLost", "machine m0 leaves before it was used: why")),
        ("RegistrationTimeout", 60, ("MachineLost", "machine m0 leaves before it was used: why")),
        ("InitializationTimeout", 60, ("MachineLost", "machine m0 leaves before it was used: why")),
        ("InsufficientCapacityError", 0, ("InsufficientCapacity", "machine m0 cannot be had: why")),
    ],
)
def test_after_machines_that_never_came_there_is_a_pause(reason: str, pause_s: float, told: tuple[str, str]) -> None:
    world = holding(RESERVED)
    claim(disruption=NodeDisruption(reason, "why", NOW, NEVER))(world)
    [save] = steps(world)
    assert isinstance(save, SaveGang)
    assert save.gang.requeue_at_s == NOW + pause_s
    assert (save.gang.reason, save.gang.message) == told


# -- releasing pods ---------------------------------------------------------------------------------------------------


def started(*pins: tuple[str, int]) -> World:
    """A gang whose pods are all still gated, pinned to machines as given."""
    world = World(small_fleet())
    for name, _ in pins:
        world.machine(name)
    count = sum(n for _, n in pins)
    world.runs(gang("g", count=count, gpu=1), *pins, pods=False, pods_ready=False)
    world.jobs[G] = replace(world.jobs[G], ready_pods=0)
    world.stands(*[gang_pod(world.gang("g"), f"p{n}") for n in range(count)])
    return world


def released(world: World) -> dict[str, str]:
    found = [it for it in steps(world) if isinstance(it, ReleasePod)]
    assert len({it.pod.uid for it in found}) == len(found)
    return {it.pod.name: it.node for it in found}


def test_every_slot_is_filled_exactly_once() -> None:
    world = started(("m0", 2), ("m1", 1))
    assert released(world) == {"p0": "node-m0", "p1": "node-m0", "p2": "node-m1"}
    [first, *_] = [it for it in steps(world) if isinstance(it, ReleasePod)]
    assert first.hostname == "node-m0"


def test_a_pod_that_is_released_already_keeps_its_slot() -> None:
    world = started(("m0", 2), ("m1", 1))
    pod = world.pods["ns/p1"]
    world.stands(replace(pod, gated=False, pinned_host="node-m1"))
    assert released(world) == {"p0": "node-m0", "p2": "node-m0"}


def test_a_terminating_pod_keeps_its_slot_and_its_replacement_waits_for_it() -> None:
    world = started(("m0", 1), ("m1", 1))
    for name, host in (("p0", "m0"), ("p1", "m1")):
        pod = replace(
            world.pods[f"ns/{name}"], gated=False, node=f"node-{host}", phase="Running", deleting=name == "p0"
        )
        world.stands(pod)
    world.stands(gang_pod(world.gang("g"), "p2"))
    assert released(world) == {}
    del world.pods["ns/p0"]
    assert released(world) == {"p2": "node-m0"}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ended_gives_its_slot_to_its_replacement(phase: Any) -> None:
    world = started(("m0", 1), ("m1", 1))
    for name, host in (("p0", "m0"), ("p1", "m1")):
        world.stands(replace(world.pods[f"ns/{name}"], gated=False, node=f"node-{host}", phase=phase))
    world.stands(gang_pod(world.gang("g"), "p2"))
    assert released(world) == {"p2": "node-m0"}


def test_a_gated_pod_that_is_deleted_already_is_passed_over() -> None:
    world = started(("m0", 2))
    world.stands(replace(world.pods["ns/p0"], deleting=True), gang_pod(world.gang("g"), "p2"))
    assert released(world) == {"p1": "node-m0", "p2": "node-m0"}


def test_one_pod_more_than_planned_stays_gated() -> None:
    world = started(("m0", 1))
    world.stands(gang_pod(world.gang("g"), "p1"))
    assert released(world) == {"p0": "node-m0"}


def test_a_pod_whose_release_is_under_way_is_not_released_again_and_keeps_a_slot() -> None:
    world = started(("m0", 1), ("m1", 1))
    world.busy = frozenset({"pod/uid-p0"})
    assert released(world) == {"p1": "node-m1"}


def test_each_pod_set_goes_onto_its_own_pins() -> None:
    world = World(small_fleet())
    world.machine("m0")
    world.machine("m1")
    two_sets = gang("g", pod_set("leader", 1, 0), pod_set("worker", 1, 8))
    pins = (Pin("leader", "node-m1", "m1", 1), Pin("worker", "node-m0", "m0", 1))
    world.runs(two_sets, ("m0", 1), pods=False, pins=pins)
    world.jobs[G] = replace(world.jobs[G], ready_pods=0)
    world.stands(gang_pod(two_sets, "w", "worker"), gang_pod(two_sets, "l", "leader"))
    assert released(world) == {"l": "node-m1", "w": "node-m0"}


def test_pods_of_others_are_nobodys_business_here() -> None:
    world = started(("m0", 1))
    world.stands(foreign_pod("x", "node-m0"))
    assert released(world) == {"p0": "node-m0"}


def test_a_changed_job_is_the_same_job() -> None:
    """It asks for something else, at its old place; how often it was evicted and how long it ran are not forgotten."""
    world = pending()
    before = replace(
        world.gang("g"), evictions=3, ran_before_s=500.0, timeouts=2, requeue_at_s=NOW + 99, max_run_s=800.0
    )
    world.gangs[G] = before
    job(pod_sets=OTHER_PODS, queue="other")(world)
    (action,) = lifecycle.decide(world.fleet, world.snapshot())
    assert isinstance(action, SaveGang)
    now = action.gang
    assert action.respecifies
    assert (now.pod_sets, now.queue, now.created_at_s) == (OTHER_PODS, "other", before.created_at_s)
    assert (now.evictions, now.ran_before_s) == (3, 500.0)
    assert (now.timeouts, now.requeue_at_s) == (0, 0.0), "what these were due to may be what was changed"
    world.gangs[G] = now
    assert lifecycle.decide(world.fleet, world.snapshot()) == []
