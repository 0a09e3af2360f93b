"""Laws of jobs: nothing is stopped for good by the agent's own wish, and no failure is charged that is not theirs."""

from collections import defaultdict

from agent.simulation.laws.facts import Facts, Key, Law, is_over, runs
from agent.simulation.operations import name_of
from providers.sim.controllers.kubelet import EXIT_CODE, FAIL
from providers.sim.store import StoreEvent

VOLUNTARY = frozenset({"Drifted", "Underutilized", "RebalanceRecommended", "PreferredCapacity", "Empty"})
"""Reasons of evictions that are the agent's own wish; an expired machine goes whatever becomes of its work."""
BACK_WITHIN_S = 1800.0
BLAME_S = 1800.0


class StopsNothingForGood(Law):
    """What is moved by the agent's own wish runs again within half an hour."""

    name = "stops nothing for good"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._stopped: dict[Key, tuple[float, str, int]] = {}
        """Gang -> when it was stopped (lived), why, and by how many revisions since the beginning."""

    def changed(self, event: StoreEvent) -> None:
        """Look at what the Workloads say of evictions."""
        if event.resource.kind != "Workload":
            return
        meta = event.object["metadata"]
        key = (meta["namespace"], meta["name"])
        status = event.object.get("status") or {}
        before = ((event.previous or {}).get("status") or {}).get("eviction")
        eviction = status.get("eviction")
        if event.type == "DELETED":
            self._stopped.pop(key, None)
        elif eviction is not None and eviction != before:
            self._stopped.pop(key, None)
            if eviction["reason"] in VOLUNTARY:
                self._stopped[key] = (self._facts.lived_s, eviction["reason"], len(self._facts.sim.commits.pushed))

    def looked(self) -> None:
        """Whether they are back."""
        for key, (since_s, reason, pushes) in list(self._stopped.items()):
            job, lasted_s = self._facts.job_of(key), self._facts.lived_s - since_s
            again = lasted_s > 60.0 and any(runs(pod) for pod in self._facts.pods_of.get(key, {}).values())
            changed = len(self._facts.sim.commits.pushed) > pushes
            if job is None or is_over(job) or changed or again or self._facts.blamed((name_of(job),), BACK_WITHIN_S):
                del self._stopped[key]
            elif lasted_s > BACK_WITHIN_S:
                self._facts.broken(self.name, "/".join(key), f"was stopped ({reason}) and does not run again")


class NoFailureCharged(Law):
    """A job fails only by its own pods, or by what happened to it or its nodes from outside."""

    name = "no failure charged"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._nodes: dict[str, set[str]] = defaultdict(set)
        """Job -> nodes its pods have been on."""

    def changed(self, event: StoreEvent) -> None:
        """Remember the nodes of pods, and look at jobs that fail."""
        obj = event.object
        if event.resource.kind == "Pod":
            job = (obj["metadata"].get("labels") or {}).get("job-name", "")
            node = obj["spec"].get("nodeName")
            if job and node:
                self._nodes[job].add(node)
        if event.resource.kind != "Job" or event.type == "DELETED" or not _failed(obj) or _failed(event.previous or {}):
            return
        name = obj["metadata"]["name"]
        owners = [owner["name"] for owner in obj["metadata"].get("ownerReferences") or ()]
        script = (obj["spec"]["template"].get("metadata") or {}).get("annotations") or {}
        if FAIL in script or EXIT_CODE in script or self._taken(name):
            return
        if not self._facts.blamed((name, *owners, *self._nodes[name]), BLAME_S):
            self._facts.broken(self.name, name, f"failed, and nothing happened to it: {_why(obj)}")

    def _taken(self, job: str) -> bool:
        """Whether the cloud took a machine of it."""
        nodes = self._facts.tables["Node"]
        lost = {entry.instance_id for entry in self._facts.sim.cloud.ledger() if entry.reason.startswith("Server.")}
        found = (nodes.get(("", name), {"spec": {}})["spec"].get("providerID", "") for name in self._nodes[job])
        return any(provider.rpartition("/")[2] in lost for provider in found)


def _failed(job: dict[str, object]) -> bool:
    status = job.get("status")
    conditions = status.get("conditions") or () if isinstance(status, dict) else ()
    return any(it["type"] == "Failed" and it["status"] == "True" for it in conditions)


def _why(job: dict[str, object]) -> str:
    status = job.get("status")
    conditions = status.get("conditions") or () if isinstance(status, dict) else ()
    return "; ".join(str(it.get("message", "")) for it in conditions if it["type"] == "Failed")
