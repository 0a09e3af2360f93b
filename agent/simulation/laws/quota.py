"""The law of quota: guarantees, lending and borrowing in the tree of teams, reckoned anew from the pods that run."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from agent.simulation.laws.facts import Facts, Key, Law, Obj, runs
from agent.simulation.laws.gangs import wanted
from model import labels
from model.fleet import Fleet
from model.kinds import Team
from providers.kube.objects.names import WORKLOAD
from providers.sim.store import StoreEvent
from providers.sim.store.podrequests import requests_of

Cell = tuple[str, str]
"""Flavor and resource."""
RECENT_S = 3600.0
"""A gang may start so long after its quota was reserved: its machines have to come first."""


class TeamQuota(Law):
    """A gang starts only where every team on its way to the root stays within guarantee, lending and borrowing."""

    name = "team quota"

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._whole: set[Key] = set()
        """Gangs that have been whole since they started."""

    def changed(self, event: StoreEvent) -> None:
        """Look when the last pod of a gang is bound."""
        pod = event.object
        if event.resource.kind != "Pod" or event.type == "DELETED" or not pod["spec"].get("nodeName"):
            return
        workload = (pod["metadata"].get("labels") or {}).get(WORKLOAD, "")
        key = (pod["metadata"]["namespace"], workload)
        if key in self._whole and not runs(pod):
            self._whole.discard(key)
        if not workload or key in self._whole or ((event.previous or {}).get("spec") or {}).get("nodeName"):
            return
        if len(self._facts.up(key)) >= wanted(self._facts, key, self._facts.pods_of[key]):
            self._whole.add(key)
            self._check(key)

    def _check(self, key: Key) -> None:
        excesses = []
        cells = {cell for pod in self._facts.up(key) for cell in self._cells(pod)}
        for fleet in reversed(self._facts.recent_fleets(RECENT_S)):
            over = excess(fleet, self._usage(fleet), self._team(fleet, key), cells)
            if not over:
                return
            excesses.append(over)
        if excesses:
            self._facts.broken(self.name, "/".join(key), f"starts beyond the quota: {excesses[0]}")

    def _cells(self, pod: Obj) -> dict[Cell, int]:
        """What a pod takes, by the pool of its node."""
        node = self._facts.tables["Node"].get(("", pod["spec"]["nodeName"])) or {"metadata": {}}
        pool = (node["metadata"].get("labels") or {}).get(labels.NODE_POOL, "")
        return {(pool, resource): amount for resource, amount in requests_of(pod).items() if amount}

    def _team(self, fleet: Fleet, key: Key) -> str:
        workload = self._facts.tables["Workload"].get(key) or {}
        queue = fleet.queues.get((workload.get("spec") or {}).get("queue", ""))
        return queue.spec.team if queue else ""

    def _usage(self, fleet: Fleet) -> dict[str, dict[Cell, int]]:
        """What pods of each team take now, by the pool of their node."""
        used: dict[str, dict[Cell, int]] = defaultdict(lambda: defaultdict(int))
        for key in self._facts.pods_of:
            team = self._team(fleet, key)
            for pod in self._facts.up(key) if team else ():
                for cell, amount in self._cells(pod).items():
                    used[team][cell] += amount
        return used


def excess(fleet: Fleet, used: Mapping[str, Mapping[Cell, int]], team: str, cells: Iterable[Cell]) -> str:
    """Why the usage of a team, or of one above it, is more of a cell than the tree allows; empty where it is not.

    A resource of a flavor that no quota of the fleet names is not limited.
    """
    quotas = [quota for it in fleet.teams.values() for quota in it.spec.quotas.items()]
    named = {(flavor, resource) for flavor, quota in quotas for resource in quota.guaranteed}
    for flavor, resource in sorted(named.intersection(cells)):
        tree = _QuotaTree(fleet, (flavor, resource), used)
        at = fleet.teams.get(team)
        while at is not None:
            if tree.usage(at.name) > tree.most(at):
                return f"{at.name} uses {tree.usage(at.name)} {resource} of {flavor}, may use {tree.most(at)}"
            at = fleet.teams.get(at.spec.parent or "")
    return ""


class _QuotaTree:
    """One resource of one flavor in the tree: Kueue's resource_node.go, written down anew."""

    def __init__(self, fleet: Fleet, cell: Cell, used: Mapping[str, Mapping[Cell, int]]) -> None:
        self._fleet = fleet
        self._cell = cell
        self._used = used

    def _children(self, name: str) -> list[Team]:
        return [team for team in self._fleet.teams.values() if team.spec.parent == name]

    def _own(self, name: str, field: str) -> int | None:
        flavor, resource = self._cell
        quota = self._fleet.teams[name].spec.quotas.get(flavor)
        amounts = getattr(quota, field) if quota else None
        return None if amounts is None or resource not in amounts else int(amounts[resource])

    def subtree(self, name: str) -> int:
        """What the team has with what its children lend."""
        lent = sum(self.subtree(child.name) - self.kept(child.name) for child in self._children(name))
        return (self._own(name, "guaranteed") or 0) + lent

    def kept(self, name: str) -> int:
        """What the team does not lend."""
        lending = self._own(name, "lending_limit")
        return 0 if lending is None else max(0, self.subtree(name) - lending)

    def usage(self, name: str) -> int:
        """What the team uses with what its children use beyond what they keep."""
        mine = self._used.get(name, {}).get(self._cell, 0)
        return mine + sum(max(0, self.usage(it.name) - self.kept(it.name)) for it in self._children(name))

    def most(self, team: Team) -> float:
        """What the team may use at most by its own limits; a root cannot borrow."""
        if team.spec.parent is None or team.spec.parent not in self._fleet.teams:
            return self.subtree(team.name)
        borrowing = self._own(team.name, "borrowing_limit")
        return float("inf") if borrowing is None else self.subtree(team.name) + borrowing
