"""Pods of plain groups and of jobs held pod by pod: whose they are, what they say, how they are taken in."""

import random
import threading
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from fleet.actions import Marks, ReleasePod
from fleet.snapshot import STATEFUL_SET, Pod, Terms
from fleet.snapshot.works import group_job, group_uid
from model.kinds import Toleration
from providers.clock import VirtualClock
from providers.kube.actuator import Actuator
from providers.kube.errors import Conflict
from providers.kube.objects import StaleObject, decode_pod, decode_pod_group, take_patch
from providers.kube.objects.jobs import KINDS, JobKind
from providers.kube.retry import Retrier, RetryPolicy
from providers.sim.direct import ApiFaults, DirectTransport
from providers.sim.store import Store
from tests.support.work import USERS, pod

Obj = dict[str, Any]
GROUP = {"muster.dev/pod-group-name": "g", "muster.dev/queue": "q"}
TOTAL = {"muster.dev/pod-group-total-count": "2"}
GPU = Toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")


def raw(labels: Obj | None = None, annotations: Obj | None = None, gpus: int = 8, **metadata: Any) -> Obj:
    meta = {"name": "p", "namespace": "t", "uid": "u", "creationTimestamp": "2027-01-15T08:00:00Z"}
    meta |= {
        "labels": GROUP if labels is None else labels,
        "annotations": TOTAL if annotations is None else annotations,
    }
    return {"metadata": {**meta, **metadata}, "spec": pod(gpus, gated=True)["spec"]}


def read(body: Obj) -> Pod:
    return decode_pod(msgspec.json.encode(body))


def test_a_pod_of_a_group_says_what_the_group_is() -> None:
    found = read(raw())
    member = found.member
    assert member is not None
    assert (found.job_uid, found.held, found.workload) == (group_uid("t", "g"), True, "")
    assert (member.group, member.total, member.queue, member.created_at_s) == ("g", 2, "q", 1_800_000_000.0)
    assert member.shape.requests == {"cpu": 2000, "nvidia.com/gpu": 8}
    assert found.pod_set == member.shape.name
    assert member.shape.name.startswith("role-")


def test_a_pod_of_no_group_has_the_role_main_unless_it_names_another() -> None:
    alone = {name: text for name, text in GROUP.items() if not name.endswith("pod-group-name")}
    assert (read(raw(alone)).pod_set, read(raw(alone, gpus=4)).pod_set) == ("main", "main")
    assert read(raw({**alone, "muster.dev/pod-set": "leader"})).pod_set == "leader"


def test_kueues_names_mean_the_same() -> None:
    theirs = {"kueue.x-k8s.io/pod-group-name": "g", "kueue.x-k8s.io/queue-name": "q"}
    found = read(raw(theirs, {"kueue.x-k8s.io/pod-group-total-count": "2"}))
    assert unlabelled(found) == unlabelled(read(raw()))


def unlabelled(pod: Pod) -> Pod:
    assert pod.member is not None
    return replace(pod, labels=(), member=replace(pod.member, shape=replace(pod.member.shape, labels=())))


def test_pods_that_ask_for_the_same_have_one_role() -> None:
    same, other = read(raw(name="x", uid="v")), read(raw(gpus=4))
    assert same.pod_set == read(raw()).pod_set != other.pod_set
    assert read(raw({**GROUP, "muster.dev/pod-set": "leader"})).pod_set == "leader"


@pytest.mark.parametrize(("text", "total"), [("3", 3), ("", 0), ("0", 0), ("many", 0)])
def test_how_many_there_are(text: str, total: int) -> None:
    member = read(raw(annotations={"muster.dev/pod-group-total-count": text})).member
    assert member is not None
    assert member.total == total


def test_what_everybody_may_say() -> None:
    notes = {
        **TOTAL,
        "muster.dev/last-checkpoint-time": "2027-01-15T08:00:00Z",
        "muster.dev/checkpoint-interval": "5m",
        "karpenter.sh/do-not-disrupt": "true",
        "muster.dev/podset-required-topology": "rack",
        "muster.dev/expected-run-time": "1h",
        "muster.dev/max-run-time": "2h",
        "sla-waiting-time": "3m",
        "muster.dev/priority-boost": "4",
        "muster.dev/on-node-failure": "Replace",
    }
    found = read(raw({**GROUP, "muster.dev/priority-class": "high"}, notes))
    member = found.member
    assert member is not None
    assert (member.last_checkpoint_s, member.checkpoint_interval_s) == (1_800_000_000.0, 300.0)
    assert (member.expected_run_s, member.max_run_s) == (3600.0, 7200.0)
    assert (member.sla_waiting_s, member.priority_boost, member.on_node_failure) == (180.0, 4, "Replace")
    assert (member.priority_class, found.do_not_disrupt, member.shape.required_topology) == ("high", "true", "rack")


