"""The one `CreateFleet` request a launch is, and the meaning of its answer. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from fleet.snapshot import LaunchError, LaunchFailure, LaunchOutcome, LaunchRequest, Reach
from providers.aws.capacity_blocks import market_of
from providers.aws.errors import DENIED_CODES, THROTTLED_CODES, UNREACHABLE_CODES, code_of
from providers.ports import CloudDenied, CloudError, CloudThrottled, CloudUnreachable

TOKEN_TAG = "muster.dev/launch-token"  # noqa: S105  (a tag's name, no secret)
"""Tag that leads from a token back to what it bought, when EC2 no longer says."""
_LONGEST_TOKEN = 64

MISMATCH = "IdempotentParameterMismatch"
NO_ADDRESSES = "InsufficientFreeAddressesInSubnet"
UNKNOWN_IMAGES = frozenset({"InvalidAMIID.NotFound", "InvalidAMIID.Unavailable", "InvalidAMIID.Malformed"})

_ERRORS: Mapping[str, LaunchError] = {
    **dict.fromkeys(
        (
            "InsufficientCapacity",
            "InsufficientCapacityOnHost",
            "InsufficientFreeAddressesInSubnet",
            "InsufficientHostCapacity",
            "InsufficientInstanceCapacity",
            "InsufficientReservedInstanceCapacity",
            "InsufficientVolumeCapacity",
            "ReservationCapacityExceeded",
            "SpotMaxPriceTooLow",
            "UnfulfillableCapacity",
        ),
        LaunchError.SHORTAGE,
    ),
    **dict.fromkeys(
        (
            "FleetLimitExceeded",
            "InstanceLimitExceeded",
            "MaxFleetCountExceeded",
            "MaxIOPSLimitExceeded",
            "MaxSpotFleetRequestCountExceeded",
            "MaxSpotInstanceCountExceeded",
            "ResourceLimitExceeded",
            "VcpuLimitExceeded",
            "VolumeLimitExceeded",
        ),
        LaunchError.QUOTA,
    ),
    **dict.fromkeys(DENIED_CODES, LaunchError.MISCONFIGURED),
    **dict.fromkeys(THROTTLED_CODES, LaunchError.THROTTLED),
    **dict.fromkeys(UNREACHABLE_CODES, LaunchError.UNKNOWN),
    MISMATCH: LaunchError.UNKNOWN,
    "Unsupported": LaunchError.MISCONFIGURED,
    "UnsupportedOperation": LaunchError.MISCONFIGURED,
}

_REACHES: Mapping[str, Reach] = {
    # without the role for spot instances no spot machine can be had at all
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": Reach.CAPACITY_TYPE,
    NO_ADDRESSES: Reach.SUBNET,
    "InsufficientReservedInstanceCapacity": Reach.RESERVATION,
    "ReservationCapacityExceeded": Reach.RESERVATION,
    "Unsupported": Reach.POOL,
}
_BY_ERROR: Mapping[LaunchError, Reach] = {LaunchError.SHORTAGE: Reach.POOL, LaunchError.QUOTA: Reach.POOL}


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """A launch with every name resolved to an id; the same token must always be asked with the same plan."""

    request: LaunchRequest
    template: str
    subnet: str


def fleet_arguments(plan: FleetPlan, attempt: int = 1) -> dict[str, Any]:
    """Arguments of `create_fleet`: instant, one type, one zone, all `count` machines or none."""
    request = plan.request
    target_type, options = _options(request)
    override = {
        "InstanceType": request.pool.instance_type,
        "SubnetId": plan.subnet,
        "AvailabilityZone": request.pool.zone,
    }
    tags = [{"Key": key, "Value": value} for key, value in sorted({**request.tags, TOKEN_TAG: request.token}.items())]
    return {
        "Type": "instant",
        "ClientToken": client_token(request.token, attempt),
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": plan.template, "Version": "$Default"},
                "Overrides": [override],
            }
        ],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": request.count,
            "DefaultTargetCapacityType": target_type,
        },
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("fleet", "instance", "volume")],
        **options,
    }


def _options(request: LaunchRequest) -> tuple[str, dict[str, Any]]:
    """The target capacity type of a launch, and what is asked of it.

    A capacity block and an interruptible reservation know no minimum: fewer machines than asked may come, and are given
    back like any other shortfall. Their launch template names the reservation.
    """
    market = market_of(request)
    if market == "capacity-block":
        return "capacity-block", {}
    if market:
        return "reserved-capacity", {"ReservedCapacityOptions": {"ReservationTypes": [market]}}
    whole = {
        "SingleInstanceType": True,
        "SingleAvailabilityZone": True,
        "MinTargetCapacity": request.count,
    }
    if request.pool.capacity_type != "spot":
        return "on-demand", {"OnDemandOptions": {**whole, "AllocationStrategy": "lowest-price"}}
    strategy = {"AllocationStrategy": "price-capacity-optimized", "InstanceInterruptionBehavior": "terminate"}
    return "spot", {"SpotOptions": {**whole, **strategy}}


def client_token(token: str, attempt: int = 1) -> str:
    """The `ClientToken` of an attempt.

    EC2 answers a token with what it answered before, so a repetition that must be judged anew (the template was gone)
    needs another one; it is derived, so that a repetition of it is safe, too.
    """
    if attempt == 1 and len(token) <= _LONGEST_TOKEN:
        return token
    return sha256(f"{token}/{attempt}".encode()).hexdigest()


def outcome(request: LaunchRequest, answer: Mapping[str, Any]) -> LaunchOutcome:
    """Instances first: whatever is in the answer was bought, however many errors stand beside it."""
    ids = instance_ids(answer)
    failures = {failure_of(entry.get("ErrorCode", ""), entry.get("ErrorMessage", "")) for entry in errors_in(answer)}
    if len(ids) < request.count and not failures:
        failures.add(
            LaunchFailure(LaunchError.SHORTAGE, "Shortfall", f"{len(ids)} of {request.count} came, without a reason")
        )
    return LaunchOutcome(ids, tuple(sorted(failures, key=lambda each: (each.code, each.message))))


def instance_ids(answer: Mapping[str, Any]) -> tuple[str, ...]:
    """Every machine in a `CreateFleet` answer, once, sorted."""
    entries = answer.get("Instances") or ()
    return tuple(sorted({instance_id for entry in entries for instance_id in entry.get("InstanceIds") or ()}))


def errors_in(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The `Errors` of a `CreateFleet` answer; absent when nothing went wrong."""
    return list(answer.get("Errors") or ())


