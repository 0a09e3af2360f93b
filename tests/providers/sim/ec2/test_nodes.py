"""Machines of the fake clouds become nodes and cease to be nodes, with the simulated cluster on the same clock."""

from typing import Any

import pytest

from providers.clock import VirtualClock
from providers.sim.controllers import SimulationOptions, assemble
from providers.sim.controllers.registration import RegistrationOptions
from providers.sim.ec2 import MemoryCloud
from providers.sim.kernel import VirtualDriver
from providers.sim.machines import NodeShape
from providers.sim.store import Store
from tests.providers.sim.ec2.rigs import launch_request, pool

SHAPE = NodeShape(
    capacity={"cpu": "4", "memory": "16Gi", "pods": "58"}, allocatable={"cpu": "3", "memory": "14Gi", "pods": "58"}
)


class CloudWorld:
    """A cloud, a cluster, and the time of both."""

    def __init__(self, cloud: MemoryCloud, clock: VirtualClock) -> None:
        self.cloud = cloud
        self.store = Store(clock)
        options = SimulationOptions(registration=RegistrationOptions(boot_delay_s=cloud.boot_delay_s))
        simulated = assemble(
            self.store, clock, machines=cloud, shape_of=lambda _type: SHAPE, options=options, more=[cloud]
        )
        self.driver = VirtualDriver(simulated.kernel, clock)

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {node["spec"]["providerID"]: node for node in self.store.list(self.store.resource("Node"))}


@pytest.fixture
def world(memory: MemoryCloud, clock: VirtualClock) -> CloudWorld:
    return CloudWorld(memory, clock)


def test_a_launch_becomes_nodes_with_the_labels_and_taints_asked_for(world: CloudWorld) -> None:
    ids = world.cloud.launch(launch_request("a", 3)).instances
    world.driver.advance_by(59)
    assert world.nodes() == {}
    world.driver.advance_by(10)
    nodes = world.nodes()
    assert sorted(nodes) == sorted(f"aws:///us-east-1a/{instance_id}" for instance_id in ids)
    for node in nodes.values():
        assert node["metadata"]["labels"]["muster.dev/node-pool"] == "gpu"
        assert "muster.dev/unregistered" in {taint["key"] for taint in node["spec"]["taints"]}


def test_a_machine_that_never_boots_bills_and_is_no_node(world: CloudWorld) -> None:
    world.cloud.market.faults.never_boots = 1
    world.cloud.launch(launch_request("a", 2))
    world.driver.advance_by(3600)
    assert len(world.nodes()) == 1
    assert [entry.ended_at_s for entry in world.cloud.ledger()] == [None, None]


def test_an_interrupted_machine_takes_its_node_along(world: CloudWorld) -> None:
    (machine,) = world.cloud.launch(launch_request("a", 1, pool("spot"))).instances
    world.driver.advance_by(100)
    world.cloud.interrupt(machine)
    world.driver.advance_by(110)
    assert len(world.nodes()) == 1
    world.driver.advance_by(120)
    assert world.nodes() == {}
