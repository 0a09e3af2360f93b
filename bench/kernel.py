"""How much faster than life the simulated cluster is: 200 nodes, 2,000 pods at a time, jobs that come, run and go."""

import gc
import time

from providers.clock import VirtualClock
from providers.sim.controllers import assemble
from providers.sim.kernel import VirtualDriver
from providers.sim.machines import NodeShape, SimulatedMachine
from providers.sim.store import Store

NODES, PODS_PER_JOB, JOBS, RUN_S = 200, 20, 100, 600
SHAPE = NodeShape(
    capacity={"cpu": "96", "memory": "1152Gi", "pods": "110"},
    allocatable={"cpu": "95", "memory": "1100Gi", "pods": "110"},
    gpu_model="a100-40gb",
    gpu_count=8,
    gpu_product="NVIDIA-A100-SXM4-40GB",
    gpu_memory_mib=40960,
    mig_capable=True,
)


class _StillMachines:
    def __init__(self, now: float) -> None:
        self.machines = [
            SimulatedMachine(
                f"i-{i:04}", "p4d.24xlarge", "us-east-1a", "spot", "running", now, private_dns=f"ip-{i:04}.ec2.internal"
            )
            for i in range(NODES)
        ]

    def list(self) -> list[SimulatedMachine]:
        return self.machines


def _job(name: str, run_s: int) -> dict[str, object]:
    container = {
        "name": "main",
        "image": "busybox:1",
        "resources": {"limits": {"cpu": "4", "nvidia.com/gpu": "1" if run_s % 3 else "0"}},
    }
    template = {
        "metadata": {"annotations": {"sim.muster.dev/run-seconds": str(run_s)}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    size = {"parallelism": PODS_PER_JOB, "completions": PODS_PER_JOB, "completionMode": "Indexed"}
    return {"metadata": {"name": name}, "spec": {**size, "ttlSecondsAfterFinished": 60, "template": template}}


def _world() -> tuple[VirtualClock, Store, VirtualDriver]:
    clock = VirtualClock()
    store = Store(clock)
    sim = assemble(store, clock, machines=_StillMachines(clock.now()), shape_of={"p4d.24xlarge": SHAPE}.get)
    driver = VirtualDriver(sim.kernel, clock)
    driver.advance_by(300.0)
    return clock, store, driver


def _churn(simulated_s: float) -> dict[str, float]:
    """2,000 pods run at any time; each finished job is followed by a new one."""
    clock, store, driver = _world()
    jobs, created = store.resource("Job"), 0
    began, version, end = time.perf_counter(), store.resource_version, clock.now() + simulated_s
    while clock.now() < end:
        alive = sum(1 for job in store.list(jobs) if not job["status"].get("completionTime"))
        for _ in range(JOBS - alive):
            store.create(jobs, _job(f"job-{created:05}", RUN_S + created % 97), namespace="default")
            created += 1
        driver.advance_by(10.0)
    wall_s = time.perf_counter() - began
    return {
        "simulated_s_per_s": simulated_s / wall_s,
        "pods_per_s": created * PODS_PER_JOB / wall_s,
        "writes_per_s": (store.resource_version - version) / wall_s,
    }


def _steady(simulated_s: float) -> dict[str, float]:
    """2,000 pods run on; only heartbeats and the poll of the machines happen."""
    _, store, driver = _world()
    for i in range(JOBS):
        store.create(store.resource("Job"), _job(f"job-{i:05}", 1_000_000), namespace="default")
    driver.advance_by(60.0)
    began = time.perf_counter()
    driver.advance_by(simulated_s)
    return {"steady_simulated_s_per_s": simulated_s / (time.perf_counter() - began)}


def run() -> dict[str, float]:
    """Simulated seconds per wall second on 200 nodes: 2,000 pods that come and go, and 2,000 that stay.

    The collector is tuned as a long-lived simulation should tune it; the event log alone holds a million objects.
    """
    threshold = gc.get_threshold()
    gc.set_threshold(100_000, 50, 100)
    try:
        return {**_churn(3600.0), **_steady(3600.0)}
    finally:
        gc.set_threshold(*threshold)


if __name__ == "__main__":
    print(run())
