"""Makes `providers/aws/data/ec2.json.gz` from public facts; run by hand when a newer snapshot of them is wanted.

    python -m tools.ec2_facts FACTS DUMP [OUTPUT]

FACTS is a folder with these JSON files, all derived from aws/karpenter-provider-aws (Apache-2.0):
`instance_types_accelerated.json`, `instance_types_cpu.json`, `karpenter_doc_allocatable.json`, `vpc_limits.json`,
`network_bandwidth_mbps.json`, `on_demand_prices.json`. DUMP is a folder with a recorded `DescribeInstanceTypes`
(`instance_types.json.gz`) and `DescribeInstanceTypeOfferings` by zone, as in moto's `ec2/resources` (Apache-2.0).

The output is deterministic: the same inputs give the same bytes.
"""

import argparse
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from providers.aws.facts import COLUMNS, GpuFacts, Neuron, TypeFacts, describe_facts

_CLASSES = ("on-demand", "spot")
_LETTERS = {"cn-north-1": "abd", "us-gov-east-1": "abc", "us-gov-west-1": "abc"}
"""Zones of the regions that have prices here, and of which nobody has recorded which zone offers what."""


def main() -> None:
    """Entry point of `python -m tools.ec2_facts`."""
    parser = argparse.ArgumentParser(description="Make the package data of providers.aws.")
    parser.add_argument("facts", type=Path)
    parser.add_argument("dump", type=Path)
    parser.add_argument("output", type=Path, nargs="?", default=Path("providers/aws/data/ec2.json.gz"))
    arguments = parser.parse_args()
    document = build(arguments.facts, arguments.dump)
    text = json.dumps(document, separators=(",", ":"), sort_keys=True).encode()
    with arguments.output.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        packed.write(text)


def build(facts: Path, dump: Path) -> dict[str, Any]:
    """The document: meta, columns and rows of instance types, prices, and zone letters by region, by type if known."""
    types = _types(facts, json.loads(gzip.decompress((dump / "instance_types.json.gz").read_bytes())))
    prices = _read(facts / "on_demand_prices.json")
    zones = _zones(dump / "instance_type_offerings" / "availability-zone")
    limits = _read(facts / "vpc_limits.json")
    return {
        "meta": {
            "sources": {
                "prices": f"aws/karpenter-provider-aws@{prices['meta']['karpenter_aws_commit']} pkg/providers/pricing",
                "limits": "aws/karpenter-provider-aws pkg/providers/instancetype/zz_generated.vpclimits.go",
                "types": "EC2 DescribeInstanceTypes and DescribeInstanceTypeOfferings as recorded by moto 5.2.5",
            },
            "types_at": limits["generated_at"],
        },
        "columns": list(COLUMNS),
        "types": [types[name].row() for name in sorted(types)],
        "prices": {
            region: {"at": table["generated_at"], "currency": table["currency"], "hourly": table["prices"]}
            for region, table in prices["regions"].items()
        },
        "zones": zones,
        "letters": {region: letters for region, letters in _LETTERS.items() if region not in zones},
    }


def _types(facts: Path, dump: Mapping[str, Any]) -> dict[str, TypeFacts]:
    limits = _read(facts / "vpc_limits.json")["limits"]
    bandwidth = _read(facts / "network_bandwidth_mbps.json")
    entries = _read(facts / "karpenter_doc_allocatable.json")["instance_types"]
    for file in ("instance_types_accelerated.json", "instance_types_cpu.json"):
        for name, entry in _read(facts / file)["instance_types"].items():
            entries[name] = {
                **entries.get(name, {}),
                **{key: value for key, value in entry.items() if value is not None},
            }
    made = (
        _facts(name, entry, limits.get(name), dump.get(name), bandwidth.get(name)) for name, entry in entries.items()
    )
    return {each.name: each for each in made if each is not None}


def _facts(
    name: str,
    entry: Mapping[str, Any],
    limits: Mapping[str, Any] | None,
    described: Mapping[str, Any] | None,
    bandwidth_mbps: int | None,
) -> TypeFacts | None:
    """The row of one type, or None where vCPU, memory, architecture or interfaces are not known."""
    if not all(entry.get(key) for key in ("vcpu", "memory_mib", "arch", "default_card_enis", "ipv4_per_eni")):
        return None
    live = describe_facts(described) if described else None
    neuron = entry.get("neuron")
    return TypeFacts(
        name=name,
        vcpu=entry["vcpu"],
        memory_mib=entry["memory_mib"],
        arch=entry["arch"],
        enis=entry["default_card_enis"],
        ipv4_per_eni=entry["ipv4_per_eni"],
        branch_enis=limits["branch_enis"] if limits and limits["trunking"] else 0,
        network_cards=len(limits["network_cards"]) if limits else entry.get("network_cards", 1),
        efa=entry.get("efa_max") or 0,
        efa_card=live.efa_card if live else 0,
        nvme_gb=live.nvme_gb if live else entry.get("local_nvme_gb"),
        network_mbps=bandwidth_mbps,
        ebs_mbps=live.ebs_mbps if live else None,
        clock_mhz=live.clock_mhz if live else None,
        cpu_manufacturer=live.cpu_manufacturer if live else "",
        hypervisor=live.hypervisor if live else entry.get("hypervisor", ""),
        encryption_in_transit=live.encryption_in_transit if live else None,
        usage_classes=live.usage_classes if live else _CLASSES,
        gpus=tuple(
            GpuFacts(
                gpu["name"].lower().replace(" ", "-"),
                gpu["manufacturer"].lower(),
                gpu["count"],
                gpu["memory_mib"],
                live.gpus[0].fraction if live and live.gpus else 1.0,
            )
            for gpu in entry.get("gpus", ())
        ),
        neuron=Neuron(neuron["name"].lower(), neuron["devices"], neuron["cores_per_device"]) if neuron else None,
    )


def _zones(folder: Path) -> dict[str, dict[str, str]]:
    """Region -> {type: letters of the zones that offer it}; local and wavelength zones are left out."""
    regions: dict[str, dict[str, str]] = {}
    for file in sorted(folder.glob("*.json.gz")):
        region = file.name.removesuffix(".json.gz")
        letters: dict[str, str] = {}
        for row in json.loads(gzip.decompress(file.read_bytes())):
            if len(row["Location"]) == len(region) + 1:
                letters[row["InstanceType"]] = letters.get(row["InstanceType"], "") + row["Location"][-1]
        regions[region] = {name: "".join(sorted(set(letters[name]))) for name in letters}
    return regions


def _read(path: Path) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads(path.read_text()))


if __name__ == "__main__":
    main()
