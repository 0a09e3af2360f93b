"""`ClusterQueue` of Kueue, in both versions that are served.

What `v1beta1` writes differently is converted to `v1beta2` when it is read:

| v1beta1 | v1beta2 |
|---|---|
| `spec.cohort` | `spec.cohortName` |
| `spec.flavorFungibility.whenCanBorrow: Borrow` | `MayStopSearch` |
| `spec.flavorFungibility.whenCanPreempt: Preempt` | `MayStopSearch` |
| `spec.admissionChecks: [a]` | `spec.admissionChecksStrategy.admissionChecks: [{name: a}]` |

Rules and defaults are those of Kueue v0.19 (its CRD and its webhook). What is immutable there cannot be told from one
revision and is not checked.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, Strict, model_validator

from model.kinds.base import Spec
from model.kinds.errors import misplaced
from model.upstream.base import KUEUE_API_VERSION, FairSharing, Subdomain, UpstreamKind
from model.upstream.quotas import ResourceGroups, check_lending, check_limits
from model.upstream.selectors import LabelSelector

StopPolicy = Literal["None", "Hold", "HoldAndDrain"]
_MOST_CHECKS = 64


class BorrowWithinCohort(Spec):
    """Whether a workload that itself borrows may evict others of the cohort."""

    policy: Literal["Never", "LowerPriority"] = "Never"
    """Whose workloads."""
    max_priority_threshold: Annotated[int, Strict(), Field(ge=-(2**31), le=2**31 - 1)] | None = None
    """Only workloads of at most this priority; unset = any lower one."""


class ClusterQueuePreemption(Spec):
    """Whose running workloads may be evicted for one of this queue."""

    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    """Workloads of the same queue."""
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    """Taking back nominal quota from queues that borrow it."""
    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort.unsaid()
    """Whether a workload that itself borrows may evict others of the cohort."""

    @model_validator(mode="after")
    def _borrowers_reclaim(self) -> Self:
        if self.reclaim_within_cohort == "Never" and self.borrow_within_cohort.policy != "Never":
            message = "must be Never while reclaimWithinCohort is Never"
            raise misplaced(("borrowWithinCohort", "policy"), message)
        return self


class _Fungibility(Spec):
    when_can_borrow: str
    when_can_preempt: str
    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] = "BorrowingOverPreemption"
    """Which of two flavors is better; only when both fields above are `TryNextFlavor`."""

    @model_validator(mode="after")
    def _preference_has_a_choice(self) -> Self:
        tries_all = self.when_can_borrow == self.when_can_preempt == "TryNextFlavor"
        if "preference" in self.model_fields_set and not tries_all:
            message = (
                "needs whenCanBorrow and whenCanPreempt to be TryNextFlavor: else the first flavor may end the search"
            )
            raise misplaced(("preference",), message)
        return self


class FlavorFungibility(_Fungibility):
    """When to go on to the next flavor."""

    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor"] = "MayStopSearch"
    """A flavor that fits by borrowing: take it, or look further."""
    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor"] = "TryNextFlavor"
    """A flavor that fits by evicting: take it, or look further."""


class FlavorFungibilityV1Beta1(_Fungibility):
    """When to go on to the next flavor, with the older names beside the current ones."""

    when_can_borrow: Literal["Borrow", "MayStopSearch", "TryNextFlavor"] = "Borrow"
    """A flavor that fits by borrowing: take it (`Borrow` or `MayStopSearch`), or look further."""
    when_can_preempt: Literal["Preempt", "MayStopSearch", "TryNextFlavor"] = "TryNextFlavor"
    """A flavor that fits by evicting: take it (`Preempt` or `MayStopSearch`), or look further."""


class AdmissionCheckRule(Spec):
    """A check and the flavors it is for."""

    name: Subdomain
    """An `AdmissionCheck`."""
    on_flavors: Annotated[tuple[Subdomain, ...], Field(max_length=_MOST_CHECKS)] = ()
    """Only workloads given one of these flavors wait for it; empty = all."""


def _each_check_once(checks: tuple[AdmissionCheckRule, ...]) -> tuple[AdmissionCheckRule, ...]:
    seen: set[str] = set()
    for index, check in enumerate(checks):
        if check.name in seen:
            raise misplaced((index, "name"), f"{check.name!r} is listed twice")
        seen.add(check.name)
    return checks


class AdmissionChecksStrategy(Spec):
    """What must be ready, besides quota, before a workload starts."""

    admission_checks: Annotated[
        tuple[AdmissionCheckRule, ...], Field(max_length=_MOST_CHECKS), AfterValidator(_each_check_once)
    ] = ()
    """Checks with the flavors they are for."""


class AdmissionScope(Spec):
    """What the order of the queue looks at first."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]
    """UsageBasedAdmissionFairSharing: the LocalQueue that used less lately goes first, whatever the priority; needs
    `admissionFairSharing` in the FleetPolicy. NoAdmissionFairSharing: priority, then age."""


_CONCURRENT = "remove it: a workload keeps the flavor it was admitted with until it is evicted"


