"""Flavors and the quotas counted in them."""

from collections.abc import Iterator

from model.hints import listing
from model.kinds import MigLayout, NodePool
from model.kinds.tenancy import FlavorQuota
from model.labels import FABRIC_RESOURCE, GPU_EQUIVALENT, GPU_RESOURCE, MIG_RESOURCE_PREFIX, SHARED_GPU_RESOURCE
from model.loader.checks.layouts import pool_models
from model.loader.declarations import Declarations
from model.loader.tree import Path
from model.mig import mig_models, resource_name
from model.problem import Code, Problem
from model.upstream.quotas import cells

_ANY_MACHINE = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})


def ambiguous_flavors(declarations: Declarations) -> Iterator[Problem]:
    """A flavor named like a pool hides the flavor the pool implies, so it must include the pool."""
    for name, flavor in declarations.flavors.items():
        if name in declarations.node_pools and name not in flavor.value.spec.node_pools:
            message = f"the flavor is named like the pool {name!r} but does not include it"
            hint = "list the pool in nodePools, or choose another name"
            yield flavor.problem(("metadata", "name"), message, Code.AMBIGUOUS_FLAVOR, hint=hint)


def quotas_without_capacity(declarations: Declarations) -> Iterator[Problem]:
    """GPU quotas that no machine of the flavor can ever fill."""
    by_flavor: dict[str, set[str] | None] = {}
    for team in declarations.teams.values():
        for flavor, quota in team.value.spec.quotas.items():
            if flavor not in by_flavor:
                by_flavor[flavor] = _gpu_resources(declarations, flavor)
            offered = by_flavor[flavor]
            if offered is None:
                continue
            for resource in _named(quota):
                if resource in _ANY_MACHINE or not _known_device(resource) or resource in offered:
                    continue
                path: Path = ("spec", "quotas", flavor, "guaranteed", resource)
                message = f"no machine of flavor {flavor!r} offers {resource!r}"
                hint = f"its devices are {listing(offered)}"
                yield team.problem(path, message, Code.QUOTA_WITHOUT_CAPACITY, hint=hint, key=True)


def profiles_without_quota(declarations: Declarations) -> Iterator[Problem]:
    """Slices that a pool's layouts cut and no quota counts, where other devices of the flavor are counted.

    What no quota names is not limited: the slices are for whoever comes first, and that is hardly what a quota is for.
    GPU-equivalents count every shape.
    """
    if not declarations.complete or declarations.broken:
        return
    counted: dict[str, set[str]] = {}
    for team in declarations.teams.values():
        for flavor, quota in team.value.spec.quotas.items():
            named = (name for name in quota.guaranteed if _known_device(name) or name == GPU_EQUIVALENT)
            counted.setdefault(flavor, set()).update(named)
    groups = [it.value.spec.resource_groups for it in declarations.cluster_queues.values()]
    groups += [it.value.spec.resource_groups for it in declarations.cohorts.values()]
    for cell in (cell for each in groups for cell in cells(each)):
        if cell.flavor in counted:
            counted[cell.flavor].add(cell.quota.name)
    for flavor, resources in sorted(counted.items()):
        unlimited = resources and GPU_EQUIVALENT not in resources
        offered = _gpu_resources(declarations, flavor) if unlimited else None
        for resource in sorted(set(offered or ()) - resources):
            if resource.startswith(MIG_RESOURCE_PREFIX):
                yield from _uncounted(declarations, flavor, resource)


def equivalents_of_replicas(declarations: Declarations) -> Iterator[Problem]:
    """GPU-equivalents of flavors whose GPUs are shared by replicas: a replica goes by the name of a whole GPU."""
    for team in declarations.teams.values():
        for flavor, quota in team.value.spec.quotas.items():
            declared = declarations.flavors.get(flavor)
            names = declared.value.spec.node_pools if declared else (flavor,)
            pools = [pool.value for name in names if (pool := declarations.node_pools.get(name))]
            shared = next((pool.name for pool in pools if pool.spec.sharing.by_replicas is not None), "")
            if shared and GPU_EQUIVALENT in quota.guaranteed:
                path: Path = ("spec", "quotas", flavor, "guaranteed", GPU_EQUIVALENT)
                message = f"node pool {shared!r} shares GPUs by replicas, which go by the name of whole ones"
                yield team.problem(path, message, Code.QUOTA_WITHOUT_CAPACITY, hint="count its replicas", key=True)


