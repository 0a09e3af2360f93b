"""`disruption-queue`: replacements that have been bought, and whether the machines that they replace go now."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fleet.actions import Action, OpenClaims, SaveClaim
from fleet.disruption import decide
from fleet.fence import told_apart
from fleet.snapshot import Claim, Launch
from model.fleet import Fleet
from model.pools import pool_hash
from tests.conformance.cases import Case
from tests.conformance.karpenter import standing
from tests.conformance.karpenter.drifting import machine_type, standing_node
from tests.conformance.karpenter.manifests import Declined, Given, Obj, only
from tests.conformance.karpenter.worlds import NOW_S

_POOL = {"name": "default", "consolidation_policy": "WhenEmpty", "consolidate_after": "Never"}
_ROW = ("candidates", "replacements", "commands", "elapsed_minutes", "elapsed_s", "commands_in_queue")
_GONE = ("deleted", "gone", "missing", "vanished")


def run(case: Case) -> dict[str, Any]:
    """One command, or several at once, each for a machine that has drifted and has a pod."""
    given = case["given"]
    if not {"replacements", "commands"} & given.keys():
        raise Declined("commands_in_queue: a replacement has the time limits of any machine")
    only("row", given, _ROW)
    commands = given.get("commands", [given])
    actions = _decided(commands)
    going = {it.claim.name for it in actions if isinstance(it, SaveClaim) and it.claim.disruption is not None}
    anew = {name for it in actions if isinstance(it, OpenClaims) for claim in it.claims for name in claim.replaces}
    done = [f"n{number}" in going for number in range(len(commands))]
    back = [f"n{number}" in anew for number in range(len(commands))]
    if "commands" in given:
        return {"done": done, "rolled_back": back}
    return {
        "command_done": done[0],
        "candidates_deleted": len(going),
        "rolled_back": back[0],
        "replacements_deleted": 0,
    }


def _is_gone(given: Given) -> bool:
    return any(given.get(word) for word in _GONE) or given.get("exists") is False


def _decided(commands: list[Given]) -> list[Action]:
    """What the agent does at this moment."""
    nodes = [standing_node({"name": f"n{n}", "drifted": True, "pods": 1}) for n in range(len(commands))]
    told: Obj = {"node_pools": [{**_POOL, "budgets": [{"nodes": "100%"}]}], "nodes": nodes}
    world, fleet, _ = standing.scene(told, [machine_type(64000)])
    seen = world.seen([])
    new = [claim for n, command in enumerate(commands) for claim in _replacements(seen.claims[f"n{n}"], command, fleet)]
    actions, failed = told_apart(decide(fleet, replace(seen, claims={**seen.claims, **{it.name: it for it in new}})))
    if failed:
        raise failed[0].error
    return actions


def _replacements(old: Claim, command: Given, fleet: Fleet) -> Iterator[Claim]:
    """The machines bought in place of one, as far as they still are there."""
    given = command["replacements"]
    born_with, launch = pool_hash(fleet.node_pools["default"]), Launch(f"for-{old.name}", 0, len(given))
    for n, each in enumerate(given):
        name, ready_s = f"for-{old.name}-{n}", NOW_S - 5.0 if each.get("initialized") else 0.0
        if not _is_gone(each):
            yield replace(
                old, name=name, uid=f"uid-{name}", pool_hash=born_with, launch=launch, instance_id=f"i-{name}",
                node=name, launched_at_s=NOW_S - 60.0, registered_at_s=ready_s, ready_at_s=ready_s,
                replaces=(old.name,),
            )  # fmt: skip
