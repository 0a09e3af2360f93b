"""Laws of machines: limits, one machine a claim, none unclaimed, none idle, one replacement each."""

from collections import Counter, defaultdict

from agent.simulation.laws.facts import Durations, Facts, Law, Obj, is_ready
from agent.simulation.writes import AgentWrite
from fleet.snapshot import Instance
from model import labels
from model.kinds.base import NEVER
from providers.sim.store import StoreEvent

UNCLAIMED_S = 120.0
IDLE_MARGIN_S = 900.0
LOOK_MARGIN_S = 90.0
"""Ticks, listings and the turn of others under the same budget."""
SPOT_MARGIN = 1.5
"""A spot machine may cost so many times what the last reading of prices said."""
MORE = 1.6
"""What stands in place of a machine, together, may cost so many times what it costs: prices move."""
LAUNCH_GROUP = "muster.dev/launch-group"


class PoolLimits(Law):
    """No launch takes a pool beyond its limits on machines and USD an hour."""

    name = "pool limits"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def acted(self, write: AgentWrite) -> None:
        """Look at every pool right after each launch."""
        if write.verb != "launch":
            return
        pools = defaultdict[str, list[Instance]](list)
        for machine in self._facts.machines():
            pools[machine.tags.get(labels.NODE_POOL, "")].append(machine)
        for name, machines in pools.items():
            self._check(name, machines)

    def _check(self, name: str, machines: list[Instance]) -> None:
        limits = [pool.spec.limits for pool in self._facts.recent_pools(name, 120.0)]
        nodes = [limit.nodes for limit in limits]
        if limits and None not in nodes and len(machines) > max(n for n in nodes if n is not None):
            self._facts.broken(self.name, name, f"has {len(machines)} machines, its limit is {nodes[-1]}")
        usd = [limit.usd_per_hour for limit in limits]
        cost = self._usd_h(machines)
        if limits and None not in usd and cost > max(u for u in usd if u is not None) + 0.01:
            self._facts.broken(self.name, name, f"costs {cost:.2f} USD/h, its limit is {usd[-1]}")

    def _usd_h(self, machines: list[Instance]) -> float:
        known = {entry.instance_id: entry.price_usd_h or 0.0 for entry in self._facts.sim.cloud.ledger()}
        parts = [known[it.id] / (SPOT_MARGIN if it.capacity_type == "spot" else 1.0) for it in machines]
        return sum(parts)


class OneMachineAClaim(Law):
    """A claim has one machine in its life, a machine one claim, and a launch group no more machines than claims."""

    name = "one machine a claim"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._machine_of: dict[str, str] = {}
        self._group_size: dict[str, int] = {}

    def changed(self, event: StoreEvent) -> None:
        """Look at claims."""
        if event.resource.kind != "NodeClaim" or event.type == "DELETED":
            return
        claim, name = event.object, event.object["metadata"]["name"]
        launch = claim["spec"].get("launch") or {}
        if launch:
            self._group_size[launch["group"]] = launch["size"]
        instance = (claim.get("status") or {}).get("instanceId", "")
        if instance:
            known = self._machine_of.setdefault(claim["metadata"]["uid"], instance)
            if known != instance:
                self._facts.broken(self.name, name, f"had {known}, has {instance}")

    def looked(self) -> None:
        """Count machines against claims."""
        claims = self._facts.tables["NodeClaim"].values()
        owners = Counter((claim.get("status") or {}).get("instanceId", "") for claim in claims)
        for instance, count in owners.items():
            if instance and count > 1:
                self._facts.broken(self.name, instance, f"{count} claims hold it")
        groups = Counter(machine.tags.get(LAUNCH_GROUP, "") for machine in self._facts.machines())
        for group, count in groups.items():
            if group and count > self._group_size.get(group, count):
                self._facts.broken(self.name, group, f"has {count} machines for {self._group_size[group]} claims")


class NothingUnclaimed(Law):
    """No machine runs for longer than 120 s without a claim that answers for it."""

    name = "nothing unclaimed"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._unclaimed = Durations(facts)

    def looked(self) -> None:
        """Time those that nobody answers for."""
        claims = self._facts.tables["NodeClaim"].values()
        known = {(claim.get("status") or {}).get("instanceId", "") for claim in claims}
        pending = {
            (claim["spec"].get("launch") or {}).get("group", "")
            for claim in claims
            if not (claim.get("status") or {}).get("instanceId")
        }
        lost = {
            machine.id
            for machine in self._facts.machines()
            if machine.id not in known and machine.tags.get(LAUNCH_GROUP, "") not in pending
        }
        self._unclaimed.keep(lost)
        for machine in sorted(lost):
            if self._unclaimed.of(machine) > UNCLAIMED_S:
                self._facts.broken(self.name, machine, "runs and no claim answers for it")


class NothingIdle(Law):
    """No machine bills without a pod for longer than its pool's quiet time and 15 minutes, whoever it waits for."""

    name = "nothing idle"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._idle = Durations(facts)

    def looked(self) -> None:
        """Time those that hold no pod, anew from when they become nodes."""
        nodes = self._facts.nodes_by_machine()
        idle = {}
        for machine in self._facts.machines():
            node = nodes.get(machine.id)
            if node is None or not self._facts.pods_on.get(node["metadata"]["name"]):
                idle[f"{machine.id} {'joined' if node is not None and is_ready(node) else 'joins'}"] = machine
        self._idle.keep(idle)
        for subject, machine in idle.items():
            pool = machine.tags.get(labels.NODE_POOL, "")
            quiet_s, lasted_s = self._quiet_s(pool), self._idle.of(subject)
            if quiet_s is not None and lasted_s > quiet_s + IDLE_MARGIN_S + LOOK_MARGIN_S:
                self._facts.broken(self.name, machine.id, f"of {pool} has held no pod for {lasted_s:.0f} s")

    def _quiet_s(self, pool: str) -> float | None:
        """The longest quiet time declared of late; None where idle machines stay by declaration."""
        declared = self._facts.recent_pools(pool, 3600.0)
        longest = max((it.spec.disruption.consolidate_after for it in declared), default=0.0)
        fixed = any(it.spec.replicas is not None for it in declared)
        return None if fixed or longest == NEVER else longest


class OneReplacement(Law):
    """A machine that is to go is replaced once: by one launch, and by no more machines than cost what it costs."""

    name = "one replacement"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def looked(self) -> None:
        """Count what stands in place of each machine."""
        alive = {machine.id for machine in self._facts.machines()}
        prices = {}
        replacing = defaultdict[str, list[Obj]](list)
        for (_, name), claim in self._facts.tables["NodeClaim"].items():
            prices[name] = float(claim["spec"]["usdPerHour"])
            if (claim.get("status") or {}).get("instanceId", "") in alive:
                for old in claim["spec"].get("replaces") or ():
                    replacing[old].append(claim["spec"])
        for old, specs in replacing.items():
            groups = {(spec.get("launch") or {}).get("group", "") for spec in specs}
            if len(groups) > 1:
                self._facts.broken(self.name, old, f"is replaced by {len(groups)} launches at once")
            share = sum(1 / len(spec["replaces"]) for spec in specs)
            usd_h = sum(float(spec["usdPerHour"]) / len(spec["replaces"]) for spec in specs)
            if old in prices and share > 1.01 and usd_h > prices[old] * MORE:
                words = f"of {prices[old]:.2f} USD/h is replaced by {len(specs)} machines at {usd_h:.2f} USD/h"
                self._facts.broken(self.name, old, words)
