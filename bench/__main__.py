"""`python -m bench [names...] [--json FILE]`: numbers as one JSON object on stdout, progress on stderr.

Each benchmark runs in a process of its own, so that none inherits another's memory, imports or threads.
"""

import argparse
import contextlib
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import bench

WITHIN_S = 240.0
LONGER_S: dict[str, float] = {"calibration": 3_600.0}
"""Benchmarks that take longer, and how long they may."""
AT_MOST, AT_LEAST = "at_most", "at_least"
GOALS: dict[str, dict[str, tuple[str, float]]] = {
    "admission": {
        "baseline_s": (AT_MOST, 3),
        "large_scale_s": (AT_MOST, 5),
        "fill_4000_s": (AT_MOST, 1),
        "gang_512_ms": (AT_MOST, 200),
        "reclaim_250x8_s": (AT_MOST, 1),
        "unschedulable_quota_ms": (AT_MOST, 50),
        "unschedulable_machines_ms": (AT_MOST, 50),
        "reclaim_4000_one_by_one_s": (AT_MOST, 2),
        "cycle_growth": (AT_MOST, 1.25),
        "idle_cycle_ms": (AT_MOST, 5),
        "placed_512_in_a_block_ms": (AT_MOST, 2),
    },
    "agent": {"mirrored_s": (AT_MOST, 20), "rss_mib": (AT_MOST, 500), "churn_rss_mib": (AT_MOST, 500)},
    "apiserver": {"creates_per_s": (AT_LEAST, 5_000), "gets_per_s": (AT_LEAST, 10_000)},
    "calibration": {
        "p50_off_pct": (AT_MOST, 10),
        "p90_off_pct": (AT_MOST, 5),
        "cpu_s": (AT_MOST, 600),
    },
    "capacity": {
        "saving.inference_1000_pinned_saving_pct": (AT_LEAST, 5.7),
        "saving.mixes_1000_pinned_saving_pct": (AT_LEAST, 3.9),
        "saving.singles_1000_pinned_saving_pct": (AT_LEAST, 24),
        **{f"saving.{name}_1000_above_bound_pct": (AT_MOST, 0.5) for name in ("inference", "mixes", "singles")},
        **{f"saving.{name}_1000_dearer_than_a_run": (AT_MOST, 0) for name in ("inference", "mixes", "singles")},
        "purchases.mixes_1000_s": (AT_MOST, 1),
        "purchases.quick_10000_ms": (AT_MOST, 100),
        "purchases.quick_2000_classes_ms": (AT_MOST, 500),
        "purchases.openb_s": (AT_MOST, 1.2),
        **{f"purchases.800_{name}_s": (AT_MOST, 2) for name in ("classes", "competing_classes")},
        **{
            f"lists.{pods}_again_s": (AT_MOST, goal)
            for pods, goal in ((100, 0.1), (1_000, 0.3), (10_000, 1), (20_000, 2))
        },
        **{f"lists.{pods}_more_nodes": (AT_MOST, 0) for pods in (100, 1_000, 10_000, 20_000)},
    },
    "catalog": {"aws_facts_load_ms": (AT_MOST, 60)},
    "cli": {
        "help_ms": (AT_MOST, 150),
        "validate_reference_ms": (AT_MOST, 400),
        "validate_300_ms": (AT_MOST, 400),
        "validate_cpu_ms": (AT_MOST, 300),
        **{f"{name}_cpu_ms": (AT_MOST, 250) for name in ("get_workloads", "get_nodes", "policy_test", "start_queue")},
        **{f"{name}_cpu_ms": (AT_MOST, 250) for name in ("explain_workload", "explain_node", "explain_pool")},
        **{f"{name}{by}_cpu_ms": (AT_MOST, 250) for name in ("cost", "report") for by in ("", "_of_settings")},
    },
    "cloud": {
        "memory_machines_launched_at_once_per_s": (AT_LEAST, 100_000),
        "ec2_describe_996_ms": (AT_MOST, 2_000),
        "launch_1000_of_20_shapes_s": (AT_MOST, 5),
        "launch_1000_calls_throttled": (AT_MOST, 0),
    },
    "contention": {
        "full_1000_machines_10000_waiting_s": (AT_MOST, 1),
        "2000_queues_10000_waiting_s": (AT_MOST, 2),
        "32_shapes_10000_waiting_s": (AT_MOST, 2),
        "1000_different_bought_s": (AT_MOST, 1),
        "reclaim_8000_spread_s": (AT_MOST, 1),
        "one_tenant_10000_s": (AT_MOST, 2),
        "3200_leave_4000_wait_s": (AT_MOST, 2),
    },
    "decisions": {
        "turn_ms": (AT_MOST, 50),
        "turn_node_changed_ms": (AT_MOST, 25),
        "turn_claim_changed_ms": (AT_MOST, 25),
        "turn_gang_changed_ms": (AT_MOST, 25),
        "turn_pod_added_ms": (AT_MOST, 30),
        "20_waiting_ms": (AT_MOST, 80),
    },
    "drill": {
        "roomy_s": (AT_MOST, 60),
        **{f"{name}_lost": (AT_MOST, 0) for name in ("roomy", "full_subnets")},
        **{f"{name}_calls_throttled": (AT_MOST, 0) for name in ("roomy", "full_subnets")},
    },
    "openb": {"decision_us": (AT_MOST, 1_000)},
    "board": {"fill_4000_s": (AT_MOST, 0.3), "gang_512_ms": (AT_MOST, 20), "provide_512_ms": (AT_MOST, 20)},
    "push": {"push_start_to_plan_ms": (AT_MOST, 2_000)},
    "recuts": {"mean_wait_ratio": (AT_MOST, 0.2)},
    "reflector": {"events_per_s": (AT_LEAST, 20_000)},
    "review": {"opened_to_comment_and_status_ms": (AT_MOST, 2_000)},
    "replay": {"cpu_14_days_s": (AT_MOST, 60)},
    "simulation": {"history_cpu_s": (AT_MOST, 0.5)},
    "topology": {
        f"{fill}_{gang}_find_ms": (AT_MOST, 0.5) for fill in ("empty", "half", "full") for gang in ("64x8", "512x1")
    },
    "validate": {"load_300_ms": (AT_MOST, 150)},
    "web": {
        "overview_first_byte_ms": (AT_MOST, 1_000),
        "machines_first_byte_ms": (AT_MOST, 1_000),
        **{f"{name}_first_paint_ms": (AT_MOST, 1_000) for name in ("overview", "gangs", "machines")},
        "machines_update_cpu_ms": (AT_MOST, 100),
        "gangs_update_ms": (AT_MOST, 100),
        "turn_ratio": (AT_MOST, 1.1),
    },
}
Result = dict[str, Any]


