"""CreateFleet and RunInstances, from their parameters to an `Order`.

Source: EC2 API Reference CreateFleet, RunInstances, FleetLaunchTemplateOverridesRequest; parameters are what moto
parses by the botocore model.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from fleet.snapshot import CapacityPool
from model.kinds import CapacityType
from providers.sim.ec2.account import Account, Ec2Error, Order
from providers.sim.ec2.allocation import STRATEGIES, LaunchOverride, LaunchTarget, MachineSpec
from providers.sim.ec2.fleets import Fleets
from providers.sim.ec2.reservations import BLOCK, INTERRUPTIBLE, refusal
from providers.sim.ec2.site import Site

Params = Mapping[str, Any]
_OPTIONS = {"on-demand": "OnDemandOptions", "spot": "SpotOptions", "reserved-capacity": "ReservedCapacityOptions"}
_SOLD_AS = {BLOCK: BLOCK, INTERRUPTIBLE: "reserved-capacity"}
"""Market type of a launch template -> the target capacity type a fleet of it has to name."""


class RequestReader:
    """Reads launch requests against a site and a market; what is wrong with one is an Ec2Error or an error of moto."""

    def __init__(self, site: Site, fleets: Fleets, account: Account) -> None:
        self._site = site
        self._fleets = fleets
        self._market = account.market
        self._now_s = account.now()
        self._machines = account.vms

    def fleet(self, params: Params) -> Order:
        """The order behind a CreateFleet of type instant."""
        if params.get("Type", "maintain") != "instant":
            raise Ec2Error("UnsupportedOperation", "This simulated EC2 launches fleets of type instant only.")
        overrides = [pair for config in params.get("LaunchTemplateConfigs") or () for pair in self._overrides(config)]
        if not overrides:
            raise Ec2Error("MissingParameter", "The request must contain LaunchTemplateConfigs with an override.")
        tags = _tags(params, "instance")
        return Order(
            targets=tuple(
                self._target(params, capacity_type, count, overrides, tags) for capacity_type, count in _targets(params)
            ),
            token=_token(params),
            fingerprint=_fingerprint(params),
        )

    def instances(self, params: Params) -> Order:
        """The order behind a RunInstances."""
        template = self._template(params.get("LaunchTemplate"))
        own = {"TagSpecifications", "LaunchTemplate"}
        merged = template | {key: value for key, value in params.items() if key not in own}
        spot = (params.get("InstanceMarketOptions") or {}).get("MarketType") == "spot"
        candidate = self._candidate("spot" if spot else "on-demand", merged, {}, _tags(params, "instance"))
        least, most = int(params.get("MinCount", 1)), int(params.get("MaxCount", 1))
        if not 0 < least <= most:
            raise Ec2Error("InvalidParameterValue", f"MinCount {least} and MaxCount {most}")
        target = LaunchTarget(most, (candidate,), minimum=least)
        return Order((target,), token=_token(params), fingerprint=_fingerprint(params), fleet=False)

    def _overrides(self, config: Params) -> list[tuple[Params, Params, Params]]:
        """(launch template reference, its data, override) for every override."""
        reference = config.get("LaunchTemplateSpecification")
        template = self._template(reference)
        overrides: Sequence[Params] = config.get("Overrides") or ({},)
        return [(reference or {}, template, override) for override in overrides]

    def _target(
        self,
        params: Params,
        capacity_type: CapacityType,
        count: int,
        overrides: Sequence[tuple[Params, Params, Params]],
        tags: Mapping[str, str],
    ) -> LaunchTarget:
        sold_as = _default_type(params)
        options = params.get(_OPTIONS.get(sold_as, "")) or params.get(_OPTIONS[capacity_type]) or {}
        least = int(options.get("MinTargetCapacity", 0))
        single_type, single_zone = bool(options.get("SingleInstanceType")), bool(options.get("SingleAvailabilityZone"))
        if least and not (single_type or single_zone):
            message = "MinTargetCapacity needs SingleInstanceType or SingleAvailabilityZone."
            raise Ec2Error("InvalidParameterCombination", message)
        if not 0 <= least <= count:
            raise Ec2Error("InvalidParameterValue", f"MinTargetCapacity {least} of a target capacity of {count}")
        strategy = str(options.get("AllocationStrategy", "lowest-price"))
        if strategy not in STRATEGIES:
            raise Ec2Error("UnsupportedOperation", f"This simulated EC2 does not know the strategy {strategy}.")
        return LaunchTarget(
            count=count,
            candidates=tuple(
                self._candidate(
                    capacity_type, template | override, {"reference": reference, "override": override}, tags, sold_as
                )
                for reference, template, override in cast(
                    "Sequence[tuple[Params, dict[str, Any], dict[str, Any]]]", overrides
                )
            ),
            minimum=least,
            strategy=strategy,
            single_type=single_type,
            single_zone=single_zone,
        )

    def _candidate(
        self,
        capacity_type: CapacityType,
        spec: Params,
        origin: Mapping[str, object],
        tags: Mapping[str, str],
        sold_as: str = "",
    ) -> LaunchOverride:
        if float(spec.get("WeightedCapacity", 1)) != 1:
            raise Ec2Error("UnsupportedOperation", "This simulated EC2 counts every machine as one.")
        subnet = self._subnet(spec)
        pool = CapacityPool(capacity_type, str(spec.get("InstanceType", "m1.small")), subnet.availability_zone)
        pool, misfit = self._reserved(spec, pool)
        machine = MachineSpec(
            addresses=self._site.addresses(subnet),
            user_data=_text(spec.get("UserData")),
            tags=_tags(spec, "instance") | dict(tags),
            details=_details(spec, subnet) | dict(origin),
            closed=(spec.get("CapacityReservationSpecification") or {}).get("CapacityReservationPreference") == "none",
            efa=sum(str(it.get("InterfaceType", "")).startswith("efa") for it in spec.get("NetworkInterfaces") or ()),
        )
        return LaunchOverride(
            pool,
            machine,
            float(spec.get("Priority", 0)),
            self._refusal(pool, spec) or misfit or _mis_sold(spec, sold_as),
        )

    def _subnet(self, spec: Params) -> Any:
        interfaces = spec.get("NetworkInterfaces") or ()
        primary: Params = next((nic for nic in interfaces if int(nic.get("DeviceIndex", 0)) == 0), {})
        subnet_id = spec.get("SubnetId") or primary.get("SubnetId")
        zone = spec.get("AvailabilityZone") or (spec.get("Placement") or {}).get("AvailabilityZone") or ""
        subnet = self._site.subnet(subnet_id) if subnet_id else self._site.default_subnet(zone)
        if zone and subnet.availability_zone != zone:
            message = f"The subnet {subnet.id} is in {subnet.availability_zone}, not in {zone}."
            raise Ec2Error("InvalidParameterCombination", message)
        return subnet

    def _reserved(self, spec: Params, pool: CapacityPool) -> tuple[CapacityPool, tuple[str, str] | None]:
        """The pool to draw from, where the request names a capacity reservation, and why that cannot be."""
        reservation = spec.get("CapacityReservationSpecification") or {}
        wanted = (reservation.get("CapacityReservationTarget") or {}).get("CapacityReservationId")
        if not wanted:
            return pool, None
        held = self._market.reservations.get(wanted)
        reserved = CapacityPool("reserved", pool.instance_type, pool.zone, wanted)
        return reserved, refusal(held, wanted, pool, _market(spec))

    def _refusal(self, pool: CapacityPool, spec: Params) -> tuple[str, str] | None:
        """Why this can never be launched, if so."""
        held = pool.reservation in self._market.reservations  # what is reserved exists, recorded or not
        if not held and not self._site.knows(pool.instance_type):
            return "InvalidParameterValue", f"Invalid value '{pool.instance_type}' for InstanceType."
        if not held and not self._site.offers(pool.instance_type, pool.zone):
            message = f"Your requested instance type ({pool.instance_type}) is not supported in your requested "
            return "Unsupported", message + f"Availability Zone ({pool.zone})."
        image_id = spec.get("ImageId")
        if image_id not in self._site.backend.amis:
            return "InvalidAMIID.NotFound", f"The image id '[{image_id}]' does not exist"
        price, most = self._market.price_usd_h(pool, self._now_s), spec.get("MaxPrice")
        if pool.capacity_type == "spot" and most and price is not None and float(most) < price:
            message = "Your Spot request price is lower than the minimum required Spot request fulfillment price."
            return "SpotMaxPriceTooLow", message
        return self._outside_group(pool, spec)

    def _outside_group(self, pool: CapacityPool, spec: Params) -> tuple[str, str] | None:
        """Why the machine cannot stand in its placement group, if so."""
        group = (spec.get("Placement") or {}).get("GroupName")
        if group and not self._fleets.has_group(group):
            return "InvalidPlacementGroup.Unknown", f"The Placement Group '{group}' is unknown."
        if group and (zone := self._fleets.zone_of(group, self._machines())) not in ("", pool.zone):
            message = f"The cluster placement group '{group}' has machines in {zone} and cannot span {pool.zone}."
            return "InvalidParameterCombination", message
        return None

    def _template(self, reference: Params | None) -> dict[str, Any]:
        """The data of a launch template; raises moto's NotFound errors."""
        if not reference:
            return {}
        backend = self._site.backend
        template = (
            backend.get_launch_template(reference["LaunchTemplateId"])
            if reference.get("LaunchTemplateId")
            else backend.get_launch_template_by_name(reference["LaunchTemplateName"])
        )
        return dict(template.get_version(reference.get("Version") or "$Default").data)


