"""Snapshots as no healthy world shows them: claims without machines, gangs of nobody's queue, listings that are old."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from fleet.snapshot import CapacityPool, Snapshot
from tests.agent.scenes import P5, A

V = TypeVar("V")


def distorted(rng: Random, snapshot: Snapshot) -> Snapshot:
    """The snapshot with 1 to 4 things wrong."""
    for _ in range(rng.randint(1, 4)):
        snapshot = rng.choice(DISTORTIONS)(rng, snapshot)
    return snapshot


def _fewer(rng: Random, table: Mapping[str, V]) -> Mapping[str, V]:
    share = rng.choice((0.0, 0.5, 0.8))
    return {key: value for key, value in table.items() if rng.random() < share}


def _one(rng: Random, table: Mapping[str, V], change: Callable[[V], V]) -> Mapping[str, V]:
    if not table:
        return table
    key = rng.choice(sorted(table))
    return {**table, key: change(table[key])}


def _odd_claim(rng: Random, snapshot: Snapshot) -> Snapshot:
    elsewhere = CapacityPool("spot", "x9.unheard", "us-east-9z")
    changes = rng.choice(
        (
            {"node_pool": "nowhere"},
            {"capacity_pool": elsewhere},
            {"layout": "unheard"},
            {"instance_id": ""},
            {"instance_id": "i-0"},
            {"node": ""},
            {"node": "nobody"},
            {"launched_at_s": 0.0, "registered_at_s": 0.0},
            {"launched_at_s": snapshot.now_s + 1e6},
            {"replaces": ("nobody",), "also_for": ("nobody",), "gang": "nobody"},
            {"resources": {}},
            {"deleting": True},
            {"pool_hash": ""},
            {"price_usd_h": 0.0},
        )
    )
    return replace(snapshot, claims=_one(rng, snapshot.claims, lambda claim: replace(claim, **changes)))


def _odd_gang(rng: Random, snapshot: Snapshot) -> Snapshot:
    changes = rng.choice(
        (
            {"queue": "nowhere"},
            {"namespace": "nowhere"},
            {"pins": ()},
            {"admitted_at_s": 0.0},
            {"admitted_at_s": snapshot.now_s + 1e6},
            {"expected_run_s": 0.0},
            {"expected_run_s": 1e-3},
            {"requeue_at_s": snapshot.now_s + 1e6},
            {"pods_ready": True},
            {"pods_ready": False},
            {"pod_sets": ()},
        )
    )
    return replace(snapshot, gangs=_one(rng, snapshot.gangs, lambda gang: replace(gang, **changes)))


def _odd_node(rng: Random, snapshot: Snapshot) -> Snapshot:
    changes = rng.choice(
        ({"labels": {}}, {"allocatable": {}}, {"ready": False}, {"unschedulable": True}, {"provider_id": ""})
    )
    return replace(snapshot, nodes=_one(rng, snapshot.nodes, lambda node: replace(node, **changes)))


def _odd_time(rng: Random, snapshot: Snapshot) -> Snapshot:
    by_s = rng.choice((-1e6, -100.0, 100.0, 1e6, 1e8))
    return replace(snapshot, now_s=max(0.0, snapshot.now_s + by_s))


def _short(rng: Random, snapshot: Snapshot) -> Snapshot:
    until_s = snapshot.now_s + rng.choice((0.0, 60.0, 1e9))
    pools = {it.capacity_pool for it in snapshot.claims.values()} | {CapacityPool("spot", P5, A)}
    return replace(snapshot, shortages=dict.fromkeys(sorted(pools, key=str), until_s))


def _less_on_sale(rng: Random, snapshot: Snapshot) -> Snapshot:
    offers = tuple(offer for offer in snapshot.catalog.offers if rng.random() < 0.3)
    types = snapshot.catalog.types if rng.random() < 0.5 else {}
    return replace(snapshot, catalog=replace(snapshot.catalog, offers=offers, types=types))


DISTORTIONS: Sequence[Callable[[Random, Snapshot], Snapshot]] = (
    _odd_claim,
    _odd_claim,
    _odd_gang,
    _odd_gang,
    _odd_node,
    _odd_time,
    _short,
    _less_on_sale,
    lambda rng, it: replace(it, nodes=_fewer(rng, it.nodes)),
    lambda rng, it: replace(it, claims=_fewer(rng, it.claims)),
    lambda rng, it: replace(it, instances=_fewer(rng, it.instances)),
    lambda rng, it: replace(it, gangs=_fewer(rng, it.gangs)),
    lambda rng, it: replace(it, jobs=_fewer(rng, it.jobs)),
    lambda rng, it: replace(it, gang_pods=_fewer(rng, it.gang_pods)),
    lambda rng, it: replace(it, node_pods=_fewer(rng, it.node_pods)),
    lambda rng, it: replace(it, ordinary_pods=_fewer(rng, it.ordinary_pods)),
    lambda rng, it: replace(it, instances_at_s=rng.choice((0.0, it.now_s - 1e4, it.now_s + 1e4))),
)
