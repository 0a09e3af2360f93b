"""The claims of a pod, the volumes behind them, and which volume would serve a claim."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from providers.sim.controllers.matching import node_selector_matches, selector_matches
from providers.sim.controllers.mirror import InformerCache, MirroredCluster
from providers.sim.controllers.objects import Key, Obj, annotations_of, being_deleted, key_of, labels_of, status_of
from providers.sim.store.podrequests import amounts

SELECTED_NODE = "volume.kubernetes.io/selected-node"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
NO_PROVISIONER = "kubernetes.io/no-provisioner"


def claim_keys(pod: Obj) -> Iterator[Key]:
    """The claims that a pod names, and those made for it (`ephemeral`)."""
    namespace, name = key_of(pod)
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            yield namespace, volume["persistentVolumeClaim"]["claimName"]
        elif volume.get("ephemeral"):
            yield namespace, f"{name}-{volume['name']}"


def class_of(obj: Obj) -> str:
    """The storage class of a claim or a volume; empty where it has none."""
    legacy: str = annotations_of(obj).get("volume.beta.kubernetes.io/storage-class", "")
    return legacy or obj["spec"].get("storageClassName") or ""


def storage_of(resources: Mapping[str, Any] | None) -> int:
    """Bytes of storage in a resource list."""
    return amounts(resources).get("storage", 0)


def is_bound(claim: Obj) -> bool:
    """Whether the claim has its volume, and both know."""
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in annotations_of(claim)


def belongs_to(volume: Obj, claim: Obj) -> bool:
    """Whether a volume is reserved for this very claim."""
    held = volume["spec"].get("claimRef") or {}
    same = (held.get("namespace") or "", held.get("name")) == key_of(claim)
    return same and held.get("uid") in (None, "", claim["metadata"]["uid"])


def reaches(volume: Obj, labels: Mapping[str, str]) -> bool:
    """Whether a volume can be used on a node with these labels."""
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return required is None or node_selector_matches(required, labels, "")


def best_volume(
    claim: Obj, volumes: Iterable[Obj], *, labels: Mapping[str, str] | None = None, taken: Collection[str] = ()
) -> Obj | None:
    """The volume reserved for a claim, else the smallest free one that serves it (on a node with these labels)."""
    best: Obj | None = None
    for volume in volumes:
        if volume["metadata"]["name"] in taken or not _large_enough(claim, volume):
            continue
        here = labels is None or reaches(volume, labels)
        if volume["spec"].get("claimRef"):
            if belongs_to(volume, claim):
                return volume if here else None
        elif here and _serves(claim, volume) and (best is None or _capacity(volume) < _capacity(best)):
            best = volume
    return best


def _capacity(volume: Obj) -> int:
    return storage_of(volume["spec"].get("capacity"))


def _large_enough(claim: Obj, volume: Obj) -> bool:
    wanted = storage_of((claim["spec"].get("resources") or {}).get("requests"))
    modes = (spec.get("volumeMode") or "Filesystem" for spec in (claim["spec"], volume["spec"]))
    return _capacity(volume) >= wanted and len(set(modes)) == 1 and not being_deleted(volume)


def _serves(claim: Obj, volume: Obj) -> bool:
    spec = claim["spec"]
    if status_of(volume).get("phase") != "Available" or class_of(volume) != class_of(claim):
        return False
    if spec.get("selector") is not None and not selector_matches(spec["selector"], labels_of(volume)):
        return False
    return set(spec.get("accessModes") or ()) <= set(volume["spec"].get("accessModes") or ())


@dataclass(frozen=True, slots=True)
class VolumeObjects:
    """The four kinds that decide about volumes."""

    claims: InformerCache
    volumes: InformerCache
    classes: InformerCache
    drivers: InformerCache

    @classmethod
    def of(cls, cluster: MirroredCluster) -> "VolumeObjects":
        """The mirrors of a cluster."""
        return cls(
            cluster.mirror("PersistentVolumeClaim"),
            cluster.mirror("PersistentVolume"),
            cluster.mirror("StorageClass", "storage.k8s.io"),
            cluster.mirror("CSINode", "storage.k8s.io"),
        )

    def claims_of(self, pod: Obj) -> list[Obj]:
        """The claims of a pod that exist, in the order of its volumes."""
        found = (self.claims.get(key) for key in claim_keys(pod))
        return [claim for claim in found if claim is not None]

    def volume_of(self, claim: Obj) -> Obj | None:
        """The volume of a bound claim."""
        return self.volumes.get(("", claim["spec"].get("volumeName") or ""))

    def waits_for_pod(self, claim: Obj) -> bool:
        """Whether a claim is bound only when a pod that uses it is scheduled; a class that is missing does not wait."""
        held = self.classes.get(("", class_of(claim)))
        return held is not None and held.get("volumeBindingMode") == "WaitForFirstConsumer"
