"""Namespaces and the cluster's PriorityClasses as the API writes them."""

from typing import Any

import msgspec
import pytest

from fleet.snapshot import Namespace, PodPriority
from providers.kube.objects import decode_namespace, decode_pod_priority


@pytest.mark.parametrize("labels", [{"team": "vision"}, {}, None])
def test_a_namespace(labels: dict[str, str] | None) -> None:
    body = {"metadata": {"name": "research", "labels": labels}, "spec": {"finalizers": ["kubernetes"]}, "status": {}}
    assert decode_namespace(msgspec.json.encode(body)) == Namespace("research", labels or {})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"value": 1000}, PodPriority("high", 1000)),
        ({"value": -5, "preemptionPolicy": "Never"}, PodPriority("high", -5, preempts=False)),
        (
            {"value": 7, "globalDefault": True, "preemptionPolicy": "PreemptLowerPriority"},
            PodPriority("high", 7, default=True),
        ),
        ({"value": 0, "globalDefault": None, "preemptionPolicy": None, "description": "x"}, PodPriority("high", 0)),
    ],
)
def test_a_priority_of_pods(fields: dict[str, Any], expected: PodPriority) -> None:
    assert decode_pod_priority(msgspec.json.encode({"metadata": {"name": "high"}, **fields})) == expected
