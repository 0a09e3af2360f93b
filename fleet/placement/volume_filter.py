"""Filters places by the volumes that pods mount, as kube-scheduler does.

Sources: the plugins VolumeRestrictions (ReadWriteOncePod), NodeVolumeLimits (CSI), VolumeBinding and VolumeZone
(`pkg/scheduler/framework/plugins`, 1.36). Storage capacity that drivers publish is not looked at.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from fleet.catalog import InstanceType
from fleet.placement.domains import EVERYWHERE, ITSELF, Check, Checks, EqualPods, NodeObstacle, Place
from fleet.placement.neighbours import Neighbours
from fleet.placement.volume_binding import VOLUMES, binding_check, class_of, class_to_be, waits_for_pod
from fleet.snapshot import PodSet
from fleet.snapshot.constraints import EphemeralClaim, PodConstraints
from fleet.snapshot.volumes import VolumeClaim, Volumes
from model.labels import INSTANCE_TYPE, REGION, ZONE

IN_USE = NodeObstacle(
    VOLUMES,
    "unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
)
TOO_MANY = NodeObstacle(VOLUMES, "exceed max volume count")
OTHER_ZONE = NodeObstacle(VOLUMES, "had no available volume zone")
ELSEWHERE = NodeObstacle(VOLUMES, "its volume will be made in the zone of the pods that share it")
_ONE_POD: Final = "ReadWriteOncePod"
_ZONES: Final = {
    ZONE: ZONE,
    REGION: REGION,
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
}
"""Label of a volume or node -> its name of today."""
_Attachments = frozenset[tuple[str, str]]
"""(driver, handle) of each volume."""


def volume_checks(neighbours: Neighbours, kind: EqualPods) -> Checks:
    """Yields checks in kube-scheduler's order."""
    if not kind.constraints.claims and not kind.constraints.ephemeral:
        return
    volumes = neighbours.volumes
    names, to_be_made = _mounted(kind.namespace, kind.constraints, volumes)
    claims = [volumes.claims.get(f"{kind.namespace}/{name}") for name in names]
    missing = _pod_refusal(names, claims, volumes) or _unknown_zone(to_be_made, volumes)
    if missing is not None:
        yield EVERYWHERE, lambda _: missing
        return
    known = [claim for claim in claims if claim is not None]
    if exclusive := [claim.name for claim in known if _ONE_POD in claim.access_modes]:
        yield EVERYWHERE, _exclusive(neighbours, kind, exclusive)
    if attached := _attachments(kind, volumes):
        yield ITSELF, _within_limits(neighbours, attached)
    yield (
        EVERYWHERE,
        binding_check(volumes, known, [class_to_be(volumes, it.storage_class) for it in to_be_made]),
    )
    if zoned := list(_zones_of(volumes, known)):
        yield ZONE, _in_zone(zoned)
    if shared := [claim.name for claim in known if not claim.bound]:
        yield ZONE, _beside_sharers(neighbours, kind, shared)


def _mounted(namespace: str, asked: PodConstraints, volumes: Volumes) -> tuple[Sequence[str], Sequence[EphemeralClaim]]:
    """Returns the claims that pods mount, by name, and those that are still to be made with them."""
    made = [it for it in asked.ephemeral if it.claim and f"{namespace}/{it.claim}" in volumes.claims]
    return (*asked.claims, *(it.claim for it in made)), [it for it in asked.ephemeral if it not in made]


def _named(asked: PodConstraints) -> Iterator[str]:
    """Yields the names of claims that outlive their pods, there or not."""
    yield from asked.claims
    yield from (it.claim for it in asked.ephemeral if it.claim)


def stands_by_its_volume(volumes: Volumes, pod_set: PodSet) -> bool:
    """Returns whether a claim that was made for these pods has its volume: where that is they stand, not by choice."""
    own = (volumes.claims.get(f"{pod_set.namespace}/{it.claim}") for it in pod_set.constraints.ephemeral if it.claim)
    return any(claim is not None and claim.bound for claim in own)


def _unknown_zone(to_be_made: Iterable[EphemeralClaim], volumes: Volumes) -> NodeObstacle | None:
    """Why nothing can be said of claims to come: their volume is made at once, wherever the driver likes.

    Those of a pod alone (`volumes[].ephemeral`) are there before it is placed, and then known.
    """
    for it in to_be_made:
        name = class_to_be(volumes, it.storage_class)
        if it.claim and class_of(volumes, name) is not None and not waits_for_pod(volumes, name):
            words = (
                f'volumes of class "{name}" are made before their pods are placed, and claim "{it.claim}" is not made'
            )
            return NodeObstacle(VOLUMES, f"{words} yet; say volumeBindingMode: WaitForFirstConsumer, or Parallel pods")
    return None