def _default_type(params: Params) -> str:
    wanted = params.get("TargetCapacitySpecification") or {}
    return str(wanted.get("DefaultTargetCapacityType", "on-demand"))


def _mis_sold(spec: Params, sold_as: str) -> tuple[str, str] | None:
    """Why a fleet of this target capacity type cannot launch a machine of that market, if so."""
    needed = _SOLD_AS.get(_market(spec), "")
    if not sold_as or ((needed or sold_as) == sold_as and (needed or sold_as not in _SOLD_AS.values())):
        return None
    return "InvalidParameterCombination", f"A fleet of {sold_as} capacity cannot launch {_market(spec) or 'on-demand'}."


def _targets(params: Params) -> list[tuple[CapacityType, int]]:
    """Machines per capacity type."""
    wanted = params.get("TargetCapacitySpecification") or {}
    total = int(wanted.get("TotalTargetCapacity", 0))
    spot, on_demand = int(wanted.get("SpotTargetCapacity", 0)), int(wanted.get("OnDemandTargetCapacity", 0))
    default = _default_type(params)
    rest = total - spot - on_demand
    if total <= 0 or rest < 0 or default not in {*_OPTIONS, BLOCK}:
        message = (
            f"TotalTargetCapacity {total}, SpotTargetCapacity {spot}, OnDemandTargetCapacity {on_demand}, {default}"
        )
        raise Ec2Error("InvalidTargetCapacitySpecification", message)
    spot, on_demand = (spot + rest, on_demand) if default == "spot" else (spot, on_demand + rest)
    counts: list[tuple[CapacityType, int]] = [("on-demand", on_demand), ("spot", spot)]
    return [(capacity_type, count) for capacity_type, count in counts if count]


