"""Lists the domains that pods of a gang may share where all of them have to: what pools promise, and NVLink domains.

Which NVLink domain a machine is in is known once it has joined, from its label `nvidia.com/gpu.clique`. Machines of one
capacity block of an UltraServer are known to share one before they are bought: the block stands for it then.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fleet.offerings.offerings import Offerings
from fleet.placement.cluster_state import ClusterState
from fleet.placement.plan import Need
from fleet.reasons import Reason, Refusal
from model import labels
from model.kinds import NodePool
from model.plain_text import counted, number_of
from model.pools import pool_requirements

_MOST_CLIQUES: Final = 32
"""NVLink domains of standing machines that are tried for one part of a gang."""
Tie = Mapping[str, str]
"""Labels that all machines of some pods carry."""


def tied(need: Need, tie: Tie) -> Need:
    """Returns a need held to machines with some labels, which then need not be asked to share a domain."""
    selector = {**need.pod_set.node_selector, **tie}
    return replace(need, pod_set=replace(need.pod_set, node_selector=selector, required_topology=""))


def promised_domains(needs: Sequence[Need]) -> Iterator[tuple[str, list[Need]]]:
    """Yields values that pools promise for the one label pods have to share, with the needs tied to it."""
    wanted = {need.pod_set.required_topology for need in needs} - {"", labels.ZONE, labels.HOSTNAME}
    if len(wanted) != 1:
        return
    label = wanted.pop()
    bound = [need for need in needs if need.pod_set.required_topology == label]
    carried = {pool.spec.template.labels.get(label, "") for need in bound for pool in need.pools}
    for value in sorted(carried - {""}):
        yield value, [tied(need, {label: value}) if need in bound else need for need in needs]


# -- NVLink -----------------------------------------------------------------------------------------------------------


def ways_over_nvlink(needs: Sequence[Need]) -> list[list[Need]]:
    """Returns the ways to place needs whose one wish is how they are split over NVLink domains, the best first.

    Each slice is a need by itself; a set that would like one domain is tried in one first. None where others wish more.
    """
    if any(need.pod_set.wishes and not _slice_size(need) and not _prefers_one(need) for need in needs):
        return []
    ways = [[part for need in needs for part in _parts(need, shared=labels.GPU_CLIQUE)]]
    if any(_prefers_one(need) for need in needs):
        ways.append([part for need in needs for part in _parts(need, shared="")])
    return ways


def _parts(need: Need, shared: str) -> list[Need]:
    pods = need.pod_set
    if _prefers_one(need):
        return [replace(need, pod_set=replace(pods, preferred_topology="", required_topology=shared))]
    size = _slice_size(need)
    if not size:
        return [need]
    part = replace(pods, count=size, slices=(), min_count=None, required_topology=labels.GPU_CLIQUE)
    return [replace(need, pod_set=part)] * (pods.count // size)


def _prefers_one(need: Need) -> bool:
    pods = need.pod_set
    alone = not (pods.slices or pods.group or pods.required_topology)
    return alone and pods.preferred_topology == labels.GPU_CLIQUE


def _slice_size(need: Need) -> int:
    """Returns how many pods of a set make a slice of an NVLink domain; 0 where it is not split so, or by more."""
    pods = need.pod_set
    if pods.group or len(pods.slices) != 1 or pods.required_topology not in {"", labels.ZONE}:
        return 0
    [layer] = pods.slices
    return layer.size if layer.level == labels.GPU_CLIQUE and pods.count % layer.size == 0 else 0


def nvlink_parts(needs: Sequence[Need]) -> list[list[Need]]:
    """Returns the needs that have to be in one NVLink domain: all together, or each slice of a split set by itself."""
    bound = [need for need in needs if need.pod_set.required_topology == labels.GPU_CLIQUE]
    often = Counter(need.pod_set.name for need in bound)
    together = [need for need in bound if often[need.pod_set.name] == 1]
    alone = [[need] for need in bound if often[need.pod_set.name] > 1]
    return [*([together] if together else []), *alone]


def nvlink_domains(state: ClusterState, offerings: Offerings, part: Sequence[Need]) -> list[Tie]:
    """Returns the NVLink domains that might hold a part of a gang, then blocks.

    Of those that stand the fullest with room for all of it comes first, and those with less room in the end.
    """
    room: Counter[str] = Counter()
    for slot in state.slots.values():
        clique = slot.labels.get(labels.GPU_CLIQUE)
        if clique and slot.node and any(need.accepts(slot) for need in part):
            room[clique] += max(need.pod_set.count and slot.room_for(need.pod_set.requests) for need in part)
    pods = sum(need.pod_set.count for need in part)
    able = sorted((count < pods, count, name) for name, count in room.items() if count)[:_MOST_CLIQUES]
    blocks = _blocks(offerings, part)
    return [*({labels.GPU_CLIQUE: it} for *_, it in able), *({labels.CAPACITY_RESERVATION_ID: it} for it in blocks)]


def _blocks(offerings: Offerings, part: Sequence[Need]) -> list[str]:
    """Returns the capacity blocks that are one NVLink domain each and that pools of these pods may buy of."""
    pools = {pool.name: pool for need in part for pool in need.pools}
    offers = (it.offer for pool in pools.values() for it in offerings.of(pool))
    kept = ((offer.reservation, offer.instance_type) for offer in offers)
    return sorted({it.id for it, machine in kept if it is not None and it.joined_by_nvlink(machine)})


def no_nvlink_domain(offerings: Offerings, part: Sequence[Need], refusals: Sequence[Refusal]) -> Refusal:
    """Returns the refusal of pods that no NVLink domain holds, with what is in the way of the nearest."""
    pods = [need.pod_set for need in part]
    names, count = ", ".join(sorted({it.name for it in pods})), sum(it.count for it in pods)
    words = (
        f"{counted(count, 'pod')} of {names} {number_of(count, 'needs', 'need')} one NVLink domain "
        f"({labels.GPU_CLIQUE}), and none has the room"
    )
    if passing := [it for it in refusals if it.reason in {Reason.NO_CAPACITY, Reason.POOL_LIMIT}]:
        nearest = most_telling(passing)
        return replace(nearest, message=f"{words}: {nearest.message}")
    unsold = sold_by_the_block(offerings, (pool for need in part for pool in need.pools))
    return Refusal(Reason.TOPOLOGY, f"{words}: {unsold}" if unsold else words)


def sold_by_the_block(offerings: Offerings, pools: Iterable[NodePool]) -> str:
    """Returns why pools have no offer of machines that NVLink joins; empty where they have some, or may have none."""
    unsold = set()
    for pool in {it.name: it for it in pools}.values():
        sold, wanted = {it.offer.instance_type.name for it in offerings.of(pool)}, pool_requirements(pool)
        joined = (it for it in offerings.catalog.types.values() if it.nvlink_machines and it.name not in sold)
        unsold |= {it.name for it in joined if offerings.suits(pool, wanted, it)}
    if not unsold:
        return ""
    return (
        f"{', '.join(sorted(unsold))} is sold by the UltraServer, as a capacity block, and Muster buys no blocks: buy "
        "one, and let the pool select it (capacityTypes: [reserved], reservations.select)"
    )


def most_telling(refusals: list[Refusal]) -> Refusal:
    """Returns the refusal that says most: a shortage passes, a limit can be raised, the rest needs another gang."""
    passing = [Reason.NO_CAPACITY, Reason.POOL_LIMIT, Reason.LAYOUT_FAILED]
    order = [*passing, Reason.TOPOLOGY, Reason.NO_OFFER, Reason.NO_MATCHING_FLAVOR]
    ranked = sorted(refusals, key=lambda refusal: (order.index(refusal.reason), refusal.retry_at_s, refusal.message))
    return ranked[0] if ranked else Refusal(Reason.NO_OFFER, "no machine of its flavors exists or may be bought")
