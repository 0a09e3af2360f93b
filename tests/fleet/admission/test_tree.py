"""The quota tree: every formula on worked examples, and what must hold whatever is charged."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.admission.tree import Cohort, FlavorResource, Quota, QuotaTree
from tests.support.kueue import Case, cases, cells, tree_of

CELL = FlavorResource("h100", "nvidia.com/gpu")


class N(NamedTuple):
    """A node of a test tree: nominal, borrowing limit, lending limit; `q` marks a queue."""

    name: str
    parent: str = ""
    nominal: int = 0
    borrow: int | None = None
    lend: int | None = None
    q: bool = False


def tree(nodes: Sequence[N], **usage: int) -> QuotaTree:
    made = QuotaTree()
    for node in nodes:
        quota = {CELL: Quota(node.nominal, node.borrow, node.lend)}
        made.add(node.name, node.parent or None, quota, is_queue=node.q)
    made.seal()
    for queue, amount in usage.items():
        made.charge(queue, {CELL: amount})
    return made


def node(made: QuotaTree, name: str) -> Cohort:
    return made.queues.get(name) or made.cohorts[name]


TWO = (N("root", nominal=10), N("a", "root", 8, q=True), N("b", "root", 4, q=True))
LENDING = (N("root"), N("a", "root", 8, lend=2, q=True), N("b", "root", 4, q=True))
LIMITED = (N("root"), N("a", "root", 8, borrow=3, q=True), N("b", "root", 10, q=True))
DEEP = (
    N("root", nominal=4),
    N("left", "root", 2, borrow=3),
    N("right", "root", 6, lend=5),
    N("a", "left", 3, q=True),
    N("b", "left", 1, borrow=1, q=True),
    N("c", "right", 2, q=True),
)


@pytest.mark.parametrize(
    ("nodes", "name", "subtree", "local"),
    [
        pytest.param(TWO, "a", 8, 0, id="a queue's is its nominal"),
        pytest.param(TWO, "root", 22, 0, id="a cohort adds what its children lend to its own"),
        pytest.param(LENDING, "a", 8, 6, id="a lending limit keeps the rest private"),
        pytest.param(LENDING, "root", 6, 0, id="private quota is not the cohort's"),
        pytest.param(DEEP, "left", 6, 0, id="inner: 2 + 3 + 1"),
        pytest.param(DEEP, "right", 8, 3, id="an inner node keeps 8 - 5 private"),
        pytest.param(DEEP, "root", 15, 0, id="root: 4 + 6 + (8 - 3)"),
        pytest.param((N("root"), N("a", "root", 2, lend=5, q=True)), "a", 2, 0, id="lending more than there is"),
    ],
)
def test_subtree_and_local_quota(nodes: Sequence[N], name: str, subtree: int, local: int) -> None:
    found = node(tree(nodes), name)
    assert (found.subtree[CELL], found.local_quota(CELL)) == (subtree, local)


@pytest.mark.parametrize(
    ("nodes", "usage", "queue", "available"),
    [
        pytest.param(TWO, {}, "a", 22, id="all of an idle tree"),
        pytest.param(TWO, {"b": 15}, "a", 7, id="what the sibling leaves"),
        pytest.param(TWO, {"b": 25}, "a", 0, id="never negative"),
        pytest.param(LENDING, {"b": 6}, "a", 6, id="private quota stays whatever others take"),
        pytest.param(LENDING, {"a": 5}, "b", 6, id="private use costs the others nothing"),
        pytest.param(LENDING, {"a": 7}, "b", 5, id="beyond the private part it does"),
        pytest.param(LENDING, {"a": 5}, "a", 7, id="rest of the private part plus the cohort's"),
        pytest.param(LIMITED, {}, "a", 11, id="own plus the borrowing limit"),
        pytest.param(LIMITED, {"a": 9}, "a", 2, id="what is left of the limit"),
        pytest.param(LIMITED, {"b": 12}, "a", 6, id="the cohort has less than the limit allows"),
        pytest.param(DEEP, {}, "a", 9, id="the inner limit: 6 + 3"),
        pytest.param(DEEP, {"a": 7}, "a", 2, id="inner limit with usage"),
        pytest.param(DEEP, {}, "b", 2, id="limits at two levels, the tighter one holds: 1 + 1"),
        pytest.param(DEEP, {"a": 8}, "b", 1, id="limits at two levels, now the inner one: 9 - 8"),
        pytest.param(DEEP, {"c": 3}, "a", 9, id="private use on the right is not felt on the left"),
        pytest.param(DEEP, {"c": 12}, "a", 6, id="15 - (12 - 3) left at the root"),
        pytest.param(DEEP, {"c": 1}, "c", 17, id="private 3 and the root's 15, less 1"),
    ],
)
def test_available(nodes: Sequence[N], usage: dict[str, int], queue: str, available: int) -> None:
    made = tree(nodes, **usage)
    assert made.available(queue, CELL) == available
    assert made.fits(queue, {CELL: available})
    assert not made.fits(queue, {CELL: available + 1})


@pytest.mark.parametrize(
    ("nodes", "queue", "potential"),
    [
        pytest.param(TWO, "a", 22, id="everybody else idle"),
        pytest.param(LENDING, "a", 12, id="private 6 and the cohort's 6"),
        pytest.param(LIMITED, "a", 11, id="capped by the borrowing limit"),
        pytest.param(DEEP, "a", 9, id="capped one level up"),
        pytest.param(DEEP, "b", 2, id="capped at both"),
        pytest.param(DEEP, "c", 18, id="private part of the parent counts"),
    ],
)
def test_potential(nodes: Sequence[N], queue: str, potential: int) -> None:
    assert tree(nodes).potential(queue, CELL) == potential


def test_a_cut_quota_leaves_the_inner_node_negative_but_the_queue_at_zero() -> None:
    made = tree((N("root"), N("mid", "root", 2), N("a", "mid", 0, q=True), N("b", "root", 3, q=True)), a=9)
    assert node(made, "mid").unused(CELL) == -7
    assert node(made, "root").unused(CELL) == -4
    assert made.available("a", CELL) == made.available("b", CELL) == 0
    made.release("a", {CELL: 9})
    assert made.available("b", CELL) == 5


@pytest.mark.parametrize(
    ("usage", "queue", "amount", "height"),
    [
        pytest.param({}, "a", 3, 0, id="within its own"),
        pytest.param({}, "a", 4, 1, id="from its parent"),
        pytest.param({}, "a", 7, 2, id="from the root"),
        pytest.param({"a": 2}, "a", 2, 1, id="what it uses already counts"),
        pytest.param({}, "a", 99, 2, id="more than there is: the root's height"),
        pytest.param({"b": 2}, "a", 4, 1, id="the parent still has 4"),
        pytest.param({"b": 3}, "a", 4, 2, id="the parent would borrow as well"),
        pytest.param({}, "c", 8, 1, id="right has 8"),
    ],
)
def test_borrow_height(usage: dict[str, int], queue: str, amount: int, height: int) -> None:
    assert tree(DEEP, **usage).borrow_height(queue, CELL, amount) == height


def test_a_queue_without_a_parent_never_borrows() -> None:
    assert tree((N("a", nominal=1, q=True),)).borrow_height("a", CELL, 5) == 0


def test_cells_that_nobody_names_are_not_limited() -> None:
    made = tree(TWO)
    assert made.counts("a", CELL)
    assert not made.counts("a", FlavorResource("h100", "cpu"))
    assert made.offers_flavor("a", "h100")
    assert not made.offers_flavor("a", "l4")


# -- Kueue's own cases ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases("available"), ids=lambda case: case["id"])
def test_available_as_kueue_computes_it(case: Case) -> None:
    made = tree_of(case)
    for queue, amounts in case["usage"].items():
        made.charge(queue, cells(amounts))
    for queue, amounts in case["expect"]["available"].items():
        assert {cell: made.available(queue, cell) for cell in cells(amounts)} == cells(amounts)
    for queue, amounts in case["expect"]["potentially_available"].items():
        assert {cell: made.potential(queue, cell) for cell in cells(amounts)} == cells(amounts)


# -- whatever happens -------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d")
amount = st.integers(0, 12)
limit = st.none() | amount


@st.composite
def trees(draw: st.DrawFn) -> tuple[N, ...]:
    """Root, up to two inner cohorts, four queues anywhere below."""
    inner = [
        N(f"mid{n}", draw(st.sampled_from(("root", "mid0")[: n + 1])), draw(amount), draw(limit), draw(limit))
        for n in range(draw(st.integers(0, 2)))
    ]
    parents = ("root", *(it.name for it in inner))
    queues = [N(n, draw(st.sampled_from(parents)), draw(amount), draw(limit), draw(limit), q=True) for n in NAMES]
    return (N("root", nominal=draw(amount)), *inner, *queues)


def state(made: QuotaTree) -> dict[str, int]:
    return {it.name: it.usage.get(CELL, 0) for it in (*made.cohorts.values(), *made.queues.values())}


moves = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 15)), max_size=12)


@given(trees(), moves, st.randoms(use_true_random=False))
def test_releases_undo_charges_exactly_in_any_order(
    nodes: tuple[N, ...], charged: list[tuple[str, int]], rng: object
) -> None:
    made = tree(nodes, a=3, b=5)
    before = state(made)
    for queue, much in charged:
        made.charge(queue, {CELL: much})
    given_back = list(charged)
    rng.shuffle(given_back)  # type: ignore[attr-defined]
    for queue, much in given_back:
        made.release(queue, {CELL: much})
    assert state(made) == before


def within_policy(made: QuotaTree, it: Cohort) -> bool:
    """No node above its quota plus borrowing limit, no root above its quota, private parts untouched by others."""
    used, quota = it.usage.get(CELL, 0), it.quotas[CELL]
    if it.parent is None:
        return used <= it.subtree[CELL]
    return quota.borrowing_limit is None or used <= it.subtree[CELL] + quota.borrowing_limit


@given(trees(), moves)
def test_usage_never_exceeds_what_policy_allows(nodes: tuple[N, ...], asked: list[tuple[str, int]]) -> None:
    made = tree(nodes)
    for queue, much in asked:
        if made.fits(queue, {CELL: much}):
            made.charge(queue, {CELL: much})
            assert made.queues[queue].usage[CELL] <= made.potential(queue, CELL)
    for it in (*made.cohorts.values(), *made.queues.values()):
        assert within_policy(made, it), it.name
        spill = sum(max(0, child.usage.get(CELL, 0) - child.local_quota(CELL)) for child in it.children)
        assert it.is_queue or it.usage.get(CELL, 0) == spill


@given(trees(), moves)
def test_lent_quota_is_never_more_than_the_lending_limit(nodes: tuple[N, ...], asked: list[tuple[str, int]]) -> None:
    """With one queue idle, the others together reach all but what it keeps private."""
    made = tree(nodes)
    for queue, much in asked:
        if queue != "a" and made.fits(queue, {CELL: much}):
            made.charge(queue, {CELL: much})
    idle = made.queues["a"]
    assert made.available("a", CELL) >= min(idle.local_quota(CELL), made.potential("a", CELL))


@settings(max_examples=50)
@given(trees(), moves)
def test_an_unrelated_tree_changes_nothing(nodes: tuple[N, ...], asked: list[tuple[str, int]]) -> None:
    other = (N("else", nominal=50), N("x", "else", 5, q=True))
    alone, beside = tree(nodes), tree((*other, *nodes), x=40)
    for queue, much in asked:
        alone.charge(queue, {CELL: much})
        beside.charge(queue, {CELL: much})
    for queue in NAMES:
        assert alone.available(queue, CELL) == beside.available(queue, CELL)
        assert alone.potential(queue, CELL) == beside.potential(queue, CELL)
        assert alone.borrow_height(queue, CELL, 3) == beside.borrow_height(queue, CELL, 3)
