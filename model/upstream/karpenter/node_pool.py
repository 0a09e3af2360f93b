"""`NodePool` of Karpenter, in both versions that were served: which machines may be bought and how they are given back.

| v1beta1 | v1 |
|---|---|
| `spec.template.spec.kubelet` | `kubelet` of the EC2NodeClass |
| `spec.template.spec.nodeClassRef.apiVersion` | `.group` |
| `spec.disruption.consolidationPolicy: WhenUnderutilized` | `WhenEmptyOrUnderutilized`, `consolidateAfter: 0s` |
| `spec.disruption.expireAfter` | `spec.template.spec.expireAfter` |
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, Strict, model_validator
from pydantic.json_schema import WithJsonSchema

from model.kinds.base import (
    NEVER,
    NODES_MAX,
    Amounts,
    Annotations,
    Duration,
    Labels,
    Name,
    NodeCount,
    RequirementTerm,
    Spec,
    Taint,
)
from model.kinds.errors import misplaced, unsupported
from model.kinds.kubelet import Kubelet
from model.upstream.base import ClusterScopedMeta, Subdomain, UpstreamKind

AWS_GROUP = "karpenter.k8s.aws"
_MONTH_S = 720 * 3600.0
_TO_CLASS = "write it in the EC2NodeClass"


def _count_or_percentage(value: Any) -> Any:
    """A count may be written as text, too."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class NodeMeta(ClusterScopedMeta):
    """`metadata` of what nodes are labelled with by name."""

    name: Name
    """Unique within the kind: lower-case letters, digits, `-` and `.`, at most 63."""


class NodeTemplateMeta(Spec):
    """What nodes carry."""

    labels: Labels = Field(default_factory=dict)
    """Node labels, in addition to those every node carries."""
    annotations: Annotations = Field(default_factory=dict)
    """Annotations of the nodes."""


class NodeTaint(Taint):
    """A taint of the nodes."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType({"timeAdded": "remove it: it belongs to nodes"})


class NodeClassRef(Spec):
    """The EC2NodeClass that says what machines are born with."""

    group: Literal["karpenter.k8s.aws"]
    """The group of the class."""
    kind: Literal["EC2NodeClass"]
    """The kind of the class."""
    name: Subdomain
    """The name of the class."""

    @model_validator(mode="before")
    @classmethod
    def _of_ec2(cls, data: object) -> object:
        if isinstance(data, Mapping) and (group := data.get("group", AWS_GROUP)) != AWS_GROUP:
            raise unsupported(("group",), f"node classes of {group} are not supported", f"write {AWS_GROUP}")
        return data


class NodeClassRefV1Beta1(Spec):
    """The EC2NodeClass that says what machines are born with."""

    api_version: Literal["", "karpenter.k8s.aws/v1beta1", "karpenter.k8s.aws/v1"] = ""
    """The version of the class; any does."""
    kind: Literal["", "EC2NodeClass"] = ""
    """The kind of the class."""
    name: Subdomain
    """The name of the class."""


class _NodeClaimFields(Spec):
    """What both versions say of every machine of the pool."""

    requirements: Annotated[tuple[RequirementTerm, ...], Field(max_length=100)]
    """Conditions on the labels of a machine; `karpenter.sh/capacity-type` says how it is paid for."""
    taints: tuple[NodeTaint, ...] = ()
    """Taints that stay."""
    startup_taints: tuple[NodeTaint, ...] = ()
    """Taints that something on the node removes when it is ready."""


class NodeClaimSpec(_NodeClaimFields):
    """Every machine of the pool."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"kubelet": _TO_CLASS, "resources": "remove it: what work asks for is known from the work"}
    )

    node_class_ref: NodeClassRef
    """The EC2NodeClass that says what machines are born with."""
    expire_after: Duration = _MONTH_S
    """Age at which a node is replaced."""
    termination_grace_period: Duration = NEVER
    """How long a drain may take before pods are removed by force."""


class NodeClaimSpecV1Beta1(_NodeClaimFields):
    """Every machine of the pool."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"resources": "remove it: what work asks for is known from the work"}
    )

    node_class_ref: NodeClassRefV1Beta1
    """The EC2NodeClass that says what machines are born with."""
    kubelet: Kubelet = Kubelet.unsaid()
    """Settings of the kubelet."""


class NodeClaimTemplate(Spec):
    """Every machine of the pool."""

    metadata: NodeTemplateMeta = NodeTemplateMeta.unsaid()
    """What nodes carry."""
    spec: NodeClaimSpec
    """Which machines they are."""


class NodeClaimTemplateV1Beta1(Spec):
    """Every machine of the pool."""

    metadata: NodeTemplateMeta = NodeTemplateMeta.unsaid()
    """What nodes carry."""
    spec: NodeClaimSpecV1Beta1
    """Which machines they are."""


class KarpenterBudget(Spec):
    """How many nodes may be disrupted at once."""

    nodes: Annotated[
        NodeCount | Annotated[str, Field(pattern=r"^(100|[0-9]{1,2})%$")],
        BeforeValidator(_count_or_percentage),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "integer", "minimum": 0, "maximum": NODES_MAX},
                    {"type": "string", "pattern": "^((100|[0-9]{1,2})%|[0-9]+)$"},
                ]
            }
        ),
    ]
    """A count, or a percentage of the pool's nodes, rounded up."""
    schedule: str = ""
    """Cron (five fields, UTC) at which the window opens."""
    duration: Duration | None = None
    """How long the window stays open."""

    @model_validator(mode="after")
    def _window(self) -> Self:
        if bool(self.schedule) != (self.duration is not None):
            raise ValueError("schedule and duration go together")
        return self


