"""Rows in Volcano's words as Volcano's own queues, which the agent reads, and as a cluster.

Plugins have no switch in a repository: what a plugin alone would bring to bear (priorities, shares) is declared where
the plugin is on. HyperNodes become node labels, one a tier.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fleet.quota.volcano import ANY_MACHINE
from fleet.snapshot import NO_QUOTAS, Node, Slice, SubGroupPolicy
from fleet.snapshot.constraints import (
    PodAffinityTerm,
    PodConstraints,
    PreferredNodes,
    PreferredPods,
)
from fleet.snapshot.device_claims import NO_CLAIMS, pods_with_claims
from fleet.snapshot.elastic_parts import PREEMPTABLE
from fleet.snapshot.gangs import ClaimRef
from model.fleet import Fleet
from model.kinds import RequirementTerm
from model.quantity import canonical_resources, plus
from model.upstream.durations import go_duration_s
from model.upstream.selectors import LabelSelectorRequirement
from model.upstream.volcano import STOP_POLICY, VolcanoQueue
from tests.conformance.cases import Case
from tests.conformance.gangs.cluster import RowCluster, RowGroup, RowPod, shape
from tests.conformance.gangs.declined import decline_if, known_words
from tests.conformance.gangs.gate import as_asked, quotas_of
from tests.conformance.gangs.kai import FLAVOR, MARK, named
from tests.conformance.gangs.row_volumes import claims_of, volumes_of
from tests.support.fleets import FleetBuilder, plain_node

TOP_TIER_NAME: Final = "volcano.sh/hypercluster"
"""What the tier above all declared ones is called."""
TIER: Final = "hypernode.row/tier-"
MEEK: Final = "-never"
"""Ends the names of classes that evict nobody."""
NO_TIER: Final = "hypernode.row/none"
SHARD: Final = "row/shard"
"""Label of the nodes that the scheduler of the row has to itself; with hard sharding the others are cordoned."""
IN_SHARD: Final = PreferredNodes(1, (RequirementTerm(key=SHARD, operator="Exists"),))
TASK: Final = "volcano.sh/task-spec"
KINDS: Final = ("PodAffinity", "PodAntiAffinity", "NodeAffinity")
REQUIRED: Final = "RequiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "PreferredDuringSchedulingIgnoredDuringExecution"
EVICTING: Final = {
    "reclaim": "reclaimable",
    "gangreclaim": "reclaimable",
    "preempt": "preemptable",
    "gangpreempt": "preemptable",
}
"""Actions that evict, and the extension point at which plugins name whom."""
STARTING: Final = {*EVICTING, "allocate", "backfill"}
BOUNDS: Final = "resourcequota"
"""The plugin that asks about pods before they are there."""
REJECTER: Final = "test-rejecter"
"""A plugin of upstream's tests that turns the first group away at the gate; rows leave out whom."""
PLUGINS: Final = frozenset({
    "gang", "priority", "conformance", "predicates", "proportion", "capacity", "drf", "nodeorder", "binpack",
    "network-topology-aware", "resource-strategy-fit", BOUNDS, "sla", REJECTER,
})  # fmt: skip
MOST_CLAIMS: Final = 64
HIERARCHY: Final = "volcano.sh/hierarchy"
WEIGHTS: Final = "volcano.sh/hierarchy-weights"
ALLOCATED: Final = "volcano.sh/job-allocated-hypernode"
"""What the scheduler notes of a group that runs; where its pods are says the same."""


