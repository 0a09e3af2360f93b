"""The first difference between a machine and its pool."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.nodeclaims.difference import Facts, Market, Stamp, drift_reason
from model import labels
from model.requirements import Requirement, Requirements

HERE = Market("z1", "on-demand")
A, B, A2 = Stamp("a", "v1"), Stamp("b", "v1"), Stamp("a", "v2")
ARM = Requirements({labels.ARCH: Requirement.one_of("arm64")})
ALL = Facts(pool=A, machine=B, carried={}, wanted=ARM, market=HERE, on_sale=(), provider="AMIDrift")
"""Different in every way."""


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (Facts(), ""),
        (ALL, "NodePoolDrifted"),
        (replace(ALL, machine=A), "RequirementsDrifted"),
        (replace(ALL, machine=A, carried={labels.ARCH: "arm64"}), "InstanceTypeNotFound"),
        (replace(ALL, machine=A, wanted=None, on_sale=None), "AMIDrift"),
        (replace(ALL, launched=False), ""),
        (replace(ALL, pool_declared=False), ""),
        (Facts(pool=A, machine=None), ""),
        (Facts(pool=None, machine=B), ""),
        (Facts(pool=A, machine=A2), ""),
        (Facts(pool=B, machine=A2), ""),
        (Facts(carried={labels.ARCH: "amd64"}, wanted=ARM), "RequirementsDrifted"),
        (Facts(wanted=Requirements({"a": Requirement.of("Exists")})), "RequirementsDrifted"),
        (Facts(wanted=Requirements({"a": Requirement.of("DoesNotExist")})), ""),
        (Facts(wanted=Requirements({"a": Requirement.of("NotIn", ["x"])})), ""),
    ],
)
def test_reasons(facts: Facts, reason: str) -> None:
    assert drift_reason(facts) == reason


@pytest.mark.parametrize(
    ("capacity_type", "sold", "age_s", "gone"),
    [
        ("on-demand", [("z1", "on-demand")], 7200, False),
        ("on-demand", [("z2", "on-demand")], 7200, True),
        ("on-demand", [("z1", "spot")], 7200, True),
        ("on-demand", [], 7200, True),
        ("on-demand", [], 3600, True),
        ("on-demand", [], 3599, False),
        ("spot", [("z1", "on-demand")], 7200, True),
        ("reserved", [("z1", "reserved")], 7200, False),
        ("reserved", [("z1", "on-demand")], 7200, False),
        ("reserved", [("z1", "spot")], 7200, True),
        ("reserved", [("z2", "on-demand")], 7200, True),
    ],
)
def test_types_that_are_not_sold_any_more(capacity_type: str, sold: list[Any], age_s: float, gone: bool) -> None:
    markets = [Market(*each) for each in sold]
    facts = Facts(market=Market("z1", capacity_type), on_sale=markets, age_s=age_s)
    assert drift_reason(facts) == ("InstanceTypeNotFound" if gone else "")
