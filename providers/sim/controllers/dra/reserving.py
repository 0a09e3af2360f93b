"""What the scheduler writes when a pod with claims gets its node, and what it takes back when none is found.

Source: `dynamicresources.go` (PreBind, PostFilter).
"""

from providers.sim.controllers.dra.allocator import ClaimAllocation
from providers.sim.controllers.dra.extended import (
    extended_claim,
    in_memory,
    lacking,
    resources_by_claim,
    with_extended_claim,
)
from providers.sim.controllers.dra.inventory import DeviceInventory
from providers.sim.controllers.dra.podclaims import (
    FINALIZER,
    ClaimsNotReady,
    claims_of,
    is_reserved_for,
    reserved,
    users_of,
)
from providers.sim.controllers.matching import node_selector_matches
from providers.sim.controllers.mirror import InformerCache
from providers.sim.controllers.objects import Obj, status_of
from providers.sim.controllers.scheduling import SchedulableNode
from providers.sim.store import ApiError
from providers.sim.store.podrequests import requests_of


def reserve_devices(inventory: DeviceInventory, pods: InformerCache, pod: Obj, node: SchedulableNode) -> bool:
    """Write the devices into the pod's claims and the pod beside them; False where somebody wrote in between."""
    try:
        claims = claims_of(pod, inventory.claims)
        pending = [claim for claim in claims if status_of(claim).get("allocation") is None]
        wanted = requests_of(pod)
        resources = frozenset(inventory.extended.keys() & wanted.keys()) - resources_by_claim(pod)
        missing = lacking(wanted, resources, node.allocatable)
        made = extended_claim(pod, missing, inventory.extended) if missing else None
        asked = [*pending, *([in_memory(made, pod)] if made is not None else [])]
        found = ClaimAllocation(inventory, asked, node).allocate() if asked else []
        if found is None:
            return False
        allocations = {claim["metadata"]["uid"]: it for claim, it in zip(asked, found, strict=True)}
        for claim in claims:
            if not is_reserved_for(claim, pod):
                _bind_claim(inventory, claim, pod, allocations.get(claim["metadata"]["uid"]))
        if made is not None:
            claim = inventory.claims.create(made)
            _bind_claim(inventory, claim, pod, found[-1])
            pods.update_status(pod, with_extended_claim(pod, claim, missing))
    except (ClaimsNotReady, ApiError):
        return False
    return True


def _bind_claim(inventory: DeviceInventory, claim: Obj, pod: Obj, allocation: Obj | None) -> None:
    held = claim["metadata"].get("finalizers") or []
    if allocation is not None and FINALIZER not in held:
        claim = inventory.claims.update_metadata(claim, finalizers=[*held, FINALIZER])
    status = reserved(claim, pod)
    inventory.claims.update_status(claim, {**status, "allocation": allocation} if allocation is not None else status)


def deallocate_one(inventory: DeviceInventory, pod: Obj, nodes: list[SchedulableNode]) -> bool:
    """Take its devices from a claim of a pod that no node suits, if nobody else uses it; whether one was."""
    try:
        claims = claims_of(pod, inventory.claims)
    except ClaimsNotReady:
        return False
    for claim in claims:
        status = status_of(claim)
        selector = (status.get("allocation") or {}).get("nodeSelector")
        mine = {user["uid"] for user in users_of(claim)} <= {pod["metadata"]["uid"]}
        if selector is None or not mine or _reaches_all(selector, nodes):
            continue
        kept = {field: value for field, value in status.items() if field not in ("allocation", "reservedFor")}
        try:
            inventory.claims.update_status(claim, kept)
        except ApiError:
            continue
        return True
    return False


def _reaches_all(selector: Obj, nodes: list[SchedulableNode]) -> bool:
    return all(node_selector_matches(selector, node.labels, node.name) for node in nodes)