class Plugins:
    """The plugins that are registered, and which of their extension points are on."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        registered = run.get("registered_plugins")
        named = [plugin for tier in run["tiers"] for plugin in tier]
        there = [plugin for plugin in named if registered is None or plugin["name"] in registered]
        self.in_order = [plugin["name"] for plugin in there]
        self._arguments = {plugin["name"]: plugin.get("arguments") or {} for plugin in there}
        self._on = {plugin["name"]: set(plugin.get("enabled") or ()) for plugin in there}

    def __contains__(self, name: str) -> bool:
        return name in self._on

    def on(self, name: str, point: str) -> bool:
        """Whether the plugin has its say at this point."""
        return point in self._on.get(name, ())

    @property
    def waiting_s(self) -> float | None:
        """How long groups may wait until capacity is kept for them (plugin `sla`)."""
        said = self._arguments.get("sla", {}).get("sla-waiting-time")
        return go_duration_s(said) if said else None

    def any_on(self, point: str) -> bool:
        """Whether any plugin has its say at this point: where none names victims, upstream evicts nobody."""
        return any(point in points for points in self._on.values())


def translate(case: Case) -> RowCluster:
    """Returns a row as declarations and a cluster; RowDeclined where it says what they cannot."""
    known_words("row", case, "expect", "id", "nodes", "podgroups", "pods", "queues", "run", "schema", "semantics",
                "tags", "hypernodes", "hypernodes_by_tier", "hypernode_nodes", "priority_classes",
                "nodes_in_shard", "sharding_mode", "resource_claims", "pvcs", "pvs", "storage_classes",
                "resource_quotas", "device_classes", "resource_slices")  # fmt: skip
    plugins = Plugins(case["run"])
    for name in plugins.in_order:
        decline_if(name not in PLUGINS, f"plugin {name}")
    asked = STARTING & set(case["run"]["actions"]) or "podgroup_phase" in case["expect"]
    decline_if(not asked, "run.actions: only the gate before the queue (enqueue), and nothing is said of it")
    nodes = [_node(case, node) for node in case["nodes"]]
    groups = [_group(case, group, place, plugins) for place, group in enumerate(case["podgroups"])]
    known = {node.name for node in nodes}
    decline_if(any(pod.node and pod.node not in known for group in groups for pod in group.pods), "pods.node unknown")
    flavor = FLAVOR if case.get("hypernodes_by_tier") else ANY_MACHINE
    fleet = _fleet(case, nodes, groups, plugins)
    return RowCluster(
        fleet, nodes, groups, flavor, volumes_of(case), quotas_of(case) if BOUNDS in plugins else NO_QUOTAS
    )


# -- declarations -----------------------------------------------------------------------------------------------------


def _fleet(case: Case, nodes: Sequence[Node], groups: Sequence[RowGroup], plugins: Plugins) -> Fleet:
    """Returns Volcano's queues as they are; with hypernodes, Queues of ours, whose flavor may have a topology."""
    builder = FleetBuilder()
    for name, value in sorted({(group.priority_class, group.priority) for group in groups}):
        builder.priority(name, value, preempts=not name.endswith(MEEK))
    queues = [_queue(queue, plugins) for queue in _with_parents(case, plugins) if queue["name"] != "root"]
    if not case.get("hypernodes_by_tier"):
        return replace(builder.build(), volcano_queues={queue.name: queue for queue in queues})
    builder.topology("hypernodes", *_levels(case)).flavor(FLAVOR, nodeLabels=MARK, topology="hypernodes")
    totals: dict[str, int] = {}
    for node in nodes:
        totals = plus(totals, node.allocatable)
    builder.team("root", {FLAVOR: totals}, namespaces=sorted({group.namespace for group in groups}))
    for queue in queues:
        spec = queue.spec
        decline_if(spec.capability or spec.deserved or spec.guarantee.resource, "amounts of a queue beside hypernodes")
        builder.queue(queue.name, team="root", flavors=(FLAVOR,))
    return builder.build()


def _levels(case: Case) -> list[str]:
    tiers = sorted((int(tier) for tier in case["hypernodes_by_tier"]), reverse=True)
    return [f"{TIER}{tier}" for tier in (tiers[0] + 1, *tiers)]


