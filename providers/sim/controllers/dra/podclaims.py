"""Which claims a pod has, and who has a claim (component-helpers `dynamic-resource-allocation/resourceclaim`)."""

from collections.abc import Iterator
from typing import Final

from providers.sim.controllers.mirror import InformerCache, MirroredCluster
from providers.sim.controllers.objects import Key, Obj, being_deleted, controller_of, key_of, status_of

FINALIZER: Final = "resource.kubernetes.io/delete-protection"
POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim that was made for a pod: the name under which the pod has it."""
_RESERVED_MOST: Final = 256


class ClaimsNotReady(Exception):
    """A claim of the pod is not there, or is not the pod's; the text is kube-scheduler's."""


def claim_name(pod: Obj, pod_claim: Obj) -> str | None:
    """The name of a claim in the pod's namespace; None where none was needed. Before it is made ClaimsNotReady."""
    if pod_claim.get("resourceClaimName") is not None:
        return str(pod_claim["resourceClaimName"])
    for made in status_of(pod).get("resourceClaimStatuses") or ():
        if made["name"] == pod_claim["name"]:
            name: str | None = made.get("resourceClaimName")
            return name
    raise ClaimsNotReady(f'pod "{"/".join(key_of(pod))}": ResourceClaim not created yet')


def claim_keys(pod: Obj) -> Iterator[tuple[Key, bool]]:
    """The claims of a pod, each with whether it was made for it. Raises ClaimsNotReady."""
    namespace, _ = key_of(pod)
    for pod_claim in pod["spec"].get("resourceClaims") or ():
        name = claim_name(pod, pod_claim)
        if name is not None:
            yield (namespace, name), pod_claim.get("resourceClaimTemplateName") is not None
    extended = status_of(pod).get("extendedResourceClaimStatus")
    if extended:
        yield (namespace, extended["resourceClaimName"]), True


def claims_devices(pod: Obj) -> bool:
    """Whether a pod has claims of devices, or will."""
    return bool(pod["spec"].get("resourceClaims")) or "extendedResourceClaimStatus" in status_of(pod)


def claims_of(pod: Obj, claims: InformerCache) -> list[Obj]:
    """The claims of a pod in the order in which it names them. Raises ClaimsNotReady."""
    found = []
    for key, own in claim_keys(pod):
        claim = claims.get(key)
        if claim is None:
            raise ClaimsNotReady(f'resourceclaim "{key[1]}" not found')
        if being_deleted(claim):
            raise ClaimsNotReady(f'resourceclaim "{key[1]}" is being deleted')
        if own and not is_for(pod, claim):
            named, whose = "/".join(key), "/".join(key_of(pod))
            text = f"ResourceClaim {named} was not created for pod {whose} (pod is not owner)"
            raise ClaimsNotReady(text)
        found.append(claim)
    return found


def is_for(pod: Obj, claim: Obj) -> bool:
    """Whether a claim was made for this very pod."""
    owner = controller_of(claim, "Pod")
    return owner is not None and owner[1] == pod["metadata"]["uid"]


def users_of(claim: Obj) -> list[Obj]:
    """Those for whom a claim is reserved."""
    return list(status_of(claim).get("reservedFor") or ())


def is_reserved_for(claim: Obj, pod: Obj) -> bool:
    """Whether a pod may use a claim."""
    return any(user["uid"] == pod["metadata"]["uid"] for user in users_of(claim))


def can_be_reserved(claim: Obj) -> bool:
    """Whether one more pod may have a claim."""
    return len(users_of(claim)) < _RESERVED_MOST


def reserved(claim: Obj, pod: Obj) -> Obj:
    """The status of a claim that the pod has, too."""
    user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    return {**status_of(claim), "reservedFor": [*users_of(claim), user]}


def pools_of(claim: Obj, driver: str) -> set[str]:
    """The pools of which a claim that somebody uses has devices of a driver."""
    devices = (status_of(claim).get("allocation") or {}).get("devices") or {}
    return {it["pool"] for it in devices.get("results") or () if it["driver"] == driver and users_of(claim)}


def serves_devices(cluster: MirroredCluster) -> bool:
    """Whether the API server has claims of devices in the version that is spoken here."""
    return any(it.group == "resource.k8s.io" and it.version == "v1" for it in cluster.store.resources())
