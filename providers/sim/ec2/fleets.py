"""Fleets and placement groups as the API lists them: records beside the machines."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

from providers.sim.ec2.account import Ec2Error, Receipt
from providers.sim.ec2.vm import Vm


@dataclass(frozen=True, slots=True)
class _RecordedFleet:
    receipt: Receipt
    params: Mapping[str, Any]
    tags: Mapping[str, str]
    created_at_s: float


class Fleets:
    """What was recorded of an account's fleets and placement groups."""

    def __init__(self) -> None:
        self._fleets: dict[str, _RecordedFleet] = {}
        self._deleted: set[str] = set()
        self._groups: dict[str, dict[str, str]] = {}
        self._group_ids = count(1)

    def record(self, receipt: Receipt, params: Mapping[str, Any], tags: Mapping[str, str], at_s: float) -> None:
        """Remember a fleet; the second answer to the same token changes nothing."""
        self._fleets.setdefault(receipt.fleet_id, _RecordedFleet(receipt, params, tags, at_s))

    def described(self, fleet_ids: Sequence[str]) -> list[dict[str, Any]]:
        """Fleets as `FleetData`; only those asked for by id, since EC2 lists no instant fleet otherwise."""
        unknown = [fleet_id for fleet_id in fleet_ids if fleet_id not in self._fleets]
        if unknown:
            raise Ec2Error("InvalidFleetId.NotFound", f"The fleet ID '{unknown[0]}' does not exist")
        return [self._describe(fleet_id) for fleet_id in fleet_ids]

    def delete(self, fleet_ids: Sequence[str]) -> list[str]:
        """Mark fleets as deleted; returns those that exist."""
        found = [fleet_id for fleet_id in fleet_ids if fleet_id in self._fleets]
        self._deleted.update(found)
        return found

    def _describe(self, fleet_id: str) -> dict[str, Any]:
        fleet = self._fleets[fleet_id]
        launched = len(fleet.receipt.instance_ids)
        return {
            "FleetId": fleet_id,
            "FleetState": "deleted_terminating" if fleet_id in self._deleted else "active",
            "Type": "instant",
            "ClientToken": fleet.params.get("ClientToken", ""),
            "CreateTime": datetime.fromtimestamp(fleet.created_at_s, UTC),
            "FulfilledCapacity": float(launched),
            "TargetCapacitySpecification": fleet.params.get("TargetCapacitySpecification", {}),
            "Tags": [{"Key": key, "Value": value} for key, value in sorted(fleet.tags.items())],
        }

    # Placement groups

    def create_group(self, name: str, strategy: str) -> dict[str, str]:
        """A new placement group. Raises Ec2Error(InvalidPlacementGroup.Duplicate)."""
        if name in self._groups:
            raise Ec2Error("InvalidPlacementGroup.Duplicate", f"The placement group '{name}' already exists.")
        group_id = f"pg-{next(self._group_ids):017x}"
        self._groups[name] = {"GroupName": name, "Strategy": strategy, "State": "available", "GroupId": group_id}
        return self._groups[name]

    def groups(self, names: Sequence[str]) -> list[dict[str, str]]:
        """Placement groups in order of creation, or those of the given names."""
        for name in names:
            self._require(name)
        return [group for name, group in self._groups.items() if not names or name in names]

    def has_group(self, name: str) -> bool:
        """Whether there is such a placement group."""
        return name in self._groups

    def zone_of(self, name: str, vms: Iterable[Vm]) -> str:
        """The zone a cluster group is bound to by the machines in it; empty for none."""
        if self._groups[name]["Strategy"] != "cluster":
            return ""
        inside = (vm.pool.zone for vm in vms if vm.alive and vm.spec.details["placement_group"] == name)
        return next(inside, "")

    def delete_group(self, name: str) -> None:
        """Forget a placement group."""
        self._require(name)
        del self._groups[name]

    def _require(self, name: str) -> None:
        if name not in self._groups:
            raise Ec2Error("InvalidPlacementGroup.Unknown", f"The placement group '{name}' is unknown.")
