"""Selectors of devices are read as `resource.k8s.io/v1` has them, and asked of devices."""

import pytest

from fleet.policy.cel import InvalidExpression
from fleet.policy.device_selectors import DeviceSelector
from fleet.snapshot.devices import Device, DeviceVersion

G = "gpu.nvidia.com"
GPU = Device(
    G,
    "n1",
    "gpu-0",
    {
        f"{G}/type": "gpu",
        f"{G}/productName": "NVIDIA H100 80GB HBM3",
        f"{G}/index": 3,
        f"{G}/healthy": True,
        f"{G}/cudaComputeCapability": DeviceVersion("9.0.0"),
        "resource.kubernetes.io/pcieRoot": "pci0000:44",
    },
    {f"{G}/memory": 80 * 1024**3},
)
A = f"device.attributes['{G}']"


@pytest.mark.parametrize(
    ("text", "selects"),
    [
        (f"device.driver == '{G}' && {A}.type == 'gpu'", True),
        (f"{A}.type == 'mig'", False),
        (f"{A}.productName.lowerAscii().matches('^.*h100.*$')", True),
        (f"device.capacity['{G}'].memory.compareTo(quantity('40Gi')) >= 0", True),
        (f"device.capacity['{G}'].memory.isLessThan(quantity('40Gi'))", False),
        (f"{A}.cudaComputeCapability.isGreaterThan(semver('10.0.0'))", False),
        (f"{A}.cudaComputeCapability.compareTo(semver('9.0.0')) == 0", True),
        (f"{A}.index in [1, 3] && {A}.healthy", True),
        ("device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0000:44'", True),
        (f"has({A}.profile)", False),
        (f"'{G}' in device.attributes", True),
    ],
)
def test_what_is_selected(text: str, selects: bool) -> None:
    assert DeviceSelector(text).selects(GPU) == (selects, "")


@pytest.mark.parametrize("text", [f"{A}.profile == 'x'", "device.attributes['other.com'].type == 'x'", f"{A}.index"])
def test_what_cannot_be_said_is_told(text: str) -> None:
    held, trouble = DeviceSelector(text).selects(GPU)
    assert not held
    assert trouble


@pytest.mark.parametrize(
    "text", ["", "device.driver ==", "claim.x == 1", "cel.bind(a, device, a.driver == 'x')", "((" * 30]
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidExpression):
        DeviceSelector(text)


def test_devices_that_differ_in_nothing_that_is_read_are_one() -> None:
    selector = DeviceSelector(f"{A}.type == 'gpu'")
    other = Device(G, "n2", "gpu-7", {**GPU.attributes, f"{G}/index": 7}, GPU.capacity)
    assert selector.reads(GPU) == selector.reads(other)
    assert DeviceSelector(f"{A}.index == 7").reads(GPU) != DeviceSelector(f"{A}.index == 7").reads(other)