class _ClusterQueueSpec(Spec):
    """What both versions write alike."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType({"concurrentAdmissionPolicy": _CONCURRENT})

    resource_groups: ResourceGroups = ()
    """Quotas; a resource that no group covers cannot be asked for."""
    queueing_strategy: Literal["BestEffortFIFO", "StrictFIFO"] = "BestEffortFIFO"
    """StrictFIFO: nothing passes the head. BestEffortFIFO: a head that cannot run lets later ones pass."""
    namespace_selector: LabelSelector | None = None
    """Namespaces whose workloads are taken; unset = none, `{}` = all."""
    preemption: ClusterQueuePreemption = ClusterQueuePreemption.unsaid()
    """Whose running workloads may be evicted for one of this queue."""
    admission_checks_strategy: AdmissionChecksStrategy = AdmissionChecksStrategy.unsaid()
    """What must be ready, besides quota, before a workload starts."""
    stop_policy: StopPolicy = "None"
    """Hold: admit nothing new. HoldAndDrain: also evict what runs."""
    fair_sharing: FairSharing = FairSharing.unsaid()
    """Place among the siblings when what is idle is shared out."""
    admission_scope: AdmissionScope | None = None
    """What the order of the queue looks at first; unset = priority, then age."""

    @property
    def usage_ordered(self) -> bool:
        """Whether its LocalQueues go in the order of what they used lately."""
        scope = self.admission_scope
        return scope is not None and scope.admission_mode == "UsageBasedAdmissionFairSharing"


class ClusterQueueSpec(_ClusterQueueSpec):
    """Quotas, order and policies of a queue."""

    cohort_name: Subdomain | None = None
    """The `Cohort` (or `Team`) to share with; one not declared has no quota of its own. Unset = share nothing."""
    flavor_fungibility: FlavorFungibility = FlavorFungibility.unsaid()
    """When to go on to the next flavor."""

    @model_validator(mode="after")
    def _limits(self) -> Self:
        check_limits(self.resource_groups, has_parent=self.cohort_name is not None, parent_key="cohortName")
        check_lending(self.resource_groups)
        return self

    def checks_for(self, flavor: str) -> tuple[str, ...]:
        """Names of the admission checks that a workload given `flavor` waits for, in the order they are written."""
        rules = self.admission_checks_strategy.admission_checks
        return tuple(rule.name for rule in rules if not rule.on_flavors or flavor in rule.on_flavors)


class ClusterQueueSpecV1Beta1(_ClusterQueueSpec):
    """Quotas, order and policies of a queue."""

    cohort: Subdomain | None = None
    """`cohortName` of `v1beta2`."""
    flavor_fungibility: FlavorFungibilityV1Beta1 = FlavorFungibilityV1Beta1.unsaid()
    """When to go on to the next flavor."""
    admission_checks: Annotated[tuple[Subdomain, ...], Field(max_length=_MOST_CHECKS)] = ()
    """`admissionChecksStrategy` of `v1beta2` with checks for all flavors; one of the two may be given."""

    @model_validator(mode="after")
    def _limits(self) -> Self:
        check_limits(self.resource_groups, has_parent=self.cohort is not None, parent_key="cohort")
        check_lending(self.resource_groups)
        return self

    @model_validator(mode="after")
    def _checks_in_one_place(self) -> Self:
        for index, name in enumerate(self.admission_checks):
            if name in self.admission_checks[:index]:
                raise misplaced(("admissionChecks", index), f"{name!r} is listed twice")
        if self.admission_checks and self.admission_checks_strategy.admission_checks:
            raise misplaced(("admissionChecks",), "give one of admissionChecks and admissionChecksStrategy")
        return self


class ClusterQueue(UpstreamKind):
    """A queue with quota of its own, as Kueue's `v1beta2` writes it."""

    api_version: Literal["kueue.x-k8s.io/v1beta2"]
    kind: Literal["ClusterQueue"] = "ClusterQueue"
    spec: ClusterQueueSpec = ClusterQueueSpec.unsaid()


class ClusterQueueV1Beta1(UpstreamKind):
    """A queue with quota of its own, as Kueue's `v1beta1` writes it."""

    api_version: Literal["kueue.x-k8s.io/v1beta1"]
    kind: Literal["ClusterQueue"] = "ClusterQueue"
    spec: ClusterQueueSpecV1Beta1 = ClusterQueueSpecV1Beta1.unsaid()


_MODES = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}


def current(old: ClusterQueueV1Beta1) -> ClusterQueue:
    """The same queue as `v1beta2` says it; what was not written stays unwritten."""
    given = old.spec.model_fields_set
    spec: dict[str, Any] = {name: getattr(old.spec, name) for name in given & _ClusterQueueSpec.model_fields.keys()}
    if "cohort" in given:
        spec["cohort_name"] = old.spec.cohort
    if "flavor_fungibility" in given:
        modes = {
            name: getattr(old.spec.flavor_fungibility, name) for name in old.spec.flavor_fungibility.model_fields_set
        }
        spec["flavor_fungibility"] = FlavorFungibility(**{name: _MODES.get(mode, mode) for name, mode in modes.items()})
    if old.spec.admission_checks:
        rules = tuple(AdmissionCheckRule(name=name) for name in old.spec.admission_checks)
        spec["admission_checks_strategy"] = AdmissionChecksStrategy(admission_checks=rules)
    values = {name: getattr(old, name) for name in old.model_fields_set - {"api_version", "spec"}}
    if "spec" in old.model_fields_set:
        values["spec"] = ClusterQueueSpec.model_construct(**spec)
    return ClusterQueue.model_construct(api_version=KUEUE_API_VERSION, **values)
