"""`Claim` <-> the NodeClaim object: the intent to own one machine, and what became of it.

The specification is written once, before any money is spent. `uid` and `deleting` are the server's. A claim that adopts
a machine says so in its specification: that one write is the whole intent, and at no instant does it look like a claim
whose machine is still to be bought.
"""

from collections.abc import Sequence
from math import inf
from typing import Final

import msgspec
from msgspec import Raw

from fleet.reasons import Reason
from fleet.snapshot import CapacityPool, Claim, ClaimState, CutOrder, FormerCut, Launch, MachineEvent, NodeDisruption
from fleet.snapshot.claims import MOST_EVENTS
from model.kinds import CapacityType, Taint
from model.labels import CAPACITY_TYPE, INSTANCE_TYPE, LAUNCH_GROUP, NODE_POOL, ZONE
from model.plain_text import plain
from model.quantity import canonical_resources
from providers.kube.objects.conditions import (
    Condition,
    Finding,
    conditions_of,
    failure_findings,
    failure_from,
    find,
    refusal_findings,
    refusal_from,
    written,
)
from providers.kube.objects.instants import format_instant, instant_of
from providers.kube.objects.names import API_VERSION, TERMINATION_FINALIZER
from providers.kube.objects.node_patches import taint_object
from providers.kube.objects.nodes import taint_of
from providers.kube.objects.pod_sets import amounts_object
from providers.kube.objects.shapes import JsonObject, Wire, WireCondition, WireMeta, WireTaint, set_fields

KIND: Final = "NodeClaim"


class _Launch(Wire, frozen=True):
    group: str
    lot: int
    size: int


class _ClaimSpec(Wire, frozen=True):
    node_pool: str
    pool_hash: str
    instance_type: str
    zone: str
    capacity_type: CapacityType
    usd_per_hour: float
    launch: _Launch
    created_at: str | None = None
    gang: str = ""
    replaces: list[str] | None = None
    also_for: list[str] | None = None
    resources: dict[str, str | int] | None = None
    layout: str = ""
    startup_taints: list[WireTaint] | None = None
    reservation: str = ""
    charged_usd_per_hour: float | None = None
    purpose: str = ""
    adopts: str = ""


class _Disruption(Wire, frozen=True):
    reason: str = ""
    message: str = ""
    at: str | None = None
    deadline: str | None = None


class _FormerCut(Wire, frozen=True):
    layout: str = ""
    resources: dict[str, str | int] | None = None
    gpu_cuts: list[dict[str, int]] | None = None


class _CutOrder(Wire, frozen=True):
    reason: str = ""
    message: str = ""
    since: str | None = None
    began_at: str | None = None
    asked_at: str | None = None
    tries: int = 0
    former: str = ""
    before: _FormerCut | None = None


class _MachineEvent(Wire, frozen=True):
    at: str | None = None
    what: str = ""
    message: str = ""


class _ClaimStatus(Wire, frozen=True):
    state: str = ""
    instance_id: str = ""
    node: str = ""
    layout: str = ""
    resources: dict[str, str | int] | None = None
    launched_at: str | None = None
    registered_at: str | None = None
    ready_at: str | None = None
    emptied_at: str | None = None
    recut_at: str | None = None
    gpu_cuts: list[dict[str, int]] | None = None
    cut: _CutOrder | None = None
    advised_at: str | None = None
    disruption: _Disruption | None = None
    gpu_conditions: list[_MachineEvent] | None = None
    history: list[_MachineEvent] | None = None
    capacity_type: CapacityType | None = None
    reservation: str = ""
    usd_per_hour: float = 0.0
    charged_usd_per_hour: float | None = None
    conditions: list[WireCondition] | None = None


class _NodeClaim(Wire, frozen=True):
    metadata: WireMeta
    spec: _ClaimSpec
    status: _ClaimStatus | None = None


_decoder = msgspec.json.Decoder(_NodeClaim)