def failure_of(code: str, message: str) -> LaunchFailure:
    """What an EC2 error code means for a launch.

    A code newer than this table is judged by its form: EC2 names shortages `Insufficient...` and limits
    `...LimitExceeded`. Anything else was a definite refusal.
    """
    known = _ERRORS.get(code)
    if known is None:
        known = LaunchError.MISCONFIGURED
        if code.startswith("Insufficient"):
            known = LaunchError.SHORTAGE
        elif code.endswith(("LimitExceeded", "CountExceeded")):
            known = LaunchError.QUOTA
    return LaunchFailure(known, code, message, _REACHES.get(code) or _BY_ERROR.get(known, Reach.NOTHING))


def failure_of_error(error: CloudError) -> LaunchFailure:
    """What an exception on the way means. No answer means not knowing: a machine may have been bought."""
    code = code_of(error)
    if code in _ERRORS:
        return failure_of(code, str(error))
    if isinstance(error, CloudThrottled):
        return LaunchFailure(LaunchError.THROTTLED, code, str(error))
    if isinstance(error, CloudUnreachable):
        return LaunchFailure(LaunchError.UNKNOWN, code, str(error))
    if isinstance(error, CloudDenied):
        return LaunchFailure(LaunchError.MISCONFIGURED, code, str(error))
    return LaunchFailure(failure_of(code, "").error, code, str(error))
