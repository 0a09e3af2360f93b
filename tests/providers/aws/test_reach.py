"""What each EC2 error code says about capacity, and how far."""

import pytest

from fleet.snapshot import Reach
from providers.aws.fleet_request import failure_of


@pytest.mark.parametrize(
    ("code", "reach"),
    [
        ("InsufficientInstanceCapacity", Reach.POOL),
        ("UnfulfillableCapacity", Reach.POOL),
        ("Unsupported", Reach.POOL),
        ("VcpuLimitExceeded", Reach.POOL),
        ("MaxSpotInstanceCountExceeded", Reach.POOL),
        ("MaxFleetCountExceeded", Reach.POOL),
        ("InsufficientSomethingNew", Reach.POOL),
        ("InsufficientFreeAddressesInSubnet", Reach.SUBNET),
        ("ReservationCapacityExceeded", Reach.RESERVATION),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", Reach.CAPACITY_TYPE),
        ("RequestLimitExceeded", Reach.NOTHING),
        ("UnauthorizedOperation", Reach.NOTHING),
        ("InvalidAMIID.NotFound", Reach.NOTHING),
    ],
)
def test_reach(code: str, reach: Reach) -> None:
    assert failure_of(code, "").reach is reach
