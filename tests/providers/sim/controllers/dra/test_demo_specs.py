"""The published demos of DRA drivers, written anew in `tests/data/dra`, run."""

from collections.abc import Mapping

import pytest

from tests.providers.sim.controllers.dra.claim_world import SPECS, ClaimWorld

WANTED: dict[str, Mapping[str, Mapping[str, list[str]]]] = {
    "two-pods-one-gpu-each": {"first": {"gpu": ["gpu-0"]}, "second": {"gpu": ["gpu-1"]}},
    "two-containers-one-gpu": {"both": {"gpu": ["gpu-0"]}},
    "two-pods-one-claim": {"first": {"gpu": ["gpu-0"]}, "second": {"gpu": ["gpu-0"]}},
    "two-ways-of-sharing": {"four": {"gpus": ["gpu-0", "gpu-1"]}},
    "a-gpu-by-its-attributes": {"chooser": {"gpu": ["gpu-0"]}},
    "two-containers-two-gpus": {"both": {"left": ["gpu-0"], "right": ["gpu-1"]}},
    "one-container-two-gpus": {"pair": {"gpus": ["gpu-0", "gpu-1"]}},
    "all-gpus-of-a-node": {"everything": {"gpus": [f"gpu-{n}" for n in range(8)]}},
    "first-of-two-wishes": {"modest": {"gpu": ["gpu-0"]}},
    "init-container-first": {"prepared": {"gpu": ["gpu-0"]}},
}
ELSEWHERE = {"four-slices-of-one-gpu", "a-gpu-as-extended-resource", "a-slice-as-extended-resource"}


def test_every_spec_is_run() -> None:
    assert {path.stem for path in SPECS.glob("*.yaml")} == WANTED.keys() | ELSEWHERE


@pytest.mark.parametrize("spec", sorted(WANTED))
def test_pods_run_with_the_devices_that_they_claim(spec: str) -> None:
    world = ClaimWorld()
    world.gpu_node()
    world.apply(spec)
    world.pass_s(20)
    for pod, devices in WANTED[spec].items():
        assert world.phase(pod) == "Running"
        assert world.devices_of(pod) == devices


@pytest.mark.parametrize("spec", sorted(WANTED))
def test_pods_wait_for_a_node_that_has_them(spec: str) -> None:
    world = ClaimWorld()
    world.apply(spec)
    world.ready_node("small", cpu="8")
    for pod in WANTED[spec]:
        assert "1 cannot allocate all claims. still not schedulable" in world.why(pod)
    world.gpu_node()
    assert {world.phase(pod) for pod in WANTED[spec]} == {"Running"}


def test_configurations_go_with_the_allocation() -> None:
    world = ClaimWorld()
    world.gpu_node()
    world.apply("two-ways-of-sharing")
    world.pass_s(20)
    config = world.all("ResourceClaim")[0]["status"]["allocation"]["devices"]["config"]
    told = [(it["source"], it["requests"], it["opaque"]["parameters"]["sharing"]["strategy"]) for it in config]
    assert told == [("FromClaim", ["sliced"], "TimeSlicing"), ("FromClaim", ["served"], "MPS")]


def test_four_slices_are_of_one_gpu() -> None:
    """A GPU of the half that is cut for each pod; a fifth pod waits."""
    world = ClaimWorld()
    world.gpu_node(mig_config="half-balanced")
    world.apply("four-slices-of-one-gpu")
    world.pass_s(30)
    pods = world.pods(app="sliced")
    gpus = [
        {device.partition("-mig-")[0] for device in world.devices_of(pod["metadata"]["name"])["gpu"]} for pod in pods
    ]
    assert sorted(gpus, key=sorted) == [{"gpu-4"}, {"gpu-5"}, {"gpu-6"}, {"gpu-7"}]
    world.change("Deployment", "sliced", replicas=5)
    world.pass_s(30)
    assert sorted(pod["status"]["phase"] for pod in world.pods(app="sliced")) == ["Pending"] + ["Running"] * 4
