"""Whole passes that buy, by the deciders of the agent: an empty fleet, two pools over the machines of us-east-1.

All is bought on demand. Single pods of 20 kinds wait at once, or these and gangs of up to 16 pods. In the time is
everything from the queue to NodeClaims with their purpose. What Karpenter paid for such pods is in `saving`.
"""

import random
import statistics
import time
from dataclasses import replace

from fleet.actions import OpenClaims, PurchaseTally
from fleet.scheduling import cycle
from fleet.snapshot import Gang, JobRef, PodSet, Snapshot
from model.fleet import Fleet
from model.kinds import Toleration
from model.labels import GPU_RESOURCE
from model.loader import load
from providers.aws.catalog import package_catalog
from providers.kube.memory import collection_paused, settle_heap

SEEDS = tuple(range(5))
NOW_S = 1e9
ENTRIES = {
    "singles_100": (100, 0), "singles_1000": (1_000, 0),
    "singles_1000_and_100_gangs": (1_000, 100), "singles_10000": (10_000, 0),
}  # fmt: skip
"""Single pods, gangs."""
SIZES = (2, 4, 8, 16)
KINDS = ((0, 30), (1, 40), (2, 8), (4, 6), (8, 4))
"""GPUs of a pod, and their weight in the draw."""
TOLERATION = Toleration(key=GPU_RESOURCE, operator="Exists")
_GIB = 2**30
_USUAL = """
    - {key: karpenter.k8s.aws/instance-generation, operator: Gt, values: ["2"]}
    - {key: karpenter.k8s.aws/instance-size, operator: NotIn, values: [metal, metal-24xl, metal-48xl]}
    - {key: kubernetes.io/arch, operator: In, values: [amd64]}
"""
_ZONES = "[us-east-1a, us-east-1b, us-east-1c]"
FLEET = f"""
apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata: {{name: cpu}}
spec:
  zones: {_ZONES}
  requirements:{_USUAL}
    - {{key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}}
---
apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata: {{name: gpu}}
spec:
  zones: {_ZONES}
  requirements:{_USUAL}
    - {{key: karpenter.k8s.aws/instance-gpu-count, operator: Gt, values: ["0"]}}
  template:
    taints: [{{key: nvidia.com/gpu, effect: NoSchedule}}]
---
apiVersion: muster.dev/v1alpha1
kind: Flavor
metadata: {{name: any}}
spec: {{nodePools: [cpu, gpu]}}
---
apiVersion: muster.dev/v1alpha1
kind: PriorityClass
metadata: {{name: normal}}
spec: {{value: 100}}
---
apiVersion: muster.dev/v1alpha1
kind: Team
metadata: {{name: all}}
spec:
  namespaces: [all]
  quotas:
    any: {{guaranteed: {{nvidia.com/gpu: 1000000, cpu: 10000000}}}}
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {{name: all}}
spec: {{team: all, flavors: [any]}}
"""


def run() -> dict[str, float]:
    """Seconds of process time for one pass, and by how much it is above its bound: medians over the seeds.

    Each pass is the first of its agent that buys, after a turn in which nobody waited; `singles_100_again_s` is later.
    """
    fleet, found = load({"fleet.yaml": FLEET.encode()}), dict[str, float]()
    for name, (singles, gangs) in ENTRIES.items():
        taken_s, gaps = [], []
        for seed in SEEDS if singles < 10_000 else SEEDS[:1]:
            seconds, tally = _pass(fleet, waiting(seed, singles, gangs))
            taken_s.append(seconds)
            gaps.append(100 * tally.gap)
        found |= {f"{name}_s": statistics.median(taken_s), f"{name}_above_bound_pct": statistics.median(gaps)}
    first = Snapshot(NOW_S, catalog=package_catalog("us-east-1").catalog)
    _pass(fleet, waiting(SEEDS[0], 100, 0), first)
    again_s = [_pass(fleet, waiting(seed, 100, 0), first)[0] for seed in SEEDS]
    return found | {"singles_100_again_s": statistics.median(again_s)}


def _pass(fleet: Fleet, gangs: list[Gang], seen: Snapshot | None = None) -> tuple[float, PurchaseTally]:
    seen = Snapshot(NOW_S, catalog=package_catalog("us-east-1").catalog) if seen is None else seen
    cycle.decide(fleet, seen)  # the agent has had a turn before
    seen = replace(seen, gangs={gang.uid: gang for gang in gangs})
    settle_heap()  # as the agent does once it has read its cluster
    began_s = time.process_time()
    with collection_paused():  # as in each of its turns
        actions = cycle.decide(fleet, seen)
    seconds = time.process_time() - began_s
    tallies = [it.tally for it in actions if isinstance(it, OpenClaims) and it.tally is not None]
    if not tallies:
        raise RuntimeError("nothing was bought")
    return seconds, tallies[0]


def waiting(seed: int, singles: int, gangs: int) -> list[Gang]:
    """Single pods and gangs of 20 kinds of pods."""
    draw = random.Random(seed)
    asks = [_asked(draw, draw.choices(*zip(*KINDS, strict=True))[0]) for _ in range(20)]
    found = []
    for number in range(singles + gangs):
        requests, count = draw.choice(asks), 1 if number < singles else draw.choice(SIZES)
        name = f"job-{number:05}"
        tolerations = (TOLERATION,) if GPU_RESOURCE in requests else ()
        pods = PodSet("main", count, requests, tolerations=tolerations)
        job = JobRef("batch/v1", "Job", "all", name, f"uid-{name}")
        found.append(Gang(f"uid-{name}", "all", name, job, "all", "normal", 100, (pods,), NOW_S - 100))
    return found


def _asked(draw: random.Random, gpus: int) -> dict[str, int]:
    cpu_m = draw.choice([500, 1000, 2000, 4000, 8000])
    requests = {"cpu": cpu_m, "memory": cpu_m // 500 * draw.choice([1, 2, 4]) * _GIB}
    return requests | ({GPU_RESOURCE: gpus} if gpus else {})
