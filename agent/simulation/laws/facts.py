"""What laws are judged by: objects of the cluster, machines of the cloud, declarations in force and writes."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agent.simulation.drawing import loaded
from agent.simulation.world import Simulation
from agent.simulation.writes import AgentWrite
from fleet.snapshot import Instance
from model import labels
from model.fleet import Fleet
from model.kinds import NodePool
from providers.kube.objects.names import WORKLOAD
from providers.sim.store import StoreEvent

Obj = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name."""
RECENT_S = 900.0
"""A declaration may still be acted on so long after another took its place: what was decided by it is under way."""


class Violation(NamedTuple):
    """A law that did not hold, when (seconds from the beginning), and of what."""

    law: str
    at_s: float
    words: str


class Law:
    """One law. The checker tells it of every change, every write of an agent, and looks at it now and then."""

    name: str

    def changed(self, event: StoreEvent) -> None:
        """A change of the cluster; the facts know it already."""

    def acted(self, write: AgentWrite) -> None:
        """A write of an agent, done or refused."""

    def looked(self) -> None:
        """Some seconds have passed."""

    def rested(self) -> None:
        """Nothing has happened from outside for an hour."""

    def ended(self) -> None:
        """It is over, after ten more turns."""


class Facts:
    """The world as it is, kept up with change by change; `lived_s` counts time in which the agent could act."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.began_s = sim.now_s
        self.lived_s = 0.0
        """Seconds in which an agent was alive and nothing kept it from working."""
        self.pods: dict[str, Obj] = {}
        self.pods_of: dict[Key, dict[str, Obj]] = defaultdict(dict)
        """Namespace and workload -> its pods by uid."""
        self.pods_on: dict[str, dict[str, Obj]] = defaultdict(dict)
        """Node -> the pods bound to it, by uid, until they end."""
        self.tables: dict[str, dict[Key, Obj]] = defaultdict(dict)
        """Kind -> its objects."""
        self.in_force: list[tuple[float, Fleet]] = []
        """Since when which declarations are in force, as the FleetSync says."""
        self.blame: dict[str, list[tuple[float, str]]] = defaultdict(list)
        """Name of a node, job, claim or machine -> what happened to it from outside, and when."""
        self.resting_since_s: float | None = None
        self.violations: list[Violation] = []
        self._told: set[tuple[str, str]] = set()
        self._applied = ""
        self._fleets: dict[str, Fleet | None] = {}

    # -- time and blame -----------------------------------------------------------------------------------------------

    @property
    def at_s(self) -> float:
        """Seconds from the beginning."""
        return self.sim.now_s - self.began_s

    def broken(self, law: str, subject: str, words: str) -> None:
        """A law does not hold for a subject; told once."""
        if (law, subject) not in self._told:
            self._told.add((law, subject))
            self.violations.append(Violation(law, round(self.at_s, 1), f"{subject}: {words}"))

    def happened(self, kind: str, subjects: Iterable[str]) -> None:
        """Somebody did something to these, or they broke."""
        for subject in subjects:
            self.blame[subject].append((self.sim.now_s, kind))

    def blamed(self, subjects: Iterable[str], within_s: float) -> bool:
        """Whether something from outside happened to one of these of late."""
        since_s = self.sim.now_s - within_s
        return any(at_s >= since_s for subject in subjects for at_s, _ in self.blame.get(subject, ()))

    def rest(self) -> None:
        """From here on nothing happens from outside."""
        self.resting_since_s = self.lived_s

    # -- keeping up ---------------------------------------------------------------------------------------------------

    def changed(self, event: StoreEvent) -> None:
        """Take in a change."""
        kind, obj = event.resource.kind, event.object
        meta = obj["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        if kind == "Pod":
            self._pod(event)
        elif kind in _KEPT:
            if event.type == "DELETED":
                self.tables[kind].pop(key, None)
            else:
                self.tables[kind][key] = obj
        if kind == "FleetSync":
            self._synced(str((obj.get("status") or {}).get("appliedRevision", "")))

    def _pod(self, event: StoreEvent) -> None:
        pod = event.object
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        workload = (pod["metadata"].get("labels") or {}).get(WORKLOAD, "")
        gone = event.type == "DELETED"
        for place, held in ((self.pods, True), (self.pods_of[pod["metadata"]["namespace"], workload], bool(workload))):
            if held and not gone:
                place[uid] = pod
            else:
                place.pop(uid, None)
        if node and not gone and not ended(pod):
            self.pods_on[node][uid] = pod
        elif node:
            self.pods_on[node].pop(uid, None)
        if gone and not self.pods_of.get((pod["metadata"]["namespace"], workload), True):
            del self.pods_of[pod["metadata"]["namespace"], workload]
        if gone and not self.pods_on.get(node, True):
            del self.pods_on[node]

    def _synced(self, applied: str) -> None:
        if applied and applied != self._applied:
            self._applied = applied
            fleet = self._loaded(applied)
            if fleet is not None:
                self.in_force.append((self.sim.now_s, fleet))

    # -- looking ------------------------------------------------------------------------------------------------------

    @property
    def fleet(self) -> Fleet | None:
        """The declarations in force now."""
        return self.in_force[-1][1] if self.in_force else None

    def recent_fleets(self, within_s: float = RECENT_S) -> list[Fleet]:
        """The declarations that were in force at some moment of late."""
        ends = [since for since, _ in self.in_force[1:]] + [float("inf")]
        recent = [
            fleet for (_, fleet), end_s in zip(self.in_force, ends, strict=True) if end_s >= self.sim.now_s - within_s
        ]
        coming = self._loaded(self.sim.commits.pushed[-1].revision)  # acted on before the FleetSync says so
        return recent if coming is None or any(coming is it for it in recent) else [*recent, coming]

    def _loaded(self, revision: str) -> Fleet | None:
        """The declarations of a revision; None where it is none, or invalid."""
        if revision not in self._fleets:
            pushed = next((it for it in self.sim.commits.pushed if it.revision == revision), None)
            self._fleets[revision] = loaded(pushed.files["fleet.yaml"].decode()) if pushed else None
        return self._fleets[revision]

    def recent_pools(self, name: str, within_s: float = RECENT_S) -> list[NodePool]:
        """A pool as it was declared of late."""
        return [fleet.node_pools[name] for fleet in self.recent_fleets(within_s) if name in fleet.node_pools]

    def machines(self) -> list[Instance]:
        """The cluster's machines that bill now."""
        return [machine for machine in self.sim.machines() if labels.CLUSTER in machine.tags]

    def nodes_by_machine(self) -> Mapping[str, Obj]:
        """Instance id -> its node."""
        nodes = self.tables["Node"].values()
        return {str(node["spec"].get("providerID", "")).rpartition("/")[2]: node for node in nodes}

    def job_of(self, key: Key) -> Obj | None:
        """The Job or JobSet behind a workload."""
        workload = self.tables["Workload"].get(key)
        owner = ((workload or {}).get("spec") or {}).get("job") or {}
        found = self.tables.get(str(owner.get("kind", "")), {}).get((key[0], str(owner.get("name", ""))))
        return found if found is not None and found["metadata"]["uid"] == owner.get("uid") else None

    def waiting(self) -> bool:
        """Whether some gang does not run though its job is not over."""
        keys = [key for key in self.tables["Workload"] if not self.up(key)]
        jobs = [job for key in keys if (job := self.job_of(key)) is not None]
        return any(not is_over(job) for job in jobs)

    def up(self, key: Key) -> list[Obj]:
        """The pods of a workload that are bound and neither over nor leaving."""
        return [pod for pod in self.pods_of.get(key, {}).values() if runs(pod)]


