"""Which node gets a pod of a DaemonSet, which pods go, and what an update replaces, as values.

Source: `pkg/controller/daemon/daemon_controller.go`, `update.go`, `util/daemonset_util.go`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from providers.sim.controllers.apps.base import is_available, pod_from, share_of
from providers.sim.controllers.apps.revisions import REVISION_HASH
from providers.sim.controllers.matching import selects, untolerated
from providers.sim.controllers.objects import Obj, being_deleted, is_terminal, is_true, labels_of, node_of, status_of

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
_EXPELLING: Final = frozenset({"NoExecute"})
_TOLERATED: Final = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
"""The taints `node.kubernetes.io/...` that keep no pod of a DaemonSet away."""


@dataclass(frozen=True, slots=True)
class DaemonWork:
    """The spec of a DaemonSet with its defaults filled in."""

    spec: Obj
    """The spec of its pods, with the tolerations that all daemons have."""
    rolls: bool
    max_surge: int | str
    max_unavailable: int | str
    min_ready_s: float

    @classmethod
    def of(cls, daemon_set: Obj) -> "DaemonWork":
        """Read a DaemonSet."""
        spec = daemon_set["spec"]
        strategy = spec.get("updateStrategy") or {}
        rolling = strategy.get("rollingUpdate") or {}
        pods = spec["template"]["spec"]
        return cls(
            spec={**pods, "tolerations": _with_tolerations(pods)},
            rolls=(strategy.get("type") or "RollingUpdate") == "RollingUpdate",
            max_surge=rolling.get("maxSurge") or 0,
            max_unavailable=rolling.get("maxUnavailable", 1),
            min_ready_s=float(spec.get("minReadySeconds") or 0),
        )

    @property
    def surges(self) -> bool:
        """Whether a new pod comes before the old one goes."""
        return self.rolls and self.max_surge not in (0, "0%")

    def bounds(self, nodes: int) -> tuple[int, int]:
        """How many nodes of so many may have a pod too many, and how many one that is not available."""
        surge = share_of(self.max_surge, nodes, 0, up=True)
        unavailable = share_of(self.max_unavailable, nodes, 1, up=True)
        return surge, unavailable if surge or unavailable else 1

    def suits(self, node: Obj) -> tuple[bool, bool]:
        """Whether a pod should run on a node, and whether one that does may go on."""
        name, spec = node["metadata"]["name"], self.spec
        if spec.get("nodeName") not in (None, "", name) or not selects(spec, labels_of(node), name):
            return False, False
        taints = node["spec"].get("taints") or ()
        if untolerated(spec, taints, _REPELLING) is None:
            return True, True
        return False, untolerated(spec, taints, _EXPELLING) is None

    def new_pod(self, daemon_set: Obj, node: str, revision_hash: str) -> Obj:
        """A pod for one node; kube-scheduler binds it."""
        pod = pod_from(daemon_set, daemon_set["spec"]["template"], labels={REVISION_HASH: revision_hash})
        affinity = self.spec.get("affinity") or {}
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        chosen = {**(affinity.get("nodeAffinity") or {}), _REQUIRED: {"nodeSelectorTerms": [term]}}
        return {**pod, "spec": {**self.spec, "affinity": {**affinity, "nodeAffinity": chosen}}}


def _with_tolerations(spec: Obj) -> list[Obj]:
    taints = [*_TOLERATED, *([("network-unavailable", "NoSchedule")] if spec.get("hostNetwork") else [])]
    added = [{"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect} for key, effect in taints]
    kept = [one for one in spec.get("tolerations") or () if one not in added]
    return [*kept, *added]


def target_of(pod: Obj) -> str:
    """The node that a pod of a DaemonSet is on, or is for."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()
    named = (
        each["values"][0]
        for term in terms
        for each in term.get("matchFields") or ()
        if each["key"] == "metadata.name" and each["operator"] == "In" and len(each["values"]) == 1
    )
    return node_of(pod) or next(named, "")


