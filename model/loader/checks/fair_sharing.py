"""Order by use: what asks for it needs to be told how use is remembered, and what says how needs somebody to ask."""

from collections.abc import Iterator

from model.hints import did_you_mean, listing
from model.kinds import Declaration, FleetPolicy
from model.loader.declarations import Declarations, Declared
from model.loader.tree import Path
from model.problem import Code, Problem

_MODE: Path = ("spec", "admissionScope", "admissionMode")
_SHARING: Path = ("spec", "admissionFairSharing")
_COUNTED_IN_BYTES = ("memory", "ephemeral-storage")


def use_not_remembered(declarations: Declarations) -> Iterator[Problem]:
    """Queues ordered by use while nothing says how it is remembered (in Kueue: a mode that silently does nothing)."""
    policy = _policy(declarations)
    if policy is not None and policy.value.spec.admission_fair_sharing is not None:
        return
    if not declarations.complete or any(kind == "FleetPolicy" for kind, _ in declarations.broken):
        return
    if policy is None:
        hint = "declare a FleetPolicy with spec.admissionFairSharing: {usageHalfLifeTime: 168h}"
    else:
        hint = f"add admissionFairSharing: {{usageHalfLifeTime: 168h}} to the FleetPolicy at {policy.place}"
    for queue, path in _ordered_by_use(declarations):
        message = "the order by use needs spec.admissionFairSharing of a FleetPolicy: nothing says how use is forgotten"
        yield queue.problem(path, message, Code.DANGLING_REFERENCE, hint=hint)


def weights_for_nobody(declarations: Declarations) -> Iterator[Problem]:
    """Weights of namespaces that may not use the queue, and of LocalQueues whose ClusterQueue does not go by use."""
    for queue in declarations.queues.values():
        team = declarations.teams.get(queue.value.spec.team)
        sharing = queue.value.spec.admission_fair_sharing
        if team is None or sharing is None:
            continue
        known = team.value.spec.namespaces
        for namespace in sharing.namespace_weights:
            if namespace not in known:
                message = f"the namespace {namespace!r} is none of team {team.value.name!r}'s"
                hint = did_you_mean(namespace, known) or f"it has {listing(known)}"
                path = (*_SHARING, "namespaceWeights", namespace)
                yield queue.problem(path, message, Code.DANGLING_REFERENCE, hint=hint, key=True)
    for local in declarations.local_queues.values():
        behind = declarations.cluster_queues.get(local.value.spec.cluster_queue)
        if "fair_sharing" in local.value.spec.model_fields_set and behind and not behind.value.spec.usage_ordered:
            message = f"the weight has no effect: ClusterQueue {behind.value.name!r} does not go by what was used"
            hint = "set its admissionScope.admissionMode to UsageBasedAdmissionFairSharing, or remove the weight"
            yield local.problem(("spec", "fairSharing"), message, Code.UNUSED, hint=hint, severity="warning")


def use_remembered_oddly(declarations: Declarations) -> Iterator[Problem]:
    """A policy that remembers use for nobody, and one in which bytes outweigh everything else."""
    policy = _policy(declarations)
    sharing = policy.value.spec.admission_fair_sharing if policy else None
    if policy is None or sharing is None:
        return
    ordered = list(_ordered_by_use(declarations))
    if not ordered and declarations.complete and not declarations.broken:
        message = "no queue goes by what was used: this has no effect"
        hint = "give a Queue admissionFairSharing: {}, or a ClusterQueue an admissionScope"
        yield policy.problem(_SHARING, message, Code.UNUSED, hint=hint, severity="warning")
    counted = {resource for queue, _ in ordered for resource in _counted(declarations, queue)}
    for resource in _COUNTED_IN_BYTES:
        if {resource} < counted and resource not in sharing.resource_weights:
            message = f"{resource} counts by the byte and outweighs every other resource"
            hint = f"set resourceWeights.{resource}, to 0 to leave it out"
            yield policy.problem(_SHARING, message, Code.INVALID_VALUE, hint=hint, severity="warning")


def _policy(declarations: Declarations) -> Declared[FleetPolicy] | None:
    """The one that would hold; `several_policies` complains of others."""
    return min(declarations.policies.values(), key=lambda policy: (policy.place, policy.value.name), default=None)


def _ordered_by_use(declarations: Declarations) -> Iterator[tuple[Declared[Declaration], Path]]:
    """Queues that ask for it, with the place where they do."""
    for queue in declarations.queues.values():
        if queue.value.spec.admission_fair_sharing is not None:
            yield queue, _SHARING
    for cluster_queue in declarations.cluster_queues.values():
        if cluster_queue.value.spec.usage_ordered:
            yield cluster_queue, _MODE


def _counted(declarations: Declarations, queue: Declared[Declaration]) -> set[str]:
    """Resources whose use counts there: those of a ClusterQueue's groups, or of the guarantees of a Queue's team."""
    name = queue.value.name
    if queue is declarations.cluster_queues.get(name):
        groups = declarations.cluster_queues[name].value.spec.resource_groups
        return {resource for group in groups for resource in group.covered_resources}
    team = declarations.teams.get(declarations.queues[name].value.spec.team)
    quotas = team.value.spec.quotas.values() if team else ()
    return {resource for quota in quotas for resource in quota.guaranteed}
