"""Names of resources and labels that nearly are ones that everybody knows: `nvidia.com/gpus`, `cpus`.

Device plugins and people make up names as they like, so an unknown one is only wrong where it is next to a known one,
or where nobody may make one up: without a domain, and below `nvidia.com/mig-`.
"""

from collections.abc import Iterator
from difflib import SequenceMatcher

from model import labels
from model.hints import near
from model.kinds import Declaration, RequirementTerm
from model.loader.declarations import Declarations, Declared
from model.loader.tree import Path
from model.mig import mig_models
from model.problem import Code, Problem
from model.upstream.quotas import cells

_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})
_HUGE_PAGES = "hugepages-"
_DEVICES = labels.KNOWN_DEVICES
_LABELS = (
    labels.WELL_KNOWN
    | labels.OF_TOPOLOGIES
    | labels.OF_DISCOVERY
    | frozenset(labels.NORMALIZED)
    | {
        labels.MIG_LAYOUT,
        labels.MIG_CONFIG,
        labels.DEVICE_PLUGIN_CONFIG,
        labels.KARPENTER_NODE_POOL,
        labels.KARPENTER_NODE_CLASS,
    }
)
_LIKE = 0.8
"""Similarity above which one name is a slip for another: `gpus` and `gpu` have 0.86, `zones` and `zone` 0.89."""


def misspelt_names(declarations: Declarations) -> Iterator[Problem]:
    """Resources of quotas, limits and overlays, and labels of conditions and levels, that nobody knows."""
    allowed = {name for policy in declarations.policies.values() for name in policy.value.spec.allow_unknown}
    advice = "If it is right, list it in allowUnknown of the FleetPolicy"
    for source, path, name in _resources(declarations):
        if name not in allowed and (wrong := _wrong_resource(name)) is not None:
            message = f"there is no resource {name!r}"
            hint = f"did you mean {wrong!r}? {advice}" if wrong else f"resources of devices have a domain. {advice}"
            yield source.problem(path, message, Code.UNKNOWN_NAME, hint=hint, key=True)
    for source, path, name in _labels(declarations):
        if name not in allowed and name not in _LABELS and (meant := _neighbour(name, _LABELS)):
            message = f"no machine has a label {name!r}"
            yield source.problem(path, message, Code.UNKNOWN_NAME, hint=f"did you mean {meant!r}? {advice}")


def _wrong_resource(name: str) -> str | None:
    """What was meant instead of a resource that cannot be: a name, or nothing that comes near; None = it may be."""
    if name in _NATIVE or name in _DEVICES or name.startswith(_HUGE_PAGES):
        return None
    if name.startswith(labels.MIG_RESOURCE_PREFIX):
        profiles = {profile.resource for model in mig_models().values() for profile in model.profiles.values()}
        return None if name in profiles else near(name, profiles) or ""
    if "/" not in name:
        return near(name, _NATIVE) or next((device for device in sorted(_DEVICES) if device.endswith(f"/{name}")), "")
    return _neighbour(name, _DEVICES)


def _neighbour(name: str, known: frozenset[str]) -> str | None:
    """The known name that differs from `name` by a slip, in the domain or behind it; None where there is none."""
    domain, _, rest = name.partition("/")
    for other in sorted(known):
        its_domain, _, its_rest = other.partition("/")
        if domain == its_domain and _similar(rest, its_rest):
            return other
        if rest == its_rest and _similar(domain, its_domain):
            return other
    return None


def _similar(one: str, other: str) -> bool:
    """Numbers at the end tell names apart on purpose: `layer-1` is no slip for `layer-2`."""
    if one.rstrip("0123456789") == other.rstrip("0123456789"):
        return False
    matcher = SequenceMatcher(None, one, other)
    return matcher.real_quick_ratio() >= _LIKE and matcher.ratio() >= _LIKE


_Named = tuple[Declared[Declaration], Path, str]


def _resources(declarations: Declarations) -> Iterator[_Named]:
    """Every place that names a resource."""
    for pool in declarations.node_pools.values():
        for name in pool.value.spec.limits.resources:
            yield pool, ("spec", "limits", "resources", name), name
    for overlay in declarations.node_overlays.values():
        for name in overlay.value.spec.capacity:
            yield overlay, ("spec", "capacity", name), name
    for team in declarations.teams.values():
        for flavor, quota in team.value.spec.quotas.items():
            for name in quota.guaranteed:
                yield team, ("spec", "quotas", flavor, "guaranteed", name), name
    for policy in declarations.policies.values():
        sharing = policy.value.spec.admission_fair_sharing
        for name in sharing.resource_weights if sharing else ():
            yield policy, ("spec", "admissionFairSharing", "resourceWeights", name), name
    yield from _upstream_resources(declarations)
    yield from _buffer_resources(declarations)


def _upstream_resources(declarations: Declarations) -> Iterator[_Named]:
    for queue in declarations.cluster_queues.values():
        for cell in cells(queue.value.spec.resource_groups):
            yield queue, ("spec", *cell.path, "name"), cell.quota.name
    for cohort in declarations.cohorts.values():
        for cell in cells(cohort.value.spec.resource_groups):
            yield cohort, ("spec", *cell.path, "name"), cell.quota.name


def _buffer_resources(declarations: Declarations) -> Iterator[_Named]:
    for buffer in declarations.capacity_buffers.values():
        for name in buffer.value.spec.limits or ():
            yield buffer, ("spec", "limits", name), name
    for template in declarations.pod_templates.values():
        for index, container in enumerate(template.value.template.spec.containers):
            place: Path = ("template", "spec", "containers", index, "resources")
            for name in container.resources.requests:
                yield template, (*place, "requests", name), name
            for name in container.resources.limits:
                yield template, (*place, "limits", name), name


def _labels(declarations: Declarations) -> Iterator[_Named]:
    """Every place that names a label which machines ought to have."""
    for pool in declarations.node_pools.values():
        yield from _of_terms(pool, pool.value.spec.requirements)
    for overlay in declarations.node_overlays.values():
        yield from _of_terms(overlay, overlay.value.spec.requirements)
    for topology in declarations.topologies.values():
        for index, level in enumerate(topology.value.spec.levels):
            yield topology, ("spec", "levels", index), level
    for flavor in declarations.flavors.values():
        for key in flavor.value.spec.node_labels:
            yield flavor, ("spec", "nodeLabels", key), key
    for resource in declarations.resource_flavors.values():
        for key in resource.value.spec.node_labels:
            yield resource, ("spec", "nodeLabels", key), key


def _of_terms(source: Declared[Declaration], terms: tuple[RequirementTerm, ...]) -> Iterator[_Named]:
    for index, term in enumerate(terms):
        yield source, ("spec", "requirements", index, "key"), term.key
