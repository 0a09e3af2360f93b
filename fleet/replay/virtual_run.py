"""Submitted gangs through the agent's own deciders in virtual time: from event to event, never tick by tick."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from fleet.quota.queue_binding import binding_of
from fleet.replay.outcome import ReplayOutcome, outcome_of
from fleet.replay.submissions import SubmittedGang
from fleet.replay.variants import Variant
from fleet.replay.virtual_agent import VirtualAgent
from fleet.replay.virtual_world import VirtualWorld
from fleet.snapshot import Catalog, Snapshot
from model.fleet import Fleet

LOOK_S: Final = 60.0
"""Waiting gangs are considered once in so many seconds: so much later at most does one start than with the agent."""


@dataclass(frozen=True, slots=True)
class ReplayWindow:
    """A `ReplayWindow` is the time that is replayed (epoch seconds), and how often waiting gangs are considered (s)."""

    begin_s: float
    until_s: float
    look_s: float = LOOK_S


def replay(
    name: str,
    fleet: Fleet,
    catalog: Catalog,
    work: Sequence[SubmittedGang],
    window: ReplayWindow,
    variant: Variant | None = None,
) -> ReplayOutcome:
    """Returns what a fleet does with work that arrives at a cluster without machines.

    Raises `NeverAtRest`, and `UnknownVariant` for a variant of something that is not there.
    """
    return outcome_of(name, played(fleet, catalog, work, window, variant), window.begin_s, window.until_s)


def played(
    fleet: Fleet, catalog: Catalog, work: Sequence[SubmittedGang], window: ReplayWindow, variant: Variant | None = None
) -> VirtualAgent:
    """Returns the agent and its world at the end of the window."""
    variant = variant or Variant()
    market = Snapshot(now_s=window.begin_s, catalog=variant.priced(catalog))
    granted = variant.granted(fleet)
    world = VirtualWorld(granted, market, work, variant.shortages_from(window.begin_s))
    agent = VirtualAgent(granted, world, window.look_s)
    while True:
        agent.settle()
        if world.now_s >= window.until_s:
            return agent
        world.advance(min(window.until_s, world.next_s, agent.next_s()))


def unqueued(fleet: Fleet, work: Sequence[SubmittedGang]) -> list[str]:
    """Returns the queues that work names and that the fleet declares for no namespace it comes from, sorted."""
    asked = {(each.namespace, each.queue) for each in work}
    return sorted({queue for namespace, queue in asked if binding_of(fleet, namespace, queue) is None})


def at_home(fleet: Fleet, each: SubmittedGang) -> SubmittedGang:
    """Returns work that names no namespace in the first one of its queue's team; in one called as the queue else."""
    if each.namespace:
        return each
    binding = binding_of(fleet, "", each.queue)
    homes = binding.team.spec.namespaces if binding is not None and binding.team is not None else ()
    return replace(each, namespace=next(iter(homes), each.queue))
