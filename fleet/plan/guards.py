"""Guard rails: what one revision may do at most. A refusal says which rail, by how much, and what to do."""

from collections.abc import Iterator
from math import ceil

from fleet.plan.changes import PlannedChange
from fleet.plan.forecast import Forecast
from model.fleet import Fleet
from model.kinds.policy import GuardRails


def refusals(before: Fleet, after: Fleet, seen: Forecast, *, first: bool) -> tuple[str, ...]:
    """Every rail that the revision would break, as sentences; empty = it may come into force.

    The rails are those in force *before* the revision (its own when it is the `first`), so that one push cannot both
    lift a rail and run through it. Replacements under a pool's budget are not removals; idle machines given back,
    gangs moved because the cloud has another image or network for their pool, and what consolidation does in pools that
    it leaves as they are, are not the revision's doing.
    """
    rails = (after if first else before).policy.spec.guard_rails
    return tuple(_broken(rails, before, after, seen))


def removed_by_revision(seen: Forecast) -> list[PlannedChange]:
    """Machines that go because of what is declared."""
    return [change for change in seen.machines if change.verb == "delete" and not change.upkeep]


def _broken(rails: GuardRails, before: Fleet, after: Fleet, seen: Forecast) -> Iterator[str]:
    if not rails.allow_empty_fleet and before.node_pools and not after.node_pools:
        yield (
            f"it deletes every node pool ({len(before.node_pools)}); "
            "set guardRails.allowEmptyFleet in an earlier revision if that is meant"
        )
    removed = len(removed_by_revision(seen))
    if rails.max_nodes_removed is not None and removed > rails.max_nodes_removed:
        yield f"it removes {removed} machines, guardRails.maxNodesRemoved allows {rails.max_nodes_removed}"
    if rails.max_percent_removed is not None and seen.existing:
        most = max(1, ceil(seen.existing * rails.max_percent_removed / 100))
        if removed > most:
            yield (
                f"it removes {removed} of {seen.existing} machines, "
                f"guardRails.maxPercentRemoved allows {rails.max_percent_removed} % ({most})"
            )
    added = sum(1 for change in seen.machines if change.verb == "create" and not change.upkeep)
    if rails.max_nodes_added is not None and added > rails.max_nodes_added:
        yield f"it adds {added} machines, guardRails.maxNodesAdded allows {rails.max_nodes_added}"
    usd = seen.then.usd_h - seen.now.usd_h + seen.upkeep_usd_h
    if rails.max_usd_per_hour_added is not None and usd > rails.max_usd_per_hour_added:
        yield f"it adds {usd:.2f} USD/h, guardRails.maxUsdPerHourAdded allows {rails.max_usd_per_hour_added:.2f}"
    stopped = sum(not gang.upkeep for gang in seen.gangs)
    if rails.max_gangs_evicted is not None and stopped > rails.max_gangs_evicted:
        yield f"it stops {stopped} gangs, guardRails.maxGangsEvicted allows {rails.max_gangs_evicted}"
