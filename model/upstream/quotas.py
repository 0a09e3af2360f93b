"""`resourceGroups` of ClusterQueues and Cohorts: quota per flavor and resource, and the rules that hold among them."""

from collections.abc import Iterator, Sequence
from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, Field, field_serializer, model_validator

from model.kinds.base import LabelKey, Spec
from model.kinds.errors import Path, misplaced
from model.quantity import format_amount
from model.upstream.base import Amount, Subdomain

_MOST_FLAVORS = 256
"""In all groups together."""


class ResourceQuota(Spec):
    """Quota of one resource of one flavor. Amounts are canonical integers (milli-CPU, else whole units)."""

    name: LabelKey
    """The resource: `cpu`, `memory`, `nvidia.com/gpu`, `pods`."""
    nominal_quota: Amount
    """Own quota; in a Cohort, quota on top of what its children bring."""
    borrowing_limit: Amount | None = None
    """Most that may be used above the nominal quota; unset = whatever is idle. Needs a parent."""
    lending_limit: Amount | None = None
    """Most of the nominal quota that others may use; unset = all of it. Needs a parent."""

    @field_serializer("nominal_quota", "borrowing_limit", "lending_limit")
    def _as_quantity(self, amount: int | None) -> str | None:
        return None if amount is None else format_amount(self.name, amount)


class FlavorQuotas(Spec):
    """Quotas of one flavor."""

    name: Subdomain
    """A `ResourceFlavor`, or a `Flavor` or `NodePool` of ours."""
    resources: Annotated[tuple[ResourceQuota, ...], Field(min_length=1, max_length=64)]
    """Every covered resource of the group, in the group's order."""


class ResourceGroup(Spec):
    """Resources that a pod set takes from one flavor together."""

    covered_resources: Annotated[tuple[LabelKey, ...], Field(min_length=1, max_length=64)]
    """A resource belongs to one group."""
    flavors: Annotated[tuple[FlavorQuotas, ...], Field(min_length=1, max_length=64)]
    """Tried in this order; a flavor belongs to one group."""

    @model_validator(mode="after")
    def _every_flavor_covers_the_group(self) -> Self:
        covered = self.covered_resources
        for index, flavor in enumerate(self.flavors):
            listed = tuple(quota.name for quota in flavor.resources)
            place: Path = ("flavors", index, "resources")
            if len(listed) != len(covered):
                raise misplaced(
                    place, f"the group covers {_count(covered)}, flavor {flavor.name!r} lists {len(listed)}"
                )
            for position, (name, wanted) in enumerate(zip(listed, covered, strict=True)):
                if name != wanted:
                    message = f"must be {wanted!r}: a flavor lists the covered resources in their order"
                    raise misplaced((*place, position, "name"), message)
        return self


def _count(resources: Sequence[str]) -> str:
    return f"{len(resources)} resource{'s' if len(resources) > 1 else ''}"


def _once_in_all_groups(groups: tuple[ResourceGroup, ...]) -> tuple[ResourceGroup, ...]:
    resources: set[str] = set()
    flavors: set[str] = set()
    for index, group in enumerate(groups):
        for position, resource in enumerate(group.covered_resources):
            if resource in resources:
                raise misplaced((index, "coveredResources", position), f"{resource!r} is already covered")
            resources.add(resource)
        for position, flavor in enumerate(group.flavors):
            if flavor.name in flavors:
                message = f"flavor {flavor.name!r} is already listed; a flavor belongs to one group"
                raise misplaced((index, "flavors", position, "name"), message)
            flavors.add(flavor.name)
    if len(flavors) > _MOST_FLAVORS:
        raise ValueError(f"the groups list {len(flavors)} flavors, at most {_MOST_FLAVORS} are taken")
    return groups


ResourceGroups = Annotated[tuple[ResourceGroup, ...], Field(max_length=16), AfterValidator(_once_in_all_groups)]


class Cell(NamedTuple):
    """One quota and where it stands below `spec`."""

    path: Path
    flavor: str
    quota: ResourceQuota


def cells(groups: Sequence[ResourceGroup]) -> Iterator[Cell]:
    """Every quota, in the order it is written."""
    for index, group in enumerate(groups):
        for position, flavor in enumerate(group.flavors):
            for place, quota in enumerate(flavor.resources):
                path: Path = ("resourceGroups", index, "flavors", position, "resources", place)
                yield Cell(path, flavor.name, quota)


def check_limits(groups: Sequence[ResourceGroup], *, has_parent: bool, parent_key: str) -> None:
    """Raises at the first limit of a node that has nobody to borrow from or lend to (upstream's webhooks)."""
    if has_parent:
        return
    for path, _, quota in cells(groups):
        for key, limit in (("borrowingLimit", quota.borrowing_limit), ("lendingLimit", quota.lending_limit)):
            if limit is not None:
                raise misplaced((*path, key), f"a limit needs a {parent_key}: without one nothing is shared")


def check_lending(groups: Sequence[ResourceGroup]) -> None:
    """Raises at the first lending limit above the nominal quota (ClusterQueues only: Cohorts lend their children's)."""
    for path, _, quota in cells(groups):
        if quota.lending_limit is not None and quota.lending_limit > quota.nominal_quota:
            raise misplaced((*path, "lendingLimit"), "is more than the nominalQuota that could be lent")