@dataclass(slots=True)
class DaemonPass:
    """What one look at the nodes finds: pods that go, and nodes that get one."""

    work: DaemonWork
    hash: str
    now: float
    deletes: list[Obj] = field(default_factory=list)
    ended: list[Obj] = field(default_factory=list)
    """Pods that ended by themselves; they go once their back-off is over."""
    creates: list[str] = field(default_factory=list)

    def look(self, node: str, suits: tuple[bool, bool], pods: Sequence[Obj]) -> None:
        """Judge one node and the pods on it, or for it."""
        should_run, may_stay = suits
        if should_run and not pods:
            self.creates.append(node)
        elif may_stay:
            living = [pod for pod in pods if not being_deleted(pod)]
            self.ended += [pod for pod in living if is_terminal(pod)]
            self._choose(node, [pod for pod in living if not is_terminal(pod)], should_run=should_run)
        else:
            self.deletes += [pod for pod in pods if not being_deleted(pod)]

    def _choose(self, node: str, running: list[Obj], *, should_run: bool) -> None:
        """Of several the oldest stays; in an update with surge the oldest of the new and of the old ones."""
        oldest_first = sorted(running, key=seniority)
        if not self.work.surges:
            self.deletes += oldest_first[1:]
            return
        if not running and should_run:
            self.creates.append(node)
        new = [pod for pod in oldest_first if self.is_new(pod)]
        old = [pod for pod in oldest_first if not self.is_new(pod)]
        self.deletes += [*new[1:], *old[1:]]
        if new and old and (not is_true(old[0], "Ready") or self.is_available(new[0])):
            self.deletes.append(old[0])

    def is_new(self, pod: Obj) -> bool:
        """Whether it is of the template of now."""
        return labels_of(pod).get(REVISION_HASH) == self.hash

    def is_available(self, pod: Obj) -> bool:
        """Whether it has been ready for long enough."""
        return is_available(pod, self.work.min_ready_s, self.now)

    def roll(self, by_node: Mapping[str, Sequence[Obj]], nodes: int) -> None:
        """Replace pods of former templates within the bounds; `nodes`: how many should have a pod."""
        surge, unavailable = self.work.bounds(nodes)
        told = [(node, *found) for node, pods in by_node.items() if (found := self._one_each(pods)) is not None]
        unclear = len(by_node) - len(told)
        if surge:
            self._roll_with_surge(told, surge - unclear)
        else:
            self._roll_in_place([(new, old) for _, new, old in told], unavailable - unclear)

    def _one_each(self, pods: Iterable[Obj]) -> tuple[Obj | None, Obj | None] | None:
        """The new and the old pod of a node; None where there are several of either."""
        staying = [pod for pod in pods if not being_deleted(pod)]
        new, old = [p for p in staying if self.is_new(p)], [p for p in staying if not self.is_new(p)]
        if len(new) > 1 or len(old) > 1:
            return None
        return (new[0] if new else None), (old[0] if old else None)

    def _roll_in_place(self, told: list[tuple[Obj | None, Obj | None]], room: int) -> None:
        candidates = []
        for new, old in told:
            if new is None and old is not None:
                if self.is_available(old):
                    candidates.append(old)
                    continue
                self.deletes.append(old)  # it serves nobody: its replacement costs nothing
            elif new is not None and old is None and self.is_available(new):
                continue
            room -= 1
        self.deletes += candidates[: max(0, room)]

    def _roll_with_surge(self, told: list[tuple[str, Obj | None, Obj | None]], room: int) -> None:
        candidates = []
        for node, new, old in told:
            if old is None:
                continue
            if new is None:
                if self.is_available(old):
                    candidates.append(node)
                else:
                    self.creates.append(node)
            elif self.is_available(new):
                self.deletes.append(old)
            else:
                room -= 1
        self.creates += candidates[: max(0, room)]


def seniority(pod: Obj) -> tuple[bool, str, str]:
    """Pods on a node before those that are not, then by age."""
    meta = pod["metadata"]
    return not node_of(pod), meta["creationTimestamp"], meta["name"]


def counts_of(found: DaemonPass, nodes: Iterable[tuple[tuple[bool, bool], Sequence[Obj]]]) -> dict[str, int]:
    """The numbers of the status, from what is said of each node and the pods there."""
    counts = dict.fromkeys(
        (
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
        ),
        0,
    )
    for (should_run, _), pods in nodes:
        if not should_run:
            counts["numberMisscheduled"] += bool(pods)
            continue
        counts["desiredNumberScheduled"] += 1
        if pods:
            first = min(pods, key=seniority)
            counts["currentNumberScheduled"] += 1
            counts["numberReady"] += is_true(first, "Ready")
            counts["numberAvailable"] += found.is_available(first)
            counts["updatedNumberScheduled"] += found.is_new(first)
    counts["numberUnavailable"] = counts["desiredNumberScheduled"] - counts["numberAvailable"]
    return counts


def phase_of(pod: Obj) -> str:
    """The phase of a pod."""
    return str(status_of(pod).get("phase") or "Pending")
