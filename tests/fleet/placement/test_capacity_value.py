"""Worth in counts: by hand, and as the measure by devices wherever all devices are whole and nothing else is short."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.reference.fragmentation import ExpectedFill, Request
from bench.reference.packer import FreeNode, states_of
from fleet.placement.opportunity_cost import MEMORY, CapacityValue, PodRequests, wants_gpus
from model.labels import GPU_RESOURCE as GPU
from model.labels import MIG_RESOURCE_PREFIX
from tests.support.fleets import amounts

SMALL, LARGE = MIG_RESOURCE_PREFIX + "1g.10gb", MIG_RESOURCE_PREFIX + "3g.40gb"
PLENTY = {"cpu": 10**9, MEMORY: 10**15}


def pod(cpu: int = 0, memory: int = 0, **gpus: int) -> PodRequests:
    requests = {"cpu": cpu, MEMORY: memory} | {_NAMES[name]: amount for name, amount in gpus.items()}
    return tuple(sorted(requests.items()))


_NAMES = {"gpu": GPU, "small": SMALL, "large": LARGE}


@pytest.mark.parametrize(
    ("mix", "free", "worth"),
    [
        # With a horizon of one the run goes on with a chance of 1/2 wherever all requests fit.
        ({pod(gpu=1): 1}, {GPU: 2}, 1_000_000),
        ({pod(gpu=1): 1}, {}, 0),
        ({pod(gpu=2): 1}, {GPU: 1}, 0),
        ({pod(gpu=2): 1}, {GPU: 5}, 2_000_000),
        ({pod(gpu=2): 1, pod(gpu=1): 1}, {GPU: 2}, 2 * 166_667 + 333_333),
        # Every resource has its requests.
        ({pod(small=1): 1}, {GPU: 3, SMALL: 2}, 1_000_000),
        ({pod(small=1): 1, pod(large=1): 1}, {SMALL: 1, LARGE: 3}, 4 * 166_667),
        ({pod(small=1, gpu=1): 1}, {SMALL: 1, GPU: 1}, 1_000_000),
        # What lacks CPU or memory is worth what those who still fit would fill of it.
        ({pod(4000, gpu=1): 1}, {GPU: 2, "cpu": 4000}, 1_000_000),
        ({pod(4000, gpu=1): 1}, {GPU: 2, "cpu": 1000}, 0),
        ({pod(1000, gpu=1): 1, pod(7000, gpu=1): 1}, {GPU: 2, "cpu": 1000}, 500_000),
        ({pod(2000, gpu=1): 1, pod(7000, gpu=1): 1}, {GPU: 4, "cpu": 2000}, 500_000),
        ({pod(4000, 4000, gpu=1): 1}, {GPU: 2, "cpu": 1000, MEMORY: 2000}, 0),
        ({pod(4000, 4000, gpu=2): 1}, {GPU: 4, "cpu": 7999, MEMORY: 8000}, 1_000_000),
        ({pod(4000, 4000, gpu=2): 1}, {GPU: 4, "cpu": 8000, MEMORY: 3999}, 0),
        # Requests without GPUs say nothing, and less than nothing is nothing.
        ({pod(9000): 5, pod(gpu=1): 1}, {GPU: 2, "cpu": 0}, 1_000_000),
        ({pod(4000, gpu=1): 1}, {GPU: -2, "cpu": -4000}, 0),
        ({pod(4000, gpu=1): 1}, {GPU: 2, "cpu": -4000}, 0),
        ({pod(4000, gpu=2): 1}, {GPU: 2, "cpu": -4000}, 0),
        ({}, {GPU: 2}, 0),
    ],
)  # fmt: skip
def test_worth(mix: Mapping[PodRequests, int], free: Mapping[str, int], worth: int) -> None:
    total = sum(pods for requests, pods in mix.items() if wants_gpus(requests))
    assert CapacityValue(mix, total, horizon=1).of({**PLENTY, **free}) == pytest.approx(worth, abs=3)


def test_those_who_may_not_stand_here_are_part_of_all() -> None:
    assert CapacityValue({pod(gpu=1): 1}, 2, horizon=1).of({**PLENTY, GPU: 1}) == 166_667


def test_a_part_of_a_gpu_is_worth_a_part() -> None:
    parts = {GPU: 1.0, SMALL: 1 / 7}
    worth = CapacityValue({pod(gpu=1): 1, pod(small=1): 1}, 2, parts.__getitem__, horizon=1)
    assert worth.of({**PLENTY, GPU: 1}) == 166_667
    assert worth.of({**PLENTY, SMALL: 1}) == round(166_667 / 7)


def test_loss_is_told_apart_by_thousandths() -> None:
    worth = CapacityValue({pod(1, gpu=1): 1, pod(1, gpu=8): 3}, 4)
    free = {**PLENTY, GPU: 8}
    assert worth.loss(free, amounts(1), 1) == (worth.of(free) - worth.of({**free, GPU: 7})) // 1000
    assert worth.loss(free, {GPU: 4}, 2) == worth.of(free) // 1000
    assert worth.loss({**PLENTY, GPU: 7}, {GPU: 1}, 1) < worth.loss(free, {GPU: 1}, 1)
    assert worth.loss({"cpu": 8}, {"cpu": 8}, 1) == 0


gpu_requests = st.builds(
    Request, st.sampled_from([0, 500, 3000, 11_500]), st.sampled_from([0, 700, 40_000]), st.sampled_from([1, 1, 2, 4])
)


@given(
    st.dictionaries(gpu_requests, st.integers(1, 50), min_size=1, max_size=5),
    st.integers(0, 8),
    st.integers(8 * 11_500, 200_000),
    st.integers(8 * 40_000, 600_000),
)
def test_it_is_the_measure_by_devices_where_all_are_whole_and_fed(
    mix: dict[Request, int], gpus: int, cpu: int, memory: int
) -> None:
    measure = ExpectedFill(mix, ("",))
    by_device = measure.worth(states_of([FreeNode("n", cpu, memory, (1000,) * gpus)], measure))
    counted = {pod(request.cpu_milli, request.memory_mib, gpu=request.gpus): pods for request, pods in mix.items()}
    by_count = CapacityValue(counted, sum(mix.values())).of({"cpu": cpu, MEMORY: memory, GPU: gpus})
    assert by_count == pytest.approx(int(by_device[0]), rel=2e-3, abs=1000)  # needs are rounded to other units there
