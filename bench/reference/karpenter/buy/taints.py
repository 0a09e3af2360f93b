"""Tolerations as the provisioner sees them: a PreferNoSchedule taint repels too, until that wish is relaxed."""

from collections.abc import Iterable

from model.kinds import Taint, Toleration


def tolerated(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """Whether every taint, whatever its effect, is tolerated."""
    known = tuple(tolerations)
    return all(any(each.tolerates(taint) for each in known) for taint in taints)
