"""The admission policies: they parse, cover every kind of work, and do to manifests what the agent expects."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from providers.kube.objects import DECODERS, decode_pod
from providers.kube.objects.jobs import BY_GROUP_KIND, KINDS, JobKind
from providers.kube.objects.names import VOLCANO_GROUP
from providers.sim.store.builtins import builtin_resources
from providers.sim.store.policies import AdmissionPolicies
from providers.sim.store.registry import Resource
from tests.support.work import POD_SETS, manifest, pod

Obj = dict[str, Any]
FOLDER = Path(__file__).resolve().parents[2] / "deploy/components/admission-policy"
DOCUMENTS = [
    document
    for name in yaml.safe_load((FOLDER / "kustomization.yaml").read_text("utf-8"))["resources"]
    for document in yaml.safe_load_all((FOLDER / name).read_text("utf-8"))
]
POLICIES = [document for document in DOCUMENTS if document["kind"] == "MutatingAdmissionPolicy"]
INSTALLED = AdmissionPolicies(
    lambda key: [it for it in DOCUMENTS if key == f"{PLURALS.get(it['kind'])}.admissionregistration.k8s.io"],
    lambda name: {"metadata": {"name": name}},
)
"""As in a store that has been given these files."""
PLURALS = {
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}
INSTALLED.changed()


def named(kind: JobKind) -> str:
    return ".".join(kind.group_kind[::-1])


def matched(policy: Obj) -> Iterator[tuple[str, str, str]]:
    for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
        for group in rule["apiGroups"]:
            for version in rule["apiVersions"]:
                yield from ((group, version, resource) for resource in rule["resources"])


def admitted(raw: Obj, path: tuple[str, str, str]) -> Obj:
    """The object as the API server stores it: what every policy that matches makes of it."""
    return INSTALLED.mutated(resource_at(path), raw, None, dry_run=False)


def resource_at(path: tuple[str, str, str]) -> Resource:
    """A resource that the embedded server has, or a custom one in its place."""
    group, version, plural = path
    for it in builtin_resources():
        if (it.group, it.version, it.plural) == path:
            return it
    return Resource(group=group, version=version, plural=plural, kind="Job", namespaced=True, custom=True)


def path_of(kind: JobKind) -> tuple[str, str, str]:
    return kind.path.group, kind.path.version, kind.path.plural


def born(kind: JobKind, **spec: Any) -> Obj:
    """A job as people write it who have not heard of us: nothing holds it."""
    raw = copy.deepcopy(manifest(kind, **spec))
    raw["spec"].pop("suspend", None)
    (raw["spec"].get("runPolicy") or {}).pop("suspend", None)
    for task in raw["spec"].get("tasks") or ():
        task["template"]["spec"].pop("schedulingGates", None)
    return raw


TEMPLATES = [("apps", "v1", "deployments"), ("apps", "v1", "statefulsets")]
"""What is no work itself, or has no switch: its pods are held."""
MADE = [kind for kind in KINDS if path_of(kind) not in TEMPLATES]
"""Work whose pods do not stand for themselves."""


def test_every_policy_has_its_binding_and_only_creations_of_work_are_looked_at() -> None:
    bindings = [it for it in DOCUMENTS if it["kind"] == "MutatingAdmissionPolicyBinding"]
    assert [it["spec"] for it in bindings] == [{"policyName": it["metadata"]["name"]} for it in POLICIES]
    assert len(POLICIES) + len(bindings) == len(DOCUMENTS)
    for document in DOCUMENTS:
        assert document["apiVersion"] == "admissionregistration.k8s.io/v1"
    for policy in POLICIES:
        spec = policy["spec"]
        assert (spec["failurePolicy"], spec["reinvocationPolicy"]) == ("Fail", "IfNeeded")
        operations = ["CREATE", "UPDATE"] if set(TEMPLATES) & set(matched(policy)) else ["CREATE"]
        assert all(rule["operations"] == operations for rule in spec["matchConstraints"]["resourceRules"])
        assert [mutation["patchType"] for mutation in spec["mutations"]] == ["JSONPatch"]


def test_every_kind_of_work_is_covered_once() -> None:
    found = sorted(path for policy in POLICIES for path in matched(policy) if path != ("", "v1", "pods"))
    assert found == sorted({*map(path_of, KINDS), *TEMPLATES})
    assert sum(path == ("", "v1", "pods") for policy in POLICIES for path in matched(policy)) == 2


@pytest.mark.parametrize("kind", KINDS, ids=named)
def test_work_with_a_queue_is_born_held(kind: JobKind) -> None:
    raw = admitted(born(kind), path_of(kind))
    job = DECODERS[kind.group_kind](msgspec.json.encode(raw))
    assert job.suspended
    assert (job.queue, [(it.name, it.count) for it in job.pod_sets]) == ("t", POD_SETS[kind.group_kind])
    assert admitted(raw, path_of(kind)) == raw, "twice is once"


@pytest.mark.parametrize("kind", KINDS, ids=named)
@pytest.mark.parametrize("labels", [None, {}, {"app": "x"}, {"muster.dev/queue": ""}])
def test_work_without_a_queue_is_left_alone(kind: JobKind, labels: dict[str, str] | None) -> None:
    raw = born(kind)
    raw["metadata"] = {"name": "x"} | ({} if labels is None else {"labels": labels})
    assert admitted(raw, path_of(kind)) == raw


OWNED = [(owner, BY_GROUP_KIND[child]) for owner in KINDS for child in sorted(owner.owns)]


@pytest.mark.parametrize(("owner", "kind"), OWNED, ids=named)
def test_what_a_job_makes_is_started_by_that_job(owner: JobKind, kind: JobKind) -> None:
    raw = born(kind)
    reference = {
        "apiVersion": owner.path.api_version(),
        "kind": owner.kind,
        "name": "x",
        "uid": "o",
        "controller": True,
    }
    raw["metadata"]["ownerReferences"] = [reference]
    assert admitted(raw, path_of(kind)) == raw
    raw["metadata"]["ownerReferences"] = [{**reference, "apiVersion": "example.com/v1"}]
    assert admitted(raw, path_of(kind)) != raw


def test_a_run_policy_that_is_missing_is_made() -> None:
    kind = BY_GROUP_KIND["kubeflow.org", "PyTorchJob"]
    raw = born(kind)
    del raw["spec"]["runPolicy"]
    assert admitted(raw, path_of(kind))["spec"]["runPolicy"] == {"suspend": True}


def test_a_ray_job_on_a_cluster_of_others_is_left_alone() -> None:
    kind = BY_GROUP_KIND["ray.io", "RayJob"]
    raw = born(kind, clusterSelector={"ray.io/cluster": "shared"})
    assert admitted(raw, path_of(kind)) == raw


def test_tasks_keep_the_gates_of_others() -> None:
    kind = BY_GROUP_KIND["batch.volcano.sh", "Job"]
    raw = born(kind)
    raw["spec"]["tasks"][0]["template"]["spec"]["schedulingGates"] = [{"name": "example.com/x"}]
    gates = [it["template"]["spec"]["schedulingGates"] for it in admitted(raw, path_of(kind))["spec"]["tasks"]]
    assert gates == [[{"name": "example.com/x"}, {"name": "muster.dev/placement"}], [{"name": "muster.dev/placement"}]]


PODS = ("", "v1", "pods")


def plain(**labels: str) -> Obj:
    return {"metadata": {"name": "p", "namespace": "t", "uid": "u", "labels": labels}, "spec": pod()["spec"]}


@pytest.mark.parametrize("group", ["muster.dev/pod-group-name", "kueue.x-k8s.io/pod-group-name"])
@pytest.mark.parametrize("queue", ["muster.dev/queue", "kueue.x-k8s.io/queue-name"])
def test_pods_of_a_group_are_born_gated(group: str, queue: str) -> None:
    raw = admitted(plain(**{group: "g", queue: "t"}), PODS)
    found = decode_pod(msgspec.json.encode(raw))
    assert found.held
    assert found.member is not None
    assert (found.member.group, found.member.queue) == ("g", "t")
    assert admitted(raw, PODS) == raw


@pytest.mark.parametrize("name", VOLCANO_GROUP)
def test_pods_of_a_pod_group_are_born_gated(name: str) -> None:
    raw = plain(**{"muster.dev/queue": "t"})
    raw["metadata"]["annotations"] = {name: "g"}
    assert decode_pod(msgspec.json.encode(admitted(raw, PODS))).held


@pytest.mark.parametrize("kind", MADE, ids=named)
def test_pods_that_a_job_has_made_are_left_alone(kind: JobKind) -> None:
    """The agent does not take them for a group, so nobody would ever let them go."""
    raw = plain(**{"muster.dev/pod-group-name": "g", "muster.dev/queue": "t"})
    owner = {"apiVersion": kind.path.api_version(), "kind": kind.kind, "name": "j", "uid": "o", "controller": True}
    raw["metadata"]["ownerReferences"] = [owner]
    assert admitted(raw, PODS) == raw
    assert decode_pod(msgspec.json.encode(raw)).member is None


@pytest.mark.parametrize("queue", ["muster.dev/queue", "kueue.x-k8s.io/queue-name"])
def test_a_pod_on_a_queue_without_a_group_is_born_gated_and_a_gang_of_its_own(queue: str) -> None:
    raw = admitted(plain(**{queue: "t"}), PODS)
    found = decode_pod(msgspec.json.encode(raw))
    assert found.held
    assert found.member is not None
    assert (found.job_uid, found.member.group, found.member.total, found.member.queue) == ("u", "", 1, "t")
    assert admitted(raw, PODS) == raw


@pytest.mark.parametrize("labels", [{}, {"muster.dev/pod-group-name": "g"}, {"muster.dev/queue": ""}])
def test_other_pods_are_left_alone(labels: dict[str, str]) -> None:
    assert admitted(plain(**labels), PODS) == plain(**labels)


def test_pods_of_a_daemon_set_are_left_alone() -> None:
    raw = plain(**{"muster.dev/queue": "t"})
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "o", "controller": True}
    raw["metadata"]["ownerReferences"] = [owner]
    assert admitted(raw, PODS) == raw
    assert decode_pod(msgspec.json.encode(raw)).member is None


@pytest.mark.parametrize("path", TEMPLATES)
def test_pods_of_what_names_a_queue_name_it_too(path: tuple[str, str, str]) -> None:
    named = {"muster.dev/queue": "t", "muster.dev/priority-class": "high", "tier": "web"}
    raw: Obj = {
        "metadata": {"name": "d", "labels": named},
        "spec": {"template": {"metadata": {"labels": {"app": "d"}}}},
    }
    once = admitted(raw, path)
    assert once["spec"]["template"]["metadata"]["labels"] == {
        "app": "d",
        "muster.dev/queue": "t",
        "muster.dev/priority-class": "high",
    }
    assert admitted(once, path) == once
    assert admitted({**raw, "metadata": {"name": "d"}}, path)["spec"] == raw["spec"]


def test_a_pod_that_has_its_node_is_left_alone() -> None:
    raw = plain(**{"muster.dev/pod-group-name": "g", "muster.dev/queue": "t"})
    raw["spec"] = {**raw["spec"], "nodeName": "n1"}
    assert admitted(raw, PODS) == raw
