"""`trainer.kubeflow.org/v1alpha1` TrainJob: a reference to a training runtime, from which a JobSet is made.

The JobSet exists, suspended, while the TrainJob is suspended; what a TrainJob asks for is what its JobSet does. Pod
templates are changed through an entry of our own in `spec.runtimePatches` (Trainer 2.2), and only while the TrainJob is
suspended, so that the start takes two writes.
"""

from collections.abc import Sequence
from typing import Any, Final

from fleet.actions import StartJob
from providers.kube.objects.additions import record
from providers.kube.objects.jobs.kind import JobKind, JobOutcome, Preparation, ended
from providers.kube.objects.jobs.templates import Marked, Role, appending
from providers.kube.objects.json_patch import pointer
from providers.kube.objects.names import ADDITIONS, PLACEMENT_GATE, POD_SET, WORKLOAD
from providers.kube.objects.paths import TRAIN_JOBS
from providers.kube.objects.pod_templates import toleration_object
from providers.kube.objects.shapes import JsonObject, dig, set_fields

MANAGER: Final = "muster.dev/manager"
"""Names us as the manager of our entry in `runtimePatches`."""


class TrainJob(JobKind):
    """A TrainJob has the pod sets of the JobSet that is made from it, by the same names."""

    path, kind = TRAIN_JOBS, "TrainJob"
    shaped_below = True
    owns = frozenset({("jobset.x-k8s.io", "JobSet")})

    def roles(self, raw: JsonObject) -> Sequence[Role]:
        """Returns nothing: it has no templates of its own."""
        return ()

    def outcome(self, raw: JsonObject) -> JobOutcome | None:
        """Reads the conditions Complete and Failed."""
        return ended(raw, "Complete")

    def marked(self, action: StartJob, raw: JsonObject) -> Marked:
        """Writes our entry into `runtimePatches`. What it appends is recorded on the JobSet, where it is appended."""
        wanted = _entry(action)
        patches = raw["spec"].get("runtimePatches")
        for index, entry in enumerate(patches or ()):
            if entry["manager"] == MANAGER:
                where = pointer("spec", "runtimePatches", index, "trainingRuntimeSpec")
                same = entry.get("trainingRuntimeSpec") == wanted["trainingRuntimeSpec"]
                return Marked([] if same else [_add(where, wanted["trainingRuntimeSpec"])])
        if patches is None:
            return Marked([_add("/spec/runtimePatches", [wanted])])
        return Marked([_add("/spec/runtimePatches/-", wanted)])

    def cleared(self, raw: JsonObject) -> list[JsonObject]:
        """Takes our entry out of `runtimePatches`."""
        patches = raw["spec"].get("runtimePatches") or []
        kept = [entry for entry in patches if entry["manager"] != MANAGER]
        if kept == patches:
            return []
        return [{"op": "replace", "path": "/spec/runtimePatches", "value": kept}] if kept else [_REMOVE]

    def prepare(self, action: StartJob, raw: JsonObject) -> Preparation | None:
        """Writes the patches first: its webhook takes them only while it is suspended."""
        changes = self.marked(action, raw).operations
        return Preparation(changes) if changes else None

    def malleable(self, raw: JsonObject) -> bool:
        """Returns True only once it is suspended and its jobs have ended."""
        statuses = dig(raw, "status", "jobsStatus") or ()
        return self.suspended(raw) and not any(one.get("active") for one in statuses)


_REMOVE: Final = {"op": "remove", "path": "/spec/runtimePatches"}


def _add(path: str, value: Any) -> JsonObject:
    return {"op": "add", "path": path, "value": value}


def _entry(action: StartJob) -> JsonObject:
    jobs, additions = [], {}
    for pod_set in action.pod_sets:
        users = [toleration_object(toleration) for toleration in pod_set.tolerations]
        tolerations, added = appending(users, action, pod_set.name)
        spec = {"schedulingGates": [{"name": PLACEMENT_GATE}]} | set_fields(tolerations=tolerations)
        labels = {WORKLOAD: action.workload, POD_SET: pod_set.name}
        template = {"metadata": {"labels": labels}, "spec": spec}
        jobs.append({"name": pod_set.name, "template": {"spec": {"template": template}}})
        if added:
            additions[pod_set.name] = added
    noted = {"metadata": {"annotations": {ADDITIONS: record(additions)}}} if additions else {}
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {**noted, "spec": {"replicatedJobs": jobs}}}}
