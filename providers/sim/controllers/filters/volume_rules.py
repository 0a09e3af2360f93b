"""Where the volumes of a pod let it go.

Source: the plugins VolumeRestrictions (ReadWriteOncePod), NodeVolumeLimits, VolumeBinding and VolumeZone. Left out:
volumes written into the pod itself (EBS and others by id) and the storage capacity that CSI drivers publish.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from providers.sim.controllers.filters.state import (
    NodeCheck,
    NodeRefusal,
    SchedulingState,
    UnschedulablePodError,
)
from providers.sim.controllers.filters.volumes import (
    NO_PROVISIONER,
    SELECTED_NODE,
    VolumeObjects,
    best_volume,
    claim_keys,
    class_of,
    is_bound,
    reaches,
    storage_of,
)
from providers.sim.controllers.objects import (
    Obj,
    annotations_of,
    being_deleted,
    controller_of,
    key_of,
    labels_of,
    status_of,
)
from providers.sim.controllers.scheduling import SchedulableNode

_USED = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
_IN_USE = NodeRefusal((_USED,), final=False)
_TOO_MANY = NodeRefusal(("node(s) exceed max volume count",), final=False)
_NO_ZONE = NodeRefusal(("node(s) had no available volume zone",))
_NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
_ELSEWHERE = "node(s) didn't match PersistentVolume's node affinity"
_LOST = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_ZONES = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Label of a volume or node -> its name of today."""


def _has_claims(pod: Obj) -> bool:
    return bool(pod["spec"].get("volumes")) and next(claim_keys(pod), None) is not None


def exclusive_claims(pod: Obj, state: SchedulingState) -> NodeCheck | None:
    """A claim for one pod only must not be in use, wherever."""
    if not _has_claims(pod):
        return None
    _check_presence(pod, state.volumes, ephemeral=False)
    for claim in state.volumes.claims_of(pod):
        exclusive = "ReadWriteOncePod" in (claim["spec"].get("accessModes") or ())
        if exclusive and state.bound.users_of(key_of(claim)):
            return lambda _: _IN_USE
    return None


def volume_limits(pod: Obj, state: SchedulingState) -> NodeCheck | None:
    """No more volumes of a CSI driver than the driver says a node can attach."""
    wanted = _attachments(state.volumes.claims_of(pod), state.volumes) if _has_claims(pod) else set()
    if not wanted:
        return None

    def check(node: SchedulableNode) -> NodeRefusal | None:
        limits = _limits_on(node.name, state.volumes)
        if not limits:
            return None
        held = (state.volumes.claims.get(key) for key in state.bound.claims_on(node.name))
        there = _attachments([claim for claim in held if claim is not None], state.volumes)
        return _TOO_MANY if _exceeded(limits, wanted, there) else None

    return check


def _exceeded(limits: Mapping[str, int], wanted: set[tuple[str, str]], there: set[tuple[str, str]]) -> bool:
    for driver, most in limits.items():
        new = sum(of == driver for of, _ in wanted - there)
        if new and new + sum(of == driver for of, _ in there) > most:
            return True
    return False


def _attachments(claims: Sequence[Obj], objects: VolumeObjects) -> set[tuple[str, str]]:
    """(driver, handle) of each claim's volume; of one to be provisioned, the driver of its class and its name."""
    found = set()
    for claim in claims:
        volume = objects.volume_of(claim)
        if volume is not None:
            source = volume["spec"].get("csi")
            if source:
                found.add((source["driver"], source["volumeHandle"]))
        elif held := objects.classes.get(("", class_of(claim))):
            found.add((held["provisioner"], "/".join(key_of(claim))))
    return found


def _limits_on(node: str, objects: VolumeObjects) -> dict[str, int]:
    drivers = ((objects.drivers.get(("", node)) or {}).get("spec") or {}).get("drivers") or ()
    counts = {driver["name"]: (driver.get("allocatable") or {}).get("count") for driver in drivers}
    return {name: count for name, count in counts.items() if count is not None}


def volume_zone(pod: Obj, state: SchedulingState) -> NodeCheck | None:
    """The zone and region that a bound volume's labels name; nodes without such labels may be anywhere."""
    if not _has_claims(pod):
        return None
    volumes = [volume for claim in state.volumes.claims_of(pod) if (volume := state.volumes.volume_of(claim))]
    wanted = [
        (key, frozenset(text.split("__"))) for v in volumes for key, text in labels_of(v).items() if key in _ZONES
    ]
    if not wanted:
        return None

    def check(node: SchedulableNode) -> NodeRefusal | None:
        labels = node.labels
        if not any(key in labels for key in _ZONES):
            return None
        there = ((labels.get(key) or labels.get(_ZONES[key]), allowed) for key, allowed in wanted)
        return None if all(value in allowed for value, allowed in there) else _NO_ZONE

    return check


