"""The intent to buy, written down before any money is spent: the claims of a plan."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from fleet.placement.plan import PlacementPlan, PlannedNodeClaims
from fleet.snapshot import Claim, Launch


@dataclass(frozen=True, slots=True)
class WrittenClaims:
    """The claims of a purchase and which bought slot each stands for: (lot, number) -> claim name."""

    claims: tuple[Claim, ...]
    names: dict[tuple[int, int], str]


def write_claims(
    plan: PlacementPlan, owner: str, now_s: float, *, gang: str = "", replaces: tuple[str, ...] = (), purpose: str = ""
) -> WrittenClaims:
    """One claim for each machine of a plan, in one all-or-nothing launch group.

    `owner` (a gang's uid, a pool's name), the instant and what is bought name the group, so that two purchases never
    share one, nor an attempt with the next one. Lots of one offering (a leader's and its workers') are one launch:
    fewer calls, and none of them can come without the others.
    """
    wanted = [(*lot.offering.key, lot.count) for lot in plan.purchases]
    digest = hashlib.sha256(f"{owner}/{now_s!r}/{','.join(replaces)}/{wanted!r}".encode()).hexdigest()[:10]
    size = sum(lot.count for lot in plan.purchases)
    claims: list[Claim] = []
    names: dict[tuple[int, int], str] = {}
    launches: dict[object, int] = {}
    for index, number, lot in _machines(plan):
        offering = lot.offering
        launch = launches.setdefault(offering.key, index)
        names[index, number] = f"{offering.pool.name[:40]}-{digest}-{len(claims)}"
        claims.append(
            Claim(
                name=names[index, number],
                uid="",
                node_pool=offering.pool.name,
                pool_hash=offering.pool_hash,
                capacity_pool=offering.offer.pool_key,
                price_usd_h=offering.offer.price_usd_h,
                list_usd_h=offering.offer.list_usd_h,
                launch=Launch(digest, launch, size),
                created_at_s=now_s,
                gang=gang,
                purpose=purpose,
                replaces=replaces,
                resources=offering.allocatable,
                layout=offering.layout,
            )
        )
    return WrittenClaims(tuple(claims), names)


def _machines(plan: PlacementPlan) -> Iterator[tuple[int, int, PlannedNodeClaims]]:
    for index, lot in enumerate(plan.purchases):
        for number in range(lot.count):
            yield index, number, lot
