"""Pods that claim parts of one GPU (consumable capacity) get quota, machines and their parts, end to end."""

import random
from pathlib import Path
from typing import Any

import pytest

from agent.ledger_settings import LedgerSettings
from fleet.cost.machine_use import NOBODY
from fleet.cost.records import HOUR_S
from providers.sim.controllers.assembly import SimulationOptions
from providers.sim.controllers.dra.nvidia_driver import DraOptions
from tests.agent.scenes import G6, P5, Scene, files, pool, queue, team
from tests.agent.test_simulation_dra import all_got_their_devices, claiming, devices, exactly, template
from tests.agent.test_simulation_ledger import SLOW, charged, records, usd, whole_hours

Obj = dict[str, Any]


def shared_by(way: str, *, told: bool = True, gpus: int = 32, **spec: Any) -> dict[str, str]:
    """A pool of machines with four L4 whose devices several claims may have."""
    shares: Any = int(way) if way.isdecimal() else way
    dra = {"consumableShares": shares} if told else {}
    more = {"types": (G6,), "sharing": {"dra": dra}} | spec
    return files(pool("l4", **more), team(quotas={"l4": {"nvidia.com/gpu": gpus}}), queue(flavors=("l4",)))


def scene_of(way: str, fleet: dict[str, str], **more: Any) -> Scene:
    return Scene(fleet, options=SimulationOptions(dra=DraOptions(consumable_shares=way)), **more)


def part(memory: str = "", **requests: str) -> Obj:
    """A request for part of a GPU."""
    asked = exactly("gpu")
    wanted = ({"memory": memory} if memory else {}) | requests
    asked["exactly"] |= {"capacity": {"requests": wanted}} if wanted else {}
    return asked


def given(scene: Scene) -> list[str]:
    return sorted(name for names in devices(scene).values() for name in names)


