"""Buying machines: the claims of a purchase, written before any money is spent, and the launches they become.

Everything a launch asks for follows from its claims and their pool alone, so that it is the same after any crash.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from fleet.catalog import ImageKind, InstanceType
from fleet.offerings.offerings import node_labels_of
from fleet.offerings.reservations import RESERVED, offer_of
from fleet.placement.plan import PlacementPlan, PlannedNodeClaims
from fleet.snapshot import Claim, Launch, LaunchConfiguration, LaunchRequest, Snapshot
from fleet.snapshot.affinity import UNREGISTERED
from model import labels
from model.fleet import Fleet
from model.index import TableChanges, followed
from model.kinds import NodePool
from model.pools import pool_hashes

LAUNCH_GROUP_TAG = labels.LAUNCH_GROUP
NODE_POOL_TAG = labels.NODE_POOL
MOST_TOGETHER = 500
"""Machines of one request where they need not come together: half of what a cloud may give an account at once."""


def _none(_purposes: Mapping[str, str]) -> tuple[Claim, ...]:
    return ()


@dataclass(slots=True)
class WrittenClaims:
    """The claims of a purchase, written when they are asked for: for most, others are bought in the same pass."""

    names: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """(Lot, number) -> name of the claim that stands for the bought machine."""
    write: Callable[[Mapping[str, str]], tuple[Claim, ...]] = field(default=_none, repr=False, compare=False)
    """Name of a claim -> its purpose, where that is another than was said for all -> the claims, in that order."""
    _purposes: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    _claims: tuple[Claim, ...] | None = field(default=None, repr=False, compare=False)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Returns the claims, in the order of their names."""
        if self._claims is None:
            self._claims = self.write(self._purposes)
        return self._claims

    def are_for(self, purposes: Mapping[str, str]) -> None:
        """Gives the claims these purposes, by name."""
        self._purposes, self._claims = purposes, None


def write_claims(
    plan: PlacementPlan, owner: str, now_s: float, *, gang: str = "", replaces: tuple[str, ...] = (), purpose: str = ""
) -> WrittenClaims:
    """Returns one claim for each machine of a plan, in one all-or-nothing launch group.

    `owner` (a gang's uid, a pool's name), the instant and what is bought name the group, so that two purchases never
    share one, nor an attempt with the next one. Lots of one offering (a leader's and its workers') are one launch:
    fewer calls, and none of them can come without the others.
    """
    if not plan.purchases:
        return WrittenClaims()
    wanted = [(*lot.offering.key, lot.count) for lot in plan.purchases]
    digest = hashlib.sha256(f"{owner}/{now_s!r}/{','.join(replaces)}/{wanted!r}".encode()).hexdigest()[:10]
    names: dict[tuple[int, int], str] = {}
    for index, lot in enumerate(plan.purchases):
        prefix = f"{lot.offering.pool.name[:40]}-{digest}-"
        for number in range(lot.count):
            names[index, number] = f"{prefix}{len(names)}"
    return WrittenClaims(names, partial(_write, plan, names, digest, now_s, gang, replaces, purpose))


def _write(
    plan: PlacementPlan,
    names: Mapping[tuple[int, int], str],
    group: str,
    now_s: float,
    gang: str,
    replaces: tuple[str, ...],
    purpose: str,
    purposes: Mapping[str, str],
) -> tuple[Claim, ...]:
    launches: dict[object, int] = {}
    return tuple(
        Claim(
            name=(name := names[index, number]),
            uid="",
            node_pool=lot.offering.pool.name,
            pool_hash=lot.offering.pool_hash,
            capacity_pool=lot.offering.offer.pool_key,
            price_usd_h=lot.offering.offer.price_usd_h,
            list_usd_h=lot.offering.offer.list_usd_h,
            launch=Launch(group, launches.setdefault(lot.offering.key, index), len(names)),
            created_at_s=now_s,
            gang=gang,
            purpose=purposes.get(name, purpose),
            replaces=replaces,
            resources=lot.offering.allocatable,
            layout=lot.offering.layout,
            startup_taints=lot.offering.pool.spec.template.startup_taints,
        )
        for index, number, lot in _machines(plan)
    )


