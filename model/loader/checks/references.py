"""Every name that points at another declaration must find it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from model.hints import did_you_mean, listing
from model.kinds import Declaration
from model.loader.declarations import Declarations, Declared
from model.loader.tree import Path
from model.problem import Code, Problem

if TYPE_CHECKING:
    from model.upstream.cluster_queue import ClusterQueue
    from model.upstream.tenancy import Cohort


class Reference(NamedTuple):
    """A place that names declarations of some kinds (a flavor may be declared or implied by a pool)."""

    source: Declared[Declaration]
    path: Path
    name: str
    kinds: tuple[str, ...]
    at_key: bool = False


def dangling_references(declarations: Declarations) -> Iterator[Problem]:
    """References to what is not declared. Nothing is said while a file is unreadable: the target may stand there."""
    if not declarations.complete:
        return
    tables: dict[tuple[str, ...], set[str]] = {}
    for reference in references(declarations):
        if reference.kinds not in tables:
            tables[reference.kinds] = {name for kind in reference.kinds for name in declarations.table(kind)}
        known = tables[reference.kinds]
        broken = any((kind, reference.name) in declarations.broken for kind in reference.kinds)
        if reference.name in known or broken:
            continue
        wanted = " or ".join(reference.kinds)
        hint = did_you_mean(reference.name, known) or f"declared: {listing(known)}"
        message = f"there is no {wanted} {reference.name!r}"
        yield reference.source.problem(
            reference.path, message, Code.DANGLING_REFERENCE, hint=hint, key=reference.at_key
        )


def references(declarations: Declarations) -> Iterator[Reference]:
    """Every reference, in a fixed order."""
    yield from _of_queues(declarations)
    yield from _of_teams(declarations)
    yield from _of_pools(declarations)
    yield from _of_flavors(declarations)
    yield from _of_cluster_queues(declarations)
    yield from _of_cohorts(declarations)
    yield from _of_local_queues(declarations)
    yield from _of_resource_flavors(declarations)
    yield from _of_volcano_queues(declarations)
    yield from _of_policies(declarations)


_FLAVOR = ("Flavor", "NodePool")


def _of_policies(declarations: Declarations) -> Iterator[Reference]:
    for policy in declarations.policies.values():
        rollout = policy.value.spec.rollout
        for at, pool in enumerate(rollout.pools if rollout else ()):
            yield Reference(policy, ("spec", "rollout", "pools", at), pool, ("NodePool",))
        for at, sink in enumerate(policy.value.spec.notifications):
            for place, team in enumerate(sink.teams):
                yield Reference(policy, ("spec", "notifications", at, "teams", place), team, ("Team",))


def _of_queues(declarations: Declarations) -> Iterator[Reference]:
    for queue in declarations.queues.values():
        yield Reference(queue, ("spec", "team"), queue.value.spec.team, ("Team",))
        for index, flavor in enumerate(queue.value.spec.flavors):
            yield Reference(queue, ("spec", "flavors", index), flavor, _FLAVOR)


def _of_teams(declarations: Declarations) -> Iterator[Reference]:
    for team in declarations.teams.values():
        spec = team.value.spec
        if spec.parent is not None:
            yield Reference(team, ("spec", "parent"), spec.parent, ("Team",))
        for flavor in spec.quotas:
            yield Reference(team, ("spec", "quotas", flavor), flavor, _FLAVOR, at_key=True)
        for index, name in enumerate(spec.priority_classes):
            yield Reference(team, ("spec", "priorityClasses", index), name, ("PriorityClass",))
        if spec.default_queue is not None:
            yield Reference(team, ("spec", "defaultQueue"), spec.default_queue, ("Queue",))
        if spec.ordinary_pods_queue is not None:
            yield Reference(team, ("spec", "ordinaryPodsQueue"), spec.ordinary_pods_queue, ("Queue",))


def _of_pools(declarations: Declarations) -> Iterator[Reference]:
    for pool in declarations.node_pools.values():
        spec = pool.value.spec
        for index, layout in enumerate(spec.sharing.mig.layouts if spec.sharing.mig else ()):
            yield Reference(pool, ("spec", "sharing", "mig", "layouts", index), layout, ("MigLayout",))
        if spec.placement.topology is not None:
            yield Reference(pool, ("spec", "placement", "topology"), spec.placement.topology, ("Topology",))


def _of_flavors(declarations: Declarations) -> Iterator[Reference]:
    for flavor in declarations.flavors.values():
        spec = flavor.value.spec
        for index, pool in enumerate(spec.node_pools):
            yield Reference(flavor, ("spec", "nodePools", index), pool, ("NodePool",))
        if spec.topology is not None:
            yield Reference(flavor, ("spec", "topology"), spec.topology, ("Topology",))


def _of_cluster_queues(declarations: Declarations) -> Iterator[Reference]:
    for queue in declarations.cluster_queues.values():
        yield from _of_quotas(queue)
        for index, check in enumerate(queue.value.spec.admission_checks_strategy.admission_checks):
            yield Reference(queue, check_path(queue, index), check.name, ("AdmissionCheck",))


def check_path(queue: "Declared[ClusterQueue]", index: int) -> Path:
    """Returns the path of an admission check's name: `v1beta1` has a plain list of names as well."""
    if queue.document.root.data.get("spec", {}).get("admissionChecks"):
        return ("spec", "admissionChecks", index)
    return ("spec", "admissionChecksStrategy", "admissionChecks", index, "name")


def _of_cohorts(declarations: Declarations) -> Iterator[Reference]:
    for cohort in declarations.cohorts.values():
        yield from _of_quotas(cohort)


def _of_quotas(node: "Declared[ClusterQueue] | Declared[Cohort]") -> Iterator[Reference]:
    for group, resources in enumerate(node.value.spec.resource_groups):
        for index, flavor in enumerate(resources.flavors):
            path: Path = ("spec", "resourceGroups", group, "flavors", index, "name")
            yield Reference(node, path, flavor.name, ("ResourceFlavor", *_FLAVOR))


def _of_local_queues(declarations: Declarations) -> Iterator[Reference]:
    for queue in declarations.local_queues.values():
        yield Reference(queue, ("spec", "clusterQueue"), queue.value.spec.cluster_queue, ("ClusterQueue",))


def _of_resource_flavors(declarations: Declarations) -> Iterator[Reference]:
    for flavor in declarations.resource_flavors.values():
        if flavor.value.spec.topology_name is not None:
            yield Reference(flavor, ("spec", "topologyName"), flavor.value.spec.topology_name, ("Topology",))


def _of_volcano_queues(declarations: Declarations) -> Iterator[Reference]:
    if not declarations.volcano_queues:
        return
    from model.upstream.volcano import ROOT

    for queue in declarations.volcano_queues.values():
        if queue.value.parent not in {None, ROOT}:
            yield Reference(queue, ("spec", "parent"), queue.value.spec.parent, ("VolcanoQueue",))
