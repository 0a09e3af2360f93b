"""Laws of gangs: whole, on nodes that accept them, and with room there."""

from collections import Counter

from agent.simulation.laws.facts import Durations, Facts, Key, Law, Obj, ended, is_over, runs
from providers.sim.controllers.matching import selects, untolerated
from providers.sim.controllers.occupancy import allocatable_of
from providers.sim.controllers.scheduling import REPELLING
from providers.sim.store import StoreEvent
from providers.sim.store.podrequests import requests_of

LONGEST_PARTIAL_S = 420.0
"""A gang that lost a pod has five minutes to become whole again, or leaves; and a pod its grace."""
LONGEST_UNBOUND_S = 120.0
_REJECTIONS = ("OutOf", "NodeAffinity", "UnexpectedAdmissionError", "TopologyAffinityError")


class GangWhole(Law):
    """A gang has all of its pods on nodes or none: a part of them is borne only while it starts, heals or leaves."""

    name = "gang whole"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._partial = Durations(facts)

    def looked(self) -> None:
        """Time those that are in part."""
        facts = self._facts
        partial = {}
        for key, pods in facts.pods_of.items():
            up = sum(map(runs, pods.values()))
            if 0 < up < wanted(facts, key, pods):
                partial["/".join(key)] = up
        self._partial.keep(partial)
        for name, up in partial.items():
            lasted_s = self._partial.of(name)
            if lasted_s > LONGEST_PARTIAL_S:
                facts.broken(self.name, name, f"only {up} of its pods run, for {lasted_s:.0f} s")


def wanted(facts: Facts, key: Key, pods: dict[str, Obj]) -> int:
    """How many pods should be active at once by the job's own word; 0 where it is over, leaves or is not known."""
    job = facts.job_of(key)
    if job is None or job["metadata"].get("deletionTimestamp") or is_over(job):
        return 0
    done = sum((pod.get("status") or {}).get("phase") == "Succeeded" for pod in pods.values())
    if job["kind"] == "Job":
        return _parallel(job["spec"], max(done, int((job.get("status") or {}).get("succeeded") or 0)))
    whole: int = -done
    for part in job["spec"]["replicatedJobs"]:
        whole += int(part.get("replicas") or 1) * _parallel(part["template"]["spec"], 0)
    return whole


def _parallel(spec: Obj, done: int) -> int:
    parallelism = int(spec.get("parallelism", 1))
    return min(parallelism, int(spec.get("completions") or parallelism) - done)


class PodSeats(Law):
    """Every pod runs on a node that accepts it, and no node holds more than it can."""

    name = "pod seats"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._unbound = Durations(facts)

    def changed(self, event: StoreEvent) -> None:
        """Look at each pod when it is bound, and when a kubelet refuses it."""
        if event.resource.kind != "Pod" or event.type == "DELETED":
            return
        pod = event.object
        name, reason = pod["metadata"]["name"], str((pod.get("status") or {}).get("reason", ""))
        if reason.startswith(_REJECTIONS):
            self._facts.broken(self.name, name, f"its kubelet refused it: {reason}")
        node = pod["spec"].get("nodeName")
        if node and not ((event.previous or {}).get("spec") or {}).get("nodeName"):
            self._bound(pod, node)

    def _bound(self, pod: Obj, name: str) -> None:
        node = self._facts.tables["Node"].get(("", name))
        if node is None:
            self._facts.broken(self.name, pod["metadata"]["name"], f"is bound to {name}, which is not there")
            return
        if not selects(pod["spec"], node["metadata"].get("labels") or {}, name):
            self._facts.broken(self.name, pod["metadata"]["name"], f"does not want {name}")
        if taint := untolerated(pod["spec"], node["spec"].get("taints") or (), REPELLING):
            self._facts.broken(self.name, pod["metadata"]["name"], f"is kept off {name} by {taint}")
        used, free = Counter[str](), allocatable_of(node)
        for other in self._facts.pods_on[name].values():
            used.update(requests_of(other))
        over = {resource: (n, free.get(resource, 0)) for resource, n in used.items() if n > free.get(resource, 0)}
        if over:
            self._facts.broken(self.name, name, f"holds more than it can: {over}")

    def looked(self) -> None:
        """A pod that was let go must find its place."""
        waiting = {}
        for uid, pod in self._facts.pods.items():
            spec = pod["spec"]
            if not (spec.get("nodeName") or spec.get("schedulingGates") or pod["metadata"].get("deletionTimestamp")):
                waiting[uid] = pod
        self._unbound.keep(waiting)
        for uid, pod in waiting.items():
            host = (pod["spec"].get("nodeSelector") or {}).get("kubernetes.io/hostname", "")
            if not ended(pod) and self._unbound.of(uid) > LONGEST_UNBOUND_S:
                self._facts.broken(self.name, pod["metadata"]["name"], f"was let go, and {host} does not take it")
