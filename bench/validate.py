"""How long `validate` takes: 300 documents from bytes to a checked Fleet, and the cold start of the loader."""

import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from model import report
from model.fleet import Fleet
from model.loader import inspect
from model.pools import pool_requirements
from model.requirements import Requirements

POOLS, TEAMS, ROUNDS = 100, 100, 9
_POOL = """apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata:
  name: pool-{n}
  labels: {{team: platform}}
spec:
  instanceTypes: [p5.48xlarge]
  zones: [us-east-1a, us-east-1b]
  capacityTypes: [spot, on-demand]
  gpu:
    models: [h100]
    minCount: 8
  requirements:
    - key: kubernetes.io/arch
      operator: In
      values: [amd64]
    - key: karpenter.k8s.aws/instance-memory
      operator: Gt
      values: ["1000000"]
  limits:
    nodes: 8
    resources:
      cpu: 1536
      memory: 16Ti
      nvidia.com/gpu: 64
  template:
    labels:
      example.com/tier: training
    taints:
      - key: nvidia.com/gpu
        effect: NoSchedule
  disruption:
    consolidateAfter: 10m
    budgets:
      - nodes: 10%
      - nodes: 0
        schedule: "0 9 * * mon-fri"
        duration: 8h
---
"""
_TEAM = """apiVersion: muster.dev/v1alpha1
kind: Team
metadata:
  name: team-{n}
spec:
  parent: team-{parent}
  namespaces: [team-{n}, team-{n}-dev]
  quotas:
    pool-{n}:
      guaranteed:
        nvidia.com/gpu: 32
        cpu: "768"
      borrowingLimit: {{nvidia.com/gpu: 16}}
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata:
  name: queue-{n}
spec:
  team: team-{n}
  flavors: [pool-{n}]
  preemption:
    withinQueue: LowerPriority
---
"""


def repository() -> dict[str, bytes]:
    """300 documents in 20 files."""
    pools = [_POOL.format(n=n) for n in range(POOLS)]
    teams = [_TEAM.format(n=n, parent=n // 2).replace("  parent: team-0\n", "", 1) for n in range(TEAMS)]
    texts = [*pools, *teams]
    return {f"part-{index}.yaml": "".join(texts[index::20]).encode() for index in range(20)}


def measure(what: str, action: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The median milliseconds of `rounds` calls, also printed."""
    times = []
    for _ in range(rounds):
        gc.collect()
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    median_ms = statistics.median(times) * 1000
    print(f"{what:<58} {median_ms:8.1f} ms")
    return median_ms


def _cold(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def run() -> dict[str, float]:
    """Prints and returns medians in ms; the goals are 150 for 300 documents and 400 for a cold `validate`."""
    files = repository()
    loaded = inspect(files)
    if loaded.fleet is None:
        raise SystemExit(report.text(loaded.problems[:3]))
    fleet = loaded.fleet
    lines = sum(content.count(b"\n") for content in files.values())
    broken = {name: content.replace(b"capacityTypes", b"capacitytypes") for name, content in files.items()}
    asked = [pool_requirements(pool) for pool in fleet.node_pools.values()]
    lines = sum(content.count(b"\n") for content in files.values())
    print(f"300 documents, {lines} lines, {len(files)} files; medians")
    return {
        "load_300_ms": measure("bytes -> Fleet", lambda: inspect(files)),
        "load_300_broken_ms": measure("the same with an error in 100 of them", lambda: inspect(broken)),
        "pool_requirements_100_ms": measure("requirements of 100 pools", lambda: _requirements(fleet)),
        "compatible_10k_ms": measure("10,000 compatibility questions", lambda: _ask(asked)),
        "cold_python_ms": measure("cold: python -c pass", lambda: _cold("pass"), rounds=5),
        "cold_loader_ms": measure("cold: import model.loader", lambda: _cold("import model.loader"), rounds=5),
    }


def _requirements(fleet: Fleet) -> list[Requirements]:
    return [pool_requirements(pool) for pool in fleet.node_pools.values()]


def _ask(asked: list[Requirements]) -> int:
    return sum(one.compatible(other) for one in asked for other in asked)


if __name__ == "__main__":
    run()
