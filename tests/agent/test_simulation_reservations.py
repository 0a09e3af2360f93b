"""Reserved capacity from git to pods: what is left in a reservation, its end, and blocks that EC2 clears."""

from typing import Any

import pytest

from agent.simulation import Moment
from fleet.snapshot import Reservation
from model import labels
from providers.sim.ec2 import HeldReservation
from tests.agent.scenes import P5, A, B, Nurse, Scene, files, gpu_job, gpu_jobset, pool, queue, team

HOUR_S = 3600.0
OURS = {labels.CLUSTER: "default"}


def reserving(*capacity_types: str, **spec: Any) -> dict[str, str]:
    return files(pool(capacityTypes=list(capacity_types or ("reserved", "on-demand")), **spec), team(), queue())


def scene_with(fleet: dict[str, str], *held: HeldReservation) -> Scene:
    scene = Scene(fleet)
    for one in held:
        scene.sim.cloud.account.reserve(one)
    scene.sim.advance(61)
    return scene


def ours(name: str = "cr-a", total: int = 2, zone: str = A, **more: Any) -> HeldReservation:
    return HeldReservation(name, P5, zone, total, **{"tags": OURS} | more)


def block(scene: Scene, hours: float, total: int = 2, name: str = "cr-block") -> None:
    ends_s = scene.sim.now_s + hours * HOUR_S
    scene.sim.cloud.account.reserve(ours(name, total, kind="capacity-block", ends_s=ends_s))
    scene.sim.advance(61)


def where(scene: Scene) -> list[str]:
    """Reservations of the machines that run, sorted."""
    return sorted(machine.reservation for machine in scene.sim.machines())


def left(scene: Scene) -> dict[str, int]:
    found: list[Reservation] = list(scene.sim.cloud.reservations())
    return {one.id: one.available for one in found}


def test_reserved_machines_come_first_and_say_so() -> None:
    scene = scene_with(reserving(), ours(total=1))
    scene.runs(gpu_job("a"))
    scene.runs(gpu_job("b"))
    assert where(scene) == ["", "cr-a"]
    (claim,) = (claim for claim in scene.sim.claims().values() if claim.capacity_pool.reservation)
    assert (claim.capacity_pool.capacity_type, claim.charged_usd_h) == ("reserved", 55.04)
    assert claim.price_usd_h < 0.0001
    (node,) = (node for node in scene.sim.objects("Node") if node["metadata"]["name"] == claim.node)
    found = node["metadata"]["labels"]
    assert found[labels.CAPACITY_TYPE] == "reserved"
    assert found[labels.CAPACITY_RESERVATION_ID] == "cr-a"
    assert found[labels.CAPACITY_RESERVATION_TYPE] == "default"
    assert found[labels.CAPACITY_RESERVATION_INTERRUPTIBLE] == "false"
    scene.settle()


def test_a_gang_takes_the_rest_of_several_reservations_before_anything_is_bought() -> None:
    scene = scene_with(reserving(), ours("cr-a", 1), ours("cr-b", 2), ours("cr-far", 3, zone=B, match="open"))
    scene.runs(gpu_jobset("g", workers=4))
    assert where(scene) in (["", "cr-a", "cr-b", "cr-b"], ["", "cr-far", "cr-far", "cr-far"])
    assert len(scene.zones()) == 1
    scene.settle()


def test_gangs_of_one_pass_never_count_on_the_same_reserved_machine() -> None:
    scene = scene_with(reserving("reserved"), ours(total=2))
    for name in ("a", "b", "c"):
        scene.sim.submit(gpu_job(name))
    scene.until(lambda: sum(map(scene.sim.running, "abc")) == 2, 600)
    (waiting,) = (gang for gang in scene.sim.gangs().values() if gang.state == "Pending")
    assert waiting.reason == "InsufficientCapacity"
    assert "too few are left in p5.48xlarge:reserved:us-east-1a:cr-a" in waiting.message
    assert scene.bought() == 2, "nothing was asked for in vain"
    scene.settle()


