"""A small kube-scheduler: filters nodes, prefers the fullest, binds, and says why a pod stays pending.

A pod that asks for no more than a node and room on it, as most do, is placed by one look at the nodes for all its
equals; only pods with constraints on other pods, ports or volumes, or that others keep away, cost a look each.
Left out: preemption, and everything that only prefers.
"""

from collections.abc import Iterable
from dataclasses import replace

from providers.sim.controllers.dra.podclaims import ClaimsNotReady, claims_devices, claims_of
from providers.sim.controllers.dra.requests import AllocationError
from providers.sim.controllers.dra.reserving import deallocate_one, reserve_devices
from providers.sim.controllers.eventlog import EventLog
from providers.sim.controllers.filters.bound_pods import BoundPod
from providers.sim.controllers.filters.cycle import (
    SHARED,
    SchedulingDiagnosis,
    diagnosed,
    first_refusal,
    prepared,
)
from providers.sim.controllers.filters.inter_pod_affinity import is_repelled
from providers.sim.controllers.filters.state import SchedulingState, UnschedulablePodError
from providers.sim.controllers.filters.volume_rules import volume_plan
from providers.sim.controllers.filters.volumes import SELECTED_NODE, is_bound
from providers.sim.controllers.matching import selects, untolerated
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import (
    Key,
    Obj,
    annotations_of,
    being_deleted,
    is_terminal,
    key_of,
    labels_of,
    node_of,
    status_of,
    with_condition,
)
from providers.sim.controllers.occupancy import fits
from providers.sim.controllers.scheduling import (
    REPELLING,
    PendingPod,
    Ranking,
    SchedulableNode,
    dependencies_of,
    fullness,
    identity_of,
    signature_of,
)
from providers.sim.store import ApiError, StoreConflict, StoreNotFound
from providers.sim.store.podrequests import requests_of

_SIGNATURES_KEPT = 2048
_EVENTS, _EVENTS_REFILL_S = 5, 60.0
"""Every node that comes makes another message for every pod that waits: its condition has the last, events a few."""
_PODS, _CLAIMS = frozenset({"pods"}), frozenset({"claims"})


