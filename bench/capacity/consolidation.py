"""Consolidation from snapshot to proposals: the plan for many machines, and every step of it packed anew.

`python -m bench.capacity.consolidation`: CPU seconds of one pass that has something to say. The fleet is bought in
Karpenter's order for CPU pods and pods with one or two GPUs, then two pods of five leave (`repack.left`); every pod, or
in the scene `gangs` every group of pods, is a gang of its own that has a checkpoint ten minutes old. `propose_s` is the
whole pass, of which `search_s` is the translation and the plan and the rest what the production packer takes for all of
its steps; `validate_s` is the pass a quarter of a minute later, in which they are carried out.
"""

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from bench.capacity import repack
from bench.capacity.mixes import REGION, inference, machines
from fleet import disruption as disrupt
from fleet.actions import OpenClaims, SaveClaim
from fleet.disruption.consolidation import Consolidation
from fleet.disruption.context import DisruptionContext
from fleet.disruption.multi_node import suggestions
from fleet.disruption.pending import VALIDATE_AFTER_S
from fleet.offerings.offerings import Offering, offerings_now
from fleet.optimize.consolidate import ConsolidationProblem, ConsolidationRules, PodBlock, PodClass
from fleet.snapshot import Catalog, Claim, Gang, GangState, JobRef, Launch, Node, Pin, PodSet, Snapshot
from model import labels
from model.fleet import Fleet
from model.kinds import RequirementTerm
from model.loader import load
from model.pools import pool_hash
from providers.aws.catalog import package_catalog

SEEDS = (0, 1, 2)
SCENES = (
    repack.RepackScene("departures", 1_350, SEEDS, inference),
    repack.RepackScene("departures", 13_500, SEEDS[:1], inference),
    repack.RepackScene("gangs", 1_350, SEEDS, inference),
    repack.RepackScene("gangs", 13_500, SEEDS[:1], inference),
)
ZONE = f"{REGION}a"
NOW_S = 1_800_000_000.0
_FLEET = """
apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata: {name: plain}
spec:
  requirements:
  - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}
  - {key: karpenter.k8s.aws/instance-generation, operator: Gt, values: ["2"]}
  - {key: kubernetes.io/arch, operator: In, values: [amd64]}
  - {key: karpenter.k8s.aws/instance-gpu-count, operator: DoesNotExist}
  zones: [us-east-1a]
  disruption: {budgets: [{nodes: 100%}]}
---
apiVersion: muster.dev/v1alpha1
kind: NodePool
metadata: {name: gpu}
spec:
  requirements:
  - {key: karpenter.k8s.aws/instance-category, operator: In, values: [g, p]}
  - {key: karpenter.k8s.aws/instance-generation, operator: Gt, values: ["2"]}
  - {key: kubernetes.io/arch, operator: In, values: [amd64]}
  gpu: {minCount: 1}
  zones: [us-east-1a]
  disruption: {budgets: [{nodes: 100%}]}
---
apiVersion: muster.dev/v1alpha1
kind: Team
metadata: {name: all}
spec:
  namespaces: [all]
  quotas:
    plain: {guaranteed: {cpu: 1000000}}
    gpu: {guaranteed: {cpu: 1000000, nvidia.com/gpu: 100000}}
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {name: all}
spec: {team: all, flavors: [plain, gpu]}
"""


@dataclass(frozen=True, slots=True)
class _ConsolidationOutcome:
    """One seed; parts of the bill in percent."""

    machines: int
    gangs: int
    proposals: int
    saving_pct: float
    propose_s: float
    search_s: float
    validate_s: float


def run() -> dict[str, float]:
    """Medians over the seeds."""
    found: dict[str, float] = {}
    for scene in SCENES:
        for name, value in measured(scene).items():
            found[f"{scene.name}_{scene.pods}_{name}"] = value
    return found


def measured(scene: repack.RepackScene) -> dict[str, float]:
    """Medians over the seeds."""
    outcomes = [_outcome(*world(scene, seed)) for seed in scene.seeds]
    return {name: statistics.median(getattr(it, name) for it in outcomes) for name in _ConsolidationOutcome.__slots__}


def _outcome(fleet: Fleet, snapshot: Snapshot) -> _ConsolidationOutcome:
    spare = list(snapshot.claims.values())
    suggestions(DisruptionContext.of(fleet, snapshot), spare[:2])  # what is kept about a fleet, and what is imported
    context = DisruptionContext.of(fleet, snapshot)
    began_s = time.process_time()
    Consolidation().propose(context)
    propose_s = time.process_time() - began_s
    began_s = time.process_time()
    suggestions(DisruptionContext.of(fleet, snapshot), spare)
    search_s = time.process_time() - began_s
    later = replace(snapshot, now_s=snapshot.now_s + VALIDATE_AFTER_S, outlook=context.outlook)
    began_s = time.process_time()
    actions = disrupt.decide(fleet, later)
    validate_s = time.process_time() - began_s
    proposed = context.outlook.proposals
    begun = {it.claim.name for it in actions if isinstance(it, SaveClaim)}
    begun |= {name for it in actions if isinstance(it, OpenClaims) for name in it.claims[0].replaces}
    if begun != {name for it in proposed for name in it.claims}:
        raise RuntimeError("not all that was proposed is carried out on a fleet that stands still")
    bill = sum(it.price_usd_h for it in spare)
    saving = 100 * sum(it.saving_usd_h for it in proposed) / bill
    return _ConsolidationOutcome(
        len(spare), len(snapshot.gangs), len(proposed), saving, propose_s, search_s, validate_s
    )


