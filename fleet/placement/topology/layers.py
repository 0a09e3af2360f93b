"""From rooms on hosts to what every domain of every level holds: the bottom-up pass.

Source of the rules: Kueue, topology-aware scheduling (`pkg/cache/scheduler/tas_flavor_snapshot.go`), phase 1.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from fleet.placement.topology.ledger import MOST, IntArray
from fleet.placement.topology.tree import Tree
from fleet.placement.topology.wish import Cut


@dataclass(slots=True)
class Layer:
    """What the domains of one level hold, each array of shape (domains of the level,).

    `pods` and `slices` fit without a leader, `led_pods` and `led_slices` with it somewhere inside, where `leads` is 1.
    Below the level of the slices `slices` is 0. `score` is the sum of the affinity weights of the hosts inside.
    """

    pods: IntArray
    slices: IntArray
    led_pods: IntArray
    led_slices: IntArray
    leads: IntArray
    score: IntArray

    def copied(self) -> "Layer":
        """With arrays of its own."""
        return replace(self, **{field.name: getattr(self, field.name).copy() for field in fields(self)})


def layers_of(tree: Tree, leaf: Layer, cut: Cut, *, led: bool) -> list[Layer]:
    """Every level, coarsest first, from what the leaves hold; the slices in `leaf` are counted anew.

    A leader costs a domain the least that it costs one of its children able to hold it. Children that take inner
    slices count in whole ones.
    """
    layers = [_with_slices(leaf, cut, tree.lowest, led=led)]
    for level in reversed(range(tree.lowest)):
        inner = cut.inner[level + 1] if cut.inner else 0
        above = _above(layers[0], tree.bounds[level][:-1], inner, led=led)
        layers.insert(0, _with_slices(above, cut, level, led=led))
    return layers


def _with_slices(layer: Layer, cut: Cut, level: int, *, led: bool) -> Layer:
    """The layer with its slices, which are known from below unless it is at the level of the slices or under it."""
    if level == cut.level:
        layer.slices = layer.pods if cut.size == 1 else layer.pods // cut.size
        layer.led_slices = layer.slices
        if led:
            layer.led_slices = layer.led_pods if cut.size == 1 else layer.led_pods // cut.size
    elif level > cut.level:
        layer.slices = layer.led_slices = np.zeros_like(layer.pods)
    return layer


def _above(below: Layer, starts: IntArray, inner: int, *, led: bool) -> Layer:
    child_pods = below.pods // inner * inner if inner else below.pods
    pods = np.add.reduceat(child_pods, starts)
    slices = pods if below.slices is child_pods else np.add.reduceat(below.slices, starts)
    score = np.add.reduceat(below.score, starts)
    if not led:
        return Layer(pods, slices, pods, slices, np.zeros_like(pods), score)
    child_led = below.led_pods // inner * inner if inner else below.led_pods
    leads = np.maximum.reduceat(below.leads, starts)
    return Layer(
        pods,
        slices,
        _led(pods, child_pods - child_led, below.leads, starts),
        _led(slices, below.slices - below.led_slices, below.leads, starts),
        leads,
        score,
    )


def _led(total: IntArray, cost: IntArray, leads: IntArray, starts: IntArray) -> IntArray:
    """`total` less the least cost of a leader among children that can hold it; 0 where none can."""
    least = np.minimum.reduceat(np.where(leads > 0, cost, MOST), starts)
    return np.where(least < MOST, total - least, 0)