class Scheduler:
    """Binds pods without a node and without gates; deterministic: priority, then arrival, then key."""

    name = "scheduler"

    def __init__(self, cluster: MirroredCluster, *, scheduler_name: str = "default-scheduler") -> None:
        self._cluster = cluster
        self._scheduler_name = scheduler_name
        self._events = EventLog(cluster, scheduler_name, burst=_EVENTS, refill_s=_EVENTS_REFILL_S)
        self._state = SchedulingState(cluster)
        self._waiting: dict[Key, PendingPod] = {}
        self._parked: dict[Key, PendingPod] = {}
        self._dependent: dict[Key, PendingPod] = {}  # the parked ones that depend on more than nodes
        self._assumed: dict[Key, str] = {}
        self._hopeless: dict[str, str] = {}
        self._arrivals: dict[Key, int] = {}
        self._arrived = 0
        self._selected: dict[str, list[SchedulableNode]] = {}
        self._ranking: Ranking | None = None
        self._changes = 0
        self._pods = cluster.mirror("Pod")
        cluster.mirror("Node").watch(self._on_node)
        self._pods.watch(self._on_pod)
        self._state.namespaces.watch(self._on_namespace)
        volumes = self._state.volumes
        for mirror in (volumes.claims, volumes.volumes, volumes.classes, volumes.drivers):
            mirror.watch(lambda _old, _new: self._retry_what_depends_on("volumes"))
        devices = self._state.devices
        for mirror in devices.mirrors if devices is not None else ():
            mirror.watch(lambda _old, _new: self._retry_what_depends_on("claims"))
        if devices is not None:
            devices.classes.watch(self._on_class)

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

    def diagnosis(self, pod: Obj) -> SchedulingDiagnosis:
        """What every filter says of every node for a pod, as of the last sync; a gated pod is not looked at."""
        return SchedulingDiagnosis() if pod["spec"].get("schedulingGates") else diagnosed(pod, self._state)

    # What changes bring

    def _on_node(self, old: Obj | None, new: Obj | None) -> None:
        nodes = self._state.nodes
        if new is None:
            nodes.pop((old or {})["metadata"]["name"], None)
            self._forget_nodes()
            for what in ("pods", "volumes"):
                self._retry_what_depends_on(what)  # a domain may have gone, or the place that was held
            return
        view = SchedulableNode.of(new)
        if nodes.get(view.name) != view:
            nodes[view.name] = view
            self._forget_nodes()
            self._retry()

    def _on_namespace(self, old: Obj | None, new: Obj | None) -> None:
        if labels_of(old or {"metadata": {}}) != labels_of(new or {"metadata": {}}):
            self._retry_what_depends_on("pods")

    def _on_class(self, old: Obj | None, new: Obj | None) -> None:
        """A class that stands for a resource may be what pods wait for that only asked for the resource."""
        if any((it or {"spec": {}})["spec"].get("extendedResourceName") for it in (old, new)):
            for key in list(self._parked):
                pod = self._pods.get(key)
                if pod is not None:
                    self._enqueue(pod)

    def _on_pod(self, old: Obj | None, new: Obj | None) -> None:
        self._account(old, new)
        if new is None or not self._is_mine(new):
            key = key_of(new or old or {})
            self._waiting.pop(key, None)
            self._assumed.pop(key, None)
            self._unpark(key)
            if new is None:
                self._arrivals.pop(key, None)
                self._events.forget((old or {})["metadata"]["uid"])
        elif old is None or old["spec"] != new["spec"] or labels_of(old) != labels_of(new) or _claims_came(old, new):
            self._enqueue(new)

    def _account(self, old: Obj | None, new: Obj | None) -> None:
        """Follow what is taken; what is given back may be what a parked pod waits for."""
        state, uid = self._state, (new or old or {})["metadata"]["uid"]
        if new is not None and node_of(new) and not is_terminal(new):
            if not state.occupancy.holds(uid):
                self._hold(new, node_of(new))
            elif old is not None and _shows_others(old) != _shows_others(new):
                state.bound.put(uid, BoundPod.of(new, node_of(new)))
                self._retry_what_depends_on("pods")
        elif new is not None and key_of(new) in self._assumed and self._is_mine(new):
            return  # its place is held until its volumes are there
        elif state.occupancy.release(uid):
            state.bound.drop(uid)
            self._changes += 1
            self._retry()

    def _hold(self, pod: Obj, node: str) -> None:
        uid = pod["metadata"]["uid"]
        self._state.occupancy.hold(uid, node, requests_of(pod))
        self._state.bound.put(uid, BoundPod.of(pod, node))
        self._changes += 1
        self._retry_what_depends_on("company")

    def _is_mine(self, pod: Obj) -> bool:
        named = pod["spec"].get("schedulerName") or "default-scheduler"
        return named == self._scheduler_name and not (node_of(pod) or is_terminal(pod) or being_deleted(pod))

    def _enqueue(self, pod: Obj) -> None:
        key, spec = key_of(pod), pod["spec"]
        self._unpark(key)
        if spec.get("schedulingGates"):
            return  # the API server has said so in its condition; the change that removes the gates brings it back
        self._arrived += 1
        arrival = self._arrivals.setdefault(key, self._arrived)
        order = (-(spec.get("priority") or 0), arrival, key)
        wanted, depends_on = requests_of(pod), dependencies_of(spec)
        devices = self._state.devices
        extended = frozenset(devices.extended.keys() & wanted.keys()) if devices is not None else frozenset()
        depends_on = depends_on | _CLAIMS if extended else depends_on
        own = signature_of(pod, wanted)
        signature = own + identity_of(pod, depends_on)
        self._waiting[key] = PendingPod(key, order, own, signature, wanted, depends_on, extended)

    def _forget_nodes(self) -> None:
        self._selected.clear()
        self._changes += 1

    def _retry(self) -> None:
        self._waiting.update(self._parked)
        self._parked.clear()
        self._dependent.clear()
        self._hopeless.clear()

    def _retry_what_depends_on(self, what: str) -> None:
        for candidate in [parked for parked in self._dependent.values() if what in parked.depends_on]:
            self._unpark(candidate.key)
            self._waiting[candidate.key] = candidate
            self._hopeless.pop(candidate.signature, None)

    def _unpark(self, key: Key) -> None:
        self._parked.pop(key, None)
        self._dependent.pop(key, None)

    # One pod

    def _schedule(self, candidate: PendingPod, now: float) -> None:
        pod = self._pods.get(candidate.key)
        if pod is None:
            return
        if candidate.depends_on:
            if candidate.key in self._assumed:
                self._bind_when_volumes_are(candidate, pod)
                return
        elif self._state.bound.anti_affinity:
            candidate = self._with_neighbours(candidate, pod)
        if "claims" in candidate.depends_on:
            self._schedule_with_claims(candidate, pod, now)
            return
        message = self._hopeless.get(candidate.signature)
        if message is None:
            node = self._choose(candidate, pod)
            if node is not None:
                self._place(candidate, pod, node)
                return
            message = self._hopeless[candidate.signature] = self._explain(pod)
        self._park(candidate)
        self._say(pod, message, now)

    def _schedule_with_claims(self, candidate: PendingPod, pod: Obj, now: float) -> None:
        """As any other, once its claims are there; what its claims have where it cannot run, they give back."""
        devices, node = self._state.devices, None
        try:
            if devices is not None:
                claims_of(pod, devices.claims)
            node = self._choose(candidate, pod)
            message, reason = "" if node is not None else self._explain(pod), "Unschedulable"
        except ClaimsNotReady:
            self._park(candidate)  # nothing is said of a pod that is not tried (PreEnqueue)
            return
        except AllocationError as error:
            message, reason = f'running "DynamicResources" filter plugin: {error}', "SchedulerError"
        if node is None:
            self._park(candidate)
            if devices is None or not deallocate_one(devices, pod, list(self._state.nodes.values())):
                self._say(pod, message, now, reason)
        elif devices is None or reserve_devices(devices, self._pods, pod, self._state.nodes[node]):
            self._cluster.sync()
            self._place(candidate, pod, node)
        else:
            self._waiting[candidate.key] = candidate  # somebody wrote in between

    def _park(self, candidate: PendingPod) -> None:
        self._parked[candidate.key] = candidate
        if candidate.depends_on:
            self._dependent[candidate.key] = candidate

    def _with_neighbours(self, candidate: PendingPod, pod: Obj) -> PendingPod:
        """A pod without constraints of its own depends on those that want not to be with it."""
        if not is_repelled(pod, self._state):
            return candidate
        return replace(candidate, signature=candidate.own + identity_of(pod, _PODS), depends_on=_PODS)

    def _choose(self, candidate: PendingPod, pod: Obj) -> str | None:
        """The fullest node that still fits, the first by name among equals."""
        if candidate.depends_on:
            return next((view.name for view in self._ranked(candidate, self._accepting(candidate, pod))), None)
        ranking, used = self._ranking, self._state.occupancy.used
        if ranking is None or ranking.signature != candidate.signature or ranking.changes != self._changes:
            views = self._ranked(candidate, self._selectable(candidate, pod))
            ranking = self._ranking = Ranking(candidate.signature, self._changes, views)
        while ranking.position < len(ranking.views):
            view = ranking.views[ranking.position]
            if fits(candidate.wanted, view.allocatable, used(view.name)):
                return view.name
            ranking.position += 1
        return None

    def _ranked(self, candidate: PendingPod, views: Iterable[SchedulableNode]) -> list[SchedulableNode]:
        wanted, used = candidate.wanted, self._state.occupancy.used
        fitting = [v for v in views if fits(candidate.wanted_on(v.allocatable), v.allocatable, used(v.name))]
        return sorted(fitting, key=lambda v: (-fullness(wanted, v.allocatable, used(v.name)), v.name))

    def _accepting(self, candidate: PendingPod, pod: Obj) -> list[SchedulableNode]:
        """The nodes that the filters about ports, volumes and other pods let through."""
        try:
            checks = prepared(pod, self._state, SHARED)
        except UnschedulablePodError:
            return []
        return [view for view in self._selectable(candidate, pod) if first_refusal(checks, view) is None]

    def _selectable(self, candidate: PendingPod, pod: Obj) -> list[SchedulableNode]:
        found = self._selected.get(candidate.own)
        if found is None:
            spec = pod["spec"]
            if len(self._selected) >= _SIGNATURES_KEPT:
                self._selected.clear()
            found = self._selected[candidate.own] = [
                view
                for view in self._state.nodes.values()
                if selects(spec, view.labels, view.name) and untolerated(spec, view.taints, REPELLING) is None
            ]
        return found

    def _place(self, candidate: PendingPod, pod: Obj, node: str) -> None:
        """Bind, or hold the place until the volumes that the pod needs there are."""
        if "volumes" in candidate.depends_on and not self._have_volumes(pod, node):
            self._assumed[candidate.key] = node
            self._hold(pod, node)
            self._park(candidate)
        else:
            self._bind(candidate, node)

    def _bind(self, candidate: PendingPod, node: str) -> None:
        (namespace, name), before, ranking = candidate.key, self._changes, self._ranking
        try:
            self._cluster.store.bind(name, namespace, node)
        except ApiError:
            return  # deleted, bound or gated meanwhile: the event that says so is queued
        self._cluster.sync()
        mine = ranking is not None and (ranking.signature, ranking.changes) == (candidate.signature, before)
        if ranking is not None and mine and self._changes == before + 1:
            ranking.changes = self._changes  # nothing but this binding happened

    # Volumes

    def _have_volumes(self, pod: Obj, node: str) -> bool:
        """Whether every claim is bound; what is not yet gets its volume reserved, or is marked to be made there."""
        objects = self._state.volumes
        claims = objects.claims_of(pod)
        plan = volume_plan(claims, self._state.nodes[node], objects)
        try:
            for claim, volume in plan.reserved if plan else ():
                objects.volumes.update({**volume, "spec": {**volume["spec"], "claimRef": _reference(claim)}})
            for claim in plan.provisioned if plan else ():
                objects.claims.update_metadata(claim, annotations={**annotations_of(claim), SELECTED_NODE: node})
        except (StoreConflict, StoreNotFound):
            pass  # somebody wrote in between: what they wrote brings the pod back
        return all(is_bound(claim) for claim in claims)

    def _bind_when_volumes_are(self, candidate: PendingPod, pod: Obj) -> None:
        node = self._assumed[candidate.key]
        if node not in self._state.nodes:
            del self._assumed[candidate.key]
            self._account(pod, pod)
            self._waiting[candidate.key] = candidate
        elif self._have_volumes(pod, node):
            self._bind(candidate, node)
        else:
            self._park(candidate)

    # Words

    def _explain(self, pod: Obj) -> str:
        preempts = pod["spec"].get("preemptionPolicy") != "Never"
        return self.diagnosis(pod).message(preempts=preempts, claims=claims_devices(pod))

    def _say(self, pod: Obj, message: str, now: float, reason: str = "Unschedulable") -> None:
        self._events.warning(pod, "FailedScheduling", message, now)
        status = status_of(pod)
        if _says(status, message, reason):
            return
        conditions = with_condition(status.get("conditions") or (), now, "PodScheduled", "False", reason, message)
        try:
            self._pods.update_status(pod, {**status, "conditions": conditions})
        except StoreConflict:
            self._enqueue(pod)  # somebody wrote in between: say it again to what they wrote
        except StoreNotFound:
            return


def _says(status: Obj, message: str, reason: str) -> bool:
    """Whether the status says already why the pod is not scheduled."""
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled":
            said = (condition["status"], condition.get("reason"), condition.get("message"))
            return said == ("False", reason, message)
    return False


def _claims_came(old: Obj, new: Obj) -> bool:
    """Whether claims were made for a pod."""
    if not claims_devices(new):
        return False
    fields = ("resourceClaimStatuses", "extendedResourceClaimStatus")
    return any(status_of(old).get(it) != status_of(new).get(it) for it in fields)


def _shows_others(pod: Obj) -> tuple[dict[str, str], bool]:
    """What constraints of other pods see of a pod that stands."""
    return labels_of(pod), being_deleted(pod)


def _reference(claim: Obj) -> Obj:
    namespace, name = key_of(claim)
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace,
        "name": name,
        "uid": claim["metadata"]["uid"],
    }
