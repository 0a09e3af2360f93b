"""Whether the machines of a pool join, from the claims to the condition of the NodePool."""

from dataclasses import replace

import pytest

from agent.accounts import Accounts, Bookkeeper
from agent.failures import Failures
from agent.mirror import Mirror
from agent.reports import pool_reports
from fleet.reasons import Reason
from fleet.snapshot import NodeDisruption
from providers.clock import VirtualClock
from providers.kube.objects import Finding
from tests.support.fleets import NOW, FleetBuilder
from tests.support.world import World

HEALTHY = "NodeRegistrationHealthy"


@pytest.mark.parametrize(
    ("failed", "joined", "found"),
    [
        (0, 0, []),
        (0, 1, [Finding(HEALTHY, True, "Registered", "1 of the last 1 machine joined")]),
        (1, 2, [Finding(HEALTHY, True, "Registered", "2 of the last 3 machines joined")]),
        (2, 1, [Finding(HEALTHY, False, "RegistrationFailed", "1 of the last 3 machines joined")]),
    ],
)
def test_a_node_pool_tells_whether_its_machines_join(failed: int, joined: int, found: list[Finding]) -> None:
    world = World(FleetBuilder().pool("h100").build())
    why = NodeDisruption(Reason.REGISTRATION_TIMEOUT, "x", NOW)
    for number in range(failed + joined):
        world.machine(f"m{number}")
    for name in [f"m{number}" for number in range(failed)]:
        world.claims[name] = replace(world.claims[name], registered_at_s=0.0, disruption=why)
    keeper, told = Bookkeeper(Accounts(), lambda _text: None, VirtualClock(NOW).monotonic), Mirror("c")
    keeper.turned(world.fleet, world.snapshot())
    keeper.inform(told)
    seen = replace(world.snapshot(), registrations=told.snapshot(NOW, frozenset()).registrations)
    (report,) = pool_reports(world.fleet, seen, Failures())
    assert [it for it in report.findings if it.type == HEALTHY] == found
