"""`PodConstraints` -> the fields of a Workload's pod set that hold them, in the spelling of `core/v1`, and back.

Selectors have the label keys of the pod merged in already; namespaces are always spelled out.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Raw, field

from fleet.snapshot.constraints import (
    EphemeralClaim,
    PodAffinityTerm,
    PodConstraints,
    PodHostPort,
    PreferredPods,
    TopologySpreadConstraint,
)
from fleet.snapshot.devices import DeviceAsk, DeviceClaim, MatchAttribute, RequestedDevices
from providers.kube.objects.affinities import PREFERRED, REQUIRED, affinity_and_spread
from providers.kube.objects.amounts import amount_text, exact_amount, raw_bytes
from providers.kube.objects.label_selectors import selector_object
from providers.kube.objects.node_terms import node_term_object
from providers.kube.objects.pod_templates import WireToleration, toleration_object, tolerations_of
from providers.kube.objects.shapes import JsonObject, Wire, set_fields


class _HostPort(Wire, frozen=True):
    host_port: int
    protocol: str = "TCP"
    host_ip: str = field(default="", name="hostIP")


class _EphemeralVolume(Wire, frozen=True):
    name: str
    storage_class_name: str = ""
    claim_name: str = ""


class _DeviceAsk(Wire, frozen=True):
    name: str
    device_class_name: str
    selectors: list[str] | None = None
    count: int = 1
    resource: str = ""
    tolerations: list[WireToleration] | None = None
    every: bool = False
    capacity: dict[str, str | int] | None = None


class _DeviceRequest(Wire, frozen=True):
    name: str
    ways: list[_DeviceAsk] | None = None


class _MatchAttribute(Wire, frozen=True):
    match_attribute: str
    requests: list[str] | None = None
    distinct: bool = False


class _DeviceClaim(Wire, frozen=True):
    name: str
    requests: list[_DeviceRequest] | None = None
    constraints: list[_MatchAttribute] | None = None
    shared: str = ""


class StoredConstraints(Wire, frozen=True):
    """The fields of an entry of `podSets` that hold constraints."""

    affinity: Raw = Raw()
    topology_spread_constraints: Raw = Raw()
    host_ports: list[_HostPort] | None = None
    volume_claims: list[str] | None = None
    ephemeral_volumes: list[_EphemeralVolume] | None = None
    device_claims: list[_DeviceClaim] | None = None


def constraint_fields(asked: PodConstraints) -> JsonObject:
    """The fields that say what pods of a set ask; none where they ask nothing."""
    near = [it for it in asked.preferred_pods if it.weight >= 0]
    far = [PreferredPods(-it.weight, it.term) for it in asked.preferred_pods if it.weight < 0]
    nodes = [{"weight": it.weight, "preference": node_term_object(it.terms)} for it in asked.preferred_nodes]
    affinity = set_fields(
        nodeAffinity=set_fields(**{PREFERRED: nodes}),
        podAffinity=_affinity_object(asked.affinity, near),
        podAntiAffinity=_affinity_object(asked.anti_affinity, far),
    )
    return set_fields(
        affinity=affinity,
        topologySpreadConstraints=[_spread_object(one) for one in asked.spread],
        hostPorts=[_port_object(one) for one in asked.host_ports],
        volumeClaims=list(asked.claims),
        ephemeralVolumes=[
            {"name": one.volume} | set_fields(storageClassName=one.storage_class, claimName=one.claim)
            for one in asked.ephemeral
        ],
        deviceClaims=[_claim_object(claim) for claim in asked.devices],
    )


def constraints_from(found: StoredConstraints, namespace: str) -> PodConstraints:
    """The constraints that the fields hold."""
    read = affinity_and_spread(namespace, raw_bytes(found.affinity), raw_bytes(found.topology_spread_constraints), ())
    kept = read.constraints
    if not (found.host_ports or found.volume_claims or found.ephemeral_volumes or found.device_claims):
        return kept
    return PodConstraints(
        affinity=kept.affinity,
        anti_affinity=kept.anti_affinity,
        spread=kept.spread,
        host_ports=tuple(PodHostPort(it.host_port, it.protocol, it.host_ip) for it in found.host_ports or ()),
        claims=tuple(found.volume_claims or ()),
        ephemeral=tuple(
            EphemeralClaim(it.name, it.storage_class_name, it.claim_name) for it in found.ephemeral_volumes or ()
        ),
        preferred_nodes=kept.preferred_nodes,
        preferred_pods=kept.preferred_pods,
        devices=tuple(_claim_from(claim) for claim in found.device_claims or ()),
    )


def _claim_object(claim: DeviceClaim) -> JsonObject:
    requests = [{"name": it.name, "ways": [_ask_object(ask) for ask in it.asks]} for it in claim.requests]
    constraints = [
        {"matchAttribute": it.attribute} | set_fields(requests=list(it.requests), distinct=it.distinct)
        for it in claim.constraints
    ]
    return {"name": claim.name, "requests": requests} | set_fields(constraints=constraints, shared=claim.shared)


def _ask_object(ask: DeviceAsk) -> JsonObject:
    return {"name": ask.name, "deviceClassName": ask.device_class, "count": ask.count} | set_fields(
        selectors=list(ask.selectors),
        resource=ask.resource,
        tolerations=[toleration_object(it) for it in ask.tolerations],
        every=ask.every,
        capacity={name: amount_text(amount) for name, amount in ask.capacity},
    )


def _claim_from(found: _DeviceClaim) -> DeviceClaim:
    constraints = (
        MatchAttribute(it.match_attribute, tuple(it.requests or ()), it.distinct) for it in found.constraints or ()
    )
    requests = (RequestedDevices(it.name, tuple(map(_ask_from, it.ways or ()))) for it in found.requests or ())
    return DeviceClaim(found.name, tuple(requests), tuple(constraints), found.shared)


def _ask_from(found: _DeviceAsk) -> DeviceAsk:
    return DeviceAsk(
        found.name,
        found.device_class_name,
        tuple(found.selectors or ()),
        found.count,
        found.resource,
        tolerations_of(found.tolerations),
        found.every,
        tuple((name, exact_amount(value)) for name, value in sorted((found.capacity or {}).items())),
    )


def _affinity_object(required: Iterable[PodAffinityTerm], preferred: Iterable[PreferredPods]) -> JsonObject:
    return set_fields(
        **{
            REQUIRED: [_term_object(term) for term in required],
            PREFERRED: [{"weight": it.weight, "podAffinityTerm": _term_object(it.term)} for it in preferred],
        }
    )


def _term_object(term: PodAffinityTerm) -> JsonObject:
    fields: JsonObject = {"topologyKey": term.topology_key} | set_fields(namespaces=sorted(term.namespaces))
    if term.selector is not None:
        fields["labelSelector"] = selector_object(term.selector)
    if term.namespace_selector is not None:
        fields["namespaceSelector"] = selector_object(term.namespace_selector)
    return fields


def _spread_object(constraint: TopologySpreadConstraint) -> JsonObject:
    fields: dict[str, Any] = {
        "topologyKey": constraint.topology_key,
        "maxSkew": constraint.max_skew,
        "whenUnsatisfiable": "DoNotSchedule" if constraint.hard else "ScheduleAnyway",
    }
    if constraint.selector is not None:
        fields["labelSelector"] = selector_object(constraint.selector)
    return fields | set_fields(
        minDomains=constraint.min_domains if constraint.min_domains != 1 else 0,
        nodeAffinityPolicy="" if constraint.honors_affinity else "Ignore",
        nodeTaintsPolicy="Honor" if constraint.honors_taints else "",
    )


def _port_object(port: PodHostPort) -> JsonObject:
    return {"hostPort": port.port, "protocol": port.protocol} | set_fields(hostIP=port.ip)
