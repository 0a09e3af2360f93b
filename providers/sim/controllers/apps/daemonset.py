"""The DaemonSet controller (kube-controller-manager `daemon/daemon_controller.go`)."""

from collections import defaultdict
from collections.abc import Iterable

from providers.sim.controllers.apps.base import AppsController, available_at
from providers.sim.controllers.apps.daemonpods import DaemonPass, DaemonWork, counts_of, phase_of, target_of
from providers.sim.controllers.apps.revisions import REVISION_HASH, current_revision, hash_of, truncate
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import Key, Obj, being_deleted, key_of, labels_of, status_of
from providers.sim.store import ApiError, StoreConflict, StoreNotFound

_BURST = 250
_BACKOFF_S, _BACKOFF_CAP_S = 1.0, 900.0
_ALWAYS = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
"""The numbers that are told even when they are nothing."""


class DaemonSetController(AppsController):
    """Keeps one pod of each DaemonSet on every node that suits it."""

    name = "daemonset"
    kind = "DaemonSet"
    component = "daemonset-controller"

    def __init__(self, cluster: MirroredCluster) -> None:
        self._revisions = cluster.mirror("ControllerRevision", "apps")
        self._nodes = cluster.mirror("Node")
        self._failures: dict[tuple[str, str], tuple[int, float]] = {}
        """(uid of the set, node) -> how often its pod failed there, and when the last failure may be followed up."""
        super().__init__(cluster)

    def _wake_up(self) -> None:
        super()._wake_up()
        self._own(self._revisions)
        self._nodes.watch(self._on_node)

    def _on_node(self, old: Obj | None, new: Obj | None) -> None:
        if old is None or new is None or _matters(old) != _matters(new):
            for daemon_set in self._objects:
                self._queue.add(key_of(daemon_set))

    def _on_object(self, old: Obj | None, new: Obj | None) -> None:
        super()._on_object(old, new)
        if new is None and old is not None:
            uid = old["metadata"]["uid"]
            self._failures = {known: told for known, told in self._failures.items() if known[0] != uid}

    def reconcile(self, key: Key, now: float) -> float | None:
        """Put pods of one DaemonSet where they are missing, take away those too many, and count them."""
        daemon_set = self._objects.get(key)
        if daemon_set is None:
            return None
        pods, held = self._claimed(daemon_set, self._pods), self._history(daemon_set)
        if being_deleted(daemon_set):
            return None
        revision = current_revision(daemon_set, held, self._revisions, pods_carry_it=True)
        found = DaemonPass(DaemonWork.of(daemon_set), hash_of(revision), now)
        wake, refused = self._try(daemon_set, found, pods)
        self._cluster.sync()
        pods = self._claimed(daemon_set, self._pods)
        self._say(daemon_set, found, pods)
        live = {one["metadata"]["name"] for one in held if hash_of(one) in {*map(_hash, pods), found.hash}}
        truncate(daemon_set, self._history(daemon_set), {*live, revision["metadata"]["name"]}, self._revisions)
        if refused is not None:
            raise refused
        ready_at = available_at(pods, found.work.min_ready_s, now)
        return min((at for at in (wake, ready_at) if at is not None), default=None)

    def _history(self, daemon_set: Obj) -> list[Obj]:
        return sorted(self._claimed(daemon_set, self._revisions), key=lambda one: int(one["revision"]))

    # Pods

    def _try(self, daemon_set: Obj, found: DaemonPass, pods: list[Obj]) -> tuple[float | None, ApiError | None]:
        """When to look at failed pods again, and what the API server refused, if anything."""
        try:
            return self._act(daemon_set, found, pods), None
        except (StoreConflict, StoreNotFound):
            raise  # somebody wrote in between
        except ApiError as error:
            self._events.warning(daemon_set, "FailedCreate", f"Error creating: {error.message}", found.now)
            return None, error

    def _act(self, daemon_set: Obj, found: DaemonPass, pods: list[Obj]) -> float | None:
        by_node = _by_node(pods)
        suits = {node["metadata"]["name"]: found.work.suits(node) for node in self._nodes}
        for node, suit in suits.items():
            found.look(node, suit, by_node.get(node, ()))
        elsewhere = [pod for node, held in by_node.items() if node not in suits for pod in held]
        found.deletes += [pod for pod in elsewhere if not _is_on_its_way(pod)]
        wake = self._after_failures(daemon_set, found)
        if found.work.rolls and not found.deletes and not found.creates:
            due = {node: held for node, held in by_node.items() if suits.get(node, (False, False))[0]}
            found.roll(due, sum(should_run for should_run, _ in suits.values()))
        for pod in found.deletes[:_BURST]:
            self._pods.delete(pod)
            self._events.normal(daemon_set, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}", found.now)
        for node in found.creates[:_BURST]:
            pod = self._pods.create(found.work.new_pod(daemon_set, node, found.hash))
            self._events.normal(daemon_set, "SuccessfulCreate", f"Created pod: {pod['metadata']['name']}", found.now)
        return wake

    def _after_failures(self, daemon_set: Obj, found: DaemonPass) -> float | None:
        """Let the pods go whose back-off is over; the earliest instant at which another's is."""
        later = []
        for pod in found.ended:
            node, phase = target_of(pod), phase_of(pod)
            known = daemon_set["metadata"]["uid"], node
            failures, until = self._failures.get(known, (0, found.now))
            if found.now < until:
                later.append(until)
                continue
            wait_s = min(_BACKOFF_CAP_S, _BACKOFF_S * 2.0 ** min(failures, 10))
            self._failures[known] = failures + 1, found.now + wait_s
            doing = "kill" if phase == "Failed" else "delete"
            text = f"Found {phase.lower()} daemon pod {'/'.join(key_of(pod))} on node {node}, will try to {doing} it"
            self._events.warning(daemon_set, f"{phase}DaemonPod", text, found.now)
            found.deletes.append(pod)
        return min(later, default=None)

    # Status

    def _say(self, daemon_set: Obj, found: DaemonPass, pods: list[Obj]) -> None:
        by_node = _by_node(pods)
        told = [(found.work.suits(node), by_node.get(node["metadata"]["name"], ())) for node in self._nodes]
        counts = {name: count for name, count in counts_of(found, told).items() if count or name in _ALWAYS}
        status = {**counts, "observedGeneration": daemon_set["metadata"]["generation"]}
        if status != status_of(daemon_set):
            self._objects.update_status(daemon_set, status)


def _matters(node: Obj) -> tuple[object, object]:
    """What of a node decides whether a pod should be there."""
    return labels_of(node), node["spec"].get("taints")


def _by_node(pods: Iterable[Obj]) -> dict[str, list[Obj]]:
    found: dict[str, list[Obj]] = defaultdict(list)
    for pod in pods:
        found[target_of(pod)].append(pod)
    return dict(sorted(found.items()))


def _hash(pod: Obj) -> str:
    return labels_of(pod).get(REVISION_HASH, "")


def _is_on_its_way(pod: Obj) -> bool:
    """Whether it is leaving, or on a node that is gone: then pod garbage collection takes it."""
    return being_deleted(pod) or bool(pod["spec"].get("nodeName"))