def _with_parents(case: Case, plugins: Plugins) -> list[Mapping[str, Any]]:
    """Returns the queues; where annotations say the hierarchy, with the queues above them, that `spec.parent` names."""
    if not plugins.on("drf", "hierarchy"):
        return list(case["queues"])
    found: dict[str, Mapping[str, Any]] = {}
    for queue in case["queues"]:
        notes = queue.get("annotations") or {}
        known_words("queues.annotations", notes, HIERARCHY, WEIGHTS)
        path = notes.get(HIERARCHY, "root").split("/")
        weights = [int(weight) for weight in notes.get(WEIGHTS, "1").split("/")]
        decline_if(len(path) != len(weights), "queues.annotations: another number of weights than of queues")
        names = ["-".join(path[: n + 1]) for n in range(len(path))]
        for above, name, weight in zip(names[:-2], names[1:-1], weights[1:-1], strict=True):
            found.setdefault(name, {"name": name, "parent": above, "weight": weight})
        plain = {key: value for key, value in queue.items() if key != "annotations"}
        found[queue["name"]] = {**plain, "parent": names[max(0, len(names) - 2)], "weight": weights[-1]}
    return list(found.values())


def _queue(queue: Mapping[str, Any], plugins: Plugins) -> VolcanoQueue:
    known_words("queues", queue, "name", "weight", "state", "parent", "capability", "deserved", "guarantee",
                "priority", "reclaimable")  # fmt: skip
    above = named(queue.get("parent") or "root")
    spec: dict[str, Any] = {"weight": max(1, int(queue.get("weight") or 1)), "parent": above}
    spec["priority"] = int(queue.get("priority") or 0)
    spec["reclaimable"] = queue.get("reclaimable") is not False
    if "capacity" in plugins:
        spec["deserved"] = queue.get("deserved") or {}
    if "capacity" in plugins or "proportion" in plugins:
        spec["capability"] = queue.get("capability") or {}
        spec["guarantee"] = {"resource": queue.get("guarantee") or {}}
    stopped = {STOP_POLICY: "Hold"} if queue.get("state", "Open") != "Open" else {}
    metadata = {"name": named(queue["name"]), "annotations": stopped}
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": metadata}
    return VolcanoQueue.model_validate({**body, "spec": spec})


# -- machines ---------------------------------------------------------------------------------------------------------


def _node(case: Case, node: Mapping[str, Any]) -> Node:
    known_words("nodes", node, "name", "allocatable", "labels")
    room = {"pods": 110, **canonical_resources(node["allocatable"])}
    shard = {SHARD: "mine"} if node["name"] in (case.get("nodes_in_shard") or ()) else {}
    labels = {**MARK, **(node.get("labels") or {}), **_tiers(case).get(node["name"], {}), **shard}
    made = plain_node(node["name"], room, labels)
    return replace(made, unschedulable=case.get("sharding_mode") == "hard" and not shard)


def _tiers(case: Case) -> dict[str, dict[str, str]]:
    """Returns node -> a label for each tier; where no hypernode of a tier has it, the one below stands for it."""
    tiers = {int(tier): names for tier, names in (case.get("hypernodes_by_tier") or {}).items()}
    members = case.get("hypernode_nodes") or {}
    found: dict[str, dict[str, str]] = {node["name"]: {} for node in case["nodes"]}
    below = {name: f"node.{name}" for name in found}
    for tier in sorted(tiers):
        for name in _listed(tiers[tier]):
            below.update({node: name for node in _listed(members.get(name) or ()) if node in below})
        for node, carried in found.items():
            carried[f"{TIER}{tier}"] = below[node]
    if tiers:
        for carried in found.values():
            carried[f"{TIER}{max(tiers) + 1}"] = "all"
    return found


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _within(case: Case, wish: Mapping[str, Any] | None, plugins: Plugins) -> dict[str, Any]:
    """Returns the label whose value pods share, or would like to."""
    if not wish or "network-topology-aware" not in plugins:
        return {}
    tiers = sorted(int(tier) for tier in case.get("hypernodes_by_tier") or {})
    if wish.get("mode") != "hard":
        return {"preferred_topology": f"{TIER}{tiers[0]}"} if tiers else {}
    named_tiers = {entry.get("tier_name"): int(entry["tier"]) for entry in case.get("hypernodes") or ()}
    name, top = wish.get("highest_tier_name"), max(tiers, default=0) + 1
    named_tiers[TOP_TIER_NAME] = top
    most = named_tiers.get(name, -1) if name else int(wish.get("highest_tier_allowed", top))
    allowed = [tier for tier in (*tiers, top) if tier <= most]
    return {"required_topology": f"{TIER}{allowed[-1]}" if allowed else NO_TIER}


