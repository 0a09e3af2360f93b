"""`Team`, `Queue` and `PriorityClass`: who may use how much, where work waits, and what goes first."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, Strict, model_validator

from model.kinds.base import NEVER, Amounts, Bool, Deletion, Duration, Kind, Name, Namespace, Spec


class FlavorQuota(Spec):
    """Quota of one flavor. A resource that no quota of the tree names is not limited."""

    guaranteed: Amounts
    """Kueue's nominal quota: the team gets this much whenever it asks."""
    borrowing_limit: Amounts | None = None
    """Most it may use above the guarantee, per resource; unset = whatever is idle."""
    lending_limit: Amounts | None = None
    """Most of the guarantee that others may use while it is idle; unset = all of it."""

    @model_validator(mode="after")
    def _limits_name_guaranteed(self) -> Self:
        for limit in (self.borrowing_limit, self.lending_limit):
            if extra := sorted(set(limit or {}) - set(self.guaranteed)):
                raise ValueError(f"a limit for {extra[0]} needs a guaranteed amount (0 is one)")
        return self


class TeamBudget(Spec):
    """What a team may spend in a calendar month (UTC); work waits when it is used up."""

    usd_per_month: Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
    """Cost of the nodes its gangs hold, by share."""


class TeamSpec(Spec):
    """A node of the quota tree, its namespaces and its guarantees."""

    parent: Name | None = None
    """The team (cohort) above; teams without a parent share nothing with each other."""
    namespaces: tuple[Namespace, ...] = ()
    """Namespaces whose jobs may use this team's queues; a namespace belongs to one team."""
    quotas: dict[str, FlavorQuota] = Field(default_factory=dict)
    """Flavor name -> quota."""
    weight: Annotated[float, Strict(), Field(gt=0, le=1e6)] = 1.0
    """Share of borrowed capacity relative to the siblings, for queues with `fairness: DominantShare`."""
    priority_classes: tuple[Name, ...] = ()
    """Classes its jobs may name; empty = all."""
    budget: TeamBudget | None = None
    """Unset = no bound."""
    default_queue: Name | None = None
    """The queue, one of this team, of jobs in its namespaces that name none."""
    ordinary_pods_queue: Name | None = None
    """The queue, one of this team, whose quota ordinary pods in its namespaces take; unset = they take none. Machines
    are bought for them within it, and of its flavors. kube-scheduler asks no quota before it binds a pod."""
    manage_jobs_without_queue_name: Bool = False
    """Whether jobs in its namespaces that name no queue, and have no default one, are suspended until they name one."""
    hard_fence: Bool = False
    """Whether a ResourceQuota in each of its namespaces bounds what pods there request, those that pass beside the
    queues as well, by the most that the team may use."""
    deletion: Deletion = "Delete"
    """Whether taking this declaration away is enough. Confirm: a revision that does is refused, unless an earlier one
    said `Delete`, or its commit has the trailer `Muster-Confirm-Deletion: team/<name>`."""

    @model_validator(mode="after")
    def _about_namespaces(self) -> Self:
        said = {
            "defaultQueue": self.default_queue,
            "manageJobsWithoutQueueName": self.manage_jobs_without_queue_name,
            "ordinaryPodsQueue": self.ordinary_pods_queue,
        }
        if not self.namespaces and (about := next((name for name, value in said.items() if value), "")):
            raise ValueError(f"{about} is about work in the team's namespaces, and it has none")
        return self

    @model_validator(mode="after")
    def _fenced(self) -> Self:
        if self.hard_fence and not self.namespaces:
            raise ValueError("hardFence is about pods in the team's namespaces, and it has none")
        if self.hard_fence and not any(quota.guaranteed for quota in self.quotas.values()):
            raise ValueError("hardFence bounds what the team's quotas name, and they name nothing")
        return self


class Team(Kind):
    """A group of people with guaranteed capacity, and a node of the quota tree."""

    plural: ClassVar[str] = "teams"

    kind: Literal["Team"] = "Team"
    spec: TeamSpec


class PreemptionPolicy(Spec):
    """Whose running gangs may be evicted for a gang of this queue."""

    within_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "LowerPriority"
    """Gangs of the same queue."""
    reclaim: Literal["Never", "LowerPriority", "Any"] = "Any"
    """Taking back the team's guarantee from teams that borrow it."""
    while_borrowing: Literal["Never", "LowerPriority"] = "Never"
    """Whether a gang that itself borrows may evict gangs of lower priority elsewhere."""
    move_others: Bool = True
    """Whether running gangs may be moved elsewhere, so that a gang finds a place where they stood."""