def _pod_refusal(names: Iterable[str], claims: Iterable[VolumeClaim | None], volumes: Volumes) -> NodeObstacle | None:
    """Why the pods can stand nowhere: a claim that is missing, leaving or lost, or that should have a volume by now."""
    for name, claim in zip(names, claims, strict=True):
        if claim is None:
            return NodeObstacle(VOLUMES, f'persistentvolumeclaim "{name}" not found')
        if claim.lost:
            words = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.volume}"'
            return NodeObstacle(VOLUMES, words)
        if claim.deleting:
            return NodeObstacle(VOLUMES, f'persistentvolumeclaim "{name}" is being deleted')
    for claim in claims:
        if claim is not None and not claim.bound and (claim.volume or not waits_for_pod(volumes, claim.storage_class)):
            return NodeObstacle(VOLUMES, "pod has unbound immediate PersistentVolumeClaims")
    return None


def _exclusive(neighbours: Neighbours, kind: EqualPods, names: Collection[str]) -> Check:
    def uses(other: EqualPods) -> bool:
        return other.namespace == kind.namespace and not set(names).isdisjoint(_named(other.constraints))

    users = neighbours.counts(("claims", kind.namespace, tuple(names)), ITSELF, uses)
    return lambda _: IN_USE if users.pods else None


def _attachments(kind: EqualPods, volumes: Volumes) -> _Attachments:
    """(driver, handle) of each volume that pods mount; one to be made has the driver of its class and the claim's name.

    A claim of its own that comes with each pod counts once for the class of pods: what comes with them is never shared.
    """
    found = set()
    names, to_be_made = _mounted(kind.namespace, kind.constraints, volumes)
    for name in names:
        claim = volumes.claims.get(f"{kind.namespace}/{name}")
        volume = volumes.volumes.get(claim.volume) if claim is not None else None
        if volume is not None:
            found.add((volume.driver, volume.handle))
        elif claim is not None and (known := class_of(volumes, claim.storage_class)) is not None:
            found.add((known.provisioner, claim.key))
    for each in to_be_made:
        if (known := class_of(volumes, class_to_be(volumes, each.storage_class))) is not None:
            found.add(
                (known.provisioner, f"{kind.namespace}/{each.claim}" if each.claim else f"{id(kind)}/{each.volume}")
            )
    return frozenset((driver, handle) for driver, handle in found if driver)


def _within_limits(neighbours: Neighbours, wanted: _Attachments) -> Check:
    """No more volumes of a driver than it says a node can attach; for machines to come their type says it."""
    volumes = neighbours.volumes

    def check(place: Place) -> NodeObstacle | None:
        limits = _limits(place, neighbours)
        if not limits:
            return None
        there = frozenset(each for kind in neighbours.mounting(place) for each in _attachments(kind, volumes))
        return None if _attached(limits, wanted, there) else TOO_MANY

    return check


def _attached(limits: Mapping[str, int], wanted: _Attachments, there: _Attachments) -> bool:
    for driver, most in limits.items():
        new = sum(of == driver for of, _ in wanted - there)
        if new and new + sum(of == driver for of, _ in there) > most:
            return False
    return True


def attaches(machine: InstanceType, neighbours: Neighbours, pod_sets: Iterable[PodSet]) -> bool:
    """Returns whether a machine that is to be bought attaches the volumes of all these pods."""
    if not machine.attach_limits:
        return True
    kinds = (neighbours.kind_of(it) for it in pod_sets if it.constraints.mounts)
    wanted = frozenset(each for kind in kinds for each in _attachments(kind, neighbours.volumes))
    return _attached(machine.attach_limits, wanted, frozenset())


def _limits(place: Place, neighbours: Neighbours) -> Mapping[str, int] | None:
    """CSI driver -> most volumes; None where nobody says."""
    if place.node:
        return neighbours.volumes.limits.get(place.node)
    machine = neighbours.types.get(place.labels.get(INSTANCE_TYPE, ""))
    return None if machine is None else machine.attach_limits


def _zones_of(volumes: Volumes, claims: Iterable[VolumeClaim]) -> Iterator[tuple[str, frozenset[str]]]:
    """The zones and regions that labels of bound volumes name."""
    for claim in claims:
        volume = volumes.volumes.get(claim.volume)
        for key, text in volume.labels.items() if volume is not None else ():
            if key in _ZONES:
                yield key, frozenset(text.split("__"))


def _in_zone(zoned: Collection[tuple[str, frozenset[str]]]) -> Check:
    """Places without any such label may be anywhere."""

    def check(place: Place) -> NodeObstacle | None:
        if not any(key in place.labels for key in _ZONES):
            return None
        there = ((place.labels.get(key) or place.labels.get(_ZONES[key]), allowed) for key, allowed in zoned)
        return None if all(value in allowed for value, allowed in there) else OTHER_ZONE

    return check


def _beside_sharers(neighbours: Neighbours, kind: EqualPods, names: Collection[str]) -> Check:
    """Pods that share a claim whose volume is still to be made stand in one zone: there the volume will be."""

    def mounts(other: EqualPods) -> bool:
        return other.namespace == kind.namespace and not set(names).isdisjoint(_named(other.constraints))

    sharing = neighbours.counts(("sharers", kind.namespace, tuple(names)), ZONE, mounts)
    return lambda place: None if not sharing.pods or sharing.at(place) else ELSEWHERE