# -- groups -----------------------------------------------------------------------------------------------------------


def _group(case: Case, group: Mapping[str, Any], place: int, plugins: Plugins) -> RowGroup:
    known_words("podgroups", group, "namespace", "name", "queue", "min_member", "min_task_member", "phase", "priority",
                "priority_class", "priority_class_unregistered", "min_resources", "network_topology",
                "sub_group_policy", "annotations")  # fmt: skip
    known_words("podgroups.annotations", group.get("annotations") or {}, ALLOCATED)
    decline_if((group.get("priority_class") or "").startswith("system-"), "podgroups.priority_class system-critical")
    decline_if(group["namespace"] == "kube-system", "podgroups.namespace kube-system")
    mine = [
        pod
        for pod in case["pods"]
        if pod["podgroup"] == group["name"] and pod["id"].split("/")[0] == group["namespace"]
    ]
    names: dict[str, str] = {}
    pods = _in_one_domain([_pod(case, group, pod, names, plugins) for pod in mine or as_asked(group)])
    some = _some_suffice(group, names)
    minima = {} if some else _minima(group, names, Counter(pod.shape.name for pod in pods))
    together = int(group.get("min_member") or 0)
    evicts = any(plugins.any_on(EVICTING[action]) for action in case["run"]["actions"] if action in EVICTING)
    meek = not evicts or any(pod.get("preemption_policy") == "Never" for pod in mine)
    value = int(group.get("priority") or 0) if "priority" in plugins else 0
    return RowGroup(
        group["name"],
        group["namespace"],
        named(group["queue"]),
        f"class-{value}{MEEK if meek else ''}".replace("--", "-minus-"),
        place,
        pods,
        max(together, sum(minima.values())) if group.get("sub_group_policy") else together,
        minima,
        policies=[_sub_groups(policy) for policy in group["sub_group_policy"]] if some else (),
        priority=value,
        later=not mine or (BOUNDS in plugins and bool(case.get("resource_quotas"))),
        active=not (REJECTER in plugins and place == 0),
        sla_waiting_s=plugins.waiting_s,
    )


def _in_one_domain(pods: Sequence[RowPod]) -> list[RowPod]:
    """Returns the pods with slices as large as their sub-groups, all pods of which share the domain."""
    counts = Counter(pod.shape.name for pod in pods)
    whole = {
        pod.shape.name: tuple(replace(each, size=counts[pod.shape.name]) for each in pod.shape.slices) for pod in pods
    }
    return [replace(pod, shape=replace(pod.shape, slices=whole[pod.shape.name])) for pod in pods]


def _minima(group: Mapping[str, Any], names: Mapping[str, str], pods: Mapping[str, int]) -> dict[str, int]:
    """Returns role -> fewest pods: of the tasks, or of each sub-group where all of them are needed.

    Unlike pods of a task are several roles; that is the same where the task needs all of them.
    """
    parts = {role: key.partition("|")[0] for key, role in names.items()}
    unlike = len(set(parts.values())) < len(parts)
    if policies := group.get("sub_group_policy"):
        return {role: size for policy in policies for role, size in _needed(policy, parts).items()}
    minima = {task: int(count) for task, count in (group.get("min_task_member") or {}).items()}
    if int(group.get("min_member") or 0) < sum(minima.values()):
        return {}
    there = Counter[str]()
    for role, task in parts.items():
        there[task] += pods[role]
    some = any(there[task] > least for task, least in minima.items())
    decline_if(unlike and some, "tasks of unlike pods")
    return {role: pods[role] if unlike else minima[task] for role, task in parts.items() if task in minima}


