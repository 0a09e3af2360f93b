"""Tells the conditions of a pool apart: what each of them, in the order in which they narrow, leaves to be bought.

Each step asks for the offerings of a pool that declares no more than the conditions so far: the same function that says
what is bought, so that the way ends where the pool's own offerings are.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, get_args

from fleet.offerings.offerings import Offering, Offerings
from model.kinds import CapacityType, NodePool, RequirementTerm
from model.kinds.node_pool import GpuSelector, NodePoolSpec, PlacementSpec, Sharing
from model.requirements import Requirements

FABRIC_FIELD: Final = PlacementSpec.model_fields["fabric"].alias or "fabric"
"""Whatever the cloud's users call it in a manifest."""
_OPEN: Final[Mapping[str, Any]] = {
    "instance_types": (),
    "instance_families": (),
    "gpu": None,
    "requirements": (),
    "zones": (),
    "capacity_types": get_args(CapacityType),
    "sharing": Sharing.unsaid(),
}
"""What the fields that choose machines are where they rule nothing out."""


class PoolCondition(NamedTuple):
    """A `PoolCondition` is one of the conditions that a pool declares for its machines."""

    words: str
    """In the words of the declaration."""
    path: tuple[str | int, ...]
    """Where the declaration says it."""
    field: str
    value: Any
    """What that field of the pool's spec is once the condition holds."""


class ConditionStep(NamedTuple):
    """A `ConditionStep` is what is left to be bought once one more condition holds; the first step has none."""

    condition: PoolCondition | None
    offerings: tuple[Offering, ...]


def condition_steps(pool: NodePool, offerings: Offerings) -> Iterator[ConditionStep]:
    """Yields what is left after each condition, from all that is on sale to the pool's own offerings."""
    everywhere = pool.spec.placement.fabric is True
    placement = pool.spec.placement.model_copy(update={"fabric": False}) if everywhere else pool.spec.placement
    said: dict[str, Any] = {**_OPEN, "placement": placement}
    yield ConditionStep(None, _left(offerings, pool, said))
    for condition in conditions_of(pool.spec):
        said[condition.field] = condition.value
        yield ConditionStep(condition, _left(offerings, pool, said))


def _left(offerings: Offerings, pool: NodePool, said: Mapping[str, Any]) -> tuple[Offering, ...]:
    """Returns the offerings of the pool as if it said no more than that."""
    partly = pool.model_copy(update={"spec": pool.spec.model_copy(update=dict(said))})
    return offerings.of_variant(partly)


def conditions_of(spec: NodePoolSpec) -> Iterator[PoolCondition]:
    """Yields what a pool declares of its machines: types first, then zones, capacity types, and how GPUs are cut."""
    if spec.gpu is not None:
        yield PoolCondition(f"gpu {_gpu(spec.gpu)}", ("spec", "gpu"), "gpu", spec.gpu)
    listed: Iterable[tuple[str, str, tuple[str, ...]]] = (
        ("instanceTypes", "instance_types", spec.instance_types),
        ("instanceFamilies", "instance_families", spec.instance_families),
    )
    for key, field, values in listed:
        if values:
            yield PoolCondition(f"{key} {', '.join(values)}", ("spec", key), field, values)
    for number, term in enumerate(spec.requirements):
        words = f"requirement {_term(term)}"
        yield PoolCondition(words, ("spec", "requirements", number), "requirements", spec.requirements[: number + 1])
    if spec.placement.fabric is True:
        path = ("spec", "placement", FABRIC_FIELD)
        yield PoolCondition(f"placement.{FABRIC_FIELD}", path, "placement", spec.placement)
    if spec.zones:
        yield PoolCondition(f"zones {', '.join(spec.zones)}", ("spec", "zones"), "zones", spec.zones)
    types = spec.capacity_types
    yield PoolCondition(f"capacityTypes {', '.join(types)}", ("spec", "capacityTypes"), "capacity_types", types)
    if spec.sharing.mig is not None:
        words = f"sharing.mig {', '.join(spec.sharing.mig.layouts)}"
        yield PoolCondition(words, ("spec", "sharing", "mig", "layouts"), "sharing", spec.sharing)


def _gpu(gpu: GpuSelector) -> str:
    told = gpu.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    parts = (f"{key} {', '.join(value) if isinstance(value, list) else value}" for key, value in told.items())
    return "; ".join(parts) or "any"


def _term(term: RequirementTerm) -> str:
    return str(Requirements.from_terms((term,)))
