"""Shortages, the age of prices and drift, as a NodePool's status tells them to whoever may not ask the agent."""

from typing import Any

import msgspec
import pytest

from fleet.snapshot import CapacityPool
from providers.kube.objects import DriftReport, NodePoolReport, decode_drifted, decode_market, node_pool_status
from tests.providers.kube.objects.values import NOW_S

P5 = CapacityPool("on-demand", "p5.48xlarge", "us-east-1a")
G6 = CapacityPool("spot", "g6.xlarge", "us-east-1b")


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, ({}, 0.0)),
        ({"shortages": {P5: NOW_S + 60, G6: NOW_S}}, ({P5: NOW_S + 60, G6: NOW_S}, 0.0)),
        ({"priced_at_s": NOW_S - 900.0}, ({}, NOW_S - 900)),
    ],
)
def test_what_is_told_is_read_again(facts: dict[str, Any], expected: tuple[dict[CapacityPool, float], float]) -> None:
    assert decode_market(msgspec.json.encode(node_pool_status(NodePoolReport("p", **facts), NOW_S))) == expected


@pytest.mark.parametrize("raw", [b"{}", b'{"status": null}', b'{"status": {"shortages": null, "pricedAt": null}}'])
def test_a_status_that_says_nothing(raw: bytes) -> None:
    assert decode_market(raw) == ({}, 0.0)
    assert decode_drifted(raw) == {}


def test_drift_is_read_again_by_machine() -> None:
    drifted = (DriftReport("AMIDrift", "old", 200, ("a", "b")), DriftReport("SubnetDrift", "elsewhere", 1, ("c",)))
    raw = msgspec.json.encode(node_pool_status(NodePoolReport("p", drifted=drifted), NOW_S))
    assert decode_drifted(raw) == {
        "a": ("AMIDrift", "old"),
        "b": ("AMIDrift", "old"),
        "c": ("SubnetDrift", "elsewhere"),
    }
