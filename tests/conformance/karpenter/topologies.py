"""What Karpenter's order makes of rows of `topology`, in one pass or in several on the same cluster.

The agent's answer (`spreading`) is compared with it where a row does not say how many pods run or what that costs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.reference.karpenter.buy import (
    KarpenterNode,
    MachineType,
    PlannedClaim,
    PodSpecification,
    Resident,
    SchedulingResults,
    Spread,
    WaitingPod,
    solve,
)
from model import labels
from model.requirements import Requirements
from tests.conformance.cases import Case
from tests.conformance.karpenter import catalogs
from tests.conformance.karpenter.worlds import types_of

OWN = {"test": "test"}
"""What pods are labelled with where a case says no more."""
Given = Mapping[str, Any]


def run(case: Case) -> dict[str, Any]:
    """All steps in order: which pods found a place, and what the machines cost."""
    given = case["given"]
    machines = catalogs.machines(types_of(given.get("instance_types", {"catalog": "default"}), case["folder"]))
    cluster = _TopologyCluster(machines)
    for number, each in enumerate(given.get("existing_pods", ())):
        told = {labels.ZONE: each.get("zone"), labels.CAPACITY_TYPE: each.get("capacity_type")}
        carried = {label: value for label, value in told.items() if value}
        cluster.stand(f"existing-{number}", carried, each.get("labels", OWN), each.get("count", 1))
    key = _key(given)
    for step in given.get("steps", [given]):
        if "delete_pods_not_in" in step:
            cluster.empty_all_but(step["delete_pods_not_in"])
        else:
            cluster.play(
                _pools(given, step), [WaitingPod(f"default/{cluster.serial()}", ask) for ask in _asks(step, given, key)]
            )
    return {
        "scheduled": cluster.scheduled,
        "cost_usd_h": cluster.cost_usd_h(),
    }


def _key(given: Given) -> str:
    """What the pods are spread over. Steps that do not say it narrow the pool down by it."""
    if "spread" in given:
        return str(_listed(given["spread"])[0]["topology_key"])
    told = [each["key"] for step in given.get("steps", ()) for each in step.get("node_pool_requirements", ())]
    return str(told[0]) if told else labels.ZONE


def _pools(given: Given, step: Given) -> list[Given]:
    pools = given.get("node_pools") or [{}]
    if "node_pool_requirements" not in step:
        return pools
    return [{**pool, "requirements": step["node_pool_requirements"]} for pool in pools]


# -- pods -------------------------------------------------------------------------------------------------------------


def _asks(step: Given, given: Given, key: str) -> Iterable[PodSpecification]:
    pods = step["pods"]
    if isinstance(pods, int):
        pods = [{}] * pods
    for each in pods:
        own = {"app": each["app"]} if "app" in each else OWN
        told = each.get("spread", None if "pods" in given and isinstance(given["pods"], list) else True)
        spreads = _spreads(step, given, told, key, own)
        arch = {labels.ARCH: each["arch"]} if "arch" in each else {}
        yield PodSpecification(
            {"cpu": each.get("cpu_m", step.get("pod_cpu_m", 0))},
            labels=own,
            selector=Requirements.from_labels(arch),
            spreads=spreads,
        )


def _listed(spread: Any) -> list[Given]:
    return spread if isinstance(spread, list) else [spread]


def _spreads(step: Given, given: Given, told: Any, key: str, own: Mapping[str, str]) -> tuple[Spread, ...]:
    """The constraints of a pod: its own, those of the case, or the usual one, as the step changes it."""
    if isinstance(told, dict | list):
        return tuple(_spread(each, own) for each in _listed(told))
    said = given.get("spread", {"topology_key": key, "max_skew": 1} if told else [])
    changed = {word: step[word] for word in _WORDS if word in step}
    return tuple(_spread({**each, **changed}, own) for each in _listed(said))


_WORDS = ("max_skew", "min_domains", "when_unsatisfiable", "node_affinity_policy", "node_taints_policy")


def _spread(said: Given, own: Mapping[str, str]) -> Spread:
    return Spread(
        said["topology_key"],
        _selector(said, own),
        said["max_skew"],
        said.get("when_unsatisfiable", "DoNotSchedule") == "DoNotSchedule",
        said.get("min_domains"),
        said.get("node_affinity_policy", "Honor") == "Honor",
        said.get("node_taints_policy", "Ignore") == "Honor",
    )


def _selector(said: Given, own: Mapping[str, str]) -> Requirements | None:
    if "label_selector" in said:
        return None if said["label_selector"] is None else Requirements.from_labels(said["label_selector"])
    match = said.get("match")
    return Requirements.from_labels(match if isinstance(match, dict) else own)


# -- the cluster ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _TopologyCluster:
    machines: tuple[MachineType, ...]
    nodes: dict[str, KarpenterNode] = field(default_factory=dict)
    fresh: dict[str, KarpenterNode] = field(default_factory=dict)
    """The nodes bought, as they came."""
    scheduled: list[bool] = field(default_factory=list)
    _serials: int = 0

    def serial(self) -> str:
        self._serials += 1
        return f"pod-{self._serials:03}"

    def stand(self, name: str, carried: Mapping[str, str], worn: Mapping[str, str], count: int) -> None:
        """A node that is full with `count` pods."""
        self.nodes[name] = KarpenterNode(name, carried, {}, residents=(Resident(worn, count=count),))

    def empty_all_but(self, zone: str) -> None:
        """Delete the pods of other zones; their nodes stay."""
        for name, node in self.fresh.items():
            if node.labels.get(labels.ZONE) != zone:
                self.nodes[name] = node

    def play(self, pools: list[Given], pods: list[WaitingPod]) -> None:
        """Provision and bind."""
        templates = catalogs.templates(pools, self.machines)
        outcome = solve(pods, templates, self.nodes.values())
        asks = {pod.name: pod.ask for pod in pods}
        self._seat(outcome, asks)
        for claim in outcome.claims:
            node = self._launched(claim, f"node-{len(self.fresh):03}")
            self.fresh[node.name] = node
            self.nodes[node.name] = _with_pods(node, [asks[name] for name in claim.pods])
        missing = {name for each in outcome.unplaced for name in each.pods}
        self.scheduled += [pod.name not in missing for pod in pods]

    def cost_usd_h(self) -> float:
        """What the machines bought cost."""
        prices = {
            (machine.name, offer.zone, offer.capacity_type): offer.price_usd_h
            for machine in self.machines
            for offer in machine.offerings
        }
        found = (node.labels for node in self.fresh.values())
        return sum(prices[it[labels.INSTANCE_TYPE], it[labels.ZONE], it[labels.CAPACITY_TYPE]] for it in found)

    def _seat(self, outcome: SchedulingResults, asks: Mapping[str, PodSpecification]) -> None:
        for name, pods in outcome.seats.items():
            self.nodes[name] = _with_pods(self.nodes[name], [asks[each] for each in pods])

    def _launched(self, claim: PlannedClaim, name: str) -> KarpenterNode:
        """The machine that comes: the cheapest type, at its cheapest offering the claim allows."""
        machine = next(each for each in self.machines if each.name == claim.options[0].machine)
        wanted = claim.requirements
        offers = [
            each
            for each in machine.offerings
            if each.available
            and wanted.of(labels.ZONE).has(each.zone)
            and wanted.of(labels.CAPACITY_TYPE).has(each.capacity_type)
        ]
        offer = min(offers, key=lambda each: (each.price_usd_h, each.zone, each.capacity_type))
        carried = {**(wanted & machine.requirements).labels(), labels.ZONE: offer.zone}
        return KarpenterNode(name, {**carried, labels.CAPACITY_TYPE: offer.capacity_type}, machine.allocatable)


def _with_pods(node: KarpenterNode, asks: list[PodSpecification]) -> KarpenterNode:
    free = dict(node.free)
    for ask in asks:
        for name, amount in (*ask.requests.items(), ("pods", 1)):
            free[name] = free.get(name, 0) - amount
    more = tuple(Resident(ask.labels, ask.namespace) for ask in asks)
    return KarpenterNode(node.name, node.labels, free, node.taints, node.initialized, (*node.residents, *more))
