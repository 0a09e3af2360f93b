"""How the fleet stands at one instant, as metrics: worked out when somebody scrapes, from what the brain saw last.

Labels are of what is declared (teams, queues, pools, flavors), of reasons, and of instance types: their number does not
grow with jobs, pods or machines.
"""

from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from agent.sync import SyncState
from fleet.catalog import InstanceType
from fleet.cost.allocation import MICRO, allocate
from fleet.cost.machine_use import IDLE
from fleet.cost.uses import CostTerms, uses
from fleet.explain.machine_tiles import MachineTile, machine_tiles
from fleet.explain.quota_tree import QuotaRow, quota_rows
from fleet.nodeclaims.garbage_collection import orphaned
from fleet.placement.pod_quota import ordinary_usage
from fleet.quota.admission_fair_sharing import usage_order_values
from fleet.quota.build_tree import charged_tree
from fleet.quota.queue_binding import binding_of
from fleet.snapshot import ClaimState, Gang, GangState, Snapshot
from fleet.snapshot.lookups import claims_by_pool
from model.fleet import Fleet

NOT_DECLARED: Final = "(not declared)"
"""In place of queues that jobs name and nobody declares."""
Samples = Iterable[tuple[Sequence[str], float]]


def standing(fleet: Fleet, snapshot: Snapshot, terms: CostTerms) -> Mapping[str, Callable[[], Iterable[Metric]]]:
    """Returns how queues, pools, machines and teams stand, by parts that are worked out when they are asked for."""
    return {
        "work": lambda: _work(fleet, snapshot),
        "quota": lambda: _quota(fleet, snapshot),
        "machines": lambda: _machines(fleet, snapshot),
        "money": lambda: _money(fleet, snapshot, terms),
    }


def sync_standing(state: SyncState) -> Iterator[Metric]:
    """How the repository stands: the revision in force, what is left to do of it, and whether somebody should look."""
    now = [((state.applied, state.outcome), 1.0)]
    yield _gauge(
        "muster_revision_info", "The revision in force, and what the last one came to", ("revision", "outcome"), now
    )
    bad = state.stalled or bool(state.distrust) or (state.trouble is not None and not state.trouble.transient)
    yield GaugeMetricFamily("muster_sync_stalled", "1 while nothing but a person will help the sync", float(bad))
    trouble = "1 while the repository cannot be read"
    yield GaugeMetricFamily("muster_sync_source_failed", trouble, float(state.trouble is not None))
    left = state.convergence.left if state.convergence is not None else 0
    yield GaugeMetricFamily("muster_sync_left", "What is left to do of the revision in force", left)


# -- work -------------------------------------------------------------------------------------------------------------


def _work(fleet: Fleet, snapshot: Snapshot) -> Iterator[Metric]:
    gangs = snapshot.gangs.values()
    states = Counts((queue_label(fleet, gang), str(gang.state)) for gang in gangs)
    yield _gauge("muster_gangs", "Gangs by queue and state", ("queue", "state"), states.items())
    waiting = [gang for gang in gangs if gang.state is GangState.PENDING]
    reasons = Counts((queue_label(fleet, gang), str(gang.reason)) for gang in waiting)
    words = "Gangs that wait, by why"
    yield _gauge("muster_pending_gangs", words, ("queue", "reason"), reasons.items())
    words = "Seconds that the gang of a queue that waits longest has waited since its submission"
    yield _gauge("muster_oldest_wait_seconds", words, ("queue",), _oldest(fleet, waiting, snapshot.now_s).items())
    use = ((queue.split("/", 1), value) for queue, value in usage_order_values(fleet, snapshot).items())
    words = "Recent use of a local queue, decayed and weighted: the least goes first"
    yield _gauge("muster_local_queue_usage", words, ("namespace", "queue"), use)


def _oldest(fleet: Fleet, waiting: Iterable[Gang], now_s: float) -> Mapping[tuple[str], float]:
    found: dict[tuple[str], float] = {}
    for gang in waiting:
        queue = queue_label(fleet, gang)
        found[queue,] = max(found.get((queue,), 0.0), now_s - gang.created_at_s)
    return found


def queue_label(fleet: Fleet, gang: Gang) -> str:
    """Returns the queue of a gang as a label: all that jobs name and nobody declares are one."""
    return gang.queue if binding_of(fleet, gang.namespace, gang.queue) is not None else NOT_DECLARED


# -- quota ------------------------------------------------------------------------------------------------------------

_SHARES = {
    "guaranteed": "Quota of a team and what those below it lend",
    "limit": "The most a team could use with everybody else idle; no sample where there is no bound",
    "used": "Quota that a team uses",
    "borrowed": "Quota that a team uses beyond its own",
    "lent": "Quota of a team that others use",
}


def _quota(fleet: Fleet, snapshot: Snapshot) -> Iterator[Metric]:
    tree = charged_tree(fleet, snapshot, snapshot.gangs.values(), ordinary_usage(fleet, snapshot))
    used = (
        ((name, *tree.cells[cell]), amount)
        for name, queue in tree.queues.items()
        for cell, amount in enumerate(queue.usage)
        if amount
    )
    yield _gauge("muster_quota_used", "Quota used, in canonical amounts", ("queue", "flavor", "resource"), used)
    rows = [row for row in quota_rows(fleet, snapshot) if not row.is_queue or row.name in fleet.cluster_queues]
    for part, words in _SHARES.items():
        labels = ("team", "flavor", "resource")
        yield _gauge(f"muster_team_quota_{part}", f"{words}, in canonical amounts", labels, _shares(rows, part))


