"""Pod templates -> what a pod set asks for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice
from sys import intern
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw
from pydantic import ValidationError

from fleet.snapshot import PodSet
from fleet.snapshot.constraints import PodLabels, UnsupportedConstraint
from fleet.snapshot.gangs import ClaimRef
from fleet.snapshot.limit_ranges import PodAmounts
from model.kinds import Toleration
from providers.kube.objects.additions import Additions, without
from providers.kube.objects.amounts import raw_bytes
from providers.kube.objects.names import PLACEMENT_GATE, POD_SET, WORKLOAD
from providers.kube.objects.pod_constraints import ConstrainedSpec, constraints_of, unreadable_volumes
from providers.kube.objects.pod_requests import template_amounts
from providers.kube.objects.refused_fields import (
    SchedulingGate,
    refused_fractions,
    refused_gates,
    refused_group,
    refused_name,
    refused_volumes,
)
from providers.kube.objects.shapes import EMPTY, JsonObject, Wire, interned, set_fields
from providers.kube.objects.topology import wishes_of


class PodTemplateMeta(Wire, frozen=True):
    """Metadata of a template."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class WireToleration(Wire, frozen=True):
    """One toleration."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: int | None = None


class WireResourceClaim(Wire, frozen=True):
    """An entry of a pod's `spec.resourceClaims`."""

    name: str = ""
    resource_claim_template_name: str | None = None
    resource_claim_name: str | None = None


class PodTemplateSpec(ConstrainedSpec, frozen=True):
    """What a pod template says about where its pods may run."""

    node_selector: dict[str, str] | None = None
    tolerations: list[WireToleration] | None = None
    priority_class_name: str | None = None
    active_deadline_seconds: int | None = None
    runtime_class_name: str | None = None
    node_name: str | None = None
    resource_claims: list[WireResourceClaim] | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    scheduling_group: Raw = Raw()