def claim_object(claim: Claim) -> JsonObject:
    """The NodeClaim as it is created. Its finalizer keeps it until the machine is known to be gone."""
    pool = claim.capacity_pool
    labels = {
        NODE_POOL: claim.node_pool,
        LAUNCH_GROUP: claim.launch.group,
        INSTANCE_TYPE: pool.instance_type,
        ZONE: pool.zone,
        CAPACITY_TYPE: pool.capacity_type,
    }
    spec = {
        "nodePool": claim.node_pool,
        "poolHash": claim.pool_hash,
        "instanceType": pool.instance_type,
        "zone": pool.zone,
        "capacityType": pool.capacity_type,
        "usdPerHour": claim.price_usd_h,
        "launch": {"group": claim.launch.group, "lot": claim.launch.lot, "size": claim.launch.size},
        "createdAt": format_instant(claim.created_at_s),
    } | set_fields(
        gang=claim.gang,
        replaces=list(claim.replaces),
        alsoFor=list(claim.also_for),
        resources=amounts_object(claim.resources),
        layout=claim.layout,
        reservation=pool.reservation,
        purpose=claim.purpose,
        adopts=claim.adopts,
    )
    spec |= _charged(claim)
    if claim.startup_taints is not None:  # none at all is told as well: older agents do not tell
        spec["startupTaints"] = [taint_object(taint) for taint in claim.startup_taints]
    metadata = {"name": claim.name, "labels": labels, "finalizers": [TERMINATION_FINALIZER]}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def claim_status(claim: Claim, now_s: float, previous: Sequence[Condition] = (), generation: int = 0) -> JsonObject:
    """The body that records what became of a claim, for server-side apply to the status subresource.

    `layout` and `resources` stand here too: a re-cut changes them, the specification never changes. So do capacity type
    and prices, which the end of a reservation changes.
    """
    pool = claim.capacity_pool
    status = {
        "state": str(claim.state),
        "capacityType": pool.capacity_type,
        "usdPerHour": claim.price_usd_h,
        "conditions": written(claim_findings(claim), previous, now_s, generation),
    } | set_fields(
        layout=claim.layout,
        resources=amounts_object(claim.resources),
        instanceId=claim.instance_id,
        node=claim.node,
        launchedAt=_stamp(claim.launched_at_s),
        registeredAt=_stamp(claim.registered_at_s),
        readyAt=_stamp(claim.ready_at_s),
        emptiedAt=_stamp(claim.emptied_at_s),
        recutAt=_stamp(claim.recut_at_s),
        gpuCuts=[dict(profiles) for profiles in claim.gpu_cuts],
        cut=_cut_object(claim.cut),
        advisedAt=_stamp(claim.advised_at_s),
        disruption=_disruption_object(claim.disruption),
        gpuConditions=[_event_object(it) for it in claim.gpu_conditions],
        history=[_event_object(it) for it in claim.history],
        reservation=pool.reservation,
    )
    status |= _charged(claim)
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": claim.name}, "status": status}


def forget_patch(raw: JsonObject) -> list[JsonObject]:
    """The JSON patch that takes our finalizer away and leaves others; empty when it is not there any more."""
    metadata = raw["metadata"]
    finalizers = metadata.get("finalizers") or []
    if TERMINATION_FINALIZER not in finalizers:
        return []
    kept = [finalizer for finalizer in finalizers if finalizer != TERMINATION_FINALIZER]
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata["uid"]},
        {"op": "test", "path": "/metadata/finalizers", "value": finalizers},
        {"op": "replace", "path": "/metadata/finalizers", "value": kept},
    ]


NODE_NOT_READY: Final = "NodeNotReady"
"""Reason of the condition Ready of a claim that is well but for its node."""


def claim_findings(claim: Claim) -> tuple[Finding, ...]:
    """Karpenter's vocabulary (`nodeclaim_status.go`); Disrupted and Drifted only where they apply."""
    findings = [
        Finding("Launched", bool(claim.launched_at_s), *_told(claim.launched_at_s, "Launched", "AwaitingLaunch")),
        Finding("Registered", bool(claim.registered_at_s), *_told(claim.registered_at_s, "Registered", "AwaitingNode")),
        Finding("Initialized", bool(claim.ready_at_s), *_told(claim.ready_at_s, "Initialized", "AwaitingResources")),
        _ready(claim),
    ]
    if claim.disruption is not None:
        findings.append(Finding("Disrupted", True, claim.disruption.reason, claim.disruption.message))
        if claim.disruption.reason == Reason.DRIFTED:
            findings.append(Finding("Drifted", True, Reason.DRIFTED, claim.disruption.message))
    if claim.cut is not None and claim.cut.reason:
        findings.append(Finding(claim.cut.reason, True, claim.cut.reason, claim.cut.message))
    findings += [Finding(it.what, True, "GpuFault", it.message) for it in claim.gpu_conditions]
    return (*findings, *failure_findings(claim.failure), *refusal_findings(claim.refused))


_MESSAGES: Final = {
    "AwaitingLaunch": "No machine is known to have been bought yet",
    "AwaitingNode": "The machine has not joined the cluster yet",
    "AwaitingResources": "The node is not ready, keeps a start-up taint, or lacks a resource that it was bought for",
}


def _told(at_s: float, done: str, waiting: str) -> tuple[str, str]:
    return (done, "") if at_s else (waiting, _MESSAGES[waiting])


def _ready(claim: Claim) -> Finding:
    """As of a Node: it takes pods now. Karpenter's says that the claim was initialised once."""
    if claim.state is ClaimState.READY and claim.disruption is None and claim.node_ready:
        return Finding("Ready", True, "Ready")
    if claim.state is ClaimState.READY and claim.disruption is None:
        return Finding("Ready", False, NODE_NOT_READY, f"Node {claim.node} is not ready")
    if claim.disruption is not None:
        return Finding("Ready", False, claim.disruption.reason, claim.disruption.message)
    return Finding("Ready", False, str(claim.state), f"The claim is {claim.state}")


