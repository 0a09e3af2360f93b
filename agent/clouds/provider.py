"""What a cloud brings with it: what it sells, and its ports. What stands in for it is in `providers.sim.clouds`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fleet.catalog import Catalog
from fleet.offerings.listing import CatalogListing
from providers.clock import Clock

if TYPE_CHECKING:  # whoever asks what is sold connects to no cloud
    from providers.ports import Cloud, Health, Notices


@dataclass(frozen=True, slots=True)
class CloudConnection:
    """What it takes to reach a cloud, and what machines have to know to join the cluster."""

    region: str
    cluster: str
    endpoint_url: str = ""
    """Of its API; empty = the region's own."""
    notices_url: str = ""
    """The queue of interruption notices; empty = there is none."""
    cluster_endpoint: str = ""
    certificate_authority: str = ""
    service_cidr: str = ""
    kubernetes_version: Callable[[], str] = lambda: ""
    """Such as `1.34`; empty = not known now."""


class ConnectedCloud(NamedTuple):
    """The ports of a cloud that the agent runs with."""

    cloud: "Cloud"
    notices: "Notices | None"
    health: "Health"


class CloudProvider(Protocol):
    """One cloud: what it sells, and how it is reached."""

    def catalog(self, region: str) -> Catalog:
        """What is sold in a region and for how much, as far as it is known without asking anybody."""
        ...

    def listing(self, region: str) -> CatalogListing:
        """The same by name only, at once: to hold a fleet against it."""
        ...

    def region_of(self, zone: str) -> str:
        """The region of a zone; empty for one that nothing is known of."""
        ...

    def connect(self, where: CloudConnection, clock: Clock) -> ConnectedCloud:
        """Returns the ports of the real cloud. Raises `CloudError`."""
        ...
