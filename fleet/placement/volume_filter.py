"""Filters places by the volumes that pods mount, as kube-scheduler does.

Sources: the plugins VolumeRestrictions (ReadWriteOncePod), NodeVolumeLimits (CSI), VolumeBinding and VolumeZone
(`pkg/scheduler/framework/plugins`, 1.36). Storage capacity that drivers publish is not looked at.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class _Attachments:
    """`_Attachments` are the volumes that pods of some classes attach to their machine."""

    shared: frozenset[tuple[str, str]] = frozenset()
    """(driver, handle) of each volume that is attached once, however many of the pods mount it."""
    own: Mapping[str, int] = field(default_factory=dict)
    """CSI driver -> volumes that come with each pod (`volumes[].ephemeral`), for all of the pods."""

    def of(self, driver: str) -> int:
        """Returns how many of them a driver attaches."""
        return sum(it == driver for it, _ in self.shared) + self.own.get(driver, 0)


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
    attached = _attachments([(kind, 1)], volumes)
    if attached.shared or attached.own:
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


def _attachments(pods: Iterable[tuple[EqualPods, int]], volumes: Volumes) -> _Attachments:
    """Returns what so many pods of each class attach, as far as a CSI driver does it.

    A volume to be made has the driver of its class; the name of its claim is its handle where pods may share it.
    """
    shared, own = set[tuple[str, str]](), Counter[str]()
    for kind, count in pods:
        names, to_be_made = _mounted(kind.namespace, kind.constraints, volumes)
        claims = (volumes.claims.get(f"{kind.namespace}/{name}") for name in names)
        shared.update(_volume_of(claim, volumes) for claim in claims if claim is not None)
        for each in to_be_made:
            driver = _driver_of(class_to_be(volumes, each.storage_class), volumes)
            if each.claim:
                shared.add((driver, f"{kind.namespace}/{each.claim}"))
            elif driver:
                own[driver] += count
    return _Attachments(frozenset(it for it in shared if it[0]), own)


def _volume_of(claim: VolumeClaim, volumes: Volumes) -> tuple[str, str]:
    """Returns (driver, handle) of the volume of a claim; one that is to be made has its claim's name."""
    volume = volumes.volumes.get(claim.volume)
    return (volume.driver, volume.handle) if volume else (_driver_of(claim.storage_class, volumes), claim.key)


def _driver_of(name: str, volumes: Volumes) -> str:
    """Returns the driver of a class of volumes; empty where there is no such class."""
    known = class_of(volumes, name)
    return "" if known is None else known.provisioner


def _within_limits(neighbours: Neighbours, wanted: _Attachments) -> Check:
    """No more volumes of a driver than it says a node can attach; for machines to come their type says it."""

    def check(place: Place) -> NodeObstacle | None:
        limits = _limits(place, neighbours)
        if not limits:
            return None
        there = _attachments(neighbours.mounting(place), neighbours.volumes)
        return None if _attached(limits, wanted, there) else TOO_MANY

    return check


def _attached(limits: Mapping[str, int], wanted: _Attachments, there: _Attachments) -> bool:
    more = _Attachments(wanted.shared - there.shared, wanted.own)
    new = ((more.of(driver), driver, most) for driver, most in limits.items())
    return not any(count and count + there.of(driver) > most for count, driver, most in new)


def attaches(machine: InstanceType, neighbours: Neighbours, pods: Iterable[tuple[PodSet, int]]) -> bool:
    """Returns whether a machine that is to be bought attaches the volumes of so many pods of each set."""
    if not machine.attach_limits:
        return True
    mounting = ((neighbours.kind_of(it), count) for it, count in pods if it.constraints.mounts)
    return _attached(machine.attach_limits, _attachments(mounting, neighbours.volumes), _Attachments())


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
