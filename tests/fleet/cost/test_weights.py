"""Slices cost what they are: weights of every model's profiles, and every GPU sums to its share of the machine."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleet.catalog import InstanceType
from fleet.cost.allocation import split
from fleet.cost.weights import HOST_PART, machine_weights, slice_weight
from fleet.mig.layouts import with_gpus
from model import labels
from model.kinds import MigLayout
from model.mig.geometry import mig_models, resource_name
from model.mig.layouts import layout_resources
from tests.support.fleets import FleetBuilder, machine

GPU = labels.GPU_RESOURCE
MODELS: Mapping[str, tuple[InstanceType, str]] = {
    "h100-80gb": (machine("p5.48xlarge", gpus=8, gpu="h100", gpu_memory=81920), "h100_80gb"),
    "a100-40gb": (machine("p4d.24xlarge", gpus=8, gpu="a100", gpu_memory=40960), "a100_40gb"),
    "rtx-pro-6000-blackwell-96gb": (
        machine("g7e.48xlarge", gpus=8, gpu="rtx-pro-server-6000", gpu_memory=97280),
        "rtx_pro_6000_blackwell_96gb",
    ),
}


def layout_of(model: str, *groups: Any) -> MigLayout:
    fleet = FleetBuilder().layout("it", **{MODELS[model][1]: list(groups)}).build()
    return fleet.mig_layouts["it"]


def weights(model: str, *groups: Any, known: bool = True) -> tuple[dict[str, float], dict[str, int]]:
    kind, layout = MODELS[model][0], layout_of(model, *groups)
    gpus = layout_resources(layout, model, kind.gpu_count)
    found = machine_weights(with_gpus(kind.allocatable, gpus), kind, layout if known else None)
    return dict(found.units), gpus


@pytest.mark.parametrize(
    ("model", "profile", "weight"),
    [
        ("a100-40gb", "1g.5gb", Fraction(1, 7)),
        ("a100-40gb", "1g.10gb", Fraction(1, 4)),  # a quarter of the memory
        ("a100-40gb", "2g.10gb", Fraction(2, 7)),
        ("a100-40gb", "3g.20gb", Fraction(1, 2)),
        ("a100-40gb", "4g.20gb", Fraction(4, 7)),
        ("a100-40gb", "7g.40gb", Fraction(1)),
        ("a100-80gb", "1g.10gb", Fraction(1, 7)),
        ("a100-80gb", "1g.10gb+me", Fraction(1, 7)),
        ("a100-80gb", "1g.20gb", Fraction(1, 4)),
        ("h100-80gb", "1g.10gb", Fraction(1, 7)),
        ("h100-80gb", "3g.40gb", Fraction(1, 2)),
        ("h200-141gb", "1g.18gb", Fraction(1, 7)),
        ("h200-141gb", "1g.35gb", Fraction(1, 4)),
        ("b200-180gb", "2g.45gb", Fraction(2, 7)),
        ("b200-180gb", "7g.180gb", Fraction(1)),
        ("a30-24gb", "1g.6gb", Fraction(1, 4)),  # four slices of both
        ("a30-24gb", "2g.12gb", Fraction(1, 2)),
        ("rtx-pro-6000-blackwell-96gb", "1g.24gb", Fraction(1, 4)),
    ],
)
def test_a_slice_weighs_what_nobody_else_can_have(model: str, profile: str, weight: Fraction) -> None:
    found = mig_models()[model]
    assert slice_weight(found, found.profiles[profile]) == weight


@pytest.mark.parametrize("model", sorted(mig_models()))
def test_the_whole_gpu_as_one_slice_weighs_one(model: str) -> None:
    found = mig_models()[model]
    assert max(slice_weight(found, profile) for profile in found.profiles.values()) == 1


SEVEN_SMALL = {"profiles": {"1g.10gb": 7}}


@pytest.mark.parametrize("known", [True, False])
def test_four_whole_gpus_beside_28_slices_are_half_the_machine(known: bool) -> None:
    units, gpus = weights(
        "h100-80gb",
        {"devices": [0, 1, 2, 3]},
        {"devices": [4, 5, 6, 7], **SEVEN_SMALL},
        known=known,
    )
    assert gpus == {GPU: 4, resource_name("1g.10gb"): 28}
    assert units[GPU] * 4 == 0.5
    assert units[resource_name("1g.10gb")] * 28 == pytest.approx(0.5, abs=1e-15)


def test_what_a_layout_leaves_unused_is_paid_by_what_it_is_cut_into() -> None:
    units, _ = weights("h100-80gb", {"devices": [0], "profiles": {"3g.40gb": 1}}, {"devices": [1, 2, 3, 4, 5, 6, 7]})
    assert units[resource_name("3g.40gb")] == pytest.approx(1 / 8)


def test_slices_of_one_size_on_differently_cut_gpus_cost_their_mean() -> None:
    """Nobody can tell from its name which GPU a slice is on: 3g.40gb alone is a GPU, beside another it is half."""
    units, _ = weights(
        "h100-80gb",
        {"devices": [0], "profiles": {"3g.40gb": 1}},
        {"devices": [1], "profiles": {"3g.40gb": 2}},
        {"devices": [2, 3, 4, 5, 6, 7]},
    )
    assert units[resource_name("3g.40gb")] == pytest.approx(2 / 3 / 8)
    assert units[GPU] == 1 / 8


def test_shared_replicas_count_by_number() -> None:
    kind = MODELS["h100-80gb"][0]
    for resource in (GPU, GPU + ".shared"):
        found = machine_weights(with_gpus(kind.allocatable, {resource: 32}), kind, None)
        assert found.part_of({resource: 4}) == 1 / 8


def test_pods_without_gpu_pay_by_the_ratio_beside_gpus_and_all_of_a_machine_without() -> None:
    kind = MODELS["h100-80gb"][0]
    beside = machine_weights(kind.allocatable, kind, None)
    assert beside.part_of({"cpu": kind.allocatable["cpu"] // 2}) == float(HOST_PART) / 2
    assert beside.part_of({"cpu": 1, "memory": kind.allocatable["memory"]}) == float(HOST_PART)
    assert beside.part_of({GPU: 4, "cpu": kind.allocatable["cpu"]}) == 0.5, "by its GPUs alone"
    alone = machine_weights({"cpu": 14_000, "memory": 100}, None, None)
    assert alone.part_of({"cpu": 7_000, "memory": 10}) == 0.5
    assert alone.part_of({"cpu": 7_000, "memory": 100}) == 1.0


def test_gpus_that_are_cut_as_they_are_claimed_cost_their_part_of_the_machine() -> None:
    kind = machine("p5.48xlarge", gpus=8, gpu="h100", gpu_memory=81920)
    every = {profile.resource: 8 * len(profile.starts) for profile in mig_models()["h100-80gb"].profiles.values()}
    found = machine_weights(with_gpus(kind.allocatable, {labels.GPU_RESOURCE: 8, **every}), kind, None)
    asked = {labels.GPU_RESOURCE: 1}, {"nvidia.com/mig-3g.40gb": 2}, {"nvidia.com/mig-1g.10gb": 7}
    assert [found.part_of(it) for it in asked] == pytest.approx([1 / 8, 1 / 8, 1 / 8])


def test_slices_of_a_gpu_nobody_knows_go_by_their_compute() -> None:
    units = machine_weights({"nvidia.com/mig-1g.99gb": 3, "nvidia.com/mig-4g.99gb": 1}, None, None).units
    assert units == pytest.approx({"nvidia.com/mig-1g.99gb": 1 / 7, "nvidia.com/mig-4g.99gb": 4 / 7})


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_all_of_a_machine_is_one_however_it_is_cut(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(sorted(MODELS)))
    profiles = sorted(mig_models()[model].profiles)
    cuts = st.dictionaries(st.sampled_from(profiles), st.integers(1, 4), max_size=3)
    groups = [{"devices": [n], "profiles": data.draw(cuts)} for n in range(8)]
    units, gpus = weights(model, *groups, known=data.draw(st.booleans()))
    assert sum(units[name] * count for name, count in gpus.items()) == pytest.approx(1.0, abs=1e-12)
    assert all(weight > 0 for weight in units.values())


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**14), st.lists(st.floats(0, 1e9, allow_nan=False), min_size=1, max_size=40))
def test_parts_sum_to_the_bill_whatever_happens(total: int, shares: list[float]) -> None:
    parts = split(total, shares)
    assert sum(parts) == total
    assert len(parts) == len(shares)
    assert all(part >= 0 for part in parts)
    whole = sum(shares)
    if whole > 0:
        exact = [total * share / whole for share in shares]
        assert all(abs(part - it) <= 1 + 1e-9 * total for part, it in zip(parts, exact, strict=True))
