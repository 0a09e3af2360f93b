"""What a cut makes of GPUs: the geometry of a configuration, the plugin's resources, feature discovery's labels."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from model.mig.parted import InvalidMigParted
from providers.aws.catalog import package_catalog
from providers.sim.controllers.gpus import (
    PhysicalGpu,
    PluginFails,
    Strategy,
    device_resources,
    discovery_labels,
    resource_name,
)
from providers.sim.controllers.migparted import geometry, parse_mig_configs, same_geometry
from providers.sim.controllers.sharing import InvalidPluginConfig, read_plugin_config
from providers.sim.shapes import shapes_of
from tests.providers.sim.controllers.test_mig import FILE
from tests.providers.sim.controllers.world import A100, ControllerWorld, Obj


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "version: v2\nmig-configs: {}",
        "version: v1\nmig-configs: {a: []}",
        "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true}]}",
        "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: false, mig-devices: {1g.5gb: 1}}]}",
        "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 0}}]}",
        "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {small: 1}}]}",
        "version: v1\nmig-configs: {a: [{devices: some, mig-enabled: false}]}",
        "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: false, colour: red}]}",
        "version: v1\nmig-configs: {a: [{devices: all, mig-enabled: maybe}]}",
        "version: v1\nmig-configs: {}\nmore: 1",
    ],
)
def test_files_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidMigParted):
        parse_mig_configs(text)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("all-disabled", [None] * 8),
        ("all-1g.5gb", [{"1g.5gb": 7}] * 8),
        ("half", [None] * 4 + [{"1g.5gb": 7}] * 4),
        (
            "balanced",
            [{"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}] * 8,
        ),  # the entry for another model is not for this one
    ],
)
def test_geometry(name: str, expected: list[Mapping[str, int] | None]) -> None:
    cut = geometry(parse_mig_configs(FILE)[name], A100, (PhysicalGpu(),) * 8)
    assert [gpu.profiles for gpu in cut] == expected
    assert same_geometry(cut, tuple(map(PhysicalGpu, expected)))


def test_gpus_no_entry_speaks_of_stay_as_they_are() -> None:
    (config,) = parse_mig_configs(
        "version: v1\nmig-configs: {a: [{devices: [1], mig-enabled: true, mig-devices: {}}]}"
    ).values()
    before = (PhysicalGpu({"1g.5gb": 7}), PhysicalGpu())
    assert geometry(config, A100, before) == (PhysicalGpu({"1g.5gb": 7}), PhysicalGpu({}))


@pytest.mark.parametrize(
    ("profile", "resource"), [("1g.5gb", "1g.5gb"), ("1g.5gb+me", "1g.5gb.me"), ("1g.24gb-me", "1g.24gb-me")]
)
def test_resource_names(profile: str, resource: str) -> None:
    assert resource_name(profile) == f"nvidia.com/mig-{resource}"


ONE, TWO = PhysicalGpu({"1g.5gb": 7}), PhysicalGpu({"3g.20gb": 2})


@pytest.mark.parametrize(
    ("gpus", "strategy", "resources", "product"),
    [
        ((PhysicalGpu(), PhysicalGpu()), "none", {"nvidia.com/gpu": 2}, "A"),
        ((PhysicalGpu(), ONE), "none", {"nvidia.com/gpu": 2}, "A"),
        ((ONE, ONE), "single", {"nvidia.com/gpu": 14}, "A-MIG-1g.5gb"),
        ((ONE, TWO), "single", None, "A-MIG-INVALID"),
        ((ONE, PhysicalGpu()), "single", None, "A-MIG-INVALID"),
        ((ONE, PhysicalGpu({})), "single", None, "A-MIG-INVALID"),
        ((PhysicalGpu(), PhysicalGpu()), "single", {"nvidia.com/gpu": 2}, "A"),
        ((ONE, TWO), "mixed", {"nvidia.com/mig-1g.5gb": 7, "nvidia.com/mig-3g.20gb": 2}, "A"),
        ((PhysicalGpu({}), PhysicalGpu()), "mixed", {"nvidia.com/gpu": 1}, "A"),
    ],
)
def test_strategies(gpus: tuple[PhysicalGpu, ...], strategy: Strategy, resources: Obj | None, product: str) -> None:
    shape = replace(A100, gpu_count=len(gpus), gpu_product="A")
    if resources is None:
        with pytest.raises(PluginFails):
            device_resources(shape, gpus, strategy)
    else:
        assert device_resources(shape, gpus, strategy) == resources
    found = discovery_labels(shape, gpus, strategy) or {}
    assert found["nvidia.com/gpu.product"] == product
    assert ("nvidia.com/mig.strategy" in found) is (strategy != "none")


@pytest.mark.parametrize(
    ("compute", "family"),
    [
        *(((7, 0), "volta"), ((7, 5), "turing"), ((8, 6), "ampere"), ((8, 9), "ada-lovelace"), ((9, 0), "hopper")),
        *(((10, 3), "blackwell"), ((12, 0), "blackwell"), ((6, 1), "undefined")),
    ],
)
def test_the_family_of_a_gpu(compute: tuple[int, int], family: str) -> None:
    found = discovery_labels(replace(A100, compute_capability=compute), (PhysicalGpu(),), "none") or {}
    assert found["nvidia.com/gpu.family"] == family
    assert (found["nvidia.com/gpu.compute.major"], found["nvidia.com/gpu.compute.minor"]) == tuple(map(str, compute))


def test_an_nvlink_domain_is_a_clique() -> None:
    domain = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31.1"
    assert "nvidia.com/gpu.clique" not in (discovery_labels(A100, (PhysicalGpu(),), "mixed") or {})
    found = discovery_labels(replace(A100, clique=domain), (PhysicalGpu(),), "mixed") or {}
    assert found["nvidia.com/gpu.clique"] == domain


def test_mps_is_not_for_gpus_that_are_cut() -> None:
    mps = read_plugin_config("sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}")
    assert discovery_labels(A100, (ONE, PhysicalGpu()), "mixed", mps) is None
    with pytest.raises(PluginFails, match="MPS"):
        device_resources(A100, (ONE, PhysicalGpu()), "mixed", mps)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "not YAML"),
        ("version: v2", "unknown version"),
        ("sharing: {timeSlicing: {}}", "no resources specified"),
        ("sharing: {timeSlicing: {resources: [{replicas: 2}]}}", "no resource name"),
        ("sharing: {timeSlicing: {resources: [{name: gpu}]}}", "no replicas"),
        ("sharing: {timeSlicing: {resources: [{name: GPU, replicas: 2}]}}", "incorrect format"),
        ("sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: some}]}}", "devices cannot be"),
        ("sharing: {timeSlicing: {renameByDefault: maybe, resources: [{name: gpu, replicas: 2}]}}", "true or false"),
    ],
)
def test_sharing_that_the_plugin_refuses(text: str, message: str) -> None:
    with pytest.raises(InvalidPluginConfig, match=message):
        read_plugin_config(text)


def test_mps_goes_before_time_slicing() -> None:
    both = (
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 4}]}, mps: {resources: [{name: gpu, replicas: 2}]}}"
    )
    assert (read_plugin_config(both).strategy, read_plugin_config(both).replicas) == ("mps", {"nvidia.com/gpu": 2})


def test_a_machine_of_the_catalogue_tells_of_its_slices() -> None:
    shape = shapes_of(package_catalog("us-east-1").catalog)("p4d.24xlarge")
    assert shape is not None
    found = discovery_labels(shape, (ONE,), "mixed") or {}
    told = {key.partition("1g.5gb.")[2]: text for key, text in found.items() if key.startswith("nvidia.com/mig-1g.5gb")}
    assert told == {
        "count": "7",
        "replicas": "1",
        "sharing-strategy": "none",
        "product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb",
        "memory": "4864",
        "multiprocessors": "14",
        "slices.gi": "1",
        "slices.ci": "1",
        "engines.copy": "1",
        "engines.decoder": "0",
        "engines.encoder": "0",
        "engines.jpeg": "0",
        "engines.ofa": "0",
    }
    assert found["nvidia.com/gpu.family"] == "ampere"


def test_discovery_labels_a_node_whenever_it_is_woken() -> None:
    """A clock in real time never stands at one of its ticks exactly."""
    world = ControllerWorld()
    world.node("n1", labels={"node.kubernetes.io/instance-type": "p4d.24xlarge"})
    for _ in range(300):
        world.clock.advance_to(world.now + 0.37)
        world.sim.kernel.run_until_quiet()
    assert world.the("Node", "n1")["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB"
