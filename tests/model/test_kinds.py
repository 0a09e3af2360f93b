"""The scalar types and small rules of the kinds, as code uses them (the loader's view is in loader/)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from model.kinds import KINDS, NEVER, Budget, NodePool, Taint, Toleration
from model.kinds.base import format_duration
from model.kinds.node_pool import Disruption, Sharing

ENVELOPE = {"apiVersion": "muster.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "p"}}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("10m", 600), ("1h30m", 5400), ("0s", 0), ("2h0m5s", 7205), ("Never", NEVER), (90.0, 90)],
)
def test_durations(text: str | float, seconds: float) -> None:
    assert Disruption.model_validate({"consolidateAfter": text}).consolidate_after == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "1d", "-5s", "5 m", "1m1h", "never", "1.5h", "٣s", "9999999999h", -1.0, 5, None]
)
def test_no_durations(text: object) -> None:
    with pytest.raises(ValidationError):
        Disruption.model_validate({"consolidateAfter": text})


@given(st.integers(0, 10**8))
def test_durations_read_back(seconds: int) -> None:
    text = format_duration(float(seconds))
    assert Disruption.model_validate({"consolidateAfter": text}).consolidate_after == seconds


def test_a_declaration_reads_back_from_its_own_json() -> None:
    spec = {
        "limits": {"resources": {"cpu": "1500m", "memory": "64Gi", "nvidia.com/gpu": 8}, "usdPerHour": 12.5},
        "template": {"expireAfter": "Never", "taints": [{"key": "a", "effect": "NoSchedule"}]},
        "disruption": {"budgets": [{"nodes": "10%"}, {"nodes": 2, "schedule": "@daily", "duration": "1h"}]},
    }
    pool = NodePool.model_validate({**ENVELOPE, "spec": spec})
    again = NodePool.model_validate(json.loads(pool.model_dump_json(by_alias=True)))
    assert again == pool
    assert pool.spec.limits.resources == {"cpu": 1500, "memory": 64 << 30, "nvidia.com/gpu": 8}


def test_declarations_do_not_change() -> None:
    pool = NodePool.model_validate({**ENVELOPE, "spec": {}})
    with pytest.raises(ValidationError):
        pool.spec.weight = 5


TAINT = Taint(key="gpu", value="a", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"key": "gpu", "value": "a"}, True),
        ({"key": "gpu", "value": "b"}, False),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "other", "operator": "Exists"}, False),
        ({"value": "a"}, False),  # an empty key needs Exists
    ],
)
def test_tolerations(toleration: dict[str, str], expected: bool) -> None:
    assert Toleration.model_validate(toleration).tolerates(TAINT) is expected


@pytest.mark.parametrize(
    ("sharing", "replicas"),
    [({}, 1), ({"mps": {"replicas": 4}}, 4), ({"timeSlicing": {"replicas": 8}}, 8), ({"mig": {"layouts": ["x"]}}, 1)],
)
def test_replicas(sharing: dict[str, object], replicas: int) -> None:
    assert Sharing.model_validate(sharing).replicas == replicas


@pytest.mark.parametrize("nodes", ["0%", "7%", "100%", 0, 50])
def test_budget_nodes(nodes: str | int) -> None:
    assert Budget.model_validate({"nodes": nodes}).nodes == nodes


@pytest.mark.parametrize("nodes", ["101%", "1000%", "5", "-1%", "5.5%", "%", -1, 2.5, True, "5%\n"])
def test_no_budget_nodes(nodes: object) -> None:
    with pytest.raises(ValidationError):
        Budget.model_validate({"nodes": nodes})


def test_every_kind_has_a_plural_of_its_own() -> None:
    plurals = [kind.plural for kind in KINDS]
    assert len(set(plurals)) == len(KINDS)
    assert all(plural.islower() and plural.endswith("s") for plural in plurals)
