"""Counts claims of all devices of a machine (`allocationMode: All`) by the machines that their pods may get.

Quotas and bills know amounts, and how many devices a machine has depends on its type. Where every machine that may
serve the pods has the same number, that is what they ask; where there are several, the claim is refused by name.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from fleet.offerings.offerings import Offerings, offerings_now
from fleet.placement.device_allocator import DeviceAllocator, device_allocator
from fleet.placement.flavor_nodes import nodes_of_flavor, pools_for_pods
from fleet.quota.build_tree import quota_specs
from fleet.quota.queue_binding import binding_of
from fleet.quota.without_queue import with_default_queues
from fleet.snapshot import Job, Pod, PodSet, Snapshot
from fleet.snapshot.affinity import selects
from fleet.snapshot.constraints import UnsupportedConstraint
from fleet.snapshot.devices import NO_DEVICES, DeviceAsk, DeviceClaim, MachineDevices
from model.fleet import Fleet
from model.index import Index, derived, followed_each
from model.kinds import NodePool

_MOST: Final = 32
"""Devices of a claim (`AllocationResultsMaxSize`)."""


def under_fleet(fleet: Fleet, snapshot: Snapshot) -> Snapshot:
    """Returns the snapshot as the deciders are to see it under a fleet: jobs in their queues, claims counted."""
    queued = with_default_queues(fleet, snapshot)
    jobs, pods = _jobs_asking(queued.index, queued.jobs), _pods_asking(queued.index, queued.waiting_pods)
    if not jobs and not pods:
        return queued
    offerings = offerings_now(fleet, queued)
    served = _Served(pools_for_pods(fleet), offerings, queued)
    counted = {uid: _job(_Served(_pools_of(fleet, job), offerings, queued), job) for uid, job in jobs.items()}
    asking = {key: _pod(served, pod) for key, pod in pods.items()}
    return replace(
        queued,
        jobs=_jobs_counted(queued.index, queued.jobs, counted),
        waiting_pods=_pods_counted(queued.index, queued.waiting_pods, asking),
    )


@followed_each()
def _jobs_asking(job: Job) -> Job | None:
    return job if any(map(_asks_for_all, job.pod_sets)) else None


@followed_each()
def _pods_asking(pod: Pod) -> Pod | None:
    return pod if pod.shape is not None and _asks_for_all(pod.shape) else None


@derived(1, steady=True)
def _jobs_counted(_index: Index, jobs: Mapping[str, Job], counted: Mapping[str, Job]) -> Mapping[str, Job]:
    return {**jobs, **counted}


@derived(1, steady=True)
def _pods_counted(_index: Index, pods: Mapping[str, Pod], counted: Mapping[str, Pod]) -> Mapping[str, Pod]:
    return {**pods, **counted}


def _asks_for_all(pods: PodSet) -> bool:
    return any(_open(ask) for claim in pods.constraints.devices for it in claim.requests for ask in it.asks)


def _open(ask: DeviceAsk) -> bool:
    return ask.every and not ask.count


def _pools_of(fleet: Fleet, job: Job) -> Sequence[NodePool]:
    """Returns the pools of the flavors of a job's queue."""
    binding = binding_of(fleet, job.ref.namespace, job.queue)
    spec = quota_specs(fleet).queues.get(binding.name) if binding is not None else None
    names = dict.fromkeys(name for group in spec.groups for name in group.flavors) if spec is not None else ()
    flavors = (nodes_of_flavor(fleet, name) for name in names)
    return list({pool.name: pool for nodes in flavors if nodes is not None for pool in nodes.pools}.values())


class _Served(NamedTuple):
    """The machines that may serve some pods: of pools, or else those that stand."""

    pools: Sequence[NodePool]
    offerings: Offerings
    snapshot: Snapshot

    @property
    def allocator(self) -> DeviceAllocator:
        return device_allocator(self.offerings.index, NO_DEVICES)

    def machines(self, pods: PodSet) -> list[MachineDevices]:
        """Returns the devices of those that the pods select."""
        offered = (it for pool in self.pools for it in self.offerings.of(pool) if selects(pods, it.labels))
        found = {id(it.devices): it.devices for it in offered if it.devices is not None}
        return list(found.values()) or list(self._standing(pods))

    def _standing(self, pods: PodSet) -> Iterable[MachineDevices]:
        there = self.snapshot.devices.machines
        return (
            there[name] for name, node in self.snapshot.nodes.items() if name in there and selects(pods, node.labels)
        )


def _job(served: _Served, job: Job) -> Job:
    return replace(job, pod_sets=tuple(_counted(served, it) if _asks_for_all(it) else it for it in job.pod_sets))


def _pod(served: _Served, pod: Pod) -> Pod:
    shape = _counted(served, pod.shape) if pod.shape is not None else None
    return replace(pod, shape=shape, requests=shape.requests if shape is not None else pod.requests)


def _counted(served: _Served, pods: PodSet) -> PodSet:
    """Returns pods whose claims of all devices say how many these are, or that are refused for it."""
    machines, refused = served.machines(pods), list[UnsupportedConstraint]()
    requests = dict(pods.requests)
    claims = tuple(_claim(served.allocator, machines, claim, refused) for claim in pods.constraints.devices)
    for before, now in zip(pods.constraints.devices, claims, strict=True):
        for resource, amount in now.amounts.items():
            requests[resource] = requests.get(resource, 0) + amount - before.amounts.get(resource, 0)
    if refused:
        return replace(pods, unsupported=(*pods.unsupported, *refused))
    return replace(pods, requests=requests, constraints=replace(pods.constraints, devices=claims))


def _claim(
    allocator: DeviceAllocator,
    machines: Sequence[MachineDevices],
    claim: DeviceClaim,
    refused: list[UnsupportedConstraint],
) -> DeviceClaim:
    requests = []
    for request in claim.requests:
        asks = []
        for ask in request.asks:
            counts = sorted({len(allocator.matching(it, ask) or ()) for it in machines} - {0}) if _open(ask) else []
            if words := _against(counts):
                where = f"spec.resourceClaims: request {ask.name} of claim {claim.shared or claim.name}, allocationMode"
                refused.append(UnsupportedConstraint(where, words))
            asks.append(replace(ask, count=counts[0] if counts else max(1, ask.count)))
        requests.append(request._replace(asks=tuple(asks)))
    return claim._replace(requests=tuple(requests))


def _against(counts: Sequence[int]) -> str:
    """Returns why devices of which machines have these numbers are not counted; empty where they are."""
    if len(counts) > 1:
        numbers = f"{', '.join(map(str, counts[:-1]))} or {counts[-1]}"
        return f"machines that may serve the pods have {numbers} of them: select those of one kind, or say a count"
    return f"a claim has {_MOST} devices at most, and a machine has {counts[0]}" if counts and counts[0] > _MOST else ""
