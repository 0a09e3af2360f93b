"""Dominant share: worked examples, and Kueue's."""

import pytest

from fleet.admission.share import dominant_share, owner
from fleet.admission.tree import FlavorResource, Quota, QuotaTree
from tests.support.kueue import Case, cases, cells, tree_of

GPU, CPU = FlavorResource("h100", "gpu"), FlavorResource("h100", "cpu")
OTHER = FlavorResource("l4", "gpu")


def two_teams(weight: float = 1.0) -> QuotaTree:
    tree = QuotaTree()
    tree.add("org", None, {})
    tree.add("a", "org", {GPU: Quota(8), CPU: Quota(100)}, weight=weight)
    tree.add("b", "org", {GPU: Quota(8), CPU: Quota(300), OTHER: Quota(4)})
    tree.add("qa", "a", {}, is_queue=True)
    tree.seal()
    return tree


@pytest.mark.parametrize(
    ("weight", "used", "extra", "share"),
    [
        pytest.param(1, {}, {GPU: 8}, 0.0, id="within the guarantee"),
        pytest.param(1, {}, {GPU: 9}, 1 / 20, id="one of the twenty GPUs of both flavors"),
        pytest.param(1, {GPU: 10}, {GPU: 2}, 4 / 20, id="usage counts"),
        pytest.param(2, {GPU: 10}, {GPU: 2}, 2 / 20, id="weight halves it"),
        pytest.param(1, {}, {GPU: 9, CPU: 200}, 100 / 400, id="the dominant resource decides"),
        pytest.param(1, {GPU: 10}, {OTHER: 2}, 4 / 20, id="summed over flavors"),
        pytest.param(1, {GPU: 2}, {OTHER: 2}, 2 / 20, id="unused quota of one flavor does not offset another"),
    ],
)
def test_share(weight: float, used: dict[FlavorResource, int], extra: dict[FlavorResource, int], share: float) -> None:
    tree = two_teams(weight)
    tree.charge("qa", used)
    assert dominant_share(tree, "qa", extra) == pytest.approx(share)


def test_the_borrower_is_the_team_unless_the_queue_has_quota_of_its_own() -> None:
    tree = two_teams()
    assert owner(tree.queues["qa"]).name == "a"
    tree.add("own", "a", {GPU: Quota(1)}, is_queue=True)
    assert owner(tree.queues["own"]).name == "own"


@pytest.mark.parametrize("case", cases("dominant_share"), ids=lambda case: case["id"])
def test_share_as_kueue_computes_it(case: Case) -> None:
    tree = tree_of(case)
    for queue, amounts in case["usage"].items():
        tree.charge(queue, cells(amounts))
    weights = {queue["name"]: queue.get("fair_weight", 1) for queue in case["cluster_queues"]}
    extra = cells(case["extra_request"])
    asked = next(iter(weights)) if extra else None
    for expected in case["expect"]["shares"]:
        if expected["is_cohort"] or weights.get(expected["node"]) == 0:
            continue
        added = extra if expected["node"] == asked else {}
        share = dominant_share(tree, expected["node"], added)
        assert round(share * 1000) == pytest.approx(expected["weighted_share"], abs=1), expected["node"]
