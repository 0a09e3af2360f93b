"""Filters places by whether the volumes that pods mount reach them, or can be had there (plugin VolumeBinding)."""

from collections.abc import Collection, Iterable
from typing import Final

from fleet.placement.domains import Check, NodeObstacle, Place
from fleet.snapshot.affinity import selects_any
from fleet.snapshot.constraints import selected
from fleet.snapshot.volumes import NodeTerms, PersistentVolume, StorageClass, VolumeClaim, Volumes

VOLUMES: Final = "spec.volumes"
"""The field of the pod template that these obstacles are of."""
NOTHING_TO_BIND = NodeObstacle(VOLUMES, "didn't find available persistent volumes to bind")
OUT_OF_REACH = NodeObstacle(VOLUMES, "didn't match PersistentVolume's node affinity")
NEITHER = NodeObstacle(VOLUMES, f"{NOTHING_TO_BIND.words}; {OUT_OF_REACH.words}")
LOST = NodeObstacle(VOLUMES, "unavailable due to one or more pvc(s) bound to non-existent pv(s)")
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


def binding_check(volumes: Volumes, claims: Collection[VolumeClaim], own: Collection[str]) -> Check:
    """Returns the check: bound volumes reach the place; for the others one is to be had there, or can be made there."""
    bound = [volumes.volumes.get(claim.volume) for claim in claims if claim.bound]
    waiting = sorted((claim for claim in claims if not claim.bound), key=lambda claim: claim.requested_bytes)

    def check(place: Place) -> NodeObstacle | None:
        if None in bound:
            return LOST
        served = _served(waiting, place, volumes) and all(_can_be_made(volumes, name, place) for name in own)
        reached = all(_reaches(volume.reaches, place) for volume in bound if volume is not None)
        if served:
            return None if reached else OUT_OF_REACH
        return NOTHING_TO_BIND if reached else NEITHER

    return check


def _served(waiting: Iterable[VolumeClaim], place: Place, volumes: Volumes) -> bool:
    """Whether every claim finds a volume of its own on the place, or one can be made for it; the smallest first."""
    taken: set[str] = set()
    for claim in waiting:
        if claim.selected_node and claim.selected_node != place.node:
            return False
        found = None if claim.selected_node else _best_volume(claim, volumes, place, taken)
        if found is not None:
            taken.add(found.name)
        elif not _can_be_made(volumes, claim.storage_class, place):
            return False
    return True


def _best_volume(claim: VolumeClaim, volumes: Volumes, place: Place, taken: Collection[str]) -> PersistentVolume | None:
    """The volume reserved for a claim, else the smallest free one that serves it there."""
    able = [
        volume for _, volume in sorted(volumes.volumes.items()) if volume.name not in taken and _suits(claim, volume)
    ]
    for volume in able:
        if volume.claim == claim.key and volume.claim_uid in ("", claim.uid):
            return volume if _reaches(volume.reaches, place) else None
    free = (
        volume for volume in able if not volume.claim and _serves(claim, volume) and _reaches(volume.reaches, place)
    )
    return min(free, key=lambda volume: volume.capacity_bytes, default=None)


def _suits(claim: VolumeClaim, volume: PersistentVolume) -> bool:
    large = volume.capacity_bytes >= claim.requested_bytes
    return large and volume.volume_mode == claim.volume_mode and not volume.deleting


def _serves(claim: VolumeClaim, volume: PersistentVolume) -> bool:
    if not volume.available or volume.storage_class != claim.storage_class:
        return False
    if claim.selector is not None and not selected(claim.selector, volume.labels):
        return False
    return claim.access_modes <= volume.access_modes


def _can_be_made(volumes: Volumes, name: str, place: Place) -> bool:
    known = class_of(volumes, name)
    return known is not None and known.provisioner not in ("", _NO_PROVISIONER) and _reaches(known.allowed, place)


def _reaches(terms: NodeTerms, place: Place) -> bool:
    return selects_any(terms, place.labels)


def waits_for_pod(volumes: Volumes, name: str) -> bool:
    """Returns whether claims of a class get their volume only when their pod is placed; a missing one does not."""
    known = class_of(volumes, name)
    return known is not None and known.waits


def class_of(volumes: Volumes, name: str) -> StorageClass | None:
    """Returns the storage class of that name. A claim that names none has none: the API gave it the default one."""
    return volumes.classes.get(name)


def class_to_be(volumes: Volumes, name: str) -> str:
    """Returns the class that a claim still to be made will name: of several default ones the youngest.

    Source: `pkg/volume/util/storageclass.go`, GetDefaultClass.
    """
    default = ((-it.created_at_s, it.name) for it in volumes.classes.values() if it.default)
    return name or min(default, default=(0.0, ""))[1]
