"""Defines what else of the cluster decides about work: namespaces, PriorityClasses, PodDisruptionBudgets, quotas."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from model.kinds import Toleration
from model.quantity import Resources
from model.upstream.selectors import LabelSelector


@dataclass(frozen=True, slots=True)
class Namespace:
    """A `Namespace` with its labels, which selectors of queues look at."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodPriority:
    """A `PodPriority` is a PriorityClass of the cluster, for pods (`scheduling.k8s.io`); ours are for gangs."""

    name: str
    value: int
    preempts: bool = True
    """False where its `preemptionPolicy` is Never."""
    default: bool = False
    """Whether pods that name no class get it (`globalDefault`)."""


def by_name_or_default(found: Mapping[str, PodPriority]) -> Mapping[str, PodPriority]:
    """Returns the classes by name, and that of pods which name none under the empty one.

    Of several defaults the lowest counts (Kubernetes' admission plug-in Priority).
    """
    defaults = [priority for priority in found.values() if priority.default]
    lowest = min(defaults, key=lambda priority: (priority.value, priority.name), default=None)
    return {**found, "": lowest} if lowest else found


@dataclass(frozen=True, slots=True)
class RuntimeClass:
    """A `RuntimeClass` adds to what its pods ask. The API server applies it to pods, so templates do not show it."""

    name: str
    overhead: Resources = field(default_factory=dict)
    """What the runtime takes beside the containers of each pod (`overhead.podFixed`)."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class PodBudget:
    """A `PodBudget` is a PodDisruptionBudget with the count that its controller last wrote."""

    namespace: str
    name: str
    selector: LabelSelector | None
    """Selector of its pods; an empty one selects every pod of the namespace, None selects none."""
    disruptions_allowed: int = 0
    counted: bool = True
    """Whether the count is of the budget's present generation; an older count allows nothing."""
    unready_may_go: bool = False
    """Whether pods that are not ready may be evicted regardless of the count (`unhealthyPodEvictionPolicy:
    AlwaysAllow`)."""
    trouble: str = ""
    """Why its controller cannot count (condition `DisruptionAllowed`, reason `SyncFailed`); then it allows nothing."""

    @property
    def key(self) -> str:
        """Returns `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def allows(self) -> int:
        """Returns how many of its pods may be disrupted now."""
        return self.disruptions_allowed if self.counted else 0


@dataclass(frozen=True, slots=True)
class HardFence:
    """A `HardFence` is the ResourceQuota by which a namespace is fenced, as far as it concerns the agent."""

    namespace: str
    uid: str = ""
    hard: Resources = field(default_factory=dict)
    """Resource -> the most that pods may request of it in all, of what the agent has written and nobody changed."""
    ours: bool = False
    """Whether the agent has written any of it; else somebody else has made a quota of this name."""
    shared: bool = False
    """Whether others have written bounds of their own into it."""


class QuotaScope(NamedTuple):
    """A `QuotaScope` tells the pods that a quota counts from others (`scopes`, `scopeSelector.matchExpressions`)."""

    name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NamespaceQuota:
    """A `NamespaceQuota` is a ResourceQuota as far as it bounds pods: what is in force of it, and what is used."""

    namespace: str
    name: str
    hard: Resources
    """By the quota's own names (`requests.cpu`, `pods`), canonical."""
    used: Resources = field(default_factory=dict)
    scopes: tuple[QuotaScope, ...] = ()
    """All of them hold for a pod that counts."""

    @property
    def key(self) -> str:
        """Returns `namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class NamespaceQuotas:
    """`NamespaceQuotas` are the ResourceQuotas of a cluster, and what they need to know of its pods."""

    by_namespace: Mapping[str, tuple[NamespaceQuota, ...]] = field(default_factory=dict)
    """Those that bound pods, sorted by name."""
    default_class: str = ""
    """PriorityClass that the API server gives pods which name none."""


NO_QUOTAS: Final = NamespaceQuotas()