def test_a_reservation_that_another_uses_up_meanwhile_is_remembered_as_short() -> None:
    scene = scene_with(reserving(), ours(total=1))
    account = scene.sim.cloud.account
    account.market.take(account.market.reservations["cr-a"].pool, 1)
    scene.runs(gpu_job("a"))
    assert where(scene) == [""]
    assert "cr-a" in {pool.reservation for pool in scene.sim.brain.mirror.shortages}
    scene.settle()


def test_reservations_of_others_are_not_touched() -> None:
    scene = scene_with(
        reserving(), ours("cr-x", tags={labels.CLUSTER: "other"}), ours("cr-open", tags={}, match="open")
    )
    scene.runs(gpu_job("a"))
    assert where(scene) == [""]
    assert left(scene) == {"cr-x": 2, "cr-open": 2}


def test_a_pool_selects_by_id_and_a_machine_no_longer_selected_drifts() -> None:
    scene = scene_with(reserving(reservations={"select": [{"id": "cr-a"}]}), ours("cr-a", 1), ours("cr-b", 1))
    scene.runs(gpu_job("a"))
    assert where(scene) == ["cr-a"]
    scene.sim.push(reserving(reservations={"select": [{"id": "cr-b"}]}))
    scene.until(lambda: where(scene) == ["cr-b"], 1800)
    scene.until_running("a")
    scene.settle()


def test_machines_of_a_reservation_that_ends_run_on_as_on_demand_ones() -> None:
    scene = scene_with(reserving(), ours(total=1))
    scene.runs(gpu_job("a"))
    scene.sim.cloud.account.cancel_reservation("cr-a")
    scene.sim.advance(60)
    (claim,) = scene.sim.claims().values()
    assert (claim.capacity_pool.capacity_type, claim.capacity_pool.reservation) == ("on-demand", "")
    assert (claim.price_usd_h, claim.charged_usd_h, claim.disruption) == (55.04, 55.04, None)
    (node,) = scene.sim.objects("Node")
    assert node["metadata"]["labels"][labels.CAPACITY_TYPE] == "on-demand"
    assert labels.CAPACITY_RESERVATION_ID not in node["metadata"]["labels"]
    assert scene.sim.running("a")
    scene.settle()


def test_they_drift_where_the_pool_wants_no_on_demand_machines() -> None:
    scene = scene_with(reserving("reserved"), ours("cr-a", 1), ours("cr-b", 1, match="open"))
    scene.runs(gpu_job("a"))
    first = where(scene)[0]
    scene.sim.cloud.account.cancel_reservation(first)
    scene.until(lambda: where(scene) == ["cr-b" if first == "cr-a" else "cr-a"], 1800)
    scene.until_running("a")
    scene.settle()


def test_a_gang_leaves_a_block_before_ec2_takes_it_with_its_replacement_first() -> None:
    scene = Scene(reserving())
    block(scene, 3)
    scene.runs(gpu_jobset("g", workers=2))
    assert where(scene) == ["cr-block", "cr-block"]
    started_s = scene.sim.now_s
    scene.sim.advance(3 * HOUR_S - 40 * 60 - (started_s - (scene.sim.now_s)) - 120 - 400)
    assert scene.laws.evictions == {}
    stamps: dict[str, float] = {}

    def watch(_event: object) -> None:
        if where(scene) == ["", "", "cr-block", "cr-block"]:
            stamps.setdefault("replaced", scene.sim.now_s)

    scene.sim.store.subscribe(watch, resource=scene.sim.store.resource("NodeClaim"))
    scene.until(lambda: where(scene) == ["", ""], 3000)
    assert stamps, "the replacements stood beside the old machines"
    scene.until_running("g")
    assert scene.laws.evictions == {"g": 1}
    ends = {entry.reason for entry in scene.sim.cloud.ledger() if entry.pool.reservation}
    assert ends == {"Client.UserInitiatedShutdown"}, "it was given back, not taken"
    scene.settle()


