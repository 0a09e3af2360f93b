"""How a Deployment moves from one ReplicaSet to the next: counts, as values.

Source: `pkg/controller/deployment/util/deployment_util.go`, `rolling.go`, `sync.go` (proportional scaling).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from providers.sim.controllers.apps.base import counted, replicas_of, share_of
from providers.sim.controllers.objects import Obj, annotations_of, status_of

REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MOST = "deployment.kubernetes.io/max-replicas"
HASH = "pod-template-hash"
_NEVER = 2**31 - 1


@dataclass(frozen=True, slots=True)
class DeploymentWork:
    """The spec of a Deployment with its defaults filled in."""

    replicas: int
    recreates: bool
    max_surge: int
    max_unavailable: int
    min_ready_s: int
    history_limit: int
    deadline_s: int | None
    """None: progress may take any time."""
    paused: bool

    @classmethod
    def of(cls, deployment: Obj) -> "DeploymentWork":
        """Read a Deployment."""
        spec, replicas = deployment["spec"], replicas_of(deployment)
        strategy = spec.get("strategy") or {}
        recreates = strategy.get("type") == "Recreate"
        surge, unavailable = (0, 0) if recreates else _fenceposts(strategy.get("rollingUpdate") or {}, replicas)
        deadline_s, limit = spec.get("progressDeadlineSeconds"), spec.get("revisionHistoryLimit")
        return cls(
            replicas=replicas,
            recreates=recreates,
            max_surge=surge,
            max_unavailable=min(unavailable, replicas),
            min_ready_s=int(spec.get("minReadySeconds") or 0),
            history_limit=_NEVER if limit is None else int(limit),
            deadline_s=None if deadline_s in (None, _NEVER) else int(deadline_s),
            paused=bool(spec.get("paused")),
        )

    @property
    def most(self) -> int:
        """The most pods there may be at once."""
        return self.replicas + self.max_surge

    @property
    def least_available(self) -> int:
        """The fewest that should be available at any time."""
        return self.replicas - self.max_unavailable


def _fenceposts(rolling: Mapping[str, int | str], replicas: int) -> tuple[int, int]:
    """Surge rounds up, unavailability down; where both would be nothing, one may be unavailable."""
    surge = share_of(rolling.get("maxSurge"), replicas, "25%", up=True)
    unavailable = share_of(rolling.get("maxUnavailable"), replicas, "25%", up=False)
    return surge, unavailable if surge or unavailable else 1


def revision_of(obj: Obj) -> int:
    """The revision that an annotation tells; 0 without one."""
    text = annotations_of(obj).get(REVISION, "")
    return int(text) if text.isdecimal() else 0


def asked_of(sets: Iterable[Obj]) -> int:
    """How many pods these ReplicaSets ask for together."""
    return sum(replicas_of(one) for one in sets)


def seen_of(sets: Iterable[Obj], what: str) -> int:
    """What their statuses count together."""
    return sum(counted(one, what) for one in sets)


def active(sets: Iterable[Obj]) -> list[Obj]:
    """Those that ask for pods."""
    return [one for one in sets if replicas_of(one) > 0]


def by_age(sets: Iterable[Obj]) -> list[Obj]:
    """The oldest first."""
    return sorted(sets, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))


@dataclass(slots=True)
class RolloutSets:
    """The ReplicaSets of a Deployment: the one of its template, if there is one yet, and those before."""

    new: Obj | None
    old: list[Obj] = field(default_factory=list)

    @property
    def all(self) -> list[Obj]:
        """Old ones first."""
        return [*self.old, *([] if self.new is None else [self.new])]

    def wanted_of_new(self, work: DeploymentWork, replicas: int) -> int:
        """How many pods the new one, which asks for `replicas`, should ask for."""
        if work.recreates or replicas > work.replicas:
            return work.replicas
        room = work.most - asked_of(self.old) - replicas
        return replicas + max(0, min(room, work.replicas - replicas))

    def shrunk(self, work: DeploymentWork) -> dict[str, int]:
        """Old ReplicaSets that give up pods now -> how many they keep: first those that are not available."""
        old = by_age(active(self.old))
        lacking = 0 if self.new is None else replicas_of(self.new) - counted(self.new, "availableReplicas")
        most = asked_of(self.all) - work.least_available - lacking
        if not old or most <= 0:
            return {}
        sizes, spared = {one["metadata"]["name"]: replicas_of(one) for one in old}, dict[str, int]()
        for one in old:
            name, unhealthy = one["metadata"]["name"], replicas_of(one) - counted(one, "availableReplicas")
            taken = min(most, max(0, unhealthy))
            most -= taken
            spared[name] = sizes[name] - taken
        surplus = seen_of(self.all, "availableReplicas") - work.least_available
        for one in old:
            name = one["metadata"]["name"]
            taken = min(spared[name], max(0, surplus))
            surplus -= taken
            spared[name] -= taken
        return {name: size for name, size in spared.items() if size != sizes[name]}


def latest_or_only(sets: RolloutSets) -> Obj | None:
    """The only one that asks for pods; the new, or else the youngest, where none does; None where several do."""
    found = active(sets.all)
    if len(found) > 1:
        return None
    if found:
        return found[0]
    return sets.new or (by_age(sets.old)[-1] if sets.old else None)


def is_saturated(work: DeploymentWork, new: Obj | None) -> bool:
    """Whether the new one is all that is wanted, and available."""
    if new is None or annotations_of(new).get(DESIRED) != str(work.replicas):
        return False
    return replicas_of(new) == work.replicas == counted(new, "availableReplicas")


def proportional(work: DeploymentWork, sets: RolloutSets, seen: int) -> dict[str, int]:
    """The sizes of several active ReplicaSets when a Deployment is scaled amidst a roll-out.

    `seen`: the replicas that its status tells. Each grows by its share, the largest takes what rounding leaves.
    """
    found = by_age(active(sets.all))
    change = (work.most if work.replicas else 0) - asked_of(found)
    if change > 0:
        found.reverse()  # of equals the newer grows first, the older shrinks first
    found.sort(key=replicas_of, reverse=True)
    sizes, done = {}, 0
    for one in found:
        share = _share(work, one, seen) if change else 0
        left = change - done
        taken = min(share, left) if change > 0 else max(share, left)
        sizes[one["metadata"]["name"]] = replicas_of(one) + taken
        done += taken
    if found and change:
        first = found[0]["metadata"]["name"]
        sizes[first] = max(0, sizes[first] + change - done)
    return sizes


def _share(work: DeploymentWork, one: Obj, seen: int) -> int:
    held = replicas_of(one)
    if not work.replicas:
        return -held
    text = annotations_of(one).get(MOST, "")
    before = int(text) if text.isdecimal() and int(text) else seen
    return int(held * work.most / before + 0.5) - held if before else 0


def is_complete(work: DeploymentWork, status: Obj, generation: int) -> bool:
    """Whether a status tells that all pods are of the new template and available, and no others are left."""
    numbers = (status.get(name) or 0 for name in ("updatedReplicas", "replicas", "availableReplicas"))
    return all(number == work.replicas for number in numbers) and (status.get("observedGeneration") or 0) >= generation


def has_progressed(deployment: Obj, status: Obj) -> bool:
    """Whether a status tells of more new, ready or available pods than the Deployment's, or of fewer old ones."""
    before = status_of(deployment)

    def old_ones(of: Obj) -> int:
        return (of.get("replicas") or 0) - (of.get("updatedReplicas") or 0)

    grown = any(
        (status.get(name) or 0) > (before.get(name) or 0)
        for name in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )
    return grown or old_ones(status) < old_ones(before)
