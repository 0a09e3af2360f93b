"""The Deployment controller (kube-controller-manager `deployment/`): rolling update, Recreate, scaling, history."""

from collections.abc import Mapping

from providers.sim.controllers.apps.base import API_VERSION, AppsController, counted, replicas_of, safe_hash
from providers.sim.controllers.apps.deployment_status import ProgressWriter, failing_create
from providers.sim.controllers.apps.rollout import (
    DESIRED,
    HASH,
    HISTORY,
    MOST,
    REVISION,
    DeploymentWork,
    RolloutSets,
    active,
    by_age,
    is_complete,
    is_saturated,
    latest_or_only,
    proportional,
    revision_of,
)
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import (
    Key,
    Obj,
    annotations_of,
    being_deleted,
    controlled_by,
    controller_of,
    is_terminal,
    key_of,
    status_of,
)
from providers.sim.store import ApiError, StoreAlreadyExists

_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NOT_HANDED_ON = frozenset({_APPLIED, REVISION, HISTORY, DESIRED, MOST, "deprecated.deployment.rollback.to"})


class DeploymentController(AppsController):
    """Keeps a ReplicaSet for the template of each Deployment, and moves pods from those before to it."""

    name = "deployment"
    kind = "Deployment"
    component = "deployment-controller"

    def __init__(self, cluster: MirroredCluster) -> None:
        self._sets = cluster.mirror("ReplicaSet", "apps")
        super().__init__(cluster)
        self._progress = ProgressWriter(self._objects)

    def _wake_up(self) -> None:
        super()._wake_up()
        self._own(self._sets)

    def _on_dependant(self, old: Obj | None, new: Obj | None) -> None:
        super()._on_dependant(old, new)
        if new is None and old is not None:  # with Recreate the last old pod lets the new ones in
            owner = controller_of(old, "ReplicaSet")
            held = None if owner is None else self._sets.get(owner[0])
            above = None if held is None else controller_of(held, "Deployment")
            if above is not None:
                self._queue.add(above[0])

    def reconcile(self, key: Key, now: float) -> float | None:
        """Bring one Deployment on, and say how far it is."""
        deployment = self._objects.get(key)
        if deployment is None:
            return None
        claimed = self._claimed(deployment, self._sets)
        work = DeploymentWork.of(deployment)
        sets = _sorted_out(deployment, claimed)
        if being_deleted(deployment):
            return self._progress.write(deployment, work, sets, now, progress=False)
        deployment = self._progress.note_pause(deployment, work, now)
        if work.paused or self._is_scaled(work, claimed):
            return self._scaled(deployment, work, sets, now)
        if work.recreates:
            return self._recreated(deployment, work, sets, now)
        return self._rolled(deployment, work, sets, now)

    def _is_scaled(self, work: DeploymentWork, sets: list[Obj]) -> bool:
        """Whether the Deployment was scaled since its ReplicaSets were last written."""
        wanted = (annotations_of(one).get(DESIRED) for one in active(sets))
        return any(text is not None and text != str(work.replicas) for text in wanted)

    # Strategies

    def _rolled(self, deployment: Obj, work: DeploymentWork, sets: RolloutSets, now: float) -> float | None:
        deployment = self._with_new(deployment, work, sets, now)
        if sets.new is not None:
            wanted = sets.wanted_of_new(work, replicas_of(sets.new))
            if wanted == replicas_of(sets.new):
                self._resize(deployment, work, sets, sets.shrunk(work), now)
            else:
                self._resize(deployment, work, sets, {sets.new["metadata"]["name"]: wanted}, now)
        return self._finished(deployment, work, sets, now)

    def _recreated(self, deployment: Obj, work: DeploymentWork, sets: RolloutSets, now: float) -> float | None:
        shrinking = {one["metadata"]["name"]: 0 for one in active(sets.old)}
        if shrinking:
            self._resize(deployment, work, sets, shrinking, now)
        elif not self._old_pods_run(sets):
            deployment = self._with_new(deployment, work, sets, now)
            if sets.new is not None:
                self._resize(deployment, work, sets, {sets.new["metadata"]["name"]: work.replicas}, now)
        return self._finished(deployment, work, sets, now)

    def _old_pods_run(self, sets: RolloutSets) -> bool:
        pods = (pod for one in sets.old for pod in self._pods.by("controller", one["metadata"]["uid"]))
        return any(not is_terminal(pod) for pod in pods)

    def _scaled(self, deployment: Obj, work: DeploymentWork, sets: RolloutSets, now: float) -> float | None:
        """Only sizes change: those of all active ReplicaSets in proportion."""
        deployment = self._with_revision(deployment, sets)
        only = latest_or_only(sets)
        if only is not None:
            self._resize(deployment, work, sets, {only["metadata"]["name"]: work.replicas}, now)
        elif is_saturated(work, sets.new):
            self._resize(deployment, work, sets, {one["metadata"]["name"]: 0 for one in active(sets.old)}, now)
        elif not work.recreates:
            sizes = proportional(work, sets, counted(deployment, "replicas"))
            self._resize(deployment, work, sets, sizes, now)
        if work.paused:
            self._clean_up(work, sets)
        return self._progress.write(deployment, work, sets, now, progress=False)

    def _finished(self, deployment: Obj, work: DeploymentWork, sets: RolloutSets, now: float) -> float | None:
        if is_complete(work, status_of(deployment), deployment["metadata"]["generation"]):
            self._clean_up(work, sets)
        return self._progress.write(deployment, work, sets, now)

    # ReplicaSets

    def _with_revision(self, deployment: Obj, sets: RolloutSets) -> Obj:
        """The Deployment once it and its new ReplicaSet are marked with the revision that they are."""
        new = sets.new
        if new is None:
            return deployment
        revision = max((revision_of(one) for one in sets.old), default=0) + 1
        notes = _handed_on(deployment, new, max(revision, revision_of(new)))
        seconds = int(deployment["spec"].get("minReadySeconds") or 0)
        if notes != annotations_of(new) or seconds != int(new["spec"].get("minReadySeconds") or 0):
            metadata = {**new["metadata"], "annotations": notes}
            new = sets.new = self._sets.update(
                {**new, "metadata": metadata, "spec": {**new["spec"], "minReadySeconds": seconds}}
            )
        return self._marked(deployment, annotations_of(new)[REVISION])

    def _marked(self, deployment: Obj, revision: str) -> Obj:
        if annotations_of(deployment).get(REVISION) == revision:
            return deployment
        notes = {**annotations_of(deployment), REVISION: revision}
        return self._objects.update_metadata(deployment, annotations=notes)

    def _with_new(self, deployment: Obj, work: DeploymentWork, sets: RolloutSets, now: float) -> Obj:
        """The Deployment once there is a ReplicaSet for its template."""
        if sets.new is not None:
            return self._progress.found(self._with_revision(deployment, sets), work, sets.new, now)
        template = deployment["spec"]["template"]
        name_hash = safe_hash(template, status_of(deployment).get("collisionCount"))
        wanted = sets.wanted_of_new(work, 0)
        made = _new_set(deployment, work, sets, name_hash, wanted)
        try:
            new = self._sets.create(made)
        except StoreAlreadyExists:
            self._progress.collided(deployment)  # a set of that name has another template: the next hash differs
            return self._objects.get(key_of(deployment)) or deployment
        except ApiError as error:
            self._events.warning(deployment, "ReplicaSetCreateError", failing_create(made, error), now)
            self._progress.failed(deployment, work, failing_create(made, error), now)
            raise
        sets.new = new
        if wanted:
            text = f"Scaled up replica set {new['metadata']['name']} from 0 to {wanted}"
            self._events.normal(deployment, "ScalingReplicaSet", text, now)
        marked = self._marked(deployment, annotations_of(new)[REVISION])
        return self._progress.found(marked, work, new, now, created=True)

    def _resize(
        self, deployment: Obj, work: DeploymentWork, sets: RolloutSets, sizes: Mapping[str, int], now: float
    ) -> None:
        """Write the sizes, and on what they are based."""
        for held in sets.all:
            name = held["metadata"]["name"]
            if name not in sizes:
                continue
            size, before = sizes[name], replicas_of(held)
            notes = {**annotations_of(held), DESIRED: str(work.replicas), MOST: str(work.most)}
            if size == before and notes == annotations_of(held):
                continue
            metadata = {**held["metadata"], "annotations": notes}
            written = self._sets.update({**held, "metadata": metadata, "spec": {**held["spec"], "replicas": size}})
            if held is sets.new:
                sets.new = written
            else:
                sets.old = [written if one is held else one for one in sets.old]
            if size != before:
                direction = "up" if size > before else "down"
                text = f"Scaled {direction} replica set {name} from {before} to {size}"
                self._events.normal(deployment, "ScalingReplicaSet", text, now)

    def _clean_up(self, work: DeploymentWork, sets: RolloutSets) -> None:
        """Forget the oldest ReplicaSets beyond the history that is kept."""
        kept = [one for one in sets.old if not being_deleted(one)]
        for one in sorted(kept, key=revision_of)[: max(0, len(kept) - work.history_limit)]:
            stale = one["metadata"]["generation"] > (status_of(one).get("observedGeneration") or 0)
            if not (stale or counted(one, "replicas") or replicas_of(one)):
                self._sets.delete(one)


