"""What else could be so: prices, shortages, quotas, and their combinations."""

import pytest

from fleet.replay.variants import Grid, PriceFactor, QuotaFactor, UnknownVariant, Variant
from fleet.replay.virtual_world import Shortage
from fleet.snapshot import CapacityPool
from tests.fleet.replay.test_virtual_run import fleet
from tests.support.fleets import GPU, catalog

POOL = CapacityPool("spot", "p5.48xlarge", "us-east-1a", "")


def test_prices_are_multiplied_where_they_are_meant() -> None:
    variant = Variant(prices=(PriceFactor(2.0, capacity_type="spot"), PriceFactor(1.5, "p5.48xlarge")))
    before = {it.pool_key: it.price_usd_h for it in catalog().offers}
    factors = {it.pool_key: it.price_usd_h / before[it.pool_key] for it in variant.priced(catalog()).offers}
    for key, factor in factors.items():
        assert factor == (2.0 if key.capacity_type == "spot" else 1.0) * (
            1.5 if key.instance_type == "p5.48xlarge" else 1
        )


def test_quotas_are_multiplied_and_the_fleet_stays_as_it_was() -> None:
    declared = fleet(guaranteed=10)
    granted = Variant(quotas=(QuotaFactor("t", 1.55),)).granted(declared)
    assert granted.teams["t"].spec.quotas["h100"].guaranteed == {GPU: 15}
    assert declared.teams["t"].spec.quotas["h100"].guaranteed == {GPU: 10}
    assert granted.index is not declared.index


@pytest.mark.parametrize(
    ("shortage", "at_s", "hits"),
    [
        (Shortage(10.0, 20.0), 10.0, True),
        (Shortage(10.0, 20.0), 20.0, False),
        (Shortage(10.0, 20.0, zone="us-east-1b"), 15.0, False),
        (Shortage(10.0, 20.0, "p5.48xlarge", "us-east-1a", "spot"), 15.0, True),
        (Shortage(10.0, 20.0, capacity_type="on-demand"), 15.0, False),
    ],
)
def test_a_shortage_hits_what_it_names_while_it_lasts(shortage: Shortage, at_s: float, hits: bool) -> None:
    assert shortage.hits(POOL, at_s) is hits


def test_a_variant_of_what_is_not_there_is_an_error() -> None:
    with pytest.raises(UnknownVariant, match=r"^v: its price is of p9.huge: not on sale$"):
        Variant("v", prices=(PriceFactor(2.0, "p9.huge"),)).priced(catalog())
    with pytest.raises(UnknownVariant, match=r"^v: its shortage is of moon-1a spot: not on sale$"):
        Variant("v", shortages=(Shortage(0.0, 1.0, "", "moon-1a", "spot"),)).priced(catalog())
    with pytest.raises(UnknownVariant, match=r"^v: team nobody"):
        Variant("v", quotas=(QuotaFactor("nobody", 2.0),)).granted(fleet())


def test_a_grid_has_every_combination_in_order() -> None:
    one, two = (Variant(name, quotas=(QuotaFactor("t", 2.0),)) for name in ("one", "two"))
    dear, cheap = (Variant(name, prices=(PriceFactor(2.0),)) for name in ("dear", "cheap"))
    found = Grid(((one, two), (dear, cheap))).variants()
    assert [it.name for it in found] == ["one, dear", "one, cheap", "two, dear", "two, cheap"]
    assert (found[0].quotas, found[0].prices) == (one.quotas, dear.prices)
    assert Grid().variants() == [Variant()]
