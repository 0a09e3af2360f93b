"""Layouts as capacity, and whether a node keeps what its claim promised."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from fleet.mig.layouts import cut, cut_anew, gpu_part, is_gpu_resource, layout_name, owed, pool_layouts, with_gpus
from fleet.snapshot import Claim, Node
from model import labels
from model.fleet import Fleet
from model.mig import config_name
from tests.support.fleets import G6, GPU, M7, NOW, P4, P5, A, FleetBuilder
from tests.support.world import World

SMALL, LARGE = labels.MIG_RESOURCE_PREFIX + "1g.10gb", labels.MIG_RESOURCE_PREFIX + "3g.40gb"


def fleet(*layouts: str) -> Fleet:
    builder = FleetBuilder().layout("small", h100_80gb=[{"profiles": {"1g.10gb": 7}}])
    builder.layout("large", h100_80gb=[{"profiles": {"3g.40gb": 2}}], a100_40gb=[{"profiles": {"3g.20gb": 2}}])
    builder.layout("half", h100_80gb=[{"devices": [0, 1, 2, 3], "profiles": {"1g.10gb": 7}}, {"devices": [4, 5, 6, 7]}])
    return builder.pool(sharing={"mig": {"layouts": list(layouts or ("small", "large"))}}).team().queue().build()


@pytest.mark.parametrize(
    ("machine", "layout", "gpus"),
    [
        (P5, "small", {SMALL: 56}),
        (P5, "large", {LARGE: 16}),
        (P5, "half", {SMALL: 28, GPU: 4}),
        (P4, "large", {labels.MIG_RESOURCE_PREFIX + "3g.20gb": 16}),
        (P4, "small", None),
        (G6, "small", None),
        (M7, "small", None),
    ],
)
def test_what_a_machine_offers_once_it_is_cut(machine: object, layout: str, gpus: Mapping[str, int] | None) -> None:
    assert cut(machine, fleet("half").mig_layouts[layout]) == gpus  # type: ignore[arg-type]


def test_the_pools_order_is_kept() -> None:
    made = fleet("large", "small")
    assert [layout.name for layout in pool_layouts(made, made.node_pools["h100"]).values()] == ["large", "small"]
    assert all(layout_name(name) == it.name for name, it in pool_layouts(made, made.node_pools["h100"]).items())
    whole = FleetBuilder().pool().build()
    assert pool_layouts(whole, whole.node_pools["h100"]) == {}


@pytest.mark.parametrize(
    ("name", "is_gpu"),
    [
        (GPU, True),
        (SMALL, True),
        ("nvidia.com/gpu.shared", True),
        ("cpu", False),
        (labels.FABRIC_RESOURCE, False),
        ("nvidia.com/gpudirect", False),
    ],
)
def test_what_is_a_gpu(name: str, is_gpu: bool) -> None:
    assert is_gpu_resource(name) is is_gpu


def test_with_gpus_replaces_all_of_them() -> None:
    assert with_gpus({"cpu": 1, GPU: 8, SMALL: 7}, {LARGE: 2}) == {"cpu": 1, LARGE: 2}
    assert gpu_part({"cpu": 1, GPU: 0, SMALL: 7}) == {SMALL: 7}


def standing(**sharing: Any) -> tuple[Claim, Node]:
    made = fleet() if not sharing else FleetBuilder().pool(**sharing).team().queue().build()
    world = World(made)
    claim = world.machine("m0", zone=A)
    return claim, world.nodes["node-m0"]


def test_a_claim_that_is_cut_anew() -> None:
    claim, _ = standing()
    made = fleet()
    name = config_name(made.mig_layouts["large"])
    again = cut_anew(claim, name, {LARGE: 16}, NOW)
    assert (again.layout, gpu_part(again.resources), again.recut_at_s) == (name, {LARGE: 16}, NOW)
    assert again.resources["cpu"] == claim.resources["cpu"]
    assert cut_anew(replace(claim, ready_at_s=NOW), name, {}, NOW).recut_at_s > NOW


@pytest.mark.parametrize(
    ("config", "state", "gpus", "words"),
    [
        ("", "success", {SMALL: 56}, ""),
        ("other", "success", {SMALL: 56}, "label nvidia.com/mig.config is not small-"),
        ("", "", {SMALL: 56}, "mig-manager reports nothing yet"),
        ("", "pending", {SMALL: 56}, "mig-manager reports pending"),
        ("", "failed", {}, "mig-manager reports failed"),
        ("", "success", {SMALL: 55}, f"allocatable shows 55 {SMALL}, the layout promises 56 {SMALL}"),
        ("", "success", {LARGE: 16}, f"allocatable shows 16 {LARGE}, the layout promises 56 {SMALL}"),
        ("", "success", {}, f"allocatable shows no GPU, the layout promises 56 {SMALL}"),
        ("", "success", {SMALL: 56, LARGE: 0}, ""),
        (
            "",
            "success",
            {SMALL: 56, LARGE: 1},
            f"allocatable shows 56 {SMALL}, 1 {LARGE}, the layout promises 56 {SMALL}",
        ),
    ],
)
def test_what_a_cut_machine_still_owes(config: str, state: str, gpus: dict[str, int], words: str) -> None:
    claim, node = standing()
    shown = {**node.labels, labels.MIG_CONFIG: config or claim.layout, labels.MIG_CONFIG_STATE: state}
    owing = owed(claim, replace(node, labels=shown, allocatable={"cpu": 1, **gpus}))
    assert owing.startswith(words) if words else owing == ""


@pytest.mark.parametrize(
    ("efa", "gpus", "words"),
    [
        (32, 8, ""),
        (33, 9, ""),
        (31, 8, f"{labels.FABRIC_RESOURCE} is 31, promised 32"),
        (32, 7, f"allocatable shows 7 {GPU}, promised 8 {GPU}"),
    ],
)
def test_what_a_whole_machine_still_owes(efa: int, gpus: int, words: str) -> None:
    claim, node = standing(placement={"efa": True})
    assert owed(claim, replace(node, allocatable={labels.FABRIC_RESOURCE: efa, GPU: gpus})) == words
