"""Kueue and Volcano manifests among themselves and beside ours: one tree, one name for one thing."""

from collections.abc import Iterator, Mapping

from model.hints import did_you_mean, listing
from model.loader.checks.cycles import cycles
from model.loader.declarations import Declarations
from model.problem import Code, Problem
from model.requirement import InvalidRequirement

_ONE_NAME = (
    (("Queue", "ClusterQueue", "VolcanoQueue"), "queues are the leaves of one tree"),
    (("Team", "Cohort"), "teams and cohorts are nodes of one tree"),
    (("Flavor", "ResourceFlavor"), "quotas name flavors of either kind"),
)
"""Kinds that share their names, and why."""


def names_of_one_tree(declarations: Declarations) -> Iterator[Problem]:
    """A name that two kinds give to different things where only one can be meant."""
    for kinds, why in _ONE_NAME:
        for position, kind in enumerate(kinds):
            for name, declared in declarations.table(kind).items():
                for other in kinds[:position]:
                    if name in declarations.table(other):
                        place = declarations.table(other)[name].place
                        message = f"the {other} at {place} is already called {name!r}: {why}"
                        yield declared.problem(("metadata", "name"), message, Code.DUPLICATE_NAME)


def cohort_cycles(declarations: Declarations) -> Iterator[Problem]:
    """Cohorts and Volcano queues that are their own ancestor, once a cycle, at its first by name."""
    cohorts = {name: cohort.value.spec.parent_name for name, cohort in declarations.cohorts.items()}
    for cycle in cycles(cohorts):
        message = f"the cohort is its own ancestor: {' -> '.join(cycle)}"
        yield declarations.cohorts[cycle[0]].problem(("spec", "parentName"), message, Code.CYCLE)
    queues = {name: queue.value.parent for name, queue in declarations.volcano_queues.items()}
    for cycle in cycles(queues):
        message = f"the queue is its own ancestor: {' -> '.join(cycle)}"
        yield declarations.volcano_queues[cycle[0]].problem(("spec", "parent"), message, Code.CYCLE)


def resource_flavor_pools(declarations: Declarations) -> Mapping[str, set[str]]:
    """ResourceFlavor -> its pools; of a pool with malformed terms (`malformed_terms` has said so) no label is known."""
    if not declarations.resource_flavors:
        return {}
    from model.upstream.capacity import carried_labels, wanted_labels

    carriers: dict[tuple[str, str], set[str]] = {}
    pools: set[str] = set()
    for name, pool in declarations.node_pools.items():
        pools.add(name)
        try:
            carried = carried_labels(pool.value)
        except InvalidRequirement:
            continue
        for label in carried.items():
            carriers.setdefault(label, set()).add(name)
    return {
        name: pools.intersection(*(carriers.get(label, set()) for label in wanted_labels(flavor.value).items()))
        for name, flavor in declarations.resource_flavors.items()
    }


def ambiguous_resource_flavors(declarations: Declarations) -> Iterator[Problem]:
    """A ResourceFlavor named like a pool hides the flavor the pool implies, so the pool must belong to it."""
    both = sorted(declarations.resource_flavors.keys() & declarations.node_pools.keys())
    if both:
        from model.upstream.capacity import pools_of
    for name in both:
        flavor = declarations.resource_flavors[name]
        try:
            belongs = bool(pools_of(flavor.value, [declarations.node_pools[name].value]))
        except InvalidRequirement:
            continue  # malformed_terms has said so
        if not belongs:
            message = f"the flavor is named like the pool {name!r}, whose machines do not all carry its nodeLabels"
            hint = "add the labels to the pool's template, or choose another name"
            yield flavor.problem(("metadata", "name"), message, Code.AMBIGUOUS_FLAVOR, hint=hint)


def ambiguous_doors(declarations: Declarations) -> Iterator[Problem]:
    """A LocalQueue and a Queue of one name that jobs of one namespace may both mean by `kueue.x-k8s.io/queue-name`."""
    for local in declarations.local_queues.values():
        queue = declarations.queues.get(local.value.name)
        team = declarations.teams.get(queue.value.spec.team) if queue else None
        namespace = local.value.metadata.namespace
        if queue and team and namespace in team.value.spec.namespaces:
            message = (
                f"jobs in {namespace!r} that name {local.value.name!r} could mean the Queue at {queue.place} as well"
            )
            yield local.problem(("metadata", "name"), message, Code.DUPLICATE_NAME, hint="rename one of the two")


def checks_on_no_flavor(declarations: Declarations) -> Iterator[Problem]:
    """Warnings about checks for a flavor that the queue does not have: they would never hold anything."""
    for queue in declarations.cluster_queues.values():
        spec = queue.value.spec
        flavors = {flavor.name for group in spec.resource_groups for flavor in group.flavors}
        for index, check in enumerate(spec.admission_checks_strategy.admission_checks):
            for position, flavor in enumerate(check.on_flavors):
                if flavor not in flavors:
                    place = ("spec", "admissionChecksStrategy", "admissionChecks", index, "onFlavors", position)
                    message = f"the queue has no flavor {flavor!r}: the check never applies to it"
                    hint = did_you_mean(flavor, flavors) or f"its flavors are {listing(flavors)}"
                    yield queue.problem(place, message, Code.UNUSED, hint=hint, severity="warning")
