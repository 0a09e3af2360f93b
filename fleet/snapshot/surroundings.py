"""What else of the cluster decides about work: namespaces, the priorities pods may have, and PodDisruptionBudgets."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from model.upstream.selectors import LabelSelector


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace; selectors of queues look at its labels."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodPriority:
    """A PriorityClass of the cluster, which pods name (`scheduling.k8s.io`); ours are for gangs (`model.kinds`)."""

    name: str
    value: int
    preempts: bool = True
    """False where its `preemptionPolicy` is Never."""
    default: bool = False
    """Whether pods that name none have it (`globalDefault`)."""


@dataclass(frozen=True, slots=True)
class PodBudget:
    """A PodDisruptionBudget and what its controller has last counted."""

    namespace: str
    name: str
    selector: LabelSelector | None
    """An empty one selects every pod of the namespace, None selects none."""
    disruptions_allowed: int = 0
    counted: bool = True
    """Whether the count is of the budget as it now stands; one that is older allows nothing."""
    unready_may_go: bool = False
    """Whether pods that are not ready leave whatever it counts (`unhealthyPodEvictionPolicy: AlwaysAllow`)."""
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