def _uncounted(declarations: Declarations, flavor: str, resource: str) -> Iterator[Problem]:
    """At the first layout, by name, that cuts the slice for a pool of the flavor."""
    declared = declarations.flavors.get(flavor)
    pools = (declarations.node_pools[name] for name in (declared.value.spec.node_pools if declared else (flavor,)))
    behind = list(pools)
    hint = f"give teams quotas for it, 0 where they have none of their own, or for {GPU_EQUIVALENT}"
    message = f"no quota of flavor {flavor!r} counts {resource!r}: anybody may use all of it"
    for pool in behind:
        if pool.value.spec.sharing.dynamic_mig and resource in dynamic_slices(pool.value):
            path: Path = ("spec", "sharing", "dra", "dynamicMig")
            yield pool.problem(path, message, Code.PROFILE_WITHOUT_QUOTA, hint=hint)
            return
    names = {name for pool in behind if (mig := pool.value.spec.sharing.mig) for name in mig.layouts}
    for name in sorted(names):
        layout = declarations.mig_layouts[name]
        for model, groups in layout.value.spec.models.items():
            for index, group in enumerate(groups):
                for profile in group.profiles:
                    if resource_name(profile) == resource:
                        where: Path = ("spec", "models", model, index, "profiles", profile)
                        yield layout.problem(where, message, Code.PROFILE_WITHOUT_QUOTA, hint=hint, key=True)
                        return


def dynamic_slices(pool: NodePool) -> set[str]:
    """The slices that a DRA driver may cut of the GPUs of a pool as they are claimed, by what its selector says."""
    named = {it for models in pool_models(pool).values() for it in models} if pool.spec.gpu else set()
    models = [model for model in mig_models().values() if not named or model.id in named]
    return {profile.resource for model in models for profile in model.profiles.values()}


def _named(quota: FlavorQuota) -> list[str]:
    """Resources with a quota above zero; a zero says that there is none."""
    limits = quota.borrowing_limit or {}
    return [name for name, amount in quota.guaranteed.items() if amount > 0 or limits.get(name, 0) > 0]


def _known_device(resource: str) -> bool:
    """Whether we know which machines offer `resource`; others may come from any device plugin."""
    return resource in {GPU_RESOURCE, SHARED_GPU_RESOURCE, FABRIC_RESOURCE} or resource.startswith(MIG_RESOURCE_PREFIX)


def _gpu_resources(declarations: Declarations, flavor: str) -> set[str] | None:
    """The devices that pools of `flavor` can offer; None when that is not known (existing nodes, unknown names)."""
    declared = declarations.flavors.get(flavor)
    names = declared.value.spec.node_pools if declared else (flavor,)
    pools = [declarations.node_pools.get(name) for name in names]
    if not pools or any(pool is None for pool in pools):
        return None
    offered: set[str] = set()
    for pool in pools:
        mine = _of_pool(declarations, pool.value) if pool else None
        if mine is None:
            return None
        offered |= mine
    return offered


def _of_pool(declarations: Declarations, pool: NodePool) -> set[str] | None:
    devices = {FABRIC_RESOURCE} if pool.spec.placement.fabric else set()
    if pool.spec.sharing.dynamic_mig:
        return devices | {GPU_RESOURCE, *dynamic_slices(pool)}
    if pool.spec.sharing.mig is None:
        return devices | {pool.spec.sharing.resource}
    layouts = [declarations.mig_layouts.get(name) for name in pool.spec.sharing.mig.layouts]
    if any(layout is None for layout in layouts):
        return None
    return devices.union(*(_of_layout(layout.value) for layout in layouts if layout))


def _of_layout(layout: MigLayout) -> set[str]:
    """Resources of a layout; a group without profiles leaves whole GPUs."""
    groups = [group for groups in layout.spec.models.values() for group in groups]
    cut = {resource_name(profile) for group in groups for profile in group.profiles}
    return cut | ({GPU_RESOURCE} if any(not group.profiles for group in groups) else set())