def test_a_limit_that_cannot_be_read_is_told_and_makes_no_other_role() -> None:
    found, plain = (read(raw(GROUP, {**TOTAL, **more})) for more in ({"muster.dev/max-run-time": "2 hours"}, {}))
    assert found.member is not None
    assert plain.member is not None
    assert found.member.shape == plain.member.shape
    [told] = group_job(found.job_uid, [found]).unread
    assert told.path == "metadata.annotations[muster.dev/max-run-time]"


@pytest.mark.parametrize("labels", [{}, {"muster.dev/queue": ""}, {"muster.dev/pod-group-name": "g"}])
def test_pods_without_a_queue_are_nobodys(labels: Obj) -> None:
    assert (read(raw(labels)).job_uid, read(raw(labels)).member) == ("", None)


def test_a_pod_on_a_queue_that_names_no_group_is_a_gang_of_its_own() -> None:
    found = read(raw({"muster.dev/queue": "q"}))
    job = group_job(found.job_uid, [found])
    assert found.held
    assert (job.ref.kind, job.ref.name, job.ref.uid) == ("Pod", found.name, found.uid)
    assert (job.queue, [it.count for it in job.pod_sets]) == ("q", [1])


def test_a_pod_on_a_queue_without_the_gate_is_refused_as_nothing_holds_it_back() -> None:
    ungated = raw({"muster.dev/queue": "q"})
    ungated["spec"] = {key: value for key, value in ungated["spec"].items() if key != "schedulingGates"}
    found = read(ungated)
    assert (found.job_uid, found.member) == ("", None)
    assert found.shape is not None
    (refused,) = found.shape.unsupported
    assert "names queue q and has no scheduling gate muster.dev/placement" in refused.words
    running = read({**ungated, "spec": {**ungated["spec"], "nodeName": "n1"}}).shape
    assert running is not None
    assert running.unsupported == ()


def owned(kind: JobKind, uid: str = "o") -> list[Obj]:
    return [{"apiVersion": kind.path.api_version(), "kind": kind.kind, "name": "j", "uid": uid, "controller": True}]


@pytest.mark.parametrize("kind", [it for it in KINDS if it.kind != STATEFUL_SET], ids=lambda kind: str(kind.path))
def test_pods_of_a_job_are_the_jobs(kind: JobKind) -> None:
    """Whatever labels its template has; only one whose pods are held one by one is looked for by its pods."""
    found = read(raw(ownerReferences=owned(kind)))
    assert found.job_uid == ("o" if kind.path.group == "batch.volcano.sh" else "")
    assert (read(raw({}, ownerReferences=owned(kind))).job_uid, read(raw({})).job_uid) == (found.job_uid, "")


SET: Obj = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "s", "uid": "s", "controller": True}


def test_pods_of_other_owners_may_form_a_group() -> None:
    found = read(raw(ownerReferences=[SET]))
    assert (found.job_uid, found.owner_job) == (group_uid("t", "g"), "")


def test_pods_of_a_stateful_set_are_looked_for_by_it_where_they_wait_on_a_queue() -> None:
    found = read(raw({"muster.dev/queue": "q"}, ownerReferences=[SET]))
    assert found.held
    assert (found.job_uid, found.owner_job) == ("s", "s")
    ordinary = read(raw({}, ownerReferences=[SET]))
    assert (ordinary.job_uid, ordinary.owner_job, ordinary.member) == ("", "", None)
    ungated = raw({"muster.dev/queue": "q"}, ownerReferences=[SET])
    ungated["spec"] = {key: value for key, value in ungated["spec"].items() if key != "schedulingGates"}
    told = read(ungated)
    assert (told.job_uid, told.owner_job) == ("", "")
    assert told.shape is not None
    assert [it.path for it in told.shape.unsupported] == ["metadata.labels"]


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_a_volcano_pod_is_of_its_task(where: str) -> None:
    volcano = next(kind for kind in KINDS if kind.path.group == "batch.volcano.sh")
    marks = {"labels": {}, "annotations": {}} | {where: {"volcano.sh/task-spec": "worker"}}
    assert read(raw(marks["labels"], marks["annotations"], ownerReferences=owned(volcano))).pod_set == "worker"


@pytest.mark.parametrize("name", ["scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"])
def test_a_pod_may_name_a_pod_group_of_volcano(name: str) -> None:
    found = read(raw({"muster.dev/queue": "q", "volcano.sh/task-spec": "worker"}, {name: "g"}))
    member = found.member
    assert member is not None
    assert (found.job_uid, found.pod_set, member.group, member.total) == (group_uid("t", "g"), "worker", "g", 0)
    assert read(raw({}, {name: "g"})).member is None, "it asks for no queue"


@pytest.mark.parametrize(
    ("spec", "terms"),
    [
        ({"minMember": 3, "minTaskMember": {"worker": 2}}, Terms("t", "g", 3, {"worker": 2})),
        ({"minMember": 3, "queue": "default"}, Terms("t", "g", 3)),
        ({}, Terms("t", "g", 1)),
        (None, Terms("t", "g", 1)),
    ],
)
def test_what_a_pod_group_says(spec: Obj | None, terms: Terms) -> None:
    body = {"metadata": {"name": "g", "namespace": "t"}} | ({} if spec is None else {"spec": spec})
    assert decode_pod_group(msgspec.json.encode(body)) == terms
    assert terms.key == "t/g"


