"""Lists that are sets, and name something twice."""

from collections.abc import Iterator

from model.kinds import Kind, NodePool
from model.loader.declarations import Declarations, Declared
from model.loader.tree import Path
from model.problem import Code, Problem

_List = tuple[Path, tuple[str, ...]]


def repeated_values(declarations: Declarations) -> Iterator[Problem]:
    """Reports the second of two equal entries of a list."""
    for pool in declarations.node_pools.values():
        for path, values in _of_pool(pool.value):
            yield from _repeated(pool, path, values)
    for queue in declarations.queues.values():
        yield from _repeated(queue, ("spec", "flavors"), queue.value.spec.flavors)
        yield from _repeated(queue, ("spec", "admissionChecks"), queue.value.spec.admission_checks)
    for team in declarations.teams.values():
        yield from _repeated(team, ("spec", "priorityClasses"), team.value.spec.priority_classes)
    for flavor in declarations.flavors.values():
        yield from _repeated(flavor, ("spec", "nodePools"), flavor.value.spec.node_pools)
    for topology in declarations.topologies.values():
        yield from _repeated(topology, ("spec", "levels"), topology.value.spec.levels)
    for policy in declarations.policies.values():
        spec = policy.value.spec
        if spec.rollout is not None:
            yield from _repeated(policy, ("spec", "rollout", "pools"), spec.rollout.pools)
        yield from _repeated(policy, ("spec", "freezeWindows"), tuple(window.name for window in spec.freeze_windows))
        yield from _repeated(policy, ("spec", "allowWindows"), tuple(window.name for window in spec.allow_windows))
        yield from _repeated(policy, ("spec", "notifications"), tuple(sink.name for sink in spec.notifications))
        for at, sink in enumerate(spec.notifications):
            yield from _repeated(policy, ("spec", "notifications", at, "teams"), sink.teams)


def _of_pool(pool: NodePool) -> Iterator[_List]:
    spec = pool.spec
    yield ("spec", "instanceTypes"), spec.instance_types
    yield ("spec", "instanceFamilies"), spec.instance_families
    yield ("spec", "zones"), spec.zones
    yield ("spec", "capacityTypes"), spec.capacity_types
    yield ("spec", "sharing", "mig", "layouts"), spec.sharing.mig.layouts if spec.sharing.mig else ()
    yield ("spec", "gpu", "models"), spec.gpu.models if spec.gpu else ()
    for name, taints in (("taints", spec.template.taints), ("startupTaints", spec.template.startup_taints)):
        yield ("spec", "template", name), tuple(f"{taint.key}:{taint.effect}" for taint in taints)


def _repeated(source: Declared[Kind], path: Path, values: tuple[str, ...]) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in seen:
            yield source.problem((*path, index), f"{value!r} is listed twice", Code.INVALID_VALUE)
        seen.add(value)
