"""A small kube-scheduler: filters nodes, prefers the fullest, binds, and says why a pod stays pending.

Left out: preemption, pod (anti-)affinity, spread constraints, volumes and preferred affinity.
"""

from collections import Counter

from providers.sim.controllers.matching import selects, untolerated
from providers.sim.controllers.mirror import Cluster
from providers.sim.controllers.objects import (
    Key,
    Obj,
    being_deleted,
    condition_of,
    is_terminal,
    key_of,
    node_of,
    status_of,
    with_condition,
)
from providers.sim.controllers.occupancy import Occupancy, fits, requests_of, shortages
from providers.sim.controllers.scheduling import (
    UNSCHEDULABLE,
    PendingPod,
    Ranking,
    SchedulableNode,
    fullness,
    signature_of,
)
from providers.sim.store import ApiError, StoreConflict, StoreNotFound

_REPELS = frozenset({"NoSchedule", "NoExecute"})
_SIGNATURES_KEPT = 2048


class Scheduler:
    """Binds pods without a node and without gates; deterministic: priority, then arrival, then key."""

    name = "scheduler"

    def __init__(self, cluster: Cluster, *, scheduler_name: str = "default-scheduler") -> None:
        self._cluster = cluster
        self._scheduler_name = scheduler_name
        self._occupancy = Occupancy()
        self._nodes: dict[str, SchedulableNode] = {}
        self._waiting: dict[Key, PendingPod] = {}
        self._parked: dict[Key, PendingPod] = {}
        self._hopeless: dict[str, str] = {}
        self._arrivals: dict[Key, int] = {}
        self._arrived = 0
        self._selected: dict[str, list[SchedulableNode]] = {}
        self._ranking: Ranking | None = None
        self._changes = 0
        self._pods = cluster.mirror("Pod")
        cluster.mirror("Node").watch(self._on_node)
        self._pods.watch(self._on_pod)

    def step(self, now: float) -> float | None:
        """One pass over the pods that may fit by now."""
        self._cluster.sync()
        self._hopeless.clear()
        batch = sorted(self._waiting.values(), key=lambda candidate: candidate.order)
        for candidate in batch:
            if self._waiting.pop(candidate.key, None) is not None:
                self._schedule(candidate, now)
                self._cluster.sync()
        return now if self._waiting else None

    # What changes bring

    def _on_node(self, old: Obj | None, new: Obj | None) -> None:
        if new is None:
            self._nodes.pop((old or {})["metadata"]["name"], None)
            self._forget_nodes()
            return
        view = SchedulableNode.of(new)
        if self._nodes.get(view.name) != view:
            self._nodes[view.name] = view
            self._forget_nodes()
            self._retry()

    def _on_pod(self, old: Obj | None, new: Obj | None) -> None:
        self._account(old, new)
        if new is None or not self._is_mine(new):
            key = key_of(new or old or {})
            for queue in (self._waiting, self._parked):
                queue.pop(key, None)
            if new is None:
                self._arrivals.pop(key, None)
        elif old is None or old["spec"] != new["spec"]:
            self._enqueue(new)

    def _account(self, old: Obj | None, new: Obj | None) -> None:
        """Follow what is taken; what is given back may be what a parked pod waits for."""
        uid = (new or old or {})["metadata"]["uid"]
        if new is not None and node_of(new) and not is_terminal(new):
            if not self._occupancy.holds(uid):
                self._occupancy.hold(uid, node_of(new), requests_of(new))
                self._changes += 1
        elif self._occupancy.release(uid):
            self._changes += 1
            self._retry()

    def _is_mine(self, pod: Obj) -> bool:
        named = pod["spec"].get("schedulerName") or "default-scheduler"
        return named == self._scheduler_name and not (node_of(pod) or is_terminal(pod) or being_deleted(pod))

    def _enqueue(self, pod: Obj) -> None:
        key = key_of(pod)
        self._parked.pop(key, None)
        if pod["spec"].get("schedulingGates"):
            return  # the API server has said so in its condition; the change that removes the gates brings it back
        self._arrived += 1
        arrival = self._arrivals.setdefault(key, self._arrived)
        order = (-(pod["spec"].get("priority") or 0), arrival, key)
        wanted = requests_of(pod)
        self._waiting[key] = PendingPod(key, order, signature_of(pod, wanted), wanted)

    def _forget_nodes(self) -> None:
        self._selected.clear()
        self._changes += 1

    def _retry(self) -> None:
        self._waiting.update(self._parked)
        self._parked.clear()
        self._hopeless.clear()

    # One pod

    def _schedule(self, candidate: PendingPod, now: float) -> None:
        message = self._hopeless.get(candidate.signature)
        if message is None:
            node = self._choose(candidate)
            if node is not None:
                self._bind(candidate.key, node)
                return
            message = self._hopeless[candidate.signature] = self._explain(candidate)
        self._parked[candidate.key] = candidate
        self._say(candidate.key, message, now)

    def _choose(self, candidate: PendingPod) -> str | None:
        """The fullest node that still fits, the first by name among equals."""
        ranking = self._ranking
        if ranking is None or ranking.signature != candidate.signature or ranking.changes != self._changes:
            ranking = self._ranking = Ranking(candidate.signature, self._changes, self._ranked(candidate))
        while ranking.position < len(ranking.views):
            view = ranking.views[ranking.position]
            if fits(candidate.wanted, view.allocatable, self._occupancy.used(view.name)):
                return view.name
            ranking.position += 1
        return None

    def _ranked(self, candidate: PendingPod) -> list[SchedulableNode]:
        wanted, used = candidate.wanted, self._occupancy.used
        views = [v for v in self._selectable(candidate) if fits(wanted, v.allocatable, used(v.name))]
        return sorted(views, key=lambda v: (-fullness(wanted, v.allocatable, used(v.name)), v.name))

    def _selectable(self, candidate: PendingPod) -> list[SchedulableNode]:
        found = self._selected.get(candidate.signature)
        if found is None:
            spec = (self._pods.get(candidate.key) or {})["spec"]
            if len(self._selected) >= _SIGNATURES_KEPT:
                self._selected.clear()
            found = self._selected[candidate.signature] = [
                view
                for view in self._nodes.values()
                if selects(spec, view.labels, view.name) and untolerated(spec, view.taints, _REPELS) is None
            ]
        return found

    def _bind(self, key: Key, node: str) -> None:
        before = self._changes
        try:
            self._cluster.store.bind(key[1], key[0], node)
        except ApiError:
            return  # deleted, bound or gated meanwhile: the event that says so is queued
        self._cluster.sync()
        if self._ranking is not None and self._changes == before + 1:
            self._ranking.changes = self._changes  # nothing but this binding happened

    def _explain(self, candidate: PendingPod) -> str:
        if not self._nodes:
            return "no nodes available to schedule pods"
        spec = (self._pods.get(candidate.key) or {})["spec"]
        reasons: Counter[str] = Counter()
        for view in self._nodes.values():
            reasons.update(self._reasons(spec, candidate, view))
        listed = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
        return f"0/{len(self._nodes)} nodes are available: {listed}."

    def _reasons(self, spec: Obj, candidate: PendingPod, view: SchedulableNode) -> list[str]:
        """Why one node does not do, in the words and the order of the real filters; the first that refuses tells."""
        taint = untolerated(spec, view.taints, _REPELS)
        if taint is not None:
            if taint["key"] == UNSCHEDULABLE["key"]:
                return ["node(s) were unschedulable"]
            return [f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value') or ''}}}"]
        if not selects(spec, view.labels, view.name):
            return ["node(s) didn't match Pod's node affinity/selector"]
        short = shortages(candidate.wanted, view.allocatable, self._occupancy.used(view.name))
        return ["Too many pods" if name == "pods" else f"Insufficient {name}" for name in short]

    def _say(self, key: Key, message: str, now: float) -> None:
        pod = self._pods.get(key)
        if pod is None:
            return
        said = condition_of(pod, "PodScheduled") or {}
        if (said.get("status"), said.get("reason"), said.get("message")) == ("False", "Unschedulable", message):
            return
        status = status_of(pod)
        conditions = with_condition(
            status.get("conditions") or (), now, "PodScheduled", "False", "Unschedulable", message
        )
        try:
            self._pods.update_status(pod, {**status, "conditions": conditions})
        except StoreConflict:
            self._enqueue(pod)  # somebody wrote in between: say it again to what they wrote
        except StoreNotFound:
            return