def _token(params: Params) -> str:
    token = str(params.get("ClientToken") or "")
    if len(token) > 64 or not token.isascii():
        raise Ec2Error("InvalidParameterValue", f"Value ({token}) for parameter clientToken is invalid.")
    return token


def _fingerprint(params: Params) -> str:
    return json.dumps(
        {key: value for key, value in params.items() if key != "ClientToken"}, sort_keys=True, default=str
    )


def _tags(spec: Params, resource: str) -> dict[str, str]:
    return {
        tag["Key"]: tag.get("Value", "")
        for specification in spec.get("TagSpecifications") or ()
        if specification.get("ResourceType") == resource
        for tag in specification.get("Tags") or ()
    }


def fleet_tags(params: Params) -> dict[str, str]:
    """The tags a CreateFleet puts on the fleet itself."""
    return _tags(params, "fleet")


def _text(user_data: object) -> str:
    """User data decoded; what is not base64 text (gzip, a plain mistake) is shown as it came."""
    raw = str(user_data or "")
    try:
        return base64.b64decode(raw, validate=True).decode()
    except ValueError:
        return raw


def _details(spec: Params, subnet: Any) -> dict[str, object]:
    interfaces = spec.get("NetworkInterfaces") or ()
    groups = [
        *(spec.get("SecurityGroupIds") or ()),
        *(group for nic in interfaces for group in nic.get("Groups") or ()),
    ]
    return {
        "image_id": spec.get("ImageId", ""),
        "subnet_id": subnet.id,
        "vpc_id": subnet.vpc_id,
        "security_groups": tuple(dict.fromkeys(groups)),
        "instance_profile": dict(spec.get("IamInstanceProfile") or {}),
        "placement_group": (spec.get("Placement") or {}).get("GroupName", ""),
        "metadata": dict(spec.get("MetadataOptions") or {}),
        "interfaces": tuple(interfaces),
        "key_name": spec.get("KeyName", ""),
        "market": _market(spec),
    }


def _market(spec: Params) -> str:
    """How what is in a reservation is sold, where that is not plain on-demand."""
    named = str((spec.get("InstanceMarketOptions") or {}).get("MarketType", ""))
    return named if named in (BLOCK, INTERRUPTIBLE) else ""