def decode_claim(raw: bytes | Raw) -> Claim:
    """The claim a NodeClaim records."""
    found = _decoder.decode(raw)
    meta, spec = found.metadata, found.spec
    status = found.status or _ClaimStatus()
    conditions = conditions_of(status.conditions)
    ready = find(conditions, "Ready")
    # A status that was ever written has a state, and then its layout and resources count, also when there are none.
    present = status if status.state else spec
    bought = status if status.state and status.capacity_type else spec
    return Claim(
        name=meta.name,
        uid=meta.uid,
        node_pool=spec.node_pool,
        pool_hash=spec.pool_hash,
        capacity_pool=CapacityPool(
            bought.capacity_type or spec.capacity_type, spec.instance_type, spec.zone, bought.reservation
        ),
        price_usd_h=bought.usd_per_hour,
        list_usd_h=bought.charged_usd_per_hour,
        launch=Launch(spec.launch.group, spec.launch.lot, spec.launch.size),
        created_at_s=instant_of(spec.created_at),
        gang=spec.gang,
        purpose=spec.purpose,
        replaces=tuple(spec.replaces or ()),
        also_for=tuple(spec.also_for or ()),
        adopts=spec.adopts,
        resources=canonical_resources(present.resources or {}),
        layout=present.layout,
        startup_taints=_taints(spec.startup_taints),
        instance_id=status.instance_id or spec.adopts,
        node=status.node,
        launched_at_s=instant_of(status.launched_at or (spec.created_at if spec.adopts else None)),
        registered_at_s=instant_of(status.registered_at),
        ready_at_s=instant_of(status.ready_at),
        emptied_at_s=instant_of(status.emptied_at),
        recut_at_s=instant_of(status.recut_at),
        gpu_cuts=tuple(status.gpu_cuts or ()),
        cut=_cut(status.cut),
        advised_at_s=instant_of(status.advised_at),
        node_ready=ready is None or ready.reason != NODE_NOT_READY,
        deleting=meta.deletion_timestamp is not None,
        disruption=_disruption(status.disruption),
        gpu_conditions=tuple(_event(it) for it in (status.gpu_conditions or ())[:MOST_EVENTS]),
        history=tuple(_event(it) for it in (status.history or ())[-MOST_EVENTS:]),
        failure=failure_from(conditions),
        refused=refusal_from(conditions),
    )


def _disruption_object(disruption: NodeDisruption | None) -> JsonObject | None:
    if disruption is None:
        return None
    deadline = {} if disruption.deadline_s == inf else {"deadline": format_instant(disruption.deadline_s)}
    at = format_instant(disruption.at_s)
    return {"reason": disruption.reason, "message": plain(disruption.message), "at": at, **deadline}


def _disruption(found: _Disruption | None) -> NodeDisruption | None:
    if found is None:
        return None
    deadline_s = inf if found.deadline is None else instant_of(found.deadline)
    return NodeDisruption(found.reason, found.message, instant_of(found.at), deadline_s)


def _event_object(event: MachineEvent) -> JsonObject:
    return {"at": format_instant(event.at_s), "what": event.what, "message": plain(event.message)}


def _event(found: _MachineEvent) -> MachineEvent:
    return MachineEvent(instant_of(found.at), found.what, found.message)


def _cut_object(cut: CutOrder | None) -> JsonObject | None:
    if cut is None:
        return None
    stamps = set_fields(beganAt=_stamp(cut.began_s), askedAt=_stamp(cut.asked_at_s))
    told = {"message": plain(cut.message), "since": format_instant(cut.since_s)}
    return (
        told
        | stamps
        | set_fields(reason=cut.reason, tries=cut.tries, former=cut.former, before=_before_object(cut.before))
    )


def _before_object(before: FormerCut | None) -> JsonObject | None:
    if before is None:
        return None
    return set_fields(
        layout=before.layout,
        resources=amounts_object(before.gpus),
        gpuCuts=[dict(profiles) for profiles in before.cuts],
    )


def _cut(found: _CutOrder | None) -> CutOrder | None:
    if found is None:
        return None
    since_s, began_s, asked_s = instant_of(found.since), instant_of(found.began_at), instant_of(found.asked_at)
    before = None
    if (was := found.before) is not None:
        before = FormerCut(was.layout, canonical_resources(was.resources or {}), tuple(was.gpu_cuts or ()))
    return CutOrder(found.reason, found.message, since_s, began_s, asked_s, max(0, found.tries), found.former, before)


def _taints(found: Sequence[WireTaint] | None) -> tuple[Taint, ...] | None:
    return None if found is None else tuple(taint_of(it.key, it.value or "", it.effect) for it in found)


def _charged(claim: Claim) -> JsonObject:
    return {} if claim.list_usd_h is None else {"chargedUsdPerHour": claim.list_usd_h}


def _stamp(epoch_s: float) -> str:
    return format_instant(epoch_s) if epoch_s else ""