def main() -> int:
    """Run what is asked for; 1 when a benchmark failed. A missed goal is shown and fails nothing: machines differ."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Muster's numbers.")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(bench.names())}; default: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to a file")
    parser.add_argument("--here", metavar="NAME", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        return _here(arguments.here)
    if unknown := sorted(set(arguments.names) - set(bench.names())):
        parser.error(f"no such benchmark: {', '.join(unknown)}")
    results = {name: _measured(name) for name in arguments.names or bench.names()}
    text = json.dumps({"machine": _machine(), **results}, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return int(any("error" in result for result in results.values()))


def _machine() -> Result:
    """What the numbers were measured on; with more load than cores they say little."""
    load_5_min = os.getloadavg()[1]
    return {"cores": os.cpu_count(), "python": platform.python_version(), "load_5_min": round(load_5_min, 2)}


def _here(name: str) -> int:
    """One benchmark in this process; only its numbers go to stdout."""
    with contextlib.redirect_stdout(sys.stderr):
        numbers = importlib.import_module(f"bench.{name}").run()
    print(json.dumps({metric: round(value, 3) for metric, value in numbers.items()}))
    return 0


def _measured(name: str) -> Result:
    _tell(f"{name} ...")
    began_s = time.monotonic()
    command = [sys.executable, "-m", "bench", "--here", name]
    within_s = LONGER_S.get(name, WITHIN_S)
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=within_s, text=True)
    except subprocess.TimeoutExpired:
        _tell(f"  took longer than {within_s:.0f} s")
        return {"error": f"took longer than {within_s:.0f} s"}
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        _tell("\n".join(f"  {line}" for line in lines[-15:]))
        return {"error": lines[-1]}
    numbers: dict[str, float] = json.loads(done.stdout)
    goals = {metric: goal for metric, goal in GOALS.get(name, {}).items() if metric in numbers}
    verdicts = {metric: _verdict(numbers[metric], *goal) for metric, goal in goals.items()}
    for metric, value in numbers.items():
        verdict = verdicts.get(metric)
        goal = "" if verdict is None else f"   goal {_words(*goals[metric])}: {'met' if verdict['met'] else 'MISSED'}"
        _tell(f"  {metric:44} {value:14,.2f}{goal}")
    _tell(f"  ({time.monotonic() - began_s:.0f} s)")
    return {**numbers, "goals": verdicts}


def _verdict(value: float, kind: str, bound: float) -> Result:
    return {kind: bound, "met": value <= bound if kind == AT_MOST else value >= bound}


def _words(kind: str, bound: float) -> str:
    return f"{kind.replace('_', ' ')} {bound:,g}"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
