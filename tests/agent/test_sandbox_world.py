"""The world of the sandbox, without its sockets: what an API server forgets by itself goes there as well."""

from pathlib import Path

from agent.sandbox.world import SandboxWorld
from providers.clock import VirtualClock


def test_events_of_the_sandbox_live_for_an_hour(tmp_path: Path) -> None:
    clock = VirtualClock()
    world = SandboxWorld(tmp_path, cluster="test", speed=1.0, clock=clock)
    events = world.store.resource("events", "")
    world.store.create(world.store.resource("Namespace"), {"metadata": {"name": "t"}})
    about = {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "t"}
    meta = {"name": "p.1", "namespace": "t"}
    world.store.create(events, {"metadata": meta, "involvedObject": about, "reason": "Scheduled"}, namespace="t")
    kernel = world.simulation.kernel
    left = []
    for minutes in (0, 50, 70):
        clock.advance_to(clock.now() + minutes * 60)
        kernel.run_until_quiet()
        left.append([it["metadata"]["name"] for it in world.store.list(events)])
    assert left == [["p.1"], ["p.1"], []]