def volume_binding(pod: Obj, state: SchedulingState) -> NodeCheck | None:
    """Bound volumes must reach the node; claims that wait for a pod must find a volume, or one to be made, there."""
    if not _has_claims(pod):
        return None
    objects = state.volumes
    _check_presence(pod, objects, ephemeral=True)
    claims = objects.claims_of(pod)
    if any(not is_bound(c) and (c["spec"].get("volumeName") or not objects.waits_for_pod(c)) for c in claims):
        raise UnschedulablePodError("pod has unbound immediate PersistentVolumeClaims")
    bound = [objects.volume_of(claim) for claim in claims if is_bound(claim)]
    if None in bound:
        return lambda _: NodeRefusal((_LOST,))

    def check(node: SchedulableNode) -> NodeRefusal | None:
        reasons = []
        if volume_plan(claims, node, objects) is None:
            reasons.append(_NOTHING_TO_BIND)
        if not all(reaches(volume, node.labels) for volume in bound if volume is not None):
            reasons.append(_ELSEWHERE)
        return NodeRefusal(tuple(reasons)) if reasons else None

    return check


def _check_presence(pod: Obj, objects: VolumeObjects, *, ephemeral: bool) -> None:
    """UnschedulablePodError where a claim is missing, lost or leaving, or is another's."""
    made = {f"{pod['metadata']['name']}-{v['name']}" for v in pod["spec"]["volumes"] if v.get("ephemeral")}
    for key in claim_keys(pod):
        own = key[1] in made
        if own and not ephemeral:
            continue
        claim = objects.claims.get(key)
        if claim is None and own:
            text = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{key[1]}"'
            raise UnschedulablePodError(text)
        if claim is None:
            raise UnschedulablePodError(f'persistentvolumeclaim "{key[1]}" not found')
        if ephemeral:
            _check_claim(pod, claim, own=own)


def _check_claim(pod: Obj, claim: Obj, *, own: bool) -> None:
    name = claim["metadata"]["name"]
    if status_of(claim).get("phase") == "Lost":
        volume = claim["spec"].get("volumeName")
        raise UnschedulablePodError(f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"')
    if being_deleted(claim):
        raise UnschedulablePodError(f'persistentvolumeclaim "{name}" is being deleted')
    owner = controller_of(claim, "Pod")
    if own and (owner is None or owner[1] != pod["metadata"]["uid"]):
        namespace, owned = key_of(claim)
        text = f"PVC {namespace}/{owned} was not created for pod {namespace}/{pod['metadata']['name']}"
        raise UnschedulablePodError(f"{text} (pod is not owner)")


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """What must happen before a pod may be bound to a node: volumes reserved, and volumes made."""

    reserved: tuple[tuple[Obj, Obj], ...]
    """(claim, volume)."""
    provisioned: tuple[Obj, ...]
    """Claims for which a volume is to be made."""


def volume_plan(claims: Sequence[Obj], node: SchedulableNode, objects: VolumeObjects) -> VolumePlan | None:
    """How the claims that are not bound would be served on a node; None when one cannot be."""
    waiting = sorted(
        (claim for claim in claims if not is_bound(claim)),
        key=lambda claim: storage_of((claim["spec"].get("resources") or {}).get("requests")),
    )
    reserved: dict[str, tuple[Obj, Obj]] = {}
    provisioned = []
    for claim in waiting:
        chosen = annotations_of(claim).get(SELECTED_NODE)
        if chosen not in (None, node.name):
            return None
        found = best_volume(claim, objects.volumes, labels=node.labels, taken=reserved) if chosen is None else None
        if found is not None:
            reserved[found["metadata"]["name"]] = claim, found
        elif _can_be_made(claim, node, objects):
            provisioned.append(claim)
        else:
            return None
    return VolumePlan(tuple(reserved.values()), tuple(provisioned))


def _can_be_made(claim: Obj, node: SchedulableNode, objects: VolumeObjects) -> bool:
    """Whether the class of a claim makes volumes there.

    As in `MatchTopologySelectorTerms` of component-helpers no terms allow every node, and an empty term none.
    """
    held = objects.classes.get(("", class_of(claim)))
    if held is None or held.get("provisioner") in (None, "", NO_PROVISIONER):
        return False
    terms = [term.get("matchLabelExpressions") for term in held.get("allowedTopologies") or ()]
    return not terms or any(
        expressions and all(node.labels.get(each["key"]) in each["values"] for each in expressions)
        for expressions in terms
    )
