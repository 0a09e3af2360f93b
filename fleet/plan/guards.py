"""Guard rails: what one revision may do at most. A refusal says which rail, by how much, and what to do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from fleet.plan.changes import PlannedChange
from fleet.plan.consequences import GangImpact, HourlyBill
from model.fleet import Fleet
from model.kinds.policy import GuardRails


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a revision causes in the world it is for."""

    machines: Sequence[PlannedChange]
    gangs: Sequence[GangImpact]
    without: HourlyBill
    """The bill at the end without the revision,"""
    then: HourlyBill
    """and with it."""
    existing: int
    """Machines that exist now."""
    restless: bool = False
    """Whether it is the revision that keeps the fleet from coming to rest: what it does in the end is not known."""


@dataclass(frozen=True, slots=True)
class _GuardedRevision:
    """A revision with the rails in force: what it changes, and what would happen."""

    rails: GuardRails
    before: Fleet
    after: Fleet
    seen: Foreseen


_NOTHING: Final = Foreseen((), (), HourlyBill(0.0), HourlyBill(0.0), 0)


def refusals(before: Fleet, after: Fleet, seen: Foreseen | None, *, first: bool) -> tuple[str, ...]:
    """Returns every rail that the revision would break, as sentences; empty = it may come into force.

    The rails are those in force *before* the revision (its own when it is the `first`), so that one push cannot both
    lift a rail and run through it. Replacements under a pool's budget are not removals, and what would happen without
    the revision as well is not its doing. `seen` is None without a world: only declarations can break a rail then.
    """
    rails = (after if first else before).policy.spec.guard_rails
    revision = _GuardedRevision(rails, before, after, seen or _NOTHING)
    return tuple(filter(None, (broken(revision) for broken in _RAILS)))


def removed_by_revision(seen: Foreseen) -> list[PlannedChange]:
    """Returns the machines that go because of what is declared."""
    return [change for change in seen.machines if change.verb == "delete"]


# -- a function a rail: what is said where it is broken; empty = it holds ---------------------------------------------


def _empty_fleet(revision: _GuardedRevision) -> str:
    before, after = revision.before.node_pools, revision.after.node_pools
    if revision.rails.allow_empty_fleet or after or not before:
        return ""
    hint = "set guardRails.allowEmptyFleet in an earlier revision if that is meant"
    return f"it deletes every node pool ({len(before)}); {hint}"


def _nodes_removed(revision: _GuardedRevision) -> str:
    removed, most = len(removed_by_revision(revision.seen)), revision.rails.max_nodes_removed
    if most is None or removed <= most:
        return ""
    return f"it removes {removed} machines, guardRails.maxNodesRemoved allows {most}"


def _percent_removed(revision: _GuardedRevision) -> str:
    percent, existing = revision.rails.max_percent_removed, revision.seen.existing
    if percent is None or not existing:
        return ""
    removed, most = len(removed_by_revision(revision.seen)), max(1, ceil(existing * percent / 100))
    if removed <= most:
        return ""
    allowed = f"guardRails.maxPercentRemoved allows {percent} % ({most})"
    return f"it removes {removed} of {existing} machines, {allowed}"


def _nodes_added(revision: _GuardedRevision) -> str:
    added = sum(change.verb == "create" for change in revision.seen.machines)
    most = revision.rails.max_nodes_added
    if most is None or added <= most:
        return ""
    return f"it adds {added} machines, guardRails.maxNodesAdded allows {most}"


def _usd_added(revision: _GuardedRevision) -> str:
    seen, most = revision.seen, revision.rails.max_usd_per_hour_added
    usd = seen.then.usd_h - seen.without.usd_h
    if most is None or usd <= most:
        return ""
    return f"it adds {usd:.2f} USD/h, guardRails.maxUsdPerHourAdded allows {most:.2f}"


def _gangs_evicted(revision: _GuardedRevision) -> str:
    stopped, most = sum(gang.stopped for gang in revision.seen.gangs), revision.rails.max_gangs_evicted
    if most is None or stopped <= most:
        return ""
    return f"it stops {stopped} gangs, guardRails.maxGangsEvicted allows {most}"


def _restless(revision: _GuardedRevision) -> str:
    if not revision.seen.restless:
        return ""
    return "under it the fleet never comes to rest, so that nothing bounds what it removes, stops and spends"


_RAILS: Final[Sequence[Callable[[_GuardedRevision], str]]] = (
    _empty_fleet,
    _nodes_removed,
    _percent_removed,
    _nodes_added,
    _usd_added,
    _gangs_evicted,
    _restless,
)
"""In the order in which they are told."""
