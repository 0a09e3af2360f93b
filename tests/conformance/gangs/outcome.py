"""Which groups end up running: what a case expects, what came, and whether that is the same."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.conformance.cases import Case
from tests.conformance.gangs.scene import Pods, SceneRound, group_of, initial, pod_name

STARTING = {"allocate", "backfill", "reclaim", "gangreclaim", "preempt", "gangpreempt"}
"""Volcano's actions that start pods, or have others leave for them."""
RUNS = {"Running", "Binding", "Bound", "Allocated", "Pipelined"}

Runs = Mapping[str, int]
"""Group (and, where the case tells pods apart, what they ask for) -> how many of its pods run or are about to."""


@dataclass(frozen=True, slots=True)
class Same:
    """Whether the outcome is as expected; `why` says where it is not."""

    same: bool
    why: str = ""


def compare(case: Case, pods: Pods, played: SceneRound) -> Same:
    """Compare the pods after the run with what the case expects."""
    if case["semantics"] == "kai":
        return _compare_states(case, pods)
    return _compare_counts(case, pods, played)


# -- expectations by state --------------------------------------------------------------------------------------------


def _compare_states(case: Case, pods: Pods) -> Same:
    expect, groups = case["expect"], group_of(case)
    wanted: dict[str, str] = {}
    for name, group in groups.items():
        if group in expect.get("podgroups", {}):
            wanted[name] = expect["podgroups"][group]["status"]
        if name in expect.get("pods", {}):
            wanted[name] = expect["pods"][name]["status"]
    classes = {pod["name"]: _alike(pod) for pod in case["pods"]}
    expected, got = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for name, status in wanted.items():
        expected[classes[name]] += status in RUNS
        got[classes[name]] += pods[name].state in RUNS
    wrong = {"/".join(key): (expected[key], got[key]) for key in expected if expected[key] != got[key]}
    return Same(not wrong, ", ".join(f"{key}: {a} running expected, {b} came" for key, (a, b) in sorted(wrong.items())))


def _alike(pod: Mapping[str, Any]) -> tuple[str, str]:
    """Pods of one group that ask for the same are as good as each other."""
    return pod["podgroup"], repr((pod.get("sub_group"), sorted(pod["requests"].items(), key=str)))


# -- expectations by count --------------------------------------------------------------------------------------------


def _compare_counts(case: Case, pods: Pods, played: SceneRound) -> Same:
    expect, groups, first = case["expect"], _full_groups(case), initial(case)
    bound = {name for name, pod in pods.items() if pod.state == "Binding" and first[name].state == "Pending"}
    evicted = {entry.pod for entry in played.decision.evicted}
    nominated = set(played.decision.nominated)
    found = []
    if "podgroup_phase" in expect:
        found.append(_phases(case, played.phases))
        if not STARTING & set(case["run"]["actions"]):  # the gate alone: upstream starts nobody, whoever gets through
            return _verdict(found)
    if "allocated" in expect:
        found.append(_differ("allocated", _allocated(case, bound, groups), expect["allocated"]))
        return _verdict(found)
    if "task_status_counts" in expect:
        counts = {name: {"Binding": n} for name, n in Counter(groups[pod] for pod in bound).items()}
        found.append(_differ("counts", counts, expect["task_status_counts"]))
        return _verdict(found)
    if expect.get("only_bind_count") or "binds" not in expect:
        found.append(_differ("bound", len(bound), expect["bind_count"]))
    else:
        found.append(_differ("bound", _by_group(bound, groups), _by_group(expect["binds"], groups)))
    found.append(_differ("evicted", _by_group(evicted, groups), _by_group(expect["evictions"], groups)))
    if "pipelined_podgroup_nodes" in expect:
        wanted = set(expect["pipelined_podgroup_nodes"])
        found.append(_differ("nominated", sorted({groups[name] for name in nominated} | wanted), sorted(wanted)))
        found.append(_differ("nominated", sorted(wanted - {groups[name] for name in nominated}), []))
    return _verdict(found)


def _phases(case: Case, phases: Mapping[str, str]) -> str:
    """Compares the phases of groups; where upstream asks the gate alone, whoever got further has come through it."""
    wanted = case["expect"]["podgroup_phase"]
    only_gate = not STARTING & set(case["run"]["actions"])
    got = {name: phases.get(name, "") for name in wanted}
    if only_gate:
        got = {
            name: "Inqueue" if (phase, wanted[name]) == ("Running", "Inqueue") else phase for name, phase in got.items()
        }
    return _differ("phases", got, wanted)


def _full_groups(case: Case) -> dict[str, str]:
    return {pod["id"]: f"{pod['id'].split('/')[0]}/{pod['podgroup']}" for pod in case["pods"]}


def _by_group(names: Any, groups: Mapping[str, str]) -> dict[str, int]:
    return dict(Counter(groups[name] for name in names))


def _allocated(case: Case, bound: set[str], groups: Mapping[str, str]) -> dict[str, dict[str, int]]:
    from model.quantity import canonical_resources

    found: dict[str, dict[str, int]] = {}
    for pod in case["pods"]:
        if pod["id"] in bound:
            held = found.setdefault(pod["podgroup"], {"cpu_milli": 0, "memory": 0, "pods": 0})
            amounts = canonical_resources(pod["requests"])
            held["cpu_milli"] += amounts.get("cpu", 0)
            held["memory"] += amounts.get("memory", 0)
            held["pods"] += 1
    return found


def _differ(what: str, got: Any, expected: Any) -> str:
    return "" if got == expected else f"{what}: {expected} expected, {got} came"


def _verdict(found: list[str]) -> Same:
    wrong = [text for text in found if text]
    return Same(not wrong, "; ".join(wrong))


# -- economy ----------------------------------------------------------------------------------------------------------


def evicted_upstream(case: Case) -> list[str]:
    """Pods that upstream evicted and did not place elsewhere."""
    expect = case["expect"]
    return list(expect["derived"]["evicted_pods"] if case["semantics"] == "kai" else expect["evictions"])


def cost(case: Case, names: list[str]) -> tuple[float, int]:
    """GPUs, then pods."""
    asked = {pod_name(pod): pod["requests"] for pod in case["pods"]}
    memory = min((node.get("gpu_memory_mib") or 100 for node in case["nodes"]), default=100)
    return sum(_gpus(asked[name], memory) for name in names), len(names)


def _gpus(requests: Mapping[str, Any], memory: float) -> float:
    devices = float(requests.get("gpu_fraction_devices") or 1)
    gpus = float(requests.get("gpu") or 0) + devices * float(requests.get("gpu_fraction") or 0)
    gpus += devices * float(requests.get("gpu_memory_mib") or 0) / memory
    for profile, count in (requests.get("mig") or {}).items():
        gpus += int(profile.split("mig-")[1].split("g.")[0]) * float(count)
    return gpus + sum(float(count) for name, count in requests.items() if name.startswith("nvidia.com/"))


def is_economic(case: Case, evicted: list[str]) -> bool:
    """Never more GPUs than upstream evicted; where none are at stake, never more pods."""
    (gpus, pods), (most, most_pods) = cost(case, evicted), cost(case, evicted_upstream(case))
    return gpus <= most + 1e-9 if most or gpus else pods <= most_pods
