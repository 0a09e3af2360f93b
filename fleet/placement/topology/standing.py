"""Pod sets that run already: the places they keep, and what is left to place.

Source of the rules: Kueue, node replacement (`tas_flavor_snapshot.go`) and elastic workloads with topology
(`tas_elastic_workloads.go`).
"""

from dataclasses import replace

from fleet.placement.topology.ground import Ground
from fleet.placement.topology.tree import Tree
from fleet.placement.topology.values import Placement
from fleet.placement.topology.views import Range
from fleet.placement.topology.wish import Cut, Wish
from fleet.snapshot import PodSet, Slice


def gone(ground: Ground, placement: Placement) -> str:
    """The first domain of a placement that the topology does not have any more, as text; empty when all are there."""
    missing = (values for values in placement.domains if values not in ground.tree.leaf_of)
    return "/".join(next(missing, ()))


def without(placement: Placement, host: str) -> tuple[Placement, int]:
    """The placement less its domain on a host, and how many pods that was."""
    kept = {values: count for values, count in placement.domains.items() if values[-1] != host}
    return replace(placement, domains=kept), placement.count - sum(kept.values())


def shortened(placement: Placement, count: int) -> Placement:
    """The first `count` pods of a placement."""
    kept = {}
    for values, pods in placement.domains.items():
        if (given := min(pods, count)) > 0:
            kept[values] = given
            count -= given
    return replace(placement, domains=kept)


def merged(ground: Ground, one: Placement, other: Placement) -> Placement:
    """Both together, in value order."""
    total = dict(one.domains)
    for values, count in other.domains.items():
        total[values] = total.get(values, 0) + count
    ordered = sorted(total, key=lambda values: ground.tree.leaf_of[values])
    return replace(one, domains={values: total[values] for values in ordered})


def repair(ground: Ground, pod_set: PodSet, kept: Placement, lost: int, wish: Wish) -> tuple[Wish, Range | None]:
    """The wish for `lost` pods of a running set, and the leaves it is confined to.

    Where a slice is broken, the pods go where the rest of it is, in inner slices if those were lost whole. Else a
    required wish keeps to the domain the others are in.
    """
    tree = ground.tree
    wish = replace(wish, count=lost)
    if not kept.domains:
        return wish, None
    broken = next((layer for layer in reversed(pod_set.slices) if lost % layer.size), None)
    if broken is None:
        return wish, domain_of(ground, kept, wish)
    whole = next((layer for layer in reversed(pod_set.slices) if lost % layer.size == 0), None)
    place = _broken_slice(ground, broken, kept, lost)
    cut = Cut(tree.lowest) if whole is None else Cut(tree.levels.index(whole.level), whole.size)
    return (replace(wish, cut=cut), place) if place is not None else (wish, (0, 0))


def domain_of(ground: Ground, placement: Placement, wish: Wish) -> Range | None:
    """The leaves of the domain that a required wish keeps to; None where pods may go anywhere."""
    if not wish.required or not placement.domains:
        return None
    return _around(ground.tree, ground.leaves_in_order(placement)[0], wish.level)


def _around(tree: Tree, leaf: int, level: int) -> Range:
    """The leaves of the domain of `level` that a leaf is in."""
    return tree.span(level, int(tree.parent_of_leaf[level][leaf]), tree.lowest)


def _broken_slice(ground: Ground, layer: Slice, kept: Placement, lost: int) -> Range | None:
    """The first domain in which `lost` more pods make whole slices; None when no domain lacks so many."""
    tree, level = ground.tree, ground.tree.levels.index(layer.level)
    running: dict[Range, int] = {}
    for values, count in kept.domains.items():
        place = _around(tree, tree.leaf_of[values], level)
        running[place] = running.get(place, 0) + count
    return next((place for place, count in sorted(running.items()) if (count + lost) % layer.size == 0), None)