_KEPT = frozenset({"Node", "NodeClaim", "Workload", "Job", "JobSet", "ConfigMap"})


def is_over(job: Obj) -> bool:
    """Whether a Job or JobSet has ended, or is about to."""
    over = {"Complete", "Failed", "Completed", "FailureTarget", "SuccessCriteriaMet"}
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(it["type"] in over and it["status"] == "True" for it in conditions)


def ended(pod: Obj) -> bool:
    """Whether a pod's containers have ended for good."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def runs(pod: Obj) -> bool:
    """Whether a pod has a node, and neither ended nor leaves."""
    return bool(pod["spec"].get("nodeName")) and not ended(pod) and not pod["metadata"].get("deletionTimestamp")


def is_ready(obj: Obj) -> bool:
    """Whether the condition `Ready` is true."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(it["type"] == "Ready" and it["status"] == "True" for it in conditions)


class Durations:
    """How long something has been so, in the seconds an agent lived; told anew each time it is looked at."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._since: dict[str, float] = {}

    def keep(self, subjects: Mapping[str, object] | set[str]) -> None:
        """Forget whatever is not so any more."""
        self._since = {subject: since for subject, since in self._since.items() if subject in subjects}

    def of(self, subject: str) -> float:
        """Seconds since it was first so."""
        return self._facts.lived_s - self._since.setdefault(subject, self._facts.lived_s)
