"""`LabelSelector` of `meta/v1`: which namespaces may send work to a ClusterQueue."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from model.kinds.base import LabelKey, Labels, LabelValue, Spec
from model.kinds.errors import misplaced


class LabelSelectorRequirement(Spec):
    """A condition on one label."""

    key: LabelKey
    """The label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """`NotIn` and `DoesNotExist` are met where the label is absent."""
    values: tuple[LabelValue, ...] = ()
    """At least one for `In` and `NotIn`, none for `Exists` and `DoesNotExist`."""

    @model_validator(mode="after")
    def _values_suit(self) -> Self:
        if self.operator in {"In", "NotIn"} and not self.values:
            raise ValueError(f"{self.operator} needs at least one value")
        if self.operator in {"Exists", "DoesNotExist"} and self.values:
            raise misplaced(("values",), f"{self.operator} takes no values")
        return self

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with `labels` meets the condition."""
        present = self.key in labels
        if self.operator in {"Exists", "DoesNotExist"}:
            return present == (self.operator == "Exists")
        return (present and labels[self.key] in self.values) == (self.operator == "In")


class LabelSelector(Spec):
    """All conditions hold at once; without any, everything matches."""

    match_labels: Labels = Field(default_factory=dict)
    """Label -> the value it must have."""
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
    """Further conditions."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with `labels` is selected."""
        equal = all(labels.get(key) == value for key, value in self.match_labels.items())
        return equal and all(requirement.matches(labels) for requirement in self.match_expressions)
