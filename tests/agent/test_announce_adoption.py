"""What people hear of adoptions: of one that is under way, and why another is refused."""

from agent.announce import Announcer
from agent.inbox import Done
from agent.mirror import Mirror
from fleet.actions import Announce, OpenClaims
from fleet.nodeclaims import adoption
from tests.support.fleets import NOW, small_fleet
from tests.support.strangers import stranger
from tests.support.world import World


def test_an_adoption_is_announced_and_a_refused_one_once_for_each_reason() -> None:
    said: list[Announce] = []
    announcer = Announcer(said.append)
    world = World(small_fleet())
    stranger(world)
    [opened] = adoption.decide(world.fleet, world.snapshot())
    for action in (opened, OpenClaims((world.machine("m0"),))):
        announcer.acting(action, Mirror("default"), NOW)
        announcer.ended(Done(action), NOW)
    announcer.turned(world.fleet, world.snapshot())
    assert [(str(it.about.kind), it.about.name, it.reason, it.type) for it in said] == [
        ("NodeClaim", "adopted-i-1", "Adopted", "Normal")
    ]
    said.clear()
    stranger(world, asks="default/nope")
    for _ in range(3):
        announcer.turned(world.fleet, world.snapshot())
    stranger(world, node={"unschedulable": True})
    announcer.turned(world.fleet, world.snapshot())
    world.nodes.clear()
    announcer.turned(world.fleet, world.snapshot())
    assert [(it.about.kind, it.about.name, it.reason, it.type) for it in said] == [
        ("Node", "node-i-1", "NodePoolNotFound", "Warning"),
        ("Node", "node-i-1", "NodeNotReady", "Warning"),
        ("NodePool", "h100", "NodeNotJoined", "Warning"),
    ]
