"""PodDisruptionBudgets as the API writes them -> whom they select and how many may go; once more over the wire."""

import random
import threading
from typing import Any

import msgspec
import pytest

from fleet.snapshot import PodBudget
from model.upstream.selectors import LabelSelector
from providers.clock import SystemClock, VirtualClock
from providers.kube.batches import Batch
from providers.kube.config import from_url
from providers.kube.objects import decode_pod_budget
from providers.kube.objects.paths import POD_DISRUPTION_BUDGETS
from providers.kube.reading import Watched
from providers.kube.reflector import Reflector
from providers.kube.transport import KubeTransport
from providers.sim.apiserver import ApiServer
from providers.sim.store import Store
from tests.support.batches import fold
from tests.support.merge_patch import patch_merge

JOB = {"matchLabels": {"job-name": "a"}}


def budget(spec: dict[str, Any], status: dict[str, Any] | None = None, generation: int = 1) -> PodBudget:
    metadata = {"name": "b", "namespace": "n", "generation": generation, "managedFields": [{"manager": "kubectl"}]}
    return decode_pod_budget(msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status or {}}))


def counted(allowed: int, observed: int = 1, **more: Any) -> dict[str, Any]:
    return {"disruptionsAllowed": allowed, "observedGeneration": observed, "currentHealthy": 3, **more}


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        pytest.param(None, {"job-name": "a"}, False, id="none"),
        pytest.param({}, {}, True, id="empty"),
        pytest.param({"matchLabels": None, "matchExpressions": None}, {"x": "y"}, True, id="nulls"),
        pytest.param(JOB, {"job-name": "a", "x": "y"}, True, id="equal"),
        pytest.param(JOB, {"job-name": "b"}, False, id="another value"),
        pytest.param(JOB, {}, False, id="absent"),
        *[
            pytest.param({"matchExpressions": [{"key": "k", **term}]}, labels, selected, id=f"{term} on {labels}")
            for term, labels, selected in [
                ({"operator": "In", "values": ["1", "2"]}, {"k": "2"}, True),
                ({"operator": "In", "values": ["1", "2"]}, {"k": "3"}, False),
                ({"operator": "In", "values": ["1"]}, {}, False),
                ({"operator": "NotIn", "values": ["1"]}, {"k": "1"}, False),
                ({"operator": "NotIn", "values": ["1"]}, {"k": "2"}, True),
                ({"operator": "NotIn", "values": ["1"]}, {}, True),
                ({"operator": "Exists"}, {"k": ""}, True),
                ({"operator": "Exists", "values": None}, {}, False),
                ({"operator": "DoesNotExist"}, {"k": ""}, False),
                ({"operator": "DoesNotExist"}, {"j": ""}, True),
            ]
        ],
        pytest.param(
            {**JOB, "matchExpressions": [{"key": "k", "operator": "Exists"}]}, {"job-name": "a"}, False, id="all"
        ),
    ],
)
def test_whom_it_selects(selector: dict[str, Any] | None, labels: dict[str, str], selected: bool) -> None:
    found = budget({"maxUnavailable": 1, **({"selector": selector} if selector is not None else {})}).selector
    assert (found is not None and found.matches(labels)) is selected


@pytest.mark.parametrize(
    ("status", "generation", "allows"),
    [
        ({}, 1, 0),
        (None, 0, 0),
        (counted(2), 1, 2),
        (counted(2, observed=2), 2, 2),
        (counted(2, observed=1), 2, 0),
        (counted(0), 1, 0),
    ],
)
def test_how_many_may_go(status: dict[str, Any] | None, generation: int, allows: int) -> None:
    assert budget({"selector": JOB}, status, generation).allows == allows


@pytest.mark.parametrize("policy", [None, "IfHealthyBudget", "AlwaysAllow"])
def test_pods_that_are_not_ready(policy: str | None) -> None:
    found = budget({"selector": JOB, "unhealthyPodEvictionPolicy": policy}, counted(0))
    assert found.unready_may_go is (policy == "AlwaysAllow")


@pytest.mark.parametrize(("reason", "told"), [("SyncFailed", "no scale"), ("InsufficientPods", "")])
def test_a_controller_that_cannot_count_is_quoted(reason: str, told: str) -> None:
    condition = {"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": "no scale"}
    assert budget({"selector": JOB}, counted(0, conditions=[condition])).trouble == told


@pytest.mark.parametrize("operator", ["Gt", "in", ""])
def test_an_unknown_operator_is_refused(operator: str) -> None:
    with pytest.raises(ValueError, match="operator"):
        budget({"selector": {"matchExpressions": [{"key": "k", "operator": operator}]}})


class Seen:
    """What a reflector of budgets has brought."""

    def __init__(self, url: str) -> None:
        self.budgets: dict[str, PodBudget] = {}
        self.changed = threading.Condition()
        watched = Watched(POD_DISRUPTION_BUDGETS, decode_pod_budget, lambda found: found.key)
        transport = KubeTransport(from_url(url))
        self.reflector = Reflector(transport, watched, self.take, clock=SystemClock(), rng=random.Random(1))

    def take(self, batch: Batch[PodBudget]) -> None:
        with self.changed:
            fold(self.budgets, batch)
            self.changed.notify_all()

    def comes(self, expected: dict[str, PodBudget]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.budgets == expected, 20), self.budgets


def test_a_budget_comes_over_the_wire_and_changes_and_goes() -> None:
    with ApiServer(Store(VirtualClock())) as server:
        transport, seen = KubeTransport(from_url(server.url)), Seen(server.url)
        seen.reflector.start()
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}}
        transport.create(POD_DISRUPTION_BUDGETS, {**body, "spec": {"maxUnavailable": 1, "selector": JOB}}, "default")
        selector = LabelSelector(match_labels={"job-name": "a"})
        seen.comes({"default/b": PodBudget("default", "b", selector, 0, counted=False)})
        patch_merge(transport, POD_DISRUPTION_BUDGETS, "b", {"status": counted(1)}, "default", "status")
        seen.comes({"default/b": PodBudget("default", "b", selector, 1)})
        patch_merge(transport, POD_DISRUPTION_BUDGETS, "b", {"spec": {"maxUnavailable": 0}}, "default")
        seen.comes({"default/b": PodBudget("default", "b", selector, 1, counted=False)})
        transport.delete(POD_DISRUPTION_BUDGETS, "b", "default")
        seen.comes({})
        seen.reflector.stop()
        server.drop_connections()