def _some_suffice(group: Mapping[str, Any], names: Mapping[str, str]) -> bool:
    """Returns whether some sub-groups of a policy suffice, or one has unlike pods."""
    parts, policies = [key.partition("|")[0] for key in names], group.get("sub_group_policy") or ()
    found = [[part for part in parts if part.startswith(f"{policy['name']}:")] for policy in policies]
    unlike = any(len({*mine}) < len(mine) for mine in found)
    least = [int(policy.get("min_sub_groups") or 0) for policy in policies]
    return unlike or any(0 < few < len(mine) for few, mine in zip(least, found, strict=True))


def _sub_groups(policy: Mapping[str, Any]) -> SubGroupPolicy:
    keys = tuple(policy.get("match_label_keys") or ())
    return SubGroupPolicy(policy["name"], keys, int(policy.get("size") or 1), int(policy.get("min_sub_groups") or 0))


def _needed(policy: Mapping[str, Any], parts: Mapping[str, str]) -> dict[str, int]:
    """Returns role -> pods of a sub-group, for the sub-groups that a policy requires: all of them, or none."""
    mine = [role for role, part in parts.items() if part.startswith(f"{policy['name']}:")]
    return dict.fromkeys(mine, int(policy.get("size") or 1)) if policy.get("min_sub_groups") else {}


def _pod(
    case: Case, group: Mapping[str, Any], pod: Mapping[str, Any], names: dict[str, str], plugins: Plugins
) -> RowPod:
    known_words("pods", pod, "id", "podgroup", "phase", "node", "role", "requests", "preemptable_label",
                "node_selector", "affinity", "labels", "annotations", "preemption_policy", "priority",
                "resource_claims", "volumes")  # fmt: skip
    decline_if(pod["phase"] not in {"Pending", "Running", "Bound"}, f"pods.phase {pod['phase']}")
    requests = {name: amount for name, amount in canonical_resources(pod["requests"]).items() if amount}
    constraints, affinity = _constraints(group["namespace"], pod), pod.get("affinity") or {}
    if case.get("sharding_mode") == "soft":
        constraints = replace(constraints, preferred_nodes=(*constraints.preferred_nodes, IN_SHARD))
    stays = {PREEMPTABLE: "false"} if str(pod.get("preemptable_label", "true")).lower() == "false" else {}
    selector = dict(pod.get("node_selector") or {})
    part = _part(group, pod)
    constraints = replace(constraints, claims=claims_of(pod))
    key = (
        f"{part}|{sorted(requests.items())}|{selector}|{affinity}|{pod.get('labels') if affinity else ''}|{stays}"
        f"|{constraints.claims}"
    )
    role = names.setdefault(key, f"set-{len(names)}")
    made = shape(
        role,
        requests,
        namespace=group["namespace"],
        constraints=constraints,
        node_selector=selector,
        required_affinity=_node_terms((affinity.get("NodeAffinity") or {}).get(REQUIRED) or {}),
        resource_claims=tuple(map(_claim, range(MOST_CLAIMS), pod.get("resource_claims") or ())),
        labels=tuple(sorted({**(pod.get("labels") or {}), **_task(pod), **stays}.items())),
        **_topology_of(case, group, pod, plugins),
    )
    made = pods_with_claims(made, NO_CLAIMS) if made.resource_claims else made
    node = pod.get("node") or "" if pod["phase"] != "Pending" else ""
    return RowPod(pod["id"], made, node, priority=int(pod.get("priority") or 0))


def _claim(place: int, said: Mapping[str, Any]) -> ClaimRef:
    """Returns a claim that a pod names: gangs are refused it, whatever its class and the devices are."""
    known_words("pods.resource_claims", said, "Name", "ResourceClaimName")
    return ClaimRef(f"spec.resourceClaims[{place}]", said["Name"], "", said["ResourceClaimName"])


