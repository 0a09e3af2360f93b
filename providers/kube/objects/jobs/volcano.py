"""`batch.volcano.sh/v1alpha1` Job: a pod set for each task.

It has no switch, and its tasks cannot change once it exists. So its pods are held one by one: every task's template has
our gate from the start (the admission policy in `deploy/` sees to it), and a pod gets the rest when it is released. A
job without the gate cannot be held and is left alone.
"""

from collections.abc import Iterable, Mapping, Sequence

from fleet.snapshot import ANY_NUMBER, Hold, JobResult
from fleet.snapshot.constraints import UnsupportedConstraint
from fleet.snapshot.core_sizes import Minimum, choice_of, core_sizes
from fleet.snapshot.sub_groups import SubGroup
from providers.kube.objects.instants import instant_of
from providers.kube.objects.jobs.kind import JobKind, JobOutcome, number
from providers.kube.objects.jobs.templates import Role, gated
from providers.kube.objects.json_patch import pointer
from providers.kube.objects.paths import VOLCANO_JOBS
from providers.kube.objects.shapes import JsonObject

_RESULTS = {"Completed": JobResult.SUCCEEDED, "Failed": JobResult.FAILED, "Terminated": JobResult.FAILED}

_RESTARTS = frozenset({"RestartJob", "RestartTask", "RestartPod"})
_MAX_RETRY = 3


class VolcanoJob(JobKind):
    """A Volcano Job has a pod set for each task; `minAvailable` of its pods run together, others join as they can."""

    path, kind = VOLCANO_JOBS, "Job"
    hold = Hold.PODS
    late = frozenset({"volcano.sh"})

    def roles(self, raw: JsonObject) -> Sequence[Role]:
        """Returns the tasks, named as Volcano names them (`task<n>` where they have no name)."""
        spec, minima = raw["spec"], _minima(raw)
        core = core_sizes([*minima.values()], spec.get("minAvailable"))
        if choice_of("", minima, spec.get("minAvailable")) is not None:  # then each task has a core, if of all its pods
            core = [least.pods if some is None else some for some, least in zip(core, minima.values(), strict=True)]
        tasks = spec.get("tasks") or ()
        where = [pointer("spec", "tasks", index, "template") for index in range(len(tasks))]
        return [
            Role(name, least.pods, path, task["template"], core=some)
            for (name, least), task, path, some in zip(minima.items(), tasks, where, core, strict=True)
        ]

    def choice(self, raw: JsonObject) -> SubGroup | None:
        """Returns that any `minAvailable` pods may start, where tasks differ and have more."""
        return choice_of(raw["metadata"]["name"], _minima(raw), raw["spec"].get("minAvailable"))

    def stamped(self, raw: JsonObject, role: Role) -> Mapping[str, str]:
        """Returns the labels that name job, task and queue (`pkg/controllers/job`, createJobPod)."""
        meta = raw["metadata"]
        named = {"job-name": meta["name"], "job-namespace": meta["namespace"], "task-spec": role.name}
        named["queue-name"] = raw["spec"].get("queue") or "default"
        return {f"volcano.sh/{key}": text for key, text in named.items()}

    def refused(self, raw: JsonObject) -> Iterable[UnsupportedConstraint]:
        """Returns volumes that it mounts into every pod, and topologies that only Volcano's scheduler knows."""
        spec = raw["spec"]
        for n, _ in enumerate(spec.get("volumes") or ()):
            yield UnsupportedConstraint(f"spec.volumes[{n}]", "mount it in the pod template of each task")
        if (spec.get("networkTopology") or {}).get("mode", "hard") == "hard" and spec.get("networkTopology"):
            words = "use the annotation muster.dev/podset-required-topology of the pod template instead"
            yield UnsupportedConstraint("spec.networkTopology", words)
        for n, task in enumerate(spec.get("tasks") or ()):
            if task.get("topologyPolicy") not in (None, "", "none"):
                yield UnsupportedConstraint(f"spec.tasks[{n}].topologyPolicy", "NUMA is not looked at; remove it")
            if task.get("partitionPolicy"):
                words = "write a task for each partition, or pods with a PodGroup and its subGroupPolicy"
                yield UnsupportedConstraint(f"spec.tasks[{n}].partitionPolicy", words)

    def outcome(self, raw: JsonObject) -> JobOutcome | None:
        """Reads its phase; one that was aborted may be resumed, so it has not ended."""
        state = (raw.get("status") or {}).get("state") or {}
        result = _RESULTS.get(state.get("phase", ""))
        return JobOutcome(result, instant_of(state.get("lastTransitionTime"))) if result else None

    def restarts(self, raw: JsonObject) -> Mapping[str, int]:
        """Allows any number where a policy says that evicted pods start again, until `maxRetry` is used up."""
        spec = raw["spec"]
        if number(spec.get("maxRetry"), _MAX_RETRY) <= ((raw.get("status") or {}).get("retryCount") or 0):
            return {}
        roles = zip(self.roles(raw), spec.get("tasks") or (), strict=True)
        return {role.name: ANY_NUMBER for role, task in roles if (_evicted(task) or _evicted(spec)) in _RESTARTS}

    def manageable(self, raw: JsonObject) -> bool:
        """Whether every task's pods are born behind the gate."""
        tasks = raw["spec"].get("tasks") or ()
        return bool(tasks) and all(gated(task["template"]) for task in tasks)

    def suspended(self, raw: JsonObject) -> bool:
        """Returns True: whether it has started its pods tell."""
        return True


def _minima(raw: JsonObject) -> Mapping[str, Minimum]:
    """Returns task -> its pods, and how many of them are needed; in order."""
    tasks = enumerate(raw["spec"].get("tasks") or ())
    found = ((task.get("name") or f"task{index}", task) for index, task in tasks)
    return {name: Minimum(number(task.get("replicas"), 1), task.get("minAvailable")) for name, task in found}


def _evicted(of: JsonObject) -> str:
    """Returns the action of the first policy for evicted pods; empty when there is none."""
    for policy in of.get("policies") or ():
        if {"PodEvicted", "*"} & {policy.get("event"), *(policy.get("events") or ())}:
            return str(policy.get("action") or "")
    return ""
