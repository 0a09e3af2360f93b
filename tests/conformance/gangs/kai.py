"""Rows in KAI-Scheduler's words as a repository of Teams, Queues and PriorityClasses, and as a cluster.

A queue is a Team with its quota and a Queue of the same name; what nobody is promised belongs to a Team above all. That
work of some classes is never evicted, and stays within the quota, no declaration can say: it is work like any other.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fleet.snapshot import Node, Slice
from fleet.snapshot.constraints import PodAffinityTerm, PodConstraints
from fleet.snapshot.sub_groups import RolePods, SubGroup
from model.fleet import Fleet
from model.kinds import RequirementTerm
from model.quantity import canonical_amount
from model.upstream.selectors import LabelSelectorRequirement
from providers.kube.objects.refused_fields import refused_fractions
from tests.conformance.cases import Case
from tests.conformance.gangs.cluster import LONG_S, RowCluster, RowGroup, RowPod, shape
from tests.conformance.gangs.declined import RowDeclined, decline_if, known_words
from tests.support.fleets import FleetBuilder, plain_node

GPU: Final = "nvidia.com/gpu"
HOSTNAME: Final = "kubernetes.io/hostname"
FLAVOR: Final = "machines"
MARK: Final = {"muster.dev/flavor": FLAVOR}
EVERYTHING: Final = "everything"
MEGABYTE: Final = 1_000_000
UNITS: Final = {GPU: ("gpu", 1.0), "cpu": ("cpu", 1.0), "memory": ("memory", float(MEGABYTE))}
"""Resource -> under which word a queue speaks of it, and in what unit."""
STAYS: Final = "-stays"
"""Ends the names of classes whose work is never evicted."""
HERE: Final = {"Running", "Bound", "Binding", "Allocated"}
EVICTING: Final = {"reclaim", "preempt", "consolidation"}
STARTING: Final = {*EVICTING, "allocate"}
SLICES_NOTED: Final = {"nvidia.com/mig-1g.10gb": "1"}
"""The annotation by which a pod asked for slices before there were device plugins for them; rows leave out which."""


STALE_S: Final = 60.0
"""For so long upstream lets a group stand that is short of pods, unless it says otherwise."""
CORES_BELOW: Final = 100


def milli_cpu(asked: float) -> int:
    """What a pod asks for. Upstream wrote cores in most rows and thousandths in some; the small numbers are cores."""
    return round(asked * 1000) if asked < CORES_BELOW else round(asked)


def translate(case: Case) -> RowCluster:
    """Returns a row as declarations and a cluster; RowDeclined where it says what they cannot."""
    known_words("row", case, "expect", "id", "nodes", "podgroups", "pods", "queues", "run", "schema", "semantics",
                "tags", "topologies")  # fmt: skip
    known_words("run", case["run"], "actions", "mode", "rounds_after_match_stable", "rounds_until_match")
    nodes = [_node(node) for node in case["nodes"]]
    groups = [_group(case, group) for group in case["podgroups"]]
    return RowCluster(_fleet(case, nodes), nodes, groups, FLAVOR)


# -- declarations -----------------------------------------------------------------------------------------------------


def _fleet(case: Case, nodes: Sequence[Node]) -> Fleet:
    builder, topology = FleetBuilder(), _topology(case)
    if topology:
        builder.topology(topology["name"], *topology["levels"])
    builder.flavor(FLAVOR, nodeLabels=MARK, **({"topology": topology["name"]} if topology else {}))
    names = sorted({name for node in nodes for name in node.allocatable} - {"pods"})
    totals = {name: sum(node.allocatable.get(name, 0) for node in nodes) for name in names}
    promised = [_quota(case, queue, totals) for queue in case["queues"] if not queue.get("parent")]
    rest = {name: _less(totals[name], [quota.get(name, 0) for quota in promised]) for name in totals}
    builder.team(EVERYTHING, {FLAVOR: _written(rest)} if rest else {}, namespaces=[])
    for queue in case["queues"]:
        _declare(builder, case, queue, totals)
    preempts = bool(EVICTING & set(case["run"]["actions"]))
    for group in case["podgroups"]:
        preemptible = group.get("preemptible", True)
        builder.priority(_class(group), int(group["priority"]), preempts=preempts, preemptible=preemptible)
    return builder.build()


def _topology(case: Case) -> Mapping[str, Any] | None:
    found = case.get("topologies") or []
    decline_if(len(found) > 1, "more than one topology")
    return found[0] if found else None


def _quota(case: Case, queue: Mapping[str, Any], totals: Mapping[str, int]) -> dict[str, int]:
    """Returns what a queue is promised, with all below it; one with unlimited quota is promised every machine.

    A quota of GPUs is one of each MIG profile too, which upstream counts as so many GPUs as it has slices.
    """
    below = [_quota(case, other, totals) for other in case["queues"] if other.get("parent") == queue["name"]]
    found = {}
    for name, total in totals.items():
        said = _said(queue, name, "quota")
        found[name] = said if said is not None else (sum(child[name] for child in below) if below else total)
    return found


def _said(queue: Mapping[str, Any], resource: str, word: str) -> int | None:
    """Returns what a queue says of a resource (`quota`, `limit`); None = unlimited."""
    key, unit = UNITS.get(resource, ("gpu", 1.0))
    said = float((queue.get(key) or {}).get(word, -1))
    per = int(resource.partition("mig-")[2].partition("g.")[0]) if "mig-" in resource else 1
    return round(said * unit) // per if said >= 0 else None


def _declare(builder: FleetBuilder, case: Case, queue: Mapping[str, Any], totals: Mapping[str, int]) -> None:
    known_words("queues", queue, "name", "parent", "gpu", "cpu", "memory")
    name, promised = named(queue["name"]), _quota(case, queue, totals)
    below = [_quota(case, other, totals) for other in case["queues"] if other.get("parent") == queue["name"]]
    own = {cell: _less(amount, [child[cell] for child in below]) for cell, amount in promised.items()}
    quota: dict[str, Any] = {"guaranteed": _written(own)}
    limits = {cell: _said(queue, cell, "limit") for cell in promised}
    most = {cell: max(0, limit - promised[cell]) for cell, limit in limits.items() if limit is not None}
    if most:
        quota["borrowingLimit"] = _written(most)
    builder.team(
        name,
        {FLAVOR: quota} if own else {},
        namespaces=[namespace_of(name)],
        parent=named(queue.get("parent") or EVERYTHING),
        weight=_weight(queue),
    )
    if not below:
        builder.queue(
            name,
            name,
            (FLAVOR,),
            fairness="GuaranteeShare",
            preemption=_policy(case),
            stopPolicy="None" if STARTING & set(case["run"]["actions"]) else "Hold",
            **_patience(case, queue),
        )


def _class(group: Mapping[str, Any]) -> str:
    return f"priority-{int(group['priority'])}{'' if group.get('preemptible', True) else STAYS}"


def _patience(case: Case, queue: Mapping[str, Any]) -> dict[str, Any]:
    """Returns how long gangs of a queue may be short of pods, where a group of it is."""
    short = [group for group in case["podgroups"] if group["queue"] == queue["name"] and group.get("stale_seconds")]
    graces = {float(group.get("staleness_grace_s", STALE_S)) for group in short}
    decline_if(len(graces) > 1, "podgroups.staleness_grace_s: unlike ones in a queue")
    return {"podsReady": {"recoveryTimeout": f"{int(graces.pop())}s"}} if graces else {}


def _weight(queue: Mapping[str, Any]) -> float:
    """Returns its share of what nobody is promised; a share of none is the smallest that can be declared."""
    said = float((queue.get("gpu") or {}).get("over_quota_weight", 1))
    return 1.0 if said < 0 else max(said, 1e-6)


def _written(amounts: Mapping[str, int]) -> dict[str, Any]:
    """Returns amounts as a declaration says them: upstream counts thousandths of a core."""
    return {name: f"{amount}m" if name == "cpu" else amount for name, amount in amounts.items()}


def _less(amount: int, others: Sequence[int]) -> int:
    return max(0, amount - sum(others))


def _policy(case: Case) -> dict[str, Any]:
    """Returns whom gangs may evict, by the actions that are on."""
    actions = case["run"]["actions"]
    return {
        "withinQueue": "LowerPriority" if "preempt" in actions else "Never",
        "reclaim": "Any" if "reclaim" in actions else "Never",
        "moveOthers": "consolidation" in actions,
    }


def namespace_of(queue: str) -> str:
    """Returns the namespace in which the work of a queue is: a namespace belongs to one team."""
    return f"ns-{named(queue)}"


def named(name: str) -> str:
    """Returns a name as Kubernetes takes it."""
    return name.lower().replace("_", "-")


# -- machines ---------------------------------------------------------------------------------------------------------


def _node(node: Mapping[str, Any]) -> Node:
    known_words("nodes", node, "name", "gpus", "cpu", "memory", "gpu_memory_mib", "labels", "max_pods",
                "mig_instances", "mig_strategy", "schedulable_whole_gpus")  # fmt: skip
    room = {
        "cpu": int(node["cpu"]),
        "memory": int(canonical_amount("memory", node["memory"])),
        "pods": int(node.get("max_pods") or 110),
        GPU: int(node.get("schedulable_whole_gpus", node["gpus"])),
        **{profile: int(count) for profile, count in (node.get("mig_instances") or {}).items()},
    }
    return plain_node(node["name"], room, {"kai.scheduler/type": node["name"], **MARK, **(node.get("labels") or {})})


# -- groups -----------------------------------------------------------------------------------------------------------


def _group(case: Case, group: Mapping[str, Any]) -> RowGroup:
    known_words("podgroups", group, "name", "namespace", "queue", "priority", "preemptible", "creation_order",
                "min_member", "sub_groups", "topology_constraint", "stale_seconds", "staleness_grace_s",
                "being_deleted", "age_minutes", "preemption_delay_s")  # fmt: skip
    mine = [pod for pod in case["pods"] if pod["podgroup"] == group["name"]]
    waited_s = 60 * float(group.get("age_minutes") or 0)
    waits = any(pod["state"] == "Pending" for pod in mine) and float(group.get("preemption_delay_s") or 0) > waited_s
    decline_if(waits, "podgroups.preemption_delay_s")
    done = sum(pod["state"] == "Succeeded" for pod in mine)
    tree = group.get("sub_groups") or {}
    roles = {entry["name"]: int(entry["min_member"]) for entry in _leaves(tree)}
    together = sum(roles.values()) if roles else int(group.get("min_member", 1))
    names: dict[str, str] = {}
    pods = [_pod(case, group, pod, names) for pod in mine if pod["state"] not in {"Succeeded", "Failed"}]
    subs = _subs(names)
    choice = _choice(tree, "", pods, subs) if _has_choice(tree, subs) else None
    least = {} if choice else {role: roles[sub] for role, sub in subs.items() if sub in roles}
    return RowGroup(
        group["name"],
        namespace_of(group["queue"]),
        named(group["queue"]),
        _class(group),
        int(group["creation_order"]),
        pods,
        max(0, together - done),
        least,
        choice=choice,
        broken_for_s=float(group.get("stale_seconds") or 0.0),
    )  # fmt: skip


def _has_choice(tree: Mapping[str, Any], subs: Mapping[str, str]) -> bool:
    """Returns whether some sub-groups suffice, or one has unlike pods."""
    return bool(tree) and (_some_suffice(tree) or len({*subs.values()}) < len(subs))


def _some_suffice(tree: Mapping[str, Any]) -> bool:
    least = tree.get("min_sub_group")
    return (least is not None and int(least) < len(_parts(tree))) or any(map(_some_suffice, tree.get("groups") or ()))


def _choice(tree: Mapping[str, Any], name: str, pods: Sequence[RowPod], subs: Mapping[str, str]) -> SubGroup:
    """Returns a tree of sub-groups as it is."""
    parts = [_leaf(entry, pods, subs) for entry in tree.get("pod_sets") or ()]
    parts += [_choice(below, below["name"], pods, subs) for below in tree.get("groups") or ()]
    least = tree.get("min_sub_group")
    return SubGroup(name, parts=tuple(parts), least=len(parts) if least is None else int(least))


def _leaf(entry: Mapping[str, Any], pods: Sequence[RowPod], subs: Mapping[str, str]) -> SubGroup:
    counts = Counter(pod.shape.name for pod in pods if subs[pod.shape.name] == entry["name"])
    roles = tuple(RolePods(role, count) for role, count in sorted(counts.items()))
    return SubGroup(entry["name"], roles, int(entry["min_member"]))


def _parts(tree: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(tree.get("pod_sets") or ()), *(tree.get("groups") or ())]


def _leaves(tree: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = list(tree.get("pod_sets") or ())
    for below in tree.get("groups") or ():
        found += _leaves(below)
    return found


def _subs(names: Mapping[str, str]) -> dict[str, str]:
    """Returns role -> the sub-group it is of."""
    return {role: key.partition("|")[0] for key, role in names.items()}


def _pod(case: Case, group: Mapping[str, Any], pod: Mapping[str, Any], names: dict[str, str]) -> RowPod:
    known_words("pods.requests", pod["requests"], "cpu", "memory", "gpu", "mig")
    known_words("pods", pod, "name", "podgroup", "state", "node", "sub_group", "requests", "pod_labels",
                "task_order_priority", "node_affinity_names", "pod_affinity_topology_key",
                "pod_anti_affinity_topology_key", "legacy_mig")  # fmt: skip
    decline_if(pod.get("legacy_mig") and pod["state"] != "Pending", "pods.legacy_mig that runs")
    asked = pod["requests"]
    requests = {
        "cpu": milli_cpu(asked.get("cpu") or 0),
        "memory": int(canonical_amount("memory", asked.get("memory") or 0)),
        GPU: int(asked.get("gpu") or 0),
        **{profile: int(count) for profile, count in (asked.get("mig") or {}).items()},
    }
    wishes = _wishes(group, pod.get("sub_group") or "")
    hosts = tuple(pod.get("node_affinity_names") or ())
    key = f"{pod.get('sub_group') or ''}|{sorted(requests.items())}|{hosts}|{pod.get('pod_labels')}"
    role = names.setdefault(key, f"set-{len(names)}")
    made = shape(
        role,
        requests,
        namespace=namespace_of(group["queue"]),
        constraints=_neighbours(pod, namespace_of(group["queue"])),
        required_affinity=((RequirementTerm(key=HOSTNAME, operator="In", values=hosts),),) if hosts else (),
        labels=tuple(sorted((pod.get("pod_labels") or {}).items())),
        unsupported=tuple(refused_fractions(SLICES_NOTED, ())) if pod.get("legacy_mig") else (),
        **wishes,
    )
    return RowPod(pod["name"], made, priority=int(pod.get("task_order_priority") or 0), **_place(case, group, pod))


def _place(case: Case, group: Mapping[str, Any], pod: Mapping[str, Any]) -> dict[str, Any]:
    state = pod["state"]
    if state == "Pending":
        return {}
    if state in HERE:
        return {"node": pod["node"]}
    if state in {"Releasing", "StuckInReleasing"}:
        stays = state == "StuckInReleasing"
        returns = case["run"]["mode"] == "rounds" and not group.get("being_deleted") and not stays
        return {"node": pod["node"], "leaving_s": LONG_S if stays else 5.0, "returns": returns}
    raise RowDeclined(f"pods.state {state}")


def _wishes(group: Mapping[str, Any], sub: str) -> dict[str, Any]:
    """Returns the level of the topology that the pods of a sub-group share, and the sets that share one domain."""
    whole = group.get("topology_constraint") or {}
    tree = group.get("sub_groups")
    leaf = next((it for it in _leaves(tree) if it["name"] == sub), {}) if tree else {}
    own = leaf.get("topology_constraint") or {}
    above = tree.get("topology_constraint") if tree else None
    below = any(it.get("topology_constraint") for it in (tree or {}).get("groups") or ())
    decline_if(
        below or (above and whole not in ({}, above)), "sub_groups.topology_constraint of a group within a group"
    )
    if above:
        return _closer(above, own, int(leaf["min_member"]))
    decline_if(whole and own, "topology_constraint of a group and of its sub-groups")
    asked = own or whole
    if not asked:
        return {}
    needed, liked = asked.get("required_level") or "", asked.get("preferred_level") or ""
    return {"required_topology": needed, "preferred_topology": liked, "group": "whole" if whole and tree else ""}


def _closer(above: Mapping[str, Any], own: Mapping[str, Any], size: int) -> dict[str, Any]:
    """Returns the domain that all sub-groups share, and that each stands closer together, where that is asked."""
    known_words("sub_groups.topology_constraint", above, "topology", "required_level")
    known_words("pod_sets.topology_constraint", own, "topology", "required_level")
    slices = (Slice(own["required_level"], size),) if own else ()
    return {"required_topology": above["required_level"], "group": "whole", "slices": slices}


def _neighbours(pod: Mapping[str, Any], namespace: str) -> PodConstraints:
    """Returns affinity to pods with the pod's own labels."""
    chosen = tuple(
        LabelSelectorRequirement(key=key, operator="In", values=(value,))
        for key, value in sorted((pod.get("pod_labels") or {}).items())
    )

    def terms(key: str) -> tuple[PodAffinityTerm, ...]:
        return (PodAffinityTerm(key, chosen, frozenset({namespace})),) if key else ()

    return PodConstraints(
        affinity=terms(pod.get("pod_affinity_topology_key") or ""),
        anti_affinity=terms(pod.get("pod_anti_affinity_topology_key") or ""),
    )
