"""What an instance type is made of: from the package, or from `DescribeInstanceTypes` for types newer than it."""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from providers.aws import data

_ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """GPUs of one model in a machine; `count` is 0 where only a fraction of one is attached (g6f, gr6f)."""

    name: str
    manufacturer: str
    count: int
    memory_mib: int
    fraction: float = 1.0
    """How much of a GPU the machine has, where that is a part of one (`GpuPartitionSize`)."""


@dataclass(frozen=True, slots=True)
class Neuron:
    """AWS Inferentia or Trainium devices in a machine."""

    name: str
    devices: int
    cores_per_device: int


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """Hardware of an instance type; None = not known.

    `enis` counts the interfaces of the default network card, the only ones whose addresses pods get; `branch_enis` is
    what security groups for pods may use.
    """

    name: str
    vcpu: int
    memory_mib: int
    arch: str
    enis: int
    ipv4_per_eni: int
    branch_enis: int = 0
    network_cards: int = 1
    efa: int = 0
    efa_card: int = 0
    """First network card that can carry EFA; 1 where card 0 is for the machine itself (p6-b300)."""
    nvme_gb: int | None = None
    network_mbps: int | None = None
    ebs_mbps: int | None = None
    clock_mhz: int | None = None
    cpu_manufacturer: str = ""
    hypervisor: str = ""
    encryption_in_transit: bool | None = None
    usage_classes: tuple[str, ...] = ("on-demand", "spot")
    gpus: tuple[GpuFacts, ...] = ()
    neuron: Neuron | None = None

    def row(self) -> list[Any]:
        """The values in the order of `COLUMNS`, as JSON can hold them."""
        return list(astuple(self))

    @property
    def family(self) -> str:
        """`p5` of `p5.48xlarge`."""
        return self.name.partition(".")[0]

    @property
    def size(self) -> str:
        """`48xlarge` of `p5.48xlarge`."""
        return self.name.partition(".")[2]


COLUMNS = tuple(column.name for column in fields(TypeFacts))


_PACKAGE: Final = Path(data.__path__[0]) / "ec2.json.gz"


@cache
def package() -> Mapping[str, Any]:
    """The package data: `meta`, `columns`, `types`, `prices`, `zones` (see `tools/ec2_facts.py`). Read once, 10 ms."""
    return cast("dict[str, Any]", json.loads(gzip.decompress(_PACKAGE.read_bytes())))


DOCUMENTED: Mapping[str, TypeFacts] = {
    "p6e-gb200.36xlarge": TypeFacts(
        "p6e-gb200.36xlarge",
        vcpu=144,
        memory_mib=960 * 1024,
        arch="arm64",
        enis=2,
        ipv4_per_eni=50,
        network_cards=17,
        nvme_gb=22_500,
        network_mbps=3_200_000,
        hypervisor="nitro",
        usage_classes=("capacity-block",),
        gpus=(GpuFacts("gb200", "nvidia", 4, 185 * 1024),),
    ),
}
"""Types that nobody has recorded, after EC2's documentation ("Amazon EC2 P6e UltraServers"; EC2 User Guide, "Elastic
network interfaces"; karpenter-provider-aws `zz_generated.bandwidth.go`).

Interfaces are the fewest of any machine of the family: they bound pods, not GPUs. What EC2 itself says goes before it.
"""


@cache
def package_types() -> Mapping[str, TypeFacts]:
    """Type name -> facts of every type the package knows, sorted by name."""
    document = package()
    if tuple(document["columns"]) != COLUMNS:
        raise RuntimeError("providers/aws/data/ec2.json.gz has other columns than this version; build it again")
    return _PackageTypes({row[0]: row for row in document["types"]})