def in_halves(claims: Sequence[Claim]) -> tuple[Claim, ...]:
    """Returns claims of one purchase that need not come together, in launch groups of halves of what is left.

    A thousand machines of a kind are ten requests, and where the cloud has not got them all, what it has is found in a
    few passes. No request is for more than `MOST_TOGETHER`. Every group is of one lot.
    """
    lots: dict[int, list[Claim]] = {}
    for claim in claims:
        lots.setdefault(claim.launch.lot, []).append(claim)
    found: list[Claim] = []
    for lot, members in sorted(lots.items()):
        begin = 0
        while begin < len(members):
            part = members[begin : begin + min(MOST_TOGETHER, -(-(len(members) - begin) // 2))]
            group = f"{part[0].launch.group}-{lot}-{begin}"
            found += [replace(claim, launch=Launch(group, 0, len(part))) for claim in part]
            begin += len(part)
    return tuple(found)


def _machines(plan: PlacementPlan) -> Iterator[tuple[int, int, PlannedNodeClaims]]:
    for index, lot in enumerate(plan.purchases):
        for number in range(lot.count):
            yield index, number, lot


def launch_groups(snapshot: Snapshot) -> Mapping[str, Sequence[Claim]]:
    """Returns launch group -> its claims, by name."""
    return _launch_groups(snapshot.index, snapshot.claims)


@followed(dict[str, Sequence[Claim]])
def _launch_groups(before: dict[str, Sequence[Claim]], changes: TableChanges[Claim]) -> dict[str, Sequence[Claim]]:
    gone, found = dict(changes.gone()), before.copy()
    others = {
        group: [it for it in before.get(group, ()) if it.name not in gone]
        for group in {it.launch.group for it in gone.values()}
    }
    for _, claim in changes.came():
        others.setdefault(claim.launch.group, list(before.get(claim.launch.group, ()))).append(claim)
    for group, members in others.items():
        found[group] = sorted(members, key=lambda claim: claim.name)
        if not members:
            del found[group]
    return found


def launch_request(fleet: Fleet, snapshot: Snapshot, lot: Sequence[Claim]) -> LaunchRequest:
    """Returns the launch of one lot (claims of one group and capacity pool), from the claims and their pool alone."""
    first = lot[0]
    pool = fleet.node_pools[first.node_pool]
    template = pool.spec.template
    machine = snapshot.catalog.types[first.capacity_pool.instance_type]
    kind = machine.image_kind
    offer = offer_of(first, snapshot)
    return LaunchRequest(
        token=launch_token(lot),
        count=len(lot),
        pool=first.capacity_pool,
        node_pool=pool.name,
        labels=_own_labels(pool, first, snapshot),
        taints=(*template.taints, *first.startup_taints_by(template), UNREGISTERED),
        tags={**template.tags, **own_tags(first, snapshot.cluster)},
        template=template,
        arch=kind.arch,
        accelerator=kind.accelerator,
        placement_group=pool.spec.placement.group,
        fabric_interfaces=machine.fabric_interfaces if machine.fabric_resource in first.resources else 0,
        reservation_kind=offer.reservation.kind if offer.reservation else None,
        interruptible=bool(offer.reservation and offer.reservation.interruptible),
        closed=offer.reservation is None and RESERVED in pool.spec.capacity_types,
    )


def launch_token(claims: Sequence[Claim]) -> str:
    """Returns the idempotency token of a lot: a hash of the uids of its claims, and so the same after any crash."""
    uids = ",".join(sorted(claim.uid for claim in claims))
    return hashlib.sha256(uids.encode()).hexdigest()[:64]


def own_tags(claim: Claim, cluster: str) -> dict[str, str]:
    """Returns the tags that every machine of this cluster carries, bought or adopted."""
    return {labels.CLUSTER: cluster, LAUNCH_GROUP_TAG: claim.launch.group, NODE_POOL_TAG: claim.node_pool}


def _own_labels(pool: NodePool, claim: Claim, snapshot: Snapshot) -> dict[str, str]:
    """Returns the labels of a machine that neither its type nor the cloud provider gives it; KeyError: unknown type."""
    machine = snapshot.catalog.types[claim.capacity_pool.instance_type]
    found = node_labels_of(pool, offer_of(claim, snapshot), claim.layout, snapshot.catalog.region)
    return {key: value for key, value in found.items() if key not in machine.labels and not _cloud_sets(key)}


def _cloud_sets(label: str) -> bool:
    """Returns whether the cloud provider writes the label itself; the kubelet may not set it (NodeRestriction)."""
    return label in {labels.ZONE, labels.REGION}


def launch_configurations(
    fleet: Fleet, types: Mapping[str, InstanceType], claims: Mapping[str, Claim]
) -> tuple[LaunchConfiguration, ...]:
    """Returns what to ask the cloud: one question for each template that has machines, by hash of the template.

    Of pools whose machines are born alike, one that has changes of images proposed speaks for all: more is asked then.
    """
    kinds: dict[str, set[ImageKind]] = {}
    for node_pool, instance_type in {(it.node_pool, it.capacity_pool.instance_type) for it in claims.values()}:
        if node_pool in fleet.node_pools and instance_type in types:
            kinds.setdefault(node_pool, set()).add(types[instance_type].image_kind)
    asked: dict[str, LaunchConfiguration] = {}
    hashes = pool_hashes(fleet.index, fleet.node_pools)
    pools = fleet.node_pools
    for node_pool, found in sorted(kinds.items(), key=lambda it: (pools[it[0]].spec.template.images, it[0])):
        pool = pools[node_pool]
        key = hashes[node_pool]
        known = asked[key].kinds if key in asked else ()
        asked[key] = LaunchConfiguration(key, pool.spec.template, tuple(sorted(found.union(known))))
    return tuple(configuration for _, configuration in sorted(asked.items()))
