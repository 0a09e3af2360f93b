"""Giving machines back: `python -m bench.capacity.repack`, a JSON line a size and a price of moving.

A fleet is bought for a mix of pods in Karpenter's order (`mixes.py`), then pods leave: every class loses a part of its
pods that is drawn between nothing and four fifths, so two of five on average, and which ones is drawn too. What is left is one problem.
"""

import random

from bench.capacity.mixes import mix
from fleet.capacity.purchase import Problem as Purchase
from fleet.capacity.purchase.baseline import karpenter_order
from fleet.capacity.purchase.cut import parts_of
from fleet.capacity.purchase.named import batches
from fleet.capacity.repack import Block, Buyable, PodClass, Problem, Rules, Standing


def half_empty(seed: int, pods: int, rules: Rules) -> Problem:
    """The fleet of one seed after the departures."""
    asked = mix(seed, pods)
    draw = random.Random(f"departures/{seed}/{pods}")
    rates = {it.name: draw.uniform(0.0, 0.8) for it in asked.classes}
    requests = {it.name: it.requests for it in asked.classes}
    kinds = {it.name: it for it in asked.kinds}
    standing: list[Standing] = []
    blocks: list[Block] = []
    for kind, held in _machines(asked):
        name = f"machine-{len(standing):04}"
        free = dict(kinds[kind].capacity)
        for pod_class, count in sorted(held.items()):
            stays = sum(draw.random() >= rates[pod_class] for _ in range(count))
            for resource, amount in requests[pod_class].items():
                free[resource] = free.get(resource, 0) - amount * stays
            if stays:
                blocks.append(Block(f"{name}/{pod_class}", {name: {pod_class: stays}}, whole=False))
        standing.append(Standing(name, kind, kinds[kind].price_usd_h, free))
    return Problem(
        asked.resources,
        tuple(PodClass(it.name, it.requests, it.kinds) for it in asked.classes),
        tuple(standing),
        tuple(blocks),
        tuple(Buyable(it.name, it.price_usd_h, it.capacity) for it in asked.kinds),
        rules=rules,
    )


def _machines(asked: Purchase) -> list[tuple[str, dict[str, int]]]:
    """(kind, class -> pods) of every machine that Karpenter's order buys."""
    parts, _ = parts_of(asked, {})
    bought = [batch for part in parts for batch in batches(part, karpenter_order(part))]
    return [(batch.kind, dict(batch.pods)) for batch in bought for _ in range(batch.machines)]
