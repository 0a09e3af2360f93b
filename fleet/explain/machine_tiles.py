"""The machines of a fleet at one glance: what each is, what it costs, and who uses which of its GPUs and slices."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Final

from fleet.mig.layouts import gpu_part, layout_name
from fleet.quota.queue_binding import payer_of
from fleet.snapshot import Claim, ClaimState, Gang, Node, Snapshot
from fleet.snapshot.lookups import claims_by_node, machines_held
from model import labels
from model.fleet import Fleet
from model.index import Index, derived
from model.quantity import Resources, devices_in_sight

UNCLAIMED: Final = "Unclaimed"
"""State of a node that no claim answers for."""


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """GPUs, or slices of one profile, of one machine."""

    resource: str
    total: int
    used: int
    """Of gangs; what ordinary pods take is not among it."""


@dataclass(frozen=True, slots=True)
class MachineTile:
    """One machine: its claim, or a node that nobody claims."""

    name: str
    """Of the claim; of the node where there is none."""
    node: str
    pool: str
    state: str
    """Of the claim (`ClaimState`), `Leaving` where it is to go, `Recutting` where its GPUs are cut, or `Unclaimed`."""
    why: str
    """Why it is to go, or is cut."""
    instance_type: str
    zone: str
    capacity_type: str
    layout: str
    """Declared name of the MIG layout; empty = its GPUs are whole."""
    usd_h: float
    devices: tuple[DeviceUse, ...]
    holders: tuple[Gang, ...]
    teams: tuple[str, ...]
    """Who pays for its holders, by name."""


def machine_tiles(fleet: Fleet, snapshot: Snapshot) -> Sequence[MachineTile]:
    """Returns all machines in order of pool and name, those that nobody claims last."""
    held = machines_held(snapshot)
    return _tiles(snapshot.index, fleet, snapshot.claims, snapshot.nodes, held, claims_by_node(snapshot))


_Facts = tuple[Claim, Node | None, Sequence[Gang]]


@dataclass(frozen=True, slots=True)
class _Made:
    """Tiles by claim, each with the claim, node and gangs that it was made of."""

    fleet: Fleet
    made: Mapping[str, tuple[_Facts, MachineTile]]


@derived(1)
def _tiles(
    index: Index,
    fleet: Fleet,
    claims: Mapping[str, Claim],
    nodes: Mapping[str, Node],
    held: Mapping[str, Sequence[Gang]],
    by_node: Mapping[str, Claim],
) -> Sequence[MachineTile]:
    """Makes the tiles; of machines of which nothing has changed the tile is the one it was."""
    before = index.take(_tiles)
    known = before.made if isinstance(before, _Made) and before.fleet is fleet else {}
    made: dict[str, tuple[_Facts, MachineTile]] = {}
    for name, claim in claims.items():
        facts = claim, nodes.get(claim.node), held.get(name, ())
        old = known.get(name)
        made[name] = old if old is not None and all(map(is_, old[0], facts)) else (facts, _claimed(fleet, *facts))
    index.hand_on(_tiles, _Made(fleet, made))
    ours = sorted((tile for _, tile in made.values()), key=lambda it: (it.pool, it.name))
    return (*ours, *_strangers(fleet, nodes, held, by_node))


def _strangers(
    fleet: Fleet, nodes: Mapping[str, Node], held: Mapping[str, Sequence[Gang]], by_node: Mapping[str, Claim]
) -> Iterator[MachineTile]:
    for name in sorted(nodes.keys() - by_node.keys()):
        yield _unclaimed(fleet, nodes[name], held.get(name, ()))


def _claimed(fleet: Fleet, claim: Claim, node: Node | None, gangs: Sequence[Gang]) -> MachineTile:
    leaving = claim.disruption
    offered = node.allocatable if node is not None and claim.ready_at_s else claim.resources
    pool = claim.capacity_pool
    return MachineTile(
        claim.name,
        claim.node,
        claim.node_pool,
        _state(claim),
        next((f"{why.reason}: {why.message}" for why in (leaving, claim.cut) if why is not None and why.reason), ""),
        pool.instance_type,
        pool.zone,
        pool.capacity_type,
        layout_name(claim.layout),
        claim.charged_usd_h,
        tuple(_devices(claim.layout, offered, gangs, claim.name, claim.node)),
        tuple(gangs),
        _payers(fleet, gangs),
    )


def _state(claim: Claim) -> str:
    if claim.disruption is not None and not claim.deleting:
        return "Leaving"
    return "Recutting" if claim.cut is not None and claim.state is ClaimState.READY else str(claim.state)


def _unclaimed(fleet: Fleet, node: Node, gangs: Sequence[Gang]) -> MachineTile:
    said = node.labels
    return MachineTile(
        node.name,
        node.name,
        said.get(labels.NODE_POOL, ""),
        UNCLAIMED,
        "",
        said.get(labels.INSTANCE_TYPE, ""),
        said.get(labels.ZONE, ""),
        said.get(labels.CAPACITY_TYPE, ""),
        "",
        0.0,
        tuple(_devices(said.get(labels.MIG_CONFIG, ""), node.allocatable, gangs, "", node.name)),
        tuple(gangs),
        _payers(fleet, gangs),
    )


def _devices(layout: str, offered: Resources, gangs: Sequence[Gang], claim: str, node: str) -> Iterator[DeviceUse]:
    """Yields the GPUs and slices that a machine offers, with what the pods pinned there take of them."""
    used: Counter[str] = Counter()
    for gang, pin in [(holder, pin) for holder in gangs for pin in holder.pins]:
        if (pin.claim, claim or pin.node) == (claim, claim or node):
            for resource, amount in gpu_part(gang.pod_set(pin.pod_set).requests).items():
                used[resource] += amount * pin.count
    seen = devices_in_sight(layout, gpu_part(offered), used).items()
    return (DeviceUse(name, total, min(total, used[name])) for name, total in seen)


def _payers(fleet: Fleet, gangs: Sequence[Gang]) -> tuple[str, ...]:
    found = {payer_of(fleet, gang.namespace, gang.queue) for gang in gangs}
    return tuple(sorted(payer for payer in found if payer is not None))
