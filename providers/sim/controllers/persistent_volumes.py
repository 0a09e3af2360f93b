"""Claims and volumes find each other: the PV controller, the controller of ephemeral volumes, and a CSI provisioner.

Source: kube-controller-manager `pkg/controller/volume/persistentvolume` and `ephemeral`; external-provisioner for what
it does with `volume.kubernetes.io/selected-node`. Left out: attaching, resizing, recycling.
"""

from typing import Literal

from providers.sim.controllers.filters.volumes import (
    BIND_COMPLETED,
    SELECTED_NODE,
    VolumeObjects,
    belongs_to,
    best_volume,
    class_of,
    is_bound,
)
from providers.sim.controllers.mirror import MirroredCluster
from providers.sim.controllers.objects import (
    Key,
    Obj,
    annotations_of,
    being_deleted,
    controlled_by,
    is_terminal,
    key_of,
    labels_of,
    status_of,
)
from providers.sim.controllers.runtime import Reconciler

VolumeKey = tuple[Literal["claim", "volume", "pod"], Key]
EBS = frozenset({"ebs.csi.aws.com", "kubernetes.io/aws-ebs"})
_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_ZONE = "topology.kubernetes.io/zone"


class VolumeController(Reconciler[VolumeKey]):
    """Binds claims, makes the claims of ephemeral volumes, and the volumes of classes whose provisioner it plays."""

    name = "persistent-volumes"

    def __init__(self, cluster: MirroredCluster, *, provisioners: frozenset[str] = EBS) -> None:
        super().__init__(cluster)
        self._provisioners = provisioners
        self._objects = VolumeObjects.of(cluster)
        self._nodes = cluster.mirror("Node")
        self._pods = cluster.mirror("Pod")
        self._objects.claims.watch(self._on_claim)
        self._objects.volumes.watch(self._on_volume)
        self._objects.classes.watch(lambda _old, _new: self._look_at_open_claims())
        self._pods.watch(self._on_pod)

    def _on_claim(self, old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            self._queue.add(("claim", key_of(new)))
        elif old is not None and old["spec"].get("volumeName"):
            self._queue.add(("volume", ("", old["spec"]["volumeName"])))

    def _on_volume(self, _old: Obj | None, new: Obj | None) -> None:
        if new is not None:
            self._queue.add(("volume", key_of(new)))
            self._look_at_open_claims()

    def _look_at_open_claims(self) -> None:
        for claim in self._objects.claims:
            if not is_bound(claim):
                self._queue.add(("claim", key_of(claim)))

    def _on_pod(self, old: Obj | None, new: Obj | None) -> None:
        if old is None and new is not None and any("ephemeral" in v for v in new["spec"].get("volumes") or ()):
            self._queue.add(("pod", key_of(new)))

    def reconcile(self, key: VolumeKey, now: float) -> float | None:
        """One claim, volume or pod."""
        kind, named = key
        if kind == "pod":
            self._make_claims(named)
        elif kind == "volume":
            self._show_volume(named)
        else:
            self._serve(named)
        return None

    def _make_claims(self, key: Key) -> None:
        pod = self._pods.get(key)
        if pod is None or being_deleted(pod) or is_terminal(pod):
            return
        for volume in pod["spec"].get("volumes") or ():
            claim = (key[0], f"{key[1]}-{volume['name']}")
            if "ephemeral" in volume and self._objects.claims.get(claim) is None:
                template = volume["ephemeral"]["volumeClaimTemplate"]
                given = {f: v for f, v in (template.get("metadata") or {}).items() if f in ("labels", "annotations")}
                owner = controlled_by(pod, "v1", "Pod")
                metadata = {**given, "namespace": claim[0], "name": claim[1], "ownerReferences": owner}
                self._objects.claims.create({"metadata": metadata, "spec": template["spec"]})

    def _show_volume(self, key: Key) -> None:
        volume = self._objects.volumes.get(key)
        if volume is None:
            return
        held = volume["spec"].get("claimRef") or {}
        claim = self._objects.claims.get((held.get("namespace") or "", held.get("name") or "")) if held else None
        bound = claim is not None and belongs_to(volume, claim) and is_bound(claim)
        phase = "Bound" if bound else "Available" if claim is None and not held.get("uid") else "Pending"
        if held.get("uid") and claim is None:
            phase = "Released"
        if status_of(volume).get("phase") != phase:
            volume = self._objects.volumes.update_status(volume, {**status_of(volume), "phase": phase})
        if phase == "Released" and not being_deleted(volume) and self._is_ours_to_delete(volume):
            self._objects.volumes.delete(volume)

    def _is_ours_to_delete(self, volume: Obj) -> bool:
        spec = volume["spec"]
        driver = (spec.get("csi") or {}).get("driver")
        return spec.get("persistentVolumeReclaimPolicy") == "Delete" and driver in self._provisioners

    def _serve(self, key: Key) -> None:
        claim = self._objects.claims.get(key)
        if claim is None or is_bound(claim):
            return
        if claim["spec"].get("storageClassName") is None and not class_of(claim):
            claim = self._with_default_class(claim)
        volume = self._volume_for(claim)
        if volume is None:
            self._provision(claim)
        elif not volume["spec"].get("claimRef") or belongs_to(volume, claim):
            self._join(claim, volume)

    def _with_default_class(self, claim: Obj) -> Obj:
        """A claim that names no class gets the youngest of the default ones, if there is one."""
        defaults = [held for held in self._objects.classes if annotations_of(held).get(_DEFAULT) == "true"]
        if not defaults:
            return claim
        chosen = max(defaults, key=lambda held: held["metadata"]["creationTimestamp"])["metadata"]["name"]
        return self._objects.claims.update({**claim, "spec": {**claim["spec"], "storageClassName": chosen}})

    def _volume_for(self, claim: Obj) -> Obj | None:
        """The volume that the claim names, that names the claim, or that serves it if no pod has to come first."""
        if claim["spec"].get("volumeName"):
            return self._objects.volume_of(claim)
        volumes = list(self._objects.volumes)
        if self._objects.waits_for_pod(claim):
            volumes = [volume for volume in volumes if belongs_to(volume, claim)]
        return best_volume(claim, volumes)

    def _join(self, claim: Obj, volume: Obj) -> None:
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": claim["metadata"]["namespace"],
            "name": claim["metadata"]["name"],
            "uid": claim["metadata"]["uid"],
        }
        if (volume["spec"].get("claimRef") or {}).get("uid") != reference["uid"]:
            volume = self._objects.volumes.update({**volume, "spec": {**volume["spec"], "claimRef": reference}})
        metadata = {**claim["metadata"], "annotations": {**annotations_of(claim), BIND_COMPLETED: "yes"}}
        spec = {**claim["spec"], "volumeName": volume["metadata"]["name"]}
        claim = self._objects.claims.update({**claim, "metadata": metadata, "spec": spec})
        shown = {
            "phase": "Bound",
            "accessModes": volume["spec"].get("accessModes") or [],
            "capacity": volume["spec"].get("capacity") or {},
        }
        self._objects.claims.update_status(claim, shown)
        self._objects.volumes.update_status(volume, {"phase": "Bound"})

    def _provision(self, claim: Obj) -> None:
        held = self._objects.classes.get(("", class_of(claim)))
        if held is None or held.get("provisioner") not in self._provisioners or claim["spec"].get("volumeName"):
            return
        chosen = annotations_of(claim).get(SELECTED_NODE)
        node = self._nodes.get(("", chosen or ""))
        if node is None and self._objects.waits_for_pod(claim):
            if chosen is not None:  # it has gone meanwhile: let the scheduler choose again
                rest = {key: text for key, text in annotations_of(claim).items() if key != SELECTED_NODE}
                self._objects.claims.update_metadata(claim, annotations=rest)
            return
        name = f"pvc-{claim['metadata']['uid']}"
        if self._objects.volumes.get(("", name)) is None:
            self._objects.volumes.create(_made(claim, held, name, labels_of(node).get(_ZONE) if node else None))


def _made(claim: Obj, storage_class: Obj, name: str, zone: str | None) -> Obj:
    """The volume that a provisioner makes for a claim, in the zone of the node chosen for it."""
    spec = {
        "capacity": {"storage": ((claim["spec"].get("resources") or {}).get("requests") or {}).get("storage", "1Gi")},
        "accessModes": claim["spec"].get("accessModes") or ["ReadWriteOnce"],
        "storageClassName": storage_class["metadata"]["name"],
        "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy") or "Delete",
        "csi": {"driver": storage_class["provisioner"], "volumeHandle": name},
        "claimRef": {"namespace": claim["metadata"]["namespace"], "name": claim["metadata"]["name"]},
    }
    if zone is not None:
        expression = {"key": _ZONE, "operator": "In", "values": [zone]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    return {"metadata": {"name": name}, "spec": spec}