# -- the world --------------------------------------------------------------------------------------------------------


def world(scene: repack.RepackScene, seed: int) -> tuple[Fleet, Snapshot]:
    """The fleet and its cluster, a while after the pods have left."""
    fleet, catalog = _declared(), _catalog()
    offerings = offerings_now(fleet, Snapshot(NOW_S, catalog=catalog))
    by_type = {it.offer.instance_type.name: it for pool in fleet.node_pools.values() for it in offerings.of(pool)}
    problem = repack.left(scene, seed, ConsolidationRules())
    claims = {it.name: _claim(it.name, by_type[it.kind]) for it in problem.standing}
    nodes = {it.name: _node(claims[it.name], by_type[it.kind]) for it in problem.standing}
    gangs = {it.uid: it for block in problem.blocks for it in _gangs(problem, block)}
    return fleet, Snapshot(NOW_S, nodes=nodes, claims=claims, gangs=gangs, catalog=catalog)


@cache
def _declared() -> Fleet:
    return load({"fleet.yaml": _FLEET.encode()})


@cache
def _catalog() -> Catalog:
    whole = package_catalog(REGION).catalog
    sold = [it for it in whole.offers if it.zone == ZONE and it.capacity_type == "on-demand"]
    prices = {it.kind.name: it.kind.price_usd_h for it in machines()}
    priced = [(it, prices.get(it.instance_type.name)) for it in sold]
    return replace(whole, offers=tuple(replace(it, price_usd_h=price) for it, price in priced if price is not None))


def _claim(name: str, offering: Offering) -> Claim:
    offer, born_s = offering.offer, NOW_S - 9000.0
    return Claim(
        name, name, offering.pool.name, pool_hash(offering.pool), offer.pool_key, offer.price_usd_h, Launch(name, 0, 1),
        born_s, resources=offering.allocatable, instance_id=f"i-{name}", node=name, launched_at_s=born_s,
        registered_at_s=born_s + 100.0, ready_at_s=born_s + 200.0,
    )  # fmt: skip


def _node(claim: Claim, offering: Offering) -> Node:
    carried = {**offering.labels, labels.HOSTNAME: claim.name, labels.NODE_CLAIM: claim.name}
    where = f"aws:///{ZONE}/{claim.instance_id}"
    return Node(claim.name, claim.name, where, carried, (), dict(offering.allocatable), True, False, NOW_S - 8900.0)


def _gangs(problem: ConsolidationProblem, block: PodBlock) -> Iterator[Gang]:
    """A block that moves whole is one gang; of any other every pod is."""
    classes = {it.name: it for it in problem.classes}
    places = [(machine, name, pods) for machine, held in block.places.items() for name, pods in held.items()]
    if block.whole:
        yield _gang(block.name, classes[places[0][1]], [(machine, pods) for machine, _, pods in places])
        return
    for machine, name, pods in places:
        for number in range(pods):
            yield _gang(f"{block.name}/{number}", classes[name], [(machine, 1)])


def _gang(name: str, asked: PodClass, places: Sequence[tuple[str, int]]) -> Gang:
    count = sum(pods for _, pods in places)
    requests = {resource: amount for resource, amount in asked.requests.items() if resource != "pods"}
    models = sorted({it.model for it in machines() if it.kind.name in asked.kinds})
    if gpus := requests.pop("gpu", 0):
        requests[labels.GPU_RESOURCE] = gpus
    terms = ((RequirementTerm(key=labels.INSTANCE_GPU_NAME, operator="In", values=tuple(models)),),) if gpus else ()
    pods = PodSet("main", count, requests, required_affinity=terms)
    facts: dict[str, Any] = {
        "flavors": {"main": ("gpu" if gpus else "plain",)},
        "pins": tuple(sorted(Pin("main", machine, machine, held) for machine, held in places)),
        "quota_reserved_at_s": NOW_S - 8000.0,
        "admitted_at_s": NOW_S - 8000.0,
        "pods_ready": True,
        "last_checkpoint_s": NOW_S - 600.0,
    }
    waits = Gang(name, "all", name, JobRef("batch/v1", "Job", "all", name, name), "all", "", 0, (pods,), NOW_S - 9000.0)
    return waits.moved(GangState.ADMITTED, "PodsReady", "", NOW_S - 8000.0, **facts)


def main() -> None:
    """Measure and print."""
    for scene in SCENES:
        numbers = {name: round(value, 2) for name, value in measured(scene).items()}
        line = {"scene": scene.name, "bought_for": scene.pods, "seeds": len(scene.seeds), **numbers}
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
