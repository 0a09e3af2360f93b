"""The quota tree: each formula on worked examples, and what must hold whatever is charged."""

import pytest

from fleet.quota.specs import FlavorResource, QuotaCohortSpec, QuotaQueueSpec
from fleet.quota.tree import QuotaTree, available, borrow_height, charge, fits, release
from tests.support.quotas import QuotaWorld, cohort, queue

Specs = tuple[QuotaCohortSpec | QuotaQueueSpec, ...]

ALONE: Specs = (queue("a", "", {"f": (8, 3, 2)}),)
TWO: Specs = (cohort("root", "", {"f": 10}), queue("a", "root", {"f": 8}), queue("b", "root", {"f": 4}))
LENDING: Specs = (cohort("root"), queue("a", "root", {"f": (8, None, 2)}), queue("b", "root", {"f": 4}))
LIMITED: Specs = (cohort("root"), queue("a", "root", {"f": (8, 3)}), queue("b", "root", {"f": 10}))
DEEP: Specs = (
    cohort("root", "", {"f": 4}),
    cohort("left", "root", {"f": (2, 3)}),
    cohort("right", "root", {"f": (6, None, 5)}),
    queue("a", "left", {"f": 3}),
    queue("b", "left", {"f": (1, 1)}),
    queue("c", "right", {"f": 2}),
)


def world(specs: Specs, **usage: int) -> QuotaWorld:
    made = QuotaWorld.of(*specs)
    for name, amount in usage.items():
        charge(made.tree.queues[name], {made.cell(): amount})
    return made


@pytest.mark.parametrize(
    ("specs", "name", "subtree", "private"),
    [
        pytest.param(TWO, "a", 8, 0, id="a queue's is its nominal"),
        pytest.param(TWO, "root", 22, 0, id="a cohort adds what its children lend to its own"),
        pytest.param(LENDING, "a", 8, 6, id="a lending limit keeps the rest private"),
        pytest.param(LENDING, "root", 6, 0, id="and only the lent part counts above"),
        pytest.param(DEEP, "left", 6, 0, id="a cohort's own quota counts with its children's"),
        pytest.param(DEEP, "right", 8, 3, id="cohorts lend with limits too"),
        pytest.param(DEEP, "root", 15, 0, id="sums go up level by level"),
    ],
)
def test_what_a_node_may_call_its_own(specs: Specs, name: str, subtree: int, private: int) -> None:
    made = world(specs)
    node = made.node(name)
    assert (node.subtree[made.cell()], node.private[made.cell()]) == (subtree, private)


@pytest.mark.parametrize(
    ("specs", "usage", "name", "left"),
    [
        pytest.param(ALONE, {}, "a", 8, id="without a cohort limits mean nothing"),
        pytest.param(ALONE, {"a": 9}, "a", 0, id="never negative for a queue, even if its quota was cut"),
        pytest.param(TWO, {}, "a", 22, id="everything that is lent"),
        pytest.param(TWO, {"b": 12}, "a", 10, id="less what others took"),
        pytest.param(TWO, {"a": 22}, "a", 0, id="nothing is left"),
        pytest.param(LENDING, {}, "b", 6, id="another's private part is out of reach"),
        pytest.param(LENDING, {"b": 6}, "a", 6, id="one's own private part stays"),
        pytest.param(LENDING, {"a": 5, "b": 6}, "a", 1, id="the private part is used first"),
        pytest.param(LENDING, {"a": 7}, "b", 5, id="only what is past it is taken from the cohort"),
        pytest.param(LIMITED, {}, "a", 11, id="nominal and the borrowing limit"),
        pytest.param(LIMITED, {"a": 9}, "a", 2, id="what is borrowed already counts"),
        pytest.param(LIMITED, {"a": 11}, "a", 0, id="the borrowing limit is reached"),
        pytest.param(LIMITED, {"b": 17}, "a", 1, id="the cohort may have less than the limit"),
        pytest.param(DEEP, {}, "a", 9, id="a limit of the cohort above: 6 own and 3 borrowed"),
        pytest.param(DEEP, {}, "b", 2, id="one's own limit is the tighter one"),
        pytest.param(DEEP, {"b": 2}, "a", 7, id="siblings share the limit above"),
        pytest.param(DEEP, {"c": 15}, "a", 3, id="a cousin took what the root had"),
        pytest.param(DEEP, {"a": 9}, "c", 9, id="3 private and 6 of the root"),
    ],
)
def test_available(specs: Specs, usage: dict[str, int], name: str, left: int) -> None:
    made = world(specs, **usage)
    assert available(made.tree.queues[name], made.cell()) == left


@pytest.mark.parametrize(
    ("specs", "name", "most"),
    [
        pytest.param(ALONE, "a", 8, id="alone"),
        pytest.param(TWO, "b", 22, id="all that is lent"),
        pytest.param(LENDING, "a", 12, id="private part and all that is lent"),
        pytest.param(LIMITED, "a", 11, id="up to the borrowing limit"),
        pytest.param(DEEP, "a", 9, id="up to the limit of the cohort above"),
        pytest.param(DEEP, "b", 2, id="up to the nearest limit"),
        pytest.param(DEEP, "c", 18, id="private parts at every level"),
    ],
)
def test_potential_is_what_an_idle_tree_gives(specs: Specs, name: str, most: int) -> None:
    made = world(specs)
    assert made.node(name).potential[made.cell()] == most == available(made.node(name), made.cell())


def test_an_inner_node_may_owe_and_what_it_owes_is_not_handed_out_below() -> None:
    """Quota was cut under the feet of a holder: the other queue keeps its private part, and nothing else."""
    made = world(LENDING, b=9)
    assert made.node("root").unused(made.cell()) == -3
    assert available(made.node("a"), made.cell()) == 3
    assert available(made.node("b"), made.cell()) == 0


