"""`leaderworkerset.x-k8s.io/v1` LeaderWorkerSet: groups of a leader and its workers, all of them one gang.

It has no switch. It is held at no replicas, and what its user asked for is kept beside (`asked`): so no pod waits for
nothing, and a template may change without a rolling update.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fleet.snapshot import ANY_NUMBER, PodSet
from fleet.snapshot.constraints import UnsupportedConstraint
from providers.kube.objects.jobs.asked import REPLICAS, asked, restored
from providers.kube.objects.jobs.kind import Counts, JobChange, JobKind, JobOutcome, number, refused_annotations
from providers.kube.objects.jobs.templates import Role
from providers.kube.objects.json_patch import pointer
from providers.kube.objects.paths import LEADER_WORKER_SETS
from providers.kube.objects.shapes import JsonObject

LEADER, WORKER = "leader", "worker"
SET_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
EXCLUSIVE: Final = (
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
)
"""Annotations for which LeaderWorkerSet writes pod affinity into its pods."""


class LeaderWorkerSet(JobKind):
    """A LeaderWorkerSet serves until somebody stops it; its replicas are groups of `size` pods."""

    path, kind = LEADER_WORKER_SETS, "LeaderWorkerSet"
    late = frozenset(
        {"apps.kubernetes.io", "controller-revision-hash", "leaderworkerset.sigs.k8s.io", "statefulset.kubernetes.io"}
    )

    def roles(self, raw: JsonObject) -> Sequence[Role]:
        """Returns leaders and workers; one pod set where both are made from the workers' template."""
        of = raw["spec"]["leaderWorkerTemplate"]
        groups, size = _wanted(raw), number(of.get("size"), 1)
        where = pointer("spec", "leaderWorkerTemplate", "workerTemplate")
        if not of.get("leaderTemplate"):
            return [Role(WORKER, groups * size, where, of["workerTemplate"])]
        leaders = Role(LEADER, groups, pointer("spec", "leaderWorkerTemplate", "leaderTemplate"), of["leaderTemplate"])
        workers = Role(WORKER, groups * (size - 1), where, of["workerTemplate"])
        return [leaders, workers] if workers.pods else [leaders]

    def stamped(self, raw: JsonObject, role: Role) -> Mapping[str, str]:
        """Returns the label that names the set (`pkg/utils/pod`)."""
        return {SET_NAME: raw["metadata"]["name"]}

    def refused(self, raw: JsonObject) -> Iterable[UnsupportedConstraint]:
        """Returns exclusive placement of its groups, and volumes that it makes."""
        yield from refused_annotations(raw, "metadata", *EXCLUSIVE)
        if raw["spec"]["leaderWorkerTemplate"].get("volumeClaimTemplates"):
            words = "claims made for pods are not supported here; use ephemeral volumes in the pod template"
            yield UnsupportedConstraint("spec.leaderWorkerTemplate.volumeClaimTemplates", words)

    def outcome(self, raw: JsonObject) -> JobOutcome | None:
        """Returns None: it never ends by itself."""
        return None

    def counts(self, raw: JsonObject) -> Counts:
        """Reads the status, which counts groups, as pods."""
        size = number(raw["spec"]["leaderWorkerTemplate"].get("size"), 1)
        status = raw.get("status") or {}
        return Counts((status.get("readyReplicas") or 0) * size, (status.get("replicas") or 0) * size)

    def restarts(self, raw: JsonObject) -> Mapping[str, int]:
        """Allows any number: a group that lost a pod is made anew, or the pod alone, as its `restartPolicy` says."""
        return {role.name: ANY_NUMBER for role in self.roles(raw)}

    def manageable(self, raw: JsonObject) -> bool:
        """Returns False for one without replicas, which asks for nothing."""
        return _wanted(raw) > 0

    def suspended(self, raw: JsonObject) -> bool:
        """Returns whether it has no replicas."""
        return number(raw["spec"].get("replicas"), 1) == 0

    def resume(self, raw: JsonObject, pod_sets: Sequence[PodSet]) -> JobChange:
        """Sets the replicas that its user asked for."""
        return JobChange(restored(raw))

    def pause(self, raw: JsonObject) -> JobChange:
        """Sets the replicas to 0 and keeps in an annotation how many its user asked for."""
        if self.suspended(raw):
            return JobChange([], asked(raw))
        held = number(raw["spec"].get("replicas"), 1)
        return JobChange([{"op": "add", "path": REPLICAS, "value": 0}], {REPLICAS: held})


def _wanted(raw: JsonObject) -> int:
    """Groups asked for: those of the object, unless it is held."""
    held = number(raw["spec"].get("replicas"), 1)
    return held or asked(raw).get(REPLICAS, 0)
