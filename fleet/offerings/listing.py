"""What a region sells by name, for those who hold a fleet against it without a need for the whole catalogue."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from fleet.catalog import Catalog, InstanceOffer
from model import labels
from model.requirements import Requirements


class CatalogListing:
    """A `CatalogListing` names what a region sells: instance types with their labels, and zones.

    This one is of a catalogue that is there anyway. Those of a cloud are made in a fraction of the time that a whole
    `Catalog` takes.
    """

    source = "the catalogue"
    """Who knows this, in words."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.region = catalog.region
        self.zones: Collection[str] = catalog.zones or frozenset(offer.zone for offer in catalog.offers)
        """Zones of the region in which anything is sold; empty = nothing is known of them."""
        self._by_type: dict[str, list[InstanceOffer]] | None = None

    @property
    def types(self) -> Collection[str]:
        """Returns the names of all instance types that are known, sold in the region or not."""
        return self._catalog.types

    def values(self, label: str) -> Collection[str]:
        """Returns the values of a label that machines of any known type carry."""
        if label == labels.INSTANCE_TYPE:
            return self.types
        return {machine.labels[label] for machine in self._catalog.types.values() if label in machine.labels} - {""}

    def suited(self, wanted: Requirements) -> Sequence[str]:
        """Returns the types that no label of theirs keeps from meeting the requirements, sorted."""
        return sorted(name for name, machine in self._catalog.types.items() if not_against(wanted, machine.labels))

    def catalog(self, types: Collection[str]) -> Catalog:
        """Returns the catalogue of these types and no others."""
        if self._by_type is None:
            self._by_type = defaultdict(list)
            for offer in self._catalog.offers:
                self._by_type[offer.instance_type.name].append(offer)
        some = [name for name in types if name in self._catalog.types]
        return replace(
            self._catalog,
            types={name: self._catalog.types[name] for name in some},
            offers=tuple(offer for name in some for offer in self._by_type.get(name, ())),
        )

    def region_of(self, _zone: str) -> str:
        """Returns the region of a zone that is elsewhere, as far as that is known; else empty."""
        return ""


def not_against(wanted: Requirements, carried: Mapping[str, str]) -> bool:
    """Returns whether labels of machines meet the requirements, as far as they say anything of them."""
    return all(requirement.has(carried[key]) for key, requirement in wanted.items() if key in carried)
