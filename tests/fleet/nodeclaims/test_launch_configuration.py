"""What is asked of the cloud: the templates that have machines, for the kinds of machines there are."""

from dataclasses import replace
from typing import Any

import pytest

from fleet.catalog import ImageKind, InstanceType
from fleet.nodeclaims.launch import launch_configurations
from fleet.snapshot import CapacityPool, Claim
from model import labels
from model.fleet import Fleet
from model.pools import pool_hash
from tests.support.fleets import P5, A, FleetBuilder, catalog, claim_of, offering

TYPES = {
    name: InstanceType(name, {}, allocatable, found)
    for name, allocatable, found in (
        ("gpu", {labels.GPU_RESOURCE: 8}, {labels.ARCH: "amd64", labels.INSTANCE_GPU_MANUFACTURER: "nvidia"}),
        ("cut", {labels.GPU_RESOURCE: 8}, {labels.ARCH: "amd64"}),
        ("trn", {}, {labels.ARCH: "amd64", labels.INSTANCE_ACCELERATOR_MANUFACTURER: "aws"}),
        ("arm", {}, {labels.ARCH: "arm64"}),
        ("bare", {}, {}),
    )
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gpu", ImageKind("amd64", "nvidia")),
        ("cut", ImageKind("amd64", "nvidia")),
        ("trn", ImageKind("amd64", "aws")),
        ("arm", ImageKind("arm64", "")),
        ("bare", ImageKind("amd64", "")),
    ],
)
def test_kinds(name: str, kind: ImageKind) -> None:
    assert TYPES[name].image_kind == kind


def claims(fleet: Fleet, *machines: tuple[str, str]) -> dict[str, Claim]:
    """(pool, type) of each."""
    known = catalog()
    bought = claim_of(offering(fleet, known, "a", P5.name, A, "on-demand"), "c")
    return {
        f"c{n}": replace(bought, node_pool=pool, capacity_pool=CapacityPool("on-demand", kind, "us-east-1a"))
        for n, (pool, kind) in enumerate(machines)
    }


@pytest.mark.parametrize(
    ("machines", "asked"),
    [
        ([], []),
        ([("a", "gpu")], [("a", ["gpu"])]),
        ([("a", "gpu"), ("a", "arm"), ("a", "cut")], [("a", ["gpu", "arm"])]),
        ([("a", "gpu"), ("twin", "arm")], [("a", ["gpu", "arm"])]),
        ([("a", "gpu"), ("other", "bare")], [("a", ["gpu"]), ("other", ["bare"])]),
        ([("gone", "gpu"), ("a", "unknown")], []),
    ],
)
def test_questions(machines: list[tuple[str, str]], asked: list[Any]) -> None:
    """Pools of one template share a question."""
    fleet = FleetBuilder().pool("a").pool("twin").pool("other", template={"amis": [{"id": "ami-1"}]}).build()
    found = launch_configurations(fleet, TYPES, claims(fleet, *machines))
    expected = {
        pool_hash(fleet.node_pools[pool]): (
            fleet.node_pools[pool].spec.template,
            tuple(sorted({TYPES[kind].image_kind for kind in kinds})),
        )
        for pool, kinds in asked
    }
    assert {it.pool_hash: (it.template, it.kinds) for it in found} == expected
    assert [it.pool_hash for it in found] == sorted(expected)
