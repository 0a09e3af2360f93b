"""Namespaces and the cluster's PriorityClasses as the API writes them."""

from typing import Any

import msgspec
import pytest

from fleet.snapshot import Namespace, PodPriority, RuntimeClass
from model.kinds import Toleration
from providers.kube.objects import decode_namespace, decode_pod_priority, decode_runtime_class


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


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, RuntimeClass("kata")),
        ({"overhead": None, "scheduling": None}, RuntimeClass("kata")),
        ({"overhead": {"podFixed": None}, "scheduling": {}}, RuntimeClass("kata")),
        (
            {
                "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
                "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
            },
            RuntimeClass(
                "kata", {"cpu": 250, "memory": 120 << 20}, {"a": "b"}, (Toleration(key="k", operator="Exists"),)
            ),
        ),
    ],
)
def test_what_a_runtime_adds(fields: dict[str, Any], expected: RuntimeClass) -> None:
    body = {"metadata": {"name": "kata"}, "handler": "kata", **fields}
    assert decode_runtime_class(msgspec.json.encode(body)) == expected
