"""Whether the devices that a pod claims can be had on a node.

Source: `pkg/scheduler/framework/plugins/dynamicresources/dynamicresources.go`.
"""

from providers.sim.controllers.dra.allocator import ClaimAllocation, TooManySteps
from providers.sim.controllers.dra.extended import extended_claim, in_memory, lacking, resources_by_claim
from providers.sim.controllers.dra.podclaims import (
    ClaimsNotReady,
    can_be_reserved,
    claims_devices,
    claims_of,
    is_reserved_for,
)
from providers.sim.controllers.dra.requests import ClassMissing, requests_of_claim
from providers.sim.controllers.filters.state import (
    NodeCheck,
    NodeRefusal,
    SchedulingState,
    UnschedulablePodError,
)
from providers.sim.controllers.matching import node_selector_matches
from providers.sim.controllers.objects import Obj, status_of
from providers.sim.controllers.scheduling import SchedulableNode
from providers.sim.store.podrequests import requests_of

_ELSEWHERE = NodeRefusal(("resourceclaim not available on the node",))
_NO_DEVICES = NodeRefusal(("cannot allocate all claims",))
_TOO_LONG = NodeRefusal(("timed out trying to allocate devices",))
_INVALID = NodeRefusal(("invalid resource pools were encountered",))


def device_claims(pod: Obj, state: SchedulingState) -> NodeCheck | None:
    """What is allocated must reach the node; for the rest there must be devices."""
    inventory = state.devices
    if inventory is None:
        return None
    wanted = requests_of(pod)
    resources = frozenset(inventory.extended.keys() & wanted.keys()) - resources_by_claim(pod)
    if not claims_devices(pod) and not resources:
        return None
    try:
        claims = claims_of(pod, inventory.claims)
        allocated = [claim for claim in claims if status_of(claim).get("allocation") is not None]
        pending = [claim for claim in claims if claim not in allocated]
        for claim in pending:
            requests_of_claim(claim, inventory.classes)
    except (ClaimsNotReady, ClassMissing) as error:
        raise UnschedulablePodError(str(error)) from error
    if any(not can_be_reserved(claim) and not is_reserved_for(claim, pod) for claim in allocated):
        raise UnschedulablePodError("resourceclaim in use")

    def check(node: SchedulableNode) -> NodeRefusal | None:
        """Why a node will not do, in the scheduler's words; None = it will. The allocator takes so many steps only."""
        if not all(is_available(claim, node) for claim in allocated):
            return _ELSEWHERE
        missing = lacking(wanted, resources, node.allocatable)
        made = [in_memory(extended_claim(pod, missing, inventory.extended), pod)] if missing else []
        if not pending and not made:
            return None
        try:
            found = ClaimAllocation(inventory, [*pending, *made], node).allocate()
        except TooManySteps:
            return _TOO_LONG
        if found is None and any(pool.invalid for pool in inventory.pools_for(node)):
            return _INVALID
        return _NO_DEVICES if found is None else None

    return check


def is_available(claim: Obj, node: SchedulableNode) -> bool:
    """Whether what a claim has can be used on a node."""
    selector = status_of(claim)["allocation"].get("nodeSelector")
    return selector is None or node_selector_matches(selector, node.labels, node.name)