def test_without_replacement_the_gang_leaves_in_time_all_the_same() -> None:
    scene = Scene(reserving("reserved"))
    block(scene, 2, total=1)
    scene.runs(gpu_job("g"))
    scene.until(lambda: not scene.sim.machines(), 2 * HOUR_S)
    ends = {entry.reason for entry in scene.sim.cloud.ledger() if entry.pool.reservation}
    assert ends == {"Client.UserInitiatedShutdown"}
    gang = scene.sim.gang("g")
    assert gang is not None
    assert gang.state == "Pending"
    assert scene.laws.evictions == {"g": 1}
    scene.settle()


def test_a_gang_that_would_outlast_the_block_is_not_started_on_it() -> None:
    scene = Scene(reserving())
    block(scene, 4, total=2)
    long, short = gpu_job("long"), gpu_job("short")
    for manifest, said in ((long, "4h"), (short, "2h")):
        manifest["metadata"].setdefault("annotations", {})["muster.dev/expected-run-time"] = said
        scene.runs(manifest)
    on = {
        name: scene.sim.claims()[pin.claim].capacity_pool.reservation
        for name in ("long", "short")
        for pin in pins(scene, name)
    }
    assert on == {"long": "", "short": "cr-block"}


def test_nor_placed_on_a_machine_of_it_that_stands_idle() -> None:
    scene = Scene(reserving("reserved", disruption={"consolidateAfter": "Never"}))
    block(scene, 4, total=1)
    scene.runs(gpu_job("first", run_s=30))
    scene.until_state("first", "Finished")
    long = gpu_job("long")
    long["metadata"].setdefault("annotations", {})["muster.dev/expected-run-time"] = "5h"
    scene.sim.submit(long)
    scene.sim.advance(300)
    gang = scene.sim.gang("long")
    assert gang is not None
    assert (gang.state, gang.reason) == ("Pending", "InsufficientCapacity")
    assert "run past the end of" in gang.message
    scene.runs(gpu_job("silent"))


def pins(scene: Scene, name: str) -> Any:
    gang = scene.sim.gang(name)
    return gang.pins if gang else ()


# -- the agent dies --------------------------------------------------------------------------------------------------


def story(nurse: Nurse) -> Scene:
    """Four machines of two reservations for a gang, and their end as reserved ones."""
    scene = Scene(more=[nurse])
    nurse.sim = scene.sim
    scene.sim.push(reserving())
    for held in (ours("cr-a", 3), ours("cr-b", 1)):
        scene.sim.cloud.account.reserve(held)
    scene.sim.advance(61)
    return scene


def tell(scene: Scene) -> None:
    scene.runs(gpu_jobset("g", workers=4), 1200)
    assert where(scene) == ["cr-a", "cr-a", "cr-a", "cr-b"]
    scene.sim.cloud.account.cancel_reservation("cr-a")
    scene.until(lambda: where(scene) == ["", "", "", "cr-b"], 120)
    scene.until(lambda: sum(bool(claim.list_usd_h) for claim in scene.sim.claims().values()) == 1, 300)
    scene.sim.delete(gpu_jobset("g", workers=4))
    scene.until(lambda: not scene.sim.machines() and not scene.sim.claims(), 1200)
    scene.until(lambda: scene.sim.alive, 60)


def writes_of_the_story() -> tuple[int, int]:
    scene = story(Nurse())
    first = scene.sim.writes
    tell(scene)
    return first, scene.sim.writes


FIRST, LAST = writes_of_the_story()


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("write", range(FIRST + 1, LAST, max(1, (LAST - FIRST) // 8)))
def test_reserved_machines_are_bought_once_whenever_the_agent_dies(write: int, moment: Moment) -> None:
    nurse = Nurse()
    scene = story(nurse)
    scene.sim.crash_at(write, moment)
    tell(scene)
    assert nurse.deaths == 1
    assert scene.bought() == 4
    assert scene.laws.evictions == {}
    scene.settle(180)
