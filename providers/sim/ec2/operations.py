"""The EC2 operations that moto cannot do honestly, on top of moto: refused launches, machines that live in time.

Machines are kept in an `Account`, not in moto, whose instances can neither be refused nor wait (and cost 6 to 10 ms
each); launch templates, networks, images, IAM, SQS and SSM are moto's.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from moto.core.responses import ActionResult, EmptyResult
from moto.ec2.exceptions import EC2ClientError
from moto.ec2.responses import EC2Response
from moto.ssm.responses import SimpleSystemManagerResponse

from fleet.snapshot import CapacityPool
from providers.sim.ec2 import describe
from providers.sim.ec2.account import Account, ConnectionLost, Ec2Error
from providers.sim.ec2.allocation import LaunchOverride
from providers.sim.ec2.fleets import Fleets
from providers.sim.ec2.launch_requests import RequestReader, fleet_tags
from providers.sim.ec2.reservations import page
from providers.sim.ec2.site import Site, public_parameter

_SERVER_FAULTS = {"RequestLimitExceeded": 503, "Unavailable": 503, "InternalError": 500, "DryRunOperation": 412}
_PAGED_BY = {"InstanceIds", "Filters", "MaxResults", "NextToken"}
_PRODUCT = "Linux/UNIX"
_PAGE = 1000


class Ec2Operations(EC2Response):  # type: ignore[misc]
    """One EC2 request against an account; moto calls the method named like the action."""

    params: Mapping[str, Any]

    def __init__(self, account: Account, site: Site, fleets: Fleets) -> None:
        super().__init__()
        self._account = account
        self._site = site
        self._fleets = fleets

    def call_action(self) -> Any:
        """Let the call in if the limits allow, and turn refusals into EC2's error answers."""
        try:
            self._account.admit(self._get_action(), paged=bool(_PAGED_BY & set(self.params)), machines=self._machines())
            return super().call_action()
        except Ec2Error as error:
            _, headers, body = self.serialized(ActionResult(EC2ClientError(error.code, error.message)))
            headers, body = self._enrich_response(headers, body)
            return _SERVER_FAULTS.get(error.code, 400), headers, body

    def _machines(self) -> int:
        """Machines a call asks to launch or end, for the limits that count those."""
        if self._get_action() == "RunInstances":
            return int(self._get_param("MaxCount", 1))
        if self._get_action() == "CreateFleet":
            wanted = self._get_param("TargetCapacitySpecification") or {}
            return int(wanted.get("TotalTargetCapacity", 0))
        return len(self._get_param("InstanceIds", [])) if self._get_action() == "TerminateInstances" else 0

    # Launching

    def create_fleet(self) -> ActionResult:
        """CreateFleet, type instant."""
        order = RequestReader(self._site, self._fleets, self._account).fleet(self.params)
        self.error_on_dryrun()
        receipt = self._account.launch(order)
        self._fleets.record(receipt, self.params, fleet_tags(self.params), self._account.now())
        self._lose_answer()
        return ActionResult(
            {
                "FleetId": receipt.fleet_id,
                "Instances": [_launched(candidate, ids) for candidate, ids in receipt.launched],
                "Errors": [
                    _origin(refusal.candidate) | {"ErrorCode": refusal.code, "ErrorMessage": refusal.message}
                    for refusal in receipt.refusals
                ],
            }
        )

    def run_instances(self) -> ActionResult:
        """RunInstances: between MinCount and MaxCount machines, or an error."""
        order = RequestReader(self._site, self._fleets, self._account).instances(self.params)
        self.error_on_dryrun()
        receipt = self._account.launch(order)
        if not receipt.launched:
            raise Ec2Error(receipt.refusals[0].code, receipt.refusals[0].message)
        self._lose_answer()
        return ActionResult(describe.reservations(self._account.launched(receipt), self._account.account_id)[0])

    def _lose_answer(self) -> None:
        if self._account.market.faults.spend("lost_answers"):
            raise ConnectionLost(self._get_action())

    def terminate_instances(self) -> ActionResult:
        """TerminateInstances: all or, if one id is unknown, none."""
        ids = self._get_param("InstanceIds", [])
        if not ids:
            raise Ec2Error("MissingParameter", "The request must contain the parameter InstanceId")
        self.error_on_dryrun()
        changes = [
            {"InstanceId": vm.id, "CurrentState": describe.state(vm.state), "PreviousState": describe.state(before)}
            for vm, before in self._account.terminate(ids)
        ]
        return ActionResult({"TerminatingInstances": changes})

    def _unsupported(self) -> ActionResult:
        raise Ec2Error(
            "UnsupportedOperation", f"This simulated EC2 has no {self._get_action()}: its market would not see it."
        )

    request_spot_instances = request_spot_fleet = start_instances = stop_instances = reboot_instances = _unsupported
    modify_instance_attribute = modify_fleet = _unsupported

    # Reading

    def describe_instances(self) -> ActionResult:
        """DescribeInstances with filters and pages."""
        self.error_on_dryrun()
        vms, token = self._page(self._selected())
        return ActionResult({"Reservations": describe.reservations(vms, self._account.account_id), "NextToken": token})

    def describe_instance_status(self) -> ActionResult:
        """DescribeInstanceStatus: running machines, or all with IncludeAllInstances."""
        everything = self._get_bool_param("IncludeAllInstances", if_none=False)
        vms, token = self._page([vm for vm in self._selected() if everything or vm.state == "running"])
        return ActionResult({"InstanceStatuses": [describe.status(vm) for vm in vms], "NextToken": token})

    def _selected(self) -> list[Any]:
        ids = self._get_param("InstanceIds", [])
        if ids and self._get_param("MaxResults") is not None:
            message = "The parameter instancesSet cannot be used with the parameter maxResults"
            raise Ec2Error("InvalidParameterCombination", message)
        vms = self._account.vms()
        if ids:
            wanted = {self._account.get(instance_id).id for instance_id in ids}
            vms = [vm for vm in vms if vm.id in wanted]
        return describe.Filters(self._get_param("Filters", [])).match(vms)

    def _page(self, vms: Sequence[Any]) -> tuple[Sequence[Any], str | None]:
        return describe.page(vms, self.params)

    def describe_spot_price_history(self) -> ActionResult:
        """DescribeSpotPriceHistory: prices since StartTime, newest first; without it only the current ones."""
        filters = {one["Name"]: describe.matcher(one.get("Values") or ()) for one in self._get_param("Filters", [])}
        products = self._get_param("ProductDescriptions", [])
        if products and not any(product.startswith(_PRODUCT) for product in products):
            return ActionResult({"SpotPriceHistory": []})
        zone = self._get_param("AvailabilityZone")
        pools = [
            pool
            for pool in self._spot_pools(self._get_param("InstanceTypes", []))
            if zone in (None, pool.zone)
            and _passes(filters, {"availability-zone": pool.zone, "instance-type": pool.instance_type})
        ]
        changes = self._changes()
        rows = [(pool, at_s) for pool in pools for at_s in changes]
        start = int(self._get_param("NextToken") or 0)
        size = min(_PAGE, int(self._get_param("MaxResults") or _PAGE))
        more = str(start + size) if start + size < len(rows) else ""
        page = [self._price(pool, at_s) for pool, at_s in rows[start : start + size]]
        return ActionResult({"SpotPriceHistory": page, "NextToken": more})

    def _spot_pools(self, instance_types: Sequence[str]) -> list[CapacityPool]:
        priced = self._account.market.on_demand_usd_h
        return [CapacityPool("spot", *pair) for pair in self._site.pools(list(instance_types)) if pair[0] in priced]

    def _changes(self) -> list[float]:
        """When prices changed in the time asked about, newest first; the first is the price in force at its end."""
        process, now_s = self._account.market.spot, self._account.now()
        start, end = self._get_param("StartTime"), self._get_param("EndTime")
        until_s = min(now_s, _epoch(end)) if end else now_s
        return process.changes_s(_epoch(start) if start else until_s, until_s)[::-1]

    def _price(self, pool: CapacityPool, at_s: float) -> dict[str, Any]:
        return {
            "InstanceType": pool.instance_type,
            "ProductDescription": _PRODUCT,
            "SpotPrice": f"{self._account.market.price_usd_h(pool, at_s):.6f}",
            "AvailabilityZone": pool.zone,
            "Timestamp": datetime.fromtimestamp(at_s, UTC),
        }

    # Tags

    def create_tags(self) -> ActionResult:
        """CreateTags: machines here, everything else in moto."""
        ours, others = _split(self._get_param("Resources", []))
        tags = {tag["Key"]: tag.get("Value", "") for tag in self._get_param("Tags", [])}
        for instance_id in ours:
            self._account.get(instance_id)
        self.error_on_dryrun()
        for instance_id in ours:
            self._account.tag(instance_id, tags)
        return EmptyResult() if ours and not others else self._with_resources(others, super().create_tags)

    def delete_tags(self) -> ActionResult:
        """DeleteTags: machines here, everything else in moto."""
        ours, others = _split(self._get_param("Resources", []))
        tags = {tag["Key"]: tag.get("Value") for tag in self._get_param("Tags", [])}
        for instance_id in ours:
            self._account.untag(instance_id, tags)
        return EmptyResult() if ours and not others else self._with_resources(others, super().delete_tags)

    def _with_resources(self, resources: Sequence[str], operation: Any) -> ActionResult:
        self.params = dict(self.params) | {"Resources": list(resources)}
        return operation()

    # Fleets, reservations, placement groups

    def describe_fleets(self) -> ActionResult:
        """DescribeFleets."""
        return ActionResult({"Fleets": self._fleets.described(self._get_param("FleetIds", []))})

    def describe_fleet_instances(self) -> ActionResult:
        """DescribeFleetInstances: those that still run."""
        fleet_id = self._get_param("FleetId")
        active = [vm for vm in self._account.vms() if vm.fleet_id == fleet_id and vm.alive]
        rows = [
            {"InstanceId": vm.id, "InstanceType": vm.pool.instance_type, "InstanceHealth": "healthy"} for vm in active
        ]
        return ActionResult({"FleetId": fleet_id, "ActiveInstances": rows})

    def delete_fleets(self) -> ActionResult:
        """DeleteFleets: an instant fleet can only go together with its machines."""
        if not self._get_bool_param("TerminateInstances", if_none=False):
            raise Ec2Error("InvalidParameterValue", "An instant fleet can only be deleted together with its instances.")
        deleted = self._fleets.delete(self._get_param("FleetIds", []))
        self._account.terminate([vm.id for vm in self._account.vms() if vm.fleet_id in deleted and vm.alive])
        rows = [
            {"FleetId": name, "CurrentFleetState": "deleted_terminating", "PreviousFleetState": "active"}
            for name in deleted
        ]
        return ActionResult({"SuccessfulFleetDeletions": rows, "UnsuccessfulFleetDeletions": []})

    def describe_capacity_reservations(self) -> ActionResult:
        """DescribeCapacityReservations, by ids and a few filters, in pages."""
        market, account_id = self._account.market, self._account.account_id
        self._account.now()
        wanted = set(self._get_param("CapacityReservationIds", []))
        filters = {one["Name"]: describe.matcher(one.get("Values") or ()) for one in self._get_param("Filters", [])}
        rows = [
            held.as_row(market.in_use(held.pool), account_id)
            for name, held in sorted(market.reservations.items())
            if (not wanted or name in wanted)
            and _passes(filters, {"state": held.state, "instance-type": held.instance_type})
        ]
        size = self._get_param("MaxResults")
        return ActionResult(page(rows, int(size) if size else None, self._get_param("NextToken")))

    def create_placement_group(self) -> ActionResult:
        """CreatePlacementGroup."""
        name = self._get_param("GroupName")
        return ActionResult({"PlacementGroup": self._fleets.create_group(name, self._get_param("Strategy", "cluster"))})

    def describe_placement_groups(self) -> ActionResult:
        """DescribePlacementGroups, by name if names are given."""
        return ActionResult({"PlacementGroups": self._fleets.groups(self._get_param("GroupNames", []))})

    def delete_placement_group(self) -> ActionResult:
        """DeletePlacementGroup; refused while machines run in it."""
        name = self._get_param("GroupName")
        if any(vm.alive and vm.spec.details["placement_group"] == name for vm in self._account.vms()):
            raise Ec2Error("InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use.")
        self._fleets.delete_group(name)
        return EmptyResult()


