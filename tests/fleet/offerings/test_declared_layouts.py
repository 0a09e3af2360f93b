"""The fewest machines of each layout that hold what quotas guarantee, and the warning where limits allow fewer."""

from collections.abc import Mapping, Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.offerings.declared import catalog_checks
from fleet.offerings.declared_layouts import least_machines
from fleet.offerings.listing import CatalogListing
from model.loader.load import inspect
from providers.aws.catalog import package_catalog
from tests.agent.scenes import P4DE, B, C, files, layout, pool, queue, team

SMALL, LARGE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
THIN, HALF = {SMALL: 56}, {LARGE: 16}
MIXED = {SMALL: 24, LARGE: 8}


@pytest.mark.parametrize(
    ("cuts", "wanted", "least"),
    [
        ([THIN], {SMALL: 57}, 2),
        ([THIN, HALF], {SMALL: 56, LARGE: 16}, 2),
        ([THIN, HALF], {SMALL: 57, LARGE: 17}, 4),
        ([THIN, HALF, MIXED], {SMALL: 24, LARGE: 8}, 1),
        ([THIN], {LARGE: 1}, None),
    ],
)
def test_the_fewest_machines(cuts: Sequence[Mapping[str, int]], wanted: Mapping[str, int], least: int | None) -> None:
    found = least_machines(cuts, wanted)
    assert (None if found is None else sum(found)) == least


amounts = st.dictionaries(st.sampled_from("abc"), st.integers(1, 6), min_size=1)


@given(
    cuts=st.lists(amounts, min_size=1, max_size=3), wanted=st.dictionaries(st.sampled_from("abc"), st.integers(1, 9))
)
def test_no_mix_needs_fewer(cuts: list[dict[str, int]], wanted: dict[str, int]) -> None:
    found = least_machines(cuts, wanted)
    mixes = [
        sum(mix)
        for mix in product(range(10), repeat=len(cuts))
        if all(sum(n * cut.get(r, 0) for n, cut in zip(mix, cuts, strict=True)) >= w for r, w in wanted.items())
    ]
    assert (None if found is None else sum(found)) == min(mixes, default=None)


@pytest.mark.parametrize(("nodes", "warns"), [(3, True), (4, False)])
def test_quotas_that_no_mix_of_layouts_holds(nodes: int, warns: bool) -> None:
    """Each quota alone is within the limit."""
    fleet = files(
        pool("mig", (P4DE,), zones=[B, C], sharing={"mig": {"layouts": ["thin", "half"]}}, limits={"nodes": nodes}),
        layout("thin", **{"1g_10gb": 7}),
        layout("half", **{"3g_40gb": 2}),
        team(quotas={"mig": {SMALL: 100, LARGE: 32}}),
        queue(flavors=("mig",)),
    )
    checks = catalog_checks(CatalogListing(package_catalog("us-east-1").catalog))
    found = inspect({name: text.encode() for name, text in fleet.items()}, further=checks)
    words = [(it.severity, it.message) for it in found.problems]
    expected = "needs 4 machines (2 of thin, 2 of half)"
    assert any(severity == "warning" and expected in message for severity, message in words) is warns
    assert not any(severity == "error" for severity, _ in words)
