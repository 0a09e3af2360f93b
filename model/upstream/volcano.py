"""`Queue` of Volcano (`scheduling.volcano.sh/v1beta1`): capacity shared by weight or by what each queue deserves.

The state of a queue (Open, Closed) stands in its `status` and is not declared; an annotation closes one.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, Strict, model_validator

from model.kinds.base import Amounts, Bool, Spec
from model.kinds.errors import misplaced, unsupported
from model.upstream.base import ClusterScopedMeta, Subdomain, UpstreamKind

ROOT = "root"
"""The queue above all others; it need not be declared."""

STOP_POLICY = "muster.dev/stop-policy"
"""Annotation of a queue that is closed: `Hold` (nothing starts) or `HoldAndDrain` (what runs stops, too)."""
_HIERARCHY = ("volcano.sh/hierarchy", "volcano.sh/hierarchy-weights")


class Guarantee(Spec):
    """What is kept for a queue."""

    resource: Amounts = Field(default_factory=dict)
    """Nobody else may use this much, even while it is idle."""


class VolcanoQueueSpec(Spec):
    """Share, bounds and place of a queue."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "affinity": "remove it: say which nodes work may use with a ResourceFlavor, or node selectors of the pods",
            "dequeueStrategy": "remove it: no release of Volcano acts on it",
            "extendClusters": "remove it: one agent runs one cluster",
            "type": "remove it: every queue is filled by the agent",
        }
    )

    weight: Annotated[int, Strict(), Field(ge=1, le=65535)] = 1
    """Share of what is left relative to the siblings."""
    capability: Amounts = Field(default_factory=dict)
    """Most the queue may use; a resource that is not named is not bounded."""
    deserved: Amounts = Field(default_factory=dict)
    """What the queue gets back from others when it asks."""
    guarantee: Guarantee = Guarantee.unsaid()
    """What is kept for the queue."""
    reclaimable: Bool = True
    """Whether others may take back what the queue uses above its share."""
    parent: Subdomain = ROOT
    """The queue above."""
    priority: Annotated[int, Strict(), Field(ge=-(2**31), le=2**31 - 1)] = 0
    """Queues of higher priority are served first."""

    @model_validator(mode="after")
    def _within_the_capability(self) -> Self:
        promised = ((("deserved",), self.deserved), (("guarantee", "resource"), self.guarantee.resource))
        for path, amounts in promised:
            for resource, amount in amounts.items():
                if amount > self.capability.get(resource, amount):
                    raise misplaced((*path, resource), f"is more than the capability of {resource!r}")
        return self


class VolcanoQueue(UpstreamKind):
    """A queue of Volcano, which calls the kind `Queue`."""

    api_version: Literal["scheduling.volcano.sh/v1beta1"]
    kind: Literal["Queue"] = "Queue"
    metadata: ClusterScopedMeta
    spec: VolcanoQueueSpec = VolcanoQueueSpec.unsaid()

    @model_validator(mode="after")
    def _hierarchy_by_parent(self) -> Self:
        for key in _HIERARCHY:
            if key in self.metadata.annotations:
                reason = "a hierarchy by annotations is not supported"
                raise unsupported(("metadata", "annotations", key), reason, "name the queue above in spec.parent")
        return self

    @model_validator(mode="after")
    def _known_stop_policy(self) -> Self:
        said = self.metadata.annotations.get(STOP_POLICY, "None")
        if said not in {"None", "Hold", "HoldAndDrain"}:
            raise misplaced(("metadata", "annotations", STOP_POLICY), f"is {said!r}: None, Hold or HoldAndDrain")
        return self

    @property
    def stop_policy(self) -> str:
        """Whether the queue is closed: `None`, `Hold` or `HoldAndDrain`."""
        return self.metadata.annotations.get(STOP_POLICY, "None")

    @property
    def parent(self) -> str | None:
        """The queue above; None for the root."""
        return None if self.name == ROOT else self.spec.parent