class SsmOperations(SimpleSystemManagerResponse):  # type: ignore[misc]
    """SSM with the public image parameters that moto lacks."""

    def get_parameter(self) -> Any:
        """GetParameter."""
        name = self._get_param("Name")
        image_id = public_parameter(name)
        if image_id is None:
            return super().get_parameter()
        return ActionResult(
            {
                "Parameter": {
                    "Name": name,
                    "Type": "String",
                    "Value": image_id,
                    "Version": 1,
                    "DataType": "aws:ec2:image",
                }
            }
        )


def _launched(candidate: LaunchOverride, ids: Sequence[str]) -> dict[str, Any]:
    return _origin(candidate) | {"InstanceIds": list(ids), "InstanceType": candidate.pool.instance_type}


def _origin(candidate: LaunchOverride) -> dict[str, Any]:
    details: Mapping[str, Any] = candidate.spec.details
    overrides = dict(details["override"]) | {
        "InstanceType": candidate.pool.instance_type,
        "AvailabilityZone": candidate.pool.zone,
        "SubnetId": details["subnet_id"],
    }
    return {
        "LaunchTemplateAndOverrides": {"LaunchTemplateSpecification": details["reference"], "Overrides": overrides},
        "Lifecycle": "spot" if candidate.pool.capacity_type == "spot" else "on-demand",
    }


def _split(resources: Sequence[str]) -> tuple[list[str], list[str]]:
    ours = [resource for resource in resources if resource.startswith("i-")]
    return ours, [resource for resource in resources if not resource.startswith("i-")]


def _passes(filters: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    return all(name not in values or test(values[name]) for name, test in filters.items())


def _epoch(instant: Any) -> float:
    aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return float(aware.timestamp())
