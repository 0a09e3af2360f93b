"""Which wish is given up next (`preferences.go`): one a step, in a fixed order, until nothing is left to give up."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from bench.reference.karpenter.buy.values import PodSpecification, Weighted
from model.kinds import Toleration

T = TypeVar("T")

Step = Callable[[PodSpecification], PodSpecification | None]
"""The ask with one wish fewer, None where there is none of that kind."""

SOFT_TAINTS = Toleration(operator="Exists", effect="PreferNoSchedule")


def relaxed(ask: PodSpecification, *, soft_taints: bool) -> PodSpecification | None:
    """The ask after one step; None when nothing can be given up. `soft_taints`: some pool has a PreferNoSchedule."""
    for step in STEPS:
        easier = step(ask)
        if easier is not None:
            return easier
    return _tolerating(ask) if soft_taints else None


def heaviest(terms: tuple[Weighted[T], ...]) -> T | None:
    """The term that is held; the first among equals."""
    return max(terms, key=lambda each: each.weight).term if terms else None


def _lighter(terms: tuple[Weighted[T], ...]) -> tuple[Weighted[T], ...]:
    top = max(range(len(terms)), key=lambda index: terms[index].weight)
    return terms[:top] + terms[top + 1 :]


def _next_alternative(ask: PodSpecification) -> PodSpecification | None:
    """Required affinity is an OR of terms: the first is held, and dropped while another remains."""
    return replace(ask, required=ask.required[1:]) if len(ask.required) > 1 else None


def _affinity(ask: PodSpecification) -> PodSpecification | None:
    held = ask.preferred_affinity
    return replace(ask, preferred_affinity=_lighter(held)) if held else None


def _anti_affinity(ask: PodSpecification) -> PodSpecification | None:
    held = ask.preferred_anti_affinity
    return replace(ask, preferred_anti_affinity=_lighter(held)) if held else None


def _node_affinity(ask: PodSpecification) -> PodSpecification | None:
    return replace(ask, preferred=_lighter(ask.preferred)) if ask.preferred else None


def _spread(ask: PodSpecification) -> PodSpecification | None:
    """The first ScheduleAnyway goes; the last constraint takes its place, as upstream's list does."""
    soft = next((index for index, spread in enumerate(ask.spreads) if not spread.hard), None)
    if soft is None:
        return None
    kept = list(ask.spreads)
    kept[soft] = kept[-1]
    return replace(ask, spreads=tuple(kept[:-1]))


def _tolerating(ask: PodSpecification) -> PodSpecification | None:
    if SOFT_TAINTS in ask.tolerations:
        return None
    return replace(ask, tolerations=(*ask.tolerations, SOFT_TAINTS))


STEPS: tuple[Step, ...] = (_next_alternative, _affinity, _anti_affinity, _node_affinity, _spread)
