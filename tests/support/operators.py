"""What the operators of other people's kinds do, as far as it matters to a gang: make pods, end them, say how it ended.

Written from the documentation of each operator, not with the agent's own reading of the objects.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

from agent.simulation import Simulation
from providers.sim.store import PatchType

Obj = dict[str, Any]
Pods = Callable[[Obj], Iterator[tuple[str, Obj]]]
"""Pods a job has now: name and template of each."""


class Operator:
    """A controller of the simulation. `sim` is set once there is one."""

    name = "operator"

    def __init__(self, plural: str, group: str, act: Callable[["Operator", Obj], None]) -> None:
        self.sim: Simulation | None = None
        self._plural, self._group, self._act = plural, group, act

    def step(self, _now: float) -> float | None:
        """Look at every object of the kind."""
        if self.sim is None:
            return None
        store = self.sim.store
        try:
            resource = store.resource(self._plural, self._group)
        except KeyError:
            return None
        for raw in store.list(resource):
            self._act(self, raw)
        return None

    # -- what acts are made of --

    def pods(self, owner: Obj) -> list[Obj]:
        """The pods an object controls."""
        assert self.sim is not None
        uid = owner["metadata"]["uid"]
        return [pod for pod in self.sim.objects("Pod") if _owner(pod) == uid]

    def fit(self, owner: Obj, wanted: dict[str, Obj]) -> None:
        """Exactly these pods, by name; an ended one counts."""
        assert self.sim is not None
        store, resource = self.sim.store, self.sim.store.resource("Pod")
        namespace = owner["metadata"]["namespace"]
        held = {pod["metadata"]["name"]: pod for pod in self.pods(owner)}
        for name, pod in sorted(held.items()):
            if name not in wanted and "deletionTimestamp" not in pod["metadata"]:
                store.delete(resource, name, namespace=namespace)
        for name, template in sorted(wanted.items()):
            if name not in held:
                body = copy.deepcopy(template)
                body["metadata"] = {
                    **(body.get("metadata") or {}),
                    "name": name,
                    "ownerReferences": [_reference(owner)],
                }
                store.create(resource, body, namespace=namespace)

    def child(self, owner: Obj, kind: str, group: str, body: Obj | None) -> Obj | None:
        """The object of that kind and the owner's name: made, changed to `body`, or, for None, deleted."""
        assert self.sim is not None
        store, resource = self.sim.store, self.sim.store.resource(kind, group)
        name, namespace = owner["metadata"]["name"], owner["metadata"]["namespace"]
        held = self.sim.object(kind, name, namespace)
        if body is None:
            if held:
                store.delete(resource, name, namespace=namespace, propagation="Background")
            return None
        given = body.get("metadata", {})
        annotations = dict.fromkeys((held or {"metadata": {}})["metadata"].get("annotations") or ()) | given.get(
            "annotations", {}
        )
        meta = {**given, "annotations": annotations, "name": name, "ownerReferences": [_reference(owner)]}
        body = {**body, "metadata": meta}
        if not held:
            return store.create(resource, body, namespace=namespace)
        return store.patch(resource, name, body, PatchType.MERGE, namespace=namespace)

    def say(self, owner: Obj, **status: Any) -> None:
        """Write the status, where it changes."""
        assert self.sim is not None
        if (owner.get("status") or {}) == status:
            return
        store, meta = self.sim.store, owner["metadata"]
        operations = [{"op": "add", "path": "/status", "value": status}]
        resource = store.resource(self._plural, self._group)
        store.patch(
            resource, meta["name"], operations, PatchType.JSON, namespace=meta["namespace"], subresource="status"
        )

    def succeeded(self, owner: Obj, count: int) -> bool:
        """Whether so many of its pods have succeeded."""
        return sum((pod.get("status") or {}).get("phase") == "Succeeded" for pod in self.pods(owner)) >= count


def _owner(pod: Obj) -> str:
    return next((it["uid"] for it in pod["metadata"].get("ownerReferences") or () if it.get("controller")), "")


def _reference(owner: Obj) -> Obj:
    meta = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


# -- operators --------------------------------------------------------------------------------------------------------


