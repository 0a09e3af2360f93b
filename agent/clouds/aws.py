"""AWS as one of the clouds: EC2, its interruption queue and its health checks.

The SDK is imported where it is needed only: it takes longer than most commands.
"""

from agent.clouds.provider import CloudConnection, ConnectedCloud
from fleet.catalog import Catalog
from fleet.offerings.listing import CatalogListing
from providers.aws.catalog import package_catalog
from providers.aws.listing import PackageListing, region_of_zone
from providers.clock import Clock


class AwsProvider:
    """The cloud `aws`."""

    def catalog(self, region: str) -> Catalog:
        """Types, zones and prices of the package; without offers for a region that it does not know."""
        return package_catalog(region).catalog

    def listing(self, region: str) -> CatalogListing:
        """What the package knows of a region by name."""
        return PackageListing(region)

    def region_of(self, zone: str) -> str:
        """The region of a zone; empty for one that the package does not know."""
        return region_of_zone(zone)

    def connect(self, where: CloudConnection, clock: Clock) -> ConnectedCloud:
        """EC2, SQS where a queue is named, and EC2's checks of instances."""
        from providers.aws.clients import connect, connect_queue
        from providers.aws.ec2 import Ec2Cloud
        from providers.aws.health import InstanceHealth
        from providers.aws.queue import SqsNotices
        from providers.aws.retry import Caller
        from providers.aws.user_data import ClusterAccess

        access = ClusterAccess(where.cluster, where.cluster_endpoint, where.certificate_authority, where.service_cidr)
        clients = connect(where.region, endpoint_url=where.endpoint_url)
        cloud = Ec2Cloud(clients, access, clock, where.kubernetes_version)
        health = InstanceHealth(Caller(clock), clients.ec2, clock)
        if not where.notices_url:
            return ConnectedCloud(cloud, None, health)
        queue = connect_queue(where.region, endpoint_url=where.endpoint_url)
        return ConnectedCloud(cloud, SqsNotices(queue, where.notices_url, Caller(clock), clock), health)
