"""What a plan says of quotas: who is guaranteed what, what cannot be kept, and who is beyond it at once."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.plan.quotas import (
    Overcommitment,
    QuotaChange,
    beyond_new_budgets,
    beyond_new_limits,
    new_overcommitments,
    quota_changes,
)
from model.fleet import Fleet
from model.loader import load
from tests.support.fleets import GPU, P5, FleetBuilder
from tests.support.world import World


def fleet(teams: dict[str, int], nodes: int | None = 2, **pool: Any) -> Fleet:
    limits = {} if nodes is None else {"limits": {"nodes": nodes}}
    builder = FleetBuilder().pool(instanceTypes=[P5.name], **limits, **pool)
    for name, gpus in teams.items():
        builder.team(name, quotas={"h100": {GPU: gpus}})
    return builder.build()


def test_each_guarantee_that_comes_goes_or_changes_is_told() -> None:
    before, after = fleet({"a": 8, "b": 4, "c": 1}), fleet({"a": 8, "b": 6, "d": 2})
    assert quota_changes(before, after) == (
        QuotaChange("team/b", "h100", GPU, 4, 6),
        QuotaChange("team/c", "h100", GPU, 1, None),
        QuotaChange("team/d", "h100", GPU, None, 2),
    )
    assert quota_changes(after, after) == ()


def test_quotas_of_kueue_are_told_by_its_kinds() -> None:
    def manifest(gpus: int) -> Fleet:
        text = f"""
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {{name: any}}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {{name: cq}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
    - coveredResources: ["{GPU}"]
      flavors: [{{name: any, resources: [{{name: "{GPU}", nominalQuota: {gpus}}}]}}]
"""
        return load({"kueue.yaml": text.encode()})

    assert quota_changes(manifest(8), manifest(16)) == (QuotaChange("clusterqueue/cq", "any", GPU, 8, 16),)


@pytest.mark.parametrize(
    ("before", "after", "beyond"),
    [
        (fleet({"a": 16}), fleet({"a": 16, "b": 8}), 24),
        (fleet({"a": 16}, nodes=3), fleet({"a": 24}, nodes=2), 24),
        (fleet({"a": 16}), fleet({"a": 8, "b": 8}), None),
        (fleet({"a": 24}), fleet({"a": 24}), None),
        (fleet({"a": 24}, nodes=None), fleet({"a": 99}, nodes=None), None),
    ],
    ids=["one more team", "lower limits", "as much as there can be", "it was so before", "no limits"],
)
def test_guarantees_beyond_what_limits_hold_are_told_where_they_are_new(
    before: Fleet, after: Fleet, beyond: int | None
) -> None:
    found = new_overcommitments(before, after, World(after).snapshot())
    assert found == (() if beyond is None else (Overcommitment(("h100",), GPU, beyond, 16),))


# -- who is beyond it at once -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"nodes": 3}, ""),
        ({"nodes": 2}, "1 machine"),
        ({"usdPerHour": 200}, "94.00 USD/h"),
        ({"resources": {GPU: 8}}, "16 of nvidia.com/gpu"),
        ({"nodes": 1, "resources": {GPU: 8}}, "2 machines and 16 of nvidia.com/gpu"),
    ],
)
def test_a_pool_that_is_beyond_its_new_limits_is_told(limits: dict[str, Any], told: str) -> None:
    before, after = fleet({"a": 8}, nodes=3), fleet({"a": 8}, nodes=None, limits=limits)
    world = World(before)
    for n in range(3):
        world.machine(f"m{n}")
    found = list(beyond_new_limits(before, after, world.snapshot()))
    assert [told in sentence for sentence in found] == ([True] if told else [])
    assert list(beyond_new_limits(after, after, world.snapshot())) == [], "it was so before"


@pytest.mark.parametrize(
    ("was", "becomes", "told"),
    [
        (None, 500.0, True),
        (2_000.0, 500.0, True),
        (2_000.0, 1_500.0, False),
        (700.0, 500.0, False),
        (500.0, None, False),
    ],
)
def test_a_team_that_has_spent_its_new_budget_is_told(was: float | None, becomes: float | None, told: bool) -> None:
    def of(usd: float | None) -> Fleet:
        return FleetBuilder().pool().team("a", **({"budget": {"usdPerMonth": usd}} if usd else {})).build()

    seen = replace(World(of(was)).snapshot(), spent_usd={"a": 1_000.0})
    assert bool(list(beyond_new_budgets(of(was), of(becomes), seen))) is told
