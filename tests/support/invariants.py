"""What must hold at every write of a simulated fleet, whatever goes wrong: collected on the way, asserted by `check`.

Written against the objects of the cluster and the books of the cloud alone, so that the agent cannot vouch for itself.
"""

from collections import Counter
from typing import Any

import msgspec

from agent.simulation import Simulation
from fleet.nodeclaims.launch import LAUNCH_GROUP_TAG
from fleet.quota.build_tree import charged_tree
from fleet.snapshot import Gang, Snapshot
from model import labels
from providers.kube.objects import decode_workload
from providers.kube.objects.names import POD_SET, WORKLOAD
from providers.sim.controllers.occupancy import allocatable_of
from providers.sim.store import StoreEvent
from providers.sim.store.podrequests import requests_of

Obj = dict[str, Any]

EDGES = {
    "": {"Pending"},
    "Pending": {"Pending", "QuotaReserved", "Admitted", "Finished"},
    "QuotaReserved": {"QuotaReserved", "Admitted", "Pending", "Finished"},
    "Admitted": {"Admitted", "Evicting", "Finished"},
    "Evicting": {"Evicting", "Pending", "Finished"},
    "Finished": {"Finished"},
}
"""State of a gang -> states it may have next."""
UNCLAIMED_S = 120.0
"""How long a machine may run unknown to every claim: the orphan's age, a listing, and the write that ends it."""