class _PackageTypes(Mapping[str, TypeFacts]):
    """The rows of the package, each made into facts once it is asked for: most fleets name a few types."""

    def __init__(self, rows: Mapping[str, Sequence[Any]]) -> None:
        self._rows, self._made = rows, {name: it for name, it in DOCUMENTED.items() if name not in rows}
        self._names = dict.fromkeys(sorted({*rows, *self._made}))

    def __getitem__(self, name: str) -> TypeFacts:
        if name not in self._made:
            self._made[name] = _from_row(self._rows[name])
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _from_row(row: Sequence[Any]) -> TypeFacts:
    *plain, usage_classes, gpus, neuron = row
    devices = tuple(GpuFacts(*gpu) for gpu in gpus), Neuron(*neuron) if neuron else None
    values: list[Any] = [*plain, tuple(usage_classes), *devices]
    return TypeFacts(*values)


def describe_facts(info: Mapping[str, Any]) -> TypeFacts | None:
    """The facts of one `InstanceTypeInfo` of `DescribeInstanceTypes`; None for a machine that Linux pods cannot use.

    Network bandwidth and branch interfaces are not in that answer and stay unknown.
    """
    processor, network = info["ProcessorInfo"], info["NetworkInfo"]
    arch = next((_ARCHITECTURES[each] for each in processor["SupportedArchitectures"] if each in _ARCHITECTURES), None)
    if arch is None or not network.get("Ipv4AddressesPerInterface"):
        return None
    storage, ebs = info.get("InstanceStorageInfo", {}), info.get("EbsInfo", {})
    clock_ghz = processor.get("SustainedClockSpeedInGhz")
    return TypeFacts(
        name=info["InstanceType"],
        vcpu=info["VCpuInfo"]["DefaultVCpus"],
        memory_mib=info["MemoryInfo"]["SizeInMiB"],
        arch=arch,
        enis=_default_card_interfaces(network),
        ipv4_per_eni=network["Ipv4AddressesPerInterface"],
        network_cards=network.get("MaximumNetworkCards", 1),
        efa=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        efa_card=_first_efa_card(network),
        nvme_gb=storage.get("TotalSizeInGB") if storage.get("NvmeSupport") != "unsupported" else None,
        ebs_mbps=ebs.get("EbsOptimizedInfo", {}).get("MaximumBandwidthInMbps")
        if ebs.get("EbsOptimizedSupport") == "default"
        else None,
        clock_mhz=round(clock_ghz * 1000) if clock_ghz else None,
        cpu_manufacturer=_kebab(processor.get("Manufacturer", "")),
        hypervisor=info.get("Hypervisor", ""),
        encryption_in_transit=bool(network.get("EncryptionInTransitSupported")),
        usage_classes=tuple(sorted(info["SupportedUsageClasses"])),
        gpus=_gpus(info),
        neuron=_neuron(info),
    )


def _default_card_interfaces(network: Mapping[str, Any]) -> int:
    default = network.get("DefaultNetworkCardIndex", 0)
    for card in network.get("NetworkCards", ()):
        if card["NetworkCardIndex"] == default:
            return int(card["MaximumNetworkInterfaces"])
    return int(network["MaximumNetworkInterfaces"])


def _first_efa_card(network: Mapping[str, Any]) -> int:
    cards = network.get("NetworkCards", ())
    return min((card["NetworkCardIndex"] for card in cards if "efa" in card.get("InterfaceTypes", ())), default=0)


def _gpus(info: Mapping[str, Any]) -> tuple[GpuFacts, ...]:
    return tuple(
        GpuFacts(
            _kebab(gpu["Name"]),
            _kebab(gpu["Manufacturer"]),
            gpu.get("Count", 0),
            gpu["MemoryInfo"]["SizeInMiB"],
            gpu.get("GpuPartitionSize", 1.0),
        )
        for gpu in info.get("GpuInfo", {}).get("Gpus", ())
    )


def _neuron(info: Mapping[str, Any]) -> Neuron | None:
    devices = info.get("NeuronInfo", {}).get("NeuronDevices", ())
    if len(devices) != 1:
        return None
    device = devices[0]
    return Neuron(_kebab(device["Name"]), device["Count"], device["CoreInfo"]["Count"])


def _kebab(text: str) -> str:
    return text.lower().replace(" ", "-")
