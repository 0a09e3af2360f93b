"""What must hold for every decision, judged by the case alone.

No gang below its minimum, no machine or GPU given away twice, nobody where it may not be, nobody evicted for nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from model.quantity import canonical_amount
from tests.conformance.cases import Case
from tests.conformance.gangs.kai import milli_cpu
from tests.conformance.gangs.scene import Pods, SceneRound, group_of, pod_name

ACTIVE = {"Running", "Bound", "Binding", "Allocated", "Pipelined"}
HOLDS_NOW = {"Running", "Bound", "Binding", "Allocated", "Releasing", "StuckInReleasing"}
HOLDS_LATER = {"Running", "Bound", "Binding", "Allocated", "Pipelined", "StuckInReleasing"}


def violations(case: Case, played: SceneRound) -> list[str]:
    """Everything wrong with one round."""
    asked = {pod_name(pod): pod for pod in case["pods"]}
    groups = {group["name"]: group for group in case["podgroups"]}
    return [
        *_partial(case, played, asked, groups),
        *_overcommitted(case, played, asked),
        *_misplaced(case, played, asked, groups),
        *_evicted_for_nothing(case, played),
    ]


# -- gangs ------------------------------------------------------------------------------------------------------------


def _partial(case: Case, played: SceneRound, asked: Mapping[str, Any], groups: Mapping[str, Any]) -> Iterator[str]:
    of_group = group_of(case)
    for name, group in groups.items():
        mine = [pod for pod, owner in of_group.items() if owner == name]
        before = {pod for pod in mine if played.before[pod].state in ACTIVE}
        after = {pod for pod in mine if played.after[pod].state in ACTIVE}
        if before == after or not after:
            continue
        if not _is_whole(group, after, asked, played) and (after - before or _is_whole(group, before, asked, played)):
            yield f"{name} is left with {len(after)} pods, fewer than it needs"


def _is_whole(group: Mapping[str, Any], active: set[str], asked: Mapping[str, Any], played: SceneRound) -> bool:
    done = {
        pod for pod, now in played.after.items() if now.state == "Succeeded" and asked[pod]["podgroup"] == group["name"]
    }
    counted = active | done
    if tree := group.get("sub_groups"):
        return _tree_is_whole(tree, counted, asked)
    if len(counted) < int(group.get("min_member") or 0):
        return False
    minima = {role: int(least) for role, least in (group.get("min_task_member") or {}).items()}
    if minima and int(group.get("min_member") or 0) >= sum(minima.values()):
        for role, least in minima.items():
            roles = [pod for pod in counted if (asked[pod].get("role") or _noted_role(asked[pod])) == role]
            if len(roles) < least:
                return False
    return True


def _noted_role(pod: Mapping[str, Any]) -> str:
    return str((pod.get("annotations") or {}).get("volcano.sh/task-spec", ""))


def _tree_is_whole(tree: Mapping[str, Any], active: set[str], asked: Mapping[str, Any]) -> bool:
    parts = [_tree_is_whole(group, active, asked) for group in tree.get("groups") or ()]
    for pod_set in tree.get("pod_sets") or ():
        members = sum(1 for pod in active if asked[pod].get("sub_group") == pod_set["name"])
        parts.append(members >= int(pod_set["min_member"]))
    least = tree.get("min_sub_group")
    return sum(parts) >= (len(parts) if least is None else int(least))


# -- room -------------------------------------------------------------------------------------------------------------


def _overcommitted(case: Case, played: SceneRound, asked: Mapping[str, Any]) -> Iterator[str]:
    for node in case["nodes"]:
        for holds, word in ((HOLDS_NOW, "now"), (HOLDS_LATER, "later")):
            gained = [
                pod
                for pod, now in played.after.items()
                if now.node == node["name"]
                and now.state in holds
                and played.before[pod] != now
                and now.state != "Releasing"
            ]
            if not gained:
                continue
            room = _capacity(case, node)
            used = _used(case, node, played, asked, holds)
            yield from (
                f"{node['name']} has {amount} {name} {word}, of {room.get(name, 0)}"
                for name, amount in used.items()
                if amount > room.get(name, 0) + 1e-6
            )
            yield from _shared_too_much(node, played, asked, holds)


def _capacity(case: Case, node: Mapping[str, Any]) -> dict[str, float]:
    if case["semantics"] == "kai":
        room = {
            "cpu": float(node["cpu"]),
            "memory": float(canonical_amount("memory", node["memory"])),
            "gpu": float(node.get("schedulable_whole_gpus", node["gpus"])),
            "pods": float(node.get("max_pods") or 110),
        }
        room.update({name: float(count) for name, count in (node.get("mig_instances") or {}).items()})
        for piece in case.get("resource_slices") or ():
            if piece.get("NodeName") == node["name"]:
                room["claims"] = room.get("claims", 0.0) + float(piece["Count"])
        return room
    return {"pods": 110.0, **{name: float(canonical_amount(name, text)) for name, text in node["allocatable"].items()}}


def _used(
    case: Case, node: Mapping[str, Any], played: SceneRound, asked: Mapping[str, Any], holds: set[str]
) -> dict[str, float]:
    used: dict[str, float] = {}
    devices, claims = set[str](), set[str]()
    for pod, now in played.after.items():
        if now.node != node["name"] or now.state not in holds:
            continue
        if asked[pod]["requests"].get("gpu_fraction") or asked[pod]["requests"].get("gpu_memory_mib"):
            devices |= set(now.devices)
        claims |= set(asked[pod].get("resource_claims") or () if case["semantics"] == "kai" else ())
        for name, amount in _amounts(case, asked[pod]["requests"]).items():
            used[name] = used.get(name, 0.0) + amount
        used["pods"] = used.get("pods", 0.0) + 1
    for claim in case.get("resource_claims") or ():
        if claim.get("Name") in claims:
            used["claims"] = used.get("claims", 0.0) + float(claim.get("Count") or 0)
    if devices:
        used["gpu"] = used.get("gpu", 0.0) + len(devices)
    return {name: amount for name, amount in used.items() if amount}


def _amounts(case: Case, requests: Mapping[str, Any]) -> dict[str, float]:
    if case["semantics"] != "kai":
        return {name: float(canonical_amount(name, text)) for name, text in requests.items()}
    found = {
        "cpu": float(milli_cpu(requests.get("cpu") or 0)),
        "memory": float(canonical_amount("memory", requests.get("memory") or 0)),
        "gpu": float(requests.get("gpu") or 0),
    }
    found.update({name: float(count) for name, count in (requests.get("mig") or {}).items()})
    return found


def _shared_too_much(
    node: Mapping[str, Any], played: SceneRound, asked: Mapping[str, Any], holds: set[str]
) -> Iterator[str]:
    parts: dict[str, float] = {}
    for pod, now in played.after.items():
        requests = asked[pod]["requests"]
        if now.node != node["name"] or now.state not in holds:
            continue
        part = float(requests.get("gpu_fraction") or 0)
        part += float(requests.get("gpu_memory_mib") or 0) / float(node.get("gpu_memory_mib") or 100)
        for device in now.devices:
            parts[device] = parts.get(device, 0.0) + part
        if part and not now.devices and now.state in {"Binding", "Pipelined"}:
            yield f"{pod} has no GPU to share"
    yield from (
        f"GPU {device} of {node['name']} is shared out {part} times"
        for device, part in parts.items()
        if part > 1 + 1e-5
    )


# -- places -----------------------------------------------------------------------------------------------------------


def _misplaced(case: Case, played: SceneRound, asked: Mapping[str, Any], groups: Mapping[str, Any]) -> Iterator[str]:
    nodes = {node["name"]: node for node in case["nodes"]}
    for pod, now in played.after.items():
        if now.state not in {"Binding", "Pipelined"} or played.before[pod] == now:
            continue
        if now.node not in nodes:
            yield f"{pod} is on {now.node}, which does not exist"
            continue
        labels, wanted = nodes[now.node].get("labels") or {}, asked[pod]
        if any(labels.get(key) != value for key, value in (wanted.get("node_selector") or {}).items()):
            yield f"{pod} is on {now.node}, which its selector does not match"
        names = wanted.get("node_affinity_names")
        if names and now.node not in names:
            yield f"{pod} is on {now.node}, which is not one of {names}"
        shard = case.get("nodes_in_shard")
        if shard is not None and case.get("sharding_mode") == "hard" and now.node not in shard:
            yield f"{pod} is on {now.node}, outside its shard"
    yield from _scattered(case, played.before, played.after, asked, groups)


def _scattered(
    case: Case, before: Pods, after: Pods, asked: Mapping[str, Any], groups: Mapping[str, Any]
) -> Iterator[str]:
    """Groups that gained pods and are not inside one domain of the level they require."""
    levels = {topology["name"]: topology["levels"] for topology in case.get("topologies") or ()}
    labels = {node["name"]: node.get("labels") or {} for node in case["nodes"]}
    for name, group in groups.items():
        for members, constraint in _constraints(group):
            mine = [
                pod
                for pod, entry in asked.items()
                if entry["podgroup"] == name and (members is None or entry.get("sub_group") in members)
            ]
            gained = [pod for pod in mine if after[pod].state in {"Binding", "Pipelined"} and before[pod] != after[pod]]
            known = levels.get(constraint["topology"], [])
            if not gained or constraint["required_level"] not in known:
                continue
            upto = known[: known.index(constraint["required_level"]) + 1]
            domains = {
                tuple(labels[after[pod].node].get(level) for level in upto)
                for pod in mine
                if after[pod].state in ACTIVE and after[pod].node in labels
            }
            if len(domains) > 1 or any(None in domain for domain in domains):
                yield f"{name} is spread over {sorted(map(str, domains))}"


def _constraints(group: Mapping[str, Any]) -> Iterator[tuple[set[str] | None, Mapping[str, Any]]]:
    """Constraints that require a level, with the sub-groups they are for; None = all."""
    constraint = group.get("topology_constraint") or {}
    if constraint.get("required_level"):
        yield None, constraint
    if tree := group.get("sub_groups"):
        yield from _tree_constraints(tree)


def _tree_constraints(tree: Mapping[str, Any]) -> Iterator[tuple[set[str] | None, Mapping[str, Any]]]:
    for pod_set in tree.get("pod_sets") or ():
        constraint = pod_set.get("topology_constraint") or {}
        if constraint.get("required_level"):
            yield {pod_set["name"]}, constraint
    for group in tree.get("groups") or ():
        constraint = group.get("topology_constraint") or {}
        if constraint.get("required_level"):
            yield {pod_set["name"] for pod_set in group.get("pod_sets") or ()}, constraint
        yield from _tree_constraints(group)


# -- evictions --------------------------------------------------------------------------------------------------------


def _evicted_for_nothing(case: Case, played: SceneRound) -> Iterator[str]:
    of_group = group_of(case)
    placed = {
        of_group[pod]
        for pod, now in played.after.items()
        if now.state in {"Binding", "Pipelined"} and played.before[pod] != now
    }
    for eviction in played.decision.evicted:
        if eviction.reason == "stale":
            continue
        beneficiary = eviction.beneficiary.rpartition("/")[2]
        if beneficiary not in placed or beneficiary == of_group[eviction.pod]:
            yield f"{eviction.pod} is evicted for {eviction.beneficiary or 'nobody'}, which is not placed"
