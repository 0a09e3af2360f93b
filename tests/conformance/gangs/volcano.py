"""Cases in Volcano's words (volcano-sh/volcano at ed72c7c8) as scenes."""

from collections.abc import Mapping, Sequence
from typing import Any

from fleet.snapshot import PodSet
from model.kinds import RequirementTerm
from model.quantity import canonical_resources
from tests.conformance.cases import Case
from tests.conformance.gangs.scene import GangScene, Pods
from tests.reference.session.deserving import DeservingLedger
from tests.reference.session.dominance import DominanceLedger
from tests.reference.session.ledger import SessionLedger
from tests.reference.session.policy import Policy, Rank, SessionStage
from tests.reference.session.together import Together
from tests.reference.session.values import (
    Crew,
    CrewGroup,
    Neighbour,
    PodState,
    SessionMachine,
    SessionPod,
    SessionTopology,
    Squad,
    Within,
)
from tests.reference.session.weighted import LedgerRules, ShareQueue, WeightedLedger

STAGES = {
    "enqueue": SessionStage.ENQUEUE,
    "allocate": SessionStage.ALLOCATE,
    "backfill": SessionStage.BACKFILL,
    "reclaim": SessionStage.RECLAIM,
    "gangreclaim": SessionStage.RECLAIM,
    "preempt": SessionStage.PREEMPT,
    "gangpreempt": SessionStage.PREEMPT,
}
RANKS = {"priority": Rank.PRIORITY, "gang": Rank.UNREADY, "drf": Rank.SHARE}
STATES = {
    "Pending": PodState.PENDING,
    "Running": PodState.RUNNING,
    "Bound": PodState.RUNNING,
    "Binding": PodState.RUNNING,
    "Releasing": PodState.TERMINATING,
    "Pipelined": PodState.NOMINATED,
    "Succeeded": PodState.SUCCEEDED,
    "Failed": PodState.FAILED,
}
SYSTEM_CLASSES = {"system-cluster-critical", "system-node-critical"}
HYPERNODES = "hypernodes"
TOP_TIER_NAME = "volcano.sh/hypercluster"
"""What the tier above all declared ones is called."""
TASK = "volcano.sh/task-spec"
ENDLESS = 1 << 40
NOWHERE = {"muster.dev/unsatisfiable": "true"}


class Plugins:
    """The plugins that are registered, and which of their extension points are on."""

    def __init__(self, run: Mapping[str, Any]) -> None:
        registered = run.get("registered_plugins")
        self.in_order: list[str] = []
        self._on: dict[str, set[str]] = {}
        self._arguments: dict[str, Mapping[str, Any]] = {}
        for plugin in (plugin for tier in run["tiers"] for plugin in tier):
            name = plugin["name"]
            if registered is None or name in registered:
                self.in_order.append(name)
                self._on[name] = set(plugin.get("enabled") or ())
                self._arguments[name] = plugin.get("arguments") or {}

    def __contains__(self, name: str) -> bool:
        return name in self._on

    def on(self, name: str, point: str) -> bool:
        """Whether the plugin has its say at this point."""
        return point in self._on.get(name, ())

    def anywhere(self, point: str) -> bool:
        """Whether any plugin has."""
        return any(point in points for points in self._on.values())

    def argument(self, name: str, key: str) -> Any:
        """An argument of a plugin, or None."""
        return self._arguments.get(name, {}).get(key)


def build(case: Case, pods: Pods, queued: frozenset[str]) -> GangScene:
    """The scene of a case with its pods as they are now."""
    plugins = Plugins(case["run"])
    squads = [_squad(case, group, place, pods, queued, plugins) for place, group in enumerate(case["podgroups"])]
    queues = [_queue(queue) for queue in case["queues"]]
    machines = [_machine(case, node, plugins) for node in case["nodes"]]
    resources = _resources(machines, squads, queues)
    return GangScene(
        machines, squads, _ledger(queues, resources, squads, plugins), _policy(case, plugins), [_topology(case)]
    )


def _policy(case: Case, plugins: Plugins) -> Policy:
    starving = plugins.anywhere("jobStarving")
    stages = [STAGES[action] for action in case["run"]["actions"] if action in STAGES]
    if not starving or not plugins.anywhere("reclaimable"):
        stages = [stage for stage in stages if stage is not SessionStage.RECLAIM]
    if not starving or not plugins.anywhere("preemptable"):
        stages = [stage for stage in stages if stage is not SessionStage.PREEMPT]
    return Policy(
        stages=tuple(stages),
        ranks=tuple(RANKS[name] for name in plugins.in_order if name in RANKS and plugins.on(name, "jobOrder")),
        keep_cores=plugins.on("gang", "preemptable") or plugins.on("gang", "reclaimable"),
        surplus_evicts=not plugins.on("gang", "jobStarving"),
        lower_priority_only=plugins.on("priority", "preemptable"),
        smaller_share_only=plugins.on("drf", "preemptable"),
        moves=False,
        backfill_only=True,
    )


