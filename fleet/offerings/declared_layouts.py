"""Whether quotas of slices can be held at once: so many machines of each layout, within the limit on nodes.

The integer programme (least machines of a few layouts that cover what is guaranteed) is small: it is solved by trying
every number of machines of all layouts but one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from fleet.mig.layouts import gpu_part, is_gpu_resource, layout_name
from fleet.offerings.declared_pools import DeclaredPools
from fleet.offerings.declared_quotas import GuaranteedQuota, guarantees
from model.problem import Code, Problem

_MOST_STEPS: Final = 50_000
"""Combinations that are looked at; beyond them nothing is said."""


def quotas_beyond_layouts(pools: DeclaredPools) -> Iterator[Problem]:
    """Yields a warning for each pool whose limit on nodes holds each quota of slices, and in no mix of layouts all.

    Flavors that are this one pool are looked at, and pools whose machines differ in nothing but their layout. It stands
    at the last quota of a slice, by name.
    """
    given: dict[str, list[GuaranteedQuota]] = {}
    for each in guarantees(pools.declarations):
        if each.amount and is_gpu_resource(each.resource):
            given.setdefault(each.flavor, []).append(each)
    for pool in pools.judged():
        mig, most = pool.value.spec.sharing.mig, pool.value.spec.limits.nodes
        asked = given.get(pool.value.name, []) if pool.value.name not in pools.declarations.flavors else []
        if mig is None or most is None or not asked:
            continue
        cuts = _cuts(pools, pool.value.name)
        wanted: dict[str, int] = {}
        for each in asked:
            wanted[each.resource] = wanted.get(each.resource, 0) + each.amount
        least = least_machines(list(cuts.values()), wanted) if cuts else None
        alone = (
            [least_machines(list(cuts.values()), {name: amount}) for name, amount in wanted.items()] if least else []
        )
        if least is not None and sum(least) > most >= max(sum(it or ()) for it in alone):
            last = max(asked, key=lambda it: (it.resource, it.source.value.name))
            mix = ", ".join(f"{count} of {name}" for name, count in zip(cuts, least, strict=True) if count)
            amounts = ", ".join(f"{amount} {name.partition('/')[2]}" for name, amount in sorted(wanted.items()))
            message = (
                f"quotas guarantee {amounts}, for which node pool {pool.value.name!r} needs {sum(least)} machines "
                f"({mix}) whatever their layouts; limits.nodes is {most}"
            )
            hint = "raise limits.nodes, guarantee less and let teams borrow, or count muster.dev/gpu-equivalent"
            yield last.source.problem(last.path, message, Code.QUOTA_BEYOND_LIMITS, hint=hint, severity="warning")


def _cuts(pools: DeclaredPools, name: str) -> Mapping[str, Mapping[str, int]]:
    """Returns layout -> GPU resources of a machine; empty where machines of one layout differ in them."""
    found: dict[str, Mapping[str, int]] = {}
    for offering in pools.offerings(pools.declarations.node_pools[name].value):
        gpus, layout = gpu_part(offering.allocatable), layout_name(offering.layout)
        if found.setdefault(layout, gpus) != gpus:
            return {}
    return found


def least_machines(cuts: Sequence[Mapping[str, int]], wanted: Mapping[str, int]) -> Sequence[int] | None:
    """Returns the fewest machines of each layout that together have what is wanted.

    None where no number of them has it, or where there are too many mixes to look at.
    """
    best: tuple[int, Sequence[int]] | None = None
    stack: list[tuple[tuple[int, ...], Mapping[str, int]]] = [((), dict(wanted))]
    steps = 0
    while stack:
        counts, left = stack.pop()
        cut = cuts[len(counts)]
        steps += 1
        if steps > _MOST_STEPS:
            return None
        most = max((-(-amount // cut[name]) for name, amount in left.items() if cut.get(name)), default=0)
        if len(counts) + 1 == len(cuts):
            if all(cut.get(name, 0) * most >= amount for name, amount in left.items()):
                total = sum(counts) + most
                best = min(best, (total, (*counts, most))) if best else (total, (*counts, most))
            continue
        for count in range(most + 1):
            if best is None or sum(counts) + count <= best[0]:
                rest = {name: amount - cut.get(name, 0) * count for name, amount in left.items()}
                stack.append(((*counts, count), {name: amount for name, amount in rest.items() if amount > 0}))
    return best[1] if best else None