class PodsReady(Spec):
    """How long a gang may be without all of its pods, and what becomes of it then (Kueue's `waitForPodsReady`)."""

    start_timeout: Duration = 1800.0
    """From admission until all pods must be ready; then it leaves and is queued again."""
    recovery_timeout: Duration = 300.0
    """From the loss of a pod until all must be ready again."""
    backoff_base: Duration = 60.0
    """Pause after the first time-out, doubled each time."""
    backoff_max: Duration = 3600.0
    """Longest pause."""
    backoff_limit: Annotated[int, Strict(), Field(ge=0, le=2**31 - 1)] | None = None
    """So many times it is queued again; the next time-out deactivates it. Unset = for ever."""


IDLE_AFTER_S = 3600.0
_LEAST_IDLE_S = 60.0


class IdleGpuPolicy(Spec):
    """How long a gang may hold GPUs and do nothing with them, by dcgm-exporter (`dcgm` in the agent's settings)."""

    after: Duration = IDLE_AFTER_S
    """For so long without a break, by fresh readings; `Never` = it is not looked at."""
    action: Literal["Warn", "Stop"] = "Warn"
    """Warn: the Workload says so, with an event. Stop: a gang that has done nothing with any of its GPUs leaves and is
    deactivated, as by `muster stop workload`; one that uses some of them is only told of."""

    @model_validator(mode="after")
    def _seen_more_than_once(self) -> Self:
        if self.after < _LEAST_IDLE_S:
            raise ValueError("after is at least 1m: one reading is no idleness")
        if self.action == "Stop" and self.after == NEVER:
            raise ValueError("action: Stop needs a time in after: nobody is idle for longer than Never")
        return self


class QueueFairSharing(Spec):
    """Whoever used less lately goes first: usage-based admission fair sharing between the namespaces of a queue."""

    namespace_weights: dict[Namespace, Annotated[float, Strict(), Field(ge=0, le=1e6)]] = Field(default_factory=dict)
    """Namespace -> its share relative to the others, 1 where it is not named; 0 = after all others."""


class QueueSpec(Spec):
    """Team, order, flavors and policies of a queue."""

    team: Name
    """The team whose quota it uses."""
    flavors: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64)]
    """Tried in this order."""
    order: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    """StrictFIFO: nothing passes the head. BestEffortFIFO: a head that cannot run lets later gangs pass."""
    fairness: Literal["None", "DominantShare", "GuaranteeShare"] = "None"
    """DominantShare: among borrowing queues, the one with the lowest weighted dominant share goes first.
    GuaranteeShare: who is within its guarantee first, then whoever uses the smallest part of its fair share: of its
    guarantee as far as it asks for it and, by weight, its part of what is left."""
    admission_fair_sharing: QueueFairSharing | None = None
    """Gangs of the namespace that used less lately go first, whatever their priority, and leave last. Needs
    `admissionFairSharing` in the FleetPolicy. Unset = by priority, then age."""
    preemption: PreemptionPolicy = PreemptionPolicy.unsaid()
    """Whose running gangs may be evicted for a gang of this queue."""
    protected_run_time: Duration = 0.0
    """A gang is not preempted before it has run this long."""
    reserve_after: Duration | None = None
    """What becomes free is kept for a gang that has waited this long; `Never` = for none. Unset = as each gang says."""
    admission_checks: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    """What others have to answer in a Workload's status, besides quota and machines, before a gang starts."""
    pods_ready: PodsReady = PodsReady.unsaid()
    """How long a gang may be without all of its pods."""
    on_node_failure: Literal["Replace", "Evict"] = "Replace"
    """When a gang loses a node. Replace: only its pods there get another place, if their job makes lost pods anew and
    a place can be had; else, and with Evict, the gang leaves as a whole. A job may say it for itself."""
    idle_gpus: IdleGpuPolicy = IdleGpuPolicy.unsaid()
    """How long its gangs may hold GPUs and do nothing with them, and what becomes of them then."""
    stop_policy: Literal["None", "Hold", "HoldAndDrain"] = "None"
    """Hold: admit nothing new. HoldAndDrain: also evict what runs."""


class Queue(Kind):
    """Where work waits; jobs name it with the label `muster.dev/queue` or `kueue.x-k8s.io/queue-name`."""

    plural: ClassVar[str] = "queues"

    kind: Literal["Queue"] = "Queue"
    spec: QueueSpec


class PriorityClassSpec(Spec):
    """The number that orders gangs, and whether it may evict."""

    value: Annotated[int, Strict(), Field(ge=-2_000_000_000, le=2_000_000_000)]
    """Higher goes first. The class named `default` is that of gangs that name none."""
    preempts: Bool = True
    """Whether its gangs may evict others."""
    preemptible: Bool = True
    """Whether its gangs may be evicted for others, moved or consolidated. Those of `false` stay within what their team
    is guaranteed."""
    description: str = ""
    """When to use it."""


class PriorityClass(Kind):
    """A priority that jobs name with `muster.dev/priority-class` or `kueue.x-k8s.io/priority-class`."""

    plural: ClassVar[str] = "priorityclasses"

    kind: Literal["PriorityClass"] = "PriorityClass"
    spec: PriorityClassSpec
