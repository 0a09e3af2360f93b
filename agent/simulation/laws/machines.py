"""Laws of machines: limits, one machine a claim, none unclaimed, none idle, one replacement each."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from agent.simulation.laws.facts import Durations, Facts, Law, Obj, is_ready
from agent.simulation.writes import AgentWrite
from fleet.snapshot import Instance
from model import labels
from model.kinds.base import NEVER
from providers.sim.store import StoreEvent

UNCLAIMED_S = 120.0
IDLE_MARGIN_S = 900.0
LATE_S = 300.0
"""A machine that takes longer to join is late: what stands for the same gang waits for it."""
REMEMBERED_S = 1200.0
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
        self._known: frozenset[str] = frozenset()
        """Ids of the machines that ran after the last launch: limits that are lowered later take none of them away."""

    def acted(self, write: AgentWrite) -> None:
        """Look at every pool that has more machines right after a launch."""
        if write.verb != "launch":
            return
        pools = defaultdict[str, list[Instance]](list)
        for machine in self._facts.machines():
            pools[machine.tags.get(labels.NODE_POOL, "")].append(machine)
        known, self._known = self._known, frozenset(it.id for machines in pools.values() for it in machines)
        for name, machines in pools.items():
            if not known.issuperset(it.id for it in machines):
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
        self._late: dict[str, tuple[float, float]] = {}
        """Pool -> how long one of its machines was seen not to have joined, and when (lived seconds)."""

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
            if subject.endswith("joins") and (lasted_s := self._idle.of(subject)) > LATE_S:
                pool = machine.tags.get(labels.NODE_POOL, "")
                self._late[pool] = max(lasted_s, self._of_late_s(pool)), self._facts.lived_s
        for subject, machine in idle.items():
            pool = machine.tags.get(labels.NODE_POOL, "")
            quiet_s, lasted_s = self._quiet_s(pool), self._idle.of(subject)
            if quiet_s is not None and lasted_s > quiet_s + IDLE_MARGIN_S + LOOK_MARGIN_S + self._of_late_s(pool):
                self._facts.broken(self.name, machine.id, f"of {pool} has held no pod for {lasted_s:.0f} s")

    def _of_late_s(self, pool: str) -> float:
        lasted_s, at_s = self._late.get(pool, (0.0, 0.0))
        return lasted_s if self._facts.lived_s - at_s < REMEMBERED_S else 0.0

    def _quiet_s(self, pool: str) -> float | None:
        """The longest quiet time declared of late; None where idle machines stay by declaration."""
        declared = self._facts.recent_pools(pool, 3600.0)
        longest = max((it.spec.disruption.consolidate_after for it in declared), default=0.0)
        fixed = any(it.spec.replicas is not None for it in declared)
        return None if fixed or longest == NEVER else longest


class OneReplacement(Law):
    """Machines that go together are replaced once: by one launch, and by no more machines than cost what they cost."""

    name = "one replacement"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._prices: dict[str, float] = {}
        """Of all claims there have been, in USD an hour."""

    def looked(self) -> None:
        """Count what stands in place of those that go together."""
        alive = {machine.id for machine in self._facts.machines()}
        standing = []
        for (_, name), claim in self._facts.tables["NodeClaim"].items():
            self._prices[name] = float(claim["spec"]["usdPerHour"])
            if (claim.get("status") or {}).get("instanceId", "") in alive:
                standing.append(claim["spec"])
        for olds, specs in replacements(standing):
            if (words := replaced_twice(specs)) or (words := replaced_by_more(olds, specs, self._prices)):
                self._facts.broken(self.name, olds[0], words)


def replacements(specs: Iterable[Obj]) -> list[tuple[list[str], list[Obj]]]:
    """Names of claims that go together, as one machine was bought for them, with all that was bought in their place."""
    found: list[tuple[list[str], list[Obj]]] = []
    for spec in specs:
        if not spec.get("replaces"):
            continue
        tied = [it for it in found if not set(it[0]).isdisjoint(spec["replaces"])]
        olds = sorted({*spec["replaces"], *(old for it in tied for old in it[0])})
        found = [it for it in found if it not in tied]
        found.append((olds, [*(one for it in tied for one in it[1]), spec]))
    return found


def replaced_twice(specs: Sequence[Obj]) -> str:
    """Whether several launches stand in the same place, each of them whole; empty where not.

    What is left of a launch that lost a machine may be of use beside the next one.
    """
    launches = [spec.get("launch") or {} for spec in specs]
    standing = Counter(launch.get("group", "") for launch in launches)
    whole = {it.get("group", "") for it in launches if standing[it.get("group", "")] >= int(it.get("size", 1))}
    return f"is replaced by {len(whole)} launches at once" if len(whole) > 1 else ""


def replaced_by_more(olds: Sequence[str], specs: Sequence[Obj], prices: Mapping[str, float]) -> str:
    """Whether machines are replaced by more of them, which cost much more in all; empty where not."""
    if len(specs) <= len(olds) or not prices.keys() >= set(olds):
        return ""
    old_usd_h, usd_h = sum(prices[old] for old in olds), sum(float(spec["usdPerHour"]) for spec in specs)
    words = f"{len(olds)} at {old_usd_h:.2f} USD/h are replaced by {len(specs)} machines at {usd_h:.2f} USD/h"
    return words if usd_h > old_usd_h * MORE else ""
