"""Laws of rest: what is guaranteed runs within an hour, and then nothing more is done."""

from collections import defaultdict
from collections.abc import Mapping
from math import ceil

from agent.simulation.laws.facts import Facts, Key, Law, Obj, is_over, runs
from agent.simulation.writes import AgentWrite
from model.fleet import Fleet
from model.kinds import NodePool
from model.kinds.base import NEVER
from providers.sim.store.podrequests import requests_of


class StandsStill(Law):
    """After an hour of rest ten more turns change nothing."""

    name = "stands still"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._rested = False

    def rested(self) -> None:
        """From here on nothing may be written, unless work ends by itself or machines expire."""
        fleet = self._facts.fleet
        pools = fleet.node_pools.values() if fleet is not None else ()
        if any(pool.spec.template.expire_after < NEVER for pool in pools):
            return
        busy = [job for kind in ("Job", "JobSet") for job in self._facts.tables[kind].values() if not is_over(job)]
        self._rested = not any("sim.muster.dev/run-seconds" in str(job["spec"]) for job in busy)

    def acted(self, write: AgentWrite) -> None:
        """What moves something is too much."""
        if self._rested and not write.reports:
            self._facts.broken(self.name, write.subject, f"{write.verb} after an hour of rest")


class GuaranteedRuns(Law):
    """After an hour of rest every gang runs that fits what its team is guaranteed and that machines can be bought for.

    Only what is beyond doubt is asked for: one flavor, a limit that leaves room, no budget, no pause after failures.
    """

    name = "guaranteed runs"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def rested(self) -> None:
        """Look at every gang that waits."""
        fleet = self._facts.fleet
        if fleet is None:
            return
        for key, workload in self._facts.tables["Workload"].items():
            job = self._facts.job_of(key)
            if job is None or is_over(job) or self._excused(fleet, key, workload):
                continue
            if not any(runs(pod) for pod in self._facts.pods_of.get(key, {}).values()):
                status = workload.get("status") or {}
                said = f"{status.get('reason')}: {status.get('message')}"
                self._facts.broken(self.name, "/".join(key), f"fits its guarantee and does not run: {said}")

    def _excused(self, fleet: Fleet, key: Key, workload: Obj) -> bool:
        spec = workload["spec"]
        queue = fleet.queues.get(spec["queue"])
        if queue is None or queue.spec.stop_policy != "None" or not spec.get("active", True):
            return True
        team = fleet.teams[queue.spec.team]
        first = queue.spec.flavors[0]
        pool, quota = fleet.node_pools.get(first), team.spec.quotas.get(first)
        if pool is None or quota is None or team.spec.budget or queue.spec.order == "StrictFIFO":
            return True
        if self._deactivated(workload) or key[0] not in team.spec.namespaces:
            return True
        asked = _asked(spec)
        mine = self._of_team(fleet, queue.spec.team, first)
        return (
            not asked
            or any(
                amount + mine[resource] > int(quota.guaranteed.get(resource, 0)) for resource, amount in asked.items()
            )
            or not self._room(pool, spec, asked)
        )

    def _deactivated(self, workload: Obj) -> bool:
        return (workload.get("status") or {}).get("reason") in {
            "Deactivated",
            "BackOff",
            "MaximumExecutionTimeExceeded",
        }

    def _of_team(self, fleet: Fleet, team: str, flavor: str) -> dict[str, int]:
        """What other gangs of the team hold, wherever it is, or wait for with the same right."""
        held: dict[str, int] = defaultdict(int)
        for key, workload in self._facts.tables["Workload"].items():
            queue = fleet.queues.get(workload["spec"]["queue"])
            if queue is None or queue.spec.team != team:
                continue
            for pod in self._facts.up(key):
                for resource, amount in requests_of(pod).items():
                    held[resource] += amount
        del flavor
        return held

    def _room(self, pool: NodePool, spec: Obj, asked: dict[str, int]) -> bool:
        """Whether so many more machines may be bought, each of the smallest that holds a pod, within the limits."""
        limits = pool.spec.limits
        if pool.spec.sharing.mig or limits.usd_per_hour is not None or limits.resources or pool.spec.requirements:
            return False
        if pool.spec.template.expire_after < NEVER:
            return False
        types = [self._facts.sim.cloud.catalog().types[name] for name in pool.spec.instance_types]
        pods = [
            requests_of({"spec": {"containers": [{"resources": {"requests": it["requests"]}}]}})
            for it in spec["podSets"]
        ]
        least = min((_each(kind.capacity, pods) for kind in types), default=0)
        if least < 1:
            return False
        machines = sum(ceil(int(it["count"]) / least) for it in spec["podSets"])
        standing = sum(it.tags.get("muster.dev/node-pool") == pool.name for it in self._facts.machines())
        return limits.nodes is None or standing + machines <= limits.nodes


def _each(capacity: Mapping[str, int], pods: list[dict[str, int]]) -> int:
    """How many pods of any of these one machine holds, with some of it kept for the system."""
    return min(
        int(capacity.get(name, 0) * 0.9) // amount if name in {"cpu", "memory"} else capacity.get(name, 0) // amount
        for pod in pods
        for name, amount in pod.items()
        if amount and name != "pods"
    )


def _asked(spec: Obj) -> dict[str, int]:
    """What a gang asks for that is counted by quota: devices, or processors where it asks for none."""
    total: dict[str, int] = defaultdict(int)
    for pod_set in spec["podSets"]:
        pod = requests_of({"spec": {"containers": [{"resources": {"requests": pod_set["requests"]}}]}})
        for resource, amount in pod.items():
            total[resource] += amount * int(pod_set["count"])
    devices = {resource: amount for resource, amount in total.items() if "/" in resource}
    return devices or {"cpu": total["cpu"]}