def _shares(rows: Iterable[QuotaRow], part: str) -> Samples:
    for row in rows:
        for share in row.shares:
            amounts = {
                "guaranteed": share.quota,
                "limit": share.most,
                "used": share.used,
                "borrowed": share.borrowed,
                "lent": share.lent,
            }
            amount = amounts[part]
            if amount is not None:
                yield (row.name, share.flavor, share.resource), amount


# -- machines ---------------------------------------------------------------------------------------------------------


def _machines(fleet: Fleet, snapshot: Snapshot) -> Iterator[Metric]:
    pools = claims_by_pool(snapshot)
    machines = Counts((pool, str(claim.state)) for pool, claims in pools.items() for claim in claims)
    yield _gauge("muster_machines", "Machines by pool and state", ("node_pool", "state"), machines.items())
    tiles = machine_tiles(fleet, snapshot)
    words = "GPUs and slices by model and pool: Used, Idle, or the state of a machine that is not ready"
    labels = ("model", "resource", "node_pool", "state")
    yield _gauge("muster_gpus", words, labels, _gpus(tiles, snapshot.catalog.types).items())
    kinds = Counts((claim.capacity_pool.capacity_type,) for claim in snapshot.claims.values())
    yield _gauge("muster_capacity_machines", "Machines by capacity type", ("capacity_type",), kinds.items())
    short = Counts(
        (pool.capacity_type, pool.instance_type)
        for pool, until_s in snapshot.shortages.items()
        if until_s > snapshot.now_s
    )
    words = "Zones and reservations in which a kind of machine cannot be had at present"
    yield _gauge("muster_shortages", words, ("capacity_type", "instance_type"), short.items())
    words = "Machines of this cluster without a claim; many at once are left alone"
    yield GaugeMetricFamily("muster_orphaned_machines", words, len(orphaned(snapshot)))


def _gpus(tiles: Iterable[MachineTile], types: Mapping[str, InstanceType]) -> Mapping[tuple[str, ...], int]:
    found: Counts[tuple[str, ...]] = Counts()
    for tile in tiles:
        model = types[tile.instance_type].gpu_name if tile.instance_type in types else ""
        for device in tile.devices:
            key = model or "unknown", device.resource, tile.pool
            if tile.state == ClaimState.READY:
                found[*key, "Used"] += device.used
                found[*key, "Idle"] += device.total - device.used
            else:
                found[*key, tile.state] += device.total
    return found


# -- money ------------------------------------------------------------------------------------------------------------


def _money(fleet: Fleet, snapshot: Snapshot, terms: CostTerms) -> Iterator[Metric]:
    pools = claims_by_pool(snapshot)
    bills = (
        ((pool,), sum(claim.charged_usd_h for claim in claims if claim.launched_at_s)) for pool, claims in pools.items()
    )
    yield _gauge("muster_usd_per_hour", "USD an hour that the machines of a pool are charged at", ("node_pool",), bills)
    kinds: Counts[tuple[str]] = Counts()
    for claim in snapshot.claims.values():
        if claim.launched_at_s:
            kinds[claim.capacity_pool.capacity_type,] += claim.charged_usd_h  # type: ignore[assignment]
    words = "USD an hour that machines of a capacity type are charged at"
    yield _gauge("muster_capacity_usd_per_hour", words, ("capacity_type",), kinds.items())
    a_second = allocate(snapshot.index, uses(fleet, snapshot, terms), 1.0).by_team
    rates = ((("" if team == IDLE else team,), micro * 3600 / MICRO) for team, micro in a_second.items())
    words = "USD an hour that a team pays for what its gangs hold; the empty team stands for what nobody uses"
    yield _gauge("muster_team_usd_per_hour", words, ("team",), rates)
    spent = (((team,), usd) for team, usd in snapshot.spent_usd.items())
    yield _gauge("muster_spent_usd_month", "USD spent this calendar month (UTC) by team", ("team",), spent)
    budgets = {name: team.spec.budget.usd_per_month for name, team in fleet.teams.items() if team.spec.budget}
    yield _gauge("muster_budget_usd_month", "Budget of a team for the calendar month", ("team",), _of(budgets))
    left = {name: most - snapshot.spent_usd.get(name, 0.0) for name, most in budgets.items()}
    yield _gauge("muster_budget_left_usd", "What is left of a team's budget this month", ("team",), _of(left))
    age_s = max(0.0, snapshot.now_s - snapshot.catalog.priced_at_s)
    yield GaugeMetricFamily("muster_prices_age_seconds", "Age of the oldest price in use, in seconds", age_s)


def _of(amounts: Mapping[str, float]) -> Samples:
    return (((name,), amount) for name, amount in amounts.items())


def _gauge(name: str, words: str, labels: Sequence[str], samples: Samples) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, words, labels=labels)
    for values, value in samples:
        family.add_metric(list(values), value)
    return family
