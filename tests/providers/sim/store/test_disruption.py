# ruff: noqa: E501 - a row of a table is a line
"""Eviction against disruption budgets."""

from typing import Any

import pytest

from providers.sim.store import PatchType, Store, StoreNotFound, StoreTooManyRequests, StoreUnknownError

Obj = dict[str, Any]
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
UNREADY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}


def world(store: Store, pod: Any, pod_status: Obj, budget_status: Obj | None, **spec: Any) -> None:
    pods, budgets = store.resource("pods"), store.resource("pdb")
    store.create(pods, pod(labels={"a": "b"}))
    store.bind("p", "default", "n1")
    store.patch(pods, "p", {"status": pod_status}, PatchType.MERGE, namespace="default", subresource="status")
    if budget_status is not None:
        body = {
            "metadata": {"name": "pdb"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "minAvailable": 1, **spec},
        }
        store.create(budgets, body, namespace="default")
        status = {"status": {"observedGeneration": 1, **budget_status}}
        store.patch(budgets, "pdb", status, PatchType.MERGE, namespace="default", subresource="status")


def ending(store: Store) -> bool:
    return "deletionTimestamp" in store.get(store.resource("pods"), "p", "default")["metadata"]


# pod status, budget status (None: no budget), more of the budget's spec, allowed, booked
CASES: dict[str, tuple[Obj, Obj | None, Obj, bool, bool]] = {
    "no budget": (READY, None, {}, True, False),
    "room": (READY, {"disruptionsAllowed": 1}, {}, True, True),
    "no room": (READY, {"disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": 1}, {}, False, False),
    "not looked at yet": (READY, {"observedGeneration": 0, "disruptionsAllowed": 1}, {}, False, False),
    "pending pod": ({"phase": "Pending"}, {"disruptionsAllowed": 0}, {}, True, False),
    "unready pod of a healthy set": (UNREADY, {"desiredHealthy": 1, "currentHealthy": 1}, {}, True, False),
    "unready pod of a weak set": (UNREADY, {"desiredHealthy": 2, "currentHealthy": 1}, {}, False, False),
    "unready pod, always allowed": (UNREADY, {"desiredHealthy": 2}, {"unhealthyPodEvictionPolicy": "AlwaysAllow"}, True, False),
    "selects nothing of ours": (READY, {"disruptionsAllowed": 0}, {"selector": {"matchLabels": {"x": "y"}}}, True, False),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_eviction(store: Store, pod: Any, case: str) -> None:
    pod_status, budget_status, spec, allowed, booked = CASES[case]
    world(store, pod, pod_status, budget_status, **spec)
    if not allowed:
        with pytest.raises(StoreTooManyRequests) as refused:
            store.evict("p", "default")
        assert refused.value.details["causes"][0]["reason"] == "DisruptionBudget"
        assert not ending(store)
        return
    store.evict("p", "default", dry_run=True)
    assert not ending(store)
    store.evict("p", "default", grace_period_s=7)
    assert ending(store)
    if booked:
        status = store.get(store.resource("pdb"), "pdb", "default")["status"]
        assert status["disruptionsAllowed"] == 0
        assert list(status["disruptedPods"]) == ["p"]


def test_the_last_disruption_is_given_once(store: Store, pod: Any) -> None:
    world(store, pod, READY, {"disruptionsAllowed": 1, "desiredHealthy": 1, "currentHealthy": 2})
    other = pod("q", labels={"a": "b"})
    store.create(store.resource("pods"), other)
    store.bind("q", "default", "n1")
    status = {"status": READY}
    store.patch(store.resource("pods"), "q", status, PatchType.MERGE, namespace="default", subresource="status")
    store.evict("p", "default")
    with pytest.raises(StoreTooManyRequests, match="violate the pod's disruption budget"):
        store.evict("q", "default")


def test_two_budgets_are_too_many_and_no_pod_is_not_found(store: Store, pod: Any) -> None:
    world(store, pod, READY, {"disruptionsAllowed": 1})
    body = {"metadata": {"name": "second"}, "spec": {"selector": {}, "maxUnavailable": 1}}
    store.create(store.resource("pdb"), body, namespace="default")
    with pytest.raises(StoreUnknownError, match="more than one"):
        store.evict("p", "default")
    with pytest.raises(StoreNotFound):
        store.evict("missing", "default")
