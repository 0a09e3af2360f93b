"""What else of the cluster decides about work: its namespaces, and the priorities its pods may have."""

from collections.abc import Mapping
from dataclasses import dataclass, field


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