@pytest.mark.parametrize(
    ("usage", "queue_name", "amount", "height", "below_root"),
    [
        pytest.param({}, "a", 3, 0, True, id="its own"),
        pytest.param({}, "a", 6, 1, True, id="one level up has it"),
        pytest.param({}, "a", 7, 2, False, id="only the root has it"),
        pytest.param({"b": 2}, "a", 4, 1, True, id="a sibling's borrowing leaves four of six"),
        pytest.param({"b": 2}, "a", 5, 2, False, id="and not five"),
        pytest.param({}, "c", 3, 1, True, id="the cohort's own quota, private or not"),
        pytest.param({}, "c", 99, 2, False, id="more than anybody has: the root's height"),
        pytest.param({"c": 7}, "c", 1, 1, True, id="private parts are taken off on the way up"),
    ],
)
def test_borrow_height(usage: dict[str, int], queue_name: str, amount: int, height: int, below_root: bool) -> None:
    made = world(DEEP, **usage)
    assert borrow_height(made.node(queue_name), made.cell(), amount) == (height, below_root)


def test_a_queue_without_a_cohort_never_borrows() -> None:
    made = world(ALONE)
    assert borrow_height(made.node("a"), made.cell(), 99) == (0, False)


def test_heights_are_the_longest_way_down() -> None:
    made = QuotaWorld.of(cohort("top"), cohort("mid", "top"), queue("x", "mid"), queue("y", "top"))
    assert [made.node(name).height for name in ("x", "y", "mid", "top")] == [0, 0, 1, 2]


def test_what_is_charged_fills_the_private_part_before_it_counts_above() -> None:
    made = world(DEEP)
    node, cell = made.node("c"), made.cell()
    seen = []
    for _ in range(3):
        charge(node, {cell: 2})
        seen.append([made.node(name).usage[cell] for name in ("c", "right", "root")])
    assert seen == [[2, 2, 0], [4, 4, 1], [6, 6, 3]]
    release(node, {cell: 5})
    assert [made.node(name).usage[cell] for name in ("c", "right", "root")] == [1, 1, 0]


def test_fits_means_every_cell() -> None:
    made = QuotaWorld.of(queue("a", "", {"f": 2, "g": 3}))
    node = made.node("a")
    assert fits(node, made.cells({"f": 2, "g": 3}))
    assert not fits(node, made.cells({"f": 2, "g": 4}))
    assert fits(node, {})


@pytest.mark.parametrize(
    ("cells", "inside"),
    [((), True), (("f",), True), (("g",), False), (("f", "g"), False)],
    ids=["no cell", "at its quota", "above it", "one of two above it"],
)
def test_within(cells: tuple[str, ...], inside: bool) -> None:
    made = QuotaWorld.of(cohort("root", "", {"f": 5, "g": 5}), queue("a", "root", {"f": 2, "g": 2}))
    node = made.node("a")
    charge(node, made.cells({"f": 2, "g": 3}))
    assert node.within([made.cell(cell) for cell in cells]) is inside


def test_a_cohort_that_is_only_named_exists_without_quota() -> None:
    made = QuotaWorld.of(queue("a", "ghost", {"f": 4}), queue("b", "ghost", {"f": 1}))
    assert made.tree.cohorts["ghost"].parent is None
    assert available(made.node("b"), made.cell()) == 5


def test_cohorts_above_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="p, q are above each other"):
        QuotaTree([cohort("p", "q"), cohort("q", "p"), cohort("fine")], [])


def test_a_cell_that_no_quota_names_has_none_anywhere() -> None:
    made = QuotaWorld.of(cohort("root"), queue("a", "root", {"f": 4}))
    cell = made.tree.cell(FlavorResource("other", "disk"))
    assert available(made.node("a"), cell) == 0
    assert made.node("a").potential[cell] == 0
    assert cell == made.tree.cell(FlavorResource("other", "disk")), "it is the same cell the next time"


def test_which_resources_quota_limits() -> None:
    made = QuotaWorld.of(queue("a", "root", {"f": 4}), queue("b", "root", {"g/gpu": 1}), queue("c", "other", {"h": 1}))
    counted = {(name, named) for name in "abc" for named in made.tree.cells if made.tree.counts(made.node(name), named)}
    both = {FlavorResource("f", "cpu"), FlavorResource("g", "gpu")}
    assert counted == {*(("a", n) for n in both), *(("b", n) for n in both), ("c", FlavorResource("h", "cpu"))}
    assert not made.tree.counts(made.node("a"), FlavorResource("nobody", "knows"))


def test_paths_and_queues_below() -> None:
    made = world(DEEP)
    assert made.node("a").path == "/" + "root/left/a"
    assert made.node("root").path == "/" + "root"
    assert [node.name for node in made.node("root").queues()] == ["a", "b", "c"]
    assert made.node("c").root is made.node("root")


def test_a_queue_below_a_team_calls_the_teams_quota_its_own() -> None:
    made = QuotaWorld.of(
        cohort("root"), cohort("team", "root", {"f": 6}), queue("q", "team", through_team=True), queue("x", "root")
    )
    node, cell = made.node("q"), made.cell()
    assert node.owner is made.node("team")
    assert borrow_height(node, cell, 6) == (0, True)
    assert available(node, cell) == 6


def test_order_of_children_is_by_name_for_cohorts() -> None:
    made = QuotaWorld.of(cohort("z", "root"), cohort("b", "root"), cohort("root"), cohort("m", "root"))
    assert [node.name for node in made.node("root").children] == ["b", "m", "z"]
