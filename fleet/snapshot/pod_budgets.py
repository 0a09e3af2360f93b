"""PodDisruptionBudgets (`policy/v1`), as far as they say who may be asked to leave now."""

from dataclasses import dataclass

from model.upstream.selectors import LabelSelector


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
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def allows(self) -> int:
        """How many of its pods may go now."""
        return self.disruptions_allowed if self.counted else 0