STAGES: Obj = {"name": "s", "subGroupSize": 2, "minSubGroups": 1, "matchLabelKeys": ["stage"]}


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ({}, []),
        ({"labelSelector": {"matchLabels": {"app": "x"}}}, []),
        ({"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}}, ["labelSelector"]),
        ({"networkTopology": {"mode": "soft", "highestTierAllowed": 1}}, []),
        ({"networkTopology": {"highestTierAllowed": 1}}, ["networkTopology"]),
    ],
)
def test_how_a_pod_group_makes_sub_groups(more: Obj, refused: list[str]) -> None:
    spec = {"minMember": 2, "subGroupPolicy": [{**STAGES, **more}]}
    body = {"metadata": {"name": "g", "namespace": "t"}, "spec": spec}
    [policy] = decode_pod_group(msgspec.json.encode(body)).policies
    assert (policy.name, policy.labels, policy.size, policy.least) == ("s", ("stage",), 2, 1)
    assert [it.path for it in policy.unsupported] == refused
    assert bool(policy.selector) == ("matchLabels" in (more.get("labelSelector") or {}))


# -- taking one in ----------------------------------------------------------------------------------------------------


class PodGroupWorld:
    """A store with one held pod in it, and the hands."""

    def __init__(self) -> None:
        self.faults = ApiFaults()
        self.store = Store(VirtualClock())
        self.pods = self.store.resource("Pod")
        body = raw()
        del body["metadata"]["uid"], body["metadata"]["creationTimestamp"]
        self.store.create(self.store.resource("Namespace"), {"metadata": {"name": "t"}})
        self.store.create(self.pods, body, namespace="t")
        api = DirectTransport(self.store, VirtualClock(), faults=self.faults)
        retrier = Retrier(stop=threading.Event(), rng=random.Random(1), policy=RetryPolicy(attempts=1))
        self.actuator = Actuator(api, retrier, VirtualClock())

    @property
    def raw(self) -> Obj:
        return self.store.get(self.pods, "p", "t")

    @property
    def action(self) -> ReleasePod:
        found = read(self.raw)
        return ReleasePod(found, "node-1", "host-1", Marks("podgroup-g", found.pod_set, (GPU,)))


def test_one_write_takes_it_in_and_lets_it_go() -> None:
    world = PodGroupWorld()
    before = world.raw
    (written,) = world.actuator.perform(world.action)
    after = world.raw
    role = read(before).pod_set
    labels = {**before["metadata"]["labels"], "muster.dev/workload": "podgroup-g", "muster.dev/pod-set": role}
    assert after["metadata"]["labels"] == labels
    assert after["spec"]["nodeSelector"] == {"kubernetes.io/hostname": "host-1"}
    assert not after["spec"].get("schedulingGates")
    assert after["spec"]["tolerations"][0] == USERS
    assert after["spec"]["tolerations"][-1] == {"operator": "Exists", "key": "nvidia.com/gpu", "effect": "NoSchedule"}
    assert (written.key, written.version, written.value) == ("t/p", after["metadata"]["resourceVersion"], read(after))
    assert (written.value.workload, written.value.held, written.value.pinned_host) == ("podgroup-g", False, "host-1")


def test_twice_is_once() -> None:
    world = PodGroupWorld()
    action = world.action
    world.actuator.perform(action)
    version = world.raw["metadata"]["resourceVersion"]
    world.actuator.perform(action)
    assert world.raw["metadata"]["resourceVersion"] == version


def test_somebody_else_may_write_in_between() -> None:
    world = PodGroupWorld()
    world.faults.conflicts = 2
    world.actuator.perform(world.action)
    assert not world.raw["spec"].get("schedulingGates")


def test_a_conflict_that_does_not_end_is_told() -> None:
    world = PodGroupWorld()
    world.faults.conflicts = 9
    with pytest.raises(Conflict):
        world.actuator.perform(world.action)


def test_a_pod_of_the_same_name_is_not_the_same_pod() -> None:
    world = PodGroupWorld()
    action = world.action
    world.store.delete(world.pods, "p", namespace="t", grace_period_s=0)
    body = raw()
    del body["metadata"]["uid"]
    world.store.create(world.pods, body, namespace="t")
    with pytest.raises(StaleObject):
        world.actuator.perform(action)


def test_gates_of_others_stay() -> None:
    body = raw(resourceVersion="1")
    body["spec"]["schedulingGates"].append({"name": "example.com/x"})
    action = ReleasePod(read(body), "n", "h", Marks("w", "main"))
    values = {op["path"]: op["value"] for op in take_patch(action, Marks("w", "main"), body)}
    assert values["/spec/schedulingGates"] == [{"name": "example.com/x"}]