def _task(pod: Mapping[str, Any]) -> dict[str, str]:
    return {TASK: pod["role"]} if pod.get("role") else {}


def _part(group: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    """Returns the sub-group or task that a pod is of."""
    if group.get("sub_group_policy"):
        policy = _policy_of(group, pod)
        values = "/".join(_label(pod, key) for key in policy.get("match_label_keys") or ())
        return f"{policy['name']}:{values}" if policy else ""
    return _label(pod, TASK) if group.get("min_task_member") else ""


def _policy_of(group: Mapping[str, Any], pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the first policy whose labels a pod has all of; an empty one where there is none."""
    for policy in group.get("sub_group_policy") or ():
        if all(_label(pod, key) for key in policy.get("match_label_keys") or ()):
            found: Mapping[str, Any] = policy
            return found
    return {}


def _label(pod: Mapping[str, Any], key: str) -> str:
    noted = {**(pod.get("annotations") or {}), **(pod.get("labels") or {})}
    return str((pod.get("role") if key == TASK else None) or noted.get(key) or "")


def _topology_of(case: Case, group: Mapping[str, Any], pod: Mapping[str, Any], plugins: Plugins) -> dict[str, Any]:
    """Returns the domain of the whole group and, where sub-groups have to stay closer together, slices within it."""
    whole = _within(case, group.get("network_topology"), plugins)
    policy = _policy_of(group, pod)
    own = _within(case, policy.get("network_topology"), plugins)
    closer = own.get("required_topology")
    if not whole.get("required_topology") or not closer:
        return own if closer or not whole else {**whole, "group": "whole"}
    if closer == whole["required_topology"]:
        return {**whole, "group": "whole"}
    return {**whole, "group": "whole", "slices": (Slice(closer, 1),)}


def _constraints(namespace: str, pod: Mapping[str, Any]) -> PodConstraints:
    affinity = pod.get("affinity") or {}
    beside, apart, nodes = (affinity.get(kind) or {} for kind in KINDS)
    liked = [(1, wish) for wish in beside.get(PREFERRED) or ()] + [(-1, wish) for wish in apart.get(PREFERRED) or ()]
    return PodConstraints(
        affinity=tuple(_term(namespace, wish) for wish in beside.get(REQUIRED) or ()),
        anti_affinity=tuple(_term(namespace, wish) for wish in apart.get(REQUIRED) or ()),
        preferred_nodes=tuple(
            PreferredNodes(int(wish["Weight"]), _terms(wish["Preference"])) for wish in nodes.get(PREFERRED) or ()
        ),
        preferred_pods=tuple(
            PreferredPods(sign * int(wish["Weight"]), _term(namespace, wish["PodAffinityTerm"])) for sign, wish in liked
        ),
    )


def _term(namespace: str, wish: Mapping[str, Any]) -> PodAffinityTerm:
    selector = wish.get("LabelSelector") or {}
    chosen = [
        LabelSelectorRequirement(key=key, operator="In", values=(value,))
        for key, value in sorted((selector.get("MatchLabels") or {}).items())
    ]
    chosen += [
        LabelSelectorRequirement(key=term["Key"], operator=term["Operator"], values=tuple(term.get("Values") or ()))
        for term in selector.get("MatchExpressions") or ()
    ]
    return PodAffinityTerm(wish["TopologyKey"], tuple(chosen), frozenset({namespace}))


def _node_terms(required: Mapping[str, Any]) -> tuple[tuple[RequirementTerm, ...], ...]:
    return tuple(_terms(terms) for terms in required.get("NodeSelectorTerms") or ())


def _terms(terms: Mapping[str, Any]) -> tuple[RequirementTerm, ...]:
    return tuple(
        RequirementTerm(key=term["Key"], operator=term["Operator"], values=tuple(term.get("Values") or ()))
        for term in terms.get("MatchExpressions") or ()
    )
