"""The first difference between a machine and its pool."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.nodeclaims.drift_facts import DriftFacts, OfferingAvailability, TemplateHash, drift_reason
from model import labels
from model.requirements import Requirement, Requirements

HERE = OfferingAvailability("z1", "on-demand")
A, B, A2 = TemplateHash("a", "v1"), TemplateHash("b", "v1"), TemplateHash("a", "v2")
ARM = Requirements({labels.ARCH: Requirement.one_of("arm64")})
ALL = DriftFacts(pool=A, machine=B, carried={}, wanted=ARM, market=HERE, on_sale=(), provider="AMIDrift")
"""Different in every way."""


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (DriftFacts(), ""),
        (ALL, "NodePoolDrifted"),
        (replace(ALL, machine=A), "RequirementsDrifted"),
        (replace(ALL, machine=A, carried={labels.ARCH: "arm64"}), "InstanceTypeNotFound"),
        (replace(ALL, machine=A, wanted=None, on_sale=None), "AMIDrift"),
        (replace(ALL, launched=False), ""),
        (replace(ALL, pool_declared=False), ""),
        (DriftFacts(pool=A, machine=None), ""),
        (DriftFacts(pool=None, machine=B), ""),
        (DriftFacts(pool=A, machine=A2), ""),
        (DriftFacts(pool=B, machine=A2), ""),
        (DriftFacts(carried={labels.ARCH: "amd64"}, wanted=ARM), "RequirementsDrifted"),
        (DriftFacts(wanted=Requirements({"a": Requirement.of("Exists")})), "RequirementsDrifted"),
        (DriftFacts(wanted=Requirements({"a": Requirement.of("DoesNotExist")})), ""),
        (DriftFacts(wanted=Requirements({"a": Requirement.of("NotIn", ["x"])})), ""),
    ],
)
def test_reasons(facts: DriftFacts, reason: str) -> None:
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
    markets = [OfferingAvailability(*each) for each in sold]
    facts = DriftFacts(market=OfferingAvailability("z1", capacity_type), on_sale=markets, age_s=age_s)
    assert drift_reason(facts) == ("InstanceTypeNotFound" if gone else "")
