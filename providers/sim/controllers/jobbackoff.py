"""When a Job may try again: failures since its last success, and how long after the last of them a new pod waits.

After kube-controller-manager `job/backoff_utils.go`. Ends of pods are stamps of whole seconds, so a wait counts from
the full second before the failure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from providers.sim.controllers.objects import Obj, condition_of, instant, status_of


@dataclass(frozen=True, slots=True)
class BackoffOptions:
    """The first wait, which doubles with every failure, and the longest one."""

    base_s: float = 10.0
    cap_s: float = 600.0

    def over_at(self, failures: int, last_at: float) -> float:
        """When a new pod may be made."""
        return last_at + min(self.cap_s, self.base_s * 2.0 ** min(failures - 1, 20)) if failures else -inf


@dataclass(frozen=True, slots=True)
class JobBackoff:
    """Failures since the last success, and the end of the last one (UTC epoch seconds)."""

    failures: int = 0
    last_at: float = -inf

    def after(self, succeeded: Iterable[Obj], failed: Iterable[Obj]) -> "JobBackoff":
        """As it stands after so many more pods ended."""
        successes = sorted(map(finished_at, succeeded))
        failures = sorted(map(finished_at, failed))
        if successes:
            later = [at for at in failures if at > successes[-1]]
            return JobBackoff(len(later), later[-1]) if later else JobBackoff()
        return JobBackoff(self.failures + len(failures), failures[-1]) if failures else self


def finished_at(pod: Obj) -> float:
    """The end of a pod: of its last container, else since when it is not ready, else its deletion."""
    statuses = status_of(pod).get("containerStatuses") or ()
    ends = [((c.get("state") or {}).get("terminated") or {}).get("finishedAt") for c in statuses]
    if ends and all(ends):
        return max(map(instant, ends))
    ready, metadata = condition_of(pod, "Ready"), pod["metadata"]
    if ready is not None and ready["status"] == "False" and ready.get("lastTransitionTime"):
        return instant(ready["lastTransitionTime"])
    if metadata.get("deletionTimestamp"):
        return instant(metadata["deletionTimestamp"]) - float(metadata.get("deletionGracePeriodSeconds") or 0)
    return instant(metadata["creationTimestamp"])
