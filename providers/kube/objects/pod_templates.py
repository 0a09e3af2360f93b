"""Pod templates -> what a pod set asks for."""

from functools import lru_cache
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from fleet.snapshot import PodSet
from model.kinds import RequirementTerm, Toleration
from model.labels import HOSTNAME
from providers.kube.objects.additions import Additions, without
from providers.kube.objects.pod_requests import PodResources, requests_of
from providers.kube.objects.shapes import EMPTY, JsonObject, Wire, interned
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


class _NodeExpression(Wire, frozen=True):
    key: str
    operator: str
    values: list[str] | None = None


class _Term(Wire, frozen=True):
    match_expressions: list[_NodeExpression] | None = None
    match_fields: list[_NodeExpression] | None = None


class _NodeSelector(Wire, frozen=True):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(Wire, frozen=True):
    required_during_scheduling_ignored_during_execution: _NodeSelector | None = None


class _Affinity(Wire, frozen=True):
    node_affinity: _NodeAffinity | None = None


class PodTemplateSpec(PodResources, frozen=True):
    """What a pod template says about where its pods may run."""

    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    tolerations: list[WireToleration] | None = None
    priority_class_name: str | None = None


class PodTemplate(Wire, frozen=True):
    """A pod template."""

    metadata: PodTemplateMeta | None = None
    spec: PodTemplateSpec = PodTemplateSpec()

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations, never None."""
        return (self.metadata.annotations if self.metadata else None) or {}


_NOWHERE: Final = (RequirementTerm(key=HOSTNAME, operator="DoesNotExist"),)


def pod_set_of(name: str, count: int, template: PodTemplate, additions: Additions) -> PodSet:
    """Returns `count` pods of `template` as a pod set, without what a start has appended (`additions`)."""
    spec, wishes = template.spec, wishes_of(template.annotations)
    tolerations = tolerations_of(spec.tolerations)
    if added := additions.get(name):
        tolerations = tuple(without(tolerations, _appended(added)))
    return PodSet(
        name=name,
        count=count,
        requests=requests_of(spec),
        node_selector=interned(spec.node_selector) if spec.node_selector else EMPTY,
        required_affinity=_required(spec.affinity),
        tolerations=tolerations,
        required_topology=wishes.required,
        preferred_topology=wishes.preferred,
        any_topology=wishes.anywhere,
        slices=wishes.slices,
        group=wishes.group,
    )


def tolerations_of(found: list[WireToleration] | None) -> tuple[Toleration, ...]:
    """The tolerations we understand. One with an unknown operator tolerates nothing, which errs on the safe side."""
    read = (
        _toleration(one.key or "", one.operator or "Equal", one.value or "", one.effect or "", one.toleration_seconds)
        for one in found or ()
    )
    return tuple(toleration for toleration in read if toleration is not None)


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


def _required(affinity: _Affinity | None) -> tuple[tuple[RequirementTerm, ...], ...]:
    """Required node affinity. An empty term matches no node (`core/v1` NodeSelectorTerm); fields read as labels."""
    node = affinity.node_affinity if affinity else None
    required = node.required_during_scheduling_ignored_during_execution if node else None
    if required is None:
        return ()
    terms = tuple(_conjunction(term) for term in required.node_selector_terms or ())
    return tuple(term for term in terms if term) or (_NOWHERE,)


def _conjunction(term: _Term) -> tuple[RequirementTerm, ...]:
    expressions = (*(term.match_expressions or ()), *(term.match_fields or ()))
    return tuple(requirement_of(one.key, one.operator, tuple(one.values or ())) for one in expressions)


@lru_cache(maxsize=4096)
def requirement_of(key: str, operator: str, values: tuple[str, ...]) -> RequirementTerm:
    """One requirement on a node label; equal ones are one object. ValueError for an unknown operator."""
    given: dict[str, Any] = {"key": key, "operator": operator, "values": values}
    return RequirementTerm.model_validate(given)
