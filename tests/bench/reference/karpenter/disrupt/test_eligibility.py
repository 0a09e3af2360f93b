"""What stands in the way of disrupting a candidate, as Karpenter asks it."""

import pytest

from bench.reference.karpenter.disrupt.eligibility import (
    CandidateNode,
    CandidatePod,
    DisruptionClass,
    NotDisruptable,
    not_disruptable,
)

NOW = 1000.0
B = NotDisruptable
DND = CandidatePod(do_not_disrupt="true")


@pytest.mark.parametrize(
    ("node", "graceful", "eventual"),
    [
        (CandidateNode(), None, None),
        (CandidateNode(claimed=False), B.NO_CLAIM, B.NO_CLAIM),
        (CandidateNode(joined=False), B.NO_NODE, B.NO_NODE),
        (CandidateNode(initialized=False), B.NOT_INITIALIZED, B.NOT_INITIALIZED),
        (CandidateNode(leaving=True), B.LEAVING, B.LEAVING),
        (CandidateNode(nominated=True), B.NOMINATED, B.NOMINATED),
        (CandidateNode(in_hand=True), B.IN_HAND, B.IN_HAND),
        (CandidateNode(pool_known=False), B.UNKNOWN_POOL, B.UNKNOWN_POOL),
        (CandidateNode(do_not_disrupt="true"), B.PROTECTED, B.PROTECTED),
        (CandidateNode(do_not_disrupt="true", grace_s=9), B.PROTECTED, B.PROTECTED),
        (CandidateNode(do_not_disrupt="5m", since_s=NOW - 299), B.PROTECTED, B.PROTECTED),
        (CandidateNode(do_not_disrupt="5m", since_s=NOW - 300), None, None),
        (CandidateNode(pods=(DND,)), B.PROTECTED_POD, B.PROTECTED_POD),
        (CandidateNode(pods=(DND,), grace_s=300), B.PROTECTED_POD, None),
        (CandidateNode(pods=(CandidatePod(), DND)), B.PROTECTED_POD, B.PROTECTED_POD),
        (CandidateNode(pods=(CandidatePod(do_not_disrupt="true", mirror=True),)), B.PROTECTED_POD, B.PROTECTED_POD),
        (
            CandidateNode(pods=(CandidatePod(do_not_disrupt="true", owner="DaemonSet"),)),
            B.PROTECTED_POD,
            B.PROTECTED_POD,
        ),
        (CandidateNode(pods=(CandidatePod(do_not_disrupt="true", ended=True),)), None, None),
        (CandidateNode(pods=(CandidatePod(do_not_disrupt="true", leaving=True),)), None, None),
        (CandidateNode(pods=(CandidatePod(pod_budgets=(0,)),)), B.POD_BUDGET, B.POD_BUDGET),
        (CandidateNode(pods=(CandidatePod(pod_budgets=(1,)),)), None, None),
        (CandidateNode(pods=(CandidatePod(pod_budgets=(0,)),), grace_s=300), B.POD_BUDGET, None),
        (CandidateNode(pods=(CandidatePod(pod_budgets=(0,), owner="DaemonSet"),)), B.POD_BUDGET, B.POD_BUDGET),
        (CandidateNode(pods=(CandidatePod(pod_budgets=(0,), mirror=True),)), None, None),
        (CandidateNode(pods=(CandidatePod(pod_budgets=(0,), ended=True),)), None, None),
        (CandidateNode(pods=(CandidatePod(pod_budgets=(0,), leaving=True),)), None, None),
        (CandidateNode(pods=(CandidatePod(pod_budgets=(5, 5)),)), B.SEVERAL_POD_BUDGETS, B.SEVERAL_POD_BUDGETS),
        (CandidateNode(claimed=False, pods=(DND,)), B.NO_CLAIM, B.NO_CLAIM),
    ],
    ids=str,
)
def test_barriers(node: CandidateNode, graceful: NotDisruptable | None, eventual: NotDisruptable | None) -> None:
    assert (
        not_disruptable(node, DisruptionClass.GRACEFUL, NOW),
        not_disruptable(node, DisruptionClass.EVENTUAL, NOW),
    ) == (graceful, eventual)
