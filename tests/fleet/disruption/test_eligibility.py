"""What stands in the way of disrupting a machine."""

import pytest

from fleet.disruption.eligibility import Barrier, Care, Post, Tenant, barrier, protected, reschedulable

NOW = 1000.0
B = Barrier
DND = Tenant(do_not_disrupt="true")


@pytest.mark.parametrize(
    ("post", "graceful", "eventual"),
    [
        (Post(), None, None),
        (Post(claimed=False), B.NO_CLAIM, B.NO_CLAIM),
        (Post(joined=False), B.NO_NODE, B.NO_NODE),
        (Post(initialized=False), B.NOT_INITIALIZED, B.NOT_INITIALIZED),
        (Post(leaving=True), B.LEAVING, B.LEAVING),
        (Post(nominated=True), B.NOMINATED, B.NOMINATED),
        (Post(in_hand=True), B.IN_HAND, B.IN_HAND),
        (Post(pool_known=False), B.UNKNOWN_POOL, B.UNKNOWN_POOL),
        (Post(do_not_disrupt="true"), B.PROTECTED, B.PROTECTED),
        (Post(do_not_disrupt="true", grace_s=9), B.PROTECTED, B.PROTECTED),
        (Post(do_not_disrupt="5m", since_s=NOW - 299), B.PROTECTED, B.PROTECTED),
        (Post(do_not_disrupt="5m", since_s=NOW - 300), None, None),
        (Post(tenants=(DND,)), B.PROTECTED_POD, B.PROTECTED_POD),
        (Post(tenants=(DND,), grace_s=300), B.PROTECTED_POD, None),
        (Post(tenants=(Tenant(), DND)), B.PROTECTED_POD, B.PROTECTED_POD),
        (Post(tenants=(Tenant(do_not_disrupt="true", mirror=True),)), B.PROTECTED_POD, B.PROTECTED_POD),
        (Post(tenants=(Tenant(do_not_disrupt="true", owner="DaemonSet"),)), B.PROTECTED_POD, B.PROTECTED_POD),
        (Post(tenants=(Tenant(do_not_disrupt="true", ended=True),)), None, None),
        (Post(tenants=(Tenant(do_not_disrupt="true", leaving=True),)), None, None),
        (Post(tenants=(Tenant(pod_budgets=(0,)),)), B.POD_BUDGET, B.POD_BUDGET),
        (Post(tenants=(Tenant(pod_budgets=(1,)),)), None, None),
        (Post(tenants=(Tenant(pod_budgets=(0,)),), grace_s=300), B.POD_BUDGET, None),
        (Post(tenants=(Tenant(pod_budgets=(0,), owner="DaemonSet"),)), B.POD_BUDGET, B.POD_BUDGET),
        (Post(tenants=(Tenant(pod_budgets=(0,), mirror=True),)), None, None),
        (Post(tenants=(Tenant(pod_budgets=(0,), ended=True),)), None, None),
        (Post(tenants=(Tenant(pod_budgets=(0,), leaving=True),)), None, None),
        (Post(tenants=(Tenant(pod_budgets=(5, 5)),)), B.SEVERAL_POD_BUDGETS, B.SEVERAL_POD_BUDGETS),
        (Post(claimed=False, tenants=(DND,)), B.NO_CLAIM, B.NO_CLAIM),
    ],
    ids=str,
)
def test_barriers(post: Post, graceful: Barrier | None, eventual: Barrier | None) -> None:
    assert (barrier(post, Care.GRACEFUL, NOW), barrier(post, Care.EVENTUAL, NOW)) == (graceful, eventual)


@pytest.mark.parametrize(
    ("value", "for_s"),
    [
        ("10s", 10),
        ("1h30m", 5400),
        ("1.5m", 90),
        ("500ms", 0.5),
        ("+2m", 120),
        ("", 0),
        ("false", 0),
        ("5", 0),
        ("5x", 0),
    ],
)
def test_a_duration_protects_for_so_long(value: str, for_s: float) -> None:
    assert not for_s or protected(value, 0.0, for_s - 0.01)
    assert not protected(value, 0.0, for_s)


@pytest.mark.parametrize(
    ("tenant", "moves"),
    [
        (Tenant(), True),
        (Tenant(owner="ReplicaSet"), True),
        (Tenant(owner="DaemonSet"), False),
        (Tenant(mirror=True), False),
        (Tenant(ended=True), False),
        (Tenant(leaving=True, owner="ReplicaSet"), False),
        (Tenant(leaving=True, owner="StatefulSet"), True),
    ],
    ids=str,
)
def test_who_would_have_to_run_elsewhere(tenant: Tenant, moves: bool) -> None:
    assert reschedulable(tenant) is moves
