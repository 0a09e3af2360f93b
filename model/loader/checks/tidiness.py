"""One policy, and nothing that lies around unused."""

from collections.abc import Iterable, Iterator

from model.loader.checks.upstream import resource_flavor_pools
from model.loader.declarations import Declarations
from model.loader.envelope import is_mig_parted
from model.problem import Code, Problem


def several_policies(declarations: Declarations) -> Iterator[Problem]:
    """More than one FleetPolicy: which one would hold?"""
    ordered = sorted(declarations.policies.values(), key=lambda policy: (policy.place, policy.value.name))
    for policy in ordered[1:]:
        message = f"there is already a FleetPolicy at {ordered[0].place}; a fleet has at most one"
        yield policy.problem(("metadata", "name"), message, Code.DUPLICATE_NAME)


def unused_declarations(declarations: Declarations) -> Iterator[Problem]:
    """Warnings about layouts no pool uses and pools no queue can reach: usually a forgotten reference."""
    if not declarations.complete or declarations.broken:
        return
    pools = declarations.node_pools
    used_layouts = {
        name for pool in pools.values() if pool.value.spec.sharing.mig for name in pool.value.spec.sharing.mig.layouts
    }
    for name, layout in declarations.mig_layouts.items():
        if name not in used_layouts and not is_mig_parted(layout.document):  # of NVIDIA's files few are for us
            yield layout.problem(("metadata", "name"), "no NodePool uses this layout", Code.UNUSED, severity="warning")
    reached = _reached_pools(declarations)
    # A Volcano queue names no flavors: its work may go anywhere.
    has_queues = (declarations.queues or declarations.cluster_queues) and not declarations.volcano_queues
    for name, pool in pools.items():
        served = set(pool.value.spec.serves)
        if name not in reached and pool.value.spec.replicas is None and has_queues and served != {"Pods"}:
            bought = "for gangs nothing will ever be bought" if "Pods" in served else "nothing will ever be bought"
            message = f"no queue has a flavor that includes this pool: {bought} from it"
            yield pool.problem(("metadata", "name"), message, Code.UNUSED, severity="warning")


def _reached_pools(declarations: Declarations) -> set[str]:
    names = {name for queue in declarations.queues.values() for name in queue.value.spec.flavors}
    for queue in declarations.cluster_queues.values():
        names.update(flavor.name for group in queue.value.spec.resource_groups for flavor in group.flavors)
    by_label = resource_flavor_pools(declarations) if declarations.resource_flavors else {}
    return {pool for name in names for pool in by_label.get(name) or _pools_of(declarations, name)}


def _pools_of(declarations: Declarations, name: str) -> Iterable[str]:
    flavor = declarations.flavors.get(name)
    return flavor.value.spec.node_pools if flavor else (name,)
