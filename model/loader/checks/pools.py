"""NodePools whose requirements cannot be met by any machine, or hardly say what was meant."""

import re
from collections.abc import Iterable, Iterator

from model import labels
from model.kinds import NodePool
from model.kinds.base import NODES_MAX
from model.loader.declarations import Declarations, Declared
from model.loader.tree import Path
from model.pools import pool_requirements
from model.problem import Code, Problem
from model.requirement import InvalidRequirement, Requirement

_INSTANCE_TYPE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")
_INSTANCE_FAMILY = re.compile(r"[a-z0-9-]+")
_ZONE = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]+(-[a-z]+-[0-9]+)?[a-z]")
_ZONE_ID = re.compile(r"[a-z]+[0-9]-(?:[a-z]+[0-9]-)?az[0-9]+")
_GPU_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

_FIELD_OF_KEY: dict[str, Path] = {
    labels.INSTANCE_TYPE: ("spec", "instanceTypes"),
    labels.INSTANCE_FAMILY: ("spec", "instanceFamilies"),
    labels.ZONE: ("spec", "zones"),
    labels.CAPACITY_TYPE: ("spec", "capacityTypes"),
    labels.INSTANCE_GPU_NAME: ("spec", "gpu", "models"),
    labels.INSTANCE_GPU_COUNT: ("spec", "gpu"),
    labels.INSTANCE_GPU_MEMORY: ("spec", "gpu", "minMemoryMiB"),
}


def malformed_terms(declarations: Declarations) -> Iterator[Problem]:
    """Requirement terms whose values do not suit their operator, or that ask for more values than they list."""
    for pool in declarations.node_pools.values():
        for index, term in enumerate(pool.value.spec.requirements):
            path: Path = ("spec", "requirements", index)
            try:
                Requirement.of(term.operator, term.values, term.min_values)
            except InvalidRequirement as error:
                yield pool.problem(path, f"{term.key}: {error}", Code.IMPOSSIBLE_REQUIREMENT)
                continue
            if term.operator == "In" and term.min_values is not None and term.min_values > len(set(term.values)):
                message = f"{term.key}: minValues is {term.min_values}, but only {len(set(term.values))} are listed"
                yield pool.problem((*path, "minValues"), message, Code.IMPOSSIBLE_REQUIREMENT)


def too_many_machines(declarations: Declarations) -> Iterator[Problem]:
    """Fixed pools that ask for more machines together than a cluster has nodes, at the pool that goes beyond."""
    total = 0
    for _, pool in sorted(declarations.node_pools.items()):
        replicas = pool.value.spec.replicas or 0
        total += replicas
        if total > NODES_MAX >= total - replicas:
            message = f"fixed pools ask for {total} machines together; a fleet has {NODES_MAX} at most"
            yield pool.problem(("spec", "replicas"), message, Code.TOO_LARGE)


def impossible_requirements(declarations: Declarations) -> Iterator[Problem]:
    """Keys for which a pool's conditions leave no value at all."""
    for pool in declarations.node_pools.values():
        gpu = pool.value.spec.gpu
        if gpu and gpu.max_count is not None and gpu.max_count < (gpu.min_count or 1):
            message = f"maxCount {gpu.max_count} is less than minCount {gpu.min_count}"
            yield pool.problem(("spec", "gpu", "maxCount"), message, Code.IMPOSSIBLE_REQUIREMENT)
            continue
        try:
            requirements = pool_requirements(pool.value)
        except InvalidRequirement:
            continue  # malformed_terms has said so
        for key in requirements.empty_keys():
            terms = [term for term in pool.value.spec.requirements if labels.normalize(term.key) == key]
            if terms and all(term.operator == "DoesNotExist" for term in terms) and key not in _given(pool.value):
                continue  # absence is what was asked for
            message = f"the conditions on {key!r} exclude each other: no machine can satisfy them all"
            yield pool.problem(_place(pool.value, key), message, Code.IMPOSSIBLE_REQUIREMENT)


def _given(pool: NodePool) -> set[str]:
    """Keys that something other than `requirements` sets."""
    without = pool.model_copy(update={"spec": pool.spec.model_copy(update={"requirements": ()})})
    return set(pool_requirements(without))


def _place(pool: NodePool, key: str) -> Path:
    """The last term on `key`, else the field or template label that sets it."""
    for index, term in reversed(list(enumerate(pool.spec.requirements))):
        if labels.normalize(term.key) == key:
            return ("spec", "requirements", index)
    for label in pool.spec.template.labels:
        if labels.normalize(label) == key:
            return ("spec", "template", "labels", label)
    return _FIELD_OF_KEY.get(key, ("spec",))


def misspelt_machines(declarations: Declarations) -> Iterator[Problem]:
    """Values that no EC2 type, family, zone or GPU is called."""
    for pool in declarations.node_pools.values():
        spec = pool.value.spec
        yield from _forms(pool, ("spec", "instanceTypes"), spec.instance_types, _INSTANCE_TYPE, "an instance type")
        yield from _forms(pool, ("spec", "instanceFamilies"), spec.instance_families, _INSTANCE_FAMILY, "a family")
        yield from _forms(pool, ("spec", "zones"), spec.zones, _ZONE, "an availability zone")
        models = spec.gpu.models if spec.gpu else ()
        yield from _forms(pool, ("spec", "gpu", "models"), models, _GPU_NAME, "a GPU name")


def groups_of_two_kinds(declarations: Declarations) -> Iterator[Problem]:
    """Pools that name one placement group, and disagree on what kind of group it is."""
    said: dict[str, tuple[str, str]] = {}
    for name, pool in sorted(declarations.node_pools.items()):
        place = pool.value.spec.placement
        if not place.group:
            continue
        strategy, first = said.setdefault(place.group, (place.strategy, name))
        if strategy != place.strategy:
            message = f"node pool {first} says that placement group {place.group!r} is a {strategy} group"
            yield pool.problem(("spec", "placement", "strategy"), message, Code.INVALID_VALUE)


def _forms(
    pool: Declared[NodePool], path: Path, values: Iterable[str], form: re.Pattern[str], what: str
) -> Iterator[Problem]:
    for index, value in enumerate(values):
        if not form.fullmatch(value):
            hint = _form_hint(value, what)
            yield pool.problem((*path, index), f"{value!r} is not {what}", Code.INVALID_VALUE, hint=hint)


def _form_hint(value: str, what: str) -> str:
    if what == "an instance type":
        parts = value.lower().removeprefix("ml.")
        return f"write {parts!r}" if _INSTANCE_TYPE.fullmatch(parts) else "write it like p5.48xlarge"
    if what == "a family":
        return "write it like p5 or g6e"
    if what == "an availability zone":
        if _ZONE_ID.fullmatch(value):
            return f"that is a zone id; require the label {labels.ZONE_ID} for it"
        return "write it like us-east-1a"
    return f"write {value.strip().lower().replace(' ', '-')!r}"
