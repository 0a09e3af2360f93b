"""Of a pod that belongs to no gang: where it stands or should, or why no machine is bought for it."""

from collections.abc import Iterator
from itertools import chain

from agent.answers import NothingSo
from fleet.explain.what_if import verdict_of
from fleet.placement.flavor_nodes import pools_for_pods
from fleet.snapshot import Pod, Snapshot
from fleet.snapshot.lookups import claims_by_node
from model.fleet import Fleet
from model.plain_text import age


def pod_lines(fleet: Fleet, snapshot: Snapshot, name: str) -> Iterator[str]:
    """Returns all there is to say of the pods of the name, as `called` finds them. Errors: NothingSo."""
    found = called(snapshot, name)
    if not found:
        words = f"no pod {name!r} on a node, or waiting for one that kube-scheduler has not found"
        raise NothingSo(
            f"{words}. It looks for none while a pod has a gate or lacks a ResourceClaim (kubectl describe pod)."
            " One that shares a ResourceClaim with others waits with the first of them: ask for that"
        )
    more = [f"and {len(found) - MOST} more pods of that name"] if len(found) > MOST else []
    return chain(*(lines(fleet, snapshot, pod) for pod in found[:MOST]), more)


MOST = 20
"""Pods that one answer tells of."""


def called(snapshot: Snapshot, name: str) -> list[Pod]:
    """The pods of a name, or `namespace/name`; without any those whose names begin with it, as their owner's does."""
    pods = list(_pods(snapshot))
    exact = [pod for pod in pods if name in {pod.name, pod.key}]
    return exact or [pod for pod in pods if pod.name.startswith(f"{name}-") or pod.key.startswith(f"{name}-")]


def _pods(snapshot: Snapshot) -> Iterator[Pod]:
    tables = (snapshot.node_pods, snapshot.daemon_pods, snapshot.gang_pods, snapshot.job_pods)
    known = {pod.key: pod for table in tables for pods in table.values() for pod in pods}
    yield from (pod for _, pod in sorted({**known, **snapshot.waiting_pods}.items()))


def lines(fleet: Fleet, snapshot: Snapshot, pod: Pod) -> Iterator[str]:
    """The explanation, line by line."""
    yield f"{pod.key}  ({pod.phase})"
    if pod.workload:
        yield f"  it belongs to a gang: muster explain workload {pod.namespace}/{pod.workload}"
    elif pod.held:
        gang = snapshot.gangs.get(pod.job_uid)
        named = f": muster explain workload {gang.namespace}/{gang.workload}" if gang is not None else ""
        yield f"  it waits in its queue{named}"
    elif pod.node:
        claim = claims_by_node(snapshot).get(pod.node)
        yield f"  stands on: {pod.node}" + (f" ({claim.name})" if claim else ", which was not bought here")
    elif pod.waits:
        yield f"  waits:    for {age(snapshot.now_s - pod.waits_since_s)}, kube-scheduler has found no place for it"
        yield from _waiting(fleet, snapshot, pod)
    else:
        yield "  kube-scheduler has not said yet that it finds no place for it, or something holds it"


def _waiting(fleet: Fleet, snapshot: Snapshot, pod: Pod) -> Iterator[str]:
    pools = pools_for_pods(fleet)
    if not pools:
        yield "  machine:  none is bought: no node pool says `serves: [Pods]`"
        return
    yield f"  pools:    {', '.join(pool.name for pool in pools)}"
    found = verdict_of(fleet, snapshot, pod)
    if found is None:
        yield "  machine:  none is looked for: its job is in a queue, or is not known yet"
    elif found.nominated:
        standing = found.claim in snapshot.claims or found.node
        yield f"  machine:  {found.claim or found.node}" + ("" if standing else ", which would be bought now")
    else:
        yield f"  machine:  none: {found.reason}: {found.message}"