class KarpenterBudgetV1(KarpenterBudget):
    """How many nodes may be disrupted at once, and why."""

    reasons: Annotated[tuple[Literal["Underutilized", "Empty", "Drifted"], ...], Field(max_length=50)] = ()
    """Empty = all of them."""


class KarpenterDisruption(Spec):
    """When nodes are given back or replaced."""

    consolidation_policy: Literal["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"] = "WhenEmptyOrUnderutilized"
    """Whether only empty nodes are given back, or also nodes whose work fits elsewhere for less."""
    consolidate_after: Duration = 0.0
    """Quiet time since the last pod came or went before a node counts as idle."""
    budgets: Annotated[tuple[KarpenterBudgetV1, ...], Field(max_length=50)] = (KarpenterBudgetV1(nodes="10%"),)
    """All that apply hold at once; unset = one budget of `10%`."""


class KarpenterDisruptionV1Beta1(Spec):
    """When nodes are given back or replaced."""

    consolidation_policy: Literal["WhenEmpty", "WhenUnderutilized"] = "WhenUnderutilized"
    """Whether only empty nodes are given back, or also nodes whose work fits elsewhere for less."""
    consolidate_after: Duration | None = None
    """With `WhenEmpty`: quiet time before a node counts as idle."""
    expire_after: Duration = _MONTH_S
    """Age at which a node is replaced."""
    budgets: Annotated[tuple[KarpenterBudget, ...], Field(max_length=50)] = (KarpenterBudget(nodes="10%"),)
    """All that apply hold at once; unset = one budget of `10%`."""

    @model_validator(mode="after")
    def _after_when_empty(self) -> Self:
        empty = self.consolidation_policy == "WhenEmpty"
        if empty and self.consolidate_after is None:
            raise ValueError("consolidationPolicy: WhenEmpty needs consolidateAfter")
        if not empty and self.consolidate_after is not None:
            raise misplaced(("consolidateAfter",), "goes with consolidationPolicy: WhenEmpty only")
        return self


class KarpenterNodePoolSpec(Spec):
    """Machines, bounds and disruption."""

    template: NodeClaimTemplate
    """Every machine of the pool."""
    disruption: KarpenterDisruption = KarpenterDisruption.unsaid()
    """When nodes are given back or replaced."""
    limits: Amounts = Field(default_factory=dict)
    """Upper bounds of what the whole pool may hold at once, `nodes` among them."""
    weight: Annotated[int, Strict(), Field(ge=1, le=100)] | None = None
    """Pools are tried heaviest first; unset = last."""
    replicas: NodeCount | None = None
    """A fixed pool: this many machines, always."""

    @model_validator(mode="after")
    def _fixed_pool(self) -> Self:
        if self.replicas is None:
            return self
        if self.weight is not None:
            raise misplaced(("weight",), "a pool with replicas has no weight")
        if others := sorted(self.limits.keys() - {"nodes"}):
            raise misplaced(("limits", others[0]), "a pool with replicas is limited in nodes only")
        return self


class KarpenterNodePoolSpecV1Beta1(Spec):
    """Machines, bounds and disruption."""

    template: NodeClaimTemplateV1Beta1
    """Every machine of the pool."""
    disruption: KarpenterDisruptionV1Beta1 = KarpenterDisruptionV1Beta1.unsaid()
    """When nodes are given back or replaced."""
    limits: Amounts = Field(default_factory=dict)
    """Upper bounds of what the whole pool may hold at once."""
    weight: Annotated[int, Strict(), Field(ge=1, le=100)] | None = None
    """Pools are tried heaviest first; unset = last."""


class KarpenterNodePool(UpstreamKind):
    """Machines that may be bought, as Karpenter says it; with its EC2NodeClass it becomes a NodePool of ours."""

    api_version: Literal["karpenter.sh/v1"]
    kind: Literal["NodePool"] = "NodePool"
    metadata: NodeMeta
    spec: KarpenterNodePoolSpec


class KarpenterNodePoolV1Beta1(UpstreamKind):
    """Machines that may be bought, as Karpenter said it before v1."""

    api_version: Literal["karpenter.sh/v1beta1"]
    kind: Literal["NodePool"] = "NodePool"
    metadata: NodeMeta
    spec: KarpenterNodePoolSpecV1Beta1