# -- queues -----------------------------------------------------------------------------------------------------------


def _queue(queue: Mapping[str, Any]) -> ShareQueue:
    notes = queue.get("annotations") or {}
    path = tuple((notes.get("volcano.sh/hierarchy") or "").split("/")[1:])
    weights = tuple(float(weight) for weight in (notes.get("volcano.sh/hierarchy-weights") or "").split("/")[1:])
    return ShareQueue(
        queue["name"],
        queue.get("parent") or "",
        int(queue.get("weight") or 0),
        int(queue.get("priority") or 0),
        queue.get("state", "Open") == "Open",
        queue.get("reclaimable") is not False,
        canonical_resources(queue.get("capability") or {}),
        canonical_resources(queue.get("deserved") or {}),
        canonical_resources(queue.get("guarantee") or {}),
        path,
        weights[: len(path)],
    )


def _ledger(
    queues: Sequence[ShareQueue], resources: Sequence[str], squads: Sequence[Squad], plugins: Plugins
) -> SessionLedger:
    ledgers: list[SessionLedger] = []
    parents = {queue.name: "" for queue in queues}
    for name in plugins.in_order:
        if name == "drf" and plugins.on(name, "hierarchy") and plugins.on(name, "queueOrder"):
            ledgers.append(DominanceLedger(queues, resources, squads))
        elif name == "proportion":
            ledgers.append(WeightedLedger(queues, resources, _rules(plugins, name)))
        elif name == "capacity":
            levels = int(plugins.argument(name, "ancestorReclaimLevel") or 0)
            tree = DeservingLedger(
                queues, resources, _rules(plugins, name), tree=plugins.on(name, "hierarchy"), levels=levels
            )
            parents = tree.parents
            ledgers.append(tree)
    return Together(resources, parents, ledgers)


def _rules(plugins: Plugins, name: str) -> LedgerRules:
    return LedgerRules(
        orders=plugins.on(name, "queueOrder"),
        limits_start=plugins.on(name, "allocatable"),
        limits_turn=name == "proportion" and plugins.on(name, "overused"),
        limits_claim=plugins.on(name, "preemptive"),
        limits_loss=plugins.on(name, "reclaimable"),
        limits_gate=plugins.on(name, "jobEnqueued"),
    )


def _resources(machines: Sequence[SessionMachine], squads: Sequence[Squad], queues: Sequence[ShareQueue]) -> list[str]:
    names = {"cpu", "memory", "pods"}
    for machine in machines:
        names |= machine.capacity.keys()
    for queue in queues:
        names |= queue.capability.keys() | queue.deserved.keys() | queue.guarantee.keys()
    for squad in squads:
        names |= squad.floor.keys()
        for part in squad.root.parts:
            crews = part.parts if isinstance(part, CrewGroup) else (part,)
            names |= {
                name for crew in crews if isinstance(crew, Crew) for pod in crew.pods for name in pod.template.requests
            }
    return sorted(names)


# -- machines ---------------------------------------------------------------------------------------------------------


def _machine(case: Case, node: Mapping[str, Any], plugins: Plugins) -> SessionMachine:
    capacity = {"pods": 110, **canonical_resources(node["allocatable"])}
    for name in {name for claim in case.get("resource_claims") or () for name in _asked_of(claim)}:
        capacity[name] = ENDLESS
    if plugins.argument("predicates", "predicate.DynamicResourceAllocationEnable"):
        capacity.update(_devices(case, node["name"]))
    shard, mode = case.get("nodes_in_shard"), case.get("sharding_mode")
    outside = shard is not None and node["name"] not in shard
    return SessionMachine(
        node["name"],
        capacity,
        node.get("labels") or {},
        open=not (outside and mode == "hard"),
        rank=int(outside and mode == "soft"),
    )


