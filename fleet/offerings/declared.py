"""Holds what a revision declares against what its region sells: the checks that the loader cannot make by itself."""

from collections.abc import Iterator

from fleet.offerings.declared_layouts import quotas_beyond_layouts
from fleet.offerings.declared_names import unknown_names
from fleet.offerings.declared_pools import DeclaredPools, overlays_without_offers, pools_without_offers, types_not_sold
from fleet.offerings.declared_quotas import quotas_beyond_limits
from fleet.offerings.listing import CatalogListing
from model.loader.checks import Check
from model.loader.declarations import Declarations
from model.problem import Problem


def catalog_checks(listing: CatalogListing) -> tuple[Check, ...]:
    """Returns the checks for `model.loader`; none for a catalogue that is not there yet."""
    if not listing.types:
        return ()

    def check(declarations: Declarations) -> Iterator[Problem]:
        """Yields what does not fit; only the unknown names, where there are errors among these."""
        names = list(unknown_names(listing, declarations))
        yield from names
        if any(problem.severity == "error" for problem in names):
            return  # what else it would say follows from these
        pools = DeclaredPools(listing, declarations)
        yield from pools_without_offers(pools)
        yield from types_not_sold(pools)
        yield from overlays_without_offers(pools)
        yield from quotas_beyond_limits(pools)
        yield from quotas_beyond_layouts(pools)

    return (check,)
