"""KubeRay's RayCluster and RayJob (`ray.io/v1`): a head, groups of workers, and for a job the pod that submits it.

Source: kuberay `ray-operator/apis/ray/v1` and `controllers/ray/utils` (replicas of a group, submission modes).
"""

from collections.abc import Mapping, Sequence

from fleet.snapshot import ANY_NUMBER, JobResult
from providers.kube.objects.instants import instant_of
from providers.kube.objects.jobs.kind import Counts, JobKind, JobOutcome, number
from providers.kube.objects.jobs.templates import Role
from providers.kube.objects.json_patch import pointer
from providers.kube.objects.paths import RAY_CLUSTERS, RAY_JOBS
from providers.kube.objects.shapes import JsonObject, dig

HEAD, SUBMITTER = "head", "submitter"
_OVER = frozenset({"Complete", "Failed", "ValidationFailed"})


_LATE = frozenset({"ray.io", "batch.kubernetes.io", "controller-uid", "job-name"})


class RayCluster(JobKind):
    """A RayCluster runs until somebody suspends or deletes it. One that a RayJob made belongs to the RayJob's gang."""

    path, kind = RAY_CLUSTERS, "RayCluster"
    late = _LATE

    def roles(self, raw: JsonObject) -> Sequence[Role]:
        """Returns the head and each worker group."""
        return _cluster(raw["spec"], "spec")

    def stamped(self, raw: JsonObject, role: Role) -> Mapping[str, str]:
        """Returns the labels that name cluster and group."""
        return {"ray.io/cluster": raw["metadata"]["name"], **_stamped(role)}

    def outcome(self, raw: JsonObject) -> JobOutcome | None:
        """Returns None: it never ends by itself."""
        return None

    def counts(self, raw: JsonObject) -> Counts:
        """Counts workers by its status, and the head by its condition."""
        status = raw.get("status") or {}
        head = any(it["type"] == "HeadPodReady" and it["status"] == "True" for it in status.get("conditions") or ())
        return Counts((status.get("readyWorkerReplicas") or 0) + head, status.get("availableWorkerReplicas") or 0)

    def restarts(self, raw: JsonObject) -> Mapping[str, int]:
        """Allows any number of workers, and no head: that takes the cluster's state with it."""
        return _workers_restart(raw["spec"])


class RayJob(JobKind):
    """A RayJob is a cluster with one job on it. One that selects a cluster of somebody else has no pods to place."""

    path, kind = RAY_JOBS, "RayJob"
    late = _LATE
    owns = frozenset({("ray.io", "RayCluster"), ("batch", "Job")})

    def roles(self, raw: JsonObject) -> Sequence[Role]:
        """Returns those of its cluster, and the submitter where its template is given: KubeRay's own stays outside."""
        spec = raw["spec"]
        roles = _cluster(spec.get("rayClusterSpec") or {}, "spec", "rayClusterSpec")
        submitter = spec.get("submitterPodTemplate")
        if submitter and spec.get("submissionMode") in (None, "", "K8sJobMode"):
            roles.append(Role(SUBMITTER, 1, pointer("spec", "submitterPodTemplate"), submitter))
        return roles

    def stamped(self, raw: JsonObject, role: Role) -> Mapping[str, str]:
        """Returns the label that names the group; the cluster's name is made up later."""
        return {} if role.name == SUBMITTER else _stamped(role)

    def outcome(self, raw: JsonObject) -> JobOutcome | None:
        """Reads its deployment status for the end, and the status of the job on the cluster for success."""
        status = raw.get("status") or {}
        if status.get("jobDeploymentStatus") not in _OVER:
            return None
        result = JobResult.SUCCEEDED if status.get("jobStatus") == "SUCCEEDED" else JobResult.FAILED
        return JobOutcome(result, instant_of(status.get("endTime")))

    def counts(self, raw: JsonObject) -> Counts:
        """Counts its cluster's workers; of head and submitter only the pods can tell."""
        return Counts(active=dig(raw, "status", "rayClusterStatus", "availableWorkerReplicas") or 0)

    def restarts(self, raw: JsonObject) -> Mapping[str, int]:
        """Allows what its cluster does."""
        return _workers_restart(raw["spec"].get("rayClusterSpec") or {})

    def manageable(self, raw: JsonObject) -> bool:
        """Returns False for a job on a cluster that was not made for it: KubeRay cannot suspend that."""
        return not raw["spec"].get("clusterSelector")


def _cluster(spec: JsonObject, *where: str) -> list[Role]:
    head = spec.get("headGroupSpec")
    roles = [Role(HEAD, 1, pointer(*where, "headGroupSpec", "template"), head["template"])] if head else []
    for index, group in enumerate(spec.get("workerGroupSpecs") or ()):
        path = pointer(*where, "workerGroupSpecs", index, "template")
        roles.append(Role(group["groupName"], _workers(group), path, group["template"]))
    return roles


def _stamped(role: Role) -> Mapping[str, str]:
    """Labels of a cluster's pods (`controllers/ray/common/pod.go`, labelPod)."""
    head = role.name == HEAD
    return {
        "ray.io/is-ray-node": "yes",
        "ray.io/node-type": "head" if head else "worker",
        "ray.io/group": "headgroup" if head else role.name,
        "app.kubernetes.io/name": "kuberay",
        "app.kubernetes.io/created-by": "kuberay-operator",
    }


def _workers_restart(spec: JsonObject) -> Mapping[str, int]:
    return {group["groupName"]: ANY_NUMBER for group in spec.get("workerGroupSpecs") or ()}


def _workers(group: JsonObject) -> int:
    """Hosts of a group at its start: its replicas within their bounds, each of several hosts."""
    if group.get("suspend"):
        return 0
    least = number(group.get("minReplicas"), 0)
    most = number(group.get("maxReplicas"), 2**31 - 1)
    return min(most, max(least, number(group.get("replicas"), least))) * number(group.get("numOfHosts"), 1)
