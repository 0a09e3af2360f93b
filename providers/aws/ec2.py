"""`Ec2Cloud`: the `Cloud` port on EC2."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeVar

import structlog

from fleet.markets import PastPrice
from fleet.snapshot import (
    CapacityPool,
    Catalog,
    Instance,
    LaunchConfiguration,
    LaunchOutcome,
    LaunchRequest,
    Reservation,
    Resolved,
)
from model import labels
from model.kinds.aws import SubnetTerm
from providers.aws.allocatable import USUAL, ClusterSettings
from providers.aws.catalog import CatalogBuild, Zones, build_catalog, package_zones
from providers.aws.clients import Clients
from providers.aws.facts import DOCUMENTED, TypeFacts, package_types
from providers.aws.images import Images
from providers.aws.instances import Instances
from providers.aws.launch import Launcher
from providers.aws.launch_template import LaunchTemplates
from providers.aws.market import described_types, offered_zones, spot_history, spot_prices
from providers.aws.network import Network
from providers.aws.prices import OnDemandPrices, SpotPrices, package_prices
from providers.aws.pricing import on_demand_prices
from providers.aws.profiles import Profiles
from providers.aws.reservations import reservations
from providers.aws.resolve import Resolver
from providers.aws.retry import Caller
from providers.aws.user_data import ClusterAccess
from providers.clock import Clock
from providers.ports import CloudError

T = TypeVar("T")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Known:
    """What the catalogue is made of; each part is replaced when it could be read anew."""

    facts: dict[str, TypeFacts]
    zones: Zones
    on_demand: OnDemandPrices
    spot: SpotPrices | None = None
    usable_zones: frozenset[str] = field(default_factory=frozenset)
    """Zones where this cluster has a subnet; empty = not known, all of them."""


class Ec2Cloud:
    """Buys, lists and gives back the machines of one cluster in one region (port `Cloud`).

    `access` names the cluster and tells nodes how to join it; `kubernetes_version` says for which version of Kubernetes
    (`1.34`, empty = not known) images of an alias are to be made. `sleep` and `rng` serve the pauses between
    repetitions.
    All methods may be called from several threads; they raise `CloudError`, except `launch`, which reports failures as
    its outcome, and `resolve`, which leaves out what it cannot find.
    """

    def __init__(
        self,
        clients: Clients,
        access: ClusterAccess,
        clock: Clock,
        kubernetes_version: Callable[[], str],
        *,
        settings: ClusterSettings = USUAL,
        sleep: Callable[[float], None] = time.sleep,
        rng: Callable[[], float] | None = None,
    ) -> None:
        self._clients = clients
        self._cluster = access.name
        self._clock = clock
        self._settings = settings
        self._caller = Caller(clock, sleep=sleep, rng=rng)
        self._network = Network(self._caller, clients.ec2, clock)
        self._templates = LaunchTemplates(self._caller, clients.ec2, access.name, clock)
        self._instances = Instances(self._caller, clients.ec2, access.name)
        self._resolver = Resolver(
            access,
            self._network,
            Images(self._caller, clients.ec2, clients.ssm, clock, kubernetes_version),
            self._templates,
            Profiles(self._caller, clients.iam, access.name, clients.region),
            efa_card=self._efa_card,
        )
        self._launcher = Launcher(self._caller, clients.ec2, self._resolver, self._instances)
        self._known: _Known | None = None
        self._build: CatalogBuild | None = None

    def catalog(self) -> Catalog:
        """Types, offers and prices as known now; before the first `refresh`, those of the package."""
        return self._current().catalog

    def refresh(self) -> Catalog:
        """Read zones, new types, prices and subnets again; a part that cannot be read stays as it was.

        Also deletes launch templates that nobody has used for an hour.
        """
        known = self._known or self._packaged()
        known = replace(known, zones=self._or_else("zones", self._zones, known.zones))
        known = replace(known, facts=self._or_else("instance types", lambda: self._facts(known), known.facts))
        known = replace(known, on_demand=self._or_else("on-demand prices", self._on_demand, known.on_demand))
        known = replace(known, spot=self._or_else("spot prices", self._spot, known.spot))
        known = replace(known, usable_zones=self._or_else("subnets", self._usable_zones, known.usable_zones))
        self._or_else("launch templates", self._templates.sweep, None)
        self._known, self._build = known, self._built(known)
        return self._build.catalog

    def spot_history(
        self, pools: Collection[CapacityPool], begin_s: float, end_s: float
    ) -> Mapping[CapacityPool, Sequence[PastPrice]]:
        """What spot machines of these pools cost in a past time of the last 90 days."""
        return spot_history(self._caller, self._clients.ec2, pools, begin_s, end_s)

    def launch(self, request: LaunchRequest) -> LaunchOutcome:
        """Buy `request.count` machines from one capacity pool, all or nothing; the same token never buys twice."""
        return self._launcher.launch(request)

    def instances(self) -> Sequence[Instance]:
        """Every instance with this cluster's tag, or asked to be adopted by it, that EC2 still lists."""
        return self._instances.all()

    def reservations(self) -> Sequence[Reservation]:
        """Every capacity reservation the account may launch into, read anew."""
        return reservations(self._caller, self._clients.ec2)

    def resolve(self, births: Sequence[LaunchConfiguration]) -> Mapping[str, Resolved]:
        """What names in templates stand for, as launches would find it now; never raises."""
        return {birth.pool_hash: self._resolver.resolved(birth) for birth in births}

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Give machines back; unknown and already terminated ids are fine."""
        self._instances.terminate(instance_ids)

    def tag(self, instance_id: str, tags: dict[str, str]) -> None:
        """Add or overwrite tags of one instance."""
        self._instances.tag(instance_id, tags)

    def _efa_card(self, instance_type: str) -> int:
        facts = (self._known.facts if self._known else package_types()).get(instance_type)
        return facts.efa_card if facts else 0

    def _current(self) -> CatalogBuild:
        if self._build is None:
            self._build = self._built(self._packaged())
        return self._build

    def _packaged(self) -> _Known:
        region = self._clients.region
        return _Known(dict(package_types()), package_zones(region), package_prices(region))

    def _built(self, known: _Known) -> CatalogBuild:
        zones = known.zones
        if known.usable_zones:
            zones = {name: [zone for zone in each if zone in known.usable_zones] for name, each in zones.items()}
        built = build_catalog(self._clients.region, known.facts, zones, known.on_demand, known.spot, self._settings)
        every = frozenset(zone for each in known.zones.values() for zone in each)
        return replace(built, catalog=replace(built.catalog, zones=every))

    def _zones(self) -> Zones:
        return offered_zones(self._caller, self._clients.ec2)

    def _facts(self, known: _Known) -> dict[str, TypeFacts]:
        """Known facts, and those of types on offer that nobody knew, or only from documentation."""
        unknown = {name for name in known.zones if known.facts.get(name) is DOCUMENTED.get(name)}
        return {**known.facts, **described_types(self._caller, self._clients.ec2, unknown)} if unknown else known.facts

    def _on_demand(self) -> OnDemandPrices:
        """The price list; where there is no Pricing API, the package's."""
        if self._clients.pricing is None:
            return package_prices(self._clients.region)
        return on_demand_prices(self._caller, self._clients.pricing, self._clients.region, self._clock.now())

    def _spot(self) -> SpotPrices:
        now_s = self._clock.now()
        return spot_prices(self._caller, self._clients.ec2, now_s, start=datetime.fromtimestamp(now_s, UTC))

    def _usable_zones(self) -> frozenset[str]:
        return self._network.zones((SubnetTerm(tags={labels.CLUSTER: self._cluster}),))

    def _or_else(self, what: str, read: Callable[[], T], before: T) -> T:
        try:
            return read()
        except CloudError as error:
            _log.warning("catalogue not refreshed", part=what, region=self._clients.region, error=str(error))
            return before