def _sorted_out(deployment: Obj, sets: list[Obj]) -> RolloutSets:
    """The oldest one of the Deployment's template is the new one."""
    template = deployment["spec"]["template"]
    new = next((one for one in by_age(sets) if _without_hash(one["spec"]["template"]) == _without_hash(template)), None)
    return RolloutSets(new, [one for one in sets if one is not new])


def _without_hash(template: Obj) -> Obj:
    metadata = {field: value for field, value in (template.get("metadata") or {}).items() if value}
    labels = {key: value for key, value in (metadata.pop("labels", None) or {}).items() if key != HASH}
    return {"labels": labels, "metadata": metadata, "spec": template["spec"]}


def _handed_on(deployment: Obj, new: Obj, revision: int) -> dict[str, str]:
    """The annotations of the new ReplicaSet: those of the Deployment, and which revisions it has been."""
    given = {key: text for key, text in annotations_of(deployment).items() if key not in _NOT_HANDED_ON}
    held = annotations_of(new)
    notes = {**held, **given, REVISION: str(revision)}
    if held.get(REVISION) not in (None, str(revision)):
        notes[HISTORY] = ",".join(part for part in (held.get(HISTORY), held[REVISION]) if part)
    return notes


def _new_set(deployment: Obj, work: DeploymentWork, sets: RolloutSets, name_hash: str, replicas: int) -> Obj:
    meta, spec, template = deployment["metadata"], deployment["spec"], deployment["spec"]["template"]
    labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH: name_hash}
    selector = spec["selector"]
    revision = max((revision_of(one) for one in sets.old), default=0) + 1
    counts = {DESIRED: str(work.replicas), MOST: str(work.most)}
    return {
        "apiVersion": API_VERSION,
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{meta['name']}-{name_hash}",
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": {**_handed_on(deployment, {"metadata": {}}, revision), **counts},
            "ownerReferences": controlled_by(deployment, API_VERSION, "Deployment"),
        },
        "spec": {
            "replicas": replicas,
            **({"minReadySeconds": work.min_ready_s} if work.min_ready_s else {}),
            "selector": {**selector, "matchLabels": {**(selector.get("matchLabels") or {}), HASH: name_hash}},
            "template": {**template, "metadata": {**(template.get("metadata") or {}), "labels": labels}},
        },
    }
