"""Dominant shares: what is borrowed of what could be, by weight."""

import pytest

from fleet.quota.specs import QuotaCohortSpec, QuotaQueueSpec
from fleet.quota.tree import DominantResourceShare, charge, dominant_resource_share
from tests.support.quotas import QuotaWorld, cohort, queue

Specs = tuple[QuotaCohortSpec | QuotaQueueSpec, ...]

PLAIN: Specs = (queue("a", "root", {"f": 4}), queue("b", "root", {"f": 6}))
FLAVORS: Specs = (queue("a", "root", {"f": 4, "g": 2}), queue("b", "root", {"f": 6, "g": 8}))
RESOURCES: Specs = (
    queue("a", "root", {"f/cpu": 4, "f/gpu": 2}),
    queue("b", "root", {"f/cpu": 6, "f/gpu": 6}),
)
PRIVATE: Specs = (queue("a", "root", {"f": (4, None, 1)}), queue("b", "root", {"f": 9}))
NOTHING_LENT: Specs = (queue("a", "root", {"f": 0}), queue("b", "root", {"f": (6, None, 0)}))


def weighted(weight: float) -> Specs:
    return (queue("a", "root", {"f": 4}, weight=weight), queue("b", "root", {"f": 6}))


@pytest.mark.parametrize(
    ("specs", "usage", "key", "resource"),
    [
        pytest.param(PLAIN, {"f": 4}, (False, 0.0), "", id="within its quota"),
        pytest.param(PLAIN, {"f": 7}, (False, 300.0), "cpu", id="3 of 10"),
        pytest.param(FLAVORS, {"f": 6, "g": 4}, (False, 200.0), "cpu", id="flavors of a resource add up: 4 of 20"),
        pytest.param(FLAVORS, {"f": 6}, (False, 100.0), "cpu", id="unused quota of another flavor is no excuse"),
        pytest.param(RESOURCES, {"f/cpu": 5, "f/gpu": 4}, (False, 250.0), "gpu", id="the largest: 2 of 8, not 1 of 10"),
        pytest.param(
            RESOURCES, {"f/cpu": 9, "f/gpu": 6}, (False, 500.0), "cpu", id="the first in the alphabet of equals"
        ),
        pytest.param(
            PRIVATE, {"f": 6}, (False, 200.0), "cpu", id="private quota counts as own, not as lendable: 2 of 10"
        ),
        pytest.param(NOTHING_LENT, {"f": 3}, (False, 0.0), "", id="of nothing lendable there is no share"),
        pytest.param(weighted(2), {"f": 7}, (False, 150.0), "cpu", id="twice the weight, half the share"),
        pytest.param(weighted(0.5), {"f": 7}, (False, 600.0), "cpu", id="half the weight, twice the share"),
        pytest.param(weighted(0), {"f": 7}, (True, 300.0), "cpu", id="without weight it is infinite"),
        pytest.param(weighted(0), {"f": 4}, (False, 0.0), "", id="but only once it borrows"),
    ],
)
def test_share_of_a_queue(specs: Specs, usage: dict[str, int], key: tuple[bool, float], resource: str) -> None:
    world = QuotaWorld.of(*specs)
    charge(world.node("a"), world.cells(usage))
    share = dominant_resource_share(world.tree, world.node("a"))
    assert (share.key, share.resource) == (key, resource)


def test_a_root_has_no_share() -> None:
    world = QuotaWorld.of(*PLAIN)
    charge(world.node("a"), world.cells({"f": 99}))
    assert dominant_resource_share(world.tree, world.node("root")).key == (False, 0.0)
    alone = QuotaWorld.of(queue("alone", "", {"f": 1}))
    charge(alone.node("alone"), alone.cells({"f": 99}))
    assert dominant_resource_share(alone.tree, alone.node("alone")).key == (False, 0.0)


def test_every_level_has_its_own_share_and_weight() -> None:
    """Below `left` two queues: what they lend each other is not borrowed one level up."""
    world = QuotaWorld.of(
        cohort("root", "", {"f": 10}),
        cohort("left", "root", weight=2.0),
        queue("a", "left", {"f": 2}),
        queue("b", "left", {"f": 3}),
        queue("c", "root", {"f": 5}),
    )
    charge(world.node("a"), world.cells({"f": 5}))
    shares = [dominant_resource_share(world.tree, world.node(name)) for name in ("a", "left")]
    assert [(share.key, share.borrowing) for share in shares] == [((False, 150.0), True), ((False, 0.0), False)]
    charge(world.node("a"), world.cells({"f": 4}))
    shares = [dominant_resource_share(world.tree, world.node(name)) for name in ("a", "left")]
    assert [share.key for share in shares] == [(False, 350.0), (False, 100.0)]


def test_what_is_lendable_is_what_the_parent_could_reach() -> None:
    """A borrowing limit above makes a cohort small, and shares in it large."""
    world = QuotaWorld.of(
        cohort("root", "", {"f": 100}),
        cohort("left", "root", {"f": (0, 6)}),
        queue("a", "left", {"f": 2}),
        queue("b", "left", {"f": 2}),
    )
    charge(world.node("a"), world.cells({"f": 7}))
    assert dominant_resource_share(world.tree, world.node("a")).key == (False, 500.0)
    assert dominant_resource_share(world.tree, world.node("left")).key == (False, 3 * 1000 / 104)


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        pytest.param(
            DominantResourceShare(0, 1),
            DominantResourceShare(1, 1, "cpu", borrowing=True),
            id="nothing before something",
        ),
        pytest.param(
            DominantResourceShare(900, 3, "cpu", borrowing=True),
            DominantResourceShare(400, 1, "cpu", borrowing=True),
            id="by weight",
        ),
        pytest.param(
            DominantResourceShare(900, 1, "cpu", borrowing=True),
            DominantResourceShare(1, 0, "cpu", borrowing=True),
            id="infinite is last",
        ),
        pytest.param(
            DominantResourceShare(1, 0, "cpu", borrowing=True),
            DominantResourceShare(2, 0, "cpu", borrowing=True),
            id="infinite ones by ratio",
        ),
        pytest.param(
            DominantResourceShare(0, 0),
            DominantResourceShare(1, 5, "cpu", borrowing=True),
            id="without weight, but not borrowing",
        ),
    ],
)
def test_order_of_shares(smaller: DominantResourceShare, larger: DominantResourceShare) -> None:
    assert smaller.key < larger.key


def test_only_a_borrower_without_weight_is_infinite() -> None:
    assert DominantResourceShare(1, 0, "cpu", borrowing=True).key[0]
    assert not DominantResourceShare(0, 0).key[0]
    assert not DominantResourceShare(1, 0.001, "cpu", borrowing=True).key[0]


@pytest.mark.parametrize(
    ("usage", "cells", "borrows"),
    [
        ({"f": 4}, ("f", "g"), False),
        ({"f": 5}, ("f",), True),
        ({"f": 5}, ("g",), False),
        ({"f": 5, "g": 3}, ("g",), True),
        ({"f": 5}, (), False),
    ],
    ids=["within", "the cell asked about", "another cell", "one of two", "no cell"],
)
def test_within(usage: dict[str, int], cells: tuple[str, ...], borrows: bool) -> None:
    world = QuotaWorld.of(*FLAVORS)
    charge(world.node("a"), world.cells(usage))
    assert world.node("a").within([world.cell(cell) for cell in cells]) is not borrows
