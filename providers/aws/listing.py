"""What the package knows of a region by name, without the time that a catalogue of it takes."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from fleet.offerings.listing import CatalogListing, not_against
from fleet.snapshot import Catalog
from model import labels
from model.requirements import Requirements
from providers.aws.catalog import build_catalog, package_zones
from providers.aws.facts import TypeFacts, package, package_types
from providers.aws.machine_types import type_labels
from providers.aws.prices import package_prices

_QUICK: Final[Mapping[str, Callable[[TypeFacts], str]]] = {
    labels.INSTANCE_TYPE: lambda facts: facts.name,
    labels.INSTANCE_FAMILY: lambda facts: facts.family,
    labels.INSTANCE_SIZE: lambda facts: facts.size,
    labels.ARCH: lambda facts: facts.arch,
    labels.INSTANCE_GPU_NAME: lambda facts: facts.gpus[0].name if len(facts.gpus) == 1 else "",
}
"""Labels that most fleets choose machines by, each without all the others."""


class PackageListing(CatalogListing):
    """A `PackageListing` names what the package knows of a region."""

    def __init__(self, region: str) -> None:
        self._facts = package_types()
        self._labels_of: dict[str, Mapping[str, str]] = {}
        self._zones = package_zones(region, assumed=True)
        super().__init__(Catalog(region, zones=frozenset(zone for each in self._zones.values() for zone in each)))
        assumed = ", types in all zones" if region in package()["letters"] else ""
        self.source = f"the package (of {package()['meta']['types_at'][:10]}{assumed})"

    @property
    def types(self) -> Collection[str]:
        """The names of all instance types of the package."""
        return self._facts

    def values(self, label: str) -> Collection[str]:
        """The values of a label that machines of any type carry."""
        if quick := _QUICK.get(label):
            return {quick(facts) for facts in self._facts.values()} - {""}
        return {self._labels(facts).get(label, "") for facts in self._facts.values()} - {""}

    def suited(self, wanted: Requirements) -> Sequence[str]:
        """The types that no label of theirs keeps from meeting the requirements, sorted."""
        quick = [(of, wanted[label]) for label, of in _QUICK.items() if label in wanted]
        return [
            name
            for name, facts in self._facts.items()
            if all(requirement.has(value) for of, requirement in quick if (value := of(facts)))
            and not_against(wanted, self._labels(facts))
        ]

    def _labels(self, facts: TypeFacts) -> Mapping[str, str]:
        if facts.name not in self._labels_of:
            self._labels_of[facts.name] = dict(type_labels(facts))
        return self._labels_of[facts.name]

    def catalog(self, types: Collection[str]) -> Catalog:
        """The catalogue of these types and no others."""
        facts = {name: self._facts[name] for name in types if name in self._facts}
        zones = {name: self._zones[name] for name in facts if name in self._zones}
        return build_catalog(self.region, facts, zones, package_prices(self.region)).catalog

    def region_of(self, zone: str) -> str:
        """The region of a zone of the package, if it is another one."""
        found = region_of_zone(zone)
        return "" if found == self.region else found


def region_of_zone(zone: str) -> str:
    """The region of a zone; empty for one that the package does not know."""
    known = (package()["zones"], package()["letters"])
    return zone[:-1] if zone[-1:].isalpha() and any(zone[:-1] in each for each in known) else ""
