"""Machines of 8 GPUs that nobody buys, teams that share them, gangs that run or wait: a fleet and a snapshot."""

from collections.abc import Iterable, Sequence

from fleet.snapshot import Gang, GangState, JobRef, Node, Pin, PodSet, Snapshot
from model import labels
from model.fleet import Fleet
from model.index import Index
from model.loader import load

GPU, RACK, BLOCK = "nvidia.com/gpu", "topology/rack", "topology/block"
GPUS = 8
"""Of one machine."""
RACKS, HOSTS = 50, 20
"""Racks of a block, machines of a rack."""
NOW_S, STARTED_S = 1_800_000_000.0, 1_799_990_000.0

_FLAVOR = """
apiVersion: muster.dev/v1alpha1
kind: Flavor
metadata: {name: dgx}
spec: {nodeLabels: {machine: dgx}}
---
apiVersion: muster.dev/v1alpha1
kind: PriorityClass
metadata: {name: normal}
spec: {value: 100}
---
apiVersion: muster.dev/v1alpha1
kind: Team
metadata: {name: everybody}
spec: {namespaces: [everybody]}
"""
_TEAM = """---
apiVersion: muster.dev/v1alpha1
kind: Team
metadata: {{name: {name}}}
spec:
  parent: everybody
  namespaces: [{name}]
  quotas: {{dgx: {{guaranteed: {{nvidia.com/gpu: {gpus}}}}}}}
---
apiVersion: muster.dev/v1alpha1
kind: Queue
metadata: {{name: {name}}}
spec: {{team: {name}, flavors: [dgx]}}
"""


def fleet(**guaranteed: int) -> Fleet:
    """Teams, each with a queue of its name, and the GPUs each is guaranteed; what is not used is lent."""
    teams = "".join(_TEAM.format(name=name, gpus=gpus) for name, gpus in guaranteed.items())
    return load({"fleet.yaml": (_FLAVOR + teams).encode()})


def nodes(count: int) -> dict[str, Node]:
    """Machines in racks of blocks."""
    found = {}
    for number in range(count):
        name = f"n{number:05}"
        rack = number // HOSTS
        carried = {
            "machine": "dgx",
            BLOCK: f"b{rack // RACKS:03}",
            RACK: f"r{rack:04}",
            labels.HOSTNAME: name,
            labels.ZONE: "here",
        }
        room = {GPU: GPUS, "cpu": 192_000, "memory": 2 * 2**40, "pods": 110}
        found[name] = Node(name, name, "", carried, (), room, ready=True, unschedulable=False, created_at_s=0.0)
    return found


def gang(name: str, queue: str, count: int = 1, gpus: int = 1, on: Sequence[Pin] = ()) -> Gang:
    """A gang that waits, or one that runs where its pins say."""
    waits = Gang(
        f"uid-{name}",
        queue,
        name,
        JobRef("batch/v1", "Job", queue, name, f"uid-{name}"),
        queue,
        "normal",
        100,
        (PodSet("main", count, {GPU: gpus, "cpu": 4000 * gpus}),),
        STARTED_S - 100.0,
    )
    if not on:
        return waits
    held = {
        "flavors": {"main": ("dgx",)},
        "pins": tuple(on),
        "quota_reserved_at_s": STARTED_S,
        "admitted_at_s": STARTED_S,
    }
    return waits.moved(GangState.ADMITTED, "Running", "all pods are ready", STARTED_S, pods_ready=True, **held)


def singles(queue: str, machines: int, *, spread: bool = False) -> Iterable[Gang]:
    """Running gangs of one pod with one GPU on all machines: in uid order machine by machine, or `spread` over all."""
    for number in range(GPUS * machines):
        where = number % machines if spread else number // GPUS
        yield gang(f"{queue}-{number:05}", queue, on=[Pin("main", f"n{where:05}", "", 1)])


def snapshot(machines: int, gangs: Iterable[Gang], index: Index) -> Snapshot:
    """What is seen of it all, with the index of the engine that decides: it knows gangs that it has seen before."""
    return Snapshot(NOW_S, nodes=nodes(machines), gangs={gang.uid: gang for gang in gangs}, index=index)
