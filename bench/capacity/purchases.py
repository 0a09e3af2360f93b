"""How near the purchase solver comes to its bound, and how long it takes: `python -m bench.capacity.purchases`.

Prints a JSON line for each set of drawn problems; savings are over the solver's own start in Karpenter's order. What
the real Karpenter paid is in `bench.capacity.saving`. Goals, on two cores: a mix of 1,000 pods in about a second, the
pods of openb's default list on AWS types in 1.2 s (`--openb POD_CSV`, from the trace of 2023); the quick ways alone
10,000 pods of a mix in 100 ms and 100,000 pods in 2,000 classes in 500 ms.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path

from bench.capacity.mixes import competing, inference, mix, openb, varied
from bench.capacity.recorded import SHARED
from fleet.optimize.purchase import GREEDY, PurchaseEffort, PurchaseProblem, PurchaseSolution, solve

SEEDS = tuple(range(20))
Line = dict[str, float | int | str]
SETS: Mapping[str, Callable[[int], PurchaseProblem]] = {
    "mixes-100": partial(mix, pods=100),
    "mixes-1000": partial(mix, pods=1_000),
    "mixes-10000": partial(mix, pods=10_000),
    "inference-1000": partial(inference, pods=1_000),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 2 where a list cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m bench.capacity.purchases", description=__doc__)
    parser.add_argument(
        "--seeds", type=int, default=len(SEEDS), metavar="N", help=f"problems of each set (default: {len(SEEDS)})"
    )
    parser.add_argument("--openb", nargs="*", type=Path, default=(), metavar="POD_CSV", help="lists of the openb trace")
    chosen = parser.parse_args(arguments)
    about: Line = {
        "cores": os.cpu_count() or 1,
        "python": platform.python_version(),
        "highspy": importlib.metadata.version("highspy"),
    }
    _warm()
    for name, made in SETS.items():
        print(json.dumps({"set": name} | measured([made(seed) for seed in range(chosen.seeds)]) | about), flush=True)
    print(json.dumps({"set": "varied-100000x2000"} | measured([varied(0, 100_000, 2_000)]) | about), flush=True)
    for path in chosen.openb:
        print(json.dumps({"set": path.stem} | measured([openb(path)]) | about), flush=True)
    return 0


def measured(asked: Sequence[PurchaseProblem]) -> Line:
    """Each problem bought for by the quick ways and in full."""
    savings, gaps, quick_savings, quick_s, quick_cpu_s, full_s, cpu_s = [], [], [], [], [], [], []
    for problem in asked:
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        quick = solve(problem, GREEDY)
        quick_cpu_s.append(time.process_time() - began_cpu_s)
        quick_s.append(time.perf_counter() - began_s)
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        full = solve(problem, PurchaseEffort())
        cpu_s.append(time.process_time() - began_cpu_s)
        full_s.append(time.perf_counter() - began_s)
        savings.append(100 * saving(full))
        quick_savings.append(100 * saving(quick))
        gaps.append(100 * gap(full))
        if full.failure:
            raise RuntimeError(full.failure)
    return {
        "problems": len(asked),
        "pods": asked[0].pods,
        "classes": round(statistics.median(len(it.classes) for it in asked)),
        "kinds": len(asked[0].kinds),
        "saving_pct": round(statistics.median(savings), 2),
        "least_saving_pct": round(min(savings), 2),
        "most_saving_pct": round(max(savings), 2),
        "gap_pct": round(statistics.median(gaps), 2),
        "seconds": round(statistics.median(full_s), 3),
        "cpu_seconds": round(statistics.median(cpu_s), 3),
        "most_seconds": round(max(full_s), 3),
        "quick_saving_pct": round(statistics.median(quick_savings), 2),
        "quick_ms": round(1000 * statistics.median(quick_s), 1),
        "quick_cpu_ms": round(1000 * statistics.median(quick_cpu_s), 1),
        "most_quick_ms": round(1000 * max(quick_s), 1),
    }


def saving(found: PurchaseSolution) -> float:
    """The part of the baseline's cost that is saved; 0 where the baseline finds no place for the same pods."""
    return 1.0 - found.cost_usd_h / found.baseline_usd_h if 0 < found.baseline_usd_h < inf else 0.0


def gap(found: PurchaseSolution) -> float:
    """By what part of the bound the cost is above it: no purchase saves more."""
    if found.cost_usd_h <= found.bound_usd_h:
        return 0.0
    return found.cost_usd_h / found.bound_usd_h - 1.0 if found.bound_usd_h else inf


def _warm() -> None:
    """The solver is imported and the catalogue read before any clock runs."""
    solve(mix(0, 100))


def run() -> dict[str, float]:
    """CPU time of the solver and of the quick ways alone, and how far what it finds is above its bound: medians.

    With the pods of openb where the reference folder is (`MUSTER_SHARED`).
    """
    _warm()
    mixes, answers, large = (
        measured([SETS[name](seed) for seed in SEEDS]) for name in ("mixes-1000", "inference-1000", "mixes-10000")
    )
    many = measured([varied(0, 100_000, 2_000)])
    by_model, anywhere = (measured([drawn(0, 8_000, 800)]) for drawn in (varied, competing))
    found = {
        "mixes_1000_above_bound_pct": float(mixes["gap_pct"]),
        "mixes_1000_s": float(mixes["cpu_seconds"]),
        "inference_1000_above_bound_pct": float(answers["gap_pct"]),
        "quick_10000_ms": float(large["quick_cpu_ms"]),
        "quick_2000_classes_ms": float(many["quick_cpu_ms"]),
        "800_classes_s": float(by_model["cpu_seconds"]),
        "800_classes_above_bound_pct": float(by_model["gap_pct"]),
        "800_competing_classes_s": float(anywhere["cpu_seconds"]),
        "800_competing_classes_above_bound_pct": float(anywhere["gap_pct"]),
    }
    if (pods := SHARED / "traces/openb/openb_pod_list_default.csv").is_file():
        trace = measured([openb(pods)])
        found |= {"openb_above_bound_pct": float(trace["gap_pct"]), "openb_s": float(trace["cpu_seconds"])}
    return found


if __name__ == "__main__":
    sys.exit(main())
