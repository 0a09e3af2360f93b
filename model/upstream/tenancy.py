"""`Cohort`, `LocalQueue`, `WorkloadPriorityClass` and `AdmissionCheck` of Kueue: the tree and what leads to it.

`v1beta1` and `v1beta2` write these alike, but for `AdmissionCheck.spec.retryDelayMinutes`, which only `v1beta1` has and
nothing reads.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, Strict, model_validator

from model.kinds import API_VERSION, PriorityClass
from model.kinds.base import Spec
from model.kinds.errors import unsupported
from model.kinds.tenancy import PriorityClassSpec
from model.upstream.base import (
    KUEUE_GROUP,
    FairSharing,
    KueueVersion,
    NamespacedMeta,
    Subdomain,
    UpstreamKind,
    Weight,
    own_metadata,
)
from model.upstream.cluster_queue import StopPolicy
from model.upstream.quotas import ResourceGroups, check_limits


class CohortSpec(Spec):
    """An inner node of the quota tree."""

    parent_name: Subdomain | None = None
    """The `Cohort` (or `Team`) above; one not declared has no quota of its own. Unset = a root."""
    resource_groups: ResourceGroups = ()
    """Quota on top of what the children bring."""
    fair_sharing: FairSharing = FairSharing.unsaid()
    """Place among the siblings when what is idle is shared out."""

    @model_validator(mode="after")
    def _limits(self) -> Self:
        check_limits(self.resource_groups, has_parent=self.parent_name is not None, parent_key="parentName")
        return self


class Cohort(UpstreamKind):
    """A group of ClusterQueues and cohorts that share quota."""

    api_version: KueueVersion
    kind: Literal["Cohort"] = "Cohort"
    spec: CohortSpec = CohortSpec.unsaid()


class LocalFairSharing(Spec):
    """Place among the LocalQueues of its ClusterQueue."""

    weight: Weight = 1.0
    """Share relative to the others where usage orders the ClusterQueue; 0 = after all others, else more than 1e-9."""


class LocalQueueSpec(Spec):
    """The ClusterQueue behind it."""

    cluster_queue: Subdomain
    """Where its workloads wait."""
    stop_policy: StopPolicy = "None"
    """Hold: admit nothing new from here. HoldAndDrain: also evict what runs."""
    fair_sharing: LocalFairSharing = LocalFairSharing.unsaid()
    """Place among the LocalQueues of its ClusterQueue."""


class LocalQueue(UpstreamKind):
    """The name by which jobs of a namespace reach a ClusterQueue."""

    api_version: KueueVersion
    kind: Literal["LocalQueue"] = "LocalQueue"
    metadata: NamespacedMeta
    spec: LocalQueueSpec

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class WorkloadPriorityClass(UpstreamKind):
    """A priority that jobs name with `kueue.x-k8s.io/priority-class`."""

    api_version: KueueVersion
    kind: Literal["WorkloadPriorityClass"] = "WorkloadPriorityClass"
    value: Annotated[int, Strict(), Field(ge=-(2**31), le=2**31 - 1)]
    """Higher goes first."""
    description: str = ""
    """When to use it."""


def priority_class(upstream: WorkloadPriorityClass) -> PriorityClass:
    """Returns the PriorityClass of ours that says the same: whom it may evict is up to the queues."""
    spec = {name: getattr(upstream, name) for name in ("value", "description") if name in upstream.model_fields_set}
    return PriorityClass.model_construct(
        api_version=API_VERSION,
        kind="PriorityClass",
        metadata=own_metadata(upstream.metadata),
        spec=PriorityClassSpec.model_construct(**spec),
    )


class CheckParameters(Spec):
    """An object that configures a check."""

    api_group: str
    """Its API group."""
    kind: str
    """Its kind."""
    name: Subdomain
    """Its name."""


class AdmissionCheckSpec(Spec):
    """Who decides, and with what configuration."""

    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"retryDelayMinutes": "remove it: the check's own controller says when to try again"}
    )

    controller_name: Annotated[str, Field(min_length=1)]
    """The controller that sets the state of this check on Workloads; it runs apart from Muster."""
    parameters: CheckParameters | None = None
    """What that controller reads."""

    @model_validator(mode="after")
    def _runs_apart(self) -> Self:
        if self.controller_name.partition("/")[0] == KUEUE_GROUP:
            reason = f"{self.controller_name!r} is a part of Kueue itself, which does not run here"
            raise unsupported(("controllerName",), reason, _ADVICE.get(self.controller_name, "remove the check"))
        return self


_ADVICE = {
    f"{KUEUE_GROUP}/provisioning-request": "remove the check: machines are bought before a workload is admitted",
    f"{KUEUE_GROUP}/multikueue": "remove the check: one agent runs one cluster",
}


class AdmissionCheck(UpstreamKind):
    """Something besides quota that must be ready before a workload starts; an extension point for other controllers."""

    api_version: KueueVersion
    kind: Literal["AdmissionCheck"] = "AdmissionCheck"
    spec: AdmissionCheckSpec
