"""What a `ClusterModel` is made of: tables of objects, the machines it begins with, and what pods of no gang take."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Generic, TypeVar

from fleet.mig.layouts import gpu_part
from fleet.nodeclaims.termination import instance_gone
from fleet.offerings.device_templates import machine_devices
from fleet.snapshot import Catalog, Claim, Instance, Job, Node, Numbering, Pod, Snapshot
from fleet.snapshot.devices import ClusterDevices
from fleet.snapshot.elastic_parts import pods_in
from model import labels
from model.fleet import Fleet
from model.index import MOST_LOGGED, Index, LoggedTable, derived
from model.kinds import Taint
from model.quantity import Resources, plus

V = TypeVar("V")


_NO_NEWS: Final = frozenset[str]()


class ModelTable(Generic[V]):
    """The objects of one kind by key, and a view of them that is the same object until one of them changes."""

    def __init__(self, objects: Mapping[str, V]) -> None:
        self._log: list[str] = []
        self._view: Mapping[str, V] = LoggedTable(objects, self._log)
        self._now = dict(objects)
        self._same = True
        self._holes = False
        self._news: set[str] = set()
        self.writes = 0
        """How often anything was written."""

    @property
    def view(self) -> Mapping[str, V]:
        """Returns what there is now; later changes do not show in it."""
        if not self._same:
            if self._holes:  # a table from which something was removed takes five times as long to copy
                self._now, self._holes = dict(self._now), False
            self._view, self._same = LoggedTable(self._now, self._log), True
        return self._view

    def get(self, key: str) -> V | None:
        """Returns one object; None where there is none."""
        return self._now.get(key)

    def put(self, key: str, value: V | None) -> None:
        """Writes one object; None removes it."""
        self._news.add(key)
        self.writes += 1
        if len(self._log) >= MOST_LOGGED:
            self._log = []
        self._log.append(key)
        self._same = False
        if value is None:
            self._holes |= self._now.pop(key, None) is not None
        else:
            self._now[key] = value

    def news(self) -> set[str] | frozenset[str]:
        """Returns the keys of all that was written since this was last asked."""
        if not self._news:
            return _NO_NEWS
        found, self._news = self._news, set()
        return found


def observed_machines(snapshot: Snapshot) -> Mapping[str, Instance]:
    """Returns the machines of the cloud, with those of claims that no listing shows and nobody takes for gone."""
    claims = [it for it in snapshot.claims.values() if it.instance_id and not instance_gone(snapshot, it)]
    unlisted = {it.instance_id: machine_of(it, it.instance_id, it.launched_at_s, {}) for it in claims}
    return {**unlisted, **snapshot.instances}


def machine_of(claim: Claim, instance_id: str, launched_at_s: float, tags: Mapping[str, str]) -> Instance:
    """Returns the running machine of a claim."""
    where = claim.capacity_pool
    return Instance(
        instance_id, where.instance_type, where.zone, where.capacity_type, "running", launched_at_s, tags,
        reservation=where.reservation,
    )  # fmt: skip


def born_node(catalog: Catalog, claim: Claim, machine: Instance, taints: tuple[Taint, ...], now_s: float) -> Node:
    """Returns the node that the machine of a claim joins as: ready, with what its type carries."""
    kind, host = catalog.types.get(machine.instance_type), _node_name(claim, machine)
    region = {labels.REGION: catalog.region, labels.ZONE: machine.zone, labels.HOSTNAME: host}
    carried = {**(kind.labels if kind else {}), **region}
    return Node(
        host, f"uid-{host}", f"model:///{machine.zone}/{machine.id}", carried, taints, claim.resources,
        ready=True, unschedulable=False, created_at_s=now_s, ready_changed_at_s=now_s,
    )  # fmt: skip


def _node_name(claim: Claim, machine: Instance) -> str:
    """Returns a name for the node of a machine: in the order of launches, in which equal places are taken then.

    What the node will be called in truth is not known.
    """
    return f"node-{machine.launched_at_s:014.3f}-{machine.id if machine.id.startswith('i-0000') else claim.name}"


def claimable(index: Index, fleet: Fleet, seen: Snapshot, claims: Mapping[str, Claim]) -> ClusterDevices:
    """Returns the devices that are known, and those that machines of the model will have, as they are cut there."""
    if not any(pool.spec.sharing.dra is not None for pool in fleet.node_pools.values()):
        return seen.devices
    return _claimable(index, fleet, seen.catalog, seen.devices, claims)


@derived(1, steady=True)
def _claimable(
    index: Index, fleet: Fleet, catalog: Catalog, known: ClusterDevices, claims: Mapping[str, Claim]
) -> ClusterDevices:
    machines = dict(known.machines)
    for claim in claims.values():
        pool, kind = fleet.node_pools.get(claim.node_pool), catalog.types.get(claim.capacity_pool.instance_type)
        there = machines.get(claim.node)
        if claim.node and pool and kind and (there is None or there.amounts != gpu_part(claim.resources)):
            found = machine_devices(index, fleet, pool, kind, claim.layout, known.rules)
            machines |= {} if found is None else {claim.node: found}
    return known if machines == known.machines else replace(known, machines=machines)


@derived(1)
def summed(_index: Index, one: Mapping[str, Resources], other: Mapping[str, Resources]) -> Mapping[str, Resources]:
    """Returns by node what both say is taken there."""
    return {node: plus(one.get(node, {}), other.get(node, {})) for node in one.keys() | other.keys()}


def less(whole: Mapping[str, Resources], part: Mapping[str, Resources]) -> Mapping[str, Resources]:
    """Returns by node what is taken beside `part`; without nodes where that is nothing."""
    found: dict[str, Resources] = {}
    for node, use in whole.items():
        known = part.get(node, {})
        rest = {name: amount - known.get(name, 0) for name, amount in use.items() if amount > known.get(name, 0)}
        if rest:
            found[node] = rest
    return found


def vacancy(job: Job, pods: Iterable[Pod], like: str) -> str:
    """Returns the pod set of which a job has fewer pods than it asks for: `like` if it is one of them; empty = none."""
    there = Counter(pod.pod_set for pod in pods if pod.active)
    lacking = [it.name for it in job.pod_sets if there[it.name] < it.count]
    return like if like in lacking else next(iter(lacking), "")


def fewer(job: Job, pods: Sequence[Pod]) -> Numbering | None:
    """Returns the numbering of a StatefulSet's pods once some that it asks for no longer have gone."""
    if job.numbering is None or not job.numbering.going:
        return job.numbering
    return replace(job.numbering, going=max(0, sum(pod.active for pod in pods) - pods_in(job.pod_sets)))
