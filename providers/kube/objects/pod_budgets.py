"""`policy/v1` PodDisruptionBudget -> `PodBudget`."""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Raw

from fleet.snapshot import PodBudget
from model.upstream.selectors import LabelSelector, LabelSelectorRequirement
from providers.kube.objects.shapes import Wire, WireCondition, WireMeta

_SYNC_FAILED: Final = "SyncFailed"
_ALWAYS: Final = "AlwaysAllow"


class _LabelExpression(Wire, frozen=True):
    key: str
    operator: str
    values: list[str] | None = None


class _Selector(Wire, frozen=True):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_LabelExpression] | None = None


class _BudgetSpec(Wire, frozen=True):
    selector: _Selector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class _BudgetStatus(Wire, frozen=True):
    disruptions_allowed: int = 0
    observed_generation: int = 0
    conditions: list[WireCondition] | None = None


class _PodDisruptionBudget(Wire, frozen=True):
    metadata: WireMeta
    spec: _BudgetSpec = _BudgetSpec()
    status: _BudgetStatus = _BudgetStatus()


_decoder = msgspec.json.Decoder(_PodDisruptionBudget)


def decode_pod_budget(raw: bytes | Raw) -> PodBudget:
    """A budget. Its percentages and minima are its controller's business, which says what they allow now."""
    found = _decoder.decode(raw)
    meta, spec, status = found.metadata, found.spec, found.status
    return PodBudget(
        meta.namespace,
        meta.name,
        _selector(spec.selector),
        status.disruptions_allowed,
        counted=status.observed_generation >= meta.generation,
        unready_may_go=spec.unhealthy_pod_eviction_policy == _ALWAYS,
        trouble=_trouble(status.conditions or ()),
    )


def _selector(found: _Selector | None) -> LabelSelector | None:
    if found is None:
        return None
    terms = [
        {"key": term.key, "operator": term.operator, "values": term.values or ()}
        for term in found.match_expressions or ()
    ]
    return LabelSelector(
        match_labels=found.match_labels or {},
        match_expressions=tuple(map(LabelSelectorRequirement.model_validate, terms)),
    )


def _trouble(conditions: Sequence[WireCondition]) -> str:
    failed = (it.message for it in conditions if it.type == "DisruptionAllowed" and it.reason == _SYNC_FAILED)
    return next(failed, "")
