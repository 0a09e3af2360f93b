"""Finds names in declarations that the catalogue of the region does not know: types, families, GPU models, zones.

A name that selects machines and that nobody knows selects none, or, at the last of several, quietly fewer: an error.
Where it only excludes machines, or tells of machines that nobody buys, it may be meant: a warning. What is newer than
the catalogue stands in `allowUnknown` of the FleetPolicy.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from fleet.offerings.listing import CatalogListing
from model import labels
from model.hints import near
from model.kinds import Declaration, RequirementTerm
from model.loader.declarations import Declarations, Declared
from model.loader.tree import Path
from model.problem import Code, Problem, Severity

_WORDS: Final[Mapping[str, str]] = {
    labels.INSTANCE_TYPE: "instance type",
    labels.INSTANCE_FAMILY: "instance family",
    labels.INSTANCE_CATEGORY: "instance category",
    labels.INSTANCE_SIZE: "instance size",
    labels.INSTANCE_GPU_NAME: "GPU model",
    labels.INSTANCE_GPU_MANUFACTURER: "maker of GPUs",
    labels.INSTANCE_ACCELERATOR_NAME: "accelerator",
    labels.INSTANCE_ACCELERATOR_MANUFACTURER: "maker of accelerators",
    labels.INSTANCE_CPU_MANUFACTURER: "maker of processors",
    labels.ARCH: "architecture",
    labels.ZONE: "zone",
    labels.CAPACITY_TYPE: "capacity type",
}
"""Labels of which the catalogue knows all values; others (counts, sizes, speeds) are judged by what they leave."""
_CAPACITY_TYPES: Final = frozenset({"reserved", "spot", "on-demand"})


class NamedValue(NamedTuple):
    """A `NamedValue` is a place of a declaration that says which value a label of machines is to have."""

    source: Declared[Declaration]
    path: Path
    label: str
    value: str
    severity: Severity = "error"


def unknown_names(listing: CatalogListing, declarations: Declarations) -> Iterator[Problem]:
    """Yields the names that the catalogue does not know, each with the one that it knows and that is next to it."""
    names, allowed = CatalogNames(listing), allowed_unknown(declarations)
    for each in named_values(declarations):
        known = names.of(each.label)
        if not known or each.value in known or each.value in allowed:
            continue
        message = f"{each.value!r} is no {_WORDS[each.label]} that {listing.source} of {listing.region} knows"
        hint = names.hint(each.label, each.value)
        yield each.source.problem(each.path, message, Code.UNKNOWN_NAME, hint=hint, severity=each.severity)


def allowed_unknown(declarations: Declarations) -> frozenset[str]:
    """Returns the names that the policy says are right, whether the catalogue knows them or not."""
    return frozenset(name for policy in declarations.policies.values() for name in policy.value.spec.allow_unknown)


class CatalogNames:
    """`CatalogNames` knows the values of a region's labels; each label is gone through when it is first asked for."""

    def __init__(self, listing: CatalogListing) -> None:
        self._listing = listing
        self._values = {labels.ZONE: listing.zones, labels.CAPACITY_TYPE: _CAPACITY_TYPES}

    def of(self, label: str) -> Collection[str]:
        """Returns all values of a label; empty where nothing is known of it."""
        if label not in self._values:
            self._values[label] = self._listing.values(label)
        return self._values[label]

    def hint(self, label: str, value: str) -> str:
        """Returns what was probably meant, and what to do if it was not."""
        if label == labels.ZONE and (elsewhere := self._listing.region_of(value)):
            return f"it is a zone of {elsewhere}: check against that region, or choose one of {self._listing.region}"
        meant = self._near_type(value) if label == labels.INSTANCE_TYPE else near(value, self.of(label))
        guess = f"did you mean {meant!r}? " if meant else ""
        return f"{guess}If it is right, list it in allowUnknown of the FleetPolicy"

    def _near_type(self, value: str) -> str | None:
        """Returns the type of a similar name: same family and similar size, else similar family and same size.

        There are too many types to compare with all.
        """
        family, _, size = value.partition(".")
        sizes = {name.partition(".")[2] for name in self._listing.types if name.partition(".")[0] == family}
        if sizes and (meant := near(size, sizes)):
            return f"{family}.{meant}"
        same = {name.partition(".")[0] for name in self._listing.types if name.partition(".")[2] == size}
        return f"{meant}.{size}" if (meant := near(family, same)) else None


def named_values(declarations: Declarations) -> Iterator[NamedValue]:
    """Yields every place that says a value of a label in `_WORDS`."""
    for pool in declarations.node_pools.values():
        spec = pool.value.spec
        yield from _listed(pool, ("spec", "instanceTypes"), labels.INSTANCE_TYPE, spec.instance_types)
        yield from _listed(pool, ("spec", "instanceFamilies"), labels.INSTANCE_FAMILY, spec.instance_families)
        yield from _listed(pool, ("spec", "zones"), labels.ZONE, spec.zones)
        models = spec.gpu.models if spec.gpu else ()
        yield from _listed(pool, ("spec", "gpu", "models"), labels.INSTANCE_GPU_NAME, models)
        yield from _of_terms(pool, spec.requirements)
        yield from _of_labels(pool, ("spec", "template", "labels"), spec.template.labels, "error")
    for overlay in declarations.node_overlays.values():
        yield from _of_terms(overlay, overlay.value.spec.requirements)
    for flavor in declarations.flavors.values():
        yield from _of_labels(flavor, ("spec", "nodeLabels"), flavor.value.spec.node_labels, "warning")
    for resource in declarations.resource_flavors.values():
        yield from _of_labels(resource, ("spec", "nodeLabels"), resource.value.spec.node_labels, "warning")


def _listed(source: Declared[Declaration], path: Path, label: str, values: Iterable[str]) -> Iterator[NamedValue]:
    for index, value in enumerate(values):
        yield NamedValue(source, (*path, index), label, value)


def _of_terms(source: Declared[Declaration], terms: Iterable[RequirementTerm]) -> Iterator[NamedValue]:
    for index, term in enumerate(terms):
        label = labels.normalize(term.key)
        if label in _WORDS and term.operator in {"In", "NotIn"}:
            severity: Severity = "error" if term.operator == "In" else "warning"
            for position, value in enumerate(term.values):
                path: Path = ("spec", "requirements", index, "values", position)
                yield NamedValue(source, path, label, value, severity)


def _of_labels(
    source: Declared[Declaration], path: Path, said: Mapping[str, str], severity: Severity
) -> Iterator[NamedValue]:
    for key, value in said.items():
        if labels.normalize(key) in _WORDS:
            yield NamedValue(source, (*path, key), labels.normalize(key), value, severity)