class Invariants:
    """Listens to the store; `check` raises with everything that did not hold."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.broken: list[str] = []
        self.births: dict[str, list[float]] = {}
        """Job -> when its pods were created."""
        self.evictions: Counter[str] = Counter()
        """Job -> how often it was told to leave."""
        self._state: dict[str, str] = {}
        self._group_size: dict[str, int] = {}
        self._bought_by_uid: dict[str, str] = {}
        self._hearers = {"Pod": self._pod, "Workload": self._workload, "NodeClaim": self._claim}
        self._deaf = sim.store.subscribe(self._hear)

    # -- at every write -----------------------------------------------------------------------------------------------

    def _hear(self, event: StoreEvent) -> None:
        hearer = self._hearers.get(event.resource.kind)
        if hearer is not None:
            hearer(event)

    def _says(self, holds: bool, words: str) -> None:
        if not holds:
            self.broken.append(f"{self.sim.now_s - 1.8e9:.3f}: {words}")

    def _pod(self, event: StoreEvent) -> None:
        pod, meta = event.object, event.object["metadata"]
        name = (meta.get("labels") or {}).get(WORKLOAD)
        if not name or event.type == "DELETED":
            return
        gang = self._gang(name, meta["namespace"])
        if event.type == "ADDED":
            self._born(pod, gang, name)
        bound_now = pod["spec"].get("nodeName") and not ((event.previous or {}).get("spec") or {}).get("nodeName")
        if bound_now:
            self._bound(pod, gang, name)

    def _born(self, pod: Obj, gang: Gang | None, name: str) -> None:
        who = f"{pod['metadata']['name']} of {name}"
        state = str(gang.state) if gang else "no gang"
        self._says(state in {"Admitted", "Evicting"}, f"pod {who} was born while the gang is {state}")
        if gang is None:
            return
        self.births.setdefault(gang.job.name, []).append(self.sim.now_s)
        gates = [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]
        self._says("muster.dev/placement" in gates, f"pod {who} was born without a gate")
        if state == "Admitted" and not gang.pods_ready and not gang.replacing_since_s:
            for pin in gang.pins:
                self._says(self.sim.object("Node", pin.node) is not None, f"pod {who} before node {pin.node!r}")

    def _bound(self, pod: Obj, gang: Gang | None, name: str) -> None:
        node, meta = pod["spec"]["nodeName"], pod["metadata"]
        if gang is None:
            self._says(False, f"pod {meta['name']} runs without a gang {name}")
            return
        pod_set = meta["labels"].get(POD_SET, "")
        sets = {pod_set, *(it.name for it in gang.pod_sets if it.part_of == pod_set)}
        planned = sum(pin.count for pin in gang.pins if pin.node == node and pin.pod_set in sets)
        if gang.state == "Admitted":
            here = [p for p in self._pods_on(node) if p["metadata"]["labels"].get(WORKLOAD) == name]
            here = [p for p in here if p["metadata"]["labels"].get(POD_SET, "") == pod_set]
            self._says(len(here) <= planned, f"{len(here)} pods of {name}/{pod_set} on {node}, planned were {planned}")
        held = self.sim.object("Node", node)
        self._says(held is not None, f"pod {meta['name']} on node {node}, which is not there")
        if held is not None:
            free, used = allocatable_of(held), Counter[str]()
            for other in self._pods_on(node):
                used.update(requests_of(other))
            over = {r: (a, free.get(r, 0)) for r, a in used.items() if a > free.get(r, 0)}
            self._says(not over, f"{node} holds more than it can: {over}")

    def _pods_on(self, node: str) -> list[Obj]:
        return [
            pod
            for pod in self.sim.objects("Pod")
            if pod["spec"].get("nodeName") == node
            and pod["status"].get("phase") not in {"Succeeded", "Failed"}
            and pod["metadata"].get("labels") is not None
        ]

    def _workload(self, event: StoreEvent) -> None:
        name, uid = event.object["metadata"]["name"], event.object["metadata"]["uid"]
        if event.type == "DELETED":
            self._state.pop(uid, None)
            return
        gang = self._gang(name, event.object["metadata"]["namespace"])
        if gang is None or not (event.object.get("status") or {}):
            return
        before, after = self._state.get(uid, ""), str(gang.state)
        self._state[uid] = after
        allowed = EDGES[before] if before else set(EDGES)
        self._says(after in allowed, f"gang {name} went from {before} to {after}")
        if after == "Evicting" != before:
            self.evictions[gang.job.name] += 1
        if after == "Admitted":
            for pod_set in gang.pod_sets:
                pinned = sum(pin.count for pin in gang.pins if pin.pod_set == pod_set.name)
                self._says(
                    pinned == pod_set.count, f"{name}/{pod_set.name}: {pinned} of {pod_set.count} pods have a place"
                )
            placed = all(pin.node for pin in gang.pins) or gang.replacing_since_s
            self._says(bool(placed), f"{name} is admitted without a node: {gang.pins}")

    def _claim(self, event: StoreEvent) -> None:
        spec, status = event.object["spec"], event.object.get("status") or {}
        launch = spec.get("launch") or {}
        if launch:
            self._group_size[launch["group"]] = launch["size"]
        uid, instance = event.object["metadata"]["uid"], status.get("instanceId", "")
        if instance:
            known = self._bought_by_uid.setdefault(uid, instance)
            self._says(known == instance, f"claim {event.object['metadata']['name']} had {known}, now {instance}")

    def _gang(self, name: str, namespace: str) -> Gang | None:
        found = self.sim.object("Workload", name, namespace)
        return decode_workload(msgspec.Raw(msgspec.json.encode(found))) if found else None

    # -- now and then -------------------------------------------------------------------------------------------------

    def audit(self) -> None:
        """The books: machines against claims, quota against what is held."""
        claims = self.sim.claims()
        owners = Counter(claim.instance_id for claim in claims.values() if claim.instance_id)
        for instance_id, held in owners.items():
            self._says(held == 1, f"{held} claims hold {instance_id}")
        groups = Counter(claim.launch.group for claim in claims.values() if not claim.instance_id)
        for machine in self.sim.machines():
            if labels.CLUSTER not in machine.tags:
                continue  # it is somebody else's
            group = machine.tags.get(LAUNCH_GROUP_TAG, "")
            known = machine.id in owners or groups[group] > 0
            young = self.sim.now_s - machine.launched_at_s <= UNCLAIMED_S
            self._says(known or young, f"machine {machine.id} of group {group} runs and nobody answers for it")
        self._bought_once()
        self._within_quota()

    def _bought_once(self) -> None:
        """A launch group never buys more machines than it has claims."""
        bought = Counter(vm.tags.get(LAUNCH_GROUP_TAG, "") for vm in self.sim.cloud.account._history.values())
        del bought[""]  # of other people
        for group, machines in bought.items():
            size = self._group_size.get(group, 0)
            self._says(machines <= size, f"launch group {group} of {size} has bought {machines} machines")

    def _within_quota(self) -> None:
        fleet = self.sim.brain.sync.fleet if self.sim.alive else None
        if fleet is None:
            return
        tree, total, used = (
            charged_tree(fleet, Snapshot(0.0), self.sim.gangs().values(), {}),
            Counter[Any](),
            Counter[Any](),
        )
        for queue in tree.queues.values():
            used.update({tree.cells[cell]: amount for cell, amount in enumerate(queue.usage) if amount})
        for team in fleet.teams.values():
            for flavor, quota in team.spec.quotas.items():
                for resource, amount in quota.guaranteed.items():
                    total[flavor, resource] += amount
        for cell, amount in used.items():
            most = total[cell.flavor, cell.resource]
            self._says(amount <= most, f"{amount} of {cell} are held, the whole tree has {most}")

    def check(self, *, settled: bool = False) -> None:
        """Everything so far held; `settled`: and nothing is left over or under way."""
        self.audit()
        if settled:
            self._settled()
        assert not self.broken, "\n".join(self.broken[:20])

    def _settled(self) -> None:
        claims, machines = self.sim.claims(), self.sim.machines()
        orphans = {machine.id for machine in machines} - {claim.instance_id for claim in claims.values()}
        self._says(not orphans, f"machines without a claim: {sorted(orphans)}")
        ghosts = {c.name for c in claims.values()} - {c.name for c in claims.values() if c.instance_id}
        self._says(not ghosts, f"claims without a machine: {sorted(ghosts)}")
        nodes = {node["metadata"]["name"] for node in self.sim.objects("Node")}
        named = {claim.node for claim in claims.values()}
        self._says(nodes <= named, f"nodes without a claim: {sorted(nodes - named)}")
        if self.sim.alive:
            brain = self.sim.brain
            self._says(brain.idle, f"actions under way: {sorted(brain._under_way)}")
            for table in brain.mirror._tables():
                self._says(not table._assumptions, f"unconfirmed assumptions: {sorted(table._assumptions)}")
