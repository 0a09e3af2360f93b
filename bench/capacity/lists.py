"""Karpenter's own pod lists through a pass of the agent: `python -m bench.capacity.lists [PODS...]`.

These are the pods of its scheduling benchmark: a fifth each plain, spread over zones, spread over hosts, near each
other by zone and apart by host, in an order drawn once; on an empty cluster, with 400 types in three zones. They are
pods of no gang. Lists and types lie in the reference folder beside the checkout, or where `MUSTER_SHARED` says.

Karpenter's nodes are known: a fifth of the pods, as those that keep apart need a machine each. What it pays for them
is recorded nowhere; the figure beside ours is what its order would pay by the agent's own tally.
"""

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bench.capacity.recorded import SHARED
from fleet.actions import NominatePods, OpenClaims
from fleet.catalog import InstanceOffer, InstanceType
from fleet.fence import told_apart
from fleet.scheduling import cycle
from fleet.snapshot import Catalog, Claim, Pod, PodSet, PodVerdict, Snapshot
from fleet.snapshot.constraints import PodAffinityTerm, PodConstraints, TopologySpreadConstraint
from model import labels
from model.fleet import Fleet
from model.loader import load
from model.upstream.selectors import LabelSelectorRequirement
from providers.kube.memory import settle_heap

SEEDS: tuple[int, ...] = ()
"""The lists are given."""
USUAL = (100, 1_000, 10_000, 20_000)
"""Pods of the lists that `make bench` runs."""
ROUNDS = 5
NOW_S = 1_800_000_000.0
_LISTS = SHARED / "data/karpenter_benchmark"
_TYPES = SHARED / "conformance/karpenter/catalogs.json"
_NAMESPACE = "default"
_ZONES = {"test-zone-1": "us-east-1a", "test-zone-2": "us-east-1b", "test-zone-3": "us-east-1c"}
"""Zone of the types -> a name that a NodePool takes."""
_POOL = {
    "apiVersion": "muster.dev/v1alpha1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "serves": ["Pods"],
        "zones": [*_ZONES.values()],
        "capacityTypes": ["spot", "on-demand"],
        "requirements": [{"key": labels.ARCH, "operator": "In", "values": ["amd64"]}],
    },
}
Line = dict[str, float]


def available(pods: int) -> bool:
    """Whether the list of so many pods is there."""
    return (_LISTS / f"diverse_pods_{pods}.json").is_file() and _TYPES.is_file()


def catalog() -> Catalog:
    """The 400 types of Karpenter's benchmark, with their offers."""
    told = json.loads(_TYPES.read_text("utf-8"))["catalogs"]["bench400"]
    sold = [(_type(it), offer) for it in told for offer in it["offerings"]]
    offers = (InstanceOffer(it, _ZONES[offer["zone"]], offer["capacity_type"], offer["price"]) for it, offer in sold)
    return Catalog("test", {it.name: it for it, _ in sold}, tuple(offers), NOW_S, "bench400")


def _type(told: Mapping[str, Any]) -> InstanceType:
    own = {labels.INSTANCE_TYPE: told["name"], labels.ARCH: told["arch"], labels.OS: "linux"}
    has, kept = told["capacity"], told["overhead"]
    capacity = {"cpu": has["cpu_m"], "memory": has["memory_bytes"], "pods": has["pods"]}
    left = {"cpu": has["cpu_m"] - kept["cpu_m"], "memory": has["memory_bytes"] - kept["memory_bytes"]}
    return InstanceType(told["name"], capacity, capacity | left, own, "", 0)


def waiting(pods: int) -> dict[str, Pod]:
    """The pods of a list, which kube-scheduler has found no place for."""
    told = json.loads((_LISTS / f"diverse_pods_{pods}.json").read_text("utf-8"))
    found = (_pod(number, it) for number, it in enumerate(told))
    return {pod.key: pod for pod in found}


def _pod(number: int, told: Mapping[str, Any]) -> Pod:
    requests = {"cpu": told["cpu_m"], "memory": told["mem_mi"] << 20}
    own = (("my-label", told["label"]),)
    shape = PodSet("main", 1, requests, namespace=_NAMESPACE, labels=own, constraints=_constraints(told))
    name = f"pod-{number:05}"
    return Pod(
        f"uid-{name}", _NAMESPACE, name, "", "Pending", requests,
        shape=shape, controlled=True, waits_since_s=NOW_S - 60,
    )  # fmt: skip


def _constraints(told: Mapping[str, Any]) -> PodConstraints:
    if told["kind"] == "generic":
        return PodConstraints()
    meant = (LabelSelectorRequirement(key="my-label", operator="In", values=(told["selector"],)),)
    kind, _, where = told["kind"].partition("_")
    key = {"zone": labels.ZONE, "hostname": labels.HOSTNAME}[where]
    term = PodAffinityTerm(key, meant, frozenset({_NAMESPACE}))
    match kind:
        case "spread":
            return PodConstraints(spread=(TopologySpreadConstraint(key, 1, meant),))
        case "affinity":
            return PodConstraints(affinity=(term,))
        case "antiaffinity":
            return PodConstraints(anti_affinity=(term,))
    raise ValueError(f"pods of kind {told['kind']}")