def pytorch() -> Operator:
    """The training operator: no pods while `runPolicy.suspend`."""

    def act(operator: Operator, raw: Obj) -> None:
        spec, name = raw["spec"], raw["metadata"]["name"]
        replicas = {
            f"{name}-{role.lower()}-{n}": one["template"]
            for role, one in spec["pytorchReplicaSpecs"].items()
            for n in range(one.get("replicas", 1))
        }
        suspended = (spec.get("runPolicy") or {}).get("suspend", False)
        operator.fit(raw, {} if suspended else replicas)
        if not suspended and operator.succeeded(raw, len(replicas)):
            ended = {"type": "Succeeded", "status": "True", "lastTransitionTime": "2027-01-15T09:00:00Z"}
            operator.say(raw, conditions=[ended])

    return Operator("pytorchjobs", "kubeflow.org", act)


def ray() -> list[Operator]:
    """KubeRay: a RayJob makes a RayCluster, with its labels, and the cluster makes the pods."""

    def job(operator: Operator, raw: Obj) -> None:
        labels = raw["metadata"]["labels"]
        body = {"metadata": {"labels": labels}, "spec": raw["spec"]["rayClusterSpec"]}
        operator.child(raw, "RayCluster", "ray.io", None if raw["spec"].get("suspend") else body)

    def cluster(operator: Operator, raw: Obj) -> None:
        spec, name = raw["spec"], raw["metadata"]["name"]
        pods = {f"{name}-head": spec["headGroupSpec"]["template"]}
        for group in spec["workerGroupSpecs"]:
            pods |= {f"{name}-{group['groupName']}-{n}": group["template"] for n in range(group["replicas"])}
        operator.fit(raw, {} if spec.get("suspend") else pods)

    return [Operator("rayjobs", "ray.io", job), Operator("rayclusters", "ray.io", cluster)]


def volcano() -> Operator:
    """Volcano's job controller once its scheduler has let the job in: a pod that goes is made anew."""

    def act(operator: Operator, raw: Obj) -> None:
        name, pods = raw["metadata"]["name"], {}
        for task in raw["spec"]["tasks"]:
            marks = {"volcano.sh/task-spec": task["name"], "volcano.sh/job-name": name}
            for n in range(task["replicas"]):
                metadata = {"labels": dict(marks), "annotations": dict(marks)}
                given = task["template"].get("metadata") or {}
                metadata["annotations"] |= given.get("annotations") or {}
                pods[f"{name}-{task['name']}-{n}"] = {**task["template"], "metadata": metadata}
        operator.fit(raw, pods)
        if operator.succeeded(raw, raw["spec"]["minAvailable"]):
            operator.say(raw, state={"phase": "Completed", "lastTransitionTime": "2027-01-15T09:00:00Z"})

    return Operator("jobs", "batch.volcano.sh", act)


def leader_worker() -> Operator:
    """LeaderWorkerSet: `replicas` groups of a leader and its workers."""

    def act(operator: Operator, raw: Obj) -> None:
        of, name, pods = raw["spec"]["leaderWorkerTemplate"], raw["metadata"]["name"], {}
        for group in range(raw["spec"].get("replicas", 1)):
            pods[f"{name}-{group}"] = of.get("leaderTemplate") or of["workerTemplate"]
            pods |= {f"{name}-{group}-{n}": of["workerTemplate"] for n in range(1, of["size"])}
        operator.fit(raw, pods)

    return Operator("leaderworkersets", "leaderworkerset.x-k8s.io", act)


def trainer(runtime: list[Obj]) -> Operator:
    """Kubeflow Trainer: a JobSet of the runtime's jobs with the patches of the TrainJob, suspended with it."""

    def act(operator: Operator, raw: Obj) -> None:
        jobs, annotations = copy.deepcopy(runtime), {}
        for patch in raw["spec"].get("runtimePatches") or ():
            template = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
            annotations |= (template.get("metadata") or {}).get("annotations") or {}
            for change in template["spec"]["replicatedJobs"]:
                (job,) = [one for one in jobs if one["name"] == change["name"]]
                pod, new = job["template"]["spec"]["template"], change["template"]["spec"]["template"]
                pod["metadata"] = {**(pod.get("metadata") or {}), **new["metadata"]}
                pod["spec"] |= new["spec"]
        body: Obj = {"spec": {"suspend": raw["spec"].get("suspend", False), "replicatedJobs": jobs}}
        if annotations:
            body["metadata"] = {"annotations": annotations}
        made = operator.child(raw, "JobSet", "jobset.x-k8s.io", body)
        done = [it for it in ((made or {}).get("status") or {}).get("conditions") or () if it["type"] == "Completed"]
        if done:
            operator.say(raw, conditions=[{**done[0], "type": "Complete"}])

    return Operator("trainjobs", "trainer.kubeflow.org", act)
