"""Owners by path where a base and the patches of a cluster make one declaration."""

import json
from typing import Any

import pytest

from fleet.plan import declared_plan
from fleet.plan.owners import unowned
from fleet.snapshot import Snapshot
from model.fleet import Fleet
from model.loader import load

OWNERS = [
    {"name": "platform", "paths": ["base/*"], "users": ["ada"]},
    {"name": "here", "paths": ["clusters/a/*"], "users": ["bo"]},
]


def doc(kind: str, name: str, **more: Any) -> str:
    return json.dumps({"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, **more})


def pool(name: str = "h100", **spec: Any) -> str:
    return doc("NodePool", name, spec=spec)


def fleet(base: str, patch: str = "", spec: dict[str, Any] | None = None) -> Fleet:
    said = {"bases": ["../../base"], "patches": ["patch.yaml"], **(spec or {})}
    files = {
        "base/pools.yaml": base,
        "base/policy.yaml": doc("FleetPolicy", "p", spec={"owners": OWNERS}),
        "clusters/a/cluster.yaml": doc("Cluster", "a", spec=said),
        "clusters/a/patch.yaml": patch,
    }
    return load({path: text.encode() for path, text in files.items()}, cluster="a")


TYPES = ["p5.48xlarge"]
BASE = pool(instanceTypes=TYPES, limits={"nodes": 4})
GONE = doc("NodePool", "h100", **{"$patch": "delete"})
MOVED = pool(instanceTypes=TYPES, zones=["us-east-1a"])
PATCH = pool(limits={"nodes": 8})


@pytest.mark.parametrize(
    ("before", "after", "who"),
    [
        pytest.param((BASE,), (BASE, PATCH), {"here"}, id="a first patch"),
        pytest.param((BASE, PATCH), (BASE, pool(limits={"nodes": 9})), {"here"}, id="another patch"),
        pytest.param((BASE, PATCH), (BASE,), {"here"}, id="no patch any more"),
        pytest.param((BASE, PATCH), (MOVED, PATCH), {"platform"}, id="the base"),
        pytest.param((BASE,), (BASE, GONE), {"here"}, id="a patch that removes"),
        pytest.param((BASE,), (BASE, "", {"suspend": True}), {"here"}, id="the Cluster itself"),
    ],
)  # fmt: skip
def test_who_changed_a_file_needs_its_owner_and_no_other(before: Any, after: Any, who: set[str]) -> None:
    old, new = fleet(*before), fleet(*after)
    plan = declared_plan(old, new, Snapshot(now_s=0.0), base_revision="r1", head_revision="r2")
    assert plan.declared
    rules = {rule.name: rule for rule in old.policy.spec.owners}
    enough = {name for name, rule in rules.items() if not list(unowned(old, new, plan, [rule]))}
    assert enough == who


def test_a_change_of_base_and_patch_needs_one_who_may_do_both() -> None:
    old, new = fleet(BASE), fleet(MOVED, PATCH)
    plan = declared_plan(old, new, Snapshot(now_s=0.0), base_revision="r1", head_revision="r2")
    assert list(unowned(old, new, plan, old.policy.spec.owners)) == ["nodepool/h100: no owner may do this"]