def _devices(case: Case, node: str) -> dict[str, int]:
    """Devices of each class; a class that looks at attributes matches no device that has none."""
    found = {}
    for cls in case.get("device_classes") or ():
        picky = bool((cls.get("Spec") or {}).get("Selectors"))
        count = sum(
            1
            for piece in case.get("resource_slices") or ()
            if piece["Spec"].get("NodeName") == node
            for device in piece["Spec"]["Devices"]
            if device.get("Attributes") or not picky
        )
        found[f"deviceclass/{cls['ObjectMeta']['Name']}"] = count
    return found


def _asked_of(claim: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for request in claim["Spec"]["Devices"]["Requests"]:
        exactly = request.get("Exactly") or {}
        name = f"deviceclass/{exactly.get('DeviceClassName')}"
        found[name] = found.get(name, 0) + int(exactly.get("Count") or 1)
    return found


def _topology(case: Case) -> SessionTopology:
    """A level for each tier, the widest first, and one above them all. Where a node has no hypernode of a tier, the

    one below stands for it.
    """
    tiers = {int(tier): names for tier, names in (case.get("hypernodes_by_tier") or {}).items()}
    members = case.get("hypernode_nodes") or {}
    levels, domains = [], []
    below = {node["name"]: f"node/{node['name']}" for node in case["nodes"]}
    for tier in sorted(tiers):
        here = dict(below)
        for name in _listed(tiers[tier]):
            here.update({node: name for node in _listed(members.get(name) or ()) if node in here})
        levels.append(f"tier/{tier}")
        domains.append(here)
        below = here
    top = max(tiers, default=0) + 1
    levels.append(f"tier/{top}")
    domains.append({node["name"]: "top" for node in case["nodes"]})
    return SessionTopology(HYPERNODES, tuple(reversed(levels)), tuple(reversed(domains)))


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _within(case: Case, wish: Mapping[str, Any] | None, plugins: Plugins) -> Within | None:
    if not wish or "network-topology-aware" not in plugins:
        return None
    tiers = sorted(int(tier) for tier in case.get("hypernodes_by_tier") or {})
    narrowest = f"tier/{tiers[0]}" if tiers else ""
    if wish.get("mode") != "hard":
        return Within(HYPERNODES, preferred=narrowest)
    known = [*tiers, max(tiers, default=0) + 1]
    named = {entry.get("tier_name"): int(entry["tier"]) for entry in case.get("hypernodes") or ()}
    named[TOP_TIER_NAME] = known[-1]
    name = wish.get("highest_tier_name")
    most = named.get(name, -1) if name else int(wish.get("highest_tier_allowed", known[-1]))
    allowed = [tier for tier in known if tier <= most]
    return Within(HYPERNODES, f"tier/{allowed[-1]}" if allowed else "tier/none", narrowest)


# -- squads -----------------------------------------------------------------------------------------------------------


def _squad(
    case: Case, group: Mapping[str, Any], place: int, pods: Pods, queued: frozenset[str], plugins: Plugins
) -> Squad:
    name = f"{group['namespace']}/{group['name']}"
    found = [
        (pod, _pod(case, group, pod, pods, plugins))
        for pod in case["pods"]
        if pod["podgroup"] == group["name"] and pod["id"].split("/")[0] == group["namespace"]
    ]
    gated = "enqueue" in case["run"]["actions"] and group.get("phase") == "Pending"
    return Squad(
        name=name,
        queue=group["queue"],
        root=_root(case, group, found, plugins),
        priority=int(group.get("priority") or 0),
        created=place,
        queued=not gated or name in queued,
        floor=canonical_resources(group.get("min_resources") or {}),
    )


def _root(
    case: Case, group: Mapping[str, Any], pods: Sequence[tuple[Mapping[str, Any], SessionPod]], plugins: Plugins
) -> CrewGroup:
    within = _within(case, group.get("network_topology"), plugins)
    done = sum(1 for _, pod in pods if pod.state is PodState.SUCCEEDED)
    least = max(0, int(group.get("min_member") or 0) - done)
    if policies := group.get("sub_group_policy"):
        parts: list[Crew | CrewGroup] = []
        rest = list(pods)
        for policy in policies:
            part, rest = _policy_part(case, policy, rest, plugins)
            parts.append(part)
        if rest:
            parts.append(Crew("", tuple(pod for _, pod in rest), 0))
        return CrewGroup("", tuple(parts), len(parts), least, within)
    minima = {role: int(count) for role, count in (group.get("min_task_member") or {}).items()}
    if minima and least >= sum(minima.values()):
        crews: dict[str, list[SessionPod]] = {role: [] for role in minima}
        for given, pod in pods:
            crews.setdefault(_role(given), []).append(pod)
        roles = tuple(Crew(role, tuple(found), minima.get(role, 0)) for role, found in crews.items())
        return CrewGroup("", roles, len(roles), least, within)
    return CrewGroup("", (Crew("", tuple(pod for _, pod in pods), least),), 1, within=within)


def _policy_part(
    case: Case, policy: Mapping[str, Any], pods: Sequence[tuple[Mapping[str, Any], SessionPod]], plugins: Plugins
) -> tuple[CrewGroup, list[tuple[Mapping[str, Any], SessionPod]]]:
    """One crew for every combination of label values; pods without the labels are left for the next policy."""
    within = _within(case, policy.get("network_topology"), plugins)
    keys, crews, rest = policy.get("match_label_keys") or (), dict[tuple[str, ...], list[SessionPod]](), []
    for given, pod in pods:
        values = tuple(_label(given, key) for key in keys)
        if all(values):
            crews.setdefault(values, []).append(pod)
        else:
            rest.append((given, pod))
    size = int(policy.get("size") or 1)
    # Without hypernodes as objects upstream finds no domain for pods that join a sub-group that has started.
    most = None if case.get("hypernodes") or not (within and within.required) else size
    parts = tuple(Crew("/".join(values), tuple(found[:most]), size, within) for values, found in crews.items())
    return CrewGroup(policy["name"], parts, int(policy.get("min_sub_groups") or 0)), rest


def _label(pod: Mapping[str, Any], key: str) -> str:
    if key == TASK:
        return _role(pod)
    value: str = (pod.get("labels") or {}).get(key, "")
    return value


def _role(pod: Mapping[str, Any]) -> str:
    role: str = pod.get("role") or (pod.get("labels") or {}).get(TASK) or (pod.get("annotations") or {}).get(TASK) or ""
    return role


def _pod(case: Case, group: Mapping[str, Any], pod: Mapping[str, Any], pods: Pods, plugins: Plugins) -> SessionPod:
    now = pods[pod["id"]]
    requests = {name: amount for name, amount in canonical_resources(pod["requests"]).items() if amount}
    claims = {claim["ObjectMeta"]["Name"]: claim for claim in case.get("resource_claims") or ()}
    possible = True
    for use in pod.get("resource_claims") or ():
        claim = claims.get(use.get("ResourceClaimName"))
        possible = possible and claim is not None
        for name, count in (_asked_of(claim) if claim else {}).items():
            requests[name] = requests.get(name, 0) + count
    affinity = pod.get("affinity") or {}
    critical = group.get("priority_class") in SYSTEM_CLASSES or group["namespace"] == "kube-system"
    return SessionPod(
        name=pod["id"],
        template=PodSet(
            "pod",
            1,
            requests,
            node_selector=(pod.get("node_selector") or {}) if possible else NOWHERE,
            required_affinity=_node_affinity(affinity.get("NodeAffinity") or {}),
        ),
        state=STATES[now.state],
        node=now.node,
        evictable=str(pod.get("preemptable_label", "true")) != "false" and not ("conformance" in plugins and critical),
        may_evict=pod.get("preemption_policy") != "Never",
        priority=int(pod["priority"]) if "priority" in pod else None,
        labels=pod.get("labels") or {},
        neighbours=_neighbours(affinity),
    )


def _node_affinity(affinity: Mapping[str, Any]) -> tuple[tuple[RequirementTerm, ...], ...]:
    required = affinity.get("RequiredDuringSchedulingIgnoredDuringExecution") or {}
    return tuple(
        tuple(
            RequirementTerm(key=term["Key"], operator=term["Operator"], values=tuple(term.get("Values") or ()))
            for term in terms.get("MatchExpressions") or ()
        )
        for terms in required.get("NodeSelectorTerms") or ()
    )


def _neighbours(affinity: Mapping[str, Any]) -> tuple[Neighbour, ...]:
    found = []
    for kind, apart in (("PodAffinity", False), ("PodAntiAffinity", True)):
        wishes = (affinity.get(kind) or {}).get("RequiredDuringSchedulingIgnoredDuringExecution") or ()
        for wish in wishes:
            selector = wish.get("LabelSelector") or {}
            labels = {key: frozenset({value}) for key, value in (selector.get("MatchLabels") or {}).items()}
            for term in selector.get("MatchExpressions") or ():
                if term["Operator"] == "In":
                    labels[term["Key"]] = frozenset(term["Values"])
            found.append(Neighbour(wish["TopologyKey"], labels, apart))
    return tuple(found)