# -- one pass, and its judge ------------------------------------------------------------------------------------------


def measured(pods: int, rounds: int = ROUNDS) -> Line:
    """Process time of passes of one agent on an empty cluster: the first, and the median of later ones."""
    fleet, seen, known = load({"fleet.yaml": json.dumps(_POOL).encode()}), waiting(pods), catalog()
    first, taken_s = Snapshot(NOW_S, catalog=known), list[float]()
    line: Line = {}
    for number in range(rounds):
        came = {key: replace(pod, uid=f"{pod.uid}-{number}") for key, pod in seen.items()}
        seconds, line = _pass(fleet, replace(first, waiting_pods=came))
        taken_s.append(seconds)
    return {"pods": pods, "first_s": taken_s[0], "again_s": statistics.median(taken_s[1:] or taken_s), **line}


def _pass(fleet: Fleet, seen: Snapshot) -> tuple[float, Line]:
    """Seconds from the snapshot to the NodeClaims, and what was bought. Raises `RuntimeError` where it is not legal."""
    settle_heap()  # as the agent does once it has read its cluster
    began_s = time.process_time()
    actions = cycle.decide(fleet, seen)
    seconds = time.process_time() - began_s
    decided, failed = told_apart(actions)
    opened = [it for it in decided if isinstance(it, OpenClaims)]
    claims = {claim.name: claim for it in opened for claim in it.claims}
    verdicts = {uid: found for it in decided if isinstance(it, NominatePods) for uid, found in it.verdicts.items()}
    if wrong := [*map(str, failed), *_faults(seen, claims, verdicts)]:
        raise RuntimeError("; ".join(wrong[:3]))
    [tally] = (it.tally for it in opened if it.tally is not None)
    apart = sum(bool(pod.shape and pod.shape.constraints.anti_affinity) for pod in seen.waiting_pods.values())
    return seconds, {
        "nodes": len(claims),
        "karpenters_nodes": apart,
        "more_nodes": len(claims) - apart,
        "usd_h": sum(claim.price_usd_h for claim in claims.values()),
        "in_karpenters_order_usd_h": tally.karpenter_usd_h,
        "bound_usd_h": tally.bound_usd_h,
    }


def _faults(seen: Snapshot, claims: Mapping[str, Claim], verdicts: Mapping[str, PodVerdict]) -> Iterator[str]:
    """What is wrong with a purchase, by the list alone: room, pods that keep apart, zones of those near each other."""
    on: dict[str, list[Pod]] = {name: [] for name in claims}
    for pod in seen.waiting_pods.values():
        claim = verdicts.get(pod.uid, PodVerdict()).claim
        if claim not in on:
            yield f"{pod.key} has no machine"
        else:
            on[claim].append(pod)
    near: dict[str, set[str]] = {}
    for name, pods in on.items():
        pool = claims[name].capacity_pool
        used = Counter[str]({"pods": len(pods)})
        for pod in pods:
            used.update(pod.requests)
            if pod.shape is not None and pod.shape.constraints.affinity:
                near.setdefault(str(pod.shape.labels), set()).add(pool.zone)
        room = seen.catalog.types[pool.instance_type].allocatable
        yield from (f"{name}: {amount} of {it}" for it, amount in used.items() if amount > room[it])
        if sum(bool(pod.shape and pod.shape.constraints.anti_affinity) for pod in pods) > 1:
            yield f"{name} has two pods that keep apart"
    yield from (f"{who} are in zones {', '.join(sorted(zones))}" for who, zones in near.items() if len(zones) > 1)


def run() -> dict[str, float]:
    """Process time of the first pass and of later ones, and nodes beside Karpenter's; nothing without the lists."""
    found: dict[str, float] = {}
    for pods in filter(available, USUAL):
        found |= {f"{pods}_{name}": float(value) for name, value in measured(pods).items() if name != "pods"}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 2 where a list is not there."""
    parser = argparse.ArgumentParser(prog="python -m bench.capacity.lists", description=__doc__)
    parser.add_argument("pods", nargs="*", type=int, default=USUAL, help="pods of each list; default: the usual ones")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="passes of each")
    chosen = parser.parse_args(arguments)
    for pods in chosen.pods:
        if not available(pods):
            print(f"no list of {pods} pods in {_LISTS} (MUSTER_SHARED)", file=sys.stderr)
            return 2
        line = {name: round(value, 3) for name, value in measured(pods, chosen.rounds).items()}
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
