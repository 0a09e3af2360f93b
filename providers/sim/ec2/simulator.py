"""What stands in for AWS: EC2's market and rules in memory, or moto with an overlay on loopback."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from fleet.snapshot import Catalog
from providers.clock import Clock
from providers.sim.ec2.market import RegionMarket
from providers.sim.ec2.memory import MemoryCloud
from providers.sim.machines import MachineTimings

if TYPE_CHECKING:
    from providers.sim.ec2.server import FakeAws


class AwsSimulator:
    """The cloud `aws`, simulated."""

    name: str = "aws"
    region: str = "us-east-1"
    environment: Mapping[str, str] = MappingProxyType(
        {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    )

    storage_class: Mapping[str, Any] = MappingProxyType(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "gp3", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "ebs.csi.aws.com",
            "parameters": {"type": "gp3"},
            "reclaimPolicy": "Delete",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowVolumeExpansion": True,
        }
    )

    def in_memory(
        self, catalog: Catalog, clock: Clock, cluster: str, timings: MachineTimings | None = None
    ) -> MemoryCloud:
        """EC2's market and rules without a wire."""
        return MemoryCloud(RegionMarket.from_catalog(catalog), catalog, clock, cluster=cluster, timings=timings)

    def served(self, catalog: Catalog, clock: Clock, cluster: str, timings: MachineTimings) -> "FakeAws":
        """An AWS account; imports moto."""
        from providers.sim.ec2.server import FakeAws

        market = RegionMarket.from_catalog(catalog)
        return FakeAws(market, clock, region=self.region, cluster=cluster, timings=timings)
