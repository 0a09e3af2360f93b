"""The agent is killed between any two writes, and started again: the same end, nothing twice, nothing left over.

The story has a purchase, a shortfall, a re-cut, a preemption and a way back; a write is a call that changes the cluster
or the cloud. `SAMPLE` of its writes are tried one by one, each just before and just after it has taken effect.
"""

import random

import pytest

from agent.simulation import Moment, Simulation, Tempo
from providers.sim.store import StoreEvent
from tests.agent.scenes import P4DE, P5, A, B, C, Nurse, Scene, files, gpu_job, gpu_jobset, layout, pool, queue, team
from tests.agent.test_simulation_trouble import slices

SAMPLE = 16


def fleet(zones: tuple[str, ...] = (A, B)) -> dict[str, str]:
    thin_and_thick = {"nvidia.com/mig-3g.40gb": 32, "nvidia.com/mig-1g.10gb": 112}
    return files(
        pool("h100", zones=list(zones), limits={"nodes": 4}),
        pool("mig", (P4DE,), zones=[B, C], sharing={"mig": {"layouts": ["thick", "thin"]}}, limits={"nodes": 1}),
        layout("thick", **{"3g_40gb": 2}),
        layout("thin", **{"1g_10gb": 7}),
        team(quotas={"h100": {"nvidia.com/gpu": 32}, "mig": thin_and_thick}),
        queue(flavors=("h100", "mig")),
    )


def tell(nurse: Nurse, tempo: Tempo | None = None) -> Scene:
    """The story, from the push to the last machine given back."""
    scene = Scene(tempo=tempo, more=[nurse])
    nurse.sim = scene.sim
    return scene


def play(scene: Scene, *, shortfall: bool = True) -> None:
    scene.sim.push(fleet((A, B) if shortfall else (B,)))
    scene.capacity(3, zone=A)
    scene.lies(zone=A)
    big, high = gpu_jobset("big", workers=4), gpu_job("high", pods=2, priority="high")
    thick, thin = slices("thick", "3g.40gb", pods=2, run_s=20), slices("thin", "1g.10gb", pods=7)
    scene.sim.submit(big)
    scene.sim.submit(thick)
    scene.until_running("big", 2400)
    scene.until_state("thick", "Finished", 2400)
    scene.sim.submit(thin)
    scene.sim.submit(high)
    scene.until_running("thin", 2400)
    scene.until_running("high", 2400)
    scene.until_state("big", "Pending")
    assert not [pod for pod in scene.sim.objects("Pod") if pod["metadata"]["name"].startswith("big-")]
    scene.sim.delete(high)
    scene.until_running("big", 2400)
    for manifest in (big, thick, thin):
        scene.sim.delete(manifest)
    scene.until(lambda: not scene.sim.machines() and not scene.sim.claims(), 2400)
    scene.until(lambda: scene.sim.alive, 60)
    scene.settle(180)


def same_end(scene: Scene, crashes: int, *, shortfall: bool = True, evictions: int = 1) -> None:
    assert scene.bought(P5, B) == 4
    assert scene.bought(P4DE) == 1
    most = 3 * (crashes + 1) if shortfall else 0
    assert scene.bought(P5, A) <= most, "a shortage may be forgotten and met again, once a life"
    assert scene.bought(P5, A) % 3 == 0
    assert set(scene.laws.evictions) == {"big"}
    assert scene.laws.evictions["big"] <= evictions
    assert not scene.sim.objects("Workload")
    assert not scene.sim.objects("Node")


def undisturbed() -> tuple[int, int]:
    """The first and the last write of the story."""
    scene = tell(Nurse())
    first = scene.sim.writes
    play(scene)
    same_end(scene, 0)
    return first, scene.sim.writes


FIRST, LAST = undisturbed()
POINTS = sorted(random.Random(7).sample(range(FIRST + 1, LAST), SAMPLE))


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("write", POINTS)
def test_killed_once(write: int, moment: Moment) -> None:
    nurse = Nurse()
    scene = tell(nurse)
    scene.sim.crash_at(write, moment)
    play(scene)
    assert nurse.deaths == 1
    same_end(scene, 1)


@pytest.mark.parametrize(("every", "shortfall"), [(20, False), (33, False), (50, True), (80, True)])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_again_and_again(every: int, shortfall: bool, moment: Moment) -> None:
    """A life must be long enough for one attempt: intent, launch, answer; for two where the first zone falls short."""
    nurse = Nurse(every, moment)
    scene = tell(nurse)
    nurse.light()
    play(scene, shortfall=shortfall)
    assert nurse.deaths >= 3
    same_end(scene, nurse.deaths, shortfall=shortfall)


@pytest.mark.parametrize("seed", [0, 2, 3, 4])
def test_killed_at_random_with_slow_hands_in_any_order(seed: int) -> None:
    """In other seeds the story outlasts the pools' quiet time: idle machines go between its parts, and others come."""
    rng = random.Random(seed)
    tempo = Tempo(latency_s=lambda _action: rng.choice([0.0, 0.0, 0.3, 2.0]), shuffle=seed)
    nurse = Nurse(50, rng=rng)
    scene = tell(nurse, tempo)
    nurse.light()
    play(scene)
    assert nurse.deaths >= 3
    same_end(scene, nurse.deaths, evictions=2)  # see test_a_preemptor_whose_status_is_being_written_keeps_its_turn


class Reaper:
    """Kills the agent now and then, with actions in flight, some of which happen all the same."""

    name = "reaper"

    def __init__(self, rng: random.Random, most: int) -> None:
        self.sim: Simulation
        self.rng = rng
        self.most = most
        self.kills = 0
        self._version = 0

    def step(self, now: float) -> float | None:
        moved, self._version = self._version != self.sim.store.resource_version, self.sim.store.resource_version
        if moved and self.sim.alive and self.kills < self.most and self.rng.random() < 0.02:
            self.kills += 1
            self.sim.crash(self.rng)
        return None


@pytest.mark.parametrize("seed", [0, 1, 2, 4])  # in which somebody is killed
def test_actions_in_flight_that_happen_after_the_death_do_no_harm(seed: int) -> None:
    """A dead process's last requests may still reach the servers."""
    rng = random.Random(100 + seed)
    nurse, reaper = Nurse(), Reaper(rng, 6)
    scene = Scene(tempo=Tempo(latency_s=lambda _action: rng.choice([0.1, 1.0, 3.0])), more=[reaper, nurse])
    nurse.sim = reaper.sim = scene.sim
    play(scene)
    assert reaper.kills
    same_end(scene, reaper.kills, evictions=2)


def test_killed_between_the_reservation_and_the_request_for_a_new_cut() -> None:
    nurse = Nurse()
    scene = tell(nurse)
    scene.sim.push(fleet())
    thick, thin = slices("thick", "3g.40gb", run_s=20), slices("thin", "1g.10gb")
    scene.runs(thick)
    scene.until_state("thick", "Finished")

    def strike(event: StoreEvent) -> None:
        if (event.object.get("status") or {}).get("reason") == "Recutting" and not nurse.deaths:
            scene.sim.crash_at(scene.sim.writes + 1)

    scene.sim.store.subscribe(strike, resource=scene.sim.store.resource("Workload"))
    scene.sim.submit(thin)
    scene.until_running("thin", 900)
    assert nurse.deaths == 1
    assert scene.bought() == 1
    scene.settle()
