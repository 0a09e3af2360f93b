"""Buying machines: resolve, ask once, and never lose an id, whatever happens on the way."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import structlog

from fleet.snapshot import LaunchError, LaunchFailure, LaunchOutcome, LaunchRequest
from providers.aws.buckets import RateLimitGroup
from providers.aws.errors import THROTTLED_CODES, code_of
from providers.aws.fleet_request import (
    MISMATCH,
    NO_ADDRESSES,
    UNKNOWN_IMAGES,
    FleetPlan,
    errors_in,
    failure_of_error,
    fleet_arguments,
    instance_ids,
    outcome,
)
from providers.aws.instances import Instances
from providers.aws.launch_template import GONE_CODES
from providers.aws.resolve import Resolver
from providers.aws.retry import Caller
from providers.ports import CloudError, CloudThrottled, CloudUnreachable

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

_ASKS = 2
_REMEMBERED = 1000
_STALE_CODES = GONE_CODES | UNKNOWN_IMAGES
"""Refusals that resolving names again may cure."""

_log = structlog.get_logger(__name__)


class Launcher:
    """Turns a `LaunchRequest` into one `CreateFleet` and its answer into a `LaunchOutcome`."""

    def __init__(self, caller: Caller, client: "EC2Client", resolver: Resolver, instances: Instances) -> None:
        self._caller = caller
        self._client = client
        self._resolver = resolver
        self._instances = instances
        self._attempts: OrderedDict[str, int] = OrderedDict()
        """Token -> the attempt to begin with; 1 where there is none."""

    def launch(self, request: LaunchRequest) -> LaunchOutcome:
        """Buy; every `CloudError` becomes a failure in the outcome."""
        if request.pool.capacity_type == "reserved" and not request.pool.reservation:
            message = "reserved capacity is launched into a capacity reservation, and none is named"
            return LaunchOutcome(failures=(LaunchFailure(LaunchError.MISCONFIGURED, "ReservedCapacity", message),))
        try:
            return self._buy(request)
        except CloudError as error:
            if code_of(error) == MISMATCH:
                return self._adopt(request, error)
            _log.warning("launch failed", token=request.token, pool=str(request.pool), error=str(error))
            return LaunchOutcome(failures=(failure_of_error(error),))

    def _buy(self, request: LaunchRequest) -> LaunchOutcome:
        """Ask; once more if the refusal says nothing about capacity (no template, no image, too many calls).

        A subnet without addresses is no shortage as long as another one of the zone has room: that is asked next.

        A token that made a fleet gets the same answer for ever, so a new question needs a new one: that of the next
        attempt. Attempts are counted from 1 in every process, so that one whose answer was lost is found again. A
        token that was refused before there was a fleet is not spent, and must not be passed over.
        """
        asks = _ASKS
        while asks:
            attempt = self._attempts.get(request.token, 1)
            plan = self._resolver.plan(request)
            answer = self._ask(plan, attempt)
            codes = {entry.get("ErrorCode", "") for entry in errors_in(answer)}
            elsewhere = NO_ADDRESSES in codes and self._resolver.elsewhere(plan)
            asks -= not elsewhere
            if instance_ids(answer) or not (elsewhere or codes & (_STALE_CODES | THROTTLED_CODES)):
                break
            if "FleetId" in answer:
                self._next_attempt(request.token, attempt)
            if codes & _STALE_CODES:
                self._resolver.forget(plan)
        return outcome(request, answer)

    def _next_attempt(self, token: str, attempt: int) -> None:
        self._attempts[token] = attempt + 1
        while len(self._attempts) > _REMEMBERED:
            self._attempts.popitem(last=False)

    def _ask(self, plan: FleetPlan, attempt: int) -> Mapping[str, Any]:
        """The answer of `CreateFleet`; a refusal because of the template is an answer like any other."""
        arguments = fleet_arguments(plan, attempt)
        unused = plan.request.count
        self._caller.pace(RateLimitGroup.LAUNCHED_INSTANCES, unused)
        try:
            answer: Mapping[str, Any] = self._caller.once(
                RateLimitGroup.MUTATE, lambda: self._client.create_fleet(**arguments)
            )
            unused -= len(instance_ids(answer))
        except CloudUnreachable:
            unused = 0  # perhaps they are running
            raise
        except CloudThrottled:
            unused = 0  # the bucket has just been emptied
            self._caller.refused(RateLimitGroup.LAUNCHED_INSTANCES)
            raise
        except CloudError as error:
            if code_of(error) not in _STALE_CODES:
                raise
            answer = {"Errors": [{"ErrorCode": code_of(error), "ErrorMessage": str(error)}]}
        finally:
            self._caller.unused(RateLimitGroup.LAUNCHED_INSTANCES, max(0, unused))
        return answer

    def _adopt(self, request: LaunchRequest, error: CloudError) -> LaunchOutcome:
        """The token was used before with other parameters, by a process that is gone: find what it bought by its tag.

        Fewer than asked, or none, may mean that EC2 does not list them yet, so the failure stays `UNKNOWN`.
        """
        try:
            found = tuple(instance.id for instance in self._instances.bought_with(request.token))
        except CloudError as unreadable:
            return LaunchOutcome(failures=(failure_of_error(error), failure_of_error(unreadable)))
        _log.info("instances adopted by token", token=request.token, found=len(found), wanted=request.count)
        return LaunchOutcome(found, () if len(found) >= request.count else (failure_of_error(error),))