def alone(scene: Scene, name: str, claim: str) -> None:
    """A pod of no job."""
    spec = claiming(name, claim)["spec"]["template"]["spec"]
    meta = {"name": name, "namespace": "t"}
    scene.sim.submit({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    scene.until(lambda: name in devices(scene), 900, f"{name} has its part")


def test_two_pods_with_20_gib_each_share_one_gpu() -> None:
    scene = scene_of("memory", shared_by("memory", types=(P5,)))
    scene.sim.submit(template("part", part("20Gi")))
    scene.runs(claiming("a", "part", pods=2))
    assert given(scene) == ["gpu-0", "gpu-0"]
    assert scene.bought() == 1
    scene.settle()


def test_a_machine_is_filled_with_parts_and_another_bought_for_the_next() -> None:
    scene = scene_of("memory", shared_by("memory"))
    scene.sim.submit(template("part", part("10Gi")))
    scene.sim.submit(template("rest", part("1Gi")))
    scene.runs(claiming("a", "part", pods=6))
    scene.runs(claiming("b", "part", pods=2))
    assert given(scene) == [f"gpu-{n // 2}" for n in range(8)]
    scene.runs(claiming("c", "rest"))
    assert given(scene).count("gpu-0") == 3
    assert scene.bought() == 1
    scene.runs(claiming("d", "part"))
    assert scene.bought() == 2
    scene.settle()


def test_quota_counts_a_part_as_one_gpu() -> None:
    scene = scene_of("memory", shared_by("memory", gpus=3))
    scene.sim.submit(template("part", part("5Gi")))
    scene.runs(claiming("a", "part", pods=3))
    assert given(scene) == ["gpu-0"] * 3
    scene.sim.submit(claiming("b", "part"))
    scene.sim.advance(120)
    assert scene.state("b") == "Pending"
    scene.settle()


def test_who_names_no_capacity_counts_as_a_whole_device_and_shares_it_all_the_same() -> None:
    scene = scene_of("2", shared_by("2"))
    scene.sim.submit(template("plain", exactly("gpu")))
    scene.sim.submit(template("share", part(shares="1")))
    scene.runs(claiming("a", "plain", pods=4))
    assert given(scene) == ["gpu-0", "gpu-0", "gpu-1", "gpu-1"]
    scene.runs(claiming("b", "share", pods=4))
    assert given(scene) == [f"gpu-{n // 2}" for n in range(8)]
    assert scene.bought() == 1
    scene.settle()


def test_ordinary_pods_and_gangs_share_a_gpu() -> None:
    scene = scene_of("memory", shared_by("memory", serves=["Gangs", "Pods"]))
    scene.sim.submit(template("part", part("5Gi")))
    alone(scene, "p", "part")
    alone(scene, "q", "part")
    scene.runs(claiming("a", "part", pods=2))
    alone(scene, "r", "part")
    scene.settle(600)
    assert given(scene) == ["gpu-0"] * 4 + ["gpu-1"]
    assert scene.bought() == 1
    gang = scene.sim.gang("a")
    assert gang is not None
    assert gang.timeouts == 0


def test_ordinary_pods_that_quota_counts_count_as_a_gpu_each_while_they_run() -> None:
    fleet = files(
        pool("l4", types=(G6,), sharing={"dra": {"consumableShares": "memory"}}, serves=["Gangs", "Pods"]),
        team(quotas={"l4": {"nvidia.com/gpu": 3}}, ordinaryPodsQueue="t"),
        queue(flavors=("l4",)),
    )
    scene = scene_of("memory", fleet)
    scene.sim.submit(template("part", part("5Gi")))
    alone(scene, "p", "part")
    alone(scene, "q", "part")
    scene.sim.submit(claiming("two", "part", pods=2))
    scene.sim.advance(300)
    assert scene.state("two") == "Pending"
    scene.runs(claiming("one", "part"))
    assert given(scene) == ["gpu-0"] * 3
    scene.settle()


def test_a_driver_that_shares_without_the_pool_saying_so_serves_parts_where_its_machines_stand() -> None:
    scene = scene_of("memory", shared_by("memory", told=False))
    scene.sim.submit(template("part", part("10Gi")))
    scene.runs(claiming("a", "part"))
    scene.runs(claiming("b", "part", pods=7))
    assert given(scene) == [f"gpu-{n // 2}" for n in range(8)]
    assert scene.bought() == 1
    scene.settle()


def test_the_bill_of_parts_is_that_of_the_machine(tmp_path: Path) -> None:
    settings = LedgerSettings(path=tmp_path / "ledger.db")
    scene = scene_of("memory", shared_by("memory"), ledger=settings, tempo=SLOW)
    scene.sim.submit(template("part", part("5Gi")))
    for name in "abcdefgh":
        scene.runs(claiming(name, "part"))
    assert given(scene) == [f"gpu-{n // 4}" for n in range(8)]
    assert scene.bought() == 1
    end_s = whole_hours(scene, settings)
    found = records(settings)
    assert usd(found) == pytest.approx(charged(scene, end_s), rel=0.001)
    last = {it.name: it for it in found if it.hour_s == end_s - HOUR_S and it.subject not in NOBODY}
    hour = sum(it.cost_micro_usd for it in found if it.hour_s == end_s - HOUR_S)
    parts = {name: it.cost_micro_usd / hour for name, it in last.items()}
    assert parts == pytest.approx(dict.fromkeys("abcdefgh", 1 / 8), rel=0.1), "each counts as one of four GPUs"


def test_a_machine_whose_driver_does_not_share_as_the_pool_says_is_not_ready() -> None:
    scene = scene_of("", shared_by("2"))
    scene.sim.submit(template("share", part(shares="1")))
    scene.sim.submit(claiming("a", "share", pods=4))

    def told() -> list[str]:
        return [it.disruption.message for it in scene.sim.claims().values() if it.disruption is not None]

    scene.until(told, 3600, "the machine is given up")
    assert "sharing.dra.consumableShares 2" in told()[0]
    assert scene.state("a") != "Admitted"
    assert scene.bought() == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_placed_is_allocated(seed: int) -> None:
    """Each gang that the agent starts gets its parts of the simulated scheduler, whoever runs beside it."""
    rng = random.Random(seed)
    way = ["memory", "unlimited", "3"][seed % 3]
    scene = scene_of(way, shared_by(way, limits={"nodes": 4}, serves=["Gangs", "Pods"], gpus=64), tempo=SLOW)
    names = []
    for number in range(10):
        wanted = [part(rng.choice(["1Gi", "5Gi", "8000Mi", "12Gi", ""])) for _ in range(rng.randint(1, 2))]
        requests = [it | {"name": f"r{n}"} for n, it in enumerate(wanted)]
        apart = [{"distinctAttribute": "gpu.nvidia.com/uuid"}] if rng.random() < 0.3 else None
        scene.sim.submit(template(f"c{number}", *requests, constraints=apart))
        run_s = rng.choice([None, 60.0, 300.0])
        scene.sim.submit(claiming(f"j{number}", f"c{number}", pods=rng.randint(1, 5), run_s=run_s))
        names.append(f"j{number}")
        scene.sim.advance(rng.choice([0, 30, 200]))
    scene.sim.advance(900)
    all_got_their_devices(scene, names)
