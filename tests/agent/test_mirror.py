"""The mirror: what is kept up to date step by step equals what is computed from scratch."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.assume import beliefs, believe_ending
from agent.mirror import UNLISTED_S, Mirror
from agent.sources import WATCHED
from agent.tables import ASSUMED_AT_MOST_S
from fleet.actions import (
    CloseClaim,
    CloseGang,
    EvictPod,
    ForgetClaim,
    KeepHardFence,
    LaunchMachines,
    LiftHardFence,
    Marks,
    OpenClaims,
    OpenGang,
    PatchNode,
    PublishLayouts,
    ReleasePod,
    RemoveNode,
    SaveClaim,
    SaveGang,
    StartJob,
    StopJob,
    TerminateMachines,
)
from fleet.nodeclaims.launch import launch_request
from fleet.snapshot import (
    LIVE_FIELDS,
    CapacityPool,
    HardFence,
    Instance,
    Namespace,
    Pod,
    PodBudget,
    PodPriority,
    Reservation,
)
from fleet.snapshot.affinity import DISRUPTED, RECUTTING
from fleet.snapshot.pod_index import PodIndex
from model.quantity import Resources
from model.upstream.selectors import LabelSelector
from providers.kube.batches import Replace
from tests.support.fleets import (
    NOW,
    P5,
    A,
    amounts,
    catalog,
    gang,
    gang_pod,
    instance_of,
    job_of,
    node_of,
    offering,
    ready_claim,
    small_fleet,
)

NAMES, NODES, GANGS = st.sampled_from("pqrs"), st.sampled_from(["", "n1", "n2"]), st.sampled_from(["", "g1", "g2"])
PODS = st.builds(
    lambda name, node, workload, job, phase, daemon: Pod(
        f"uid-{name}", "ns", name, node, phase, amounts(gpu=2), workload, "main", daemon=daemon, job_uid=job
    ),
    NAMES,
    NODES,
    GANGS,
    st.sampled_from(["", "j1", "j2"]),
    st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    st.booleans(),
)


Views = tuple[
    Mapping[str, tuple[Pod, ...]],
    Mapping[str, tuple[Pod, ...]],
    Mapping[str, tuple[Pod, ...]],
    Mapping[str, Resources],
]


def views(index: PodIndex) -> Views:
    return index.gang_pods, index.job_pods, index.node_pods, index.foreign_use


def from_scratch(pods: dict[str, Pod]) -> Views:
    gangs: dict[str, list[Pod]] = {}
    jobs: dict[str, list[Pod]] = {}
    nodes: dict[str, list[Pod]] = {}
    foreign: dict[str, dict[str, int]] = {}
    for _, pod in sorted(pods.items()):
        if pod.workload:
            gangs.setdefault(f"ns/{pod.workload}", []).append(pod)
        if pod.job_uid:
            jobs.setdefault(pod.job_uid, []).append(pod)
        if pod.node and pod.active and not pod.daemon:
            nodes.setdefault(pod.node, []).append(pod)
        if pod.node and pod.active and not pod.workload:
            use = foreign.setdefault(pod.node, {})
            for name, amount in {**pod.requests, "pods": 1}.items():
                use[name] = use.get(name, 0) + amount
    tuples = [{key: tuple(found) for key, found in view.items()} for view in (gangs, jobs, nodes)]
    return tuples[0], tuples[1], tuples[2], dict(foreign)


@settings(max_examples=200)
@given(st.lists(st.one_of(PODS, st.tuples(NAMES), st.just("settle")), max_size=30))
def test_the_index_of_pods_equals_one_made_anew(steps: list[Pod | tuple[str] | str]) -> None:
    index, pods = PodIndex(), dict[str, Pod]()
    for step in steps:
        if isinstance(step, Pod):
            index.change(step.key, pods.get(step.key), step)
            pods[step.key] = step
        elif isinstance(step, tuple):
            key = f"ns/{step[0]}"
            index.change(key, pods.pop(key, None), None)
        else:
            index.settle()
            seen = views(index)
            copies = tuple(dict(view) for view in seen)
            assert views(index) == from_scratch(pods)
            assert tuple(dict(view) for view in seen) == copies
    index.settle()
    assert views(index) == from_scratch(pods)


def test_a_snapshot_is_not_changed_by_what_is_heard_later() -> None:
    mirror = Mirror("c")
    pod = gang_pod(gang(), "p", node="n1")
    mirror.pods.observe(Replace({pod.key: pod}, "1"))
    before = mirror.snapshot(NOW, frozenset())
    mirror.pods.observe(Replace({}, "2"))
    mirror.list_instances([Instance("i-1", P5.name, A, "spot", "running", NOW, {})], NOW)
    after = mirror.snapshot(NOW, frozenset())
    assert before.node_pods == {"n1": (pod,)}
    assert before.instances == {}
    assert after.node_pods == {}


def test_a_gang_carries_what_only_its_job_knows() -> None:
    mirror = Mirror("c")
    found = gang()
    job = replace(job_of(found), last_checkpoint_s=NOW - 60, do_not_disrupt="true")
    mirror.gangs.observe(Replace({"ns/job-g": found}, "1"))
    mirror.works["jobs.batch"].observe(Replace({found.uid: job}, "1"))
    seen = mirror.snapshot(NOW, frozenset()).gangs[found.uid]
    assert (seen.last_checkpoint_s, seen.do_not_disrupt) == (NOW - 60, "true")


def test_every_live_field_follows_its_job() -> None:
    mirror = Mirror("c")
    found = gang()
    mirror.gangs.observe(Replace({"ns/job-g": found}, "1"))
    for value in (5, 6):
        mirror.works["jobs.batch"].observe(
            Replace({found.uid: replace(job_of(found), **dict.fromkeys(LIVE_FIELDS, value))}, str(value))
        )
        seen = mirror.snapshot(NOW, frozenset()).gangs[found.uid]
        assert {getattr(seen, name) for name in LIVE_FIELDS} == {value}


def test_namespaces_and_priorities_of_pods() -> None:
    mirror = Mirror("c")
    seen = mirror.snapshot(NOW, frozenset())
    assert (seen.namespaces, seen.pod_priorities, seen.meek_pod_priorities) == ({}, {}, frozenset())
    mirror.namespaces.observe(Replace({"ns": Namespace("ns", {"team": "vision"})}, "1"))
    found = [
        PodPriority("high", 9),
        PodPriority("meek", 5, preempts=False),
        PodPriority("usual", 2, default=True),
        PodPriority("lower", 1, preempts=False, default=True),
    ]
    mirror.pod_priorities.observe(Replace({one.name: one for one in found}, "1"))
    seen = mirror.snapshot(NOW, frozenset())
    assert seen.namespaces == {"ns": {"team": "vision"}}
    assert seen.pod_priorities == {"high": 9, "meek": 5, "usual": 2, "lower": 1, "": 1}
    assert seen.meek_pod_priorities == {"meek", "lower", ""}
    again = mirror.snapshot(NOW + 1, frozenset())
    assert again.namespaces is seen.namespaces
    assert again.pod_priorities is seen.pod_priorities


@pytest.mark.parametrize("missing", [*WATCHED, "instances", "reservations", "catalog"])
def test_synced_means_everything_once(missing: str) -> None:
    mirror = Mirror("c")
    for table in WATCHED:
        if table != missing:
            mirror.table(table).observe(Replace({}, "1"))
    if missing != "instances":
        mirror.list_instances([], NOW)
    if missing != "reservations":
        mirror.list_reservations([], NOW)
    if missing != "catalog":
        mirror.catalog = catalog()
    assert not mirror.synced
    if missing not in {"instances", "reservations", "catalog"}:
        mirror.table(missing).observe(Replace({}, "1"))
    mirror.list_instances([], NOW)
    mirror.list_reservations([], NOW)
    mirror.catalog = catalog()
    assert mirror.synced


# -- machines given back ----------------------------------------------------------------------------------------------


def running(instance_id: str) -> Instance:
    return Instance(instance_id, P5.name, A, "on-demand", "running", NOW - 100, {})


def test_a_machine_given_back_stays_so_whatever_an_older_listing_says() -> None:
    mirror = Mirror("c")
    mirror.list_instances([running("i-1")], NOW)
    mirror.give_back(["i-1"], NOW + 1)
    mirror.list_instances([running("i-1")], NOW + 0.5)
    assert mirror.instances["i-1"].gone


def test_a_machine_given_back_before_it_was_ever_listed_is_gone_too() -> None:
    mirror = Mirror("c")
    mirror.list_instances([], NOW)
    mirror.give_back(["i-1"], NOW + 1)
    assert mirror.instances["i-1"].gone
    mirror.list_instances([], NOW + 10)
    assert mirror.instances["i-1"].gone, "the listing lags"
    mirror.list_instances([running("i-1")], NOW + 20)
    assert mirror.instances["i-1"].gone
    mirror.list_instances([], NOW + 2 * UNLISTED_S)
    assert mirror.instances == {}


def test_a_machine_given_back_and_never_listed_is_forgotten_in_the_end() -> None:
    mirror = Mirror("c")
    mirror.give_back(["i-1"], NOW)
    mirror.list_instances([], NOW + UNLISTED_S)
    assert mirror.instances == {}


def test_tags_that_were_written_count_until_the_next_listing() -> None:
    made = Mirror("c")
    known = Instance("i-1", "p5", "a", "on-demand", "running", NOW, {"a": "1"})
    made.list_instances([known], NOW)
    made.tagged("i-1", {"b": "2"})
    made.tagged("i-unknown", {"b": "2"})
    assert {key: it.tags for key, it in made.instances.items()} == {"i-1": {"a": "1", "b": "2"}}
    made.list_instances([known], NOW + 10)
    assert made.instances["i-1"].tags == {"a": "1"}


def test_shortages_are_forgotten_when_their_time_has_come() -> None:
    mirror = Mirror("c")
    pool = CapacityPool("spot", P5.name, A)
    mirror.shortages = {pool: NOW + 10}
    mirror.expire(NOW + 9)
    assert pool in mirror.shortages
    mirror.expire(NOW + 10)
    assert not mirror.shortages


# -- what actions will have made of it --------------------------------------------------------------------------------

FLEET, SOLD = small_fleet(), catalog()
OFFERING = offering(FLEET, SOLD, "h100", P5.name, A, "on-demand")
CLAIM = ready_claim(OFFERING, "m0")
NODE = node_of(CLAIM, OFFERING)
GANG = gang()
POD = gang_pod(GANG, "p0")


def known() -> Mirror:
    mirror = Mirror("c")
    mirror.catalog = SOLD
    mirror.nodes.observe(Replace({NODE.name: NODE}, "1"))
    mirror.claims.observe(Replace({CLAIM.name: CLAIM}, "1"))
    mirror.works["jobs.batch"].observe(Replace({GANG.uid: job_of(GANG)}, "1"))
    mirror.pods.observe(Replace({POD.key: POD}, "1"))
    mirror.gangs.observe(Replace({f"ns/{GANG.workload}": GANG}, "1"))
    mirror.list_instances([instance_of(CLAIM)], NOW)
    return mirror


MOVED = replace(GANG, message="moved")
BELIEVED = {
    "OpenGang": (OpenGang(MOVED), f"ns/{GANG.workload}", MOVED),
    "SaveGang": (SaveGang(MOVED), f"ns/{GANG.workload}", MOVED),
    "CloseGang": (CloseGang(GANG), f"ns/{GANG.workload}", None),
    "StartJob": (StartJob(GANG.job, "1", GANG.uid, GANG.workload), GANG.uid, job_of(GANG, suspended=False)),
    "StopJob": (StopJob(GANG.job, GANG.uid), GANG.uid, job_of(GANG)),
    "ReleasePod, taken into the gang": (
        ReleasePod(POD, "n", "host", Marks("w", "main")),
        POD.key,
        replace(POD, gated=False, pinned_host="host", workload="w", pod_set="main"),
    ),
    "ReleasePod": (ReleasePod(POD, "n", "host"), POD.key, replace(POD, gated=False, pinned_host="host")),
    "OpenClaims": (OpenClaims((CLAIM,)), "m0", CLAIM),
    "SaveClaim": (SaveClaim(replace(CLAIM, layout="x")), "m0", replace(CLAIM, layout="x")),
    "CloseClaim": (CloseClaim(CLAIM), "m0", replace(CLAIM, deleting=True)),
    "ForgetClaim": (ForgetClaim(CLAIM), "m0", None),
    "PatchNode": (
        PatchNode(NODE.name, {"a": "b"}, (DISRUPTED,)),
        NODE.name,
        replace(NODE, labels={**NODE.labels, "a": "b"}, taints=(*NODE.taints, DISRUPTED)),
    ),
    "RemoveNode": (RemoveNode(NODE.name), NODE.name, None),
    "KeepHardFence": (
        KeepHardFence("ns", {"cpu": 1}, takes_back=False),
        "ns",
        HardFence("ns", hard={"cpu": 1}, ours=True),
    ),
    "LiftHardFence": (LiftHardFence(HardFence("ns", "uid", {"cpu": 1}, ours=True)), "ns", None),
    "LiftHardFence of one with bounds of others": (
        LiftHardFence(HardFence("ns", "uid", {"cpu": 1}, ours=True, shared=True)),
        "ns",
        HardFence("ns", "uid", shared=True),
    ),
}


@pytest.mark.parametrize("name", BELIEVED)
def test_what_an_action_will_make_of_the_world(name: str) -> None:
    action, key, value = BELIEVED[name]
    found = beliefs(action, known())
    assert [(k, v) for _, k, v in found] == [(key, value)]


REQUEST = launch_request(FLEET, known().snapshot(NOW, frozenset()), [CLAIM])
SILENT = [LaunchMachines(REQUEST, ("m0",)), TerminateMachines(("i-m0",), "Empty"), EvictPod(POD), PublishLayouts("")]


@pytest.mark.parametrize("action", SILENT, ids=lambda action: type(action).__name__)
def test_what_only_the_world_can_show_is_not_believed(action: LaunchMachines) -> None:
    assert beliefs(action, known()) == []


def test_nothing_is_believed_of_what_is_not_there() -> None:
    empty = Mirror("c")
    for action in (StartJob(GANG.job, "1", GANG.uid, "w"), ReleasePod(POD, "n", "h"), PatchNode("n", {"a": "b"})):
        assert beliefs(action, empty) == []


PLACED = replace(POD, node="n", deletion_grace_s=300.0)
ENDINGS = {
    "with its own grace period": (EvictPod(PLACED), PLACED, NOW + 300),
    "with less": (EvictPod(PLACED, 20), PLACED, NOW + 20),
    "never with more": (EvictPod(PLACED, 900), PLACED, NOW + 300),
    "at once where it is on no node": (EvictPod(POD), replace(PLACED, node=""), NOW),
    "at once where it has ended": (EvictPod(POD), replace(PLACED, phase="Succeeded"), NOW),
    "sooner than it is ending": (EvictPod(POD, 20), replace(PLACED, deleting=True, deletion_at_s=NOW + 99), NOW + 20),
    "no later than it is ending": (EvictPod(POD), replace(PLACED, deleting=True, deletion_at_s=NOW + 99), NOW + 99),
    "another of its name": (EvictPod(POD), replace(PLACED, uid="another"), 0.0),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_an_evicted_pod_is_believed_to_end_when_the_api_lets_it(name: str) -> None:
    action, pod, ends_s = ENDINGS[name]
    mirror = known()
    mirror.pods.observe(Replace({POD.key: pod}, "1"))
    believe_ending(action, mirror, NOW)
    assert mirror.pods.current[POD.key] == replace(pod, deleting=bool(ends_s), deletion_at_s=ends_s)


def test_an_evicted_pod_that_goes_on_is_seen_again_after_half_a_minute() -> None:
    mirror = known()
    believe_ending(EvictPod(POD), mirror, NOW)
    older = replace(POD, ready=not POD.ready)
    mirror.pods.observe(Replace({POD.key: older}, "2"))
    mirror.expire(NOW + ASSUMED_AT_MOST_S - 0.1)
    assert mirror.pods.current[POD.key].deleting
    mirror.expire(NOW + ASSUMED_AT_MOST_S)
    assert mirror.pods.current[POD.key] == older


@pytest.mark.parametrize(
    "shown", [replace(POD, deleting=True, deletion_at_s=NOW + 0.9), replace(POD, uid="next"), None]
)
def test_what_the_watch_shows_of_an_evicted_pod_counts_at_once(shown: Pod | None) -> None:
    mirror = known()
    believe_ending(EvictPod(POD), mirror, NOW)
    mirror.pods.observe(Replace({} if shown is None else {POD.key: shown}, "2"))
    assert mirror.pods.current.get(POD.key) == shown


def test_a_patched_node_has_each_taint_once() -> None:
    twice = PatchNode(NODE.name, {}, (DISRUPTED, RECUTTING)).applied_to(
        PatchNode(NODE.name, {}, (DISRUPTED,)).applied_to(NODE)
    )
    assert twice.taints == (*NODE.taints, DISRUPTED, RECUTTING)
    assert PatchNode(NODE.name, remove_taints=(DISRUPTED.key,)).applied_to(twice).taints == (*NODE.taints, RECUTTING)


def test_a_patched_node_loses_the_labels_that_are_taken_away() -> None:
    marked = PatchNode(NODE.name, {"a": "b", "c": "d"}).applied_to(NODE)
    assert PatchNode(NODE.name, {"c": "e"}, remove_labels=("a", "missing")).applied_to(marked).labels == {
        **NODE.labels,
        "c": "e",
    }


def test_reservations_are_known_from_a_listing_and_the_same_object_until_one_changes() -> None:
    mirror = Mirror("default")
    one = Reservation("cr-1", P5.name, A, 4, 4)
    mirror.list_reservations([one], NOW)
    first = mirror.snapshot(NOW, frozenset()).reservations
    mirror.list_reservations([one], NOW + 60)
    snapshot = mirror.snapshot(NOW, frozenset())
    assert (snapshot.reservations is first, snapshot.reservations_at_s) == (True, NOW + 60)
    mirror.list_reservations([replace(one, available=3)], NOW + 120)
    assert mirror.snapshot(NOW, frozenset()).reservations["cr-1"].available == 3


def test_machines_teach_once_a_minute() -> None:
    mirror = Mirror("default")
    mirror.claims.observe(Replace({CLAIM.name: CLAIM}, "1"))
    mirror.nodes.observe(Replace({CLAIM.node: replace(NODE, name=CLAIM.node)}, "1"))
    mirror.expire(NOW)
    learned = mirror.snapshot(NOW, frozenset()).measured
    assert learned[CLAIM.capacity_pool.instance_type, CLAIM.pool_hash]["memory"] == NODE.allocatable["memory"]
    mirror.nodes.observe(Replace({}, "2"))
    mirror.expire(NOW + 1)
    assert mirror.snapshot(NOW, frozenset()).measured is learned


def test_budgets_of_pods_stay_the_same_object_until_one_changes() -> None:
    mirror = Mirror("c")
    keep = PodBudget("ns", "keep", LabelSelector(), 1)
    mirror.pod_budgets.observe(Replace({keep.key: keep}, "1"))
    seen = mirror.snapshot(NOW, frozenset()).pod_budgets
    assert seen == {"ns/keep": keep}
    mirror.pod_budgets.observe(Replace({keep.key: PodBudget("ns", "keep", LabelSelector(), 1)}, "2"))
    assert mirror.snapshot(NOW, frozenset()).pod_budgets is seen
    mirror.pod_budgets.observe(Replace({keep.key: replace(keep, disruptions_allowed=0)}, "3"))
    assert mirror.snapshot(NOW, frozenset()).pod_budgets["ns/keep"].allows == 0
