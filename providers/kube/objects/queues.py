"""`Queue` and `NodePool` objects: what git declares, mirrored for `kubectl`, and a status nobody needs to write."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from fleet.snapshot import CapacityPool
from model.kinds import CapacityType, Kind, NodePool, Queue
from model.labels import GPU_RESOURCE, MIG_RESOURCE_PREFIX, SHARED_GPU_RESOURCE
from model.plain_text import plain
from model.quantity import Resources, format_amount
from providers.kube.objects.conditions import Condition, written
from providers.kube.objects.instants import instant_of, whole_instant
from providers.kube.objects.names import API_VERSION, REVISION
from providers.kube.objects.pod_sets import amounts_object
from providers.kube.objects.reports import DriftReport, FlavorUsage, NodePoolReport, QueueReport
from providers.kube.objects.shapes import JsonObject, Wire, set_fields


def queue_object(queue: Queue, revision: str) -> JsonObject:
    """The mirror of a declared queue; `revision` says where it was declared."""
    return _mirror(queue, revision)


def node_pool_object(pool: NodePool, revision: str) -> JsonObject:
    """The mirror of a declared pool; `revision` says where it was declared."""
    return _mirror(pool, revision)


def _mirror(declared: Kind, revision: str) -> JsonObject:
    spec: Any = declared.model_dump(mode="json", by_alias=True, exclude_defaults=True).get("spec", {})
    return {
        "apiVersion": API_VERSION,
        "kind": declared.kind,
        "metadata": {"name": declared.name, "annotations": {REVISION: revision}},
        "spec": spec,
    }


def queue_status(
    report: QueueReport, now_s: float, previous: Sequence[Condition] = (), generation: int = 0
) -> JsonObject:
    """The body for server-side apply to a Queue's status."""
    status = {
        "pending": report.pending,
        "reserving": report.reserving,
        "admitted": report.admitted,
        "gpus": _gpus(report.usage),
        "usage": [_usage_object(usage) for usage in sorted(report.usage, key=lambda it: (it.flavor, it.resource))],
        "conditions": written(report.findings, previous, now_s, generation),
    }
    return {"apiVersion": API_VERSION, "kind": "Queue", "metadata": {"name": report.name}, "status": status}


def _usage_object(usage: FlavorUsage) -> JsonObject:
    amounts = {"quota": usage.quota, "used": usage.used, "borrowed": usage.borrowed}
    quantities = {name: format_amount(usage.resource, amount) for name, amount in amounts.items()}
    return {"flavor": usage.flavor, "resource": usage.resource, **quantities}


def _gpus(usage: Sequence[FlavorUsage]) -> str:
    """Whole GPUs in use of those guaranteed, `12/16`."""
    whole = [one for one in usage if one.resource == GPU_RESOURCE]
    return f"{sum(one.used for one in whole)}/{sum(one.quota for one in whole)}" if whole else ""


def node_pool_status(
    report: NodePoolReport, now_s: float, previous: Sequence[Condition] = (), generation: int = 0
) -> JsonObject:
    """The body for server-side apply to a NodePool's status."""
    bounds = {"nodes": report.limit_nodes, "usdPerHour": report.limit_usd_per_hour}
    limits = {name: bound for name, bound in bounds.items() if bound is not None}
    status = {
        "nodes": report.nodes,
        "ready": report.ready,
        "usdPerHour": round(report.usd_per_hour, 4),
        "resources": amounts_object(report.resources),
        "limits": limits | set_fields(resources=amounts_object(report.limit_resources)),
        "gpus": report.gpus,
        "conditions": written(report.findings, previous, now_s, generation),
    } | set_fields(
        slices=slices_text(report.resources),
        shortages=[_shortage_object(*entry) for entry in sorted(report.shortages.items())],
        drifted=[_drift_object(each) for each in report.drifted],
        pricedAt=whole_instant(report.priced_at_s) if report.priced_at_s else "",
    )
    return {"apiVersion": API_VERSION, "kind": "NodePool", "metadata": {"name": report.name}, "status": status}


def slices_text(resources: Resources) -> str:
    """What GPUs are divided into, by name: `112 mig-1g.10gb, 16 gpu.shared`; empty where they are whole."""
    divided = [
        f"{amount} {name.partition('/')[2]}"
        for name, amount in sorted(resources.items())
        if amount and name.startswith((MIG_RESOURCE_PREFIX, SHARED_GPU_RESOURCE))
    ]
    return ", ".join(divided)


def _shortage_object(pool: CapacityPool, until_s: float) -> JsonObject:
    where = {"instanceType": pool.instance_type, "zone": pool.zone, "capacityType": pool.capacity_type}
    return {**where, "until": whole_instant(until_s)}


def _drift_object(found: DriftReport) -> JsonObject:
    told = {"reason": found.reason, "message": plain(found.message), "nodes": found.nodes}
    return {**told, "nodeClaims": list(found.claims)}


class _Drift(Wire, frozen=True):
    reason: str
    message: str
    node_claims: list[str]


class _Shortage(Wire, frozen=True):
    instance_type: str
    zone: str
    capacity_type: CapacityType
    until: str


class _PoolStatus(Wire, frozen=True):
    shortages: list[_Shortage] | None = None
    priced_at: str | None = None
    drifted: list[_Drift] | None = None


class _NodePool(Wire, frozen=True):
    status: _PoolStatus | None = None


_pool_decoder = msgspec.json.Decoder(_NodePool)


def decode_market(raw: bytes | Raw) -> tuple[Mapping[CapacityPool, float], float]:
    """Shortages, and the age of the prices (epoch seconds, 0 = not said), as a NodePool's status tells them."""
    status = _pool_decoder.decode(raw).status or _PoolStatus()
    short = {
        CapacityPool(each.capacity_type, each.instance_type, each.zone): instant_of(each.until)
        for each in status.shortages or ()
    }
    return short, instant_of(status.priced_at)


def decode_drifted(raw: bytes | Raw) -> Mapping[str, tuple[str, str]]:
    """Claim -> reason and words of how its machine differs, as a NodePool's status tells them."""
    status = _pool_decoder.decode(raw).status or _PoolStatus()
    return {name: (each.reason, each.message) for each in status.drifted or () for name in each.node_claims}
