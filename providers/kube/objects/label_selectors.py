"""`meta/v1` LabelSelector <-> `PodSelector`: one list of requirements, as the API server merges label keys into it."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

from fleet.snapshot.constraints import PodSelector
from model.upstream.selectors import LabelSelectorRequirement
from providers.kube.objects.shapes import JsonObject, Wire


class WireLabelRequirement(Wire, frozen=True, forbid_unknown_fields=True):
    """One requirement of a selector, of labels or of fields."""

    key: str
    operator: str
    values: list[str] | None = None


class WireSelector(Wire, frozen=True, forbid_unknown_fields=True):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[WireLabelRequirement] | None = None

    @property
    def keys(self) -> Iterable[str]:
        """The labels it looks at."""
        return (*(self.match_labels or ()), *(one.key for one in self.match_expressions or ()))


def pod_selector(found: WireSelector) -> PodSelector:
    """The requirements, each once, those of `matchLabels` first, by key. ValueError for what no API server takes."""
    equal = ((key, "In", (value,)) for key, value in sorted((found.match_labels or {}).items()))
    others = ((one.key, one.operator, tuple(one.values or ())) for one in found.match_expressions or ())
    return tuple(dict.fromkeys(label_requirement(*each) for each in (*equal, *others)))


def with_label_keys(
    selector: PodSelector, keys: Iterable[str] | None, operator: str, labels: Mapping[str, str]
) -> PodSelector:
    """The selector with a requirement on the pod's own value of each key that it has, unless that is there already.

    Source: `pkg/registry/core/pod/strategy.go` (applyLabelKeysToLabelSelector); pods that are stored have it merged.
    """
    added = (label_requirement(key, operator, (labels[key],)) for key in keys or () if key in labels)
    for requirement in added:
        if requirement not in selector:
            selector = (*selector, requirement)
    return selector


@lru_cache(maxsize=4096)
def label_requirement(key: str, operator: str, values: tuple[str, ...]) -> LabelSelectorRequirement:
    """One requirement; equal ones are one object. ValueError for a malformed one."""
    return LabelSelectorRequirement.model_validate({"key": key, "operator": operator, "values": values})


def selector_object(selector: PodSelector | None) -> JsonObject:
    """A LabelSelector; an empty one selects everything."""
    if not selector:
        return {}
    expressions = [
        {"key": one.key, "operator": one.operator} | ({"values": list(one.values)} if one.values else {})
        for one in selector
    ]
    return {"matchExpressions": expressions}