class PodTemplate(Wire, frozen=True):
    """A pod template."""

    metadata: PodTemplateMeta | None = None
    spec: PodTemplateSpec = PodTemplateSpec()

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations, never None."""
        return (self.metadata.annotations if self.metadata else None) or {}

    @property
    def labels(self) -> dict[str, str]:
        """The labels, never None."""
        return (self.metadata.labels if self.metadata else None) or {}


class PodOrigin(NamedTuple):
    """A `PodOrigin` is where pods of a template come from, and with what labels beside those of the template."""

    namespace: str
    labels: Mapping[str, str] = EMPTY
    """Set by the controller that makes the pods, alike on all of them."""
    late: frozenset[str] = frozenset()
    """Keys, or domains, of labels that the controller sets and that cannot be foreseen."""
    made: bool = False
    """Whether the template is a pod, to which admission has added what it adds."""
    refused: tuple[UnsupportedConstraint, ...] = ()
    """What the job asks for its pods beside the template, and what is not honoured."""


_volumes = msgspec.json.Decoder(list[dict[str, Raw]])
_MOST_REFUSED: Final = 16
"""Refused fields of a pod set that are told; one keeps its gang waiting."""
_START_LABELS: Final = frozenset({WORKLOAD, POD_SET})


def pod_set_of(name: str, count: int, template: PodTemplate, additions: Additions, origin: PodOrigin) -> PodSet:
    """Returns `count` pods of `template` as a pod set, without what a start has added (`additions`, labels, gate)."""
    spec, wishes = template.spec, wishes_of(template.annotations)
    labels = _labels(template, origin)
    amounts, created = template_amounts(spec, overhead=origin.made or not spec.runtime_class_name)
    parts = refused_fractions(template.annotations, created.requests)
    read = spec.affinity_and_spread(origin.namespace, labels, origin.late | _START_LABELS)
    return PodSet(
        name=name,
        count=count,
        requests=created.requests,
        node_selector=interned(spec.node_selector) if spec.node_selector else EMPTY,
        required_affinity=read.required_nodes,
        tolerations=_users(spec.tolerations, additions.get(name)),
        namespace=intern(origin.namespace),
        labels=labels,
        constraints=constraints_of(spec, read),
        runtime_class="" if origin.made else spec.runtime_class_name or "",
        unsupported=tuple(
            islice(chain(origin.refused, read.unsupported, parts, _refused(spec, origin)), _MOST_REFUSED)
        ),
        forbidden=() if origin.made else created.forbidden,
        amounts=None if origin.made else _selectable(amounts, spec),
        resource_claims=_claim_refs(spec.resource_claims),
        required_topology=wishes.required,
        preferred_topology=wishes.preferred,
        any_topology=wishes.anywhere,
        slices=wishes.slices,
        group=wishes.group,
    )


def _selectable(amounts: PodAmounts, spec: PodTemplateSpec) -> PodAmounts:
    """Returns the amounts with what ResourceQuotas may select their pods by; pods without any of it share theirs."""
    name, ends = spec.priority_class_name or "", spec.active_deadline_seconds is not None
    return amounts._replace(priority_class=name, has_deadline=ends) if name or ends else amounts


def _claim_refs(claims: Sequence[WireResourceClaim] | None) -> tuple[ClaimRef, ...]:
    """The claims of devices that are made for each pod, and those that it shares."""
    named = ((it.name, it.resource_claim_template_name or "", it.resource_claim_name or "") for it in claims or ())
    return tuple(ClaimRef(f"spec.resourceClaims[{n}]", *names) for n, names in enumerate(named))


_pods = msgspec.json.Decoder(PodTemplate)


def shape_of_pod(raw: bytes | Raw, namespace: str, queue: str = "") -> PodSet:
    """Returns what a pod of no gang asks for, as a pod set of one without a name.

    One that names a `queue` and nevertheless is of no gang is refused: nothing holds it back until it has quota.
    """
    shape = pod_set_of("", 1, _pods.decode(raw), {}, PodOrigin(namespace, made=True))
    return replace(shape, unsupported=(*shape.unsupported, _ungated(queue))) if queue else shape


def _ungated(queue: str) -> UnsupportedConstraint:
    words = (
        f"it names queue {queue} and has no scheduling gate {PLACEMENT_GATE}, so that it cannot wait there; the "
        "component admission-policy puts one into pods of a queue"
    )
    return UnsupportedConstraint("metadata.labels", words)


def _labels(template: PodTemplate, origin: PodOrigin) -> PodLabels:
    """The labels of the pods, without those that tell whose they are: these come at the start."""
    carried = {**template.labels, **origin.labels}
    return tuple(sorted((intern(key), intern(text)) for key, text in carried.items() if key not in _START_LABELS))


def _users(found: list[WireToleration] | None, added: list[JsonObject] | None) -> tuple[Toleration, ...]:
    tolerations = tolerations_of(found)
    return tuple(without(tolerations, _appended(added))) if added else tolerations


def _refused(spec: PodTemplateSpec, origin: PodOrigin) -> Iterator[UnsupportedConstraint]:
    volumes = raw_bytes(spec.volumes)
    yield from refused_gates(spec.scheduling_gates)
    yield from refused_volumes(_volumes.decode(volumes) if volumes else ())
    yield from unreadable_volumes(spec)
    yield from refused_group(raw_bytes(spec.scheduling_group))
    if not origin.made:
        yield from refused_name(spec.node_name)
        if raw_bytes(spec.overhead) and not spec.runtime_class_name:
            yield UnsupportedConstraint("spec.overhead", "no API server takes it without a runtimeClassName")


def tolerations_of(found: list[WireToleration] | None) -> tuple[Toleration, ...]:
    """The tolerations we understand. One with an unknown operator tolerates nothing, which errs on the safe side."""
    read = (
        _toleration(one.key or "", one.operator or "Equal", one.value or "", one.effect or "", one.toleration_seconds)
        for one in found or ()
    )
    return tuple(toleration for toleration in read if toleration is not None)


def toleration_object(toleration: Toleration) -> JsonObject:
    """A `core/v1` toleration."""
    seconds = toleration.toleration_seconds
    return set_fields(
        key=toleration.key, operator=toleration.operator, value=toleration.value, effect=toleration.effect
    ) | ({} if seconds is None else {"tolerationSeconds": seconds})


def _appended(record: list[JsonObject]) -> tuple[Toleration, ...]:
    """What the record of a start names; nothing when somebody has written nonsense into it."""
    try:
        return tolerations_of(msgspec.convert(record, list[WireToleration]))
    except msgspec.ValidationError:
        return ()


@lru_cache(maxsize=4096)
def _toleration(key: str, operator: str, value: str, effect: str, seconds: int | None) -> Toleration | None:
    given = {"key": key, "operator": operator, "value": value, "effect": effect, "toleration_seconds": seconds}
    try:
        return Toleration.model_validate(given)
    except ValidationError:
        return None
