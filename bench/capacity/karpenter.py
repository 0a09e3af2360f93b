"""Karpenter's own scheduling benchmark: its pods and its 400 machine types, from the reference folder.

The folder lies beside the checkout, or where `MUSTER_SHARED` says; without it there is nothing to measure. Pods are a
fifth each without constraints, spread over zones and over hosts, drawn to a zone, and repelling each other on a host:
the last settle how many machines it takes, a fifth of the pods.
"""

import json
import os
import resource
import time
from functools import cache
from itertools import starmap
from pathlib import Path
from typing import Any

from bench.reference.karpenter.buy import (
    MachineType,
    Peers,
    PodSpecification,
    PoolTemplate,
    ReferenceOffering,
    Spread,
    WaitingPod,
    Weighted,
    solve,
)
from model import labels
from model.requirements import Requirement, Requirements
from providers.kube.memory import settle_heap

COUNTS = (1_000, 5_000, 10_000, 20_000)
PREFERRING = 4_000
SEEDS: tuple[int, ...] = ()
"""The lists are drawn already (upstream's seed 42)."""
SHARED = Path(os.environ.get("MUSTER_SHARED") or Path(__file__).resolve().parents[3] / "shared")
MIB = 2**20
AFFINITY_LABEL = "my-affininity"
"""Spelt as upstream spells it."""


def run() -> dict[str, float]:
    """Process time of `solve` in seconds (`*_s`), machines (`*_nodes`), and the most memory the process has had."""
    if not (SHARED / "data/karpenter_benchmark").is_dir():
        return {}
    pool, found = template(), {}
    settle_heap()  # as the agent does once it has read its cluster
    for count in COUNTS:
        found |= _measured(f"diverse_{count}", diverse(count), pool, count // 5)
    found |= _measured(f"preferring_{PREFERRING}", preferring(PREFERRING), pool, PREFERRING)
    found["rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def _measured(name: str, pods: list[WaitingPod], pool: PoolTemplate, nodes: int) -> dict[str, float]:
    began_s = time.process_time()
    outcome = solve(pods, [pool])
    taken_s = time.process_time() - began_s
    if len(outcome.claims) != nodes or outcome.unplaced:
        raise RuntimeError(f"{name}: {len(outcome.claims)} machines instead of {nodes}")
    return {f"{name}_s": taken_s, f"{name}_nodes": len(outcome.claims)}


def machines(catalog: str) -> tuple[MachineType, ...]:
    """The machine types of a catalogue."""
    text = (SHARED / "conformance/karpenter/catalogs.json").read_text("utf-8")
    return tuple(map(machine, json.loads(text)["catalogs"][catalog]))


def amounts(entry: dict[str, Any]) -> dict[str, int]:
    """Resources as the cases write them, in canonical amounts."""
    renamed = {"cpu_m": "cpu", "memory_bytes": "memory"}
    return {renamed.get(name, name): amount for name, amount in entry.items()}


def machine(entry: dict[str, Any]) -> MachineType:
    """One machine type."""
    capacity, overhead = amounts(entry["capacity"]), amounts(entry["overhead"])
    carried = {
        labels.INSTANCE_TYPE: Requirement.one_of(entry["name"]),
        labels.ARCH: Requirement.one_of(entry["arch"]),
        labels.OS: Requirement.one_of(*entry["os"]),
    }
    return MachineType(
        entry["name"],
        Requirements(carried),
        capacity,
        {name: amount - overhead.get(name, 0) for name, amount in capacity.items()},
        tuple(
            ReferenceOffering(each["capacity_type"], each["zone"], each["price"], each["available"])
            for each in entry["offerings"]
        ),
    )


def template(catalog: str = "bench400") -> PoolTemplate:
    """The benchmark's pool: everything, within limits that never bind."""
    return PoolTemplate("default", machines(catalog), remaining={"cpu": 10_000_000_000, "memory": 10_000_000 * 2**30})


def diverse(count: int) -> list[WaitingPod]:
    """The pods of the benchmark, a fifth of each sort."""
    entries = json.loads((SHARED / f"data/karpenter_benchmark/diverse_pods_{count}.json").read_text("utf-8"))
    drawn = ((each["kind"], each.get("label"), each.get("selector"), each["cpu_m"], each["mem_mi"]) for each in entries)
    return [WaitingPod(f"pod-{number:05}", ask) for number, ask in enumerate(starmap(_ask, drawn))]


def preferring(count: int) -> list[WaitingPod]:
    """Equal pods that would rather be in zone 1, and away from each other."""
    nginx = Requirements.from_labels({"app": "nginx"})
    ask = PodSpecification(
        {"cpu": 100, "memory": 256 * MIB},
        labels={"app": "nginx"},
        preferred=(Weighted(1, Requirements.from_labels({labels.ZONE: "test-zone-1"})),),
        preferred_anti_affinity=(Weighted(10, Peers(labels.ZONE, nginx)), Weighted(1, Peers(labels.HOSTNAME, nginx))),
    )
    return [WaitingPod(f"pod-{number:05}", ask) for number in range(count)]


@cache
def _ask(kind: str, label: str | None, selector: str | None, cpu_m: int, mem_mi: int) -> PodSpecification:
    requests = {"cpu": cpu_m, "memory": mem_mi * MIB}
    mine = {"my-label": label} if label else {}
    wanted = Requirements.from_labels({"my-label": selector}) if selector else None
    match kind:
        case "spread_zone":
            return PodSpecification(requests, labels=mine, spreads=(Spread(labels.ZONE, wanted),))
        case "spread_hostname":
            return PodSpecification(requests, labels=mine, spreads=(Spread(labels.HOSTNAME, wanted),))
        case "affinity_zone":
            liked = Requirements.from_labels({AFFINITY_LABEL: selector or ""})
            return PodSpecification(
                requests, labels={AFFINITY_LABEL: label or ""}, affinity=(Peers(labels.ZONE, liked),)
            )
        case "antiaffinity_hostname":
            nginx = {"app": "nginx"}
            return PodSpecification(
                requests, labels=nginx, anti_affinity=(Peers(labels.HOSTNAME, Requirements.from_labels(nginx)),)
            )
    return PodSpecification(requests, labels=mine)
