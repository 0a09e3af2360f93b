"""The StatefulSet controller (kube-controller-manager `statefulset/stateful_set_control.go`)."""

from dataclasses import dataclass

from providers.sim.controllers.apps.base import AppsController, available_at, counted, is_available
from providers.sim.controllers.apps.revisions import current_revision, truncate
from providers.sim.controllers.apps.statefulpods import (
    StatefulWork,
    claim_owners,
    claims_of,
    counts_of,
    is_healthy,
    is_member,
    is_running_and_ready,
    new_pod,
    ordinal_of,
    revision_of,
)
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import Key, Obj, being_deleted, is_terminal, key_of, status_of
from providers.sim.store import ApiError, StoreConflict, StoreNotFound

_COUNTS = ("readyReplicas", "currentReplicas", "updatedReplicas")


@dataclass(frozen=True, slots=True)
class StatefulSync:
    """A StatefulSet as one look finds it: what it asks for, and the revisions that its pods are of."""

    stateful_set: Obj
    work: StatefulWork
    current: Obj
    update: Obj
    now: float


class StatefulSetController(AppsController):
    """Keeps the numbered pods of each StatefulSet, in order unless they may start in parallel, with their claims."""

    name = "statefulset"
    kind = "StatefulSet"
    component = "statefulset-controller"

    def __init__(self, cluster: MirroredCluster) -> None:
        self._revisions = cluster.mirror("ControllerRevision", "apps")
        self._claims = cluster.mirror("PersistentVolumeClaim")
        super().__init__(cluster)

    def _wake_up(self) -> None:
        super()._wake_up()
        self._own(self._revisions)

    def reconcile(self, key: Key, now: float) -> float | None:
        """Take the next steps with one StatefulSet, and count its pods."""
        stateful_set = self._objects.get(key)
        if stateful_set is None:
            return None
        pods, held = self._pods_of(stateful_set), self._history(stateful_set)
        if being_deleted(stateful_set):
            return None
        update = current_revision(stateful_set, held, self._revisions, pods_carry_it=False)
        named = status_of(stateful_set).get("currentRevision")
        current = next((one for one in held if one["metadata"]["name"] == named), update)
        work = StatefulWork.of(stateful_set)
        sync = StatefulSync(stateful_set, work, current, update, now)
        refused = self._try(sync, pods)
        self._cluster.sync()
        pods = self._pods_of(stateful_set)
        self._say(sync, pods)
        live = {current["metadata"]["name"], update["metadata"]["name"], *map(revision_of, pods)}
        truncate(stateful_set, self._history(stateful_set), live, self._revisions)
        if refused is not None:
            raise refused
        return available_at(pods, work.min_ready_s, now)

    def _pods_of(self, stateful_set: Obj) -> list[Obj]:
        pods = self._claimed(stateful_set, self._pods, lambda pod: is_member(stateful_set, pod))
        return sorted(pods, key=ordinal_of)

    def _history(self, stateful_set: Obj) -> list[Obj]:
        return sorted(self._claimed(stateful_set, self._revisions), key=lambda one: int(one["revision"]))

    def _try(self, sync: StatefulSync, pods: list[Obj]) -> ApiError | None:
        """What the API server refused, if anything; what comes after it has to wait."""
        try:
            self._act(sync, pods)
        except (StoreConflict, StoreNotFound):
            raise  # somebody wrote in between
        except ApiError as error:
            return error
        return None

    # Steps

    def _act(self, sync: StatefulSync, pods: list[Obj]) -> None:
        """First every pod that must be there, then those that are too many, then those that are out of date."""
        work = sync.work
        numbered = {ordinal_of(pod): pod for pod in pods}
        replicas = {ordinal: numbered.get(ordinal) for ordinal in work.ordinals}
        condemned = [pod for pod in reversed(pods) if ordinal_of(pod) not in work.ordinals]
        for ordinal, pod in replicas.items():
            if self._has_to_wait(sync, ordinal, pod):
                return
        for pod in condemned:
            self._keep_claims(sync, ordinal_of(pod), pod)
        weak = next((pod for pod in [*replicas.values(), *reversed(condemned)] if pod and not is_healthy(pod)), None)
        for pod in condemned:
            if self._condemned_waits(sync, pod, weak):
                return
        standing = [pod for pod in replicas.values() if pod is not None]
        if len(standing) == work.replicas:
            for pod in work.replaced(standing, sync.update["metadata"]["name"]):
                self._delete(sync, pod)

    def _has_to_wait(self, sync: StatefulSync, ordinal: int, pod: Obj | None) -> bool:
        """Make the pod of that number if it is not there; whether those after it have to wait for it."""
        if pod is not None and is_terminal(pod):
            if not being_deleted(pod):
                self._delete(sync, pod)
            return True  # the next one is made when it is gone
        if pod is None:
            self._create(sync, ordinal)
            return sync.work.one_by_one
        if not being_deleted(pod):
            if not status_of(pod).get("phase") or status_of(pod)["phase"] == "Pending":
                self._make_claims(sync, ordinal)
            self._keep_claims(sync, ordinal, None)
        return sync.work.one_by_one and not (is_healthy(pod) and is_available(pod, sync.work.min_ready_s, sync.now))

    def _condemned_waits(self, sync: StatefulSync, pod: Obj, weak: Obj | None) -> bool:
        """Delete a pod that is too many; whether those of lower numbers have to wait for it.

        One by one, a pod that is not well holds up the others, unless it is the `weak` one: the first that is not.
        """
        if being_deleted(pod):
            return sync.work.one_by_one
        well = is_running_and_ready(pod) and is_available(pod, sync.work.min_ready_s, sync.now)
        if sync.work.one_by_one and not well and pod is not weak:
            return True
        self._delete(sync, pod)
        return sync.work.one_by_one

    def _create(self, sync: StatefulSync, ordinal: int) -> None:
        stateful_set = sync.stateful_set
        old = sync.work.keeps_old(ordinal, counted(stateful_set, "currentReplicas"))
        pod = new_pod(stateful_set, sync.current if old else sync.update, ordinal)
        what = f"create Pod {pod['metadata']['name']} in StatefulSet {stateful_set['metadata']['name']}"
        try:
            self._make_claims(sync, ordinal)
            self._pods.create(pod)
        except ApiError as error:
            self._events.warning(stateful_set, "FailedCreate", f"{what} failed error: {error.message}", sync.now)
            raise
        self._events.normal(stateful_set, "SuccessfulCreate", f"{what} successful", sync.now)

    def _delete(self, sync: StatefulSync, pod: Obj) -> None:
        self._pods.delete(pod)
        name = sync.stateful_set["metadata"]["name"]
        what = f"delete Pod {pod['metadata']['name']} in StatefulSet {name} successful"
        self._events.normal(sync.stateful_set, "SuccessfulDelete", what, sync.now)

    # Claims

    def _make_claims(self, sync: StatefulSync, ordinal: int) -> None:
        name = sync.stateful_set["metadata"]["name"]
        for claim in claims_of(sync.stateful_set, ordinal):
            if self._claims.get(key_of(claim)) is None:
                self._claims.create(claim)
                pod = f"{name}-{ordinal}"
                what = f"create Claim {claim['metadata']['name']} Pod {pod} in StatefulSet {name} success"
                self._events.normal(sync.stateful_set, "SuccessfulCreate", what, sync.now)

    def _keep_claims(self, sync: StatefulSync, ordinal: int, condemned: Obj | None) -> None:
        """Let claims go with the pod that is scaled away, or with the set, where its policy says so."""
        if not sync.stateful_set["spec"].get("persistentVolumeClaimRetentionPolicy"):
            return
        owners = claim_owners(sync.stateful_set, condemned)
        for wanted in claims_of(sync.stateful_set, ordinal):
            held = self._claims.get(key_of(wanted))
            if held is not None and (held["metadata"].get("ownerReferences") or []) != owners:
                self._claims.update_metadata(held, ownerReferences=owners)

    # Status

    def _say(self, sync: StatefulSync, pods: list[Obj]) -> None:
        stateful_set, work = sync.stateful_set, sync.work
        names = sync.current["metadata"]["name"], sync.update["metadata"]["name"]
        counts = counts_of(pods, work, *names, sync.now)
        done = (counts["updatedReplicas"], counts["readyReplicas"], counts["replicas"])
        if work.rolls and set(done) == {work.replicas}:
            names, counts["currentReplicas"] = (names[1], names[1]), counts["updatedReplicas"]
        status = {
            **{field: count for field, count in counts.items() if count or field not in _COUNTS},
            "observedGeneration": stateful_set["metadata"]["generation"],
            "currentRevision": names[0],
            "updateRevision": names[1],
            "collisionCount": status_of(stateful_set).get("collisionCount") or 0,
        }
        if status != status_of(stateful_set):
            self._objects.update_status(stateful_set, status)
