"""What the package knows of a region by name, without the time that a catalogue of it takes."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from fleet.catalog import Catalog, InstanceOffer, InstanceType
from fleet.offerings.listing import CatalogListing, not_against
from model import labels
from model.requirements import Requirements
from providers.aws.allocatable import hardware
from providers.aws.catalog import build_catalog, package_zones
from providers.aws.facts import TypeFacts, package, package_types
from providers.aws.machine_types import type_labels
from providers.aws.node_sizes import Ec2NodeProfiles, Hardware
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
        self._prices = package_prices(region)
        self._hardware: dict[str, Hardware] = {}
        self._built: dict[str, tuple[InstanceType, list[InstanceOffer]]] = {}
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
            for name in self._listed(wanted)
            if all(requirement.has(value) for of, requirement in quick if (value := of(self._facts[name])))
            and not_against(wanted, self._labels(self._facts[name]))
        ]

    def _listed(self, wanted: Requirements) -> Iterable[str]:
        """The types that requirements list by name, as most pools do; else all."""
        types = wanted.of(labels.INSTANCE_TYPE)
        return self._facts if types.complement else sorted(types.values & self._facts.keys())

    def _labels(self, facts: TypeFacts) -> Mapping[str, str]:
        if facts.name not in self._labels_of:
            self._labels_of[facts.name] = dict(type_labels(facts))
        return self._labels_of[facts.name]

    def catalog(self, types: Collection[str]) -> Catalog:
        """The catalogue of these types and no others; each type is built once."""
        new = {name: self._facts[name] for name in types if name in self._facts and name not in self._built}
        if new:
            zones = {name: self._zones[name] for name in new if name in self._zones}
            made = build_catalog(self.region, new, zones, self._prices).catalog
            self._hardware |= {name: hardware(facts) for name, facts in new.items()}
            self._built |= {name: (machine, []) for name, machine in made.types.items()}
            for offer in made.offers:
                self._built[offer.instance_type.name][1].append(offer)
        some = {name: self._built[name] for name in types if name in self._built}
        return Catalog(
            self.region,
            {name: machine for name, (machine, _) in some.items()},
            tuple(offer for _, offers in some.values() for offer in offers),
            profiles=Ec2NodeProfiles(self._hardware),
        )

    def region_of(self, zone: str) -> str:
        """The region of a zone of the package, if it is another one."""
        found = region_of_zone(zone)
        return "" if found == self.region else found


def region_of_zone(zone: str) -> str:
    """The region of a zone; empty for one that the package does not know."""
    known = (package()["zones"], package()["letters"])
    return zone[:-1] if zone[-1:].isalpha() and any(zone[:-1] in each for each in known) else ""
