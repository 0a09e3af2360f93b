"""How long work waits for slices when the mix turns, re-cut by machines or by idle GPUs (`recutIdleGpus`), played.

Five machines of eight A100s are cut `2 x 3g.40gb` or `7 x 1g.10gb`. Of the GPU time that is asked for, four fifths are
thin slices for two hours, then thick ones for two, at a load of 0.8; gangs of one to seven pods, of 45 minutes on
average. Readings come every half minute. Nothing is bought: the machines stand. The agent looks every five seconds; the
real one rests for 1 to 15 s (`agent.timetable.RestPace`).
"""

import gc
import logging
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import structlog
import yaml

from agent.demo.jobs import job
from agent.inbox import GpusRead
from agent.simulation import Simulation, Tempo
from fleet.snapshot.gpus import GpuHolders
from providers.aws.catalog import package_catalog
from providers.sim.controllers.assembly import SimulationOptions
from providers.sim.controllers.kubelet import KubeletOptions

KIND: Final = "p4de.24xlarge"
MACHINES, GPUS = 5, 8
PHASE_S, LOAD, READ_EVERY_S = 7200.0, 0.8, 30.0
SEED: Final = 1
DAY_S: Final = 3 * PHASE_S
LATEST_S: Final = 2 * 3600.0
"""So long after the last gang has come it is waited for those that have not started."""
_PODS: Final = {"thin": (2, 4, 7), "thick": (1, 2, 4)}
_PARTS: Final = {"thin": 7, "thick": 2}
"""Slices of a GPU."""
_PROFILES: Final = {"thin": "1g.10gb", "thick": "3g.40gb"}
_RUN_S: Final = 2700.0


class _MuteServer:
    """Stands where the simulated exporters answer HTTP: what they know is read without it."""

    def __init__(self) -> None:
        self._ports = 0

    def opened(self) -> int:
        self._ports += 1
        return self._ports

    def say(self, port: int, text: str | None) -> None:
        """Nobody asks."""


def _doc(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _fleet(*, beside: bool) -> dict[str, str]:
    layouts = {name: {_PROFILES[name]: count} for name, count in _PARTS.items()}
    slices = {f"nvidia.com/mig-{_PROFILES[name]}": MACHINES * GPUS * count for name, count in _PARTS.items()}
    pool = _doc(
        "NodePool",
        "mig",
        instanceTypes=[KIND],
        replicas=MACHINES,
        limits={"nodes": MACHINES},
        sharing={"mig": {"layouts": sorted(layouts), "recutIdleGpus": beside}},
        disruption={"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
    )
    docs = [
        pool,
        *(
            _doc("MigLayout", name, models={"a100-80gb": [{"devices": "all", "profiles": it}]})
            for name, it in layouts.items()
        ),
        _doc("Team", "t", namespaces=["t"], quotas={"mig": {"guaranteed": slices}}),
        _doc("Queue", "t", team="t", flavors=["mig"]),
        _doc("PriorityClass", "normal", value=100),
    ]
    return {"fleet.yaml": yaml.safe_dump_all(docs)}


def _work(start_s: float) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yields (when it comes, job) of a day."""
    rng, at_s, number = random.Random(SEED), start_s, 0
    gpu_s = {name: sum(pods) / len(pods) / _PARTS[name] * _RUN_S for name, pods in _PODS.items()}
    pace_s = sum(gpu_s.values()) / 2 / (LOAD * MACHINES * GPUS)
    while (at_s := at_s + rng.expovariate(1 / pace_s)) < start_s + DAY_S:
        thin = (at_s - start_s) // PHASE_S % 2 == 0
        kind = "thin" if (rng.random() < 0.8) is thin else "thick"
        requests = {f"nvidia.com/mig-{_PROFILES[kind]}": "1"}
        run_s = rng.expovariate(1 / (_RUN_S - 300)) + 300
        number += 1
        yield at_s, job(f"j{number:04}", "t", "normal", pods=rng.choice(_PODS[kind]), requests=requests, run_s=run_s)


def _simulation(*, beside: bool) -> Simulation:
    whole = package_catalog("us-east-1").catalog
    offers = tuple(offer for offer in whole.offers if offer.instance_type.name == KIND)
    catalog = replace(whole, types={KIND: whole.types[KIND]}, offers=offers)
    options = SimulationOptions(dcgm_delay_s=15.0, kubelet=KubeletOptions(start_delay_s=1.0))
    sim = Simulation(
        catalog=catalog, tempo=Tempo(tick_s=5.0, slowest_tick_s=0.0, listing_s=60.0, foresees=False), options=options
    )
    if sim.world.exporters is None:
        raise RuntimeError("the simulation has no exporters")
    sim.world.exporters.server = _MuteServer()  # type: ignore[assignment]
    sim.push(_fleet(beside=beside))
    sim.advance(900.0)
    return sim


def _read(sim: Simulation) -> None:
    """The agent hears who holds which GPU."""
    exporters, found = sim.world.exporters, {}
    names = {
        it["metadata"]["uid"]: f"{it['metadata']['namespace']}/{it['metadata']['name']}" for it in sim.objects("Pod")
    }
    for node in sim.objects("Node"):
        held = exporters.gpus_of_pods(node) if exporters is not None else {}
        on = tuple(frozenset(names[uid] for uid, gpus in held.items() if n in gpus) for n in range(GPUS))
        found[node["metadata"]["name"]] = GpuHolders(
            sim.now_s, on, {names[uid]: len(gpus) for uid, gpus in held.items()}
        )
    if (process := sim.seats[0].process) is not None:
        process.inbox.append(GpusRead({}, {}, "", found))


def _waits_s(*, beside: bool) -> list[float]:
    """Returns how long each gang waited for its admission, sorted."""
    sim = _simulation(beside=beside)
    work = list(_work(sim.now_s))
    came = {it["metadata"]["name"]: at_s for at_s, it in work}
    started: dict[str, float] = {}
    end_s, coming = work[-1][0], iter(work)
    due = next(coming, None)
    while sim.now_s < end_s or (len(started) < len(came) and sim.now_s < end_s + LATEST_S):
        while due is not None and due[0] <= sim.now_s + READ_EVERY_S:
            due[1]["spec"]["ttlSecondsAfterFinished"] = 300
            sim.submit(due[1])
            due = next(coming, None)
        sim.advance(READ_EVERY_S)
        if beside:
            _read(sim)
        for gang in sim.gangs().values():
            if gang.admitted_at_s and gang.job.name not in started:
                started[gang.job.name] = gang.admitted_at_s
    return sorted(max(0.0, started.get(name, sim.now_s) - at_s) for name, at_s in came.items())


def run() -> dict[str, float]:
    """Waits (s) of a day by grain of the re-cuts, their ratio, and the CPU that it took (s)."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    threshold, began_s = gc.get_threshold(), time.process_time()
    gc.set_threshold(100_000, 50, 100)
    try:
        waits = {name: _waits_s(beside=name == "gpu") for name in ("machine", "gpu")}
    finally:
        gc.set_threshold(*threshold)
    means = {name: sum(it) / len(it) for name, it in waits.items()}
    return {
        "gangs": float(len(waits["gpu"])),
        **{f"{name}_mean_wait_s": it for name, it in means.items()},
        **{f"{name}_p95_wait_s": it[int(0.95 * len(it))] for name, it in waits.items()},
        "mean_wait_ratio": means["gpu"] / means["machine"],
        "cpu_s": time.process_time() - began_s,
    }


if __name__ == "__main__":
    print(run())
