"""`consolidation`: machines that stand, and what a round of disruption does with them."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from bench.reference.karpenter.disrupt.ground import DisruptionWorld
from bench.reference.karpenter.disrupt.moves import ReplacementPurchase
from bench.reference.karpenter.disrupt.rounds import DisruptionRound, decide, is_idle
from fleet.disruption.budgets import allowed
from fleet.reasons import Reason
from model import labels
from tests.conformance.cases import Case
from tests.conformance.karpenter import catalogs
from tests.conformance.karpenter.scenes import NOW, ground


def run(case: Case) -> dict[str, Any]:
    """One round, without the wait before it is carried out."""
    given, expect = case["given"], case["expect"]
    scene = ground(given, catalogs.machines(given.get("instance_types", {"catalog": "default"}), case["folder"]))
    found = decide(scene)
    bought = [purchase for move in found.moves for purchase in move.bought]
    going = sorted(name for move in found.moves for name in move.names)
    launched = [name for purchase in bought for name in purchase.types]
    budgets = _budgets(scene)
    return {
        "action": ("replace" if bought else "delete") if going else "none",
        "commands": len(found.moves),
        "terminated": going,
        "terminated_count": len(going),
        "launched": [purchase.types[0] for purchase in bought],
        "launch_must_not_include": [name for name in expect.get("launch_must_not_include", ()) if name not in launched],
        "launch_instance_types_exactly": launched,
        "launch_instance_type": launched[0] if len(launched) == 1 else launched,
        "launch_zone": _only(bought, labels.ZONE),
        "launch_capacity_type": _only(bought, labels.CAPACITY_TYPE),
        "event_contains": list(found.refusals.values()),
        "skew_after": _skew(scene, found, labels.ZONE),
        "emptiness_candidate": any(is_idle(m, scene.pools[m.pool]) for m in scene.machines if m.pool in scene.pools),
        "allowed_disruptions": sum(budgets.values()),
        "allowed_disruptions_per_pool": next(iter(budgets.values())) if len(set(budgets.values())) == 1 else budgets,
    }


def _only(bought: list[ReplacementPurchase], key: str) -> Any:
    """The value all purchases have for a label, of the machines they may become or as it is required."""
    found = set()
    for purchase in bought:
        values = {value for machine in purchase.choice.machines for value in _values(purchase, machine.name, key)}
        found |= values
    return next(iter(found)) if len(found) == 1 else sorted(found)


def _values(purchase: ReplacementPurchase, name: str, key: str) -> set[str]:
    [machine] = [each for each in purchase.choice.machines if each.name == name]
    told = {labels.ZONE: "zone", labels.CAPACITY_TYPE: "capacity_type"}[key]
    return {getattr(offer, told) for offer in purchase.choice.offers(machine)}


def _skew(scene: DisruptionWorld, found: DisruptionRound, key: str) -> list[int]:
    """Pods in each domain afterwards, fewest first; those that move onto a machine that stands are not asked for."""
    going = {name for move in found.moves for name in move.names}
    counts: Counter[str] = Counter()
    for machine in scene.machines:
        if machine.name not in going:
            counts[machine.node.labels[key]] += len(machine.pods)
    for move in found.moves:
        for purchase in move.bought:
            counts[str(_only([purchase], key))] += len(purchase.pods)
    return sorted(counts.values())


def _budgets(scene: DisruptionWorld) -> Mapping[str, int]:
    found = {}
    for name, pool in sorted(scene.pools.items()):
        mine = [machine for machine in scene.machines if machine.pool == name and machine.post.initialized]
        leaving = sum(1 for machine in mine if machine.post.leaving)
        found[name] = allowed(pool, Reason.EMPTY, len(mine), leaving, NOW)
    return found
