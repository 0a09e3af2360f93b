"""How much faster than life the whole agent runs in virtual time: 200 machines, gangs that come, run and go.

And what a drawn history costs, by profile: goal half a second of CPU, mean of the five profiles.
"""

import gc
import logging
import time
from dataclasses import replace
from statistics import fmean
from typing import Any

import structlog
import yaml

from agent.demo.jobs import job
from agent.simulation import Simulation, Tempo
from agent.simulation.play import play
from agent.simulation.profiles import PROFILES, drawn_history
from fleet.snapshot import Catalog
from providers.aws.catalog import package_catalog
from providers.sim.controllers.assembly import SimulationOptions
from providers.sim.controllers.kubelet import KubeletOptions

MACHINES, PODS_PER_GANG, KIND = 200, 4, "p5.48xlarge"
SEEDS = range(900_001, 900_009)


def _doc(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _fleet() -> dict[str, str]:
    quiet = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "10m", "budgets": [{"nodes": "100%"}]}
    gpus = {"nvidia.com/gpu": MACHINES * 8}
    docs = [
        _doc("NodePool", "h100", instanceTypes=[KIND], limits={"nodes": MACHINES}, disruption=quiet),
        _doc("Team", "t", namespaces=["t"], quotas={"h100": {"guaranteed": gpus}}),
        _doc("Queue", "t", team="t", flavors=["h100"]),
        _doc("PriorityClass", "normal", value=100),
    ]
    return {"fleet.yaml": yaml.safe_dump_all(docs)}


def _catalog() -> Catalog:
    whole = package_catalog("us-east-1").catalog
    offers = tuple(offer for offer in whole.offers if offer.instance_type.name == KIND)
    return replace(whole, types={KIND: whole.types[KIND]}, offers=offers)


def _gang(number: int, run_s: float) -> dict[str, Any]:
    made = job(f"g{number:05}", "t", "normal", pods=PODS_PER_GANG, requests={"nvidia.com/gpu": "8"}, run_s=run_s)
    made["spec"]["ttlSecondsAfterFinished"] = 60
    return made


def _sim() -> Simulation:
    options = SimulationOptions(kubelet=KubeletOptions(start_delay_s=1.0))
    sim = Simulation(catalog=_catalog(), tempo=Tempo(tick_s=10.0, slowest_tick_s=0.0, listing_s=30.0), options=options)
    sim.push(_fleet())
    sim.advance(1.0)
    return sim


def _turns(sim: Simulation) -> int:
    return sim.process.turns if sim.process else 0


def _churn(simulated_s: float) -> dict[str, float]:
    """Fifty gangs of four machines at a time; each that ends is followed by a new one."""
    sim, number = _sim(), 0
    began, end, turns = time.perf_counter(), sim.now_s + simulated_s, _turns(sim)
    while sim.now_s < end:
        alive = sum(1 for found in sim.objects("Job") if not (found.get("status") or {}).get("completionTime"))
        for _ in range(MACHINES // PODS_PER_GANG - alive):
            sim.submit(_gang(number, 600.0 + number % 97 * 10))
            number += 1
        sim.advance(15.0)
    wall_s = time.perf_counter() - began
    return {
        "simulated_s_per_s": simulated_s / wall_s,
        "gangs_per_s": number / wall_s,
        "turns_per_s": (_turns(sim) - turns) / wall_s,
    }


def _steady(simulated_s: float) -> dict[str, float]:
    """Fifty gangs on two hundred machines run on; nobody comes, nobody goes."""
    sim = _sim()
    for number in range(MACHINES // PODS_PER_GANG):
        sim.submit(_gang(number, 1e9))
    if not sim.advance_until(lambda: all(gang.pods_ready for gang in sim.gangs().values()), 900.0):
        raise RuntimeError("the gangs do not run")
    sim.advance(60.0)
    began, turns = time.perf_counter(), _turns(sim)
    sim.advance(simulated_s)
    wall_s = time.perf_counter() - began
    return {
        "steady_machines": float(len(sim.machines())),
        "steady_simulated_s_per_s": simulated_s / wall_s,
        "steady_turns_per_s": (_turns(sim) - turns) / wall_s,
    }


def _histories() -> dict[str, float]:
    """CPU seconds of a history; the first one, which reads the catalogue and compiles schemas, is not counted."""
    play(drawn_history(SEEDS[0], "calm"))
    costs = {name: fmean(play(drawn_history(seed, name)).cpu_s for seed in SEEDS) for name in sorted(PROFILES)}
    return {"history_cpu_s": fmean(costs.values()), **{f"history_{name}_cpu_s": cost for name, cost in costs.items()}}


def run() -> dict[str, float]:
    """Simulated seconds and the brain's turns per wall second, in churn and at rest, and the cost of a history.

    The agent looks every ten seconds; the real one rests for 1 to 15 s (`RestPace`), that of a history for 1 to 5 min.
    """
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    threshold = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        return {**_churn(1800.0), **_steady(3600.0), **_histories()}
    finally:
        gc.set_threshold(*threshold)


if __name__ == "__main__":
    print(run())
